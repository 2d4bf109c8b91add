"""The operators of the catalog as functions with TensorFlow's keyword-only signatures.

>>> import numpy as np, poolgrad as pg
>>> x = np.array([[1, 2], [3, 4]], np.float32).reshape(1, 2, 2, 1)
>>> pg.raw_ops.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME")[0, :, :, 0]
array([[4., 4.],
       [4., 4.]], dtype=float32)

Arrays go in, arrays of the same kind come out, several outputs as a named tuple with TensorFlow's field names. Ties and
NaN follow the policy in force (see `poolgrad.policy`). A call is checked once: the plan of a call with NumPy arrays is
found again by their shapes and dtypes and the attributes, so that a repeated call costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy import ndarray

from .backends.numpy import Notes, Numpy
from .cache import LONGEST_KEPT, MOST_KEPT
from .catalog import Attribute, Input, Operator, Plan, operators
from .cpu import dtype_codes, remembering
from .declare import LARGE
from .errors import named
from .policy import Policy, current  # noqa: F401 (for the functions' source)

__all__ = list(operators)

_NUMPY = Numpy()

# What every function does. It is written out and compiled so that the interpreter itself binds the keywords.
_SOURCE = """
def make(call):
    def {name}(*, {parameters}, name=None):
        return call(current(), {arguments})
    return {name}
"""


def _function(operator: Operator) -> Callable[..., Any]:
    source = _SOURCE.format(
        name=operator.name,
        parameters=", ".join(p.name + _default(p) for p in operator.parameters),
        arguments=", ".join(p.name for p in operator.parameters),
    )
    scope: dict[str, Any] = {}
    exec(compile(source, f"<poolgrad.raw_ops.{operator.name}>", "exec"), globals(), scope)
    kinds = "i" + "".join(map(_kind, operator.parameters))
    by_python = partial(_call, operator), partial(_next_time, operator)
    call = remembering(kinds, *by_python, dtype_codes, MOST_KEPT, LONGEST_KEPT)
    function: Callable[..., Any] = scope["make"](call)
    function.__qualname__ = operator.name
    function.__module__ = __name__
    function.__doc__ = _documentation(operator)
    return function


def _kind(parameter: Input | Attribute) -> str:
    """How a call is recognised by this argument, see `remembering`."""
    if isinstance(parameter, Input) and not parameter.host:
        return "a"
    return "i" if parameter.kind.name == "type" else "v"


def _call(operator: Operator, policy: Policy, *given: Any) -> tuple[Plan, Any]:
    return operator.call({p.name: value for p, value in zip(operator.parameters, given, strict=True)})


def _next_time(operator: Operator, plan: Plan, policy: Policy, *given: Any) -> Any:
    """What to do if a call that has been made comes again."""
    if plan.bytes() >= LARGE:
        return None  # a large result is checked against memory every time
    arrays = [a for p, a in zip(operator.parameters, given, strict=True) if isinstance(p, Input) and not p.host]
    return _program(operator, plan, policy, arrays) or partial(_kernel, operator, plan, policy)


def _program(operator: Operator, plan: Plan, policy: Policy, arrays: list[Any]) -> Any:
    """The kernels of a call on arrays that they take as they are; None if Python has a part in it."""
    if plan.pool is None or not all(map(_ready, arrays)):
        return None
    notes = Notes(*arrays)
    try:
        outputs = plan.kernel(notes, plan.pool, policy, *notes.given)
        return notes.program(outputs, operator.result_type)
    except Exception:  # it looks at values
        return None


def _ready(array: Any) -> bool:
    if type(array) is not ndarray or not (array.flags.c_contiguous and array.flags.aligned):
        return False
    return any(array.dtype is dtype for dtype in dtype_codes)


def _kernel(operator: Operator, plan: Plan, policy: Policy, *arrays: Any) -> Any:
    try:
        computed = plan.kernel(_NUMPY, plan.pool, policy, *arrays)
        return computed if operator.result_type is None else operator.result_type(*computed)
    except Exception as error:
        raise named(operator.name, error) from None


def _default(parameter: Input | Attribute) -> str:
    if isinstance(parameter, Input) or parameter.required:
        return ""
    return f"={[] if parameter.default == () else parameter.default!r}"


def _documentation(operator: Operator) -> str:
    summary, rest = operator.doc.split("\n", 1)
    words = {a.name: f" One of {', '.join(map(repr, a.choices))}." for a in operator.attributes if a.choices}
    width = max(len(p.name) for p in operator.parameters)
    lines = [f"  {p.name:{width}}  {p.doc}{words.get(p.name, '')}" for p in operator.parameters]
    return "\n".join([summary, "", *lines, rest])


globals().update({name: _function(operator) for name, operator in operators.items()})
