"""What every raw operator must return under poolgrad's rules, by the reference. Nothing here looks at the library.

`expected(op, arguments)` gives one Outcome per output: either a *selection* (maxima, choices, gathers: compared bit for
bit) or a *sum* (held exactly, compared within the rounding that the rules allow).
"""

from dataclasses import dataclass

import numpy as np
import reference as ref
from reference import Refused

DEFAULT_FORMAT = {4: "NHWC", 5: "NDHWC"}


@dataclass
class Outcome:
    value: (
        np.ndarray
    )  # selections: in the result's type; sums: exact fractions (float64 where the data holds NaN or inf)
    dtype: np.dtype
    is_sum: bool
    scale: np.ndarray | None = None  # of a sum: the sum of its terms' absolute values, in which rounding is measured


def selection(value, dtype=None):
    return Outcome(value, np.dtype(dtype or value.dtype), False)


def total(add, terms):
    """The outcome of summing an array's elements by `add`."""
    magnitude = np.abs(np.nan_to_num(terms.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    return Outcome(add(wide(terms)), terms.dtype, True, add(magnitude))


def wide(x):
    """Numbers to sum in: fractions, or float64 where a fraction cannot say it (NaN, infinities)."""
    if x.dtype.kind not in "iu" and not np.isfinite(x.astype(np.float64)).all():
        return x.astype(np.float64)
    return ref.exact(x)


def geometry(shape, a):
    """Spatial axes of the array and the windows on each, from TensorFlow-style attributes."""
    form = a.get("data_format") or DEFAULT_FORMAT[len(a["ksize"])]
    if len(shape) != len(form) or len(a["ksize"]) != len(form) or len(a["strides"]) != len(form):
        raise Refused("rank")
    channel = form.index("C")
    pads = list(a.get("explicit_paddings", [])) if a["padding"] == "EXPLICIT" else [0] * 2 * len(form)
    if len(pads) != 2 * len(form) or any(pads[2 * i] or pads[2 * i + 1] for i in (0, channel)):
        raise Refused("explicit paddings")
    if a["ksize"][0] != 1 or a["strides"][0] != 1:
        raise Refused("batch pooling")
    axes = tuple(i for i in range(len(form)) if i not in (0, channel))
    if a["ksize"][channel] != 1:  # depthwise: the channels are the pooled axis
        k = a["ksize"][channel]
        if any(a["ksize"][i] != 1 for i in axes) or a["strides"][channel] != k or shape[channel] % k or k < 1:
            raise Refused("depthwise")
        return (channel,), [ref.regular(shape[channel], k, k)]
    if any(max(pads[2 * i], pads[2 * i + 1]) >= a["ksize"][i] for i in axes):
        raise Refused("padding reaches a whole window")
    return axes, [
        ref.regular(shape[i], a["ksize"][i], a["strides"][i], a["padding"], 1, pads[2 * i], pads[2 * i + 1])
        for i in axes
    ]


def pooled(shape, axes, windows):
    out = list(shape)
    for axis, w in zip(axes, windows):
        out[axis] = len(w)
    return tuple(out)


def need(condition, why):
    if not condition:
        raise Refused(why)


def expected(op, a, ties="first", nan="propagate"):
    """The outcomes of raw_ops.<op>(**a); raises Refused where the rules give the arguments no meaning."""
    a = {k: v for k, v in a.items() if k != "name"}
    return {
        "MaxPool": max_pool, "MaxPoolV2": max_pool, "MaxPool3D": max_pool,
        "MaxPoolGrad": max_grad, "MaxPoolGradV2": max_grad, "MaxPool3DGrad": max_grad_3d,
        "MaxPoolGradGrad": max_grad_grad, "MaxPoolGradGradV2": max_grad_grad, "MaxPool3DGradGrad": max_grad_grad,
        "MaxPoolWithArgmax": with_argmax, "MaxPoolGradWithArgmax": grad_with_argmax,
        "MaxPoolGradGradWithArgmax": grad_grad_with_argmax,
        "AvgPool": avg_pool, "AvgPool3D": avg_pool, "AvgPoolGrad": avg_grad, "AvgPool3DGrad": avg_grad,
        "FractionalMaxPool": fractional_max, "FractionalAvgPool": fractional_avg,
        "FractionalMaxPoolGrad": fractional_max_grad, "FractionalMaxPoolGradGrad": fractional_max_grad_grad,
        "FractionalAvgPoolGrad": fractional_avg_grad, "FractionalAvgPoolGradGrad": fractional_avg_grad_grad,
    }[op](a, ties, nan)  # fmt: skip


# Maximum ------------------------------------------------------------------------------------------------------------


def max_pool(a, ties, nan):
    axes, windows = geometry(a["input"].shape, a)
    return [selection(ref.maximum(a["input"], windows, axes, nan))]


def put_by(x, g, axes, windows, ties, nan, equal_to=None):
    need(g.shape == pooled(x.shape, axes, windows), "grad has the forward shape")
    won = ref.choose(x, windows, axes, ties, nan, equal_to)
    return total(lambda t: ref.put(t, won, windows, axes, [x.shape[i] for i in axes], ties), g)


def take_by(x, v, axes, windows, ties, nan, equal_to=None):
    need(v.shape == x.shape, "grad has the input shape")
    won = ref.choose(x, windows, axes, ties, nan, equal_to)
    if ties == "first":
        return selection(ref.take(v, won, windows, axes))
    return total(lambda t: ref.take(t, won, windows, axes, ties), v)


def max_grad(a, ties, nan):
    axes, windows = geometry(a["orig_input"].shape, a)
    need(a["orig_output"].shape == pooled(a["orig_input"].shape, axes, windows), "orig_output has the forward shape")
    return [put_by(a["orig_input"], a["grad"], axes, windows, ties, nan)]


def max_grad_3d(a, ties, nan):
    axes, windows = geometry(a["orig_input"].shape, a)
    need(a["orig_output"].shape == pooled(a["orig_input"].shape, axes, windows), "orig_output has the forward shape")
    return [put_by(a["orig_input"], a["grad"], axes, windows, ties, nan, a["orig_output"])]


def max_grad_grad(a, ties, nan):
    axes, windows = geometry(a["orig_input"].shape, a)
    need(a["orig_output"].shape == pooled(a["orig_input"].shape, axes, windows), "orig_output has the forward shape")
    return [take_by(a["orig_input"], a["grad"], axes, windows, ties, nan, a["orig_output"])]


# Argmax: a choice told as flat indices, so always one element
# -------------------------------------------------------------


def with_argmax(a, ties, nan):
    x, dtype = a["input"], np.dtype(a.get("Targmax", "int64"))
    axes, windows = geometry(x.shape, a)
    won = ref.choose(x, windows, axes, "first", nan)
    index = ref.take(ref.flat_index(x.shape, a.get("include_batch_in_index", False)), won, windows, axes)
    return [selection(ref.take(x, won, windows, axes)), selection(index.astype(dtype))]


def absolute(a):
    """The argmax as places in the whole array; each must lie in its own image."""
    x, index = a["input"], np.asarray(a["argmax"]).astype(np.int64)
    axes, windows = geometry(x.shape, a)
    need(index.shape == pooled(x.shape, axes, windows), "argmax has the forward shape")
    image = int(np.prod(x.shape[1:]))
    base = (np.arange(x.shape[0]) * image).reshape(-1, *[1] * (x.ndim - 1))
    local = index - base if a.get("include_batch_in_index", False) else index
    need(((local >= 0) & (local < image)).all(), "argmax inside its image")
    return local + base


def grad_with_argmax(a, ties, nan):
    index = absolute(a)
    need(a["grad"].shape == index.shape, "grad has the forward shape")

    def scatter(g):
        gx = np.zeros(a["input"].size, g.dtype)
        for i, value in zip(index.ravel(), g.ravel()):
            gx[i] = gx[i] + value
        return gx.reshape(a["input"].shape)

    return [total(scatter, a["grad"])]


def grad_grad_with_argmax(a, ties, nan):
    index = absolute(a)
    need(a["grad"].shape == a["input"].shape, "grad has the input shape")
    return [selection(a["grad"].ravel()[index.ravel()].reshape(index.shape))]


# Average ------------------------------------------------------------------------------------------------------------


def avg_pool(a, ties, nan):
    x = a["value"] if "value" in a else a["input"]
    axes, windows = geometry(x.shape, a)
    need(axes != (1,) and len(axes) > 1, "averages are spatial")
    return [total(lambda t: ref.mean(t, windows, axes), x)]


def avg_grad(a, ties, nan):
    shape = tuple(int(n) for n in np.asarray(a["orig_input_shape"]).ravel())
    need(np.ndim(a["orig_input_shape"]) == 1 and min(shape) >= 0, "a shape")
    axes, windows = geometry(shape, a)
    need(len(axes) > 1, "averages are spatial")
    need(a["grad"].shape == pooled(shape, axes, windows), "grad has the forward shape")
    return [total(lambda t: ref.spread(t, windows, axes, [shape[i] for i in axes]), a["grad"])]


# Fractional: the sequences are given ----------------------------------------------------------------------------------


def cells_of(shape, a):
    form = a.get("data_format") or "NHWC"
    need(len(shape) == 4 and 0 not in shape, "four non-empty dimensions")
    axes = (form.index("H"), form.index("W"))
    sequences = a["row_pooling_sequence"], a["col_pooling_sequence"]
    need(all(np.ndim(s) == 1 for s in sequences), "sequences are vectors")
    return axes, [ref.fractional(shape[i], s, a.get("overlapping", False)) for i, s in zip(axes, sequences)]


def fractional_max(a, ties, nan):
    axes, windows = cells_of(a["value"].shape, a)
    return [selection(ref.maximum(a["value"], windows, axes, nan))]


def fractional_avg(a, ties, nan):
    axes, windows = cells_of(a["value"].shape, a)
    return [total(lambda t: ref.mean(t, windows, axes), a["value"])]


def checked_max_cells(a, nan):
    x, y = a["orig_input"], a["orig_output"]
    axes, windows = cells_of(x.shape, a)
    need(y.shape == pooled(x.shape, axes, windows), "orig_output has the forward shape")
    forward = ref.maximum(x, windows, axes, nan)
    need(((forward == y) | (ref.is_nan(forward) & ref.is_nan(y))).all(), "orig_output is the forward result")
    return axes, windows


def fractional_max_grad(a, ties, nan):
    axes, windows = checked_max_cells(a, nan)
    return [put_by(a["orig_input"], a["out_backprop"], axes, windows, ties, nan)]


def fractional_max_grad_grad(a, ties, nan):
    axes, windows = checked_max_cells(a, nan)
    return [take_by(a["orig_input"], a["grad"], axes, windows, ties, nan)]


def fractional_avg_grad(a, ties, nan):
    shape = tuple(int(n) for n in np.asarray(a["orig_input_tensor_shape"]).ravel())
    need(np.ndim(a["orig_input_tensor_shape"]) == 1 and len(shape) == 4 and min(shape) > 0, "a shape")
    axes, windows = cells_of(shape, a)
    g = a["out_backprop"]
    need(g.shape == pooled(shape, axes, windows), "out_backprop has the forward shape")
    return [total(lambda t: ref.spread(t, windows, axes, [shape[i] for i in axes]), g)]


def fractional_avg_grad_grad(a, ties, nan):
    axes, windows = cells_of(a["grad"].shape, a)
    return [total(lambda t: ref.mean(t, windows, axes), a["grad"])]
