"""Pooling with the names, arguments and results of `torch.nn.functional`, for one, two and three spatial axes.

Beyond PyTorch: `padding` may be "same" or a (before, after) pair per axis; `ties` and `nan` say who wins a maximum (see
`poolgrad.policy`); fractional pooling takes a `seed`, and can average.

>>> import torch, poolgrad.torch as pt
>>> x = torch.tensor([[3.0, 1.0, 4.0, 4.0]], requires_grad=True)
>>> pt.max_pool1d(x, 2).sum().backward()
>>> x.grad
tensor([[1., 0., 1., 0.]])
>>> pt.max_pool1d(x, 2, return_indices=True)[1]
tensor([[0, 2]])
>>> pt.avg_pool1d(x.detach(), 3, stride=2, padding=((0, 1),))
tensor([[2.6667, 2.6667]])
>>> pt.avg_pool1d(x.detach(), 3, stride=2, padding=((0, 1),), count_include_pad=False)
tensor([[2.6667, 4.0000]])
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor

from ..backends.torch import geometry, ops
from . import arguments, fractional
from .arguments import PaddingLike, Size, refuse

Result: TypeAlias = Any
"""A tensor; with `return_indices` a tuple of the tensor and the indices."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _for_axes(axes: int, generic: Callable[Concatenate[int, _P], _R]) -> Callable[_P, _R]:
    """The function for a number of spatial axes: `_max_pool` with two is `max_pool2d`."""

    def pool(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return generic(axes, *args, **kwargs)

    signature = inspect.signature(generic)
    family, ending = re.fullmatch(r"_(.*?)((?:_with_indices)?)", generic.__name__).groups()  # type: ignore[union-attr]
    pool.__name__ = pool.__qualname__ = f"{family}{axes}d{ending}"
    pool.__doc__ = generic.__doc__
    pool.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return pool


# ---------------------------------------------------------------------------------------------------------------------
# Maxima


def _max_pool(
    axes: int, input: Tensor, kernel_size: Size, stride: Size | None = None, padding: PaddingLike = 0,
    dilation: Size = 1, ceil_mode: bool = False, return_indices: bool = False, *, ties: str | None = None,
    nan: str | None = None,
) -> Result:  # fmt: skip
    """The maximum of every window; with `return_indices` also its flat index in the spatial block of the input."""
    name = f"max_pool{axes}d"
    encoded = arguments.regular(name, input, axes, kernel_size, stride, padding, dilation, ceil_mode)
    return _maxima(input, encoded, return_indices, ties, nan)


def _max_pool_with_indices(
    axes: int, input: Tensor, kernel_size: Size, stride: Size | None = None, padding: PaddingLike = 0,
    dilation: Size = 1, ceil_mode: bool = False, return_indices: bool = False, *, ties: str | None = None,
    nan: str | None = None,
) -> Result:  # fmt: skip
    """The maximum of every window and its flat index in the spatial block of the input."""
    return _max_pool(axes, input, kernel_size, stride, padding, dilation, ceil_mode, True, ties=ties, nan=nan)


def _adaptive_max_pool(
    axes: int, input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False, *,
    ties: str | None = None, nan: str | None = None,
) -> Result:  # fmt: skip
    """The maximum of every window, with windows that cover each axis evenly."""
    encoded = arguments.adaptive(f"adaptive_max_pool{axes}d", input, axes, output_size)
    return _maxima(input, encoded, return_indices, ties, nan)


def _adaptive_max_pool_with_indices(
    axes: int, input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False, *,
    ties: str | None = None, nan: str | None = None,
) -> Result:  # fmt: skip
    """The maximum of every window and its flat index, with windows that cover each axis evenly."""
    return _adaptive_max_pool(axes, input, output_size, True, ties=ties, nan=nan)


def _maxima(x: Tensor, encoded: list[int], return_indices: bool, ties: str | None, nan: str | None) -> Result:
    ties, nan = arguments.rule_of(ties, nan)
    if not return_indices:
        return ops.maximum(x, encoded, ties, nan)
    if ties == "first":
        y, choice = ops.maximum_and_choice(x, encoded, nan)
    else:
        y, choice = ops.maximum(x, encoded, ties, nan), ops.maximum_and_choice(x.detach(), encoded, nan)[1]
    return y, ops.choice_to_index(choice, encoded, "spatial")


# ---------------------------------------------------------------------------------------------------------------------
# Averages


def _avg_pool(
    axes: int, input: Tensor, kernel_size: Size, stride: Size | None = None, padding: PaddingLike = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The average of every window. Padding counts as zeros, unless `count_include_pad` is False."""
    name = f"avg_pool{axes}d"
    divisor = 1 if divisor_override is None else arguments.whole(name, "divisor_override", divisor_override)
    if divisor == 0:
        refuse(name, "divisor_override", divisor_override, "it must not be zero")
    divide = "constant" if divisor_override is not None else "padded" if count_include_pad else "real"
    encoded = arguments.regular(name, input, axes, kernel_size, stride, padding, 1, ceil_mode, divide, divisor)
    return ops.mean(input, encoded)


def _adaptive_avg_pool(axes: int, input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """The average of every window, with windows that cover each axis evenly."""
    return ops.mean(input, arguments.adaptive(f"adaptive_avg_pool{axes}d", input, axes, output_size))


def _lp_pool(
    axes: int, input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of every window: the p-th root of the sum of x ** p; for p = infinity the largest absolute value.

    As in PyTorch, the sum of a window that hangs over the end is scaled up to a whole window.
    """
    if norm_type == math.inf:
        largest: Tensor = _max_pool(axes, input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return largest
    if norm_type == -math.inf:
        return -_lp_smallest(axes, input, kernel_size, stride, ceil_mode)
    averages = _avg_pool(axes, input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    elements = math.prod(arguments.per_axis(f"lp_pool{axes}d", "kernel_size", kernel_size, axes, 1))
    return (torch.sign(averages) * torch.relu(torch.abs(averages))).mul(elements).pow(1.0 / norm_type)


def _lp_smallest(axes: int, input: Tensor, kernel_size: Size, stride: Size | None, ceil_mode: bool) -> Tensor:
    smallest: Tensor = _max_pool(axes, -input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    return smallest


# ---------------------------------------------------------------------------------------------------------------------
# Fractional pooling


def _fractional_max_pool(
    axes: int, input: Tensor, kernel_size: Size | None, output_size: Size | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None, *, seed: int | tuple[int, int] | None = None, overlapping: bool = False,
    pseudo_random: bool = False, ties: str | None = None, nan: str | None = None,
) -> Result:  # fmt: skip
    """The maximum of windows that begin at random steps.

    Without a seed the windows are PyTorch's: new ones for every image and channel, from its random numbers, or from
    `_random_samples`. With a `seed` (or two) they are one value for the whole tensor, the same on every device: where
    they begin is TensorFlow's pooling sequence for these seeds (see `poolgrad.sequences`), and each has `kernel_size`
    elements as far as the axis goes. With `kernel_size=None` they are TensorFlow's cells themselves; `overlapping` and
    `pseudo_random` as in TensorFlow.
    """
    name = f"fractional_max_pool{axes}d"
    drawn = fractional.drawn(
        name, input, axes, kernel_size, output_size, output_ratio, _random_samples, seed, overlapping, pseudo_random
    )
    if isinstance(drawn, list):
        return _maxima(input, drawn, return_indices, ties, nan)
    ties, nan = arguments.rule_of(ties, nan)
    if ties != "first":
        refuse(name, "ties", ties, "expected 'first' where every channel has its own windows (give a seed)")
    index = drawn.winners(input.detach(), nan)
    y = ops.index_take(input, index, drawn.geometry, "spatial")
    return (y, index) if return_indices else y


def _fractional_max_pool_with_indices(
    axes: int, input: Tensor, kernel_size: Size | None, output_size: Size | None = None,
    output_ratio: float | Sequence[float] | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None, *, seed: int | tuple[int, int] | None = None, overlapping: bool = False,
    pseudo_random: bool = False, ties: str | None = None, nan: str | None = None,
) -> Result:  # fmt: skip
    """fractional_max_pool with the flat indices of the maxima."""
    return _fractional_max_pool(
        axes, input, kernel_size, output_size, output_ratio, True, _random_samples, seed=seed,
        overlapping=overlapping, pseudo_random=pseudo_random, ties=ties, nan=nan,
    )  # fmt: skip


def _fractional_avg_pool(
    axes: int, input: Tensor, kernel_size: Size | None, output_size: Size | None = None,
    output_ratio: float | Sequence[float] | None = None, _random_samples: Tensor | None = None, *,
    seed: int | tuple[int, int] | None = None, overlapping: bool = False, pseudo_random: bool = False,
) -> Tensor:  # fmt: skip
    """The average of windows that begin at random steps; the windows are those of fractional_max_pool."""
    name = f"fractional_avg_pool{axes}d"
    drawn = fractional.drawn(
        name, input, axes, kernel_size, output_size, output_ratio, _random_samples, seed, overlapping, pseudo_random
    )
    if isinstance(drawn, list):
        return ops.mean(input, drawn)
    total: Tensor | None = None
    for index in drawn.elements():
        element = ops.index_take(input, index, drawn.geometry, "spatial")
        wide = element.float() if element.dtype.itemsize == 2 else element
        total = wide if total is None else total + wide
    assert total is not None
    return (total / math.prod(drawn.window)).to(input.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Unpooling


def _max_unpool(
    axes: int, input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """A tensor that is the input at the indices that max_pool returned, and zero elsewhere.

    Where an index occurs more than once, the last entry stands, on every device.
    """
    name = f"max_unpool{axes}d"
    arguments.expect_input(name, arguments.shape_of(name, input), axes)
    if indices.shape != input.shape:
        refuse(
            name, "indices", f"of shape {tuple(indices.shape)}", f"expected the shape of input, {tuple(input.shape)}"
        )
    if indices.dtype != torch.int64:
        refuse(name, "indices", f"of dtype {indices.dtype}", "expected int64")
    sizes = _unpooled(name, input, axes, kernel_size, stride, padding, output_size)
    encoded = geometry.joined(
        0, input.dim() - axes, [geometry.adaptive_axis(n, m) for n, m in zip(sizes, input.shape[-axes:], strict=True)]
    )
    return ops.index_put(torch.where(_last(indices, axes, math.prod(sizes)), input, 0), indices, encoded, "spatial")


def _unpooled(
    name: str, x: Tensor, axes: int, kernel_size: Size, stride: Size | None, padding: Size,
    output_size: Sequence[int] | None,
) -> list[int]:  # fmt: skip
    """The spatial sizes of the result: as given, if pooling could have led from there to x."""
    window = arguments.per_axis(name, "kernel_size", kernel_size, axes, 1)
    strides = window if stride is None or stride in ([], ()) else arguments.per_axis(name, "stride", stride, axes, 1)
    pads = arguments.per_axis(name, "padding", padding, axes, 0)
    natural = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(x.shape[-axes:], strides, window, pads, strict=True)]
    sizes = natural if output_size is None else list(output_size)[-axes:]
    if output_size is not None and len(output_size) not in (axes, axes + 2):
        refuse(name, "output_size", list(output_size), f"expected {axes} or {axes + 2} integers")
    for size, usual, s in zip(sizes, natural, strides, strict=True):
        if size < 1 or not usual - s < size < usual + s:
            refuse(name, "output_size", sizes, f"expected sizes within a stride of {natural}, at least 1")
    return sizes


def _last(indices: Tensor, axes: int, places: int) -> Tensor:
    """Which entries are the last to name their place. Indices out of range are refused later, by the kernel."""
    flat = indices.flatten(-axes).clamp(0, places - 1)
    order = torch.arange(1, flat.shape[-1] + 1, device=flat.device).expand(flat.shape)
    latest = flat.new_zeros((*flat.shape[:-1], places)).scatter_reduce(-1, flat, order, "amax")
    return (latest.gather(-1, flat) == order).reshape(indices.shape)


# ---------------------------------------------------------------------------------------------------------------------
# The functions for one, two and three spatial axes

max_pool1d, max_pool2d, max_pool3d = (_for_axes(n, _max_pool) for n in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_for_axes(n, _avg_pool) for n in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (_for_axes(n, _lp_pool) for n in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_for_axes(n, _adaptive_max_pool) for n in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_for_axes(n, _adaptive_avg_pool) for n in (1, 2, 3))
max_unpool1d, max_unpool2d, max_unpool3d = (_for_axes(n, _max_unpool) for n in (1, 2, 3))
fractional_max_pool2d, fractional_max_pool3d = (_for_axes(n, _fractional_max_pool) for n in (2, 3))
fractional_avg_pool2d, fractional_avg_pool3d = (_for_axes(n, _fractional_avg_pool) for n in (2, 3))

max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    _for_axes(n, _max_pool_with_indices) for n in (1, 2, 3)
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _for_axes(n, _adaptive_max_pool_with_indices) for n in (1, 2, 3)
)
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (
    _for_axes(n, _fractional_max_pool_with_indices) for n in (2, 3)
)
