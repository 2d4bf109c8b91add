"""Everything a kernel is started with, apart from the arrays: made once per pool, dtype and operation, then kept.

How large a tile is and how many threads share it decides between a half and all of the memory bandwidth. The figures
below were measured on an H200; what they follow is simple: few elements a thread where much is computed per element,
more where elements are short, so that a thread still moves 16 bytes at once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from ..windows import Pool
from .frame import Frame, frame_of

WRITTEN_OUT: Final = 64
"""Windows of up to this many elements are written out in the kernels; larger ones are loops."""
LONGEST_GRID: Final = 65535
"""How long the second and third dimension of a grid may be."""
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


class Start(NamedTuple):
    """How a kernel is started: its grid, and its arguments by name."""

    grid: tuple[int, int, int]
    arguments: dict[str, Any]


class Tile(NamedTuple):
    """About how many elements a program owns, and how many warps of 32 threads work on them."""

    elements: int
    warps: int


def tile_of(frame: Frame, itemsize: int, gradient: bool) -> Tile:
    """The tile that measured best."""
    apart = not frame.listed and all(axis.window <= axis.stride for axis in frame.axes)
    rows = frame.inner == 1
    if frame.listed:
        return Tile(128, 1)
    if apart:
        return Tile(256, 4) if itemsize >= 4 else Tile(512, 2) if rows and not gradient else Tile(256, 2)
    if itemsize >= 4:
        return Tile(128, 1) if rows == gradient else Tile(256, 2) if rows else Tile(512, 4)
    return Tile(256, 2) if rows and gradient else Tile(256, 1)


def start(frame: Frame, tile: Tile, places: list[int], **arguments: Any) -> Start:
    """Starts one program for each tile of a result that has these `places` on the pooled axes."""
    bi = min(_power(frame.inner), 128) if frame.inner > 1 else 1
    bw = min(_power(places[2]), max(tile.elements // bi, 1), 256)
    r = min(_power(frame.outer), max(tile.elements // (bi * bw), 1))
    nw, ni = -(-places[2] // bw), -(-frame.inner // bi)
    blocks = -(-frame.outer // r) * nw * ni
    flat = max(places[0], blocks) > LONGEST_GRID
    d, h, w = frame.axes
    one = frame.inner == 1
    align, align_out = (_divisor(w.size), _divisor(w.count)) if one else (_divisor(frame.inner), 1)
    common = {
        "outer": frame.outer, "inner": frame.inner // (1 if one else align),
        "d": d.size, "h": h.size, "w": w.size // (align if one else 1),
        "md": d.count, "mh": h.count, "mw": w.count // align_out, "nw": nw, "ni": ni,
        "R": r, "BW": bw, "BI": bi, "ALIGN": align, "ALIGN_OUT": align_out, "FULL": frame.inner % bi == 0,
        "FLAT": flat, "ONE_W": nw == 1, "ONE_I": ni == 1, "IDX": tl.int64 if frame.wide else tl.int32,
        "num_warps": tile.warps,
    }  # fmt: skip
    grid = (places[1] * places[0] * blocks, 1, 1) if flat else (places[1], places[0], blocks)
    return Start(grid, common | arguments)


def _power(n: int) -> int:
    return int(triton.next_power_of_2(max(n, 1)))


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


@lru_cache(maxsize=1024)
def scan(
    pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, equal: bool, value: bool, code: bool, take: bool
) -> Start:
    """Winners: their value, their code, or what another array has in their place."""
    frame = frame_of(pool, device)
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=False), _outputs(frame),
        **frame.tables("origins", "stops", used=frame.listed),
        **frame.each(s="stride", b="before", d="dilation", e="extent"), **_written_out(frame),
        **comparing(dtype, nan), LISTED=frame.listed, DILATED=frame.dilated,
        EQUAL=equal, VALUE=value, CODE=code, TAKE=take,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def take(pool: Pool, device: torch.device, itemsize: int, index: str, fault: bool) -> Start:
    """What is in the place of every choice, or where that is, or whether it is anywhere."""
    frame = frame_of(pool, device, joined=not index)
    return start(
        frame, tile_of(frame, itemsize, gradient=False), _outputs(frame),
        **frame.tables("origins", "stops", used=frame.listed), **frame.each(s="stride", b="before", d="dilation"),
        eh=frame.axes[1].extent, ew=frame.axes[2].extent, images=frame.images,
        LISTED=frame.listed, INDEX=index, FAULT=fault,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def mean(pool: Pool, device: torch.device, dtype: torch.dtype) -> Start:
    """Averages."""
    frame = frame_of(pool, device)
    counted = frame.listed or frame.dilated or pool.divisors is not None
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=False), _outputs(frame),
        **frame.tables("origins", "stops", used=frame.listed), **frame.tables("divisors", used=counted),
        **frame.each(s="stride", b="before", d="dilation", e="extent", k="window"), **_written_out(frame),
        **averaging(dtype, frame, shares=False), LISTED=frame.listed, DILATED=frame.dilated, DIVISORS=counted,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def put_regular(pool: Pool, device: torch.device, dtype: torch.dtype, averages: bool) -> Start:
    """Gradients over regular windows, by cells of one stride."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    cells = [-(-axis.size // axis.stride) for axis in frame.axes]
    named = dict(zip("dhw", frame.axes, strict=True))
    sums = averaging(dtype, frame, shares=True) if averages else wrapping(dtype)
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=True), cells,
        **frame.tables("divisors", used=pool.divisors is not None), pd=cells[0], ph=cells[1],
        **{f"q{name}": axis.before // axis.stride for name, axis in named.items()},
        **{f"PHASE_{name.upper()}": axis.before % axis.stride for name, axis in named.items()},
        **frame.each(b="before", k="window"), eh=h.extent, ew=w.extent,
        SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
        PAIRS=frame.inner == 1 and w.stride == 2, **sums, MEAN=averages, DIVISORS=pool.divisors is not None,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def put_any(pool: Pool, device: torch.device, dtype: torch.dtype, mode: str) -> Start:
    """Gradients over any windows, by tables."""
    frame = frame_of(pool, device)
    most = [axis.most for axis in frame.axes]
    few = math.prod(most) <= 8
    sums = {"mean": averaging(dtype, frame, shares=True), "ties": tied(dtype, "all"), "split": tied(dtype, "split")}
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=True), [axis.size for axis in frame.axes],
        **frame.tables("origins", "divisors", "from", "to", "stops"), **frame.each(d="dilation"),
        eh=frame.axes[1].extent, ew=frame.axes[2].extent, most_w=most[2],
        **{f"MOST_{name}": m if few else 0 for name, m in zip("DHW", most, strict=True)},
        **sums.get(mode, wrapping(dtype)), MODE=mode, DILATED=frame.dilated,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def max_put(pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, equal: bool) -> Start:
    """choose and put in one, over windows that do not overlap."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    cells = [-(-(axis.size + axis.before) // axis.stride) for axis in frame.axes]
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=False), cells, pd=cells[0], ph=cells[1],
        **frame.each(b="before"),
        SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
        PAIRS=frame.inner == 1 and w.stride == 2 and w.before == 0, PADDED=frame.padded, **comparing(dtype, nan),
        EQUAL=equal,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def members(pool: Pool, device: torch.device, dtype: torch.dtype, ties: str, count: bool) -> Start:
    """Over the elements of each window that equal its maximum."""
    frame = frame_of(pool, device)
    return start(
        frame, tile_of(frame, dtype.itemsize, gradient=False), _outputs(frame), **frame.tables("origins", "stops"),
        **frame.each(d="dilation", e="extent"), **tied(dtype, ties), COUNT=count, SPLIT=ties == "split",
    )  # fmt: skip


@lru_cache(maxsize=1024)
def goes_by_cells(pool: Pool, device: torch.device) -> bool:
    """Whether gradients can go by cells of one stride, and cells and windows are small enough to be written out."""
    frame = frame_of(pool, device)
    strides, windows = (math.prod(getattr(axis, name) for axis in frame.axes) for name in ("stride", "window"))
    return not frame.listed and not frame.dilated and strides <= 27 and windows <= WRITTEN_OUT


@lru_cache(maxsize=1024)
def are_apart(pool: Pool, device: torch.device) -> bool:
    """Whether no two windows share an element."""
    return all(axis.window <= axis.stride for axis in frame_of(pool, device).axes)


def _outputs(frame: Frame) -> list[int]:
    return [axis.count for axis in frame.axes]


def _written_out(frame: Frame) -> dict[str, Any]:
    """The windows as constants, if they are small; and whether rows are read in pairs."""
    d, h, w = frame.axes
    small = frame.elements <= WRITTEN_OUT
    pairs = small and not frame.listed and frame.inner == 1 and w.stride == 2 and w.dilation == 1
    extents = {"KD": d.extent, "KH": h.extent, "KW": w.extent} if small else {"KD": 0, "KH": 0, "KW": 0}
    return extents | {
        "PAIRS": pairs, "PHASE": w.before % 2 if pairs else 0, "qw": w.before // 2 if pairs else 0,
        "PADDED": frame.padded,
    }  # fmt: skip
