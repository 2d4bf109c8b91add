"""Pooling for PyTorch: that of `torch.nn.functional` and `torch.nn`, with the same names, arguments and results, and
what PyTorch lacks.

- derivatives of any order, in forward and backward mode; `torch.func`, `vmap`, `torch.compile`, `torch.export`
- the same bits on every run, on CPU and GPU, with `torch.use_deterministic_algorithms` on or off
- memory formats are computed as they are and kept; a max pooling keeps one byte per result for its gradient
- `padding="same"`, asymmetric padding, `ties=`, `nan=`, fractional average pooling, seeds that give TensorFlow's cells

>>> import torch, poolgrad.torch as pt
>>> x = torch.tensor([[3.0, 1.0, 4.0, 1.0, 5.0]])
>>> pt.max_pool1d(x, 3, stride=2, padding="same")
tensor([[3., 4., 5.]])
>>> model = pt.convert(torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.MaxPool2d(2)))
1: MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
1 module converted
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("poolgrad.torch needs PyTorch: pip install 'poolgrad[torch]'", name="torch") from None

from . import nn
from .convert import convert, revert
from .functional import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_avg_pool2d,
    fractional_avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "convert",
    "fractional_avg_pool2d",
    "fractional_avg_pool3d",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "nn",
    "revert",
]
