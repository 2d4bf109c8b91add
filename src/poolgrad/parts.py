"""Parts of a pooling: which slice of the input some windows read, which windows some elements lie in, and the windows
of such a part as `Windows` of their own.

A part answers like the whole: its choice codes are the whole's codes, its windows have the whole's lengths, and an
element's windows come in the whole's order, so that every value computed from a part has the bits it has in the whole.
Regular windows stay regular.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from .checks import Int64Array
from .windows import Pool, Windows

LARGE_OVERLAP: Final = 100.0
"""From this many windows per element on, the kernels add up in another order (`large_overlap` in cpu/plan.cpp)."""


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
        return Part(low, high, first, last, _listed(w, high - low, starts - low, stops - low))
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
        return Part(low, high, first, last, _listed(w, high - low, starts - low, stops - low))
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


def many_overlap(pool: Pool) -> bool:
    """Whether so many windows overlap that the kernels add up axis by axis, by doubling."""
    overlap = 1.0
    for w in pool.windows:
        if w.size:
            reach = min(w.extent, (w.size - 1 + w.before) // w.dilation + 1, w.window) if w.regular else w.extent
            overlap *= max(1.0, float(reach) * w.count / w.size)
    return overlap > LARGE_OVERLAP


def _regular(w: Windows, size: int, count: int, before: int) -> Windows:
    window = min(w.window, (size - 1 + before) // w.dilation + 1)
    return Windows(size, count, window, w.stride, before, w.dilation, extent=w.extent)


def _listed(w: Windows, size: int, starts: Int64Array, stops: Int64Array) -> Windows:
    return Windows(size, len(starts), starts=starts, stops=stops, extent=w.extent)


def _distinct(cuts: list[int]) -> list[int]:
    """Rising cuts without empty pieces, unless all there is is empty."""
    kept = [cuts[0], *(after for before, after in pairwise(cuts) if after > before)]
    return kept if len(kept) > 1 else [cuts[0], cuts[0]]
