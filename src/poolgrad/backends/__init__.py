"""One small class per array library, woken only if that library is already imported. Promises:

- arrays in, arrays of the same library out, without a copy where the memory allows it
- nothing is imported for nothing: `import poolgrad` loads NumPy alone
- a library is added by one class with the methods of `numpy.Numpy`; nothing else changes
"""

from __future__ import annotations

from typing import Any

from .numpy import Numpy

__all__ = ["Numpy", "of"]

_numpy = Numpy()


def of(*arrays: Any) -> Numpy:
    """The backend that computes on these arrays.

    >>> of([1, 2, 3]).name
    'numpy'
    """
    return _numpy
