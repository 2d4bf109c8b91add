"""Parts of a pooling: which slice of the input some windows read, which windows some elements lie in, and the windows
of such a part as `Windows` of their own.

A part answers like the whole: its choice codes are the whole's codes, its windows have the whole's lengths, and an
element's windows come in the whole's order, so that every value computed from a part has the bits it has in the whole.
Regular windows stay regular.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from .checks import Int64Array
from .windows import Pool, Windows


class Part(NamedTuple):
    """The windows [first, last) of an axis, over the slice [low, high) of its input."""

    low: int
    high: int
    first: int
    last: int
    windows: Windows

    @property
    def size(self) -> int:
        """The length of the slice."""
        return self.high - self.low


def of_outputs(w: Windows, first: int, last: int) -> Part:
    """The windows [first, last) over everything they read.

    >>> from poolgrad.windows import regular
    >>> of_outputs(regular(100, window=3, stride=2, padding="SAME"), 10, 20)
    Part(low=20, high=41, first=10, last=20, windows=Windows(size=21, count=10, window=3, stride=2, before=0))
    """
    if first >= last:
        return Part(0, 0, first, first, Windows(0, 0, extent=w.extent))
    if not w.regular:
        starts, stops = w.start[first:last], w.stop[first:last]
        low, high = int(starts[0]), int(stops[-1])
        return Part(low, high, first, last, _listed(high - low, starts - low, stops - low, w.extent))
    nominal = first * w.stride - w.before
    low = max(0, nominal)
    reached = (last - 1) * w.stride - w.before + (w.window - 1) * w.dilation + 1
    # An origin is never further out than the input is long. Long enough a slice, and it stays where it is in the whole.
    high = min(w.size, max(reached, low - nominal + 1))
    return Part(low, high, first, last, _regular(w, high - low, last - first, low - nominal))


def of_inputs(w: Windows, low: int, high: int) -> Part:
    """All windows that reach into the elements [low, high), over everything they read.

    >>> from poolgrad.windows import regular
    >>> of_inputs(regular(100, window=3, stride=2, padding="SAME"), 50, 60)
    Part(low=48, high=61, first=24, last=30, windows=Windows(size=13, count=6, window=3, stride=2, before=0))
    """
    return of_outputs(w, *reaching_into(w, low, high))


def clipped(w: Windows, low: int, high: int) -> Part:
    """All windows that reach into the elements [low, high), as far as they do. Their lengths are not those of the
    whole: `lengths` knows these. Not for a dilation, where a window may step over the elements.

    >>> from poolgrad.windows import regular
    >>> part = clipped(regular(100, window=100), 50, 60)
    >>> part
    Part(low=50, high=60, first=0, last=1, windows=Windows(size=10, count=1, window=60, stride=100, before=50))
    >>> part.windows.length
    array([10])
    """
    first, last = reaching_into(w, low, high)
    if first >= last:
        return Part(low, low, first, first, Windows(0, 0, extent=w.extent))
    if not w.regular:
        starts, stops = np.maximum(w.start[first:last], low), np.minimum(w.stop[first:last], high)
        low, high = int(starts[0]), int(stops[-1])
        return Part(low, high, first, last, _listed(high - low, starts - low, stops - low, w.extent))
    nominal = first * w.stride - w.before
    low = max(low, nominal)
    return Part(low, high, first, last, _regular(w, high - low, last - first, low - nominal))


def reaching_into(w: Windows, low: int, high: int) -> tuple[int, int]:
    """The range of windows that have an element in [low, high). With a dilation some of them may step over it.

    >>> from poolgrad.windows import regular
    >>> reaching_into(regular(100, window=2, stride=5), 12, 15), reaching_into(regular(100, window=2, stride=5), 12, 17)
    ((3, 3), (3, 4))
    """
    if low >= high or w.count == 0:
        return 0, 0
    if w.regular:
        reach = (w.window - 1) * w.dilation
        first = max(0, -((reach - low - w.before) // w.stride))
        last = min(w.count, (high - 1 + w.before) // w.stride + 1)
    else:
        first = int(np.searchsorted(w.stop, low, side="right"))
        last = int(np.searchsorted(w.start, high, side="left"))
    return first, max(first, last)


def lengths(w: Windows, first: int, last: int) -> Int64Array:
    """How many real elements each of the windows [first, last) has."""
    return of_outputs(w, first, last).windows.length


def output_cuts(w: Windows, cuts: list[int]) -> list[int]:
    """Where to cut the windows when the input is cut there: a window goes with the elements it lies over.

    >>> from poolgrad.windows import regular
    >>> output_cuts(regular(100, window=3, stride=2, padding="SAME"), [0, 64, 100])
    [0, 32, 50]
    """
    if w.regular:
        inner = [min(w.count, -(-cut // w.stride)) for cut in cuts[1:-1]]
    else:
        inner = np.searchsorted(w.start, cuts[1:-1]).tolist()
    return _distinct([0, *inner, w.count])


def input_cuts(w: Windows, cuts: list[int]) -> list[int]:
    """Where to cut the input when the windows are cut there: the way back from `output_cuts`.

    >>> from poolgrad.windows import regular
    >>> input_cuts(regular(100, window=3, stride=2, padding="SAME"), [0, 32, 50])
    [0, 64, 100]
    """
    inner = [min(w.size, cut * w.stride) if w.regular else int(w.start[cut]) for cut in cuts[1:-1] if cut < w.count]
    return _distinct([0, *inner, w.size])


# ---------------------------------------------------------------------------------------------------------------------
# Sums. The kernels choose how to add up by the pool they are given (cpu/plan.cpp, cpu/sums.hpp); a part must make them
# choose as the whole does. What they look at can be steered by one more axis of length 1, which changes no result.


class Sums(NamedTuple):
    """How the kernels add up: axis by axis, where many windows overlap; in float64 also for short floats, where windows
    are long."""

    by_doubling: bool
    wide: bool


LARGE_ADDITIONS: Final = 32.0
LONG_WINDOW: Final = 2048


def sums_of(pool: Pool) -> Sums:
    """How the kernels add up over this pool."""
    visits = []
    for w in pool.windows:
        reach = min(w.extent, (w.size - 1 + w.before) // w.dilation + 1, w.window) if w.regular else w.extent
        visits.append(max(1.0, float(reach) * w.count / w.size) if w.size else 1.0)
    additions = math.prod(visits[-2::-1]) + visits[-1]
    indexable = pool.elements < 2**32 and all(w.size < 2**31 for w in pool.windows)
    return Sums(additions > LARGE_ADDITIONS and indexable, pool.elements > LONG_WINDOW)


def adding_like(pool: Pool, whole: Sums, transposed: bool = False) -> Pool | None:
    """The pool, for sums only (its choice codes are other ones), in a form that adds up like the whole. Its arrays may
    have one more axis, of length 1. None if there is no such form; there is one for fewer windows, and for `transposed`
    sums always."""
    return _adding_like(pool, whole, transposed)


@lru_cache(maxsize=256)
def _adding_like(pool: Pool, whole: Sums, transposed: bool) -> Pool | None:
    plain = Pool(pool.shape, pool.axis, tuple(map(_natural, pool.windows)), pool.batch, pool.divisors)
    by_doubling, wide = sums_of(plain)
    if whole.by_doubling:
        return (
            plain
            if by_doubling
            else _with_axis(plain, _listed(1, np.zeros(1, np.int64), np.ones(1, np.int64), int(LARGE_ADDITIONS) + 1))
        )
    if by_doubling and not transposed:
        return None
    # A dilation keeps the transposed kernel from doubling; an extent without a window makes windows long.
    dilation = 2 if by_doubling else 1
    extent = LONG_WINDOW + 1 if whole.wide and not wide else 1
    if (dilation, extent) == (1, 1):
        return plain
    return _with_axis(plain, Windows(1, 1, dilation=dilation, extent=extent))


def _with_axis(pool: Pool, w: Windows) -> Pool:
    shape = (*pool.shape[: pool.axis], 1, *pool.shape[pool.axis :])
    divisors = None if pool.divisors is None else (np.ones(1, np.int64), *pool.divisors)
    return Pool(shape, pool.axis, (w, *pool.windows), pool.batch, divisors)


def _natural(w: Windows) -> Windows:
    """The windows with the extent that they have by themselves."""
    if w.regular:
        return Windows(w.size, w.count, w.window, w.stride, w.before, w.dilation)
    return Windows(w.size, w.count, starts=w.start, stops=w.stop)


# ---------------------------------------------------------------------------------------------------------------------


def _regular(w: Windows, size: int, count: int, before: int) -> Windows:
    window = min(w.window, (size - 1 + before) // w.dilation + 1)
    return Windows(size, count, window, w.stride, before, w.dilation, extent=w.extent)


def _listed(size: int, starts: Int64Array, stops: Int64Array, extent: int) -> Windows:
    return Windows(size, len(starts), starts=starts, stops=stops, extent=extent)


def _distinct(cuts: list[int]) -> list[int]:
    """Rising cuts without empty pieces, unless all there is is empty."""
    kept = [cuts[0], *(after for before, after in pairwise(cuts) if after > before)]
    return kept if len(kept) > 1 else [cuts[0], cuts[0]]
