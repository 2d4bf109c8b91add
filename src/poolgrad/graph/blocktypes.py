"""What a block can be: its pins, attributes and documentation, what comes out, how it is computed and differentiated.

Every operator of the catalog is a block type (`pooling`), and so is every function declared with `@block`. It reads
like a declaration of the catalog: annotations say what the parameters are, the docstring is the documentation, the
body, a single expression, computes. Everything else reads `block_types`: the palette, the page file, `ops`, the
session, the export.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_type_hints

from .. import checks
from ..declare import GLOSSARY, Attribute, Kind
from ..errors import InvalidArgument, InvalidType
from . import text
from .problems import TextError
from .values import DTYPES, FLOATING, Dims, Spec, Values

if TYPE_CHECKING:
    from .files import Files
    from .gradients import Site
    from .scope import Output

GROUPS: Final = (
    "Data",
    "2-D pooling",
    "3-D pooling",
    "Fractional pooling",
    "Arithmetic",
    "Shape",
    "Reduction",
    "Compare",
    "Session",
)
"""The groups of the palette, in its order."""


class Pin(NamedTuple):
    """An input. A host pin (`text`) takes numbers that planning reads: wired, or typed as a text."""

    name: str
    kind: Kind
    doc: str
    dtypes: tuple[str, ...]
    many: bool = False
    default: Any = None

    @property
    def text(self) -> bool:
        """Whether its value may be typed."""
        return self.kind.role == "host"

    @property
    def required(self) -> bool:
        """Whether it must be wired or typed."""
        return self.default is None and not self.many

    def to_dict(self) -> dict[str, Any]:
        """As the palette has it."""
        named = {"name": self.name, "kind": self.kind.name, "required": self.required, "many": self.many}
        return named | {"text": self.text, "dtypes": list(self.dtypes), "doc": self.doc}


class Call:
    """A block as inference sees it: what is known of its inputs, the parsed attributes, and the page's files."""

    def __init__(
        self,
        type: BlockType,
        specs: Mapping[str, Spec | tuple[Spec, ...]],
        values: Mapping[str, Any],
        files: Files | None = None,
    ) -> None:
        self.type = type
        self._specs = specs
        self._values = values
        self.files = files

    def __getitem__(self, name: str) -> Any:
        """The value of an attribute, or of a typed pin."""
        return self._values[name]

    def spec(self, pin: str) -> Spec:
        """What is known of the tensor at a pin."""
        found = self._specs[pin]
        assert isinstance(found, Spec)
        return found

    def many(self, pin: str) -> tuple[Spec, ...]:
        """What is known of the tensors at a pin that takes many."""
        found = self._specs[pin]
        return (found,) if isinstance(found, Spec) else found

    def ints(self, pin: str) -> Dims | None:
        """The integers of a host pin, as far as they are known: from its text, or from what is wired to it."""
        if pin in self._values:
            return self._values[pin]  # type: ignore[no-any-return]
        spec = self.spec(pin)
        if spec.value is not None:
            return spec.value
        length = spec.shape[0] if spec.shape is not None and len(spec.shape) == 1 else None
        return None if length is None or length > 10**6 else (None,) * length

    def wired(self, pin: str) -> bool:
        """Whether a tensor arrives at the pin."""
        return pin in self._specs


Infer: TypeAlias = Callable[[Call], "Spec | tuple[Spec, ...]"]
Derive: TypeAlias = "Callable[[Site, Mapping[str, Output]], Mapping[str, Output]]"


