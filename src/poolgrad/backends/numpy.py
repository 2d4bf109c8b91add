"""NumPy arrays on the CPU kernels. The catalog has checked shapes and dtypes before anything here is called.

Results are new arrays, 64-byte aligned, C-contiguous. Inputs may be read-only and strided: strides before the rows are
followed, anything else is copied once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..cpu import Block, dtype_codes, plan_of
from ..errors import InvalidType, OutOfMemory, PoolgradError
from ..windows import Pool

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

SCOPES = {"spatial": 0, "image": 1, "batch": 2}
"""What a flat index counts through: the spatial block of one channel, one image, the whole array."""


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array whose memory begins at a multiple of 64 bytes. Its contents are undefined."""
    size = prod(shape) * dtype.itemsize
    try:
        memory: Any = Block(size)
        array: Array = np.ndarray(shape, dtype, memory)
        return array
    except (MemoryError, TypeError, ValueError):
        raise OutOfMemory(f"a result of shape {shape} and dtype {dtype} needs {size} bytes of memory") from None


def _run(operation: Callable[..., bool | None], *arguments: Any) -> None:
    """Runs a kernel. It declines if it cannot follow an input's strides; then contiguous copies are made."""
    try:
        if operation(*arguments) is False:
            operation(*(_dense(a) if isinstance(a, np.ndarray) else a for a in arguments))
    except MemoryError:
        raise OutOfMemory("not enough memory for the intermediate arrays") from None


def _ready(array: Array) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned)


def _dense(array: Array) -> Array:
    return array if _ready(array) else np.array(array, order="C")


_FAULTS = (BufferError, MemoryError, PoolgradError, TypeError, ValueError)


