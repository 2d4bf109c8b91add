"""Tensors at the kernels: in which order their memory is walked, and who computes on it.

A tensor is computed in its physical order. Whatever dense order its axes have in memory (contiguous, channels_last,
channels_last_3d, any other that leaves the spatial axes side by side), the pooling is stated for that order, nothing is
copied, and results have the same order. Everything else is made contiguous once. CPU tensors go to the C++ kernels,
CUDA tensors to the Triton kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ...cpu import plan_of, type_codes
from ...errors import InvalidArgument, InvalidType, OutOfMemory
from ...windows import Pool
from .geometry import pool_of, shapes

Tensor: TypeAlias = torch.Tensor
Order: TypeAlias = tuple[int, ...]
"""The axes of a tensor from the slowest in memory to the quickest."""

SCOPES = {"spatial": 0, "image": 1}
"""What a flat index counts through: the spatial block of one channel, or one image."""


# ---------------------------------------------------------------------------------------------------------------------
# Orders


@lru_cache
def own_order(axes: int) -> Order:
    """The order in which the axes come."""
    return tuple(range(axes))


def order_of(x: Tensor, axis: int, axes: int) -> Order:
    """The order in which x lies in memory, if it is dense and its spatial axes lie side by side; else its own order."""
    own = own_order(x.dim())
    if x.is_contiguous():
        return own
    for order in _candidates(x.stride(), own, axis, axes):
        if x.permute(order).is_contiguous():
            return order
    return own


def _known_order_of(x: Tensor, axis: int, axes: int) -> Order:
    """The same for a tensor whose sizes are numbers, worked out once."""
    return _order(tuple(x.shape), x.stride(), axis, axes)


@lru_cache(maxsize=4096)
def _order(shape: tuple[int, ...], strides: tuple[int, ...], axis: int, axes: int) -> Order:
    return order_of(torch.empty_strided(shape, strides, device="meta"), axis, axes)


def _candidates(strides: Sequence[int], own: Order, axis: int, axes: int) -> Iterator[Order]:
    """Channels behind the spatial axes, channels in front of them, and whatever the strides say."""
    before, spatial, behind = own[:axis], own[axis : axis + axes], own[axis + axes :]
    if before:
        yield (*before[:-1], *spatial, before[-1], *behind)
    if behind:
        yield (*before, *behind, *spatial)
    sorted_order = tuple(sorted(own, key=lambda i: -strides[i]))
    first = sorted_order.index(axis)
    if sorted_order[first : first + axes] == spatial:
        yield sorted_order


def inverse(order: Order) -> Order:
    """The permutation that undoes this one."""
    return tuple(order.index(i) for i in range(len(order)))


def new(shape: Sequence[int], order: Order, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new tensor of this shape whose memory has this order. Its contents are undefined.

    It is no view of another one: a result of autograd that is a view may not be changed in place.
    """
    return torch.empty_permuted(tuple(shape), order, dtype=dtype or like.dtype, device=like.device)


def in_order(x: Tensor, order: Order) -> Tensor:
    """The tensor seen in this order, contiguous: a view if its memory has it, else a copy."""
    return (x if order == own_order(len(order)) else x.permute(order)).contiguous()


def reordered(x: Tensor, order: Order) -> Tensor:
    """The tensor in this order of memory."""
    return in_order(x, order).permute(inverse(order))


