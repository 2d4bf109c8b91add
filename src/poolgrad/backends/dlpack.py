"""JAX and CuPy arrays, computed by the NumPy backend on the CPU and by the PyTorch backend on a GPU.

On a GPU memory changes hands through DLPack and is not copied; that needs PyTorch and Triton, which are imported then.
What comes out is an array of the library that went in, on the same device. Nothing is traced or differentiated: under
`jax.jit` or `jax.grad` there is no memory to compute on, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import InvalidType
from .numpy import Numpy

_ALIKE = ("maximum", "choose", "take", "put", "mean", "spread", "max_put", "max_take", "index_put", "index_take")
_MAPS = (*_ALIKE, "maximum_and_choice", "choice_to_index", "index_fault", "choice_fault")

_numpy = Numpy()


def _library(name: str) -> Any:
    return import_module(name)


@lru_cache
def _torch_backend() -> Any:
    try:
        from .torch import Torch
    except ModuleNotFoundError as error:
        raise InvalidType(f"arrays on a GPU are computed through PyTorch, which is missing ({error})") from None
    return Torch()


class _Through:
    """The maps by another backend: arguments are handed over, results are handed back."""

    name = "dlpack"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _MAPS:
            raise AttributeError(name)

        def run(*args: Any, **kwargs: Any) -> Any:
            arrays = [value for value in (*args, *kwargs.values()) if self._mine(value)]
            on = self._inner(arrays[0])
            handed = [self._over(on, value) for value in args]
            result = getattr(on, name)(*handed, **{key: self._over(on, value) for key, value in kwargs.items()})
            if name.endswith("_fault"):
                return result
            return tuple(map(self._back, result)) if isinstance(result, tuple) else self._back(result)

        return run

    def _over(self, on: Any, value: Any) -> Any:
        if not self._mine(value):
            return value
        return self._to_torch(value) if on.name == "torch" else self.host(value)

    def host(self, value: Any) -> Any:
        """The value as a NumPy array."""
        raise NotImplementedError

    def _mine(self, value: Any) -> bool:
        raise NotImplementedError

    def _inner(self, value: Any) -> Any:
        raise NotImplementedError

    def _to_torch(self, value: Any) -> Any:
        raise NotImplementedError

    def _back(self, value: Any) -> Any:
        raise NotImplementedError


class Jax(_Through):
    """JAX arrays."""

    name = "jax"

    def asarray(self, value: Any, dtype_hint: Any = None) -> Any:
        """The value as a JAX array of numbers."""
        jax = _library("jax")
        if isinstance(value, jax.core.Tracer):
            raise InvalidType("poolgrad computes on JAX arrays that have a value, not inside jit, grad or vmap")
        if isinstance(value, jax.Array):
            return value
        return self._back(_numpy.asarray(value, dtype_hint))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, of zeros: JAX has no others."""
        jax = _library("jax")
        return jax.numpy.zeros(shape, dtype)

    def host(self, value: Any) -> Any:
        """The value as a NumPy array; on the CPU the same memory."""
        return np.asarray(value)

    def _mine(self, value: Any) -> bool:
        jax = _library("jax")
        return isinstance(value, jax.Array)

    def _inner(self, value: Any) -> Any:
        (device, *others) = value.devices()
        if others:
            raise InvalidType(f"the array lies on {len(others) + 1} devices, expected one")
        return _numpy if device.platform == "cpu" else _torch_backend()

    def _to_torch(self, value: Any) -> Any:
        torch = _library("torch")
        return torch.from_dlpack(value)

    def _back(self, value: Any) -> Any:
        """As JAX would take it: without its 64-bit mode in 32 bits, which hold every index there."""
        jax = _library("jax")
        halved = value.dtype.itemsize == 8 and not jax.config.jax_enable_x64
        if isinstance(value, np.ndarray):
            return jax.numpy.asarray(value.astype(f"{value.dtype.kind}4") if halved else value)
        return _library("jax.dlpack").from_dlpack((value.int() if halved else value).contiguous())


class Cupy(_Through):
    """CuPy arrays."""

    name = "cupy"

    def asarray(self, value: Any, dtype_hint: Any = None) -> Any:
        """The value as a CuPy array of numbers."""
        cupy = _library("cupy")
        return value if isinstance(value, cupy.ndarray) else cupy.asarray(_numpy.asarray(value, dtype_hint))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array with undefined contents."""
        cupy = _library("cupy")
        return cupy.empty(shape, dtype)

    def host(self, value: Any) -> Any:
        """The value as a NumPy array."""
        return value.get()

    def _mine(self, value: Any) -> bool:
        cupy = _library("cupy")
        return isinstance(value, cupy.ndarray)

    def _inner(self, value: Any) -> Any:
        return _torch_backend()

    def _to_torch(self, value: Any) -> Any:
        torch = _library("torch")
        return torch.from_dlpack(value)

    def _back(self, value: Any) -> Any:
        cupy = _library("cupy")
        return cupy.from_dlpack(value.contiguous())
