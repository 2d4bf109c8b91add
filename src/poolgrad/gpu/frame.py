"""A pool as the GPU kernels see it: up to three pooled axes between images and channels, with tables of their windows.

Axes on which nothing is pooled join the images or the channels beside them.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from ..checks import Int64Array
from ..errors import InvalidArgument
from ..windows import Pool, Windows

AXES = 3
"""How many axes the kernels can pool."""


class Axis:
    """The windows of one axis, and their tables.

    uniform  window o begins at o * stride - before, for every o
    """

    def __init__(self, windows: Windows, divisors: Int64Array | None = None) -> None:
        self.size = windows.size
        self.count = windows.count
        self.window = windows.window
        self.stride = windows.stride
        self.before = windows.before
        self.dilation = windows.dilation
        self.extent = max(windows.extent, 1)
        self.uniform = windows.regular and windows.before < max(windows.size, 1)
        self.windows = windows
        self._divisors = divisors

    @property
    def idle(self) -> bool:
        """Whether every window is one element, in order."""
        w = self.windows
        single = w.regular and w.window == 1 and w.stride == 1 and w.before == 0 and self.extent == 1
        return single and w.count == w.size and self._divisors is None

    @cached_property
    def origins(self) -> Int64Array:
        """Where local position 0 of each window lies."""
        return self.windows.origin

    @cached_property
    def stops(self) -> Int64Array:
        """Where each window ends."""
        return self.windows.stop

    @cached_property
    def divisors(self) -> Int64Array:
        """What the sum of each window is divided by."""
        return self.windows.length if self._divisors is None else np.asarray(self._divisors, np.int64)

    @cached_property
    def cover(self) -> tuple[Int64Array, Int64Array]:
        """For every element the windows [first, last) that may contain it: all that do, with a dilation also others."""
        w, at = self.windows, np.arange(self.size)
        begin, end = w.start, w.stop
        if w.regular:
            begin = np.arange(w.count, dtype=np.int64) * w.stride - w.before
            end = begin + (w.window - 1) * w.dilation + 1
        return np.searchsorted(end, at, "right"), np.searchsorted(begin, at, "right")

    @property
    def most(self) -> int:
        """The largest number of windows that may contain an element."""
        first, last = self.cover
        return int((last - first).max(initial=0))


class Frame:
    """A pool as [outer, D, H, W, inner] on a device."""

    def __init__(self, pool: Pool, device: torch.device, joined: bool) -> None:
        divisors: tuple[Any, ...] = (None,) * len(pool.windows) if pool.divisors is None else pool.divisors
        axes = [Axis(w, divisor) for w, divisor in zip(pool.windows, divisors, strict=True)]
        outer, inner = pool.outer, pool.inner
        if joined:
            while axes and axes[0].idle:
                outer *= axes.pop(0).size
            while axes and axes[-1].idle:
                inner *= axes.pop().size
        if len(axes) > AXES:
            raise InvalidArgument(f"the GPU kernels pool at most {AXES} axes, got {pool}", argument="pool", given=pool)
        one = Axis(Windows(1, 1))
        self.axes = tuple([one] * (AXES - len(axes)) + axes)
        self.outer, self.inner, self.images = outer, inner, max(pool.batch, 1)
        self.device = device
        sizes, counts = (math.prod(getattr(a, name) for a in self.axes) for name in ("size", "count"))
        self.wide = outer * inner * max(sizes, counts) >= 2**31 - 2**20
        self.nothing = torch.zeros(1, dtype=torch.int32, device=device)
        self._tables: dict[str, list[torch.Tensor]] = {}

    @property
    def dilated(self) -> bool:
        return any(axis.dilation > 1 for axis in self.axes)

    @property
    def padded(self) -> bool:
        """Whether a window has local positions outside the array, before it or behind it. (Listed windows, of which the
        last one ends where the drawing says, are cut at their own ends in any case.)"""
        return any(
            axis.windows.count > 0
            and (
                axis.origins[0] < 0
                or (self.uniform and axis.origins[-1] + (axis.extent - 1) * axis.dilation >= axis.size)
            )
            for axis in self.axes
        )

    @property
    def uniform(self) -> bool:
        """Whether the windows follow from their numbers; otherwise they must be looked up in tables."""
        return all(axis.uniform for axis in self.axes)

    @property
    def elements(self) -> int:
        """How many local positions the windows have."""
        return math.prod(axis.extent for axis in self.axes)

    def tables(self, *names: str, used: bool = True) -> dict[str, torch.Tensor]:
        """Tables of every axis, on the device: "origins", "stops", "divisors", "from", "to". Something in their place
        if the kernel will not look at them."""
        return {
            f"{name}_{axis}": table
            for name in names
            for axis, table in zip("dhw", self._table(name) if used else [self.nothing] * AXES, strict=True)
        }

    def each(self, **columns: str) -> dict[str, int]:
        """One number per axis, such as sd, sh, sw from s="stride"."""
        return {
            letter + name: getattr(axis, column)
            for letter, column in columns.items()
            for name, axis in zip("dhw", self.axes, strict=True)
        }

    def _table(self, name: str) -> list[torch.Tensor]:
        if name not in self._tables:
            self._tables[name] = [self._on_device(_column(axis, name), name) for axis in self.axes]
        return self._tables[name]

    def _on_device(self, values: Int64Array, name: str) -> torch.Tensor:
        dtype = torch.int64 if self.wide or name == "divisors" else torch.int32
        return torch.tensor(values if values.size else [0], dtype=dtype).to(self.device)


def _column(axis: Axis, name: str) -> Int64Array:
    if name in ("from", "to"):
        return axis.cover[name == "to"]
    values: Int64Array = getattr(axis, name)
    return values


@lru_cache(maxsize=256)
def frame_of(pool: Pool, device: torch.device, joined: bool = True) -> Frame:
    """The frame of a pool, made once per device."""
    return Frame(pool, device, joined)