@dataclass(frozen=True, eq=False)
class BlockType:
    """A kind of block.

    infer     from what is known of the inputs to what is known of the outputs; refuses what cannot work
    compute   from arrays to arrays
    derive    from the gradients that arrive at the outputs to those of the inputs, as new blocks; None: there are none
    reads     the attribute that names a file which the result depends on
    effect    whether it does something beside computing, so that a result at hand is not enough
    scratch   bytes per element that the computation needs beside its result
    volatile  whether a result may differ from the last one although nothing has changed
    """

    name: str
    group: str
    doc: str = field(repr=False)
    inputs: tuple[Pin, ...] = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    attributes: tuple[Attribute, ...] = field(repr=False)
    infer: Infer = field(repr=False)
    compute: Callable[..., Any] = field(repr=False)
    derive: Derive | None = field(repr=False, default=None)
    differentiable: tuple[str, ...] = field(repr=False, default=())
    reads: str = field(repr=False, default="")
    volatile: Callable[[Mapping[str, Any]], bool] = field(repr=False, default=lambda values: False)
    pooling: bool = field(repr=False, default=False)
    effect: bool = field(repr=False, default=False)
    scratch: int = field(repr=False, default=0)

    @cached_property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return self.doc.partition("\n")[0]

    @cached_property
    def pins(self) -> Mapping[str, Pin]:
        """The inputs by name."""
        return MappingProxyType({pin.name: pin for pin in self.inputs})

    @cached_property
    def settings(self) -> Mapping[str, Attribute | Pin]:
        """Everything that can be typed, by name: the attributes, and the pins that take a text."""
        return MappingProxyType({a.name: a for a in self.attributes} | {p.name: p for p in self.inputs if p.text})

    @cached_property
    def parameters(self) -> tuple[Attribute | Pin, ...]:
        """Inputs and attributes in TensorFlow's C++ order: inputs, required attributes, the rest."""
        return (*self.inputs, *sorted(self.attributes, key=lambda a: not a.required))

    def setting(self, name: str) -> Attribute | Pin:
        """What can be typed under this name."""
        try:
            return self.settings[name]
        except KeyError:
            known = ", ".join(self.settings) or "none"
            problem = f"{self.name} has no attribute {checks.shown(name)}; it has {known}"
            raise InvalidArgument(problem, argument=str(name), given=name) from None

    def parse(self, name: str, given: object) -> Any:
        """The value of an attribute, given as a value or as its text.

        >>> block_types["MaxPool"].parse("ksize", "1,2,2,1")
        (1, 2, 2, 1)
        """
        setting = self.setting(name)
        kind = setting.kind
        try:
            if isinstance(given, str) and (kind.name not in _WORDS or (given and given not in kind.choices)):
                given = text.parse(kind.name, given, kind.choices)
            return _plain(kind.parse(name, given))
        except TextError as error:
            error.argument = name
            raise

    def values(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes and typed pins, parsed, with the defaults of what is not given."""
        found = {s.name: s.default for s in self.settings.values() if s.default is not None}
        return found | {name: self.parse(name, given) for name, given in attributes.items()}

    def to_dict(self) -> dict[str, Any]:
        """The type as the palette has it."""
        return {
            "type": self.name,
            "group": self.group,
            "summary": self.summary,
            "doc": self.doc,
            "inputs": [pin.to_dict() for pin in self.inputs],
            "outputs": [
                {"name": name, "kind": "tensor", "doc": GLOSSARY.get(name, self.summary)} for name in self.outputs
            ],
            "attributes": [_attribute_dict(a) for a in self.attributes],
            "pooling": self.pooling,
            "differentiable": list(self.differentiable),
        }


_WORDS: Final = ("string", "type", "file")


def _plain(value: Any) -> Any:
    """Lists and integer arrays as tuples, so that an attribute never changes."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _attribute_dict(attribute: Attribute) -> dict[str, Any]:
    default = attribute.default
    return {
        "name": attribute.name,
        "kind": attribute.kind.name,
        "required": attribute.required,
        "default": to_json(default),
        "text": "" if default is None else text.written(default),
        "choices": list(attribute.choices),
        "doc": attribute.doc,
    }


def to_json(value: Any) -> Any:
    """An attribute's value as JSON has it."""
    if isinstance(value, Values):
        return value.to_json()
    return [to_json(v) for v in value] if isinstance(value, (list, tuple)) else value


class _Types(Mapping[str, BlockType]):
    """Every block type by name; declared on first use, so that modules may import each other freely."""

    def __init__(self) -> None:
        self.found: dict[str, BlockType] = {}

    def __getitem__(self, name: str) -> BlockType:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, BlockType]:
        from . import arithmetic, data, pooling, reduction, shaping  # noqa: F401 (each declares its blocks)

        return self.found


block_types: Final = _Types()
"""Every block type by name."""


