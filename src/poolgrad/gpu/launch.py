"""Everything a kernel is started with, apart from the arrays: made once per pool, dtype and operation, then kept.

How large a tile is and how many threads share it decides between a half and all of the memory bandwidth. The figures
below were measured on an H200; what they follow is simple: few elements a thread where much is computed per element,
more where elements are short, so that a thread still moves 16 bytes at once.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from ..errors import CompilerFault
from ..windows import Pool
from . import gradients, rows, sums, winners
from .frame import Frame, frame_of

WRITTEN_OUT: Final = 64
"""Windows of up to this many elements are written out in the kernels; larger ones are loops."""
ROWS_WRITTEN_OUT: Final = 135
"""Kernels that share rows are written out up to so many elements."""
FEW_WINDOWS: Final = 27
"""Where an element lies in so many windows at most, they are written out."""
LIMITED: Final = 27
"""Up to so many elements a window, kernels do with the registers that their tile allows."""
MOST_WARPS: Final = 32
"""How many warps a program can have."""
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
            return
        for warps in (1, 2, 4):  # times as many as asked for
            more = self.arguments | {"num_warps": min(warps * self.arguments["num_warps"], MOST_WARPS)}
            found = self.kernel.run(*arrays, grid=self.grid, warmup=True, **more)
            if found is None:
                self.kernel[self.grid](*arrays, **self.arguments)  # interpreted
                return
            if not miscompiled(found.asm["llir"]):
                self.compiled[kind] = found[self.grid]
                self.compiled[kind](*pointers, *self.rest)
                return
        raise CompilerFault(
            f"Triton {triton.__version__} compiles the kernel {self.kernel.__name__} of this pooling wrongly: use "
            "another version of it, or the CPU"
        )


def miscompiled(code: str) -> bool:
    """Whether LLVM joined a shift with something else into one operation on a vector, so that lanes which nobody looks
    at are shifted out of their range.

    If the shift promises that nothing is lost, or shifts by more than there is, the GPU's code, which packs two lanes
    into a register, spills them into their neighbours. (Seen with Triton 3.6, LLVM 22: masks of stores became too
    narrow.)
    """
    promises = set()
    for name, promise, bits, amounts in _SHIFTS.findall(code):
        each = [int(amount) for amount in _AMOUNTS.findall(amounts)]
        if any(not 0 <= amount < int(bits) for amount in each):
            return True
        if promise and len(set(each)) > 1:
            promises.add(name)
    for lanes, first, second, chosen in _BLENDS.findall(code) if promises else ():
        taken = [int(lane) for lane in _AMOUNTS.findall(chosen)]
        of_first = len({lane for lane in taken if lane < int(lanes)})
        of_second = len({lane for lane in taken if lane >= int(lanes)})
        if (first in promises and of_first < int(lanes)) or (second in promises and of_second < int(lanes)):
            return True
    return False


_SHIFTS: Final = re.compile(r"(%\w+) = shl ((?:nuw |nsw )*)<\d+ x i(\d+)> [^,]+, <([^>]*)>")
_BLENDS: Final = re.compile(r"shufflevector <(\d+) x i\d+> (%\w+), <\d+ x i\d+> (%\w+), <\d+ x i32> <([^>]*)>")
_AMOUNTS: Final = re.compile(r"i\d+ (-?\d+)")
_CAPTURED: Final[set[Start]] = set()


def _pointer(argument: Any) -> Any:
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else argument


class Tile(NamedTuple):
    """About how many elements a program owns, and how many warps of 32 threads work on them. Where what they read lies
    scattered, neighbouring threads should have neighbouring elements, not several of them each. `registers`: the most
    that a thread may have (0: as many as it wants), where one warp more on every part of the GPU is worth it. `down`:
    programs that run at the same time had better be neighbours on H than on W."""

    elements: int
    warps: int
    scattered: bool = False
    registers: int = 0
    down: bool = False


def tile_of(frame: Frame, itemsize: int, work: str) -> Tile:
    """The tile that measured best. `work` is what is done: "value", "code" or "mean" of windows, "put" or "spread" of
    gradients, or "fused" for both in one."""
    tile = _tile_of(frame, itemsize, work)
    return tile if frame.elements <= LIMITED and itemsize <= 4 else tile._replace(registers=0)


def _tile_of(frame: Frame, itemsize: int, work: str) -> Tile:
    short, in_rows, planes = itemsize < 4, frame.inner == 1, frame.axes[0].size > 1
    if not frame.uniform:
        if work in ("put", "spread"):
            return Tile(256, 2, True) if planes else Tile(512, 4, True, 48 if work == "put" else 0)
        return Tile(256, 2 if planes and work != "value" else 1, True, 48 if work == "code" else 0)
    if all(axis.window <= axis.stride for axis in frame.axes):
        if work == "spread":
            if short or in_rows:
                return Tile(512 if short else 256, 2)
            return Tile(4096, 32) if planes and itemsize == 4 else Tile(512, 8)
        if not short:
            return Tile(256, 4)
        if _streams(frame, itemsize, work):
            return Tile(512, 4)
        few = work in ("code", "fused") or (work == "value" and planes and not in_rows)
        return Tile(256, 2) if few else Tile(512, 2)
    if planes and not in_rows and itemsize <= 4:
        return _tile_of_volumes(short, work)
    if work == "spread":
        return Tile(512, 2) if short else Tile(256, 1, registers=128 if planes else 0)
    if work == "put":
        return Tile(512, 2) if short else Tile(512, 4) if not in_rows else Tile(128, 1) if planes else Tile(256, 2)
    if work == "mean":
        if planes:
            return Tile(128, 1, registers=168) if short else Tile(64, 1)
        return Tile(256, 1) if short else Tile(256 if in_rows else 128, 2)
    if short:
        if in_rows:
            return Tile(*((64, 1) if planes else (128, 1)) if work == "value" else (256, 2) if planes else (256, 1))
        return Tile(128, 1)
    if not planes:
        return Tile(64, 1) if work == "code" and in_rows else Tile(128, 2)
    if work == "code":
        return Tile(256, 2) if in_rows else Tile(128, 1)
    return Tile(64, 1)


def _tile_of_volumes(short: bool, work: str) -> Tile:
    """The same for volumes with their channels last and windows that overlap."""
    return {
        "spread": Tile(512, 2) if short else Tile(512, 4, registers=128, down=True),
        "put": Tile(512, 2) if short else Tile(512, 4),
        "mean": Tile(128, 1, registers=168) if short else Tile(256, 4, registers=80, down=True),
        "code": Tile(128, 1, registers=128 if short else 0),
        "value": Tile(128, 1, registers=128) if short else Tile(64, 1, registers=96),
    }[work]


def hint_of(frame: Frame, itemsize: int, work: str) -> str:
    """What loads tell the cache: to keep what they read or to drop it first, where that measured better."""
    if _streams(frame, itemsize, work):
        return "evict_first"
    short, in_rows, planes = itemsize < 4, frame.inner == 1, frame.axes[0].size > 1
    kept = frame.uniform and (
        all(axis.window <= axis.stride for axis in frame.axes)
        or (work == "spread" and not (planes and not in_rows and not short))
        or (work == "take" and in_rows)
        or (work == "mean" and in_rows and planes and short)
    )
    return "evict_last" if kept else ""


def _streams(frame: Frame, itemsize: int, work: str) -> bool:
    """Whether what is read had better leave the cache first: 16-bit images, channels last, that nobody reads again."""
    apart = frame.uniform and all(axis.window <= axis.stride for axis in frame.axes)
    images = frame.axes[0].size == 1 and frame.inner > 1
    return apart and images and itemsize == 2 and work in ("value", "mean")


def start(kernel: Any, frame: Frame, tile: Tile, places: list[int], **arguments: Any) -> Start:
    """One program of the kernel for each tile of a result that has these `places` on the pooled axes."""
    bi = min(_power(frame.inner), 128) if frame.inner > 1 else 1
    bw = min(_width(places[2]), max(tile.elements // bi, 1))
    if tile.scattered:
        bw = min(bw, 32 * tile.warps)
    r = min(_power(frame.outer), max(tile.elements // (bi * bw), 1))
    nw, ni = -(-places[2] // bw), -(-frame.inner // bi)
    d, h, w = frame.axes
    order, grid = "down", (places[1], places[0], -(-frame.outer // r) * nw * ni)
    across = (nw * ni, places[1], places[0] * -(-frame.outer // r))
    if frame.uniform and d.size > 1 and frame.inner > 1 and not tile.down and max(across[1:]) <= LONGEST_GRID:
        order, grid = "across", across
    if max(grid[1:]) > LONGEST_GRID:
        order, grid = "flat", (math.prod(grid), 1, 1)
    one = frame.inner == 1
    align, align_out = (_divisor(w.size), _divisor(w.count)) if one else (_divisor(frame.inner), 1)
    if one and tile.scattered:
        align, align_out = 1, 1
    common = {
        "outer": frame.outer, "inner": frame.inner // (1 if one else align),
        "d": d.size, "h": h.size, "w": w.size // (align if one else 1),
        "md": d.count, "mh": h.count, "mw": w.count // align_out, "nw": nw, "ni": ni,
        "R": r, "BW": bw, "BI": bi, "ALIGN": align, "ALIGN_OUT": align_out, "FULL": frame.inner % bi == 0,
        "ORDER": order, "ONE_W": nw == 1, "ONE_I": ni == 1, "IDX": tl.int64 if frame.wide else tl.int32,
        "num_warps": tile.warps,
    }  # fmt: skip
    if tile.registers and torch.version.hip is None:
        common["maxnreg"] = tile.registers
    if arguments.get("CHUNK", 0) > 0:  # not more than a thread has
        arguments["CHUNK"] = min(arguments["CHUNK"], max(bw * r // (32 * tile.warps), 1))
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
    return next(power for power in (16, 8, 4, 2, 1) if n % power == 0)


# ---------------------------------------------------------------------------------------------------------------------
# Dtypes


def comparing(dtype: torch.dtype, nan: str) -> dict[str, Any]:
    """How elements are compared."""
    floating = dtype.is_floating_point
    return {
        "COMPUTE": _COMPARED.get(dtype, tl.float32), "FLOAT": floating, "IGNORE": nan == "ignore",
    }  # fmt: skip


def lowest(dtype: torch.dtype) -> float:
    """What nothing is less than."""
    return -math.inf if dtype.is_floating_point else _LOWEST[dtype]


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
    """Twofold sums rely on every operation being rounded by itself, and so do equal bits in all layouts."""
    return {"SUM": kind, "TWOFOLD": twofold, "WHOLE": whole, "enable_fp_fusion": False}


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
        **comparing(dtype, nan), LOWEST=lowest(dtype), LISTED=not frame.uniform, DILATED=frame.dilated,
        EQUAL=equal, VALUE=value, CODE=code, TAKE=take, SKIP=not frame.uniform,
        HINT=hint_of(frame, dtype.itemsize, "take" if take else "value" if value and not code else "code"),
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
        HINT=hint_of(frame, dtype.itemsize, "mean"),
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def put_regular(pool: Pool, device: torch.device, dtype: torch.dtype, averages: bool) -> Start:
    """Gradients over regular windows, by cells of one stride."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    cells = [-(-axis.size // axis.stride) for axis in frame.axes]
    named = dict(zip("dhw", frame.axes, strict=True))
    sums = averaging(dtype, frame, shares=True) if averages else wrapping(dtype)
    # The windows on a row that reach into cell p: p + first to p + last.
    first = w.before // w.stride - (w.window - 1 - w.before % w.stride) // w.stride
    last = w.before // w.stride + (w.stride - 1 + w.before % w.stride) // w.stride
    chunk = chunk_of(w.count, dtype.itemsize) if frame.inner == 1 and first >= -1 and last <= 1 else 0
    return start(
        gradients.put, frame, tile_of(frame, dtype.itemsize, "spread" if averages else "put"), cells,
        **frame.tables("divisors", used=pool.divisors is not None), pd=cells[0], ph=cells[1],
        **{f"q{name}": axis.before // axis.stride for name, axis in named.items()},
        **{f"PHASE_{name.upper()}": axis.before % axis.stride for name, axis in named.items()},
        **frame.each(b="before", k="window"), eh=h.extent, ew=w.extent,
        SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
        PAIRS=frame.inner == 1 and w.stride == 2, CHUNK=chunk, FIRST=first if chunk else 0,
        **sums, MEAN=averages, DIVISORS=pool.divisors is not None,
        HINT=hint_of(frame, dtype.itemsize, "spread" if averages else "put"),
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
def put_listed(pool: Pool, device: torch.device, dtype: torch.dtype, averages: bool) -> Start | None:
    """Gradients over windows in tables, a few rows at once; nothing if elements lie in too many windows."""
    frame = frame_of(pool, device)
    d, h, w = frame.axes
    sums = averaging(dtype, frame, shares=True) if averages else wrapping(dtype)
    most = {f"MOST_{name}": axis.most for name, axis in zip("DHW", frame.axes, strict=True)}
    too_many = math.prod(most.values()) > FEW_WINDOWS
    if too_many or frame.dilated or sums["TWOFOLD"] or frame.elements >= 2**29:  # see gradients.NOWHERE
        return None
    own = min(4, _power(h.size))
    blocks = [d.size, -(-h.size // own), w.size]
    return start(
        gradients.put_listed, frame, tile_of(frame, dtype.itemsize, "spread" if averages else "put"), blocks,
        **frame.tables("origins", "divisors", "from", "to"), pd=blocks[0], ph=blocks[1], eh=h.extent, ew=w.extent,
        OWN=own, **most, **sums, MEAN=averages,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def scan_rows(
    pool: Pool, device: torch.device, dtype: torch.dtype, nan: str, value: bool, code: bool, take: bool
) -> Start | None:
    """Winners, a few rows of windows at once, if that is worth it."""
    frame = frame_of(pool, device)
    packed = nan == "propagate" and _packs(device, dtype)
    coded, planes, short = code or not value, frame.axes[0].count > 1, dtype in (torch.bfloat16, torch.float16)
    owned = _owned(frame, many=short and not coded)
    if not _shares_rows(frame, owned):
        owned = _owned(frame)
    if not _shares_rows(frame, owned) or (planes and not value and not short):
        return None  # codes of many rows at once take more registers than the sharing saves
    blocks, arguments = _sharing(frame, owned, dtype.itemsize)
    kernel = rows.scan_chunks if planes and coded and short and arguments["CHUNK"] > 0 else rows.scan_rows
    return start(
        kernel, frame, tile_of(frame, dtype.itemsize, "code" if coded else "value"), blocks,
        **arguments, **comparing(dtype, nan), VALUE=value, CODE=code, TAKE=take, PACKED=packed,
        HINT=hint_of(frame, dtype.itemsize, "take" if take else "code" if coded else "value"),
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
    sums = averaging(dtype, frame, shares=False)
    owned = _owned(frame)
    if not _shares_rows(frame, owned) or sums["TWOFOLD"] or sums["WHOLE"]:
        return None
    blocks, arguments = _sharing(frame, owned, dtype.itemsize)
    counted = pool.divisors is not None
    return start(
        rows.mean_rows, frame, tile_of(frame, dtype.itemsize, "mean"), blocks, **arguments,
        **frame.tables("divisors", used=counted), **frame.each(k="window"), **sums, DIVISORS=counted,
        HINT=hint_of(frame, dtype.itemsize, "mean"),
    )  # fmt: skip


def _owned(frame: Frame, many: bool = False) -> tuple[int, int]:
    """How many planes and rows of windows a program owns: what fits into the registers."""
    d, h, _ = frame.axes
    planes, rows_of_windows = (1, 4) if d.count == 1 else (2, 4 if many and frame.inner == 1 else 2)
    return planes, min(rows_of_windows, _power(h.count))


def _shares_rows(frame: Frame, owned: tuple[int, int]) -> bool:
    """Whether windows share rows, and few enough of them to be written out."""
    d, h, w = frame.axes
    apart = d.window <= d.stride and h.window <= h.stride
    cut = any(axis.extent < axis.window for axis in frame.axes)
    if apart or cut or frame.dilated or not frame.uniform:
        return False
    spans = ((own - 1) * axis.stride + axis.extent for axis, own in zip((d, h), owned, strict=True))
    return math.prod(spans) * w.extent <= ROWS_WRITTEN_OUT


def _sharing(frame: Frame, owned: tuple[int, int], itemsize: int) -> tuple[list[int], dict[str, Any]]:
    """How windows share rows: the blocks of rows that programs own, and what the kernels want to know."""
    d, h, w = frame.axes
    own_d, own_h = owned
    blocks = [-(-d.count // own_d), -(-h.count // own_h), w.count]
    # Every window has a pair of elements of its own, and reaches at most into those beside it.
    pairs = frame.inner == 1 and w.stride == 2 and 2 * w.count <= w.size and w.before <= 2 and w.extent - w.before <= 4
    chunk = chunk_of(w.size, itemsize) // 2 if pairs else 0
    return blocks, frame.each(b="before") | {
        "pd": blocks[0], "ph": blocks[1], "OWN_D": own_d, "OWN_H": own_h,
        "KD": d.extent, "KH": h.extent, "KW": w.extent, "SD": d.stride, "SH": h.stride, "SW": w.stride,
        "PADDED": frame.padded, "CHUNK": chunk, "BEFORE": w.before if chunk else 0,
    }  # fmt: skip


def chunk_of(size: int, itemsize: int) -> int:
    """How many neighbours of a row a thread can load at once; 0 if they must be loaded one by one."""
    chunk = min(16 // itemsize, 8, _divisor(size))
    return chunk if chunk > 1 else 0


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
        LOWEST=lowest(dtype), EQUAL=equal, HINT=hint_of(frame, dtype.itemsize, "fused"),
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
    arguments = {"count": count, "SUM": wrapping(dtype)["SUM"], "BLOCK": SORTED, "num_warps": 4}
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
