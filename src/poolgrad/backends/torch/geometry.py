"""A pooling as a flat list of integers, which is what an operator of PyTorch can take.

The list begins with [lead, axis, number of spatial axes]: `axis` is the first spatial axis, the first `lead` axes count
images. Then follow, per spatial axis, [size, count, kind, ...] with the numbers of its kind of windows, and
[divisor, ...] with the numbers of what averages divide by. Sizes and counts may be symbolic, so a graph that was traced
once serves every size: nothing here looks at them. `pool_of` turns the list back into a `Pool`, once per pooling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from ...checks import Int64Array
from ...errors import InvalidArgument
from ...sequences import counted_axes
from ...windows import Pool, Windows, _build, adaptive, fractional

Encoded: TypeAlias = list[int]
"""A geometry, or a part of it. Some of the integers may be symbolic."""

_HEAD: Final = 3
_REGULAR, _ADAPTIVE, _LISTED, _DRAWN = range(4)
_LENGTHS: Final = {_REGULAR: 5, _ADAPTIVE: 0, _DRAWN: 5}
_REAL, _PADDED, _CONSTANT, _EACH = range(4)

REAL: Final[Encoded] = [_REAL]
"""Averages divide by the number of real elements."""


def padded(end: int) -> Encoded:
    """Averages divide by the length of the window, padding included as far as `end`, where the padded axis ends."""
    return [_PADDED, end]


def constant(divisor: int) -> Encoded:
    """Averages divide by this number. Those of the axes are multiplied: all but one axis take `constant(1)`."""
    return [_CONSTANT, divisor]


def regular_axis(
    size: int, count: int, window: int, stride: int, before: int, dilation: int, divisor: Encoded = REAL
) -> Encoded:
    """Windows of one size at one distance."""
    return [size, count, _REGULAR, window, stride, before, dilation, 0, *divisor]


def adaptive_axis(size: int, count: int) -> Encoded:
    """Windows that cover the axis evenly."""
    return [size, count, _ADAPTIVE, *REAL]


def drawn_axis(
    size: int, count: int, window: int, overlapping: bool, pseudo_random: bool, seed: int, seed2: int
) -> Encoded:
    """The cells of fractional pooling for these seeds, or with a `window` that many elements from where a cell begins.

    The axes of one geometry are drawn one after the other from one generator, when the pooling is first run: a seed
    makes them a value whatever the sizes turn out to be.
    """
    return [size, count, _DRAWN, window, int(overlapping), int(pseudo_random), _signed(seed), _signed(seed2), *REAL]


def _signed(seed: int) -> int:
    """The same 64 bits as a signed integer."""
    return (seed + 2**63) % 2**64 - 2**63


def joined(lead: int, axis: int, axes: Sequence[Encoded]) -> Encoded:
    """The geometry of an array whose spatial axes begin at `axis` and whose first `lead` axes count images."""
    return [lead, axis, len(axes), *(number for encoded in axes for number in encoded)]


@lru_cache(maxsize=1024)
def encoded(pool: Pool, lead: int = 0) -> Encoded:
    """The geometry of a pool. The list is kept: do not change it."""
    axes = [_axis(w, None if pool.divisors is None else pool.divisors[i]) for i, w in enumerate(pool.windows)]
    return joined(lead, pool.axis, axes)


def _axis(w: Windows, divisors: Int64Array | None) -> Encoded:
    divided = REAL if divisors is None else [_EACH, *divisors.tolist()]
    if w.regular:
        return [w.size, w.count, _REGULAR, w.window, w.stride, w.before, w.dilation, w.extent, *divided]
    return [w.size, w.count, _LISTED, w.extent, *w.start.tolist(), *w.stop.tolist(), *divided]


def deeper(geometry: Sequence[int]) -> Encoded:
    """The same geometry behind one more leading axis."""
    return [geometry[0] + 1, geometry[1] + 1, *geometry[2:]]


# ---------------------------------------------------------------------------------------------------------------------
# Reading


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a geometry as it stands in the list."""

    size: int
    count: int
    kind: int
    numbers: tuple[int, ...]
    divisor: int
    divisors: tuple[int, ...]


def axes_of(geometry: Sequence[int]) -> list[Axis]:
    """The spatial axes, one by one. A list that is no geometry is refused."""
    axes = []
    at = _HEAD
    try:
        for _ in range(geometry[2]):
            size, count, kind = geometry[at : at + 3]
            at += 3
            length = 1 + 2 * count if kind == _LISTED else _LENGTHS[kind]
            numbers, divisor = tuple(geometry[at : at + length]), geometry[at + length]
            at += length + 1
            length = 1 if divisor in (_PADDED, _CONSTANT) else count if divisor == _EACH else 0
            axes.append(Axis(size, count, kind, numbers, divisor, tuple(geometry[at : at + length])))
            at += length
    except (IndexError, KeyError, ValueError):
        at = -1
    if at != len(geometry):
        raise InvalidArgument("geometry is not a pooling", argument="geometry", given=list(geometry))
    return axes