def palette() -> list[dict[str, Any]]:
    """Every block type as plain data, group by group.

    >>> [entry["type"] for entry in palette() if entry["group"] == "3-D pooling"]
    ['MaxPool3D', 'MaxPool3DGrad', 'MaxPool3DGradGrad', 'AvgPool3D', 'AvgPool3DGrad']
    """
    return [t.to_dict() for t in sorted(block_types.values(), key=lambda t: GROUPS.index(t.group))]


# ---------------------------------------------------------------------------------------------------------------------
# Declarations


class Declared(NamedTuple):
    """What an annotation says of a parameter beside its kind."""

    dtypes: tuple[str, ...] = ()
    many: bool = False


_TENSOR: Final = Kind("tensor", "data", lambda name, value: value)


def _strings(*allowed: str) -> Kind:
    return Kind("string", "attribute", lambda name, value: checks.choice(name, value, allowed), allowed)


def _dtype_kind(*allowed: str) -> Kind:
    return Kind("type", "attribute", lambda name, value: checks.choice(name, value, allowed), allowed)


def _free_word(name: str, value: object) -> str:
    if not isinstance(value, str):
        checks.refuse_type(name, value, "a text")
    if len(value) > 1000 or "\0" in value:
        checks.refuse(name, value, "a text of at most 1000 characters")
    return value


def _values(name: str, value: object) -> Values:
    try:
        return value if isinstance(value, Values) else Values(value)
    except InvalidArgument as error:
        error.argument = name
        raise


def _wide(name: str, value: object) -> float:
    if isinstance(value, int) and not isinstance(value, bool):
        return checks.integer(name, value)
    return checks.number(name, value)


_INTS = Kind("ints", "host", checks.flat_integers)
_SHAPE = Kind("shape", "host", lambda name, value: checks.integers(name, value, at_least=-1))

Tensor: TypeAlias = Annotated[Any, _TENSOR, Declared(DTYPES)]
Number: TypeAlias = Annotated[Any, _TENSOR, Declared(tuple(d for d in DTYPES if d != "bool"))]
Floating: TypeAlias = Annotated[Any, _TENSOR, Declared(FLOATING)]
Bool: TypeAlias = Annotated[Any, _TENSOR, Declared(("bool",))]
Tensors: TypeAlias = Annotated[Any, _TENSOR, Declared(DTYPES, many=True)]
HostInts: TypeAlias = Annotated[Any, _INTS, Declared(("int32", "int64"))]
HostShape: TypeAlias = Annotated[Any, _SHAPE, Declared(("int32", "int64"))]
Ints: TypeAlias = Annotated[Any, Kind("ints", "attribute", checks.flat_integers)]
OneInt: TypeAlias = Annotated[Any, Kind("int", "attribute", checks.integer)]
OneFloat: TypeAlias = Annotated[Any, Kind("float", "attribute", _wide)]
Flag: TypeAlias = Annotated[Any, Kind("bool", "attribute", checks.flag)]
Dtype: TypeAlias = Annotated[Any, _dtype_kind(*DTYPES)]
FloatType: TypeAlias = Annotated[Any, _dtype_kind(*FLOATING)]
WholeType: TypeAlias = Annotated[Any, _dtype_kind(*(d for d in DTYPES if "int" in d))]
IndexType: TypeAlias = Annotated[Any, _dtype_kind("int32", "int64")]
FileName: TypeAlias = Annotated[Any, Kind("file", "attribute", _free_word)]
Word: TypeAlias = Annotated[Any, Kind("string", "attribute", _free_word)]
Numbers: TypeAlias = Annotated[Any, Kind("array", "attribute", _values)]
Ties: TypeAlias = Annotated[Any, _strings("", "first", "all", "split")]
Nans: TypeAlias = Annotated[Any, _strings("", "propagate", "ignore")]