class Placed(NamedTuple):
    """A pooling placed on a tensor's memory: the device, its kernels, the pool in the memory's order, the order and the
    way back from it (None where the axes lie in their own order)."""

    device: torch.device
    on: Any
    pool: Pool
    order: Order
    back: Order | None

    def seen(self, x: Tensor | None) -> Tensor | None:
        """A tensor as the kernels take it."""
        if x is None:
            return None
        if x.device != self.device:
            raise InvalidArgument(f"tensors lie on {self.device} and on {x.device}", argument="input", given=x.device)
        if x.is_neg():
            x = x.resolve_neg()
        return (x if self.back is None else x.permute(self.order)).contiguous()

    def full(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """A new tensor shaped like the input of the pooling, and how the kernels see it."""
        return self._new(self.pool.shape, like, None)

    def pooled(self, like: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """A new tensor shaped like the result of the pooling, and how the kernels see it."""
        return self._new(self.pool.out_shape, like, dtype)

    def _new(self, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
        if self.back is None:
            made = like.new_empty(shape, dtype=dtype)
            return made, made
        made = new([shape[i] for i in self.back], self.order, like, dtype)
        return made, made.permute(self.order)


def place(geometry: Sequence[int], x: Tensor, pooled: bool, keep_order: bool = False) -> tuple[Placed, list[int]]:
    """The pooling on x, which has the result's shape if `pooled`, and the shape at the other end.

    With `keep_order` the memory is walked in the order of the axes, which flat indices into an image need.
    """
    _code(x)
    order = None if keep_order or x.is_contiguous() else _known_order_of(x, geometry[1], geometry[2])
    pool, order, back, shape = _planned(tuple(geometry), tuple(x.shape), order, pooled)
    return Placed(x.device, kernels_for(x), pool, order, back), shape


@lru_cache(maxsize=4096)
def _planned(
    geometry: tuple[int, ...], shape: tuple[int, ...], order: Order | None, pooled: bool
) -> tuple[Pool, Order, Order | None, list[int]]:
    full, result = shapes(geometry, shape, pooled)
    own = own_order(len(shape))
    order = own if order is None else order
    pool = pool_of(geometry, tuple(full[i] for i in order), order.index(geometry[1]))
    return pool, order, None if order == own else inverse(order), full if pooled else result


# ---------------------------------------------------------------------------------------------------------------------
# Kernels


def kernels_for(x: Tensor) -> Any:
    """What computes on this tensor's device."""
    if x.is_cuda or interpreted:
        return _gpu()
    if x.is_cpu:
        return _cpu
    raise InvalidArgument(f"there are no kernels for device {x.device}; there are for cpu and cuda", argument="input")


@lru_cache
def _gpu() -> Any:
    from ...gpu import Gpu

    return Gpu()


interpreted = os.environ.get("TRITON_INTERPRET") == "1" and os.environ.get("POOLGRAD_INTERPRET") == "1"
"""Whether CPU tensors go to the Triton kernels, in Triton's interpreter. For tests."""


@lru_cache
def torch_dtype(dtype: np.dtype[Any] | str) -> torch.dtype:
    """PyTorch's dtype of this name, or for a dtype of NumPy."""
    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype):
        raise InvalidType(f"PyTorch has no dtype {dtype}")
    return found


_CODES = {torch_dtype(name): code for name, code in type_codes.items()}


def _array(x: Tensor | None) -> Any:
    """The same memory as an array; NumPy has no bfloat16, and the kernels only want to know where the bits are."""
    if x is None:
        return None
    if x.requires_grad:
        x = x.detach()
    return x.view(torch.int16).numpy() if x.dtype is torch.bfloat16 else x.numpy()


def _code(x: Tensor) -> int:
    """The kernels' number for the dtype; other dtypes are refused."""
    try:
        return _CODES[x.dtype]
    except KeyError:
        known = ", ".join(type_codes)
        raise InvalidType(f"input has dtype {x.dtype}, expected one of {known}", argument="input") from None


def _run(operation: Callable[..., bool | None], *arguments: Any) -> None:
    try:
        ran = operation(*arguments)
    except MemoryError:
        raise OutOfMemory("not enough memory for the intermediate arrays") from None
    if ran is False:
        raise InvalidArgument("the kernels cannot follow these strides", argument="input")


class Cpu:
    """The C++ kernels on tensors that are contiguous in the pool's order. The methods are those of `numpy.Numpy`."""

    def maximum(self, pool: Pool, x: Tensor, nan: str, out: Tensor) -> None:
        """take(x, choose(x)) without storing the choice."""
        _run(plan_of(pool).maximum, _code(x), _array(x), _array(out), None, nan == "ignore")

    def choose(self, pool: Pool, x: Tensor, nan: str, out: Tensor) -> None:
        """Which element of each window wins."""
        _run(plan_of(pool).maximum, _code(x), _array(x), None, _array(out), nan == "ignore")

    def maximum_and_choice(self, pool: Pool, x: Tensor, nan: str, out: Tensor, choice_out: Tensor) -> None:
        """Both in one pass."""
        _run(plan_of(pool).maximum, _code(x), _array(x), _array(out), _array(choice_out), nan == "ignore")

    def take(self, pool: Pool, v: Tensor, choice: Tensor, out: Tensor) -> None:
        """The chosen element of each window."""
        _run(plan_of(pool).take, _code(v), _array(v), _array(choice), _array(out))

    def put(self, pool: Pool, g: Tensor, choice: Tensor, out: Tensor, assign: bool = False) -> None:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        _run(plan_of(pool).put, _code(g), _array(g), _array(choice), _array(out), assign)

    def mean(self, pool: Pool, x: Tensor, out: Tensor) -> None:
        """The average of each window."""
        _run(plan_of(pool).mean, _code(x), _array(x), _array(out))

    def spread(self, pool: Pool, g: Tensor, out: Tensor) -> None:
        """The transpose of mean."""
        _run(plan_of(pool).spread, _code(g), _array(g), _array(out))

    def max_put(
        self, pool: Pool, x: Tensor, g: Tensor, ties: str, nan: str, equal_to: Tensor | None, out: Tensor
    ) -> None:
        """put(g, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives nothing."""
        plan, code = plan_of(pool), _code(x)
        if ties == "first":
            _run(plan.max_put, code, _array(x), _array(g), _array(equal_to), _array(out), nan == "ignore")
        else:
            winners = self._winners(pool, x, nan, equal_to)
            _run(plan.ties_put, code, _array(x), _array(winners), _array(g), _array(out), ties == "split")

    def max_take(
        self, pool: Pool, x: Tensor, v: Tensor, ties: str, nan: str, equal_to: Tensor | None, out: Tensor
    ) -> None:
        """take(v, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives zero."""
        plan, code = plan_of(pool), _code(x)
        if ties == "first":
            _run(plan.max_take, code, _array(x), _array(v), _array(equal_to), _array(out), nan == "ignore")
        else:
            winners = self._winners(pool, x, nan, equal_to)
            _run(plan.ties_take, code, _array(x), _array(winners), _array(v), _array(out), ties == "split")

    def choice_to_index(self, pool: Pool, choice: Tensor, dtype: Any, scope: str) -> Tensor:
        """The flat index of every chosen element."""
        index = torch.empty(pool.out_shape, dtype=torch_dtype(np.dtype(dtype)))
        _run(plan_of(pool).code_to_index, _array(choice), SCOPES[scope], _array(index))
        return index

    def index_put(self, pool: Pool, g: Tensor, index: Tensor, scope: str, out: Tensor) -> None:
        """Adds g where the indices say."""
        _run(plan_of(pool).index_put, _code(g), _array(g), _array(index), SCOPES[scope], _array(out))

    def index_take(self, pool: Pool, v: Tensor, index: Tensor, scope: str, out: Tensor) -> None:
        """The elements of v that the indices name."""
        _run(plan_of(pool).index_take, _code(v), _array(v), _array(index), SCOPES[scope], _array(out))

    def index_fault(self, pool: Pool, index: Tensor, scope: str) -> tuple[tuple[int, ...], int] | None:
        """Where the first index outside its own image is, and what it is."""
        return _fault(index, plan_of(pool).find_bad_index(_array(index), SCOPES[scope]))

    def choice_fault(self, pool: Pool, choice: Tensor) -> tuple[tuple[int, ...], int] | None:
        """Where the first code that names no element of its window is, and what it is."""
        return _fault(choice, plan_of(pool).find_bad_code(_array(choice)))

    def _winners(self, pool: Pool, x: Tensor, nan: str, equal_to: Tensor | None) -> Tensor:
        if equal_to is not None:
            return equal_to
        winners = torch.empty(pool.out_shape, dtype=x.dtype)
        self.maximum(pool, x, nan, winners)
        return winners


_cpu = Cpu()


def _fault(values: Tensor, at: int) -> tuple[tuple[int, ...], int] | None:
    if at < 0:
        return None
    position = tuple(int(i) for i in np.unravel_index(at, values.shape))
    return position, int(values[position].item())
