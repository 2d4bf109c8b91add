"""Maxima over listed windows (fractional, adaptive) of arrays with their channels first, in CUDA C++.

Results are those of the Triton kernels, to the bit. These are quicker because they gather in shared memory. PyTorch
compiles `listed.cu` when a kernel is first used, which takes a moment; where it cannot, or where windows are of
another kind, there is nothing here and Triton's kernels serve.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from importlib import resources
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from ..checks import Int64Array
from ..windows import Pool
from .frame import Axis, Frame, frame_of

THREADS: Final = 256
"""How many threads a block has."""
MOST_ACROSS: Final = 128
"""How many neighbours a block can see."""
LONGEST: Final = 7
"""Longer windows have more elements than threads should look at one after the other."""
LARGEST: Final = 2**25
"""In a tile of images of so many elements, positions are 32-bit numbers."""
LONGEST_AXIS: Final = 2**14
"""On axes of so many elements, positions are 16-bit numbers."""
MOST_BLOCKS: Final = 2**31 - 1
"""How many blocks can be started at once."""
MOST_ELEMENTS: Final = 64
"""Windows of up to so many elements are written out."""
MOST_EACH: Final = 4
"""How many windows a thread can have."""
MOST_ROWS: Final = 64
"""How many rows a tile can have."""
SHARED: Final = 96 * 1024
"""So many bytes of shared memory leave room for a second block on a part of the GPU; in so many, 15 bits say where a
plane of sums begins."""
RESERVE: Final = 32 * 1024
"""What then is left."""
MORE: Final = 80 * 1024
"""In so many bytes of shared memory a fourth plane is worth its room, where gradients are added."""
FEWEST: Final = 2**20
"""Arrays with fewer elements have not enough to do for a whole GPU."""
KEPT: Final = 256
"""So many poolings are kept, with their tables on the GPU."""

VALUE, CODE, PUT = 1, 2, 4

Tensor = torch.Tensor
_TYPES: Final = {torch.float32: "float", torch.float16: "Half", torch.bfloat16: "Brain"}


class Table(NamedTuple):
    """The windows of an axis on the GPU: where each begins with its length and what it shares with the one before, and
    between which windows each element lies. Nothing: every element is a window."""

    windows: Tensor | None
    cover: Tensor | None


class Tile(NamedTuple):
    """How much of each axis a block has to do with, how many windows a thread has, how many planes are on their way,
    and how many blocks share a part of the GPU."""

    own: tuple[int, int, int]
    each: int
    stages: int
    blocks: int


class Walk:
    """A compiled kernel with its tables. Calling it with arrays starts it."""

    __slots__ = ("addresses", "arguments", "grid", "held", "kernel", "shared")

    def __init__(
        self, kernel: Any, grid: int, shared: int, tables: list[Table], steps: list[int], sizes: list[int]
    ) -> None:
        self.kernel, self.grid, self.shared = kernel, grid, shared
        values: list[Any] = [ctypes.c_void_p(None if t is None else t.data_ptr()) for table in tables for t in table]
        values += [ctypes.c_longlong(n) for n in steps] + [ctypes.c_int(n) for n in sizes]
        self.addresses = [ctypes.addressof(value) for value in values]
        self.arguments = ctypes.c_void_p * (4 + len(values))
        self.held = (tables, values)

    def __call__(self, x: Tensor, g: Tensor, y: Tensor, codes: Tensor) -> None:
        """Starts it on the GPU that the arrays lie on."""
        if x.get_device() != torch.cuda.current_device():
            with torch.cuda.device(x.get_device()):
                self(x, g, y, codes)
            return
        if torch.cuda.is_current_stream_capturing():
            _CAPTURED.add(self)  # the graph remembers where the tables are, and nothing else keeps them
        # Of this call: others may run beside it.
        arrays = _FOUR(x.data_ptr(), g.data_ptr(), y.data_ptr(), codes.data_ptr())
        first = ctypes.addressof(arrays)
        arguments = self.arguments(first, first + 8, first + 16, first + 24, *self.addresses)
        fault = _driver().cuLaunchKernel(
            self.kernel.func, self.grid, 1, 1, THREADS, 1, 1, self.shared, _stream(x.get_device()), arguments, None
        )
        if fault:
            raise RuntimeError(f"the CUDA driver did not start the kernel for listed windows: error {fault}")


_CAPTURED: Final[set[Walk]] = set()
_FOUR: Final = ctypes.c_void_p * 4


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return driver


def _stream(device: int) -> int:
    """The current one, without the object around it, which takes longer than the rest of a start."""
    return int(torch._C._cuda_getCurrentRawStream(device))


@lru_cache(maxsize=KEPT)
def walk(
    pool: Pool, device: torch.device, dtype: torch.dtype, wanted: int, aligned: bool, tile: Tile | None = None
) -> Walk | None:
    """The kernel that finds winners and does what is `wanted` with them; nothing if these windows are not for it.

    aligned: arrays begin at addresses that 16 divides.
    """
    frame = frame_of(pool, device)
    axes, steps = seen(frame)
    put, vec = bool(wanted & PUT), vector_of(axes, dtype, aligned)
    if not (_compiles(device) and suits(frame, dtype)) or (put and dtype.itemsize < 4 and isinstance(axes[1], Images)):
        return None  # sums of short elements of images are quicker in Triton
    if tile is None:
        tile = tile_of(
            axes, dtype, vec, wanted, frame.outer, torch.cuda.get_device_properties(device).multi_processor_count
        )
    tiles = [-(-n // own) for n, own in zip(places_of(axes, put), tile.own, strict=True)]
    rows, across = span_of(axes[1], tile.own[1], put), across_of(axes[2], tile.own[2], put, vec)
    extents = [axis.extent for axis in axes]
    shared = shared_of(tile, extents[0], rows, across, dtype, put)
    parameters = (
        _TYPES[dtype], "unsigned char", *extents, least_of(axes[1]), axes[0].most, tile.each, tile.stages,
        pitch_of(across), vec, tile.blocks, wanted,
    )  # fmt: skip
    blocks = (frame.outer if frame.axes[0].size > 1 else 1) * math.prod(tiles)
    if blocks > MOST_BLOCKS:
        return None
    return Walk(
        _compiled(f"walk<{', '.join(map(str, parameters))}>", device, shared),
        blocks, shared, [table_of(axis, device) for axis in axes], steps,
        [*(axis.size for axis in axes), *(axis.count for axis in axes), *tile.own, *tiles, rows],
    )  # fmt: skip


def suits(frame: Frame, dtype: torch.dtype) -> bool:
    """Whether these windows are for the kernel."""
    sizes, counts = (math.prod(getattr(axis, name) for axis in frame.axes) for name in ("size", "count"))
    small = frame.axes[0].size > 1 or max(sizes, counts) <= LARGEST
    listed = frame.inner == 1 and not (frame.uniform or frame.dilated or frame.padded)
    return (
        listed and dtype in _TYPES and frame.axes[1].size > 1 and all(map(_suits, frame.axes))
        and frame.elements <= MOST_ELEMENTS and small and frame.outer * sizes >= FEWEST
    )  # fmt: skip


def _suits(axis: Axis) -> bool:
    """Whether an axis has windows that are neither empty nor long, each of which begins behind the one before and does
    not end before it, and no element is in more than two of them."""
    start, stop = axis.windows.start, axis.windows.stop
    ordered = bool((start < stop).all() and (np.diff(start) > 0).all() and (np.diff(stop) >= 0).all())
    return ordered and axis.count > 0 and axis.size <= LONGEST_AXIS and axis.extent <= LONGEST and axis.most <= 2


@lru_cache(maxsize=64)
def _compiles(device: torch.device) -> bool:
    """Whether PyTorch can compile CUDA C++ for this device, and the device copies into shared memory by itself."""
    if device.type != "cuda" or torch.version.cuda is None or not hasattr(torch.cuda, "_compile_kernel"):
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@lru_cache(maxsize=KEPT)
def _compiled(name: str, device: torch.device, shared: int) -> Any:
    source = resources.files(__package__).joinpath("listed.cu").read_text(encoding="utf-8")
    with torch.cuda.device(device):
        kernel = torch.cuda._compile_kernel(source, name, nvcc_options=["-std=c++17"])
        kernel.set_shared_memory_config(shared)
    return kernel


# ---------------------------------------------------------------------------------------------------------------------
# Axes


class Images:
    """Images in the place of an axis: each of them is a window of its own."""

    extent = most = 1

    def __init__(self, count: int) -> None:
        self.size = self.count = count


Seen = Axis | Images


def seen(frame: Frame) -> tuple[list[Seen], list[int]]:
    """The axes as the kernel sees them: planes, through which it walks, rows and columns. Of images without planes it
    walks through the rows, and sees several images as its rows. And how far images, planes and rows lie apart, in the
    array and in the result."""
    d, h, w = frame.axes
    if d.size > 1:
        sizes, counts = ((axis.size for axis in frame.axes), (axis.count for axis in frame.axes))
        return [d, h, w], [*_steps(*sizes), *_steps(*counts)]
    return [h, Images(frame.outer), w], [0, w.size, h.size * w.size, 0, w.count, h.count * w.count]


def _steps(d: int, h: int, w: int) -> tuple[int, int, int]:
    return d * h * w, h * w, w


def table_of(axis: Seen, device: torch.device) -> Table:
    """The windows of an axis, for the kernel."""
    if isinstance(axis, Images):
        return Table(None, None)
    start, stop = axis.windows.start, axis.windows.stop
    common = np.maximum(np.concatenate([start[:1], stop[:-1]]) - start, 0)
    pairs = (np.stack([start, stop - start + 256 * common], 1), np.stack(axis.cover, 1))
    return Table(*(torch.tensor(pair.astype(np.int32)).to(device) for pair in pairs))


def least_of(axis: Seen) -> int:
    """How many elements every window of an axis has at least."""
    return 1 if isinstance(axis, Images) else int((axis.windows.stop - axis.windows.start).min())


def places_of(axes: list[Seen], put: bool) -> list[int]:
    """What tiles are counted in: windows, or (put) elements."""
    return [axis.size if put else axis.count for axis in axes]


def _between(axis: Axis, own: int, put: bool) -> tuple[Int64Array, Int64Array]:
    """Between which windows each tile of an axis lies."""
    begin = np.arange(0, axis.size if put else axis.count, own)
    end = np.minimum(begin + own, axis.size if put else axis.count)
    if not put:
        return begin, end
    first, last = axis.cover
    return first[begin], last[end - 1]


def windows_of(axis: Seen, own: int, put: bool) -> int:
    """With how many windows of an axis a tile has to do, at most."""
    if isinstance(axis, Images):
        return min(own, axis.count)
    first, last = _between(axis, own, put)
    return int((last - first).max(initial=0))


def in_all_of(axis: Seen, own: int, put: bool) -> int:
    """With how many windows of an axis all its tiles together have to do."""
    if isinstance(axis, Images):
        return axis.count
    first, last = _between(axis, own, put)
    return int((last - first).sum())


def span_of(axis: Seen, own: int, put: bool, vec: int = 1) -> int:
    """From the first to the last element that these windows have, at most. The first one is a multiple of `vec`."""
    if isinstance(axis, Images):
        return min(own, axis.size)
    first, last = _between(axis, own, put)
    some = first < last
    begin, end = axis.windows.start[first[some]] // vec * vec, axis.windows.stop[last[some] - 1]
    return int((end - begin).max(initial=1))


# ---------------------------------------------------------------------------------------------------------------------
# Tiles


def across_of(axis: Seen, own: int, put: bool, vec: int) -> int:
    """How many columns a tile has to do with, at most: those of its windows and (put) its own."""
    return max(span_of(axis, own, put, vec), own if put else 0)


def vector_of(axes: list[Seen], dtype: torch.dtype, aligned: bool) -> int:
    """How many neighbours are copied at once."""
    vec = 16 // dtype.itemsize
    return vec if aligned and axes[2].size % vec == 0 else 1


def pitch_of(across: int) -> int:
    """How many columns there is room for in shared memory."""
    return next(pitch for pitch in (32, 64, 128) if across <= pitch)


def shared_of(tile: Tile, planes: int, rows: int, across: int, dtype: torch.dtype, put: bool) -> int:
    """How many bytes of shared memory a block needs: for planes of the array and, if it puts, planes of sums."""
    sums = planes * tile.own[1] * 4 if put else 0
    return (tile.stages * rows * dtype.itemsize + sums) * pitch_of(across)


def tile_of(axes: list[Seen], dtype: torch.dtype, vec: int, wanted: int, images: int, parts: int) -> Tile:
    """The tile for these axes, of so many images, on a GPU of so many parts. It followed from measurements on an H200:
    columns as far as they go; as many rows as keep all threads busy with several windows each; planes in one go, unless
    that leaves parts of the GPU idle."""
    put = bool(wanted & PUT)
    planes, rows, columns = places_of(axes, put)
    widths = (columns, *range(112, 8, -8), 8, 4, 2, 1)
    own_w = next(n for n in widths if n <= columns and across_of(axes[2], n, put, vec) <= MOST_ACROSS)
    across = across_of(axes[2], own_w, put, vec)
    shares = (3, 2) if put else (3,) if isinstance(axes[1], Images) else (4, 3)
    best, score = Tile((planes, 1, own_w), 1, 3, shares[0]), 0.0

    def shared(tile: Tile) -> int:
        return shared_of(tile, axes[0].extent, span_of(axes[1], tile.own[1], put), across, dtype, put)

    for each in range(1, MOST_EACH + 1):
        for stages, room in ((4, MORE if put else SHARED // 2), (3, SHARED)):
            fits = [
                n for n in range(1, min(rows, MOST_ROWS) + 1)
                if windows_of(axes[1], n, put) * windows_of(axes[2], own_w, put) <= each * THREADS
                and shared(Tile((planes, n, own_w), each, stages, 1)) <= room
            ]  # fmt: skip
            if fits:
                even = -(-rows // -(-rows // fits[-1]))
                own_h = min({even, fits[-1]} & {*fits}, key=lambda n: (in_all_of(axes[1], n, put), n))
                busy = windows_of(axes[1], own_h, put) * windows_of(axes[2], own_w, put) / (each * THREADS)
                found = busy * own_h / (own_h + axes[1].extent - 1) * each / (each + 1)
                if found > score:
                    best, score = Tile((planes, own_h, own_w), each, stages, shares[0]), found
    tiles = (1 if isinstance(axes[1], Images) else images) * -(-rows // best.own[1]) * -(-columns // own_w)
    possible = [blocks for blocks in shares if blocks * shared(best) <= 2 * SHARED + RESERVE] or [2]
    _, own_d, blocks = max(
        (_busy(axes[0], n, put, tiles, parts * blocks), n, blocks) for n in range(1, planes + 1) for blocks in possible
    )
    return best._replace(own=(own_d, *best.own[1:]), blocks=blocks)


def _busy(planes: Seen, own: int, put: bool, tiles: int, places: int) -> float:
    """Which part of its time the GPU computes something new, if so many planes are one tile: blocks start in so many
    places as others end there, and planes where tiles meet are read twice."""
    cuts = -(-(planes.size if put else planes.count) // own)
    rounds = -(-tiles * cuts // places)
    return tiles * cuts / (rounds * places) * planes.size / (cuts * span_of(planes, own, put))
