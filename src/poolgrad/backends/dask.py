"""Dask arrays: lazy, chunked, larger than memory, on more than one machine. Promises:

- a result has the bits of the in-memory result, whatever the chunks
- one task per chunk of the result (and one per output to take it apart, where there are several); it reads the slices
  it needs of the chunks that have them: nothing is rechunked, nothing is shuffled
- planning reads no data; what only the data can tell is checked in the tasks

A task runs the NumPy backend on a part of the pooling (see `parts`). Results shaped like the input of the pooling are
chunked like it, results shaped like its output have every window in the chunk it lies over.
"""

from __future__ import annotations

import gc
import itertools
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask import config
from dask._task_spec import Task, TaskRef
from dask.array.core import normalize_chunks
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes

from .. import parts
from ..checks import Int64Array
from ..errors import InvalidArgument, InvalidType
from ..parts import Part
from ..policy import Policy
from ..windows import Pool
from .chunks import Job, Kernel, Piece, compute_chunk, unpool_chunk
from .numpy import Array, Numpy

DaskArray: TypeAlias = Any
"""A `dask.array.Array`, whose methods have no types."""

Chunks: TypeAlias = tuple[tuple[int, ...], ...]

_numpy = Numpy()


class Dask:
    """The maps and their fusions on Dask arrays."""

    name = "dask"

    # -- arrays -------------------------------------------------------------------------------------------------------

    def asarray(self, value: Any, dtype_hint: Any = None) -> DaskArray:
        """The value as a Dask array of numbers in native byte order."""
        if not isinstance(value, da.Array):
            return da.from_array(_numpy.asarray(value, dtype_hint))
        if any(math.isnan(n) for axis in value.chunks for n in axis):
            raise InvalidArgument("its chunks have unknown sizes; x.compute_chunk_sizes() finds them")
        if type(value._meta) is not np.ndarray:
            raise InvalidType(f"expected chunks that are NumPy arrays, got {type(value._meta).__name__}")
        native = _numpy.asarray(value._meta).dtype
        return value if value.dtype == native else value.astype(native)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> DaskArray:
        """A new array with undefined contents."""
        return da.empty(shape, dtype=dtype)

    def run(self, name: str, plan: Any, rule: Policy, arrays: Sequence[DaskArray]) -> Any:
        """The result of a planned call: a task runs the whole kernel on its part, checks included."""
        if plan.pool is None:  # drawn now, once for all chunks
            return plan.kernel(self, None, rule, *arrays)
        known = {str(a.dtype): a.dtype for a in arrays}
        dtypes = tuple(known.get(output.dtype) or np.dtype(output.dtype) for output in plan.outputs)
        results = _lazily(plan.pool, plan.reads, plan.writes, plan.kernel, rule, arrays, dtypes, name)
        return results if len(results) > 1 else results[0]

    def stored(self, result: DaskArray, dtype: Any, out: None) -> DaskArray:
        """The result in another dtype."""
        _refuse_out(out)
        return result.astype(dtype)

    # -- choose, take, put --------------------------------------------------------------------------------------------

    def maximum(self, pool: Pool, x: DaskArray, nan: str, out: None = None) -> DaskArray:
        """take(x, choose(x)) without storing the choice."""
        return _one(pool, "i", "o", partial(_call, "maximum", nan=nan), [x], x.dtype, out)

    def choose(self, pool: Pool, x: DaskArray, nan: str, out: None = None) -> DaskArray:
        """Which element of each window wins."""
        return _one(pool, "i", "o", partial(_call, "choose", nan=nan), [x], pool.choice_dtype, out)

    def maximum_and_choice(
        self, pool: Pool, x: DaskArray, nan: str, out: None = None, choice_out: None = None
    ) -> tuple[DaskArray, DaskArray]:
        """Both in one pass."""
        _refuse_out(out, choice_out)
        kernel = partial(_call, "maximum_and_choice", nan=nan)
        y, choice = _lazily(pool, "i", "o", kernel, Policy(), [x], (x.dtype, pool.choice_dtype))
        return y, choice

    def take(self, pool: Pool, v: DaskArray, choice: DaskArray, out: None = None) -> DaskArray:
        """The chosen element of each window."""
        return _one(pool, "io", "o", _checked_take, [v, choice], v.dtype, out)

    def put(self, pool: Pool, g: DaskArray, choice: DaskArray, out: None = None, assign: bool = False) -> DaskArray:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        return _one(pool, "oo", "i", partial(_checked_put, assign=assign), [g, choice], g.dtype, out)

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: DaskArray, out: None = None) -> DaskArray:
        """The average over the real elements of each window."""
        return _one(pool, "i", "o", partial(_call, "mean"), [x], x.dtype, out)

    def spread(self, pool: Pool, g: DaskArray, out: None = None) -> DaskArray:
        """The transpose of mean."""
        return _one(pool, "o", "i", partial(_call, "spread"), [g], g.dtype, out)

    # -- fusions ------------------------------------------------------------------------------------------------------

    def max_put(
        self, pool: Pool, x: DaskArray, g: DaskArray, ties: str, nan: str, equal_to: DaskArray | None = None,
        out: None = None,
    ) -> DaskArray:  # fmt: skip
        """put(g, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives nothing."""
        arrays = [x, g] if equal_to is None else [x, g, equal_to]
        return _one(pool, "ioo"[: len(arrays)], "i", partial(_fused, "max_put", ties, nan), arrays, g.dtype, out)

    def max_take(
        self, pool: Pool, x: DaskArray, v: DaskArray, ties: str, nan: str, equal_to: DaskArray | None = None,
        out: None = None,
    ) -> DaskArray:  # fmt: skip
        """take(v, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives zero."""
        arrays = [x, v] if equal_to is None else [x, v, equal_to]
        return _one(pool, "iio"[: len(arrays)], "o", partial(_fused, "max_take", ties, nan), arrays, v.dtype, out)

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: DaskArray, dtype: Any, scope: str) -> DaskArray:
        """The flat index of every chosen element."""
        kernel = partial(_call, "choice_to_index", dtype=np.dtype(dtype), scope=scope)
        return _one(pool, "o", "o", kernel, [choice], np.dtype(dtype), None)

    def index_put(self, pool: Pool, g: DaskArray, index: DaskArray, scope: str, out: None = None) -> DaskArray:
        """Adds g where the indices say. An index must lie in its window."""
        return _one(pool, "oo", "i", partial(_call, "index_put", scope=scope), [g, index], g.dtype, out)

    def index_take(self, pool: Pool, v: DaskArray, index: DaskArray, scope: str, out: None = None) -> DaskArray:
        """The elements of v that the indices name. An index must lie in its window."""
        return _one(pool, "io", "o", partial(_call, "index_take", scope=scope), [v, index], v.dtype, out)

    def unpool(
        self, y: DaskArray, indices: DaskArray, shape: tuple[int, ...], axes: range, out: None = None
    ) -> DaskArray:
        """y where the indices say, zero elsewhere. They may lead anywhere, so a chunk looks at all of its images."""
        _refuse_out(out)
        y, indices = self.asarray(y), self.asarray(indices)
        chunks = _bounded(tuple((n,) if a in axes else y.chunks[a] for a, n in enumerate(shape)), shape, y.dtype)
        name = f"poolgrad-unpool-{tokenize(y.name, indices.name, shape, axes, chunks)}"
        sides = [_unpooling_side(axis in axes, _cuts(sizes), y, indices, axis) for axis, sizes in enumerate(chunks)]
        tasks = _tasks(name, partial(unpool_chunk, (y.dtype, shape, axes)), "oo", sides, [y, indices])
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=[y, indices])
        return _array(graph, name, chunks, y.dtype, shape)

    def index_fault(self, pool: Pool, index: DaskArray, scope: str) -> None:
        """Nothing is known before the data is: the tasks look."""

    def choice_fault(self, pool: Pool, choice: DaskArray) -> None:
        """Nothing is known before the data is: the tasks look."""


