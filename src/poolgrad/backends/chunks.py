"""What a task computes: one chunk of a result, from the slices of its arrays that it needs.

A kernel sees a part of the pooling and the NumPy backend, and need not know that it is a part: choice codes are those
of the whole, and `Chunk` translates flat indices, which count through the whole array. Nothing here imports Dask.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from .. import parts
from ..checks import Int64Array
from ..errors import InvalidArgument, within
from ..parts import Part, Sums
from ..policy import Policy
from ..windows import Pool, Windows
from .numpy import Array, Numpy, empty

Kernel: TypeAlias = Callable[..., Any]


class Job(NamedTuple):
    """What all tasks of a call have in common. It travels with every task, so it is small.

    reads, writes  a letter per array: "i" for one shaped like the input of the pooling, "o" like its output; a capital
                   where only the shape matters
    dtypes         of the results
    shape          of the input of the whole pooling
    axis           where its spatial axes begin
    batched        whether the first axis is the batch
    sums           how the whole adds up, see `parts.sums_of`
    """

    kernel: Kernel
    rule: Policy
    reads: str
    writes: str
    dtypes: tuple[np.dtype[Any], ...]
    shape: tuple[int, ...]
    axis: int
    batched: bool
    sums: Sums
    operator: str


class Piece(NamedTuple):
    """One axis of one task.

    low, high   the chunk of the result
    part        the part of the pooling, on a spatial axis
    divisors    what its windows divide by, where that is not their own length
    sources     per array, the slices of the chunks that the task is given, end to end
    """

    low: int
    high: int
    part: Part | None
    divisors: Int64Array | None
    sources: tuple[tuple[slice, ...], ...]

    @property
    def inputs(self) -> tuple[int, int]:
        """Which slice of the pooling's input the task works on."""
        return (self.low, self.high) if self.part is None else (self.part.low, self.part.high)

    @property
    def outputs(self) -> tuple[int, int]:
        """Which slice of the pooling's output the task works on."""
        return (self.low, self.high) if self.part is None else (self.part.first, self.part.last)


def compute_chunk(job: Job, pieces: tuple[Piece, ...], *blocks: Array) -> Any:
    """One chunk of the result; a tuple of chunks where there are several results."""
    shape = tuple(piece.high - piece.low for piece in pieces)
    if 0 in shape or any(0 in (piece.part.size, piece.part.windows.count) for piece in pieces if piece.part):
        found = tuple(np.zeros(shape, dtype) for dtype in job.dtypes)  # no window, no gradient
    else:
        remaining = iter(blocks)
        arrays = [
            assembled([piece.sources[i] for piece in pieces], remaining) if letter.islower() else None
            for i, letter in enumerate(job.reads)
        ]
        with within(job.operator):
            results = job.kernel(Chunk(job, pieces), _part_of_pool(job, pieces), job.rule, *arrays)
        found = results if isinstance(results, tuple) else (results,)
        if job.writes == "i":
            found = tuple(_kept(pieces, result) for result in found)
    return found if len(job.dtypes) > 1 else found[0]


def unpool_chunk(
    whole: tuple[np.dtype[Any], tuple[int, ...], range], pieces: tuple[Piece, ...], *blocks: Array
) -> Array:
    """One chunk of an array of this dtype and shape that is y where the indices say, and zero elsewhere."""
    dtype, shape, axes = whole
    result: Array = np.zeros([piece.high - piece.low for piece in pieces], dtype)
    if result.size == 0 or not blocks:
        return result
    remaining = iter(blocks)
    y, rest = (assembled([piece.sources[i] for piece in pieces], remaining) for i in range(2))
    rest = rest.astype(np.int64)
    places = math.prod(shape[axes.start : axes.stop])
    if rest.min() < 0 or rest.max() >= places:
        worst = int(rest.min() if rest.min() < 0 else rest.max())
        problem = f"indices has an entry {worst}, expected 0 to {places - 1}"
        raise InvalidArgument(problem, operator="max_unpool", argument="indices", given=worst)
    here = np.ones(y.shape, bool)
    at: list[Array] = list(np.indices(y.shape, sparse=True))
    for axis in reversed(axes):
        rest, position = np.divmod(rest, shape[axis])
        at[axis] = position - pieces[axis].low
        here &= (position >= pieces[axis].low) & (position < pieces[axis].high)
    result[tuple(np.broadcast_to(i, y.shape)[here] for i in at)] = y[here]  # in order: the last of equal indices stands
    return result


