"""The maps and their fusions as operators of PyTorch, `torch.ops.poolgrad.*`.

Two kinds of operator cover everything. A linear one has its linear argument first and is described by five things in a
fixed order: schema, shape (what it gives for tensors without data), kernel, transpose, and batching, which is the same
for all: one more leading axis. Its derivative along a tangent is the operator itself and its gradient is its transpose,
so every order of derivative, forward and backward, is again an operator of this file. A maximum is linear as soon as it
is known who won: its derivatives are `take` and `put` with the choice, which is all that it keeps (one byte for each
result up to windows of 256 elements), or `max_take` and `max_put` where several may win.

The autograd formulas are registered for the autograd dispatch key, below PyTorch's function transforms and compiler, so
that one formula serves `backward`, `torch.func`, forward mode and `torch.compile` alike. Nothing here is random, atomic
or dependent on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, is_grad_enabled
from torch._C import (
    _any_requires_grad,
    _dispatch_keys,
    _dispatch_tls_is_dispatch_key_excluded,
    _dispatch_tls_local_include_set,
    _len_torch_function_stack,
)
from torch._C._autograd import _profiler_enabled
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.nn import Parameter

from ...errors import InvalidArgument
from ...policy import NANS, TIES, resolve
from .geometry import choice_dtype, deeper, shapes
from .kernels import SCOPES, Order, Placed, new, order_of, own_order, place, reordered, torch_dtype

Geometry: TypeAlias = Sequence[int]
Kernel: TypeAlias = Callable[..., Any]
_R = TypeVar("_R")

_library: Final[Any] = torch.library.Library("poolgrad", "DEF")  # type: ignore[no-untyped-call]
_TAGS: Final = tuple(getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_fixed_stride_order"))


# ---------------------------------------------------------------------------------------------------------------------
# Registration


_KEY: Final = torch._C.DispatchKey


def _keys(*names: str) -> Any:
    keys = torch._C.DispatchKeySet(getattr(_KEY, names[0]))
    for name in names[1:]:
        keys = keys.add(getattr(_KEY, name))
    return keys


_ORDINARY: Final = tuple(
    _keys(device, f"Autocast{device}", *recorded)
    for device in ("CPU", "CUDA")
    for recorded in ((f"Autograd{device}", "ADInplaceOrView"), ())
)
"""What PyTorch has to do for a tensor that is nothing but numbers: outside inference mode, inside."""

_QUIET: Final = (_keys("BackendSelect", "ADInplaceOrView"), _keys("BackendSelect"))
"""What PyTorch has to do for any call while no transform, mode or tracer looks on: outside inference mode, inside."""


class Operator(Generic[_R]):
    """An operator of PyTorch. Calling it calls PyTorch's `op`, or, where that would come to the same, what `op` would
    call in the end: the way there takes longer than a small pooling.

    It comes to the same if the tensors are ordinary ones (no subclass, nothing that stands for a tensor) and
    nobody looks on: no transform, mode, tracer, profiler or compiler.
    """

    __slots__ = ("function", "kernel", "op")

    def __init__(self, op: Any, kernel: Kernel) -> None:
        self.op = op
        self.kernel = kernel
        self.function: Any = None

    def __call__(self, *args: Any) -> _R:
        call: Callable[..., _R] = self.kernel
        if torch.compiler.is_compiling() or not _unwatched(args):
            call = self.op
        elif self.function is not None and _records(args):
            return self.function.apply(None, *args)  # type: ignore[no-any-return]
        return call(*args)


_PLAIN: Final = frozenset({list, tuple, str, bool, int, type(None)})


def _unwatched(args: Sequence[Any]) -> bool:
    for arg in args:
        kind = type(arg)
        if kind is Tensor or kind is Parameter:
            if _dispatch_keys(arg) not in _ORDINARY:
                return False
        elif kind not in _PLAIN:
            return False
    return (
        _dispatch_tls_local_include_set() in _QUIET
        and _len_torch_function_stack() == 0
        and forward_ad._current_level < 0
        and not _profiler_enabled()
    )


def _records(args: Sequence[Any]) -> bool:
    """Whether autograd records an unwatched call. In inference mode, and inside the kernels of other operators, it does
    not, whatever else is switched on."""
    return (
        is_grad_enabled()
        and _any_requires_grad(*args)
        and not _dispatch_tls_is_dispatch_key_excluded(_KEY.AutogradFunctionality)
    )


def _define(schema: str, kernel: Kernel, fake: Kernel, batching: Kernel) -> Operator[Any]:
    """A new operator without a derivative yet."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=_TAGS)
    op = getattr(torch.ops.poolgrad, name).default
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"poolgrad::{name}", fake, lib=_library)
    torch.library.register_vmap(f"poolgrad::{name}", _batched(op, batching), lib=_library)
    return Operator(op, kernel)