# ---------------------------------------------------------------------------------------------------------------------
# Kernels of the tasks: what a chunk computes


def _call(method: str, on: Any, pool: Pool, rule: Policy, *arrays: Array, **options: Any) -> Any:
    return getattr(on, method)(pool, *arrays, **options)


def _fused(
    method: str, ties: str, nan: str, on: Any, pool: Pool, rule: Policy, x: Array, v: Array, y: Array | None = None
) -> Any:
    return getattr(on, method)(pool, x, v, ties, nan, equal_to=y)


def _checked_take(on: Any, pool: Pool, rule: Policy, v: Array, choice: Array) -> Any:
    on.expect_codes(pool, choice)
    return on.take(pool, v, choice)


def _checked_put(on: Any, pool: Pool, rule: Policy, g: Array, choice: Array, assign: bool) -> Any:
    on.expect_codes(pool, choice)
    return on.put(pool, g, choice, assign=assign)


# ---------------------------------------------------------------------------------------------------------------------
# Graphs: which chunk needs what


class Side(NamedTuple):
    """All pieces of one axis, and for each the chunks that its arrays come from."""

    pieces: list[Piece]
    blocks: list[tuple[range, ...]]


def _lazily(
    pool: Pool,
    reads: str,
    writes: str,
    kernel: Kernel,
    rule: Policy,
    arrays: Sequence[DaskArray],
    dtypes: tuple[np.dtype[Any], ...],
    name: str = "",
) -> tuple[DaskArray, ...]:
    """The results of `kernel(backend, pool, rule, *arrays)`, computed chunk by chunk when they are wanted."""
    arrays = [_dask.asarray(a) for a in arrays]
    shape = pool.shape if writes == "i" else pool.out_shape
    chunks = _chunks(pool, reads, writes, arrays, dtypes[0])
    batched = pool.axis > 0 and pool.batch == pool.shape[0]
    sums = parts.sums_of(pool)
    job = Job(kernel, rule, reads, writes, dtypes, pool.shape, pool.axis, batched, sums, name)
    key = f"poolgrad-{name or _label(kernel)}-{tokenize(job, pool, chunks, [a.name for a in arrays])}"
    clip = reads == "o" and writes == "i" and _clipping_pays(pool, chunks)
    sides = [_side(pool, axis, _cuts(sizes), job, arrays, clip) for axis, sizes in enumerate(chunks)]
    read = [a for a, letter in zip(arrays, reads, strict=True) if letter.islower()]
    compute = partial(compute_chunk, job)
    base = key if len(dtypes) == 1 else f"{key}-all"
    graph = HighLevelGraph.from_collections(base, _tasks(base, compute, reads, sides, arrays), dependencies=read)
    if len(dtypes) == 1:
        return (_array(graph, key, chunks, dtypes[0], shape),)
    return tuple(_output(graph, key, i, chunks, dtype, shape) for i, dtype in enumerate(dtypes))


