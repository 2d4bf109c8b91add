"""Every operator, declared once. `operators` is the catalog; raw_ops, graphs, documents and tests all read it.

A declaration is a typed function and always has the same four parts:

  the decorator    the outputs, and for every differentiable input the operator that gives its derivative
  the signature    inputs and attributes with their kinds and defaults, in TensorFlow's order (ours come last)
  the docstring    what comes out, with an example that runs
  the body         the plan: from shapes and dtypes to the geometry, the kernel and the outputs; all checks are here

Planning needs no data and allocates nothing, so an operator can be asked what it would do:

>>> plan = operators["MaxPool"].plan(
...     input=Tensor((1, 4, 4, 1), "float32"), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
>>> plan.outputs
(Tensor(shape=(1, 2, 2, 1), dtype='float32', name='output'),)

Derivatives are stated as operators, so every order of derivative is again in the catalog:

>>> operators["MaxPool"].derivatives["input"].operator
'MaxPoolGrad'
>>> operators["MaxPoolGrad"].derivatives["grad"].operator
'MaxPoolGradGrad'
>>> operators["MaxPoolGradGrad"].derivatives["grad"].operator
'MaxPoolGrad'
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from . import checks
from .declare import (
    DTYPES,
    Attribute,
    Data,
    Derivative,
    Edges,
    Flag,
    Floats,
    Format2D,
    Format3D,
    HostInts,
    Index,
    IndexType,
    Input,
    Int,
    Ints,
    Operator,
    Padding,
    Plan,
    Shape,
    Source,
    Tensor,
    gradient_of,
    operator,
    operators,
    shape_of,
    via,
)
from .errors import InvalidArgument
from .geometry import Cells, Drawing, Grid, Ratios, expect_shape
from .policy import Policy
from .windows import Pool

__all__ = ["DTYPES", "Attribute", "Derivative", "Input", "Operator", "Plan", "Source", "Tensor", "operators"]

# ---------------------------------------------------------------------------------------------------------------------
# Kernels: how each family is made of the maps of a backend

Kernel: TypeAlias = Callable[..., Any]


def _maximum(on: Any, pool: Pool, rule: Policy, x: Any) -> Any:
    return on.maximum(pool, x, rule.nan)


def _max_put(on: Any, pool: Pool, rule: Policy, x: Any, y: Any, g: Any) -> Any:
    return on.max_put(pool, x, g, rule.ties, rule.nan)


def _equal_put(on: Any, pool: Pool, rule: Policy, x: Any, y: Any, g: Any) -> Any:
    return on.max_put(pool, x, g, rule.ties, rule.nan, equal_to=y)


def _equal_take(on: Any, pool: Pool, rule: Policy, x: Any, y: Any, v: Any) -> Any:
    return on.max_take(pool, x, v, rule.ties, rule.nan, equal_to=y)


def _checked_put(on: Any, pool: Pool, rule: Policy, x: Any, y: Any, g: Any) -> Any:
    maxima, choice = on.maximum_and_choice(pool, x, rule.nan)
    _expect_maxima(maxima, y)
    return on.put(pool, g, choice) if rule.ties == "first" else on.max_put(pool, x, g, rule.ties, rule.nan)


def _checked_take(on: Any, pool: Pool, rule: Policy, x: Any, y: Any, v: Any) -> Any:
    maxima, choice = on.maximum_and_choice(pool, x, rule.nan)
    _expect_maxima(maxima, y)
    return on.take(pool, v, choice) if rule.ties == "first" else on.max_take(pool, x, v, rule.ties, rule.nan)


def _expect_maxima(maxima: Any, orig_output: Any) -> None:
    different = maxima != orig_output
    if different.any() and (different & ((maxima == maxima) | (orig_output == orig_output))).any():  # NaN equals NaN
        raise InvalidArgument("orig_output is not the maximum of every cell of orig_input", argument="orig_output")


def _mean(on: Any, pool: Pool, rule: Policy, x: Any) -> Any:
    return on.mean(pool, x)


def _spread(on: Any, pool: Pool, rule: Policy, g: Any) -> Any:
    return on.spread(pool, g)


def _maximum_and_index(dtype: str, scope: str, on: Any, pool: Pool, rule: Policy, x: Any) -> Any:
    y, choice = on.maximum_and_choice(pool, x, rule.nan)
    return y, on.choice_to_index(pool, choice, np.dtype(dtype), scope)


def _index_put(scope: str, on: Any, pool: Pool, rule: Policy, x: Any, g: Any, index: Any) -> Any:
    _expect_indices(on, pool, index, scope)
    return on.index_put(pool, g, index, scope)


def _index_take(scope: str, on: Any, pool: Pool, rule: Policy, x: Any, v: Any, index: Any) -> Any:
    _expect_indices(on, pool, index, scope)
    return on.index_take(pool, v, index, scope)


def _expect_indices(on: Any, pool: Pool, index: Any, scope: str) -> None:
    fault = on.index_fault(pool, index, scope)
    if fault is not None:
        position, value = fault
        problem = f"argmax at {position} is {value}, outside its own image in an input of shape {pool.shape}"
        raise InvalidArgument(problem, argument="argmax", given=value)


def _over_drawn_cells(kernel: Kernel, draw: Drawing, on: Any, pool: None, rule: Policy, x: Any) -> Any:
    cells, drawn = draw()
    return kernel(on, drawn, rule, x), on.asarray(cells.rows.copy()), on.asarray(cells.columns.copy())


# ---------------------------------------------------------------------------------------------------------------------
# Plans: which shapes each family expects and gives


def _pooling(kernel: Kernel, x: Tensor, geometry: Grid | Cells) -> Plan:
    pool = geometry.over(x)
    return Plan(kernel, pool, (x.like("output", pool.out_shape),), "i", "o")


def _gradient(kernel: Kernel, x: Tensor, y: Tensor, g: Tensor, geometry: Grid | Cells, reads: str = "ioo") -> Plan:
    """y and g are shaped like the pooling's output, the result like its input."""
    pool = geometry.over(x)
    expect_shape(y, pool.out_shape, partial(geometry.describe, x))
    expect_shape(g, pool.out_shape, partial(geometry.describe, x))
    return Plan(kernel, pool, (x.like("output", x.shape),), reads, "i")


