"""Every block type as a function `X(scope, inputs..., attributes...)` that adds a block to the scope's page.

The arguments stand in TensorFlow's C++ order: the inputs, the required attributes, and one text with the options,
`"data_format_ = NHWC;"`. All of them can also be given by name, attributes as values or texts. What comes back is the
block's output, or a named tuple where it has several. An input that is no output yet becomes a constant.

>>> from poolgrad.graph import Scope
>>> root = Scope.new_root()
>>> x = Const(root, [[1.0, 5.0], [3.0, 2.0]])
>>> image = Reshape(root, x, "1,2,2,1")
>>> MaxPool(root, image, "1,2,2,1", "1,2,2,1", "SAME", "data_format_ = NHWC;")
<Output MaxPool.output: float32 [1, 1, 1, 1]>
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import checks
from ..errors import InvalidArgument, InvalidType, within
from . import text
from .blocktypes import BlockType, Pin, block_types
from .page import Block, in_order
from .problems import TextError
from .scope import Output, Scope
from .values import Values

__all__ = list(block_types)


def add_block(scope: Scope, type: BlockType, given: Mapping[str, Any]) -> Any:
    """Adds a block with these inputs and attributes, and returns its outputs. A block that cannot work is refused."""
    page = scope.page
    wires, attributes, constants = _sorted_arguments(scope, type, given)
    rules = {name: rule for name, rule in scope.rules.items() if name in type.settings}
    attributes = {name: type.parse(name, value) for name, value in (rules | attributes).items()}
    name = scope.unique(type.name)
    made: list[str] = []
    try:
        for pin, value in constants.items():
            constant = _constant(scope, f"{name}_{pin}", value)
            made.append(constant.block)
            wires[pin] = [str(constant)]
        inputs = {pin: tuple(wires[pin]) for pin in type.pins if wires.get(pin)}
        block = Block(name, type, MappingProxyType(in_order(type, attributes)), MappingProxyType(inputs))
        _refuse_problems(page.put_new(block))
    except Exception:
        page.remove(*made)  # nothing has happened
        raise
    return outputs_of(page, name)


def outputs_of(page: Any, name: str) -> Any:
    """The output of a block, or a named tuple of its outputs."""
    type = page[name].type
    found = [Output(page, name, output) for output in type.outputs]
    if not found:
        return name
    return found[0] if len(found) == 1 else _outputs_type(type)(*found)


@lru_cache
def _outputs_type(type: BlockType) -> Any:
    return namedtuple(type.name, type.outputs)


def _refuse_problems(problems: Any) -> None:
    for problem in problems:
        raise InvalidArgument(problem.message, argument=problem.place)


def _sorted_arguments(
    scope: Scope, type: BlockType, given: Mapping[str, Any]
) -> tuple[dict[str, list[str]], dict[str, Any], dict[str, Any]]:
    """What is wired, what is typed, and what has to become a constant."""
    wires: dict[str, list[str]] = {}
    attributes: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in given.items():
        pin = type.pins.get(name)
        if pin is None:
            attributes[name] = value
        elif pin.many:
            wires[name] = [_wired(scope, pin, v) for v in _listed(pin, value)]
        elif _is_output(value):
            wires[name] = [_wired(scope, pin, value)]
        elif pin.text:
            attributes[name] = value
        else:
            constants[name] = value
    known = [Output(scope.page, *w[0].split(".")).dtype for pin, w in wires.items() if w and not type.pins[pin].text]
    shared = next((dtype for dtype in known if dtype is not None), None)
    return wires, attributes, {name: _typed(value, shared) for name, value in constants.items()}


def _listed(pin: Pin, value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields"):
        return [value]
    return value


def _is_output(value: Any) -> bool:
    if isinstance(value, tuple) and hasattr(value, "_fields") and all(isinstance(v, Output) for v in value):
        outputs = ", ".join(f".{name}" for name in value._fields)
        raise InvalidType(f"{type(value).__name__} has several outputs; say which: {outputs}", given=value)
    return isinstance(value, Output)


def _wired(scope: Scope, pin: Pin, value: Any) -> str:
    if not _is_output(value):
        raise InvalidType(f"{pin.name} is {checks.shown(value)}, expected an Output", argument=pin.name, given=value)
    scope.owns(value)
    return str(value)


def _typed(value: Any, dtype: str | None) -> tuple[Any, str]:
    """A constant's numbers and dtype: that of the array, of the other inputs, or TensorFlow's for such numbers."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value), str(value.dtype.name)
    numbers = Values(value)
    natural = {"f": "float32", "i": "int32", "u": "uint64", "b": "bool"}[numbers.array.dtype.kind]
    return numbers, dtype or natural


