"""How an operator is declared: what it is made of, and the decorator that turns a typed function into one.

The signature of a declaration says everything about the arguments. An annotation is a `Kind`: what may be given, and
the plain value that the body gets to see, such as a `Tensor` (shape and dtype) for an array or a tuple of integers for
a list. The body returns a `Plan`. See `catalog` for the declarations.
"""

import inspect
import math
import os
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np

from . import backends, checks
from .cache import LONGEST_KEPT, keep
from .checks import INT64_MAX, Int64Array
from .errors import InvalidArgument, InvalidType, OutOfMemory, within
from .policy import current
from .windows import Pool

DTYPES: Final[Mapping[str, int]] = MappingProxyType(
    {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
    | {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
)
"""The dtypes every operator takes, with their bytes per element."""

LARGE: Final = 2**30
"""From this many bytes on, a result is compared with the machine's memory before it is allocated."""


class Tensor(NamedTuple):
    """What planning knows of an array: its shape and its dtype, and the argument it is, for messages."""

    shape: tuple[int, ...]
    dtype: str
    name: str = ""

    def like(self, name: str, shape: tuple[int, ...]) -> "Tensor":
        """Another tensor of the same dtype."""
        return Tensor(shape, self.dtype, name)

    def bytes(self) -> int:
        """The memory it takes."""
        return math.prod(self.shape) * DTYPES[self.dtype]

    def expect_countable(self) -> None:
        """Refuses more bytes than 64 bits can count, even with the empty axes left out."""
        if math.prod(n for n in self.shape if n) * DTYPES[self.dtype] > INT64_MAX:
            problem = f"{self.name} has shape {self.shape}, more than 64 bits can count"
            raise InvalidArgument(problem, argument=self.name, given=self.shape)


@dataclass(frozen=True)
class Plan:
    """A call that has been checked: `kernel(backend, pool, policy, *arrays)` computes the outputs.

    For those who compute it in parts, `reads` has a letter per array and `writes` one for the outputs: "i" if it is
    shaped like the input of the pooling, "o" if like its output; a capital where the kernel looks at the shape only.
    """

    __slots__ = ("kernel", "outputs", "pool", "reads", "writes")

    kernel: Callable[..., Any]
    pool: Pool | None
    outputs: tuple[Tensor, ...]
    reads: str
    writes: str

    def bytes(self) -> int:
        """The memory its outputs take."""
        return sum(output.bytes() for output in self.outputs)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


class Kind(NamedTuple):
    """A kind of argument.

    name     "tensor", "index", "ints", "shape", "sequence", "floats", "int", "bool", "string" or "type"
    role     "data" for arrays, "host" for arrays whose values planning reads, "attribute" for everything else
    parse    makes the plain value that planning reads out of (name of the argument, what was given), or refuses it
    choices  the allowed words of a "string" or "type"
    """

    name: str
    role: str
    parse: Callable[[str, object], Any]
    choices: tuple[str, ...] = ()


class Input(NamedTuple):
    """An input: an array, or a `host` array (a list will do) whose values planning reads."""

    name: str
    kind: Kind
    doc: str

    @property
    def host(self) -> bool:
        """Whether planning reads the values."""
        return self.kind.role == "host"


class Attribute(NamedTuple):
    """An attribute. A default of None means that it must be given."""

    name: str
    kind: Kind
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is None

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words; empty where anything of the kind will do."""
        return self.kind.choices


def _parse_tensor(name: str, value: object, dtypes: tuple[str, ...]) -> Tensor:
    if not isinstance(value, Tensor):
        checks.refuse_type(name, value, "a Tensor")
    if value.dtype not in dtypes:
        problem = f"{name} has dtype {value.dtype}, expected one of {', '.join(dtypes)}"
        raise InvalidType(problem, argument=name, given=value.dtype, expected=dtypes)
    return Tensor(checks.integers(name, value.shape, at_least=0), value.dtype, name)


def _words(*allowed: str) -> Kind:
    return Kind("string", "attribute", partial(checks.choice, allowed=allowed), allowed)


def _dtypes(*allowed: str) -> Kind:
    return Kind("type", "attribute", partial(checks.dtype_name, allowed=allowed), allowed)


Data: TypeAlias = Annotated[Tensor, Kind("tensor", "data", partial(_parse_tensor, dtypes=tuple(DTYPES)))]
Index: TypeAlias = Annotated[Tensor, Kind("index", "data", partial(_parse_tensor, dtypes=("int32", "int64")))]
HostInts: TypeAlias = Annotated[tuple[int, ...], Kind("ints", "host", checks.flat_integers)]
Shape: TypeAlias = Annotated[tuple[int, ...], Kind("shape", "host", partial(checks.integers, at_least=0))]
Edges: TypeAlias = Annotated[Int64Array, Kind("sequence", "host", checks.int64_array)]
Ints: TypeAlias = Annotated[tuple[int, ...], Kind("ints", "attribute", checks.integers)]
Floats: TypeAlias = Annotated[tuple[float, ...], Kind("floats", "attribute", checks.numbers)]
Int: TypeAlias = Annotated[int, Kind("int", "attribute", checks.integer)]
Flag: TypeAlias = Annotated[bool, Kind("bool", "attribute", checks.flag)]
Padding: TypeAlias = Annotated[str, _words("SAME", "VALID", "EXPLICIT")]
Format2D: TypeAlias = Annotated[str, _words("NHWC", "NCHW")]
Format3D: TypeAlias = Annotated[str, _words("NDHWC", "NCDHW")]
IndexType: TypeAlias = Annotated[str, _dtypes("int32", "int64")]

GLOSSARY: Final = {
    "input": "The array to pool.",
    "value": "The array to pool.",
    "orig_input": "The input of the pooling.",
    "orig_output": "The output of the pooling.",
    "orig_input_shape": "The shape of the pooling's input.",
    "orig_input_tensor_shape": "The shape of the pooling's input.",
    "grad": "The gradient that arrives: shaped like the pooling's output, in second-order operators like its input.",
    "out_backprop": "The gradient that arrives, shaped like the pooling's output.",
    "argmax": "Flat indices of the maxima, as MaxPoolWithArgmax returns them.",
    "ksize": "Window length per axis, in the order of data_format; 1 for the batch.",
    "strides": "Distance of neighbouring windows per axis, in the order of data_format.",
    "padding": '"VALID": windows lie inside. "SAME": ceil(n / stride) windows. "EXPLICIT": see explicit_paddings.',
    "explicit_paddings": 'With padding="EXPLICIT": [before, after] for every axis, flattened.',
    "data_format": "The order of the axes.",
    "Targmax": "Dtype of the indices.",
    "include_batch_in_index": "Whether indices count through the whole batch or begin anew with each image.",
    "pooling_ratio": "Input length over output length per axis, at least 1; exactly 1 for batch and channels.",
    "pseudo_random": "Evenly spaced cells with a random phase, instead of cells in random order.",
    "overlapping": "Whether neighbouring cells share the element at their border.",
    "deterministic": "Draw the same sequence every time.",
    "seed": "With deterministic: the sequence's seed.",
    "seed2": "With deterministic: a second seed.",
    "row_pooling_sequence": "Where the cells of the rows begin, and the end: 0 < ... < height.",
    "col_pooling_sequence": "Where the cells of the columns begin, and the end: 0 < ... < width.",
}
"""What every argument means, by its name: one name means one thing in all operators."""


# ---------------------------------------------------------------------------------------------------------------------
# Derivatives


class Source(NamedTuple):
    """Where an argument of a derivative comes from: an "input", "output" or "attribute" of the differentiated operator,
    the "gradient" that arrives at one of its outputs, or the "shape" of one of its inputs."""

    kind: str
    name: str


@dataclass(frozen=True)
class Derivative:
    """The derivative with respect to one input: a call of another operator, with the source of each argument."""

    operator: str
    sources: Mapping[str, Source]

    def arguments(
        self,
        given: Mapping[str, Any],
        outputs: Mapping[str, Any],
        gradients: Mapping[str, Any],
        shape: Callable[[Any], Any] = np.shape,
    ) -> dict[str, Any]:
        """The arguments of that call, from those of the differentiated call, its outputs and the gradients that arrive
        at them. The values may be anything, symbols included: only `shape` looks at them."""
        pick: dict[str, Callable[[str], Any]] = {
            "input": given.__getitem__,
            "attribute": given.get,
            "output": outputs.__getitem__,
            "gradient": gradients.__getitem__,
            "shape": lambda name: shape(given[name]),
        }
        found = {name: pick[source.kind](source.name) for name, source in self.sources.items()}
        return {name: value for name, value in found.items() if value is not None}


class Stated(NamedTuple):
    """A derivative as declared: the operator, and the arguments that are not simply those of the same name."""

    operator: str
    sources: Mapping[str, str | Source]


def via(target: str, **sources: str | Source) -> Stated:
    """States a derivative. A source is the name of an input or output, `gradient_of` or `shape_of` one."""
    return Stated(target, sources)


def gradient_of(output: str) -> Source:
    """The gradient that arrives at an output."""
    return Source("gradient", output)


def shape_of(tensor: str) -> Source:
    """The shape of an input."""
    return Source("shape", tensor)


# ---------------------------------------------------------------------------------------------------------------------
# Operators


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator of the catalog.

    name, doc    as in `raw_ops`
    parameters   the `Input`s and `Attribute`s in the order of the signature
    outputs      the names of the outputs
    """

    name: str
    doc: str = field(repr=False)
    parameters: tuple[Input | Attribute, ...] = field(repr=False)
    outputs: tuple[str, ...] = field(repr=False)
    _body: Callable[..., Plan] = field(repr=False)
    _stated: Mapping[str, Stated] = field(repr=False)
    _plans: dict[Any, Plan] = field(repr=False, default_factory=dict)

    dtypes = tuple(DTYPES)
    """The dtypes it takes."""

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The arrays it takes, host arrays included."""
        return tuple(p for p in self.parameters if isinstance(p, Input))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """Everything else it takes."""
        return tuple(p for p in self.parameters if isinstance(p, Attribute))

    @cached_property
    def derivatives(self) -> Mapping[str, Derivative]:
        """For each differentiable input the call that gives its derivative. For all other inputs it is zero."""
        return MappingProxyType({name: self._derivative(stated) for name, stated in self._stated.items()})

    @cached_property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return self.doc.partition("\n")[0]

    @cached_property
    def result_type(self) -> Any:
        """The named tuple of the results; None for a single output."""
        if len(self.outputs) == 1:
            return None
        made = namedtuple(self.name, self.outputs, module="poolgrad.raw_ops")  # type: ignore[misc]
        made.__doc__ = f"The outputs of {self.name}."
        # Where pickle would look for the class stands the function of the same name.
        setattr(made, "__reduce__", lambda values: (_restored, (self.name, *values)))  # noqa: B010
        return made

    def plan(self, **arguments: Any) -> Plan:
        """Checks a call: a `Tensor` for every data input, a value for every other argument."""
        with within(self.name):
            values = {p.name: p.kind.parse(p.name, _given(p, arguments)) for p in self.parameters}
            key = tuple((v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for v in values.values())
            return self._plans.get(key) or self._planned(key, values)

    def call(self, arguments: Mapping[str, Any]) -> tuple[Plan, Any]:
        """Checks and computes; the plan and the result."""
        with within(self.name):
            given = {p.name: _given(p, arguments) for p in self.parameters}
            on, arrays = self._arrays({i.name: (given[i.name], i) for i in self.inputs if not i.host})
            given |= {i.name: backends.host(given[i.name]) for i in self.inputs if i.host}
            plan = self.plan(
                **given | {name: Tensor(tuple(a.shape), dtype_name(a.dtype)) for name, a in arrays.items()}
            )
            if on.name == "dask":
                computed = on.run(self.name, plan, current(), list(arrays.values()))
            else:
                for output in plan.outputs:
                    refuse_more_than_memory(output.name, output.shape, DTYPES[output.dtype])
                computed = plan.kernel(on, plan.pool, current(), *arrays.values())
            return plan, computed if self.result_type is None else self.result_type(*computed)

    def _planned(self, key: Any, values: dict[str, Any]) -> Plan:
        _expect_one_dtype([values[i.name] for i in self.inputs if i.kind.name == "tensor"])
        plan = self._body(**values)
        for output in plan.outputs:
            output.expect_countable()
        if all(value.size <= LONGEST_KEPT for value in values.values() if isinstance(value, np.ndarray)):
            keep(self._plans, key, plan)
        return plan

    def _arrays(self, given: Mapping[str, tuple[Any, Input]]) -> tuple[Any, dict[str, Any]]:
        """The backend, and the data as its arrays. Lists and numbers take the dtype of the first array."""
        on = backends.of(*(value for value, _ in given.values()))
        tensors = (value for value, i in given.values() if i.kind.name == "tensor")
        shared = {"tensor": next((v.dtype for v in tensors if hasattr(v, "dtype")), None), "index": np.dtype(np.int64)}
        return on, {
            name: read_array(on, name, value, None if hasattr(value, "dtype") else shared[i.kind.name])
            for name, (value, i) in given.items()
        }

    def _derivative(self, stated: Stated) -> Derivative:
        named = {a.name: Source("attribute", a.name) for a in self.attributes}
        named |= {i.name: Source("input", i.name) for i in self.inputs}
        named |= {output: Source("output", output) for output in self.outputs}
        sources = named | {name: named[s] if isinstance(s, str) else s for name, s in stated.sources.items()}
        target = operators[stated.operator]
        return Derivative(target.name, {p.name: sources[p.name] for p in target.parameters if p.name in sources})


_operators: dict[str, Operator] = {}

operators: Final[Mapping[str, Operator]] = MappingProxyType(_operators)
"""Every operator by name."""


def operator(outputs: str, derivatives: Mapping[str, Stated]) -> Callable[[Callable[..., Plan]], Operator]:
    """Turns a declaration into an `Operator` of the catalog."""

    def declare(body: Callable[..., Plan]) -> Operator:
        parameters = tuple(map(_parameter, inspect.signature(body).parameters.values()))
        doc = inspect.cleandoc(body.__doc__ or "")
        _operators[body.__name__] = Operator(body.__name__, doc, parameters, tuple(outputs.split()), body, derivatives)
        return _operators[body.__name__]

    return declare


def read_array(on: Any, name: str, value: object, dtype: Any) -> Any:
    """The value as an array of the backend `on`; what is not an array yet takes the given dtype, if any."""
    try:
        return on.asarray(value, dtype)
    except MemoryError:
        raise
    except Exception as error:  # a foreign array may raise anything when it is read
        raise InvalidType(f"{name}: {error}", argument=name, given=value) from None


@lru_cache
def dtype_name(dtype: Any) -> str:
    """The name of an array library's dtype.

    >>> dtype_name(np.dtype(np.float32))
    'float32'
    """
    return str(dtype).rpartition(".")[2]


def _parameter(declared: inspect.Parameter) -> Input | Attribute:
    (kind,) = declared.annotation.__metadata__
    doc = GLOSSARY[declared.name]
    if kind.role != "attribute":
        return Input(declared.name, kind, doc)
    return Attribute(declared.name, kind, None if declared.default is declared.empty else declared.default, doc)


def _given(parameter: Input | Attribute, arguments: Mapping[str, Any]) -> Any:
    value = arguments.get(parameter.name)
    if value is None and isinstance(parameter, Attribute):
        value = parameter.default
    if value is None:
        raise InvalidType(f"{parameter.name} must be given", argument=parameter.name)
    return value


def _restored(name: str, *values: Any) -> Any:
    return operators[name].result_type(*values)


def _expect_one_dtype(tensors: list[Tensor]) -> None:
    for other in tensors[1:]:
        first = tensors[0]
        if other.dtype != first.dtype:
            problem = f"{other.name} has dtype {other.dtype}, but {first.name} has {first.dtype}; they must be the same"
            raise InvalidType(problem, argument=other.name, given=other.dtype, expected=first.dtype)


def refuse_more_than_memory(name: str, shape: tuple[int, ...], bytes_each: int) -> None:
    """Refuses an array that could not be held, before anything is made for it."""
    size = math.prod(shape) * bytes_each
    if size > LARGE and size > physical_memory():
        raise OutOfMemory(f"{name} of shape {shape} would take {size} bytes, this machine has {physical_memory()}")


@lru_cache
def physical_memory() -> int:
    """The machine's memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not known here: then allocation decides
        return INT64_MAX