def _batched(op: Any, names: Kernel) -> Kernel:
    """The rule for one more axis: all tensors get it in front, and the geometry is told."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        moved = [
            _in_front(arg, dim, info.batch_size) if isinstance(arg, Tensor) else arg
            for arg, dim in zip(args, in_dims, strict=True)
        ]
        result = op(*names(*moved))
        return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0

    return rule


def _in_front(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.movedim(dim, 0) if dim is not None else x.expand(size, *x.shape)


def _differentiate(operator: Operator[Any], function: Any) -> None:
    """Registers the derivatives that `function` states.

    The formula runs where PyTorch has already taken nested transforms apart, so it deals with a single level.
    """

    def formula(keyset: Any, *args: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            with enable_single_level_autograd_function():
                return function.apply(keyset, *args)
        if is_grad_enabled() and _any_requires_grad(*args):
            return function.apply(keyset, *args)
        if forward_ad._current_level >= 0:
            return function.apply(keyset, *args)
        return _below(operator, keyset, args)

    _library.impl(operator.op._opname, formula, "Autograd", with_keyset=True)
    operator.function = function


def _below(operator: Operator[Any], keyset: Any, args: Sequence[Any]) -> Any:
    """The operator without its derivative. There is no keyset where PyTorch's dispatcher was not asked."""
    if keyset is None:
        return operator.kernel(*args)
    with torch._C._AutoDispatchBelowAutograd(), _other_levels():
        return operator.op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


def _other_levels() -> AbstractContextManager[Any]:
    """What is below autograd on one level of nested transforms is still recorded on the others, in both modes."""
    if torch._C._are_functorch_transforms_active():
        return _recording()
    return nullcontext()


@contextmanager
def _recording() -> Iterator[None]:
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


def _linear(op: Operator[Any], transpose: Operator[Any]) -> None:
    """States that `op` is linear in its first argument, and what its transpose is. All other arguments are fixed."""

    class Linear(_SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, keyset: Any, x: Tensor, *fixed: Any) -> Any:
            tensors = [arg for arg in fixed if isinstance(arg, Tensor)]
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)
            ctx.fixed = [None if isinstance(arg, Tensor) else arg for arg in fixed]
            ctx.places = [i for i, arg in enumerate(fixed) if isinstance(arg, Tensor)]
            result = _below(op, keyset, (x, *fixed))
            ctx.order = _order(result, _geometry(fixed))
            return result

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            # An expanded gradient has no order of its own; the result should have that of the pooled tensor.
            g = g if _order(g, _geometry(ctx.fixed)) == ctx.order else reordered(g, ctx.order)
            return (None, transpose(g, *_fixed(ctx)), *(None for _ in ctx.fixed))

        @staticmethod
        def jvp(ctx: Any, _: Any, tangent: Tensor | None, *__: Any) -> Any:
            return None if tangent is None else op(tangent, *_fixed(ctx))

    Linear.__name__ = Linear.__qualname__ = f"poolgrad_{op.op._opname}"
    _differentiate(op, Linear)


def _fixed(ctx: Any) -> list[Any]:
    fixed = list(ctx.fixed)
    for place_, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
        fixed[place_] = tensor
    return fixed


def _geometry(fixed: Sequence[Any]) -> Geometry:
    found: Geometry = next(arg for arg in fixed if isinstance(arg, list | tuple))
    return found


def _order(x: Tensor, geometry: Geometry) -> Order:
    return order_of(x, geometry[1], geometry[2])


def _empty(x: Tensor, geometry: Geometry, pooled: bool, dtype: torch.dtype | None = None) -> Tensor:
    """What comes out at the other end of a pooling, in the order of x, without contents."""
    full, result = shapes(geometry, x.shape, pooled)
    return new(full if pooled else result, _order(x, geometry), x, dtype)


# ---------------------------------------------------------------------------------------------------------------------
# mean, spread


def _mean(x: Tensor, geometry: Geometry) -> Tensor:
    placed, _ = place(geometry, x, pooled=False)
    y, seen = placed.pooled(x)
    placed.on.mean(placed.pool, placed.seen(x), out=seen)
    return y


def _spread(g: Tensor, geometry: Geometry) -> Tensor:
    placed, _ = place(geometry, g, pooled=True)
    gx, seen = placed.full(g)
    placed.on.spread(placed.pool, placed.seen(g), out=seen)
    return gx


