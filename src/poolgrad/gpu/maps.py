"""The maps on CUDA tensors that are contiguous in their pool's order: which kernel, which tiles, which constants.

The methods are those of `backends.numpy.Numpy`; so are the results: the same winners to the bit, and sums in the same order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..windows import Pool
from . import gradients, sums, winners
from .frame import Frame, frame_of

Tensor = torch.Tensor

WRITTEN_OUT = 64
"""Windows of up to this many elements are written out in the kernels; larger ones are loops."""
HIGHEST_GRID = 65535
"""How long the second and third dimension of a grid may be."""
LONG_WINDOW = 2048
"""From more elements than this on, 16-bit floats are summed in float64."""

_LOWEST = {
    torch.int8: -(2**7), torch.int16: -(2**15), torch.int32: -(2**31), torch.int64: -(2**63),
    torch.uint8: 0, torch.uint16: 0, torch.uint32: 0, torch.uint64: 0,
}  # fmt: skip
_TYPES = {
    torch.float64: tl.float64, torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64,
    torch.uint8: tl.uint8, torch.uint16: tl.uint16, torch.uint32: tl.uint32, torch.uint64: tl.uint64,
}  # fmt: skip
_SIGNED = {torch.uint8: torch.int8, torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_CODES = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


class Tile(NamedTuple):
    """How much of the result a program owns, and how many warps work on it."""

    r: int
    bw: int
    bi: int
    warps: int


def _power(n: int) -> int:
    return triton.next_power_of_2(max(n, 1))


def _tile(frame: Frame, along: int, elements: int) -> Tile:
    """A tile of about `elements` elements, where the last pooled axis has `along` places."""
    bi = min(_power(frame.inner), 128) if frame.inner > 1 else 1
    bw = min(_power(along), max(elements // bi, 1), 256)
    r = min(_power(frame.outer), max(elements // (bi * bw), 1))
    return Tile(r, bw, bi, 4 if elements >= 256 else 1)


def _divisor(n: int) -> int:
    return next(power for power in (16, 4, 2, 1) if n % power == 0)


class Launch:
    """The arguments that all kernels share, for a frame and a tile."""

    def __init__(self, frame: Frame, tile: Tile, places: tuple[int, int, int]) -> None:
        self.frame, self.tile = frame, tile
        nw, ni = -(-places[2] // tile.bw), -(-frame.inner // tile.bi)
        blocks = -(-frame.outer // tile.r) * nw * ni
        flat = max(places[0], blocks) > HIGHEST_GRID
        self.grid = (places[1] * places[0] * blocks, 1, 1) if flat else (places[1], places[0], blocks)
        d, h, w = frame.axes
        one = frame.inner == 1
        align, align_out = (_divisor(w.size), _divisor(w.count)) if one else (_divisor(frame.inner), 1)
        self.sizes = {
            "outer": frame.outer, "inner": frame.inner // (1 if one else align),
            "d": d.size, "h": h.size, "w": w.size // (align if one else 1),
            "md": d.count, "mh": h.count, "mw": w.count // align_out, "nw": nw, "ni": ni,
        }  # fmt: skip
        self.shape = {
            "R": tile.r, "BW": tile.bw, "BI": tile.bi, "ALIGN": align, "ALIGN_OUT": align_out,
            "FULL": frame.inner % tile.bi == 0, "FLAT": flat, "ONE_W": nw == 1, "ONE_I": ni == 1,
            "IDX": tl.int64 if frame.wide else tl.int32, "num_warps": tile.warps,
        }  # fmt: skip

    def of_axes(self, **columns: str) -> dict[str, int]:
        """One argument per axis, such as sd, sh, sw from s="stride"."""
        return {
            letter + name: getattr(axis, column)
            for letter, column in columns.items()
            for name, axis in zip("dhw", self.frame.axes, strict=True)
        }

    def tables(self, *names: str) -> dict[str, Tensor]:
        """The tables of all axes, such as origins_d, origins_h, origins_w."""
        return {f"{n}_{a}": t for n in names for a, t in zip("dhw", self.frame.table(n), strict=True)}

    def blanks(self, filler: Tensor, *names: str) -> dict[str, Tensor]:
        """In place of tables that a kernel will not read."""
        return {f"{n}_{a}": filler for n in names for a in "dhw"}

    def looked_up(self, filler: Tensor, *names: str, when: bool) -> dict[str, Tensor]:
        return self.tables(*names) if when else self.blanks(filler, *names)


class Elements(NamedTuple):
    """What sums of a dtype are kept in."""

    sum: Any
    twofold: bool
    whole: bool

    def constants(self) -> dict[str, Any]:
        return {"SUM": self.sum, "TWOFOLD": self.twofold, "WHOLE": self.whole}


def _wrapping(dtype: torch.dtype) -> Elements:
    """Sums of gradients: short floats in float32; integers wrap."""
    if dtype.is_floating_point:
        return Elements(tl.float64 if dtype == torch.float64 else tl.float32, False, False)
    return Elements(tl.int64 if dtype.itemsize == 8 else tl.int32, False, False)


def _averaging(dtype: torch.dtype, is_long: bool, shares: bool) -> Elements:
    """Averages, or shares of them, are rounded once: from the next wider type, float64 from a pair."""
    if dtype.is_floating_point:
        short = dtype.itemsize == 2 and not is_long
        return Elements(tl.float32 if short else tl.float64, dtype == torch.float64, False)
    pair = shares or dtype.itemsize == 8
    return Elements(tl.float64 if pair else tl.int64, pair, True)


def _as_signed(tensor: Tensor) -> Tensor:
    """The same bits as signed integers, where only sums that wrap are wanted."""
    return tensor.view(_SIGNED[tensor.dtype]) if tensor.dtype in _SIGNED else tensor


def _comparing(x: Tensor, nan: str) -> dict[str, Any]:
    floating = x.dtype.is_floating_point
    lowest = -math.inf if floating else _LOWEST[x.dtype]
    compute = _TYPES.get(x.dtype, tl.float32)
    return {"COMPUTE": compute, "LOWEST": lowest, "FLOAT": floating, "IGNORE": nan == "ignore"}


def _empty(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _code_dtype(values: int) -> torch.dtype:
    return _CODES[next(size for size in (1, 2, 4, 8) if values <= 2 ** (8 * size))]


class Gpu:
    """The maps and their fusions on CUDA tensors."""

    name = "gpu"

    # -- choose, take, put --------------------------------------------------------------------------------------------

    def maximum(self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None) -> Tensor:
        """take(x, choose(x)) without storing the choice."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        self._scan(pool, x, nan, y=y)
        return y

    def choose(self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None) -> Tensor:
        """Which element of each window wins."""
        code = _empty(pool.out_shape, _code_dtype(pool.elements), x) if out is None else out
        self._scan(pool, x, nan, code=code)
        return code

    def maximum_and_choice(
        self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None, choice_out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both in one pass."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        code = _empty(pool.out_shape, _code_dtype(pool.elements), x) if choice_out is None else choice_out
        self._scan(pool, x, nan, y=y, code=code)
        return y, code

    def take(self, pool: Pool, v: Tensor, choice: Tensor, out: Tensor | None = None) -> Tensor:
        """The chosen element of each window."""
        y = _empty(pool.out_shape, v.dtype, v) if out is None else out
        self._take(frame_of(pool, v.device), _as_signed(v), choice, _as_signed(y))
        return y

    def put(self, pool: Pool, g: Tensor, choice: Tensor, out: Tensor | None = None, assign: bool = False) -> Tensor:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        frame = frame_of(pool, g.device)
        if assign:
            self._put_any(frame, "assign", _as_signed(g), _as_signed(gx), _wrapping(g.dtype), code=choice)
        else:
            self._put(frame, _as_signed(g), choice, _as_signed(gx), _wrapping(g.dtype))
        return gx

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The average of each window."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        frame = frame_of(pool, x.device)
        if y.numel() == 0:
            return y
        along = Launch(frame, _tile(frame, frame.axes[2].count, 512), tuple(a.count for a in frame.axes))  # type: ignore[arg-type]
        counted = frame.listed or frame.dilated or pool.divisors is not None
        sums.mean[along.grid](
            x, y, **along.looked_up(x, "origins", "stops", "divisors", when=counted), **along.sizes,
            **along.of_axes(s="stride", b="before", d="dilation", e="extent", k="window"), **_unrolled(frame, counted),
            **_averaging(x.dtype, frame.elements > LONG_WINDOW, shares=False).constants(), **along.shape,
            LISTED=counted, DILATED=frame.dilated,
        )  # fmt: skip
        return y

    def spread(self, pool: Pool, g: Tensor, out: Tensor | None = None) -> Tensor:
        """The transpose of mean."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        frame = frame_of(pool, g.device)
        elements = _averaging(g.dtype, frame.elements > LONG_WINDOW, shares=True)
        if _regular(frame):
            self._put_regular(frame, g, g, gx, elements, mean=True, divisors=pool.divisors is not None)
        else:
            self._put_any(frame, "mean", g, gx, elements)
        return gx

    # -- fusions ------------------------------------------------------------------------------------------------------

    def max_put(
        self,
        pool: Pool,
        x: Tensor,
        g: Tensor,
        ties: str,
        nan: str,
        equal_to: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """put(g, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives nothing."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        frame = frame_of(pool, x.device)
        if ties != "first":
            winners = self.maximum(pool, x, nan) if equal_to is None else equal_to
            self._ties_put(frame, x, winners, g, gx, ties)
        elif _regular(frame) and all(axis.window <= axis.stride for axis in frame.axes):
            self._max_put_apart(frame, x, equal_to, g, gx, nan)
        else:
            code = _empty(pool.out_shape, _code_dtype(frame.elements + 1), x)
            self._scan(pool, x, nan, equal_to=equal_to, code=code)
            self._put(frame, _as_signed(g), code, _as_signed(gx), _wrapping(g.dtype))
        return gx

    def max_take(
        self,
        pool: Pool,
        x: Tensor,
        v: Tensor,
        ties: str,
        nan: str,
        equal_to: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """take(v, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives zero."""
        y = _empty(pool.out_shape, v.dtype, v) if out is None else out
        if ties == "first":
            self._scan(pool, x, nan, equal_to=equal_to, v=v, taken=y)
        else:
            winners = self.maximum(pool, x, nan) if equal_to is None else equal_to
            self._members(frame_of(pool, x.device), x, winners, v, y, ties)
        return y

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Tensor, dtype: Any, scope: str) -> Tensor:
        """The flat index of every chosen element."""
        index = _empty(pool.out_shape, getattr(torch, str(dtype).removeprefix("torch.")), choice)
        self._take(frame_of(pool, choice.device, joined=False), choice, choice, index, index=scope)
        return index

    def index_put(self, pool: Pool, g: Tensor, index: Tensor, scope: str, out: Tensor | None = None) -> Tensor:
        """Adds g where the indices say. They may name any element of their image."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        gx.zero_()
        keys, order = torch.sort(_absolute(pool, index, scope).reshape(-1), stable=True)
        if keys.numel():
            block = 256
            gradients.segments[(-(-keys.numel() // block),)](
                keys, order, _as_signed(g).reshape(-1), _as_signed(gx), keys.numel(), SUM=_wrapping(g.dtype).sum,
                BLOCK=block,
            )  # fmt: skip
        return gx

    def index_take(self, pool: Pool, v: Tensor, index: Tensor, scope: str, out: Tensor | None = None) -> Tensor:
        """The elements of v that the indices name."""
        y = _empty(pool.out_shape, v.dtype, v) if out is None else out
        _as_signed(y).copy_(_as_signed(v).reshape(-1)[_absolute(pool, index, scope)])
        return y

    def index_fault(self, pool: Pool, index: Tensor, scope: str) -> tuple[tuple[int, ...], int] | None:
        """Where the first index outside its own image is, and what it is."""
        first, last = _image_range(pool, index, scope)
        return _fault(index, (index < first) | (index >= last))

    def choice_fault(self, pool: Pool, choice: Tensor) -> tuple[tuple[int, ...], int] | None:
        """Where the first code that names no element of its window is, and what it is."""
        wrong = _empty(pool.out_shape, torch.int8, choice)
        self._take(frame_of(pool, choice.device), choice, choice, wrong, fault=True)
        return _fault(choice, wrong.bool())

    # -- launches -----------------------------------------------------------------------------------------------------

    def _scan(
        self,
        pool: Pool,
        x: Tensor,
        nan: str,
        equal_to: Tensor | None = None,
        y: Tensor | None = None,
        code: Tensor | None = None,
        v: Tensor | None = None,
        taken: Tensor | None = None,
    ) -> None:
        frame = frame_of(pool, x.device)
        if math.prod(pool.out_shape) == 0:
            return
        along = Launch(frame, _tile(frame, frame.axes[2].count, 512), tuple(a.count for a in frame.axes))  # type: ignore[arg-type]
        given = [x if t is None else t for t in (equal_to, y, code, v, taken)]
        winners.scan[along.grid](
            x, given[0], given[1], given[2], given[3], given[4],
            **along.looked_up(x, "origins", "stops", when=frame.listed), **along.sizes,
            **along.of_axes(s="stride", b="before", d="dilation", e="extent"), **_unrolled(frame, frame.listed),
            **_comparing(x, nan), **along.shape,
            LISTED=frame.listed, DILATED=frame.dilated, EQUAL=equal_to is not None, VALUE=y is not None, CODE=code is not None,
            TAKE=taken is not None,
        )  # fmt: skip

    def _take(self, frame: Frame, v: Tensor, choice: Tensor, y: Tensor, index: str = "", fault: bool = False) -> None:
        if y.numel() == 0:
            return
        along = Launch(frame, _tile(frame, frame.axes[2].count, 512), tuple(a.count for a in frame.axes))  # type: ignore[arg-type]
        extents = {"eh": frame.axes[1].extent, "ew": frame.axes[2].extent}
        winners.take[along.grid](
            v, choice, y, **along.looked_up(v, "origins", "stops", when=frame.listed), **along.sizes,
            **along.of_axes(s="stride", b="before", d="dilation"), **extents, images=frame.images, **along.shape,
            LISTED=frame.listed, INDEX=index, FAULT=fault,
        )  # fmt: skip

    def _put(self, frame: Frame, g: Tensor, code: Tensor, gx: Tensor, elements: Elements) -> None:
        if _regular(frame):
            self._put_regular(frame, g, code, gx, elements, mean=False, divisors=False)
        else:
            self._put_any(frame, "put", g, gx, elements, code=code)

    def _put_regular(
        self, frame: Frame, g: Tensor, code: Tensor, gx: Tensor, elements: Elements, mean: bool, divisors: bool
    ) -> None:
        if gx.numel() == 0:
            return
        cells = tuple(-(-a.size // a.stride) for a in frame.axes)
        along = Launch(frame, _tile(frame, cells[2], 512), cells)  # type: ignore[arg-type]
        d, h, w = frame.axes
        phases = {"PHASE_" + n.upper(): a.before % a.stride for n, a in zip("dhw", frame.axes, strict=True)}
        gradients.put[along.grid](
            g, code, gx, **along.looked_up(g, "divisors", when=divisors), **along.sizes, pd=cells[0], ph=cells[1],
            **{"q" + n: a.before // a.stride for n, a in zip("dhw", frame.axes, strict=True)},
            **along.of_axes(b="before", k="window"), eh=h.extent, ew=w.extent,
            SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window, **phases,
            PAIRS=frame.inner == 1 and w.stride == 2, **elements.constants(), **along.shape,
            MEAN=mean, DIVISORS=divisors,
        )  # fmt: skip

    def _put_any(
        self,
        frame: Frame,
        mode: str,
        g: Tensor,
        gx: Tensor,
        elements: Elements,
        code: Tensor | None = None,
        x: Tensor | None = None,
        y: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> None:
        if gx.numel() == 0:
            return
        along = Launch(frame, _tile(frame, frame.axes[2].size, 512), tuple(a.size for a in frame.axes))  # type: ignore[arg-type]
        given = [g if t is None else t for t in (code, x, y, counts)]
        gradients.put_any[along.grid](
            g, given[0], gx, given[1], given[2], given[3],
            **along.tables("origins", "divisors", "from", "to", "stops"), **along.sizes, **along.of_axes(d="dilation"),
            eh=frame.axes[1].extent, ew=frame.axes[2].extent, **elements.constants(),
            most_w=frame.axes[2].most, **_most(frame),
            **along.shape, MODE=mode, DILATED=frame.dilated,
        )  # fmt: skip

    def _max_put_apart(self, frame: Frame, x: Tensor, equal_to: Tensor | None, g: Tensor, gx: Tensor, nan: str) -> None:
        if gx.numel() == 0:
            return
        cells = tuple(-(-(a.size + a.before) // a.stride) for a in frame.axes)
        along = Launch(frame, _tile(frame, cells[2], 512), cells)  # type: ignore[arg-type]
        d, h, w = frame.axes
        gradients.max_put[along.grid](
            x, x if equal_to is None else equal_to, _as_signed(g), _as_signed(gx), **along.sizes,
            pd=cells[0], ph=cells[1], **along.of_axes(b="before"),
            SD=d.stride, SH=h.stride, SW=w.stride, KD=d.window, KH=h.window, KW=w.window,
            PAIRS=frame.inner == 1 and w.stride == 2 and w.before == 0, PADDED=frame.padded, **_comparing(x, nan), **along.shape,
            EQUAL=equal_to is not None,
        )  # fmt: skip

    # -- ties: every element equal to y belongs to the choice ---------------------------------------------------------

    def _ties_put(self, frame: Frame, x: Tensor, y: Tensor, g: Tensor, gx: Tensor, ties: str) -> None:
        counts = None
        if ties == "split":
            counts = _empty(tuple(y.shape), torch.int64, y)
            self._count(frame, x, y, counts)
        self._put_any(frame, "split" if counts is not None else "ties", g, gx, _tied(g, ties), x=x, y=y, counts=counts)

    def _count(self, frame: Frame, x: Tensor, y: Tensor, counts: Tensor) -> None:
        self._members_kernel(frame, x, y, x, x, counts, _tied(x, "all"), count=True, split=False)

    def _members(self, frame: Frame, x: Tensor, y: Tensor, v: Tensor, out: Tensor, ties: str) -> None:
        self._members_kernel(frame, x, y, v, out, out, _tied(v, ties), count=False, split=ties == "split")

    def _members_kernel(
        self,
        frame: Frame,
        x: Tensor,
        y: Tensor,
        v: Tensor,
        sums: Tensor,
        counts: Tensor,
        elements: Elements,
        count: bool,
        split: bool,
    ) -> None:
        if y.numel() == 0:
            return
        along = Launch(frame, _tile(frame, frame.axes[2].count, 512), tuple(a.count for a in frame.axes))  # type: ignore[arg-type]
        winners.members[along.grid](
            x, y, v, sums, counts, **along.tables("origins", "stops"), **along.sizes,
            **along.of_axes(d="dilation", e="extent"), **elements.constants(), **along.shape, COUNT=count, SPLIT=split,
        )  # fmt: skip


def _regular(frame: Frame) -> bool:
    """Whether gradients can go by cells of one stride, and the cells and windows are small enough to be written out."""
    strides, windows = (math.prod(getattr(a, n) for a in frame.axes) for n in ("stride", "window"))
    return not frame.listed and not frame.dilated and max(strides, windows) <= WRITTEN_OUT and strides <= 27


def _most(frame: Frame) -> dict[str, int]:
    """How many windows may contain an element, per axis, if that is few enough to be written out."""
    most = [axis.most for axis in frame.axes]
    few = math.prod(most) <= 8
    return {f"MOST_{n}": m if few else 0 for n, m in zip("DHW", most, strict=True)}


def _unrolled(frame: Frame, listed: bool) -> dict[str, Any]:
    """The windows as constants, if they are small; and whether rows are read in pairs."""
    d, h, w = frame.axes
    small = frame.elements <= WRITTEN_OUT
    pairs = small and not listed and frame.inner == 1 and w.stride == 2 and w.dilation == 1
    extents = {"KD": d.extent, "KH": h.extent, "KW": w.extent} if small else {"KD": 0, "KH": 0, "KW": 0}
    return extents | {
        "PAIRS": pairs, "PHASE": w.before % 2 if pairs else 0, "qw": w.before // 2 if pairs else 0,
        "PADDED": frame.padded,
    }  # fmt: skip


def _tied(values: Tensor, ties: str) -> Elements:
    """Sums over tied elements wrap for integers; shares of integers are cut once, at the end."""
    shares = ties == "split" and not values.dtype.is_floating_point
    return Elements(tl.float64, True, True) if shares else _wrapping(values.dtype)


def _image_range(pool: Pool, index: Tensor, scope: str) -> tuple[Any, Any]:
    """Between which flat indices the elements of each index's own image lie."""
    image = math.prod(pool.shape) // max(pool.batch, 1)
    if scope == "spatial":
        return 0, math.prod(pool.spatial_shape)
    if scope == "image":
        return 0, image
    begin = torch.arange(pool.batch, device=index.device).reshape(-1, *[1] * (index.ndim - 1)) * image
    return begin, begin + image


def _absolute(pool: Pool, index: Tensor, scope: str) -> Tensor:
    """Indices into the whole array."""
    index = index.to(torch.int64)
    if scope == "batch":
        return index
    if scope == "image":
        return index + _image_range(pool, index, "batch")[0]
    spatial = math.prod(pool.spatial_shape)
    place = index.reshape(pool.outer, -1, pool.inner)
    rows = torch.arange(pool.outer, device=index.device)[:, None, None] * spatial
    return ((place + rows) * pool.inner + torch.arange(pool.inner, device=index.device)).reshape(index.shape)


def _fault(values: Tensor, wrong: Tensor) -> tuple[tuple[int, ...], int] | None:
    if not bool(wrong.any()):
        return None
    position = tuple(int(i) for i in wrong.nonzero()[0])
    return position, int(values[position])
