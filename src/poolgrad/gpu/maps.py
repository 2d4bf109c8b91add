"""The maps on CUDA tensors that are contiguous in their pool's order.

The methods are those of `backends.numpy.Numpy`, and so are the results: the same winners to the bit, sums in the same
order. Which kernel a map is depends on its windows; how it is started says `launch`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..windows import Pool
from . import launch, listed

Tensor = torch.Tensor

_SIGNED = {torch.uint8: torch.int8, torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_CODES = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


class Gpu:
    """The maps and their fusions on CUDA tensors."""

    name = "gpu"

    # -- choose, take, put --------------------------------------------------------------------------------------------

    def maximum(self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None) -> Tensor:
        """take(x, choose(x)) without storing the choice."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        _scan(pool, x, nan, y=y)
        return y

    def choose(self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None) -> Tensor:
        """Which element of each window wins."""
        code = _empty(pool.out_shape, _code_dtype(pool.elements), x) if out is None else out
        _scan(pool, x, nan, code=code)
        return code

    def maximum_and_choice(
        self, pool: Pool, x: Tensor, nan: str, out: Tensor | None = None, choice_out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both in one pass."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        code = _empty(pool.out_shape, _code_dtype(pool.elements), x) if choice_out is None else choice_out
        _scan(pool, x, nan, y=y, code=code)
        return y, code

    def take(self, pool: Pool, v: Tensor, choice: Tensor, out: Tensor | None = None) -> Tensor:
        """The chosen element of each window."""
        y = _empty(pool.out_shape, v.dtype, v) if out is None else out
        _take(pool, _as_signed(v), choice, _as_signed(y))
        return y

    def put(self, pool: Pool, g: Tensor, choice: Tensor, out: Tensor | None = None, assign: bool = False) -> Tensor:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        if not g.numel():
            _clear(gx)
        elif assign:
            _put_any(pool, "assign", _as_signed(g), _as_signed(gx), code=choice)
        else:
            _put(pool, _as_signed(g), choice, _as_signed(gx))
        return gx

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The average of each window."""
        y = _empty(pool.out_shape, x.dtype, x) if out is None else out
        if y.numel():
            by_rows = launch.mean_rows(pool, x.device, x.dtype)
            (launch.mean(pool, x.device, x.dtype) if by_rows is None else by_rows)(x, y)
        return y

    def spread(self, pool: Pool, g: Tensor, out: Tensor | None = None) -> Tensor:
        """The transpose of mean."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        if not g.numel():
            _clear(gx)
        elif not launch.goes_by_cells(pool, g.device):
            _put_any(pool, "mean", g, gx)
        elif gx.numel():
            launch.put_regular(pool, g.device, g.dtype, averages=True)(g, g, gx)
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
        if not g.numel():
            _clear(gx)
        elif ties != "first":
            winning = self.maximum(pool, x, nan) if equal_to is None else equal_to
            _ties_put(pool, x, winning, g, gx, ties)
        elif launch.goes_by_cells(pool, x.device) and launch.are_apart(pool, x.device):
            if gx.numel():
                fused = launch.max_put(pool, x.device, x.dtype, nan, equal_to is not None)
                fused(x, _or(equal_to, x), _as_signed(g), _as_signed(gx))
        elif equal_to is None and nan == "propagate" and _walk(pool, x, g=g, gx=gx):
            pass
        else:
            code = _empty(pool.out_shape, _code_dtype(pool.elements + 1), x)  # one more: no winner
            _scan(pool, x, nan, equal_to=equal_to, code=code)
            _put(pool, _as_signed(g), code, _as_signed(gx))
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
            _scan(pool, x, nan, equal_to=equal_to, v=v, taken=y)
        else:
            winning = self.maximum(pool, x, nan) if equal_to is None else equal_to
            _members(pool, x, winning, v, y, y, ties, count=False)
        return y

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Tensor, dtype: Any, scope: str) -> Tensor:
        """The flat index of every chosen element."""
        index = _empty(pool.out_shape, getattr(torch, str(dtype).removeprefix("torch.")), choice)
        _take(pool, choice, choice, index, index=scope)
        return index

    def index_put(self, pool: Pool, g: Tensor, index: Tensor, scope: str, out: Tensor | None = None) -> Tensor:
        """Adds g where the indices say. They may name any element of their image."""
        gx = _empty(pool.shape, g.dtype, g) if out is None else out
        _clear(gx)
        keys, order = torch.sort(_absolute(pool, index, scope).reshape(-1), stable=True)
        if keys.numel():
            launch.segments(keys.numel(), g.dtype)(keys, order, _as_signed(g).reshape(-1), _as_signed(gx))
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
        _take(pool, choice, choice, wrong, fault=True)
        return _fault(choice, wrong.bool())


# ---------------------------------------------------------------------------------------------------------------------
# Starting kernels