def _second_gradient(
    kernel: Kernel, x: Tensor, y: Tensor, v: Tensor, geometry: Grid | Cells, reads: str = "ioi"
) -> Plan:
    """y is shaped like the pooling's output, v like its input, the result like its output."""
    pool = geometry.over(x)
    expect_shape(y, pool.out_shape, partial(geometry.describe, x))
    expect_shape(v, x.shape, lambda: f"{x.name} has")
    return Plan(kernel, pool, (x.like("output", pool.out_shape),), reads, "o")


def _mean_gradient(x: Tensor, g: Tensor, geometry: Grid | Cells) -> Plan:
    """g is shaped like the pooling's output; of the input, x, only the shape is known."""
    pool = geometry.over(x)
    expect_shape(g, pool.out_shape, partial(geometry.describe, x))
    return Plan(_spread, pool, (g.like("output", x.shape),), "o", "i")


def _fractional(kernel: Kernel, x: Tensor, ratios: Ratios) -> Plan:
    """The geometry is drawn now or anew in every call; the shapes are known in any case."""
    draw = ratios.drawing(x, owner=kernel.__name__)
    rows, columns = ratios.counts(x)
    output = x.like("output", ratios.out_shape(x))
    edges = (
        Tensor((rows + 1,), "int64", "row_pooling_sequence"),
        Tensor((columns + 1,), "int64", "col_pooling_sequence"),
    )
    return Plan(partial(_over_drawn_cells, kernel, draw), None, (output, *edges), "i", "o")


def _scope(include_batch_in_index: bool) -> str:
    return "batch" if include_batch_in_index else "image"