def _tasks(name: str, compute: Kernel, reads: str, sides: list[Side], arrays: Sequence[DaskArray]) -> dict[Any, Task]:
    """A task per chunk: `compute(pieces, *blocks)`."""
    with _without_collection():
        return dict(_each_task(name, compute, reads, sides, arrays))


def _each_task(
    name: str, compute: Kernel, reads: str, sides: list[Side], arrays: Sequence[DaskArray]
) -> Iterator[tuple[Any, Task]]:
    read = [(i, a.name) for i, (a, letter) in enumerate(zip(arrays, reads, strict=True)) if letter.islower()]
    numbered = [list(zip(itertools.count(), side.pieces, side.blocks)) for side in sides]
    for chosen in itertools.product(*numbered):
        at, pieces, blocks = zip(*chosen, strict=True)
        references = [
            TaskRef((source, *block))
            for i, source in read
            for block in itertools.product(*(axis[i] for axis in blocks))
        ]
        key = (name, *at)
        yield key, Task(key, compute, pieces, *references)


@contextmanager
def _without_collection() -> Iterator[None]:
    """A graph is millions of small objects that all stay: looking for garbage among them takes most of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _output(base: HighLevelGraph, name: str, i: int, chunks: Chunks, dtype: Any, shape: tuple[int, ...]) -> DaskArray:
    """One of several results of the same tasks."""
    mine, source = f"{name}-{i}", f"{name}-all"
    tasks = {
        (mine, *at): Task((mine, *at), operator.getitem, TaskRef((source, *at)), i)
        for at in itertools.product(*(range(len(axis)) for axis in chunks))
    }
    graph = HighLevelGraph({**base.layers, mine: tasks}, {**base.dependencies, mine: {source}})
    return _array(graph, mine, chunks, dtype, shape)


def _array(graph: HighLevelGraph, name: str, chunks: Chunks, dtype: Any, shape: tuple[int, ...]) -> DaskArray:
    return da.Array(graph, name, chunks, meta=np.empty((0,) * len(shape), dtype), shape=shape)


def _one(
    pool: Pool, reads: str, writes: str, kernel: Kernel, arrays: Sequence[DaskArray], dtype: Any, out: Any
) -> DaskArray:
    _refuse_out(out)
    (result,) = _lazily(pool, reads, writes, kernel, Policy(), arrays, (np.dtype(dtype),))
    return result


def _refuse_out(*outs: Any) -> None:
    if any(out is not None for out in outs):
        problem = "out cannot be given with Dask arrays; dask.array.store writes a result where you want it"
        raise InvalidArgument(problem, argument="out")


def _label(kernel: Kernel) -> str:
    name = kernel.args[0] if isinstance(kernel, partial) and kernel.args else None
    return name if isinstance(name, str) else getattr(kernel, "__name__", "map").strip("_")


# ---------------------------------------------------------------------------------------------------------------------
# Chunks: how results are cut, and which slices a chunk needs


def _chunks(pool: Pool, reads: str, writes: str, arrays: Sequence[DaskArray], dtype: Any) -> Chunks:
    """The chunks of the result: those of the array that it is shaped like, or what they become in the pooling."""
    letters = reads.lower()
    leader = arrays[max(letters.find("i"), 0)]
    if ("i" if "i" in letters else "o") == writes:
        return tuple(leader.chunks)
    chunks = list(leader.chunks)
    convert = parts.output_cuts if writes == "o" else parts.input_cuts
    for axis, w in enumerate(pool.windows, pool.axis):
        cuts = convert(w, _cuts(chunks[axis]))
        chunks[axis] = tuple(after - before for before, after in itertools.pairwise(cuts))
    return tuple(chunks) if writes == "o" else _bounded(tuple(chunks), pool.shape, np.dtype(dtype))


def _bounded(chunks: Chunks, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Chunks:
    """Windows longer than a chunk should be would make chunks of their length: these are cut."""
    largest = math.prod(max(axis, default=0) for axis in chunks) * dtype.itemsize
    if largest <= 2 * parse_bytes(config.get("array.chunk-size")):
        return chunks
    found: Chunks = normalize_chunks("auto", shape, dtype=dtype, previous_chunks=chunks)
    return found


def _cuts(chunks: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(chunks, initial=0))


def _clipping_pays(pool: Pool, chunks: Chunks) -> bool:
    """Whether windows reach so far beyond a chunk that spreading them over all they cover would be a waste."""
    if any(w.dilation > 1 for w in pool.windows):
        return False
    sizes = [max(axis, default=0) for axis in chunks[pool.axis : pool.axis + len(pool.windows)]]
    reached = [min(n + 2 * w.extent, w.size) for n, w in zip(sizes, pool.windows, strict=True)]
    return math.prod(reached) > 2 * math.prod(sizes)


def _side(pool: Pool, axis: int, cuts: list[int], job: Job, arrays: Sequence[DaskArray], clip: bool) -> Side:
    spatial = axis - pool.axis if pool.axis <= axis < pool.axis + len(pool.windows) else None
    held = [_cuts(a.chunks[axis]) for a in arrays]
    side = Side([], [])
    for low, high in itertools.pairwise(cuts):
        part, divisors = (None, None) if spatial is None else _part(pool, spatial, low, high, job.writes, clip)
        wanted = [_wanted(part, letter, low, high) for letter in job.reads.lower()]
        found = [_sources(cut, *needed) for cut, needed in zip(held, wanted, strict=True)]
        side.pieces.append(Piece(low, high, part, divisors, tuple(slices for _, slices in found)))
        side.blocks.append(tuple(numbers for numbers, _ in found))
    return side


def _part(pool: Pool, spatial: int, low: int, high: int, writes: str, clip: bool) -> tuple[Part, Int64Array | None]:
    w = pool.windows[spatial]
    if clip:
        part = parts.clipped(w, low, high)
        divisors = parts.lengths(w, part.first, part.last)
    else:
        part = parts.of_outputs(w, low, high) if writes == "o" else parts.of_inputs(w, low, high)
        divisors = None
    if pool.divisors is not None:
        divisors = pool.divisors[spatial][part.first : part.last]
    return part, divisors


def _unpooling_side(spatial: bool, cuts: list[int], y: DaskArray, indices: DaskArray, axis: int) -> Side:
    held = [_cuts(a.chunks[axis]) for a in (y, indices)]
    side = Side([], [])
    for low, high in itertools.pairwise(cuts):
        needed = (0, y.shape[axis]) if spatial else (low, high)
        found = [_sources(cut, *needed) for cut in held]
        side.pieces.append(Piece(low, high, None, None, tuple(slices for _, slices in found)))
        side.blocks.append(tuple(numbers for numbers, _ in found))
    return side


def _wanted(part: Part | None, letter: str, low: int, high: int) -> tuple[int, int]:
    if part is None:
        return low, high
    return (part.low, part.high) if letter == "i" else (part.first, part.last)


def _sources(cuts: list[int], low: int, high: int) -> tuple[range, tuple[slice, ...]]:
    """The chunks that hold [low, high), and which slice of each is meant."""
    if low >= high:
        return range(0), ()
    first, last = bisect_right(cuts, low) - 1, bisect_left(cuts, high)
    slices = (slice(max(low - cuts[i], 0), min(high, cuts[i + 1]) - cuts[i]) for i in range(first, last))
    return range(first, last), tuple(slices)


_dask = Dask()
