"""Pooling modules with the names, arguments, `state_dict` and printed form of `torch.nn`'s.

Each is a subclass of PyTorch's module of the same name, so whatever looks for that finds it. Beyond PyTorch: `padding`
may be "same" or a (before, after) pair per axis, `ties` and `nan` say who wins a maximum, `seed` fixes the windows of
fractional pooling, and there is fractional average pooling.

>>> import torch, poolgrad.torch as pt
>>> pool = pt.nn.FractionalMaxPool3d(2, output_ratio=0.7, seed=7)
>>> pool(torch.zeros(1, 2, 10, 20, 30)).shape
torch.Size([1, 2, 7, 14, 21])
>>> pt.nn.MaxPool2d(3, 2, padding="same", ties="split")
MaxPool2d(kernel_size=3, stride=2, padding=same, dilation=1, ceil_mode=False, ties='split')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import functional as F
from .arguments import rule_of

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalAvgPool2d", "FractionalAvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _Extended(torch.nn.Module):
    """A module of PyTorch with arguments of our own. They are attributes of the class until they are given."""

    _extras: tuple[str, ...] = ()
    _pool: Callable[..., Any]

    def extra_repr(self) -> str:
        given = [f"{name}={getattr(self, name)!r}" for name in self._extras if getattr(self, name) != _default(name)]
        return ", ".join([super().extra_repr()] * bool(super().extra_repr()) + given)

    def extras(self) -> dict[str, Any]:
        """Our own arguments that were given."""
        return {name: getattr(self, name) for name in self._extras if getattr(self, name) != _default(name)}


def _default(name: str) -> object:
    return False if name in ("overlapping", "pseudo_random") else None


class _Ruled(_Extended):
    """Maxima: who wins on ties and NaN."""

    _extras: tuple[str, ...] = ("ties", "nan")
    ties: str | None = None
    nan: str | None = None

    def __init__(self, *args: Any, ties: str | None = None, nan: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rule_of(ties, nan)
        self.ties, self.nan = ties, nan


# ---------------------------------------------------------------------------------------------------------------------
# Maxima


class _MaxPool(_Ruled):
    def forward(self, input: Tensor) -> Any:
        """Pools the input."""
        return self._pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices,
            ties=self.ties, nan=self.nan,
        )  # fmt: skip


class MaxPool1d(_MaxPool, torch.nn.MaxPool1d):
    """The maximum of every window of a signal."""

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool, torch.nn.MaxPool2d):
    """The maximum of every window of an image."""

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool, torch.nn.MaxPool3d):
    """The maximum of every window of a volume."""

    _pool = staticmethod(F.max_pool3d)


class _AdaptiveMaxPool(_Ruled):
    def forward(self, input: Tensor) -> Any:
        """Pools the input."""
        return self._pool(input, self.output_size, self.return_indices, ties=self.ties, nan=self.nan)


class AdaptiveMaxPool1d(_AdaptiveMaxPool, torch.nn.AdaptiveMaxPool1d):
    """Maxima of windows that cover a signal evenly."""

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool, torch.nn.AdaptiveMaxPool2d):
    """Maxima of windows that cover an image evenly."""

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool, torch.nn.AdaptiveMaxPool3d):
    """Maxima of windows that cover a volume evenly."""

    _pool = staticmethod(F.adaptive_max_pool3d)


class _MaxUnpool(_Extended):
    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Puts the input where the indices say."""
        unpooled: Tensor = self._pool(input, indices, self.kernel_size, self.stride, self.padding, output_size)
        return unpooled


class MaxUnpool1d(_MaxUnpool, torch.nn.MaxUnpool1d):
    """Puts maxima back where they were in a signal."""

    _pool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool, torch.nn.MaxUnpool2d):
    """Puts maxima back where they were in an image."""

    _pool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool, torch.nn.MaxUnpool3d):
    """Puts maxima back where they were in a volume."""

    _pool = staticmethod(F.max_unpool3d)


# ---------------------------------------------------------------------------------------------------------------------
# Averages


class _AvgPool(_Extended):
    def forward(self, input: Tensor) -> Tensor:
        """Pools the input."""
        pooled: Tensor = self._pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            getattr(self, "divisor_override", None),
        )  # fmt: skip
        return pooled