def shapes(geometry: Sequence[int], shape: Sequence[int], pooled: bool) -> tuple[list[int], list[int]]:
    """The shapes of the input and of the result, given one of them: that of the result if `pooled`."""
    axes = axes_of(geometry)
    first, last = geometry[1], geometry[1] + len(axes)
    before, behind = list(shape[:first]), list(shape[last:])
    given = [a.count if pooled else a.size for a in axes]
    if first < 0 or len(shape) < last or any(a != b for a, b in zip(shape[first:last], given, strict=True)):
        raise InvalidArgument(
            f"a tensor of shape {tuple(shape)} does not have the spatial axes {tuple(given)} of the pooling",
            argument="geometry",
            given=tuple(shape),
        )
    return [*before, *(a.size for a in axes), *behind], [*before, *(a.count for a in axes), *behind]


@lru_cache(maxsize=4096)
def pool_of(geometry: tuple[int, ...], shape: tuple[int, ...], axis: int) -> Pool:
    """The `Pool` over an array of this shape whose spatial axes begin at `axis`, wherever the geometry has them."""
    axes = axes_of(geometry)
    drawn = iter(_drawn([a for a in axes if a.kind == _DRAWN]))
    all_windows = tuple(next(drawn) if a.kind == _DRAWN else _windows(a) for a in axes)
    pool = Pool(shape, axis, all_windows, math.prod(shape[: geometry[0]] if geometry[0] <= axis else ()))
    if all(a.divisor == _REAL for a in axes):
        return pool
    divisors = [_divisors(a, w) for a, w in zip(axes, all_windows, strict=True)]
    if all(np.array_equal(given, w.length) for given, w in zip(divisors, all_windows, strict=True)):
        return pool  # most averages: kernels that count for themselves need no tables
    return pool.divided_by(divisors)


def choice_dtype(geometry: Sequence[int]) -> str:
    """The dtype of the choice. Only windows of more than 256 elements make it depend on the sizes, which are then
    looked at: a traced graph holds for these sizes alone."""
    axes = axes_of(geometry)
    bounds = [_bound(a) for a in axes]
    if all(bounds) and math.prod(bounds) <= 256:
        return "uint8"
    fixed = tuple(map(int, geometry))
    return str(pool_of(fixed, tuple(int(a.size) for a in axes), 0).choice_dtype)


def _bound(axis: Axis) -> int:
    """A number of elements that no window of this axis exceeds, whatever its size; 0 if there is none."""
    if axis.kind == _REGULAR:
        return axis.numbers[4] or axis.numbers[0]
    return axis.numbers[0] if axis.kind == _DRAWN else 0


def _drawn(axes: list[Axis]) -> list[Windows]:
    if not axes:
        return []
    _, _, pseudo_random, seed, seed2 = axes[0].numbers
    sizes, counts = [a.size for a in axes], [a.count for a in axes]
    edges = counted_axes(sizes, counts, pseudo_random=bool(pseudo_random), seed=seed, seed2=seed2)
    return [_cells(a, cells) for a, cells in zip(axes, edges, strict=True)]


def _cells(axis: Axis, cells: Int64Array) -> Windows:
    window, overlapping = axis.numbers[:2]
    if window == 0:
        return fractional(axis.size, cells, bool(overlapping))
    return Windows(axis.size, axis.count, starts=cells[:-1], stops=np.minimum(cells[:-1] + window, axis.size))


def _windows(axis: Axis) -> Windows:
    if axis.kind == _ADAPTIVE:
        return adaptive(axis.size, axis.count)
    if axis.kind == _REGULAR:
        window, stride, before, dilation, extent = axis.numbers
        if min(window, stride, dilation) < 1 or min(axis.size, axis.count, before) < 0:
            raise InvalidArgument(f"{axis} has impossible numbers", argument="geometry")
        return _with_extent(_build(axis.size, axis.count, window, stride, before, dilation), extent)
    extent, borders = axis.numbers[0], np.array(axis.numbers[1:], np.int64).reshape(2, axis.count)
    starts, stops = borders
    rising = bool((np.diff(borders) >= 0).all() and (starts < stops).all())
    if axis.count and not (rising and starts[0] >= 0 and stops[-1] <= axis.size):
        raise InvalidArgument("windows must rise, lie in the axis and hold an element", argument="geometry")
    return _with_extent(Windows(axis.size, axis.count, starts=starts, stops=stops), extent)


def _with_extent(w: Windows, extent: int) -> Windows:
    """A part of a longer list of windows keeps the extent of the whole, which is given then."""
    if extent in (0, w.extent):
        return w
    if extent < w.extent:
        raise InvalidArgument(f"extent {extent} is less than the windows' {w.extent}", argument="geometry")
    maker, (*fields, _) = w.__reduce__()
    made: Windows = maker(*fields, extent)
    return made


def _divisors(axis: Axis, w: Windows) -> Sequence[int] | Int64Array:
    if axis.divisor == _EACH:
        return axis.divisors
    if axis.divisor == _CONSTANT:
        return [axis.divisors[0]] * w.count
    if axis.divisor == _REAL:
        return w.length
    window, stride, before, _, _ = axis.numbers
    begin = np.arange(w.count, dtype=np.int64) * stride - before
    return np.minimum(begin + window, axis.divisors[0]) - begin
