"""The operators of the catalog as block types: nothing about an operator is written here, everything is read there.

Where all shapes are known, a block is checked by the operator's own plan. Where a placeholder leaves some open, the
plan is asked about the shapes that are possible, and only what holds for all of them is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .. import catalog
from ..catalog import Operator, operators
from ..declare import Attribute, Input, Kind
from ..errors import InvalidArgument, PoolgradError
from ..policy import policy
from ..windows import spatial_axes
from .blocktypes import MEANINGS, BlockType, Call, Nans, Pin, Ties, block_types, expect_dtype
from .values import Dims, Spec

if TYPE_CHECKING:
    from .gradients import Site
    from .scope import Output

_PROBES: Final = (8, 64, 1024, 1, 2, 3, 4, 6, 12)
"""Lengths that an open axis is tried with. Planning allocates nothing, so large ones cost nothing."""


def _group(operator: Operator) -> str:
    if "Fractional" in operator.name:
        return "Fractional pooling"
    return "3-D pooling" if "3D" in operator.name else "2-D pooling"


def _pin(given: Input) -> Pin:
    dtypes = catalog.operators["MaxPool"].dtypes if given.kind.name == "tensor" else ("int32", "int64")
    return Pin(given.name, given.kind, given.doc, dtypes)


def _selects_maxima(operator: Operator) -> bool:
    """Whether ties and NaN matter to it: TensorFlow's names say so."""
    return "Max" in operator.name


def _policy_attributes() -> tuple[Attribute, ...]:
    kinds: dict[str, Kind] = {"ties": Ties.__metadata__[0], "nan": Nans.__metadata__[0]}
    return tuple(Attribute(name, kind, "", MEANINGS[name]) for name, kind in kinds.items())


# ---------------------------------------------------------------------------------------------------------------------
# Inference


def _infer(operator: Operator, call: Call) -> tuple[Spec, ...]:
    for pin in call.type.inputs:
        if call.wired(pin.name):
            expect_dtype(call, pin.name)
    for name in operator.inputs:
        if name.host and call.wired(name.name) and call.ints(name.name) is None:
            return _nothing_known(operator, call)
    if any(call.spec(i.name).shape is None for i in operator.inputs if not i.host):
        return _nothing_known(operator, call)
    shapes = {i.name: _known_shape(i, call) for i in operator.inputs}
    if all(None not in shape for shape in shapes.values()) and _dtypes_known(operator, call):
        return _planned(operator, call, shapes)
    return _possible(operator, call, shapes)


def _known_shape(given: Input, call: Call) -> Dims:
    """The dimensions of an input, or the values of a host input."""
    if given.host:
        return call.ints(given.name) or ()
    return call.spec(given.name).shape or ()


def _dtypes_known(operator: Operator, call: Call) -> bool:
    return all(call.spec(i.name).dtype is not None for i in operator.inputs if not i.host)


def _planned(operator: Operator, call: Call, shapes: Mapping[str, Dims]) -> tuple[Spec, ...]:
    shared = _shared_dtype(operator, call)
    arguments = {a.name: call[a.name] for a in operator.attributes if a.default is None or a.name in call.type.settings}
    for given in operator.inputs:
        shape = shapes[given.name]
        if given.host:
            arguments[given.name] = list(shape)
        else:
            dtype = call.spec(given.name).dtype or ("int64" if given.kind.name == "index" else shared)
            arguments[given.name] = catalog.Tensor(shape, dtype)  # type: ignore[arg-type]
    plan = operator.plan(**arguments)
    return tuple(Spec(output.shape, output.dtype) for output in plan.outputs)


def _shared_dtype(operator: Operator, call: Call) -> str:
    specs = (call.spec(i.name) for i in operator.inputs if i.kind.name == "tensor")
    return next((s.dtype for s in specs if s.dtype is not None), "float32")


def _possible(operator: Operator, call: Call, shapes: dict[str, Dims]) -> tuple[Spec, ...]:
    """What holds for every way to fill the open dimensions."""
    refusal: PoolgradError | None = None
    for filled in _fillings(operator, shapes):
        try:
            specs = _planned(operator, call, _agreeing(operator, call, shapes, filled))
        except PoolgradError as error:
            refusal = refusal or error
            continue
        named = zip(operator.outputs, specs, strict=True)
        return tuple(_opened(name, spec, operator, call, shapes) for name, spec in named)
    if refusal is not None and refusal.argument in call.type.settings:
        raise refusal
    return _nothing_known(operator, call)


def _fillings(operator: Operator, shapes: Mapping[str, Dims]) -> Iterator[dict[str, Dims]]:
    batch = next((s[0] for i in operator.inputs if not i.host and (s := shapes[i.name]) and s[0] is not None), None)
    for probe in _PROBES:
        filled = {i.name: _filled(i, shapes[i.name], batch, probe) for i in operator.inputs}
        yield filled | _edges(operator, shapes, filled)