def _scan(
    pool: Pool,
    x: Tensor,
    nan: str,
    equal_to: Tensor | None = None,
    y: Tensor | None = None,
    code: Tensor | None = None,
    v: Tensor | None = None,
    taken: Tensor | None = None,
) -> None:
    if math.prod(pool.out_shape):
        if equal_to is None and taken is None and nan == "propagate" and _walk(pool, x, y=y, code=code):
            return
        wanted = (y is not None, code is not None, taken is not None)
        by_rows = launch.scan_rows(pool, x.device, x.dtype, nan, *wanted) if equal_to is None else None
        if by_rows is not None:
            by_rows(x, _or(y, x), _or(code, x), _or(v, x), _or(taken, x))
            return
        scan = launch.scan(pool, x.device, x.dtype, nan, equal_to is not None, *wanted)
        scan(x, _or(equal_to, x), _or(y, x), _or(code, x), _or(v, x), _or(taken, x))


def _walk(
    pool: Pool,
    x: Tensor,
    y: Tensor | None = None,
    code: Tensor | None = None,
    g: Tensor | None = None,
    gx: Tensor | None = None,
) -> bool:
    """Winners, or all of their gradient, in CUDA C++ if these windows are for it."""
    if gx is not None:
        y, wanted = gx, listed.PUT
    else:
        wanted = (listed.VALUE if y is not None else 0) + (listed.CODE if code is not None else 0)
    if not _or(g, x).dtype == _or(y, x).dtype == x.dtype:
        return False
    aligned = x.data_ptr() % 16 == 0 and _or(y, x).data_ptr() % 16 == 0
    walk = listed.walk(pool, x.device, x.dtype, wanted, aligned)
    if walk is not None:
        walk(x, _or(g, x), _or(y, x), _or(code, x))
    return walk is not None


def _take(pool: Pool, v: Tensor, choice: Tensor, y: Tensor, index: str = "", fault: bool = False) -> None:
    if y.numel():
        launch.take(pool, v.device, v.dtype.itemsize, index, fault)(v, choice, y)


def _put(pool: Pool, g: Tensor, code: Tensor, gx: Tensor) -> None:
    if not launch.goes_by_cells(pool, g.device):
        _put_any(pool, "put", g, gx, code=code)
    elif gx.numel():
        launch.put_regular(pool, g.device, g.dtype, averages=False)(g, code, gx)


def _put_any(
    pool: Pool,
    mode: str,
    g: Tensor,
    gx: Tensor,
    code: Tensor | None = None,
    x: Tensor | None = None,
    y: Tensor | None = None,
    counts: Tensor | None = None,
) -> None:
    if not gx.numel():
        return
    by_rows = launch.put_listed(pool, g.device, g.dtype, mode == "mean") if mode in ("put", "mean") else None
    if by_rows is not None:
        by_rows(g, _or(code, g), gx)
    else:
        put = launch.put_any(pool, g.device, g.dtype, mode)
        put(g, _or(code, g), gx, _or(x, g), _or(y, g), _or(counts, g))


def _ties_put(pool: Pool, x: Tensor, y: Tensor, g: Tensor, gx: Tensor, ties: str) -> None:
    counts = None
    if ties == "split":
        counts = _empty(tuple(y.shape), torch.int64, y)
        _members(pool, x, y, x, counts, counts, "all", count=True)
    _put_any(pool, "ties" if counts is None else "split", g, gx, x=x, y=y, counts=counts)


def _members(
    pool: Pool, x: Tensor, y: Tensor, v: Tensor, total: Tensor, counts: Tensor, ties: str, count: bool
) -> None:
    if y.numel():
        launch.members(pool, x.device, v.dtype, ties, count)(x, y, v, total, counts)


def _or(tensor: Tensor | None, otherwise: Tensor) -> Tensor:
    """In the place of an array that the kernel will not look at, another one."""
    return otherwise if tensor is None else tensor


def _empty(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _clear(gx: Tensor) -> None:
    """Where no window fits there is no gradient, and kernels that look for the nearest window would find none."""
    _as_signed(gx).zero_()


def _code_dtype(values: int) -> torch.dtype:
    return _CODES[next(size for size in (1, 2, 4, 8) if values <= 2 ** (8 * size))]


def _as_signed(tensor: Tensor) -> Tensor:
    """The same bits as signed integers, where only sums that wrap are wanted."""
    return tensor.view(_SIGNED[tensor.dtype]) if tensor.dtype in _SIGNED else tensor


# ---------------------------------------------------------------------------------------------------------------------
# Indices


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
        return torch.add(index, _image_range(pool, index, "batch")[0])
    spatial = math.prod(pool.spatial_shape)
    rows = torch.arange(pool.outer, device=index.device)[:, None, None] * spatial
    channels = torch.arange(pool.inner, device=index.device)
    count = math.prod(windows.count for windows in pool.windows)  # -1 would not be known where nothing is pooled
    places = torch.add(index.reshape(pool.outer, count, pool.inner), rows) * pool.inner
    return torch.add(places, channels).reshape(index.shape)


def _fault(values: Tensor, wrong: Tensor) -> tuple[tuple[int, ...], int] | None:
    if not bool(wrong.any()):
        return None
    position = tuple(int(i) for i in wrong.nonzero()[0])
    return position, int(values[position])
