"""Blocks that move data without changing a number: Reshape, Transpose, Shape, Concat, Slice, Pad, and their transposes.

Slice and Place are each other's derivative, as are Concat and ConcatPart; Reshape and Transpose are their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidArgument
from .blocktypes import (
    Call,
    HostInts,
    HostShape,
    IndexType,
    Number,
    OneFloat,
    OneInt,
    Tensor,
    Tensors,
    block,
    expect_dtype,
)
from .reduction import expect_sizes
from .values import Dims, Spec

if TYPE_CHECKING:
    from .gradients import Site
    from .scope import Output

Grads: TypeAlias = "Mapping[str, Output]"

# ---------------------------------------------------------------------------------------------------------------------
# Reshape, Transpose, Shape


def _reshape(call: Call) -> Spec:
    expect_dtype(call, "tensor")
    spec, shape = call.spec("tensor"), call.ints("shape")
    if shape is None:
        return Spec(None, spec.dtype)
    if sum(n == -1 for n in shape) > 1 or any(n is not None and n < -1 for n in shape):
        raise InvalidArgument(f"shape is {list(shape)}, expected lengths and at most one -1", argument="shape")
    if spec.shape is None or None in spec.shape or None in shape:
        return Spec(tuple(None if n == -1 else n for n in shape), spec.dtype)
    size, rest = prod(n or 0 for n in spec.shape), prod(n or 0 for n in shape if n != -1)
    whole = (-1 not in shape and rest == size) or (-1 in shape and rest > 0 and size % rest == 0)
    if not whole:
        problem = f"shape {list(shape)} does not fit the {size} elements of tensor {list(spec.shape)}"
        raise InvalidArgument(problem, argument="shape", given=shape)
    found = tuple(size // rest if n == -1 else n for n in shape)
    return Spec(found, spec.dtype, spec.value if len(found) == 1 else None)


def _reshape_back(site: Site, gradients: Grads) -> Grads:
    shape = site.shape_of(site.input("tensor"))
    return {"tensor": site.add("Reshape", tensor=gradients["output"], shape=shape)}


@block("Shape", _reshape, _reshape_back, to=["tensor"])
def Reshape(xp: Any, tensor: Tensor, shape: HostShape) -> Any:
    """The same elements in another shape."""
    return xp.reshape(tensor, tuple(shape))


def _permutation(call: Call, rank: int) -> tuple[int, ...] | None:
    given = call.ints("perm")
    if given is None or None in given:
        return None
    perm = tuple(n for n in given if n is not None) or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise InvalidArgument(f"perm is {list(perm)}, expected each of the {rank} axes once", argument="perm")
    return perm


def _transpose(call: Call) -> Spec:
    expect_dtype(call, "x")
    spec = call.spec("x")
    perm = None if spec.shape is None else _permutation(call, len(spec.shape))
    if spec.shape is None or perm is None:
        return Spec(None if spec.shape is None else (None,) * len(spec.shape), spec.dtype)
    return Spec(tuple(spec.shape[axis] for axis in perm), spec.dtype)


def _transpose_back(site: Site, gradients: Grads) -> Grads:
    perm = site.arguments()["perm"]
    if not isinstance(perm, tuple):
        perm = perm.spec.value or (None,)
    if None in perm:
        raise InvalidArgument("perm must be known before the run to be differentiated", argument="perm")
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    return {"x": site.add("Transpose", x=gradients["output"], perm=inverse)}


@block("Shape", _transpose, _transpose_back, to=["x"])
def Transpose(xp: Any, x: Tensor, perm: HostInts = ()) -> Any:
    """The tensor with its axes in another order."""
    return xp.permute_dims(x, tuple(perm) or tuple(reversed(range(x.ndim))))


def _shape(call: Call) -> Spec:
    shape = call.spec("input").shape
    return Spec((None if shape is None else len(shape),), call["out_type"], shape)


@block("Shape", _shape)
def Shape(xp: Any, input: Tensor, out_type: IndexType = "int32") -> Any:
    """The lengths of the axes, as a list of integers."""
    return xp.asarray(list(input.shape), dtype=getattr(xp, out_type))


# ---------------------------------------------------------------------------------------------------------------------
# Concat, ConcatPart


def _axis(call: Call, rank: int) -> int:
    axis: int = call["axis"]
    if not -rank <= axis < rank:
        raise InvalidArgument(f"axis {axis} is not one of the {rank} axes", argument="axis", given=axis)
    return axis % rank


def _joined(call: Call) -> Spec:
    expect_dtype(call, "values")
    specs = call.many("values")
    if not specs:
        raise InvalidArgument("values needs at least one wire", argument="values")
    for spec in specs:
        if None not in (spec.dtype, specs[0].dtype) and spec.dtype != specs[0].dtype:
            problem = f"values have dtypes {specs[0].dtype} and {spec.dtype}; they must be the same"
            raise InvalidArgument(problem, argument="values")
    shapes = [spec.shape for spec in specs if spec.shape is not None]
    if len(shapes) < len(specs):
        return Spec(None, specs[0].dtype)
    if not shapes[0]:
        raise InvalidArgument("values are single numbers, which have no axis to be joined along", argument="values")
    axis = _axis(call, len(shapes[0]))
    value = _joined_values(specs) if len(shapes[0]) == 1 else None
    return Spec(_joined_shape(shapes, axis), specs[0].dtype, value)


def _joined_shape(shapes: list[Dims], axis: int) -> Dims:
    first = list(shapes[0])
    for number, shape in enumerate(shapes[1:], 1):
        fits = len(shape) == len(first) and all(
            a == axis or n is None or m is None or n == m for a, (n, m) in enumerate(zip(first, shape, strict=True))
        )
        if not fits or not shape:
            problem = f"values[{number}] has shape {list(shape)}, which does not continue {first} along axis {axis}"
            raise InvalidArgument(problem, argument="values", given=shape)
        known = first[axis], shape[axis]
        ends = None if None in known else (known[0] or 0) + (known[1] or 0)
        first = [n if n is not None else m for n, m in zip(first, shape, strict=True)]
        first[axis] = ends
    return tuple(first)


def _joined_values(specs: tuple[Spec, ...]) -> Dims | None:
    parts = [spec.value for spec in specs]
    return None if None in parts else tuple(n for part in parts for n in part or ())


def _concat_back(site: Site, gradients: Grads) -> dict[str, list[Output]]:
    parts = site.inputs("values")
    axis = site.arguments()["axis"]
    return {
        "values": [
            site.add("ConcatPart", input=gradients["output"], values=parts, index=index, axis=axis)
            for index in range(len(parts))
        ]
    }


@block("Shape", _joined, _concat_back, to=["values"])  # type: ignore[arg-type]
def Concat(xp: Any, values: Tensors, axis: OneInt) -> Any:
    """Tensors joined along an axis."""
    return xp.concat(list(values), axis=axis)


def _part(call: Call) -> Spec:
    specs = call.many("values")
    if not 0 <= call["index"] < len(specs):
        problem = f"index is {call['index']}, but there are {len(specs)} values"
        raise InvalidArgument(problem, argument="index", given=call["index"])
    joined, given = _joined(call).shape, call.spec("input").shape
    if joined is not None and given is not None and not _compatible(joined, given):
        problem = f"input has shape {list(given)}, but the values joined have {list(joined)}"
        raise InvalidArgument(problem, argument="input", given=given, expected=joined)
    return Spec(specs[call["index"]].shape, call.spec("input").dtype)


def _compatible(first: Dims, second: Dims) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(n is None or m is None or n == m for n, m in pairs)


def _part_back(site: Site, gradients: Grads) -> Grads:
    parts, index = site.inputs("values"), site.arguments()["index"]
    filled = [gradients["output"] if i == index else site.add("ZerosLike", x=part) for i, part in enumerate(parts)]
    return {"input": site.add("Concat", values=filled, axis=site.arguments()["axis"])}


@block("Shape", _part, _part_back, to=["input"])
def ConcatPart(xp: Any, input: Tensor, values: Tensors, index: OneInt, axis: OneInt) -> Any:
    """The part of a joined tensor that one of the values became: the derivative of Concat."""
    return part_of(xp, input, values, index, axis)


def part_of(xp: Any, x: Any, values: Any, index: int, axis: int) -> Any:
    """The slice of x that belongs to values[index]."""
    axis %= x.ndim
    begin = sum(v.shape[axis] for v in values[:index])
    return x[(slice(None),) * axis + (slice(begin, begin + values[index].shape[axis]),)]


# ---------------------------------------------------------------------------------------------------------------------
# Slice, Place, Pad


def _per_axis(call: Call, name: str, rank: int, each: int = 1) -> Dims | None:
    given = call.ints(name)
    if given is not None and len(given) != rank * each:
        problem = f"{name} is {list(given)}, expected {rank * each} integers for the {rank} axes"
        raise InvalidArgument(problem, argument=name, given=given)
    return given


def _at(given: Dims | None, axis: int) -> int | None:
    return given[axis] if given is not None else None


def _slice(call: Call) -> Spec:
    expect_dtype(call, "input")
    spec = call.spec("input")
    if spec.shape is None:
        return Spec(None, spec.dtype)
    rank = len(spec.shape)
    begin, size = _per_axis(call, "begin", rank), _per_axis(call, "size", rank)
    found: list[int | None] = []
    for axis, n in enumerate(spec.shape):
        first, length = _at(begin, axis), _at(size, axis)
        _expect_inside(axis, n, first, length)
        found.append((None if n is None or first is None else n - first) if length == -1 else length)
    value = None
    if rank == 1 and spec.value is not None and begin and begin[0] is not None and found[0] is not None:
        value = spec.value[begin[0] : begin[0] + found[0]]
    return Spec(tuple(found), spec.dtype, value)


def _expect_inside(axis: int, n: int | None, first: int | None, length: int | None) -> None:
    if first is not None and (first < 0 or (n is not None and first > n)):
        raise InvalidArgument(f"begin[{axis}] is {first}, but axis {axis} has length {n}", argument="begin")
    if length is not None and length < -1:
        raise InvalidArgument(f"size[{axis}] is {length}, expected a length or -1", argument="size")
    if None not in (n, first, length) and (first or 0) + (length or 0) > (n or 0):
        problem = f"size[{axis}] is {length} from {first}, but axis {axis} has length {n}"
        raise InvalidArgument(problem, argument="size")


def _slice_back(site: Site, gradients: Grads) -> Grads:
    shape = site.shape_of(site.input("input"))
    placed = site.add("Place", input=gradients["output"], shape=shape, begin=site.arguments()["begin"])
    return {"input": placed}


@block("Shape", _slice, _slice_back, to=["input"])
def Slice(xp: Any, input: Tensor, begin: HostInts, size: HostInts) -> Any:
    """A part of the tensor."""
    return part(input, begin, size)


def part(x: Any, begin: Any, size: Any) -> Any:
    """The part of x that begins and is as long as said; -1 means to the end."""
    return x[tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, size, strict=True))]


def _place(call: Call) -> Spec:
    expect_dtype(call, "input")
    spec, shape = call.spec("input"), call.ints("shape")
    if shape is None:
        return Spec(None, spec.dtype)
    expect_sizes(shape, "shape")
    if spec.shape is not None and len(spec.shape) != len(shape):
        raise InvalidArgument(f"input has {len(spec.shape)} axes, but shape {list(shape)}", argument="input")
    begin = _per_axis(call, "begin", len(shape))
    for axis, n in enumerate(shape):
        length = None if spec.shape is None else spec.shape[axis]
        _expect_inside(axis, n, _at(begin, axis), length)
    return Spec(shape, spec.dtype)


def _place_back(site: Site, gradients: Grads) -> Grads:
    size = site.shape_of(site.input("input"))
    part = site.add("Slice", input=gradients["output"], begin=site.arguments()["begin"], size=size)
    return {"input": part}


@block("Shape", _place, _place_back, to=["input"])
def Place(xp: Any, input: Number, shape: HostShape, begin: HostInts) -> Any:
    """The transpose of Slice: the tensor as a part of zeros."""
    return placed(xp, input, shape, begin, 0)


def placed(xp: Any, x: Any, shape: Any, begin: Any, fill: Any) -> Any:
    """x as a part of a larger array."""
    result = xp.full(tuple(shape), fill, dtype=x.dtype, device=getattr(x, "device", None))
    result[tuple(slice(b, b + n) for b, n in zip(begin, x.shape, strict=True))] = x
    return result


def _pad(call: Call) -> Spec:
    expect_dtype(call, "input")
    spec = call.spec("input")
    if spec.shape is None:
        return Spec(None, spec.dtype)
    amounts = _per_axis(call, "paddings", len(spec.shape), each=2) or (None,) * (2 * len(spec.shape))
    if any(n is not None and n < 0 for n in amounts):
        raise InvalidArgument(f"paddings is {list(amounts)}, expected no negative amounts", argument="paddings")
    sides = zip(spec.shape, amounts[::2], amounts[1::2], strict=True)
    return Spec(tuple(None if None in side else sum(n or 0 for n in side) for side in sides), spec.dtype)


def _pad_back(site: Site, gradients: Grads) -> Grads:
    amounts = site.arguments()["paddings"]
    if isinstance(amounts, tuple):
        begin: Any = amounts[::2]
    else:
        pairs = site.add("Reshape", tensor=amounts, shape=(-1, 2))
        begin = site.add("Reshape", tensor=site.add("Slice", input=pairs, begin=(0, 0), size=(-1, 1)), shape=(-1,))
    size = site.shape_of(site.input("input"))
    return {"input": site.add("Slice", input=gradients["output"], begin=begin, size=size)}


@block("Shape", _pad, _pad_back, to=["input"])
def Pad(xp: Any, input: Number, paddings: HostInts, constant_values: OneFloat = 0) -> Any:
    """The tensor with a margin around it."""
    return padded(xp, input, paddings, constant_values)


def padded(xp: Any, x: Any, paddings: Any, fill: Any) -> Any:
    """x with [before, after] on every axis."""
    shape = [n + paddings[2 * axis] + paddings[2 * axis + 1] for axis, n in enumerate(x.shape)]
    return placed(xp, x, shape, paddings[::2], fill)