def _filled(given: Input, shape: Dims, batch: int | None, probe: int) -> Dims:
    """Open dimensions filled; the length of the batch is the same in all inputs."""
    fill = 1 if given.kind.name == "ints" else probe
    first = fill if batch is None or given.kind.name == "ints" else batch
    return tuple((first if axis == 0 else fill) if n is None else n for axis, n in enumerate(shape))


def _edges(operator: Operator, shapes: Mapping[str, Dims], filled: Mapping[str, Dims]) -> dict[str, Dims]:
    """Sequences of which only the length is known: even cells over the pooled tensor, which is the first input."""
    sequences = [i.name for i in operator.inputs if i.kind.name == "sequence"]
    axes = filled[operator.inputs[0].name][1:]
    return {
        name: tuple(cell * n // (len(shapes[name]) - 1) for cell in range(len(shapes[name])))
        for name, n in zip(sequences, axes, strict=False)
        if None in shapes[name] and len(shapes[name]) > 1 and n is not None
    }


def _agreeing(
    operator: Operator, call: Call, shapes: Mapping[str, Dims], filled: dict[str, Dims]
) -> Mapping[str, Dims]:
    """The filled shapes with those that follow from others put right: an error names the shape it expects."""
    for _ in operator.inputs:
        try:
            _planned(operator, call, filled)
        except InvalidArgument as error:
            name, expected = error.argument or "", error.expected
            if not _fits(shapes.get(name), expected):
                raise
            filled = filled | {name: tuple(expected)}  # type: ignore[arg-type]
        else:
            break
    return filled


def _fits(open_shape: Dims | None, expected: object) -> bool:
    if open_shape is None or not isinstance(expected, tuple) or len(expected) != len(open_shape):
        return False
    return None in open_shape and all(n is None or n == e for n, e in zip(open_shape, expected, strict=True))


def _opened(name: str, spec: Spec, operator: Operator, call: Call, shapes: Mapping[str, Dims]) -> Spec:
    """The spec with every axis opened that is open in an input: windows never mix axes."""
    assert spec.shape is not None
    sequences = [output for output in operator.outputs if "sequence" in output]
    if name in sequences:
        axis = spatial_axes(call["data_format"])[sequences.index(name)]
        return spec if shapes[operator.inputs[0].name][axis] is not None else Spec((None,), spec.dtype)
    if any(None in shapes[i.name] for i in operator.inputs if i.kind.name == "ints"):
        return Spec((None,) * len(spec.shape), spec.dtype)
    rank = len(spec.shape)
    like = [shapes[i.name] for i in operator.inputs if len(shapes[i.name]) == rank and i.kind.name != "sequence"]
    first = like[0] if like else (None,) * rank
    shape = tuple(n if first[axis] is not None else None for axis, n in enumerate(spec.shape))
    dtype = spec.dtype if _dtypes_known(operator, call) or "int" in (spec.dtype or "") else None
    return Spec(shape, dtype)


def _nothing_known(operator: Operator, call: Call) -> tuple[Spec, ...]:
    specs = [call.spec(i.name) for i in operator.inputs if i.kind.name == "tensor"]
    dtype = next((s.dtype for s in specs if s.dtype is not None), None)
    rank = len(call["data_format"])
    others = [
        Spec((None,), "int64") if "sequence" in name else Spec((None,) * rank, call["Targmax"])
        for name in operator.outputs[1:]
    ]
    return (Spec((None,) * rank, dtype), *others)


# ---------------------------------------------------------------------------------------------------------------------
# Computation and derivatives


def _compute(operator: Operator, arguments: Mapping[str, Any], ties: str, nan: str) -> Any:
    with policy(ties=ties or None, nan=nan or None):
        return operator.call(arguments)[1]


def _derive(operator: Operator, site: Site, gradients: Mapping[str, Output]) -> dict[str, Output]:
    found: dict[str, Output] = {}
    for pin, derivative in operator.derivatives.items():
        needed = {source.name for source in derivative.sources.values() if source.kind == "gradient"}
        if not needed <= gradients.keys() or not site.wanted(pin):
            continue
        outputs = {name: site.output(name) for name in operator.outputs}
        arguments = derivative.arguments(site.arguments(), outputs, gradients, shape=site.shape_of)
        rules = {name: site.arguments()[name] for name in ("ties", "nan") if site.arguments().get(name)}
        target = block_types[derivative.operator]
        taken = {name: value for name, value in rules.items() if name in target.settings}
        found[pin] = site.add(target.name, **arguments, **taken)
    return found


def _block_type(operator: Operator) -> BlockType:
    policies = _policy_attributes() if _selects_maxima(operator) else ()

    def compute(xp: Any, ties: str = "", nan: str = "", **arguments: Any) -> Any:
        return _compute(operator, arguments, ties, nan)

    return BlockType(
        operator.name,
        _group(operator),
        operator.doc,
        tuple(map(_pin, operator.inputs)),
        operator.outputs,
        operator.attributes + policies,
        lambda call: _infer(operator, call),
        compute,
        lambda site, gradients: _derive(operator, site, gradients),
        tuple(operator.derivatives),
        volatile=lambda values: values.get("deterministic") is False,
        pooling=True,
    )


block_types.found.update({name: _block_type(operator) for name, operator in operators.items()})