# ---------------------------------------------------------------------------------------------------------------------
# 2-D max pooling


@operator("output", {"input": via("MaxPoolGrad", orig_input="input", orig_output="output", grad=gradient_of("output"))})
def MaxPool(
    input: Data, ksize: Ints, strides: Ints, padding: Padding, explicit_paddings: Ints = (),
    data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The maximum of every window.

    A window may also lie along the channels alone (ksize [1, 1, 1, c] with the same strides): then c adjacent channels
    become one.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> pg.raw_ops.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _pooling(_maximum, input, grid)


@operator(
    "output", {"input": via("MaxPoolGradV2", orig_input="input", orig_output="output", grad=gradient_of("output"))}
)
def MaxPoolV2(
    input: Data, ksize: HostInts, strides: HostInts, padding: Padding, data_format: Format2D = "NHWC",
    explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """MaxPool with ksize and strides given as arrays.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> k = np.array([1, 2, 2, 1], np.int32)
    >>> pg.raw_ops.MaxPoolV2(input=x, ksize=k, strides=k, padding="VALID")[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _pooling(_maximum, input, grid)


@operator("output", {"grad": via("MaxPoolGradGrad", grad=gradient_of("output"))})
def MaxPoolGrad(
    orig_input: Data, orig_output: Data, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    explicit_paddings: Ints = (), data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of MaxPool: every window hands its gradient to the element that won.

    Only the shape of orig_output matters; the winners are found in orig_input.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.array([[1, 5], [3, 5]], np.float32).reshape(1, 2, 2, 1)
    >>> y, g = np.full((2, 1, 1, 1, 1), 5, np.float32)
    >>> args = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    >>> pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **args)[0, :, :, 0]
    array([[0., 5.],
           [0., 0.]], dtype=float32)
    >>> with pg.policy(ties="split"):
    ...     pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **args)[0, :, :, 0]
    array([[0. , 2.5],
           [0. , 2.5]], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _gradient(_max_put, orig_input, orig_output, grad, grid, reads="iOo")


@operator("output", {"grad": via("MaxPoolGradGradV2", grad=gradient_of("output"))})
def MaxPoolGradV2(
    orig_input: Data, orig_output: Data, grad: Data, ksize: HostInts, strides: HostInts, padding: Padding,
    data_format: Format2D = "NHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """MaxPoolGrad with ksize and strides given as arrays.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.array([[1, 5], [3, 5]], np.float32).reshape(1, 2, 2, 1)
    >>> y, g = np.full((2, 1, 1, 1, 1), 5, np.float32)
    >>> k = np.array([1, 2, 2, 1], np.int32)
    >>> pg.raw_ops.MaxPoolGradV2(orig_input=x, orig_output=y, grad=g, ksize=k, strides=k, padding="VALID").ravel()
    array([0., 5., 0., 0.], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _gradient(_max_put, orig_input, orig_output, grad, grid, reads="iOo")


@operator("output", {"grad": via("MaxPoolGrad", grad=gradient_of("output"))})
def MaxPoolGradGrad(
    orig_input: Data, orig_output: Data, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    data_format: Format2D = "NHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The gradient of MaxPoolGrad: of grad, shaped like the input, every window takes the entry of its winner.

    The winner is the first element equal to orig_output; a window without one gives 0.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.array([[1, 5], [3, 5]], np.float32).reshape(1, 2, 2, 1)
    >>> y, v = np.full((1, 1, 1, 1), 5, np.float32), np.array([[1, 2], [3, 4]], np.float32).reshape(1, 2, 2, 1)
    >>> pg.raw_ops.MaxPoolGradGrad(
    ...     orig_input=x, orig_output=y, grad=v, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID").item()
    2.0
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _second_gradient(_equal_take, orig_input, orig_output, grad, grid)


@operator("output", {"grad": via("MaxPoolGradV2", grad=gradient_of("output"))})
def MaxPoolGradGradV2(
    orig_input: Data, orig_output: Data, grad: Data, ksize: HostInts, strides: HostInts, padding: Padding,
    data_format: Format2D = "NHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """MaxPoolGradGrad with ksize and strides given as arrays.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.array([[1, 5], [3, 5]], np.float32).reshape(1, 2, 2, 1)
    >>> y, v = np.full((1, 1, 1, 1), 5, np.float32), np.array([[1, 2], [3, 4]], np.float32).reshape(1, 2, 2, 1)
    >>> k = np.array([1, 2, 2, 1], np.int32)
    >>> pg.raw_ops.MaxPoolGradGradV2(orig_input=x, orig_output=y, grad=v, ksize=k, strides=k, padding="VALID").item()
    2.0
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format, depthwise=True)
    return _second_gradient(_equal_take, orig_input, orig_output, grad, grid)


# ---------------------------------------------------------------------------------------------------------------------
# 2-D max pooling with indices


@operator("output argmax", {"input": via("MaxPoolGradWithArgmax", grad=gradient_of("output"))})
def MaxPoolWithArgmax(
    input: Data, ksize: Ints, strides: Ints, padding: Padding, Targmax: IndexType = "int64",
    include_batch_in_index: Flag = False, explicit_paddings: Ints = (), data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The maximum of every window and where it is: a flat index into the image, or into the whole batch.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.array([[1, 5], [3, 5]], np.float32).reshape(1, 2, 2, 1)
    >>> y, argmax = pg.raw_ops.MaxPoolWithArgmax(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    >>> y.item(), argmax.item()
    (5.0, 1)
    """
    pool = Grid(ksize, strides, padding, explicit_paddings, data_format).over(input)
    highest = math.prod(input.shape[0 if include_batch_in_index else 1 :]) - 1
    if highest > np.iinfo(Targmax).max:
        checks.refuse("Targmax", Targmax, f"a dtype that holds indices up to {highest}")
    kernel = partial(_maximum_and_index, Targmax, _scope(include_batch_in_index))
    outputs = (input.like("output", pool.out_shape), Tensor(pool.out_shape, Targmax, "argmax"))
    return Plan(kernel, pool, outputs, "i", "o")


@operator("output", {"grad": via("MaxPoolGradGradWithArgmax", grad=gradient_of("output"))})
def MaxPoolGradWithArgmax(
    input: Data, grad: Data, argmax: Index, ksize: Ints, strides: Ints, padding: Padding,
    include_batch_in_index: Flag = False, explicit_paddings: Ints = (), data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of MaxPoolWithArgmax: every window hands its gradient to the element that argmax names.

    An index need not lie in its window, but must lie in its image.

    >>> import numpy as np, poolgrad as pg
    >>> x, g = np.zeros((1, 2, 2, 1), np.float32), np.full((1, 1, 1, 1), 5, np.float32)
    >>> argmax = np.full((1, 1, 1, 1), 3)
    >>> pg.raw_ops.MaxPoolGradWithArgmax(
    ...     input=x, grad=g, argmax=argmax, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID").ravel()
    array([0., 0., 0., 5.], dtype=float32)
    """
    kernel = partial(_index_put, _scope(include_batch_in_index))
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _gradient(kernel, input, argmax, grad, grid, reads="Ioo")


@operator("output", {"grad": via("MaxPoolGradWithArgmax", grad=gradient_of("output"))})
def MaxPoolGradGradWithArgmax(
    input: Data, grad: Data, argmax: Index, ksize: Ints, strides: Ints, padding: Padding,
    include_batch_in_index: Flag = False, explicit_paddings: Ints = (), data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of MaxPoolGradWithArgmax: of grad, shaped like the input, every window takes the entry argmax names.

    >>> import numpy as np, poolgrad as pg
    >>> x, v = np.zeros((1, 2, 2, 1), np.float32), np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 2, 1)
    >>> argmax = np.full((1, 1, 1, 1), 3)
    >>> pg.raw_ops.MaxPoolGradGradWithArgmax(
    ...     input=x, grad=v, argmax=argmax, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID").item()
    4.0
    """
    kernel = partial(_index_take, _scope(include_batch_in_index))
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _second_gradient(kernel, input, argmax, grad, grid, reads="Iio")


# ---------------------------------------------------------------------------------------------------------------------
# 2-D average pooling


@operator("output", {"value": via("AvgPoolGrad", orig_input_shape=shape_of("value"), grad=gradient_of("output"))})
def AvgPool(
    value: Data, ksize: Ints, strides: Ints, padding: Padding, data_format: Format2D = "NHWC",
    explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The average of every window; padding is not counted.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> pg.raw_ops.AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")[0, :, :, 0]
    array([[2. , 3.5],
           [6.5, 8. ]], dtype=float32)
    """
    return _pooling(_mean, value, Grid(ksize, strides, padding, explicit_paddings, data_format))


@operator("output", {"grad": via("AvgPool", value=gradient_of("output"))})
def AvgPoolGrad(
    orig_input_shape: Shape, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    data_format: Format2D = "NHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The gradient of AvgPool: every window spreads its gradient evenly over its elements.

    >>> import numpy as np, poolgrad as pg
    >>> g = np.full((1, 1, 2, 1), 4, np.float32)
    >>> pg.raw_ops.AvgPoolGrad(
    ...     orig_input_shape=[1, 2, 3, 1], grad=g, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")[0, :, :, 0]
    array([[1., 1., 2.],
           [1., 1., 2.]], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _mean_gradient(grad.like("orig_input_shape", orig_input_shape), grad, grid)


# ---------------------------------------------------------------------------------------------------------------------
# 3-D pooling


@operator(
    "output", {"input": via("MaxPool3DGrad", orig_input="input", orig_output="output", grad=gradient_of("output"))}
)
def MaxPool3D(
    input: Data, ksize: Ints, strides: Ints, padding: Padding, data_format: Format3D = "NDHWC",
    explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The maximum of every window of a volume.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2, 1)
    >>> pg.raw_ops.MaxPool3D(input=x, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID").item()
    7.0
    """
    return _pooling(_maximum, input, Grid(ksize, strides, padding, explicit_paddings, data_format))


@operator("output", {"grad": via("MaxPool3DGradGrad", grad=gradient_of("output"))})
def MaxPool3DGrad(
    orig_input: Data, orig_output: Data, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    data_format: Format3D = "NDHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The gradient of MaxPool3D: every window hands its gradient to the first element equal to orig_output.

    A window without such an element hands on nothing. With `policy(ties="all")` every such element gets the gradient,
    as in eager TensorFlow.

    >>> import numpy as np, poolgrad as pg
    >>> x, y, g = np.ones((1, 2, 2, 2, 1)), np.ones((1, 1, 1, 1, 1)), np.full((1, 1, 1, 1, 1), 5.0)
    >>> args = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
    >>> pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g, **args).ravel()
    array([5., 0., 0., 0., 0., 0., 0., 0.])
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _gradient(_equal_put, orig_input, orig_output, grad, grid)


@operator("output", {"grad": via("MaxPool3DGrad", grad=gradient_of("output"))})
def MaxPool3DGradGrad(
    orig_input: Data, orig_output: Data, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    data_format: Format3D = "NDHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The gradient of MaxPool3DGrad: of grad, shaped like the input, every window takes the entry of its winner.

    >>> import numpy as np, poolgrad as pg
    >>> x, y = np.ones((1, 2, 2, 2, 1)), np.ones((1, 1, 1, 1, 1))
    >>> v = np.arange(3.0, 11.0).reshape(1, 2, 2, 2, 1)
    >>> pg.raw_ops.MaxPool3DGradGrad(
    ...     orig_input=x, orig_output=y, grad=v, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID").item()
    3.0
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _second_gradient(_equal_take, orig_input, orig_output, grad, grid)


@operator("output", {"input": via("AvgPool3DGrad", orig_input_shape=shape_of("input"), grad=gradient_of("output"))})
def AvgPool3D(
    input: Data, ksize: Ints, strides: Ints, padding: Padding, data_format: Format3D = "NDHWC",
    explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The average of every window of a volume; padding is not counted.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2, 1)
    >>> pg.raw_ops.AvgPool3D(input=x, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID").item()
    3.5
    """
    return _pooling(_mean, input, Grid(ksize, strides, padding, explicit_paddings, data_format))


@operator("output", {"grad": via("AvgPool3D", input=gradient_of("output"))})
def AvgPool3DGrad(
    orig_input_shape: Shape, grad: Data, ksize: Ints, strides: Ints, padding: Padding,
    data_format: Format3D = "NDHWC", explicit_paddings: Ints = (),
) -> Plan:  # fmt: skip
    """The gradient of AvgPool3D: every window spreads its gradient evenly over its elements.

    >>> import numpy as np, poolgrad as pg
    >>> g = np.full((1, 1, 1, 1, 1), 4, np.float32)
    >>> pg.raw_ops.AvgPool3DGrad(
    ...     orig_input_shape=[1, 2, 2, 2, 1], grad=g, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME"
    ... ).ravel()
    array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    grid = Grid(ksize, strides, padding, explicit_paddings, data_format)
    return _mean_gradient(grad.like("orig_input_shape", orig_input_shape), grad, grid)


# ---------------------------------------------------------------------------------------------------------------------
# Fractional pooling

_FRACTIONAL = "output row_pooling_sequence col_pooling_sequence"


@operator(
    _FRACTIONAL,
    {
        "value": via(
            "FractionalMaxPoolGrad", orig_input="value", orig_output="output", out_backprop=gradient_of("output")
        )
    },
)
def FractionalMaxPool(
    value: Data, pooling_ratio: Floats, pseudo_random: Flag = False, overlapping: Flag = False,
    deterministic: Flag = False, seed: Int = 0, seed2: Int = 0, data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The maximum of every cell, where rows and columns are cut into cells of two lengths in random order.

    The same seeds give the same cells as in TensorFlow. The sequences that come out belong to the gradient.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> r = pg.raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1, 1.5, 1.5, 1], deterministic=True, seed=1, seed2=2)
    >>> r.output[0, :, :, 0], r.row_pooling_sequence, r.col_pooling_sequence
    (array([[0., 2.],
           [6., 8.]], dtype=float32), array([0, 1, 3]), array([0, 1, 3]))
    """
    ratios = Ratios(pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, data_format)
    return _fractional(_maximum, value, ratios)


@operator("output", {"out_backprop": via("FractionalMaxPoolGradGrad", grad=gradient_of("output"))})
def FractionalMaxPoolGrad(
    orig_input: Data, orig_output: Data, out_backprop: Data, row_pooling_sequence: Edges,
    col_pooling_sequence: Edges, overlapping: Flag = False, data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of FractionalMaxPool: every cell hands its gradient to the element that won.

    orig_output must be the maxima of orig_input over these cells.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> y = np.array([[4, 5], [7, 8]], np.float32).reshape(1, 2, 2, 1)
    >>> pg.raw_ops.FractionalMaxPoolGrad(
    ...     orig_input=x, orig_output=y, out_backprop=y, row_pooling_sequence=[0, 2, 3], col_pooling_sequence=[0, 2, 3]
    ... )[0, :, :, 0]
    array([[0., 0., 0.],
           [0., 4., 5.],
           [0., 7., 8.]], dtype=float32)
    """
    cells = Cells(row_pooling_sequence, col_pooling_sequence, overlapping, data_format)
    return _gradient(_checked_put, orig_input, orig_output, out_backprop, cells)


@operator("output", {"grad": via("FractionalMaxPoolGrad", out_backprop=gradient_of("output"))})
def FractionalMaxPoolGradGrad(
    orig_input: Data, orig_output: Data, grad: Data, row_pooling_sequence: Edges, col_pooling_sequence: Edges,
    overlapping: Flag = False, data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of FractionalMaxPoolGrad: of grad, shaped like the input, every cell takes the entry of its winner.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> y = np.array([[4, 5], [7, 8]], np.float32).reshape(1, 2, 2, 1)
    >>> pg.raw_ops.FractionalMaxPoolGradGrad(
    ...     orig_input=x, orig_output=y, grad=-x, row_pooling_sequence=[0, 2, 3], col_pooling_sequence=[0, 2, 3]
    ... )[0, :, :, 0]
    array([[-4., -5.],
           [-7., -8.]], dtype=float32)
    """
    cells = Cells(row_pooling_sequence, col_pooling_sequence, overlapping, data_format)
    return _second_gradient(_checked_take, orig_input, orig_output, grad, cells)


@operator(
    _FRACTIONAL,
    {
        "value": via(
            "FractionalAvgPoolGrad", orig_input_tensor_shape=shape_of("value"), out_backprop=gradient_of("output")
        )
    },
)
def FractionalAvgPool(
    value: Data, pooling_ratio: Floats, pseudo_random: Flag = False, overlapping: Flag = False,
    deterministic: Flag = False, seed: Int = 0, seed2: Int = 0, data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The average of every cell, where rows and columns are cut into cells of two lengths in random order.

    >>> import numpy as np, poolgrad as pg
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> r = pg.raw_ops.FractionalAvgPool(value=x, pooling_ratio=[1, 1.5, 1.5, 1], deterministic=True, seed=1, seed2=2)
    >>> r.output[0, :, :, 0]
    array([[0. , 1.5],
           [4.5, 6. ]], dtype=float32)
    """
    ratios = Ratios(pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, data_format)
    return _fractional(_mean, value, ratios)


@operator("output", {"out_backprop": via("FractionalAvgPoolGradGrad", grad=gradient_of("output"))})
def FractionalAvgPoolGrad(
    orig_input_tensor_shape: Shape, out_backprop: Data, row_pooling_sequence: Edges, col_pooling_sequence: Edges,
    overlapping: Flag = False, data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of FractionalAvgPool: every cell spreads its gradient evenly over its elements.

    >>> import numpy as np, poolgrad as pg
    >>> g = np.full((1, 2, 2, 1), 4, np.float32)
    >>> pg.raw_ops.FractionalAvgPoolGrad(
    ...     orig_input_tensor_shape=[1, 3, 3, 1], out_backprop=g, row_pooling_sequence=[0, 2, 3],
    ...     col_pooling_sequence=[0, 2, 3])[0, :, :, 0]
    array([[1., 1., 2.],
           [1., 1., 2.],
           [2., 2., 4.]], dtype=float32)
    """
    cells = Cells(row_pooling_sequence, col_pooling_sequence, overlapping, data_format)
    return _mean_gradient(out_backprop.like("orig_input_tensor_shape", orig_input_tensor_shape), out_backprop, cells)


@operator(
    "output",
    {
        "grad": via(
            "FractionalAvgPoolGrad", orig_input_tensor_shape=shape_of("grad"), out_backprop=gradient_of("output")
        )
    },
)
def FractionalAvgPoolGradGrad(
    grad: Data, row_pooling_sequence: Edges, col_pooling_sequence: Edges, overlapping: Flag = False,
    data_format: Format2D = "NHWC",
) -> Plan:  # fmt: skip
    """The gradient of FractionalAvgPoolGrad: the average of grad, shaped like the input, over every cell.

    >>> import numpy as np, poolgrad as pg
    >>> v = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> pg.raw_ops.FractionalAvgPoolGradGrad(
    ...     grad=v, row_pooling_sequence=[0, 2, 3], col_pooling_sequence=[0, 2, 3])[0, :, :, 0]
    array([[2. , 3.5],
           [6.5, 8. ]], dtype=float32)
    """
    return _pooling(_mean, grad, Cells(row_pooling_sequence, col_pooling_sequence, overlapping, data_format))
