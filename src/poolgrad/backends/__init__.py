"""One small class per array library, woken only if that library is already imported. Promises:

- arrays in, arrays of the same library out, without a copy where the memory allows it
- nothing is imported for nothing: `import poolgrad` loads NumPy alone
- a library is added by one class with the methods of `numpy.Numpy` and a line in `_HOMES`; nothing else changes
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from .numpy import Numpy

__all__ = ["Numpy", "host", "of"]

_numpy = Numpy()

_HOMES: Final = {
    "torch": (".torch", "Torch"),
    "jax": (".dlpack", "Jax"),
    "jaxlib": (".dlpack", "Jax"),
    "cupy": (".dlpack", "Cupy"),
    "dask": (".dask", "Dask"),
}
"""Where the class for the arrays of a library is: the package their type comes from, then our module and class."""


def of(*arrays: Any) -> Any:
    """The backend that computes on these arrays: that of the first which is more than a NumPy array or a list.

    >>> of([1, 2, 3]).name
    'numpy'
    """
    for array in arrays:
        kind: Any = type(array)
        home = _home(kind)
        if home is not None:
            return _backend(home)
    return _numpy


def host(value: Any) -> Any:
    """The value as something that NumPy can read: arrays may live on another device."""
    kind: Any = type(value)
    home = _home(kind)
    return value if home is None else getattr(_backend(home), "host", _as_it_is)(value)


def _as_it_is(value: Any) -> Any:
    return value


@lru_cache(maxsize=1024)
def _home(kind: Any) -> tuple[str, str] | None:
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((_HOMES[package] for package in packages if package in _HOMES), None)


@lru_cache
def _backend(home: tuple[str, str]) -> Any:
    module, name = home
    return getattr(import_module(module, __name__), name)()