def _constant(scope: Scope, name: str, value: tuple[Any, str]) -> Output:
    numbers, dtype = value
    made = add_block(Scope(scope.page).with_name(name), block_types["Const"], {"value": numbers, "dtype": dtype})
    assert isinstance(made, Output)
    return made


def _options(type: BlockType, attrs: str) -> dict[str, Any]:
    """The attributes in a text like `seed_ = 7;`, errors at their place in it."""
    found: dict[str, Any] = {}
    try:
        listed = text.options(attrs)
    except TextError as error:
        error.argument = "attrs"
        raise
    for name, where, value in listed:
        try:
            found[name] = type.parse(name, value)
        except TextError as error:
            raise TextError(error.problem, attrs, where + error.position, argument=name) from None
        except InvalidArgument as error:
            if name not in type.settings:
                begin = attrs.rfind(name, 0, where)
                raise TextError(str(error), attrs, begin, argument=name) from None
            raise
    return found


def _function(type: BlockType) -> Callable[..., Any]:
    positional = [p.name for p in type.inputs] + [a.name for a in type.attributes if a.required]
    if type.name == "Const":
        positional = ["value"]

    def function(scope: Scope, *arguments: Any, **named: Any) -> Any:
        with within(type.name):
            if not isinstance(scope, Scope):
                problem = f"scope is {checks.shown(scope)}, expected a Scope such as Scope.new_root()"
                raise InvalidType(problem, argument="scope", given=scope)
            return add_block(scope, type, _bound(type, positional, arguments, named))

    function.__name__ = function.__qualname__ = type.name
    function.__module__ = __name__
    function.__doc__ = _documentation(type)
    function.__signature__ = _signature(type, positional)  # type: ignore[attr-defined]
    return function


def _bound(type: BlockType, positional: list[str], arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    names = [*positional, "attrs"]
    if len(arguments) > len(names):
        raise InvalidType(f"takes {', '.join(names)} after the scope, but {len(arguments)} arguments were given")
    found = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name in found:
            raise InvalidType(f"{name} is given twice", argument=name, given=value)
        if name != "attrs" and name not in type.pins:
            type.setting(name)
        found[name] = value
    options = _options(type, found.pop("attrs", None) or "")
    for name in options:
        if name in found:
            raise InvalidArgument(f"{name} is given twice", argument=name)
    found = {name: value for name, value in (found | options).items() if value is not None}
    if type.name == "Const" and "value" in found and not isinstance(found["value"], str):
        numbers, dtype = _typed(found["value"], None)
        found = {"dtype": dtype} | found | {"value": numbers}
    return found


def _signature(type: BlockType, positional: list[str]) -> inspect.Signature:
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    settings = {p.name: p for p in type.parameters}
    made = [inspect.Parameter("scope", either)]
    missing = False
    for name in positional:
        default = settings[name].default
        missing = missing or (default is not None and name != "value")
        made.append(inspect.Parameter(name, either, default=default if missing else inspect.Parameter.empty))
    made.append(inspect.Parameter("attrs", either, default=""))
    rest = [p for p in type.parameters if p.name not in positional]
    return inspect.Signature(made + [inspect.Parameter(p.name, keyword, default=p.default) for p in rest])


def _documentation(type: BlockType) -> str:
    summary, _, rest = type.doc.partition("\n")
    width = max((len(p.name) for p in type.parameters), default=0)
    lines = [f"  {p.name:{width}}  {p.doc}" for p in type.parameters]
    described = rest.partition(">>>")[0].rstrip()
    return "\n".join([summary, *([described] if described else []), "", *lines])


globals().update({name: _function(type) for name, type in block_types.items()})


def __getattr__(name: str) -> Callable[..., Any]:
    raise AttributeError(f"there is no block type {name!r}")