mean: Operator[Tensor] = _define(
    "mean(Tensor x, SymInt[] geometry) -> Tensor",
    _mean,
    lambda x, geometry: _empty(x, geometry, pooled=False),
    lambda x, geometry: (x, deeper(geometry)),
)
spread: Operator[Tensor] = _define(
    "spread(Tensor g, SymInt[] geometry) -> Tensor",
    _spread,
    lambda g, geometry: _empty(g, geometry, pooled=True),
    lambda g, geometry: (g, deeper(geometry)),
)
_linear(mean, transpose=spread)
_linear(spread, transpose=mean)


# ---------------------------------------------------------------------------------------------------------------------
# take, put


def _take(v: Tensor, choice: Tensor, geometry: Geometry) -> Tensor:
    placed, shape = place(geometry, v, pooled=False)
    _expect_choice(choice, placed.pool.choice_dtype, shape)
    y, seen = placed.pooled(v)
    placed.on.take(placed.pool, placed.seen(v), placed.seen(choice), out=seen)
    return y


def _put(g: Tensor, choice: Tensor, geometry: Geometry, assign: bool = False) -> Tensor:
    placed, _ = place(geometry, choice, pooled=True)
    _expect_choice(choice, placed.pool.choice_dtype, g.shape)
    gx, seen = placed.full(g)
    placed.on.put(placed.pool, placed.seen(g), placed.seen(choice), out=seen, assign=assign)
    return gx


