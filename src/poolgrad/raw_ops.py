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
from marshal import dumps  # noqa: F401 (this and the names below are for the functions' source)
from typing import Any

from numpy import empty, ndarray

from . import backends
from .cache import LONGEST_KEPT, keep, plain
from .catalog import Attribute, Input, Operator, Plan, operators
from .declare import LARGE
from .errors import named  # noqa: F401
from .policy import current  # noqa: F401

__all__ = list(operators)

_NUMPY = backends.of(empty(0))

# What every function does. It is written out and compiled so that the interpreter itself binds the keywords. The key of
# a plan is `cache.exact`, likewise written out.
_SOURCE = """
def make(operator, plans, result):
    def {name}(*, {parameters}, name=None):
        key = plan = None
        try:
            if {types} is ndarray:
                key = ({key})
                plan = plans.get(key)
        except Exception:  # arguments so odd that they have no key; the checks will say what is wrong with them
            pass
        if plan is None:
            return _call_and_keep(operator, plans, key, dict({arguments}))
        try:
            return {result}(plan.kernel(_NUMPY, plan.pool, current(), {data}))
        except Exception as error:
            raise named({name!r}, error) from None
    return {name}
"""


def _function(operator: Operator) -> Callable[..., Any]:
    data = [i.name for i in operator.inputs if not i.host]
    edges = [i.name for i in operator.inputs if i.kind.name == "sequence"]
    host = [i.name for i in operator.inputs if i.host and i.name not in edges]
    words = [a.name for a in operator.attributes if a.kind.name in ("string", "type")]
    values = [p.name for p in operator.parameters if p.name not in data + edges + words]
    source = _SOURCE.format(
        name=operator.name,
        parameters=", ".join(p.name + _default(p) for p in operator.parameters),
        types=" is ".join(f"type({name})" for name in data + edges),
        key=", ".join(
            [f"{name}.shape, {name}.dtype" for name in data]
            + [f"{name}.shape, {name}.dtype, {name}.tobytes()" for name in edges]
            + [f"({name}.shape, {name}.dtype) if type({name}) is ndarray else None" for name in host]
            + [f"dumps(({', '.join(values)},), 2)", *words]
        ),
        arguments=", ".join(f"{p.name}={p.name}" for p in operator.parameters),
        data=", ".join(data),
        result="result" if len(operator.outputs) > 1 else "",
    )
    scope: dict[str, Any] = {}
    exec(compile(source, f"<poolgrad.raw_ops.{operator.name}>", "exec"), globals(), scope)
    function: Callable[..., Any] = scope["make"](operator, {}, getattr(operator.result_type, "_make", None))
    function.__qualname__ = operator.name
    function.__module__ = __name__
    function.__doc__ = _documentation(operator)
    return function


def _call_and_keep(operator: Operator, plans: dict[Any, Plan], key: Any, arguments: dict[str, Any]) -> Any:
    plan, result = operator.call(arguments)
    small = (
        sum(output.bytes() for output in plan.outputs) < LARGE
    )  # a large result is checked against memory every time
    if key is not None and small and all(_tells_all(p, arguments[p.name]) for p in operator.parameters):
        keep(plans, key, plan)
    return result


def _tells_all(parameter: Input | Attribute, value: object) -> bool:
    """Whether the key has all of this argument in it, so that no other call has the same key."""
    if isinstance(parameter, Input) and type(value) is ndarray:
        return value.dtype.isnative and (not parameter.host or value.size <= LONGEST_KEPT)
    return parameter.kind.name == "type" or plain(value)


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