MEANINGS: Final = {
    "x": "The first operand.",
    "y": "The second operand.",
    "input": "The tensor to work on.",
    "tensor": "The tensor to reshape.",
    "features": "The tensor to work on.",
    "gradients": "The gradient that arrives.",
    "values": "The tensors, in order.",
    "condition": "Where to take the first of the two.",
    "fetch_outputs": "What to run and show.",
    "value": "The numbers, as nested lists.",
    "dtype": "Dtype of the result.",
    "DstT": "Dtype of the result.",
    "out_type": "Dtype of the result.",
    "shape": "The shape of the result.",
    "file": "A file in the folder of the page.",
    "key": "Which array of the file, where it has several.",
    "seed": "The same seeds give the same numbers, everywhere.",
    "seed2": "A second seed.",
    "mean": "Mean of the numbers.",
    "stddev": "Standard deviation of the numbers.",
    "minval": "The lowest number.",
    "maxval": "The end of the range; no number reaches it.",
    "perm": "The old axis of every new one; empty: all in reverse.",
    "axis": "Along which axes; negative ones count from the last. Empty: all of them.",
    "keep_dims": "Whether reduced axes stay, with length 1.",
    "begin": "Where the part begins, per axis.",
    "size": "How long the part is, per axis; -1: all that is left.",
    "paddings": "[before, after] for every axis, flattened.",
    "constant_values": "The number that padding is filled with.",
    "tolerance": "The largest difference that counts as equal.",
    "index": "Which of the tensors.",
    "ties": "Which of equal maxima wins; empty: as the page says.",
    "nan": "Whether a NaN wins its window; empty: as the page says.",
}
"""What every parameter means, by its name, in all blocks beside pooling."""

_OWN_MEANINGS: Final = {
    ("Concat", "axis"): "Along which axis; negative ones count from the last.",
    ("ConcatPart", "axis"): "Along which axis the tensors were joined.",
    ("ConcatPart", "input"): "The joined tensor to take the part of.",
    ("Const", "shape"): "The shape, if it is not that of value; a single value fills it.",
    ("Const", "file"): "A .npy file, or array.npz:key, in the folder of the page, instead of value.",
    ("Placeholder", "shape"): "The shape; -1 where it is open. Empty: anything.",
    ("Reshape", "shape"): "The new shape; one -1 is worked out.",
}


def block(
    group: str,
    infer: Infer,
    derive: Derive | None = None,
    *,
    to: Sequence[str] = (),
    outputs: str = "output",
    reads: str = "",
    effect: bool = False,
    scratch: int = 0,
) -> Callable[[Callable[..., Any]], BlockType]:
    """Turns a declaration into a block type. `to` names the inputs that `derive` gives gradients for."""

    def declare(compute: Callable[..., Any]) -> BlockType:
        pins, attributes = _parameters(compute)
        made = BlockType(
            compute.__name__, group, inspect.cleandoc(compute.__doc__ or ""), pins, tuple(outputs.split()), attributes,
            infer, compute, derive, tuple(to), reads, effect=effect, scratch=scratch,
        )  # fmt: skip
        block_types.found[made.name] = made
        return made

    return declare


def _parameters(compute: Callable[..., Any]) -> tuple[tuple[Pin, ...], tuple[Attribute, ...]]:
    hints = get_type_hints(compute, include_extras=True)
    pins: list[Pin] = []
    attributes: list[Attribute] = []
    for parameter in inspect.signature(compute).parameters.values():
        annotation = get_args(hints.get(parameter.name))
        kind = next((a for a in annotation if isinstance(a, Kind)), None)
        if kind is None:
            continue
        doc = _OWN_MEANINGS.get((compute.__name__, parameter.name)) or MEANINGS[parameter.name]
        default = None if parameter.default is parameter.empty else parameter.default
        if kind.role == "attribute":
            attributes.append(Attribute(parameter.name, kind, default, doc))
        else:
            declared = next(a for a in annotation if isinstance(a, Declared))
            pins.append(Pin(parameter.name, kind, doc, declared.dtypes, declared.many, default))
    return tuple(pins), tuple(attributes)


def expect_dtype(call: Call, name: str) -> None:
    """Refuses a tensor of a dtype that the pin does not take."""
    pin = call.type.pins[name]
    for spec in call.many(name):
        if spec.dtype is not None and spec.dtype not in pin.dtypes:
            problem = f"{name} has dtype {spec.dtype}, expected one of {', '.join(pin.dtypes)}"
            raise InvalidType(problem, argument=name, given=spec.dtype, expected=pin.dtypes)
