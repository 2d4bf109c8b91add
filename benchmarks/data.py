"""The arrays of a case: the same values for everybody, in either layout, made on demand and kept for one case only."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .cases import Case

Array = NDArray[np.generic]


def dtype_of(name: str) -> np.dtype[np.generic]:
    """The NumPy dtype; bfloat16 comes from ml_dtypes, which TensorFlow and JAX bring."""
    if name == "bfloat16":
        import ml_dtypes

        found: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name)


class Data:
    """x (input), g (gradient of the output), v (gradient of the gradient), y (maximum of x), in either layout."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._arrays: dict[tuple[str, str], Array] = {}

    def array(self, name: str, layout: str = "last") -> Array:
        key = (name, layout)
        if key not in self._arrays:
            made = self._make(name) if layout == "last" else first(self.array(name))
            self._arrays[key] = aligned(made)
        return self._arrays[key]

    def sequences(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column pooling sequences with cells of 1 or 2 elements."""
        rows, cols = (
            (np.arange(m + 1) * n // m).astype(np.int64)
            for n, m in zip(self.case.spatial, self.case.out_spatial, strict=True)
        )
        return rows, cols

    def _make(self, name: str) -> Array:
        if name == "y":
            return self._maximum()
        shape = self.case.out_shape if name == "g" else self.case.shape
        random = np.random.default_rng({"x": 1, "g": 2, "v": 3}[name])
        dtype = dtype_of(self.case.dtype)
        if dtype.kind == "u":
            return random.integers(0, 256, shape, dtype=np.uint8)
        wide = np.float64 if dtype == np.float64 else np.float32
        return random.standard_normal(shape, dtype=wide).astype(dtype, copy=False)

    def _maximum(self) -> Array:
        """Window maxima, one axis after the other."""
        y = self.array("x")
        case = self.case
        for axis in range(case.rank):
            n, m = case.spatial[axis], case.out_spatial[axis]
            if case.ratio:
                edges = self.sequences()[axis]
                length = int(np.diff(edges).max()) + case.overlapping
                stops = np.minimum(edges[1:] + case.overlapping, n)
                index = np.minimum(edges[:-1, None] + np.arange(length), stops[:, None] - 1)
            else:
                starts = np.arange(m)[:, None] * case.stride[axis] - case.pads[axis][0]
                index = np.clip(starts + np.arange(case.window[axis]), 0, n - 1)
            pooled = np.take(y, index[:, 0], axis + 1)
            for column in index.T[1:]:
                np.maximum(pooled, np.take(y, column, axis + 1), out=pooled)
            y = pooled
        return np.ascontiguousarray(y)


def aligned(array: Array) -> Array:
    """A copy that begins on a cache line, as every library allocates its own arrays; NumPy's begin 16 bytes later."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def first(array: Array) -> Array:
    """A channels-first copy of a channels-last array."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def last(array: Array) -> Array:
    """A channels-first array seen channels-last."""
    return np.moveaxis(array, 1, -1)


@lru_cache(maxsize=1)
def data_of(case: Case) -> Data:
    return Data(case)


def difference(ours: Array, theirs: Array, case: Case, exact: bool) -> str | None:
    """None if the results agree (bit for bit, or within the rounding of sums), else what differs."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} against {theirs.shape}"
    if ours.dtype.kind in "ui" or exact:
        wrong = int(np.count_nonzero(ours != theirs))
        return f"{wrong} of {ours.size} elements differ" if wrong else None
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    terms = math.prod(-(-k // s) for k, s in zip(case.window, case.stride, strict=True))
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-51}[case.dtype]
    error = float(np.max(np.abs(a - b), initial=0.0))
    allowed = 4 * unit * max(1.0, math.sqrt(terms)) * max(1.0, float(np.max(np.abs(b), initial=0.0)))
    return None if error <= allowed else f"largest difference {error:.3g}, allowed {allowed:.3g}"