class AvgPool1d(_AvgPool, torch.nn.AvgPool1d):
    """The average of every window of a signal."""

    _pool = staticmethod(F.avg_pool1d)

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        plain = not isinstance(padding, str) and not any(isinstance(p, (list, tuple)) for p in _listed(padding))
        super().__init__(kernel_size, stride, padding if plain else 0, ceil_mode, count_include_pad)
        if not plain:
            self.padding = padding


class AvgPool2d(_AvgPool, torch.nn.AvgPool2d):
    """The average of every window of an image."""

    _pool = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool, torch.nn.AvgPool3d):
    """The average of every window of a volume."""

    _pool = staticmethod(F.avg_pool3d)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


class _AdaptiveAvgPool(_Extended):
    def forward(self, input: Tensor) -> Tensor:
        """Pools the input."""
        pooled: Tensor = self._pool(input, self.output_size)
        return pooled


class AdaptiveAvgPool1d(_AdaptiveAvgPool, torch.nn.AdaptiveAvgPool1d):
    """Averages of windows that cover a signal evenly."""

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool, torch.nn.AdaptiveAvgPool2d):
    """Averages of windows that cover an image evenly."""

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool, torch.nn.AdaptiveAvgPool3d):
    """Averages of windows that cover a volume evenly."""

    _pool = staticmethod(F.adaptive_avg_pool3d)


class _LPPool(_Extended):
    norm_type: float

    def forward(self, input: Tensor) -> Tensor:
        """Pools the input."""
        pooled: Tensor = self._pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return pooled


class LPPool1d(_LPPool, torch.nn.LPPool1d):
    """The p-norm of every window of a signal."""

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool, torch.nn.LPPool2d):
    """The p-norm of every window of an image."""

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool, torch.nn.LPPool3d):
    """The p-norm of every window of a volume."""

    _pool = staticmethod(F.lp_pool3d)


# ---------------------------------------------------------------------------------------------------------------------
# Fractional pooling


class _Seeded(_Extended):
    """Where the windows come from: PyTorch's random numbers, or a seed (see `functional`)."""

    seed: int | tuple[int, int] | None = None
    overlapping: bool = False
    pseudo_random: bool = False

    def _draw(self, seed: int | tuple[int, int] | None, overlapping: bool, pseudo_random: bool) -> None:
        self.seed, self.overlapping, self.pseudo_random = seed, overlapping, pseudo_random

    def _arguments(self) -> dict[str, Any]:
        return {"seed": self.seed, "overlapping": self.overlapping, "pseudo_random": self.pseudo_random}


class _FractionalMaxPool(_Ruled, _Seeded):
    _extras = ("seed", "overlapping", "pseudo_random", "ties", "nan")

    def __init__(
        self, kernel_size: Any, *args: Any, seed: int | tuple[int, int] | None = None, overlapping: bool = False,
        pseudo_random: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(1 if kernel_size is None else kernel_size, *args, **kwargs)
        if kernel_size is None:
            object.__setattr__(self, "kernel_size", None)
        self._draw(seed, overlapping, pseudo_random)

    def forward(self, input: Tensor) -> Any:
        """Pools the input."""
        return self._pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples,
            ties=self.ties, nan=self.nan, **self._arguments(),
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool, torch.nn.FractionalMaxPool2d):
    """Maxima of windows that begin at random steps in an image."""

    _pool = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool, torch.nn.FractionalMaxPool3d):
    """Maxima of windows that begin at random steps in a volume."""

    _pool = staticmethod(F.fractional_max_pool3d)


class _FractionalAvgPool(_Seeded):
    _extras = ("kernel_size", "output_size", "output_ratio", "seed", "overlapping", "pseudo_random")

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, _random_samples: Any = None, *,
        seed: int | tuple[int, int] | None = None, overlapping: bool = False, pseudo_random: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.register_buffer("_random_samples", _random_samples)
        self._draw(seed, overlapping, pseudo_random)

    def forward(self, input: Tensor) -> Tensor:
        """Pools the input."""
        pooled: Tensor = self._pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self._random_samples, **self._arguments()
        )
        return pooled


class FractionalAvgPool2d(_FractionalAvgPool):
    """Averages of windows that begin at random steps in an image."""

    _pool = staticmethod(F.fractional_avg_pool2d)


class FractionalAvgPool3d(_FractionalAvgPool):
    """Averages of windows that begin at random steps in a volume."""

    _pool = staticmethod(F.fractional_avg_pool3d)