def assembled(sources: list[tuple[slice, ...]], blocks: Iterator[Array]) -> Array:
    """The array that the slices of the blocks make when they are laid side by side. One slice alone is not copied."""
    if all(len(axis) == 1 for axis in sources):
        return next(blocks)[tuple(axis[0] for axis in sources)]
    lengths = [[piece.stop - piece.start for piece in axis] for axis in sources]
    whole: Array | None = None
    places = [[slice(end - n, end) for n, end in zip(ns, itertools.accumulate(ns), strict=True)] for ns in lengths]
    for taken, place in zip(itertools.product(*sources), itertools.product(*places), strict=True):
        block = next(blocks)
        if whole is None:
            whole = empty(tuple(map(sum, lengths)), block.dtype)
        whole[place] = block[taken]
    assert whole is not None
    return whole


def _part_of_pool(job: Job, pieces: tuple[Piece, ...]) -> Pool:
    shape = tuple(high - low for low, high in (piece.inputs for piece in pieces))
    spatial = [piece for piece in pieces if piece.part is not None]
    windows = tuple(piece.part.windows for piece in spatial if piece.part is not None)
    divided = spatial[0].divisors is not None
    divisors = tuple(tuple(piece.divisors.tolist()) for piece in spatial if piece.divisors is not None)
    return _pool(shape, job.axis, windows, shape[0] if job.batched else 1, divisors if divided else None)


@lru_cache(maxsize=256)
def _pool(
    shape: tuple[int, ...],
    axis: int,
    windows: tuple[Windows, ...],
    batch: int,
    divisors: tuple[tuple[int, ...], ...] | None,
) -> Pool:
    """Most chunks have the same geometry: they share a pool, and what the kernels keep for it."""
    return Pool(shape, axis, windows, batch, divisors)


def _kept(pieces: tuple[Piece, ...], result: Array) -> Array:
    """Of a gradient, the chunk that was asked for. Elements outside of all windows get nothing."""
    inside = [(max(piece.low, low), min(piece.high, high)) for piece in pieces for low, high in [piece.inputs]]
    kept = result[
        tuple(slice(a - piece.inputs[0], b - piece.inputs[0]) for piece, (a, b) in zip(pieces, inside, strict=True))
    ]
    shape = tuple(piece.high - piece.low for piece in pieces)
    if kept.shape == shape:
        return kept if result.size <= 1.25 * kept.size else kept.copy()  # a view would hold on to all of it
    whole = np.zeros(shape, result.dtype)
    whole[tuple(slice(a - piece.low, b - piece.low) for piece, (a, b) in zip(pieces, inside, strict=True))] = kept
    return whole