class Numpy:
    """The maps and their fusions on NumPy arrays."""

    name = "numpy"

    # -- arrays -------------------------------------------------------------------------------------------------------

    def asarray(self, value: Any, dtype_hint: Any = None) -> Array:
        """The value as an array of numbers in native byte order."""
        try:
            array = np.asarray(value, dtype_hint)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidType(f"expected an array of numbers ({error})") from None
        if array.dtype not in dtype_codes:
            if not array.dtype.isnative and array.dtype.newbyteorder("=") in dtype_codes:
                return array.astype(array.dtype.newbyteorder("="))
            if array.dtype.name != "bfloat16":
                raise InvalidType(f"expected an array of numbers, got dtype {array.dtype}")
        return array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new array with undefined contents."""
        return empty(shape, np.dtype(dtype))

    # -- choose, take, put --------------------------------------------------------------------------------------------

    def maximum(self, pool: Pool, x: Array, nan: str, out: Array | None = None) -> Array:
        """take(x, choose(x)) without storing the choice."""
        y = empty(pool.out_shape, x.dtype) if out is None else out
        _run(plan_of(pool).maximum, dtype_codes[x.dtype], x, y, None, nan == "ignore")
        return y

    def choose(self, pool: Pool, x: Array, nan: str, out: Array | None = None) -> Array:
        """Which element of each window wins."""
        choice = empty(pool.out_shape, pool.choice_dtype) if out is None else out
        _run(plan_of(pool).maximum, dtype_codes[x.dtype], x, None, choice, nan == "ignore")
        return choice

    def maximum_and_choice(
        self, pool: Pool, x: Array, nan: str, out: Array | None = None, choice_out: Array | None = None
    ) -> tuple[Array, Array]:
        """Both in one pass."""
        y = empty(pool.out_shape, x.dtype) if out is None else out
        choice = empty(pool.out_shape, pool.choice_dtype) if choice_out is None else choice_out
        _run(plan_of(pool).maximum, dtype_codes[x.dtype], x, y, choice, nan == "ignore")
        return y, choice

    def take(self, pool: Pool, v: Array, choice: Array, out: Array | None = None) -> Array:
        """The chosen element of each window."""
        y = empty(pool.out_shape, v.dtype) if out is None else out
        _run(plan_of(pool).take, dtype_codes[v.dtype], v, _dense(choice), y)
        return y

    def put(self, pool: Pool, g: Array, choice: Array, out: Array | None = None, assign: bool = False) -> Array:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        gx = empty(pool.shape, g.dtype) if out is None else out
        _run(plan_of(pool).put, dtype_codes[g.dtype], g, _dense(choice), gx, assign)
        return gx

    # For calls so small that checks one by one would show.

    def take_checked(self, pool: Pool, v: Array, choice: Array, out: Array | None) -> Array | None:
        """take where the kernels check all arguments themselves. None if they find fault: others say with what."""
        kind = dtype_codes.get(v.dtype)
        if kind is None or choice.dtype is not pool.choice_dtype or (out is not None and out.dtype is not v.dtype):
            return None
        try:
            y = empty(pool.out_shape, v.dtype) if out is None else out
            return y if plan_of(pool).take(kind, v, choice, y, True) else None
        except _FAULTS:
            return None

    def put_checked(self, pool: Pool, g: Array, choice: Array, out: Array | None, assign: bool) -> Array | None:
        """put likewise."""
        kind = dtype_codes.get(g.dtype)
        if kind is None or choice.dtype is not pool.choice_dtype or (out is not None and out.dtype is not g.dtype):
            return None
        try:
            gx = empty(pool.shape, g.dtype) if out is None else out
            return gx if plan_of(pool).put(kind, g, choice, gx, assign, True) else None
        except _FAULTS:
            return None

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: Array, out: Array | None = None) -> Array:
        """The average over the real elements of each window."""
        y = empty(pool.out_shape, x.dtype) if out is None else out
        _run(plan_of(pool).mean, dtype_codes[x.dtype], x, y)
        return y

    def spread(self, pool: Pool, g: Array, out: Array | None = None) -> Array:
        """The transpose of mean."""
        gx = empty(pool.shape, g.dtype) if out is None else out
        _run(plan_of(pool).spread, dtype_codes[g.dtype], g, gx)
        return gx

    # -- fusions ------------------------------------------------------------------------------------------------------

    def max_put(
        self,
        pool: Pool,
        x: Array,
        g: Array,
        ties: str,
        nan: str,
        equal_to: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """put(g, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives nothing."""
        gx = empty(pool.shape, g.dtype) if out is None else out
        wanted = None if equal_to is None else _dense(equal_to)
        if ties == "first":
            _run(plan_of(pool).max_put, dtype_codes[x.dtype], x, g, wanted, gx, nan == "ignore")
        else:
            winners = self.maximum(pool, x, nan) if wanted is None else wanted
            _run(plan_of(pool).ties_put, dtype_codes[x.dtype], x, winners, g, gx, ties == "split")
        return gx

    def max_take(
        self,
        pool: Pool,
        x: Array,
        v: Array,
        ties: str,
        nan: str,
        equal_to: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """take(v, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives zero."""
        y = empty(pool.out_shape, v.dtype) if out is None else out
        wanted = None if equal_to is None else _dense(equal_to)
        if ties == "first":
            _run(plan_of(pool).max_take, dtype_codes[x.dtype], x, v, wanted, y, nan == "ignore")
        else:
            winners = self.maximum(pool, x, nan) if wanted is None else wanted
            _run(plan_of(pool).ties_take, dtype_codes[x.dtype], x, winners, v, y, ties == "split")
        return y

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Array, dtype: Any, scope: str) -> Array:
        """The flat index of every chosen element."""
        index = empty(pool.out_shape, np.dtype(dtype))
        plan_of(pool).code_to_index(_dense(choice), SCOPES[scope], index)
        return index

    def index_put(self, pool: Pool, g: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """Adds g where the indices say. They may name any element of their image."""
        gx = empty(pool.shape, g.dtype) if out is None else out
        _run(plan_of(pool).index_put, dtype_codes[g.dtype], g, _dense(index), SCOPES[scope], gx)
        return gx

    def index_take(self, pool: Pool, v: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """The elements of v that the indices name."""
        y = empty(pool.out_shape, v.dtype) if out is None else out
        _run(plan_of(pool).index_take, dtype_codes[v.dtype], _dense(v), _dense(index), SCOPES[scope], y)
        return y

    def index_fault(self, pool: Pool, index: Array, scope: str) -> tuple[tuple[int, ...], int] | None:
        """Where the first index outside its own image is, and what it is."""
        return _fault(index, plan_of(pool).find_bad_index(_dense(index), SCOPES[scope]))

    def choice_fault(self, pool: Pool, choice: Array) -> tuple[tuple[int, ...], int] | None:
        """Where the first code that names no element of its window is, and what it is."""
        return _fault(choice, plan_of(pool).find_bad_code(_dense(choice)))


def _fault(values: Array, at: int) -> tuple[tuple[int, ...], int] | None:
    if at < 0:
        return None
    position = tuple(int(i) for i in np.unravel_index(at, values.shape))
    return position, int(values[position])
