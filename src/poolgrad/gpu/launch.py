"""Everything a kernel is started with, apart from the arrays: made once per pool, dtype and operation, then kept.

How large a tile is and how many threads share it decides between a half and all of the memory bandwidth. The figures
below were measured on an H200; what they follow is simple: few elements a thread where much is computed per element,
more where elements are short, so that a thread still moves 16 bytes at once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from ..checks import Int64Array
from ..windows import Pool
from . import gradients, rows, sums, winners
from .frame import Axis, Frame, frame_of

WRITTEN_OUT: Final = 64
"""Windows of up to this many elements are written out in the kernels; larger ones are loops."""
ROWS_WRITTEN_OUT: Final = 100
"""Kernels that share rows are written out up to so many elements."""
LONGEST_GRID: Final = 65535
"""How long the second and third dimension of a grid may be."""
KEPT: Final = 256
"""So many poolings are kept for each kernel, with their tables on the GPU."""
SORTED: Final = 256
"""How many sorted entries a program looks at."""
LONG_WINDOW: Final = 2048
"""From more elements than this on, 16-bit floats are summed in float64."""

_LOWEST = {
    torch.int8: -(2**7), torch.int16: -(2**15), torch.int32: -(2**31), torch.int64: -(2**63),
    torch.uint8: 0, torch.uint16: 0, torch.uint32: 0, torch.uint64: 0,
}  # fmt: skip
_COMPARED = {
    torch.float64: tl.float64, torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64,
    torch.uint8: tl.uint8, torch.uint16: tl.uint16, torch.uint32: tl.uint32, torch.uint64: tl.uint64,
}  # fmt: skip


class Start:
    """A kernel with its grid and all arguments but the arrays. Calling it with those starts the kernel.

    Triton finds out from every argument which compiled kernel it needs, and that takes longer than a small pooling.
    Here only the arrays change from call to call, so what it found is kept for each kind of them.
    """

    __slots__ = ("arguments", "compiled", "grid", "kernel", "rest")

    def __init__(self, kernel: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        self.kernel, self.grid, self.arguments = kernel, grid, arguments
        self.rest = [_pointer(arguments[name]) for name in kernel.arg_names if name in arguments]
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arrays: torch.Tensor) -> None:
        """Starts it on the GPU that the arrays lie on. Triton itself takes the current one, whichever that is."""
        x = arrays[0]
        if not x.is_cuda:
            self.kernel[self.grid](*arrays, **self.arguments)  # interpreted
        elif x.get_device() == torch.cuda.current_device():
            self._start(arrays)
        else:
            with torch.cuda.device(x.get_device()):
                self._start(arrays)

    def _start(self, arrays: tuple[torch.Tensor, ...]) -> None:
        pointers = [array.data_ptr() for array in arrays]
        kind = (*[array.dtype for array in arrays], *[pointer % 16 == 0 for pointer in pointers])
        if torch.cuda.is_current_stream_capturing():
            _CAPTURED.add(self)  # the graph remembers where the tables are, and nothing else keeps them
        if kind in self.compiled:
            self.compiled[kind](*pointers, *self.rest)
        else:
            found = self.kernel[self.grid](*arrays, **self.arguments)
            if found is not None:  # interpreted
                self.compiled[kind] = found[self.grid]


_CAPTURED: Final[set[Start]] = set()


def _pointer(argument: Any) -> Any:
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else argument


class Tile(NamedTuple):
    """About how many elements a program owns, and how many warps of 32 threads work on them. Where what they read lies
    scattered, neighbouring threads should have neighbouring elements, not several of them each."""

    elements: int
    warps: int
    scattered: bool = False


def tile_of(frame: Frame, itemsize: int, work: str) -> Tile:
    """The tile that measured best. `work` is what is done: "value", "code" or "mean" of windows, "put" or "spread" of
    gradients, or "fused" for both in one."""
    short, in_rows, planes = itemsize < 4, frame.inner == 1, frame.axes[0].size > 1
    if not frame.uniform:
        if work in ("put", "spread"):
            return Tile(512, 4) if planes else Tile(128, 1)
        return Tile(128 if work == "value" and not planes else 64, 1, scattered=True)
    if all(axis.window <= axis.stride for axis in frame.axes):
        if work == "spread":
            return Tile(512, 2) if short else Tile(256, 2) if in_rows else Tile(512, 8)
        return Tile(256, 4) if not short else Tile(256, 2) if work in ("code", "fused") else Tile(512, 2)
    if work in ("put", "spread"):
        return (
            Tile(512, 2) if short else Tile(256, 1) if work == "spread" else Tile(128, 1) if in_rows else Tile(512, 4)
        )
    if short and work != "mean":
        return Tile(128, 1) if not (planes and in_rows) else Tile(256 if work == "value" else 128, 2)
    if not planes:
        return Tile(256, 1) if short else Tile(128, 2)
    if work == "code":
        return Tile(256, 2) if in_rows else Tile(128, 1)
    return Tile(64, 1)


def start(kernel: Any, frame: Frame, tile: Tile, places: list[int], **arguments: Any) -> Start:
    """One program of the kernel for each tile of a result that has these `places` on the pooled axes."""
    bi = min(_power(frame.inner), 128) if frame.inner > 1 else 1
    bw = min(_width(places[2]), max(tile.elements // bi, 1))
    r = min(_power(frame.outer), max(tile.elements // (bi * bw), 1))
    nw, ni = -(-places[2] // bw), -(-frame.inner // bi)
    blocks = -(-frame.outer // r) * nw * ni
    flat = max(places[0], blocks) > LONGEST_GRID
    d, h, w = frame.axes
    one = frame.inner == 1
    align, align_out = (_divisor(w.size), _divisor(w.count)) if one else (_divisor(frame.inner), 1)
    if one and tile.scattered:
        align, align_out = 1, 1
    common = {
        "outer": frame.outer, "inner": frame.inner // (1 if one else align),
        "d": d.size, "h": h.size, "w": w.size // (align if one else 1),
        "md": d.count, "mh": h.count, "mw": w.count // align_out, "nw": nw, "ni": ni,
        "R": r, "BW": bw, "BI": bi, "ALIGN": align, "ALIGN_OUT": align_out, "FULL": frame.inner % bi == 0,
        "FLAT": flat, "ONE_W": nw == 1, "ONE_I": ni == 1, "IDX": tl.int64 if frame.wide else tl.int32,
        "num_warps": tile.warps,
    }  # fmt: skip
    grid = (places[1] * places[0] * blocks, 1, 1) if flat else (places[1], places[0], blocks)
    return Start(kernel, grid, common | arguments)


def _power(n: int) -> int:
    return int(triton.next_power_of_2(max(n, 1)))


def _width(n: int) -> int:
    """How many neighbours a tile has: as many as possible, unless much of the last tile would lie outside."""
    best = 256
    for width in (256, 128, 64, 32, 16):
        if width < 2 * n and -(-n // width) * width < 0.9 * (-(-n // best) * best):
            best = width
    return min(best, _power(n))


def _divisor(n: int) -> int:
    return next(power for power in (16, 4, 2, 1) if n % power == 0)


# ---------------------------------------------------------------------------------------------------------------------
# Dtypes


def comparing(dtype: torch.dtype, nan: str) -> dict[str, Any]:
    """How elements are compared."""
    floating = dtype.is_floating_point
    return {
        "COMPUTE": _COMPARED.get(dtype, tl.float32), "LOWEST": -math.inf if floating else _LOWEST[dtype],
        "FLOAT": floating, "IGNORE": nan == "ignore",
    }  # fmt: skip


def wrapping(dtype: torch.dtype) -> dict[str, Any]:
    """Sums of gradients: short floats in float32; integers wrap."""
    if dtype.is_floating_point:
        return _summing(tl.float64 if dtype == torch.float64 else tl.float32)
    return _summing(tl.int64 if dtype.itemsize == 8 else tl.int32)


def averaging(dtype: torch.dtype, frame: Frame, shares: bool) -> dict[str, Any]:
    """Averages, or shares of them, are rounded once: from the next wider type, float64 from a pair."""
    if dtype.is_floating_point:
        short = dtype.itemsize == 2 and frame.elements <= LONG_WINDOW
        return _summing(tl.float32 if short else tl.float64, twofold=dtype == torch.float64)
    pair = shares or dtype.itemsize == 8
    return _summing(tl.float64 if pair else tl.int64, twofold=pair, whole=True)


def tied(dtype: torch.dtype, ties: str) -> dict[str, Any]:
    """Sums over tied elements wrap for integers; shares of integers are cut once, at the end."""
    if ties == "split" and not dtype.is_floating_point:
        return _summing(tl.float64, twofold=True, whole=True)
    return wrapping(dtype)


def _summing(kind: Any, twofold: bool = False, whole: bool = False) -> dict[str, Any]:
    """Twofold sums rely on every operation being rounded by itself."""
    exact = {"enable_fp_fusion": False} if twofold else {}
    return {"SUM": kind, "TWOFOLD": twofold, "WHOLE": whole} | exact


# ---------------------------------------------------------------------------------------------------------------------
# Kernels


@lru_cache(maxsize=KEPT)
def scan(
    pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, equal: bool, value: bool, code: bool, take: bool
) -> Start:
    """Winners: their value, their code, or what another array has in their place."""
    frame = frame_of(pool, device)
    return start(
        winners.scan, frame, tile_of(frame, dtype.itemsize, "value" if value and not code else "code"), _outputs(frame),
        **frame.tables("origins", "stops", used=not frame.uniform),
        **frame.each(s="stride", b="before", d="dilation", e="extent"), **_written_out(frame),
        **comparing(dtype, nan), LISTED=not frame.uniform, DILATED=frame.dilated,
        EQUAL=equal, VALUE=value, CODE=code, TAKE=take,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def take(pool: Pool, device: torch.device, itemsize: int, index: str, fault: bool) -> Start:
    """What is in the place of every choice, or where that is, or whether it is anywhere."""
    frame = frame_of(pool, device, joined=not index)
    return start(
        winners.take, frame, tile_of(frame, itemsize, "code"), _outputs(frame),
        **frame.tables("origins", "stops", used=not frame.uniform), **frame.each(s="stride", b="before", d="dilation"),
        eh=frame.axes[1].extent, ew=frame.axes[2].extent, images=frame.images,
        LISTED=not frame.uniform, INDEX=index, FAULT=fault,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def mean(pool: Pool, device: torch.device, dtype: torch.dtype) -> Start:
    """Averages."""
    frame = frame_of(pool, device)
    counted = not frame.uniform or frame.dilated or pool.divisors is not None
    return start(
        sums.mean, frame, tile_of(frame, dtype.itemsize, "mean"), _outputs(frame),
        **frame.tables("origins", "stops", used=not frame.uniform), **frame.tables("divisors", used=counted),
        **frame.each(s="stride", b="before", d="dilation", e="extent", k="window"), **_written_out(frame),
        **averaging(dtype, frame, shares=False), LISTED=not frame.uniform, DILATED=frame.dilated, DIVISORS=counted,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def put_regular(pool: Pool, device: torch.device, dtype: torch.dtype, averages: bool) -> Start:
    """Gradients over regular windows, by cells of one stride."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    cells = [-(-axis.size // axis.stride) for axis in frame.axes]
    named = dict(zip("dhw", frame.axes, strict=True))
    sums = averaging(dtype, frame, shares=True) if averages else wrapping(dtype)
    return start(
        gradients.put, frame, tile_of(frame, dtype.itemsize, "spread" if averages else "put"), cells,
        **frame.tables("divisors", used=pool.divisors is not None), pd=cells[0], ph=cells[1],
        **{f"q{name}": axis.before // axis.stride for name, axis in named.items()},
        **{f"PHASE_{name.upper()}": axis.before % axis.stride for name, axis in named.items()},
        **frame.each(b="before", k="window"), eh=h.extent, ew=w.extent,
        SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
        PAIRS=frame.inner == 1 and w.stride == 2, **sums, MEAN=averages, DIVISORS=pool.divisors is not None,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def put_any(pool: Pool, device: torch.device, dtype: torch.dtype, mode: str) -> Start:
    """Gradients over any windows, by tables."""
    frame = frame_of(pool, device)
    most = [axis.most for axis in frame.axes]
    few = math.prod(most) <= 8
    sums = {"mean": averaging(dtype, frame, shares=True), "ties": tied(dtype, "all"), "split": tied(dtype, "split")}
    return start(
        gradients.put_any, frame, tile_of(frame, dtype.itemsize, "spread" if mode == "mean" else "put"),
        [axis.size for axis in frame.axes],
        **frame.tables("origins", "divisors", "from", "to", "stops"), **frame.each(d="dilation"),
        eh=frame.axes[1].extent, ew=frame.axes[2].extent, most_w=most[2],
        **{f"MOST_{name}": m if few else 0 for name, m in zip("DHW", most, strict=True)},
        **sums.get(mode, wrapping(dtype)), MODE=mode, DILATED=frame.dilated,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def scan_rows(
    pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, value: bool, code: bool, take: bool
) -> Start | None:
    """Winners, a few rows of windows at once, if that is worth it."""
    frame = frame_of(pool, device)
    shared = _sharing(frame)
    packed = frame.uniform and nan == "propagate" and _packs(device, dtype)
    several = frame.axes[0].count > 1 and frame.uniform
    if shared is None or (several and not value and not packed):
        return None  # codes of many rows at once take more registers than the sharing saves
    blocks, arguments = shared
    return start(
        rows.scan_rows, frame, tile_of(frame, dtype.itemsize, "value" if value and not code else "code"), blocks,
        **arguments, KD=frame.axes[0].extent, KH=frame.axes[1].extent,
        **comparing(dtype, nan), VALUE=value, CODE=code, TAKE=take, PACKED=packed,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the GPU compares two floats of this type at a time."""
    return dtype in (torch.bfloat16, torch.float16) and (
        device.type == "cuda" and torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)
    )


@lru_cache(maxsize=KEPT)
def mean_rows(pool: Pool, device: torch.device, dtype: torch.dtype) -> Start | None:
    """Averages, a few rows of windows at once, if that is worth it."""
    frame = frame_of(pool, device)
    shared = _sharing(frame)
    sums = averaging(dtype, frame, shares=False)
    if shared is None or sums["TWOFOLD"] or sums["WHOLE"]:
        return None
    blocks, arguments = shared
    counted = not frame.uniform or pool.divisors is not None
    return start(
        rows.mean_rows, frame, tile_of(frame, dtype.itemsize, "mean"), blocks, **arguments,
        **frame.tables("divisors", used=counted), **frame.each(k="window"), **sums, DIVISORS=counted,
    )  # fmt: skip


def _sharing(frame: Frame) -> tuple[list[int], dict[str, Any]] | None:
    """How windows share rows: the blocks of rows that programs own, and what the kernels want to know; nothing where
    no rows are shared, or where it would be too much to be written out."""
    d, h, w = frame.axes
    apart = all(axis.uniform and axis.window <= axis.stride for axis in (d, h))
    padded = any(axis.origins.min(initial=0) < 0 for axis in frame.axes)
    cut = frame.uniform and any(axis.extent < axis.window for axis in frame.axes)
    if apart or cut or frame.dilated or (not frame.uniform and padded):
        return None
    own_d, own_h = (2, 2) if d.count > 1 else (1, min(4, _power(h.count)))
    shared = shared_rows("D", d.origins, _ends(d), own_d) | shared_rows("H", h.origins, _ends(h), own_h)
    if shared["SPAN_D"] * shared["SPAN_H"] * w.extent > ROWS_WRITTEN_OUT:
        return None
    blocks = [-(-d.count // own_d), -(-h.count // own_h), w.count]
    pairs = frame.uniform and frame.inner == 1 and w.stride == 2
    return blocks, shared | frame.tables("origins", "stops", used=not frame.uniform) | frame.each(b="before") | {
        "pd": blocks[0], "ph": blocks[1], "KW": w.extent, "SD": d.stride, "SH": h.stride, "SW": w.stride,
        "UNIFORM": frame.uniform, "PADDED": frame.padded, "PAIRS": pairs, "PHASE": w.before % 2 if pairs else 0,
        "qw": w.before // 2 if pairs else 0,
    }  # fmt: skip


def _ends(axis: Axis) -> Int64Array:
    """Where windows end, the padding counted in where they are uniform."""
    return axis.origins + axis.window if axis.uniform else axis.stops


@lru_cache(maxsize=KEPT)
def put_rows(pool: Pool, device: torch.device, dtype: torch.dtype, averages: bool) -> Start | None:
    """Gradients over listed windows, and over regular ones too large for cells, a few rows at once; nothing if that
    would be too much to be written out."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    sums = averaging(dtype, frame, shares=True) if averages else wrapping(dtype)
    if frame.dilated or sums["TWOFOLD"] or frame.elements >= 2**29:  # see rows.NOWHERE
        return None
    own_d, own_h = (2, 2) if d.size > 1 else (1, min(8, _power(h.size)))
    shared = shared_rows("D", *d.cover, own_d) | shared_rows("H", *h.cover, own_h)
    blocks = [-(-d.size // own_d), -(-h.size // own_h), w.size]
    if shared["SPAN_D"] * shared["SPAN_H"] * w.most > ROWS_WRITTEN_OUT:
        return None
    return start(
        rows.put_rows, frame, tile_of(frame, dtype.itemsize, "spread" if averages else "put"), blocks,
        **frame.tables("origins", "divisors", "from", "to"), pd=blocks[0], ph=blocks[1], eh=h.extent, ew=w.extent,
        MOST_W=w.most, **shared, **sums, MEAN=averages,
    )  # fmt: skip


def shared_rows(name: str, begins: Int64Array, ends: Int64Array, own: int) -> dict[str, Any]:
    """Among the rows of `own` neighbours, counted from the first: which can belong to each of them, and how many.

    From the longest row and the steps between them, and not from where each one lies: fractional windows are drawn anew
    for every call and should not be compiled anew.
    """
    there = min(own, len(begins))
    steps, strides = np.diff(begins), np.diff(ends)
    longest = int((ends - begins).max(initial=0))
    least, most = int(steps.min(initial=2**31 - 1)), int(min(steps.max(initial=0), strides.max(initial=0)))
    lows = [i * least for i in range(there)] + [2**31 - 1] * (own - there)
    highs = [longest + i * most for i in range(there)] + [0] * (own - there)
    return {f"OWN_{name}": own, f"SPAN_{name}": max(highs), f"LOW_{name}": tuple(lows), f"HIGH_{name}": tuple(highs)}


@lru_cache(maxsize=KEPT)
def max_put(pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, equal: bool) -> Start:
    """choose and put in one, over windows that do not overlap."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    cells = [-(-(axis.size + axis.before) // axis.stride) for axis in frame.axes]
    return start(
        gradients.max_put, frame, tile_of(frame, dtype.itemsize, "fused"), cells, pd=cells[0], ph=cells[1],
        **frame.each(b="before"),
        SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
        PAIRS=frame.inner == 1 and w.stride == 2 and w.before == 0, PADDED=frame.padded, **comparing(dtype, nan),
        EQUAL=equal,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def members(pool: Pool, device: torch.device, dtype: torch.dtype, ties: str, count: bool) -> Start:
    """Over the elements of each window that equal its maximum."""
    frame = frame_of(pool, device)
    return start(
        winners.members, frame, tile_of(frame, dtype.itemsize, "code"), _outputs(frame),
        **frame.tables("origins", "stops"),
        **frame.each(d="dilation", e="extent"), **tied(dtype, ties), COUNT=count, SPLIT=ties == "split",
    )  # fmt: skip


def segments(count: int, dtype: torch.dtype) -> Start:
    """Sums of entries with equal keys."""
    arguments = {"count": count, "SUM": wrapping(dtype)["SUM"], "BLOCK": SORTED}
    return Start(gradients.segments, (-(-count // SORTED), 1, 1), arguments)


@lru_cache(maxsize=KEPT)
def goes_by_cells(pool: Pool, device: torch.device) -> bool:
    """Whether gradients can go by cells of one stride, and cells and windows are small enough to be written out."""
    frame = frame_of(pool, device)
    strides, windows = (math.prod(getattr(axis, name) for axis in frame.axes) for name in ("stride", "window"))
    return frame.uniform and not frame.dilated and strides <= 27 and windows <= WRITTEN_OUT


@lru_cache(maxsize=KEPT)
def are_apart(pool: Pool, device: torch.device) -> bool:
    """Whether no two windows share an element."""
    return all(axis.window <= axis.stride for axis in frame_of(pool, device).axes)


def _outputs(frame: Frame) -> list[int]:
    return [axis.count for axis in frame.axes]


def _written_out(frame: Frame) -> dict[str, Any]:
    """The windows as constants, if they are small; and whether rows are read in pairs."""
    d, h, w = frame.axes
    small = frame.elements <= WRITTEN_OUT
    pairs = small and frame.uniform and frame.inner == 1 and w.stride == 2 and w.dilation == 1
    extents = {"KD": d.extent, "KH": h.extent, "KW": w.extent} if small else {"KD": 0, "KH": 0, "KW": 0}
    return extents | {
        "PAIRS": pairs, "PHASE": w.before % 2 if pairs else 0, "qw": w.before // 2 if pairs else 0,
        "PADDED": frame.padded,
    }  # fmt: skip
