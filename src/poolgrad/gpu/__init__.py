"""The maps on GPUs, by kernels in Triton (one in CUDA C++) over the same windows as on the CPU.

Needs PyTorch and Triton, and nothing of the CPU kernels. `Gpu` is what `backends.torch` hands CUDA tensors to.
"""

from __future__ import annotations

from .maps import Gpu

__all__ = ["Gpu"]