def _expect_choice(choice: Tensor, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    if choice.dtype is not torch_dtype(dtype) or list(choice.shape) != list(shape):
        given = f"{choice.dtype} of shape {tuple(choice.shape)}"
        raise InvalidArgument(f"choice is {given}, expected {dtype} of shape {tuple(shape)}", argument="choice")


take: Operator[Tensor] = _define(
    "take(Tensor v, Tensor choice, SymInt[] geometry) -> Tensor",
    _take,
    lambda v, choice, geometry: _empty(v, geometry, pooled=False),
    lambda v, choice, geometry: (v, choice, deeper(geometry)),
)
put: Operator[Tensor] = _define(
    "put(Tensor g, Tensor choice, SymInt[] geometry) -> Tensor",
    _put,
    lambda g, choice, geometry: _empty(choice, geometry, pooled=True, dtype=g.dtype),
    lambda g, choice, geometry: (g, choice, deeper(geometry)),
)
_linear(take, transpose=put)
_linear(put, transpose=take)


def put_last(g: Tensor, choice: Tensor, geometry: Geometry) -> Tensor:
    """put, but of several windows that chose the same element the last one sets it."""
    ids = torch.arange(1, g.numel() + 1, device=g.device).reshape(g.shape)
    last = _take(_put(ids, choice, geometry, assign=True), choice, geometry) == ids
    return put(g.where(last, 0), choice, geometry)


# ---------------------------------------------------------------------------------------------------------------------
# maxima


def _maximum(x: Tensor, geometry: Geometry, ties: str, nan: str) -> Tensor:
    _expect_words(ties, nan)
    placed, _ = place(geometry, x, pooled=False)
    y, seen = placed.pooled(x)
    placed.on.maximum(placed.pool, placed.seen(x), nan, out=seen)
    return y


def _maximum_and_choice(x: Tensor, geometry: Geometry, nan: str) -> tuple[Tensor, Tensor]:
    _expect_words("first", nan)
    placed, _ = place(geometry, x, pooled=False)
    y, seen = placed.pooled(x)
    choice, seen_choice = placed.pooled(x, torch_dtype(placed.pool.choice_dtype))
    placed.on.maximum_and_choice(placed.pool, placed.seen(x), nan, out=seen, choice_out=seen_choice)
    return y, choice


def _fake_maximum_and_choice(x: Tensor, geometry: Geometry, nan: str) -> tuple[Tensor, Tensor]:
    dtype = torch_dtype(choice_dtype(geometry))
    return _empty(x, geometry, pooled=False), _empty(x, geometry, pooled=False, dtype=dtype)


def _expect_words(ties: str, nan: str) -> None:
    if not (ties in TIES and nan in NANS):
        resolve(ties, nan)  # says what is wrong


maximum: Operator[Tensor] = _define(
    "maximum(Tensor x, SymInt[] geometry, str ties, str nan) -> Tensor",
    _maximum,
    lambda x, geometry, ties, nan: _empty(x, geometry, pooled=False),
    lambda x, geometry, ties, nan: (x, deeper(geometry), ties, nan),
)
maximum_and_choice: Operator[tuple[Tensor, Tensor]] = _define(
    "maximum_and_choice(Tensor x, SymInt[] geometry, str nan) -> (Tensor, Tensor)",
    _maximum_and_choice,
    _fake_maximum_and_choice,
    lambda x, geometry, nan: (x, deeper(geometry), nan),
)


class _Maximum(_SingleLevelFunction):
    """Keeps the choice and forgets x; where several elements may win it keeps x."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Tensor, geometry: Geometry, ties: str, nan: str) -> Tensor:
        ctx.geometry, ctx.ties, ctx.nan = geometry, ties, nan
        if ties == "first":
            y, kept = _with_choice(keyset, x, geometry, nan)
        else:
            y, kept = _below(maximum, keyset, (x, geometry, ties, nan)), x
        ctx.save_for_backward(kept)
        ctx.save_for_forward(kept)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (kept,) = ctx.saved_tensors
        if ctx.ties == "first":
            return None, put(g, kept, ctx.geometry), None, None, None
        return None, max_put(g, kept.detach(), None, ctx.geometry, ctx.ties, ctx.nan), None, None, None

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent: Tensor | None, *__: Any) -> Any:
        (kept,) = ctx.saved_tensors
        if tangent is None:
            return None
        if ctx.ties == "first":
            return take(tangent, kept, ctx.geometry)
        return max_take(tangent, kept.detach(), None, ctx.geometry, ctx.ties, ctx.nan)


def _with_choice(keyset: Any, x: Tensor, geometry: Geometry, nan: str) -> tuple[Tensor, Tensor]:
    """Another operator than the one that was called: PyTorch's dispatcher begins anew, below autograd."""
    found: tuple[Tensor, Tensor]
    if keyset is None:
        found = maximum_and_choice.kernel(x, geometry, nan)
        return found
    with torch._C._AutoDispatchBelowAutograd(), _other_levels():
        found = maximum_and_choice.op(x, geometry, nan)
    return found


class _MaximumAndChoice(_SingleLevelFunction):
    """The same with the choice as a second result, which does not move."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Tensor, geometry: Geometry, nan: str) -> tuple[Tensor, Tensor]:
        y, choice = _below(maximum_and_choice, keyset, (x, geometry, nan))
        ctx.geometry = geometry
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(choice)
        ctx.save_for_backward(choice)
        ctx.save_for_forward(choice)
        return y, choice

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any) -> Any:
        (choice,) = ctx.saved_tensors
        return None, None if g is None else put(g, choice, ctx.geometry), None, None

    @staticmethod
    def jvp(ctx: Any, _: Any, tangent: Tensor | None, *__: Any) -> Any:
        (choice,) = ctx.saved_tensors
        return None if tangent is None else take(tangent, choice, ctx.geometry), None


_differentiate(maximum, _Maximum)
_differentiate(maximum_and_choice, _MaximumAndChoice)


# ---------------------------------------------------------------------------------------------------------------------
# max_take, max_put: take and put, with the winners found in x


def _max_take(v: Tensor, x: Tensor, equal_to: Tensor | None, geometry: Geometry, ties: str, nan: str) -> Tensor:
    placed, shape = place(geometry, x, pooled=False)
    _expect_alike(x, ties, nan, (v, x.shape), (equal_to, shape))
    y, seen = placed.pooled(v)
    wanted = placed.seen(equal_to)
    placed.on.max_take(placed.pool, placed.seen(x), placed.seen(v), ties, nan, equal_to=wanted, out=seen)
    return y


def _max_put(g: Tensor, x: Tensor, equal_to: Tensor | None, geometry: Geometry, ties: str, nan: str) -> Tensor:
    placed, shape = place(geometry, x, pooled=False)
    _expect_alike(x, ties, nan, (g, shape), (equal_to, shape))
    gx, seen = placed.full(g)
    wanted = placed.seen(equal_to)
    placed.on.max_put(placed.pool, placed.seen(x), placed.seen(g), ties, nan, equal_to=wanted, out=seen)
    return gx


def _expect_alike(x: Tensor, ties: str, nan: str, *others: tuple[Tensor | None, Sequence[int]]) -> None:
    _expect_words(ties, nan)
    for other, shape in others:
        if other is not None and (other.dtype is not x.dtype or list(other.shape) != list(shape)):
            given = f"{other.dtype} of shape {tuple(other.shape)}"
            raise InvalidArgument(f"a tensor is {given}, expected {x.dtype} of shape {tuple(shape)}", argument="x")


max_take: Operator[Tensor] = _define(
    "max_take(Tensor v, Tensor x, Tensor? equal_to, SymInt[] geometry, str ties, str nan) -> Tensor",
    _max_take,
    lambda v, x, equal_to, geometry, ties, nan: _empty(x, geometry, pooled=False, dtype=v.dtype),
    lambda v, x, equal_to, geometry, ties, nan: (v, x, equal_to, deeper(geometry), ties, nan),
)
max_put: Operator[Tensor] = _define(
    "max_put(Tensor g, Tensor x, Tensor? equal_to, SymInt[] geometry, str ties, str nan) -> Tensor",
    _max_put,
    lambda g, x, equal_to, geometry, ties, nan: new(x.shape, _order(x, geometry), g),
    lambda g, x, equal_to, geometry, ties, nan: (g, x, equal_to, deeper(geometry), ties, nan),
)
_linear(max_take, transpose=max_put)
_linear(max_put, transpose=max_take)


# ---------------------------------------------------------------------------------------------------------------------
# Flat indices


def _choice_to_index(choice: Tensor, geometry: Geometry, scope: str) -> Tensor:
    _expect_scope(scope)
    placed, _ = place(geometry, choice, pooled=True, keep_order=scope == "image")
    index: Tensor = placed.on.choice_to_index(placed.pool, placed.seen(choice), np.dtype(np.int64), scope)
    return index if placed.back is None else index.permute(placed.back)


def _index_take(v: Tensor, index: Tensor, geometry: Geometry, scope: str) -> Tensor:
    placed, shape = place(geometry, v, pooled=False, keep_order=scope == "image")
    _expect_indices(index, shape, placed, scope)
    y, seen = placed.pooled(v)
    placed.on.index_take(placed.pool, placed.seen(v), placed.seen(index), scope, out=seen)
    return y


def _index_put(g: Tensor, index: Tensor, geometry: Geometry, scope: str) -> Tensor:
    placed, _ = place(geometry, g, pooled=True, keep_order=scope == "image")
    _expect_indices(index, g.shape, placed, scope)
    gx, seen = placed.full(g)
    placed.on.index_put(placed.pool, placed.seen(g), placed.seen(index), scope, out=seen)
    return gx


def _expect_indices(index: Tensor, shape: Sequence[int], placed: Placed, scope: str) -> None:
    """Refuses indices that would reach outside. On a GPU, which is not waited for, the device itself stops."""
    _expect_scope(scope)
    if index.dtype not in (torch.int32, torch.int64) or list(index.shape) != list(shape):
        given = f"{index.dtype} of shape {tuple(index.shape)}"
        raise InvalidArgument(f"indices are {given}, expected int32 or int64 of shape {tuple(shape)}", argument="index")
    pool = placed.pool
    spatial = scope == "spatial"
    places = math.prod(pool.spatial_shape) if spatial else math.prod(pool.shape) // max(pool.batch, 1)
    inside = ((index >= 0) & (index < places)).all()
    if index.is_cuda:
        torch._assert_async(inside)
    elif not inside:
        raise InvalidArgument(f"an index is outside 0 to {places - 1}", argument="index")


def _expect_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise InvalidArgument(f"scope is {scope!r}, expected one of {', '.join(SCOPES)}", argument="scope", given=scope)


def _scope_order(x: Tensor, geometry: Geometry, scope: str) -> Order:
    return own_order(x.dim()) if scope == "image" else _order(x, geometry)


def _indexed(x: Tensor, geometry: Geometry, scope: str, pooled: bool) -> Tensor:
    full, result = shapes(geometry, x.shape, pooled)
    return new(full if pooled else result, _scope_order(x, geometry, scope), x)


choice_to_index: Operator[Tensor] = _define(
    "choice_to_index(Tensor choice, SymInt[] geometry, str scope) -> Tensor",
    _choice_to_index,
    lambda choice, geometry, scope: new(choice.shape, _scope_order(choice, geometry, scope), choice, torch.int64),
    lambda choice, geometry, scope: (choice, deeper(geometry), scope),
)
index_take: Operator[Tensor] = _define(
    "index_take(Tensor v, Tensor index, SymInt[] geometry, str scope) -> Tensor",
    _index_take,
    lambda v, index, geometry, scope: _indexed(v, geometry, scope, pooled=False),
    lambda v, index, geometry, scope: (v, index, deeper(geometry), scope),
)
index_put: Operator[Tensor] = _define(
    "index_put(Tensor g, Tensor index, SymInt[] geometry, str scope) -> Tensor",
    _index_put,
    lambda g, index, geometry, scope: _indexed(g, geometry, scope, pooled=True),
    lambda g, index, geometry, scope: (g, index, deeper(geometry), scope),
)
_linear(index_take, transpose=index_put)
_linear(index_put, transpose=index_take)
