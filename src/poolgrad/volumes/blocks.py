"""A pooling of one Zarr array into another, cut into blocks that can be computed alone, in any order, anywhere.

A block is made of whole pieces of the target (shards, or chunks where there are none), so no two blocks write to the
same piece. A piece that is there is finished, for stores replace whole pieces or nothing; pieces that hold only the
fill value are not stored, and a block with such pieces leaves a marker instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .. import parts
from ..backends.chunks import Job, Piece, compute_chunk
from ..errors import InvalidArgument
from ..windows import Windows
from . import arrays
from .arrays import ZarrArray

Block: TypeAlias = tuple[int, ...]
"""The number of a block along every axis."""

MARKERS = ".poolgrad"
LARGEST = 2**26
"""Bytes of input from which a block is large enough: then starting a task does not show."""


class Done(NamedTuple):
    """What a task reports: bytes it read (decoded), and how many pieces it wrote."""

    read: int
    written: int


@dataclass(frozen=True)
class Work:
    """All that a task needs to know; it travels with every task.

    windows   per axis, None for an axis that is not pooled
    job       what is computed; None copies
    shape     of a block of the target
    """

    source: ZarrArray
    target: ZarrArray
    windows: tuple[Windows | None, ...]
    job: Job | None
    shape: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """How many blocks there are along every axis."""
        return tuple(-(-n // size) for n, size in zip(self.target.shape, self.shape, strict=True))

    def __len__(self) -> int:
        return math.prod(self.grid)

    def blocks(self) -> Iterator[Block]:
        """All blocks, neighbours in memory one after the other."""
        return itertools.product(*map(range, self.grid))

    def place(self, block: Block) -> tuple[slice, ...]:
        """The part of the target that a block is."""
        return tuple(
            slice(i * size, min((i + 1) * size, n))
            for i, size, n in zip(block, self.shape, self.target.shape, strict=True)
        )

    def cells(self, block: Block) -> list[tuple[int, ...]]:
        """The numbers of the pieces of the target that a block is made of."""
        unit = arrays.unit(self.target)
        ranges = [range(s.start // u, -(-s.stop // u)) for s, u in zip(self.place(block), unit, strict=True)]
        return list(itertools.product(*ranges))

    def keys(self, block: Block) -> list[str]:
        """Where these pieces are stored."""
        return arrays.keys_of(self.target, self.cells(block))

    def marker(self, block: Block) -> str:
        """What is stored when a block is finished though some of its pieces are not stored."""
        prefix = f"{self.target.path}/" if self.target.path else ""
        return f"{prefix}{MARKERS}/{'x'.join(map(str, self.shape))}/{'.'.join(map(str, block))}"

    def finished(self) -> Callable[[Block], bool]:
        """What tells whether an earlier run has finished a block."""
        there = arrays.all_keys(self.target)
        return lambda block: self.marker(block) in there or there.issuperset(self.keys(block))


def compute_block(work: Work, block: Block) -> Done:
    """Computes a block and writes those of its pieces that are not there yet."""
    arrays.expect_within_reach(work.source)
    arrays.expect_within_reach(work.target)
    place, keys = work.place(block), work.keys(block)
    there = arrays.present(work.target, [*keys, work.marker(block)])
    if there[-1] or all(there[:-1]):
        return Done(0, 0)
    pieces = _pieces(work, place)
    data = work.source[tuple(slice(*piece.inputs) for piece in pieces)]
    result = data if work.job is None else compute_chunk(work.job, pieces, data)
    missing = [cell for cell, found in zip(work.cells(block), there, strict=False) if not found]
    if len(missing) == len(keys):
        work.target[place] = result
    else:
        for cell in missing:
            _write_piece(work, place, cell, result)
    stored = arrays.present(work.target, keys)
    if not all(stored):
        arrays.put(work.target, work.marker(block), b"\n")
    return Done(data.nbytes, sum(stored) - sum(there))


def _write_piece(work: Work, place: tuple[slice, ...], cell: tuple[int, ...], result: np.ndarray[Any, Any]) -> None:
    here = [
        (max(s.start, c * u), min(s.stop, (c + 1) * u))
        for s, c, u in zip(place, cell, arrays.unit(work.target), strict=True)
    ]
    inside = tuple(slice(a - s.start, b - s.start) for (a, b), s in zip(here, place, strict=True))
    work.target[tuple(slice(a, b) for a, b in here)] = result[inside]


def _pieces(work: Work, place: tuple[slice, ...]) -> tuple[Piece, ...]:
    found = []
    for s, w in zip(place, work.windows, strict=True):
        part = None if w is None else parts.of_outputs(w, s.start, s.stop)
        length = s.stop - s.start if part is None else part.size
        found.append(Piece(s.start, s.stop, part, None, ((slice(0, length),),)))
    return tuple(found)


def expect_room(
    source: ZarrArray, target_shape: tuple[int, ...], unit: tuple[int, ...], windows: tuple[Windows | None, ...],
    most_bytes: int,
) -> list[int]:  # fmt: skip
    """The smallest block, one piece of the target; refused if a task has not the memory for its input."""
    shape = [min(u, -(-n // u) * u) for u, n in zip(unit, target_shape, strict=True)]
    size = _input_bytes(source, shape, windows)
    if size > most_bytes:
        needed, allowed = _mebibytes(size), _mebibytes(most_bytes)
        problem = f"a piece {unit} of the target needs {needed} of input, but memory allows a task only {allowed}"
        raise InvalidArgument(f"{problem}; give more memory, fewer threads or smaller chunks", argument="memory")
    return shape


def _input_bytes(source: ZarrArray, shape: list[int], windows: tuple[Windows | None, ...]) -> int:
    """How much of the source the largest block of this shape reads."""
    return int(np.dtype(source.dtype).itemsize) * math.prod(
        min(n, size) if w is None else _reach(w, min(size, w.count))
        for n, size, w in zip(source.shape, shape, windows, strict=True)
    )


def block_shape(
    source: ZarrArray, target_shape: tuple[int, ...], unit: tuple[int, ...], windows: tuple[Windows | None, ...],
    most_bytes: int, least_blocks: int,
) -> tuple[int, ...]:  # fmt: skip
    """Blocks as large as `most_bytes` of input allow and as is worth it: they cover the chunks that they read, but are
    not so large that there are fewer than `least_blocks`."""
    strides = [1 if w is None else w.stride for w in windows]

    def input_bytes(shape: list[int]) -> int:
        return _input_bytes(source, shape, windows)

    shape = expect_room(source, target_shape, unit, windows, most_bytes)
    wanted = [
        min(-(-max(u, c // s) // u) * u, -(-n // u) * u)
        for u, c, s, n in zip(unit, source.chunks, strides, target_shape, strict=True)
    ]
    if input_bytes(wanted) <= most_bytes:
        shape = wanted
    while True:
        open_axes = [a for a, (size, n) in enumerate(zip(shape, target_shape, strict=True)) if size < n]
        open_axes.sort(key=lambda a: (shape[a] * strides[a], -a))
        for axis in open_axes:
            larger = [size * 2 if a == axis else size for a, size in enumerate(shape)]
            blocks = math.prod(-(-n // size) for n, size in zip(target_shape, larger, strict=True))
            if input_bytes(larger) <= min(most_bytes, LARGEST) and blocks >= least_blocks:
                shape = larger
                break
        else:
            return tuple(shape)


def _reach(w: Windows, count: int) -> int:
    return min(w.size, (count - 1) * w.stride + (w.window - 1) * w.dilation + 1) if count else 0


def _mebibytes(n: int) -> str:
    return f"{n / 2**20:.1f} MiB"
