"""Blocks that reduce axes, and their transposes: Sum and Repeat, Mean and Spread, SumTo and BroadcastTo.

Sums of 16-bit floats are added up in float32 and rounded once; those of integers keep their dtype and wrap; averages of
integers are truncated toward zero: the rules that pooling has.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidArgument
from .arithmetic import broadcast
from .blocktypes import Bool, Call, Flag, HostInts, HostShape, Nans, Number, Tensor, Ties, block, expect_dtype
from .values import Dims, Spec

if TYPE_CHECKING:
    from .gradients import Site
    from .scope import Output

Grads: TypeAlias = "Mapping[str, Output]"

# ---------------------------------------------------------------------------------------------------------------------
# Shapes


def axes_of(call: Call, rank: int) -> tuple[int, ...] | None:
    """The reduced axes, none of them negative; None where they are not known."""
    given = call.ints("axis")
    if given is None or None in given:
        return None
    found = tuple(a + rank if a is not None and a < 0 else a for a in given) or tuple(range(rank))
    for axis, given_axis in zip(found, given, strict=False):
        if axis is None or not 0 <= axis < rank:
            problem = f"axis {given_axis} is not one of the {rank} axes"
            raise InvalidArgument(problem, argument="axis", given=given)
    if len(set(found)) < len(found):
        raise InvalidArgument(f"axis {list(given)} has one axis twice", argument="axis", given=given)
    return tuple(a for a in found if a is not None)


def reduced(shape: Dims | None, call: Call) -> Dims | None:
    """What is left of a shape."""
    axes = None if shape is None else axes_of(call, len(shape))
    if shape is None or axes is None:
        return None
    if call["keep_dims"]:
        return tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _reduction(call: Call) -> Spec:
    expect_dtype(call, "input")
    return Spec(reduced(call.spec("input").shape, call), call.spec("input").dtype)


def _filled_reduction(call: Call) -> Spec:
    _expect_filled(call)
    return _reduction(call)


def _expect_filled(call: Call) -> None:
    """Refuses axes without an element: there is no average and no maximum of nothing."""
    shape = call.spec("input").shape
    axes = None if shape is None else axes_of(call, len(shape))
    for axis in axes or ():
        if shape is not None and shape[axis] == 0:
            raise InvalidArgument(f"input has no element along axis {axis}", argument="input", given=shape)


def _expansion(call: Call) -> Spec:
    expect_dtype(call, "input")
    shape = call.ints("shape")
    if shape is None:
        return Spec(None, call.spec("input").dtype)
    expect_sizes(shape, "shape")
    left, given = reduced(shape, call), call.spec("input").shape
    fits = left is None or given is None or (len(left) == len(given) and all(map(_same, left, given)))
    if not fits:
        problem = f"input has shape {list(given or ())}, but reducing {list(shape)} gives {list(left or ())}"
        raise InvalidArgument(problem, argument="input", given=given, expected=left)
    return Spec(shape, call.spec("input").dtype)


def _same(n: int | None, m: int | None) -> bool:
    return n is None or m is None or n == m


def expect_sizes(shape: Dims, name: str) -> None:
    """Refuses negative lengths."""
    for n in shape:
        if n is not None and n < 0:
            raise InvalidArgument(f"{name} is {list(shape)}, expected lengths of 0 or more", argument=name, given=shape)


# ---------------------------------------------------------------------------------------------------------------------
# Sum, Repeat, Mean, Spread


def _to_transpose(name: str, expands: bool) -> Any:
    """Sum is differentiated by Repeat and the other way round; Mean by Spread."""

    def derive(site: Site, gradients: Grads) -> Grads:
        same = {key: site.arguments()[key] for key in ("axis", "keep_dims")}
        shape = {"shape": site.shape_of(site.input("input"))} if expands else {}
        return {"input": site.add(name, input=gradients["output"], **shape, **same)}

    return derive


@block("Reduction", _reduction, _to_transpose("Repeat", True), to=["input"])
def Sum(xp: Any, input: Number, axis: HostInts = (), keep_dims: Flag = False) -> Any:
    """The sum along some axes, or of everything."""
    return total(xp, input, axis, keep_dims)


def total(xp: Any, x: Any, axis: Any, keep_dims: bool) -> Any:
    """The sum in the dtype of x; of 16-bit floats added up in float32."""
    half = "float" in str(x.dtype) and x.dtype.itemsize == 2
    added = xp.sum(x, axis=tuple(axis) or None, dtype=xp.float32 if half else x.dtype, keepdims=keep_dims)
    return xp.asarray(added, dtype=x.dtype)


@block("Reduction", _expansion, _to_transpose("Sum", False), to=["input"])
def Repeat(xp: Any, input: Number, shape: HostShape, axis: HostInts = (), keep_dims: Flag = False) -> Any:
    """The transpose of Sum: every element, repeated along the axes that Sum reduces."""
    return repeated(xp, input, shape, axis)


def repeated(xp: Any, x: Any, shape: Any, axis: Any) -> Any:
    """x with the reduced axes back again."""
    axes = {a % max(len(shape), 1) for a in axis} or set(range(len(shape)))
    return xp.broadcast_to(xp.reshape(x, tuple(1 if a in axes else n for a, n in enumerate(shape))), tuple(shape))


@block("Reduction", _filled_reduction, _to_transpose("Spread", True), to=["input"])
def Mean(xp: Any, input: Number, axis: HostInts = (), keep_dims: Flag = False) -> Any:
    """The average along some axes, or of everything."""
    return average(xp, input, axis, keep_dims)


def average(xp: Any, x: Any, axis: Any, keep_dims: bool) -> Any:
    """The average in the dtype of x; of integers truncated toward zero."""
    count = prod(x.shape[a] for a in (axis or range(x.ndim)))
    if "float" in str(x.dtype):
        wide = xp.float32 if x.dtype.itemsize == 2 else x.dtype
        added = xp.sum(x, axis=tuple(axis) or None, dtype=wide, keepdims=keep_dims)
        return xp.asarray(added / count, dtype=x.dtype)
    wide = xp.uint64 if str(x.dtype).endswith("uint64") else xp.int64
    added = xp.sum(x, axis=tuple(axis) or None, dtype=wide, keepdims=keep_dims)
    return xp.asarray(xp.sign(added) * (xp.abs(added) // count), dtype=x.dtype)


@block("Reduction", _expansion, _to_transpose("Mean", False), to=["input"])
def Spread(xp: Any, input: Number, shape: HostShape, axis: HostInts = (), keep_dims: Flag = False) -> Any:
    """The transpose of Mean: every element, shared evenly among those that it is the average of."""
    return spread(xp, input, shape, axis)


def spread(xp: Any, x: Any, shape: Any, axis: Any) -> Any:
    """x over the number of elements that share it, with the reduced axes back again."""
    count = prod(shape[a] for a in (axis or range(len(shape))))
    if "float" in str(x.dtype):
        share = xp.asarray(x / max(count, 1), dtype=x.dtype)
    else:
        share = xp.asarray(xp.sign(x) * (xp.abs(x) // max(count, 1)), dtype=x.dtype)
    return repeated(xp, share, shape, axis)


# ---------------------------------------------------------------------------------------------------------------------
# SumTo, BroadcastTo


def _target_shape(call: Call) -> Dims | None:
    expect_dtype(call, "input")
    shape = call.ints("shape")
    if shape is not None:
        expect_sizes(shape, "shape")
    return shape


def _broadcast_to(call: Call) -> Spec:
    shape, given = _target_shape(call), call.spec("input").shape
    if shape is not None and given is not None and len(given) > len(shape):
        raise InvalidArgument(f"input has {len(given)} axes, more than shape", argument="input", given=given)
    found = broadcast(shape, given, ("shape", "input"))
    if shape is not None and found is not None and not all(map(_same, found, shape)):
        raise InvalidArgument(f"input {list(given or ())} does not broadcast to {list(shape)}", argument="input")
    return Spec(shape, call.spec("input").dtype)


def _sum_to(call: Call) -> Spec:
    shape, given = _target_shape(call), call.spec("input").shape
    if shape is not None and given is not None and len(shape) > len(given):
        raise InvalidArgument(f"shape has {len(shape)} axes, more than input", argument="shape", given=shape)
    found = broadcast(given, shape, ("input", "shape"))
    if found is not None and given is not None and not all(map(_same, found, given)):
        raise InvalidArgument(f"shape {list(shape or ())} does not broadcast to {list(given)}", argument="shape")
    return Spec(shape, call.spec("input").dtype)


def _to_sum(site: Site, gradients: Grads) -> Grads:
    shape = site.shape_of(site.input("input"))
    return {"input": site.add("SumTo", input=gradients["output"], shape=shape)}


def _to_broadcast(site: Site, gradients: Grads) -> Grads:
    shape = site.shape_of(site.input("input"))
    return {"input": site.add("BroadcastTo", input=gradients["output"], shape=shape)}


@block("Shape", _broadcast_to, _to_sum, to=["input"])
def BroadcastTo(xp: Any, input: Tensor, shape: HostShape) -> Any:
    """The tensor repeated along new axes and along those of length 1."""
    return xp.broadcast_to(input, tuple(shape))


@block("Shape", _sum_to, _to_broadcast, to=["input"])
def SumTo(xp: Any, input: Number, shape: HostShape) -> Any:
    """The transpose of BroadcastTo: the sum along every axis that shape does not have, or has with length 1."""
    return summed_to(xp, input, shape)


def summed_to(xp: Any, x: Any, shape: Any) -> Any:
    """x summed until it has the shape."""
    new = x.ndim - len(shape)
    axes = [a for a in range(x.ndim) if a < new or (shape[a - new] == 1 and x.shape[a] != 1)]
    return xp.reshape(total(xp, x, axes, True) if axes else x, tuple(shape))


# ---------------------------------------------------------------------------------------------------------------------
# Max, Min


def _to_winner(negate: bool) -> Any:
    def derive(site: Site, gradients: Grads) -> Grads:
        x, given = site.input("input"), site.arguments()
        same = {key: given[key] for key in ("axis", "keep_dims")}
        back = site.add("Repeat", input=gradients["output"], shape=site.shape_of(x), **same)
        rules = {key: given[key] for key in ("ties", "nan") if given.get(key)}
        searched = site.add("Negate", x=x) if negate else x
        won = site.add("Winners", input=searched, axis=given["axis"], **rules)
        share = site.add("Multiply", x=back, y=won)
        # Nothing is not a share of infinity, which would be NaN: it passes where somebody won.
        return {"input": site.add("ReluGrad", gradients=share, features=won)}

    return derive


@block("Reduction", _filled_reduction, _to_winner(False), to=["input"])
def Max(xp: Any, input: Number, axis: HostInts = (), keep_dims: Flag = False, ties: Ties = "", nan: Nans = "") -> Any:
    """The maximum along some axes, or of everything. Its gradient goes to the winner, as ties and nan say."""
    return highest(xp, input, axis, keep_dims, nan)


def highest(xp: Any, x: Any, axis: Any, keep_dims: bool, nan: str) -> Any:
    """The maximum; a NaN wins, or with "ignore" only where there is nothing else."""
    if nan != "ignore" or "float" not in str(x.dtype):
        return xp.max(x, axis=tuple(axis) or None, keepdims=keep_dims)
    missing = xp.isnan(x)
    found = xp.max(xp.where(missing, -xp.inf, x), axis=tuple(axis) or None, keepdims=keep_dims)
    nothing = xp.all(missing, axis=tuple(axis) or None, keepdims=keep_dims)
    return xp.asarray(xp.where(nothing, xp.nan, found), dtype=x.dtype)


@block("Reduction", _filled_reduction, _to_winner(True), to=["input"])
def Min(xp: Any, input: Number, axis: HostInts = (), keep_dims: Flag = False, ties: Ties = "", nan: Nans = "") -> Any:
    """The minimum along some axes, or of everything. Its gradient goes to the winner, as ties and nan say."""
    return lowest(xp, input, axis, keep_dims, nan)


def lowest(xp: Any, x: Any, axis: Any, keep_dims: bool, nan: str) -> Any:
    """The minimum; a NaN wins, or with "ignore" only where there is nothing else."""
    if nan != "ignore" or "float" not in str(x.dtype):
        return xp.min(x, axis=tuple(axis) or None, keepdims=keep_dims)
    return xp.negative(highest(xp, xp.negative(x), axis, keep_dims, nan))


def _winners(call: Call) -> Spec:
    expect_dtype(call, "input")
    _expect_filled(call)
    return Spec(call.spec("input").shape, call.spec("input").dtype)


@block("Reduction", _winners, scratch=20)
def Winners(xp: Any, input: Number, axis: HostInts = (), ties: Ties = "", nan: Nans = "") -> Any:
    """1 at the maximum along the axes, 0 elsewhere; of equal maxima the first has it, or each, or they share it."""
    return winners(xp, input, axis, ties, nan)


def winners(xp: Any, x: Any, axis: Any, ties: str, nan: str) -> Any:
    """How much of a gradient every element gets."""
    axes = tuple(sorted({a % x.ndim for a in axis} or set(range(x.ndim))))
    best = highest(xp, x, axes, True, nan)
    won = xp.equal(x, best) | (xp.not_equal(x, x) & xp.not_equal(best, best))
    if ties == "all":
        return xp.asarray(won, dtype=x.dtype)
    if ties == "split":
        count = xp.sum(won, axis=axes, keepdims=True, dtype=xp.int64)
        return xp.asarray(xp.asarray(won, dtype=x.dtype) / xp.asarray(count, dtype=x.dtype), dtype=x.dtype)
    kept = [a for a in range(x.ndim) if a not in axes]
    order = [*kept, *axes]
    moved = xp.permute_dims(won, order)
    rows = xp.reshape(moved, (*(x.shape[a] for a in kept), prod(x.shape[a] for a in axes)))
    first = rows & (xp.cumulative_sum(xp.asarray(rows, dtype=xp.int64), axis=-1) == 1)
    back = [order.index(a) for a in range(x.ndim)]
    return xp.asarray(xp.permute_dims(xp.reshape(first, moved.shape), back), dtype=x.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# All


@block("Compare", _reduction)
def All(xp: Any, input: Bool, axis: HostInts = (), keep_dims: Flag = False) -> Any:
    """Whether all elements hold, along some axes or altogether."""
    return xp.all(input, axis=tuple(axis) or None, keepdims=keep_dims)