class Chunk(Numpy):
    """The NumPy backend for a kernel that works on a part of a pooling but must answer for the whole."""

    def __init__(self, job: Job, pieces: tuple[Piece, ...]) -> None:
        self._job = job
        self._pieces = pieces

    # -- sums: the whole decides in which order and how wide the kernels add up --------------------------------------

    def mean(self, pool: Pool, x: Array, out: Array | None = None) -> Array:
        """The average over the real elements of each window."""
        like = parts.adding_like(pool, self._job.sums)
        if like is not None:
            return super().mean(like, x.reshape(like.shape)).reshape(pool.out_shape)
        counts = [w.count for w in pool.windows]
        longest = counts.index(max(counts))
        halves = (0, counts[longest] // 2), (counts[longest] // 2, counts[longest])
        return np.concatenate([self._mean_of(pool, x, longest, *half) for half in halves], axis=pool.axis + longest)

    def _mean_of(self, pool: Pool, x: Array, axis: int, first: int, last: int) -> Array:
        """The averages of a range of windows."""
        part = parts.of_outputs(pool.windows[axis], first, last)
        at = pool.axis + axis
        windows = (*pool.windows[:axis], part.windows, *pool.windows[axis + 1 :])
        divisors = None if pool.divisors is None else [
            d[first:last] if i == axis else d for i, d in enumerate(pool.divisors)
        ]  # fmt: skip
        shape = (*pool.shape[:at], part.size, *pool.shape[at + 1 :])
        return self.mean(
            Pool(shape, pool.axis, windows, pool.batch, divisors),
            x[(slice(None),) * at + (slice(part.low, part.high),)],
        )

    def spread(self, pool: Pool, g: Array, out: Array | None = None) -> Array:
        """The transpose of mean."""
        like = parts.adding_like(pool, self._job.sums, transposed=True)
        assert like is not None
        return super().spread(like, g.reshape(like.out_shape)).reshape(pool.shape)

    # -- flat indices: those of callers count through the whole array -------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Array, dtype: Any, scope: str) -> Array:
        """The flat index of every chosen element."""
        local = super().choice_to_index(pool, choice, np.dtype(np.int64), "spatial")
        steps = self._steps(scope)
        index = np.zeros(choice.shape, np.int64)
        for axis in reversed(range(pool.axis, pool.axis + len(pool.windows))):
            local, at = np.divmod(local, pool.shape[axis])
            index += (at + self._pieces[axis].inputs[0]) * steps[axis]
        for axis, step in enumerate(steps):
            if step and not pool.axis <= axis < pool.axis + len(pool.windows):
                index += _along(axis, len(steps), np.arange(*self._pieces[axis].outputs)) * step
        return index.astype(dtype)

    def index_put(self, pool: Pool, g: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """Adds g where the indices say. An index must lie in its window."""
        return self.put(pool, g, self._codes(pool, index, scope))

    def index_take(self, pool: Pool, v: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """The elements of v that the indices name. An index must lie in its window."""
        return self.take(pool, v, self._codes(pool, index, scope))

    def index_fault(self, pool: Pool, index: Array, scope: str) -> None:
        """Nothing: `index_put` and `index_take` look where an index leads."""

    def _codes(self, pool: Pool, index: Array, scope: str) -> Array:
        """The choice codes of flat indices."""
        steps = self._steps(scope)
        rest = index.astype(np.int64)
        good = (rest >= 0) & (rest < math.prod(n for n, step in zip(self._job.shape, steps, strict=True) if step))
        code, step_of_code = np.zeros(index.shape, np.uint64), 1
        for axis in reversed(range(len(steps))):
            if not steps[axis]:
                continue
            rest, at = np.divmod(rest, self._job.shape[axis])
            if not pool.axis <= axis < pool.axis + len(pool.windows):
                good &= at == _along(axis, len(steps), np.arange(*self._pieces[axis].outputs))
                continue
            w = pool.windows[axis - pool.axis]
            start, stop, origin = (_along(axis, len(steps), edge) for edge in (w.start, w.stop, w.origin))
            at -= self._pieces[axis].inputs[0]
            local, off = np.divmod(at - origin, w.dilation)
            good &= (at >= start) & (at < stop) & (off == 0)
            code += (np.where(good, local, 0) * step_of_code).astype(np.uint64)
            step_of_code *= max(w.extent, 1)
        if not good.all():
            self._refuse_index(index, np.argwhere(~good)[0])
        return code.astype(pool.choice_dtype)

    def _refuse_index(self, index: Array, at: Int64Array) -> NoReturn:
        position = tuple(int(i) + piece.outputs[0] for i, piece in zip(at, self._pieces, strict=True))
        value = int(index[tuple(at)])
        problem = f"argmax at {position} is {value}, outside its window in an input of shape {self._job.shape}"
        raise InvalidArgument(
            f"{problem}; with Dask arrays it must lie inside", argument="argmax", given=value, expected="in the window"
        )

    def _steps(self, scope: str) -> list[int]:
        """What one step on an axis adds to a flat index; 0 for the axes that are not counted."""
        spatial = range(self._job.axis, self._job.axis + sum(piece.part is not None for piece in self._pieces))
        first = {"spatial": spatial.start, "image": 1 if self._job.batched else 0, "batch": 0}[scope]
        last = spatial.stop if scope == "spatial" else len(self._job.shape)
        steps, step = [0] * len(self._job.shape), 1
        for axis in reversed(range(first, last)):
            steps[axis] = step
            step *= self._job.shape[axis]
        return steps

    # -- codes from outside -------------------------------------------------------------------------------------------

    def expect_codes(self, pool: Pool, choice: Array) -> None:
        """Refuses a code that names no element of its window."""
        fault = self.choice_fault(pool, choice)
        if fault is not None:
            position = tuple(i + piece.outputs[0] for i, piece in zip(fault[0], self._pieces, strict=True))
            problem = f"choice at {position} is {fault[1]}, outside its window"
            raise InvalidArgument(problem, argument="choice", given=fault[1])


def _along(axis: int, rank: int, values: Int64Array) -> Int64Array:
    """The values shaped to vary along one axis."""
    return values.reshape([-1 if a == axis else 1 for a in range(rank)])
