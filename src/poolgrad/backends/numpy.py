"""NumPy arrays on the CPU kernels. The catalog has checked shapes and dtypes before anything here is called.

Results are new arrays, 64-byte aligned, C-contiguous. Inputs may be read-only and strided: strides before the rows are
followed, anything else is copied once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..cpu import Program, dtype_codes, new_array, plan_of
from ..errors import InvalidType, OutOfMemory
from ..windows import Pool

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

SCOPES = {"spatial": 0, "image": 1, "batch": 2}
"""What a flat index counts through: the spatial block of one channel, one image, the whole array."""


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array whose memory begins at a multiple of 64 bytes. Its contents are undefined."""
    try:
        return new_array(shape, dtype)
    except (MemoryError, RuntimeError, TypeError, ValueError):
        size = prod(shape) * dtype.itemsize
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


class Numpy:
    """The maps and their fusions on NumPy arrays."""

    name = "numpy"

    _new, _run, _dense = staticmethod(empty), staticmethod(_run), staticmethod(_dense)

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
        y = self._new(pool.out_shape, x.dtype) if out is None else out
        self._run(plan_of(pool).maximum, dtype_codes[x.dtype], x, y, None, nan == "ignore")
        return y

    def choose(self, pool: Pool, x: Array, nan: str, out: Array | None = None) -> Array:
        """Which element of each window wins."""
        choice = self._new(pool.out_shape, pool.choice_dtype) if out is None else out
        self._run(plan_of(pool).maximum, dtype_codes[x.dtype], x, None, choice, nan == "ignore")
        return choice

    def maximum_and_choice(
        self, pool: Pool, x: Array, nan: str, out: Array | None = None, choice_out: Array | None = None
    ) -> tuple[Array, Array]:
        """Both in one pass."""
        y = self._new(pool.out_shape, x.dtype) if out is None else out
        choice = self._new(pool.out_shape, pool.choice_dtype) if choice_out is None else choice_out
        self._run(plan_of(pool).maximum, dtype_codes[x.dtype], x, y, choice, nan == "ignore")
        return y, choice

    def take(self, pool: Pool, v: Array, choice: Array, out: Array | None = None) -> Array:
        """The chosen element of each window."""
        y = self._new(pool.out_shape, v.dtype) if out is None else out
        self._run(plan_of(pool).take, dtype_codes[v.dtype], v, self._dense(choice), y)
        return y

    def put(self, pool: Pool, g: Array, choice: Array, out: Array | None = None, assign: bool = False) -> Array:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        gx = self._new(pool.shape, g.dtype) if out is None else out
        self._run(plan_of(pool).put, dtype_codes[g.dtype], g, self._dense(choice), gx, assign)
        return gx

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: Array, out: Array | None = None) -> Array:
        """The average over the real elements of each window."""
        y = self._new(pool.out_shape, x.dtype) if out is None else out
        self._run(plan_of(pool).mean, dtype_codes[x.dtype], x, y)
        return y

    def spread(self, pool: Pool, g: Array, out: Array | None = None) -> Array:
        """The transpose of mean."""
        gx = self._new(pool.shape, g.dtype) if out is None else out
        self._run(plan_of(pool).spread, dtype_codes[g.dtype], g, gx)
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
        gx = self._new(pool.shape, g.dtype) if out is None else out
        wanted = None if equal_to is None else self._dense(equal_to)
        if ties == "first":
            self._run(plan_of(pool).max_put, dtype_codes[x.dtype], x, g, wanted, gx, nan == "ignore")
        else:
            winners = self.maximum(pool, x, nan) if wanted is None else wanted
            self._run(plan_of(pool).ties_put, dtype_codes[x.dtype], x, winners, g, gx, ties == "split")
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
        y = self._new(pool.out_shape, v.dtype) if out is None else out
        wanted = None if equal_to is None else self._dense(equal_to)
        if ties == "first":
            self._run(plan_of(pool).max_take, dtype_codes[x.dtype], x, v, wanted, y, nan == "ignore")
        else:
            winners = self.maximum(pool, x, nan) if wanted is None else wanted
            self._run(plan_of(pool).ties_take, dtype_codes[x.dtype], x, winners, v, y, ties == "split")
        return y

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Array, dtype: Any, scope: str) -> Array:
        """The flat index of every chosen element."""
        index = self._new(pool.out_shape, np.dtype(dtype))
        self._run(plan_of(pool).code_to_index, self._dense(choice), SCOPES[scope], index)
        return index

    def index_put(self, pool: Pool, g: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """Adds g where the indices say. They may name any element of their image."""
        gx = self._new(pool.shape, g.dtype) if out is None else out
        self._run(plan_of(pool).index_put, dtype_codes[g.dtype], g, self._dense(index), SCOPES[scope], gx)
        return gx

    def index_take(self, pool: Pool, v: Array, index: Array, scope: str, out: Array | None = None) -> Array:
        """The elements of v that the indices name."""
        y = self._new(pool.out_shape, v.dtype) if out is None else out
        self._run(plan_of(pool).index_take, dtype_codes[v.dtype], self._dense(v), self._dense(index), SCOPES[scope], y)
        return y

    def index_fault(self, pool: Pool, index: Array, scope: str) -> tuple[tuple[int, ...], int] | None:
        """Where the first index outside its own image is, and what it is."""
        return _fault(index, plan_of(pool).find_bad_index(self._dense(index), SCOPES[scope]))

    def choice_fault(self, pool: Pool, choice: Array) -> tuple[tuple[int, ...], int] | None:
        """Where the first code that names no element of its window is, and what it is."""
        return _fault(choice, plan_of(pool).find_bad_code(self._dense(choice)))


def _fault(values: Array, at: int) -> tuple[tuple[int, ...], int] | None:
    if at < 0:
        return None
    position = tuple(int(i) for i in np.unravel_index(at, values.shape))
    return position, int(values[position])


class StandIn(NamedTuple):
    """Stands in for an array where a call is noted."""

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Notes(Numpy):
    """Notes which kernels would run on which arrays, instead of running them."""

    def __init__(self, *given: Array) -> None:
        self.given = [StandIn(i, a.shape, a.dtype) for i, a in enumerate(given)]
        self.results: list[StandIn] = []
        self.steps: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []

    def program(self, outputs: StandIn | tuple[StandIn, ...], outputs_type: Any) -> Program:
        """What was noted, ready to be done."""
        return Program(
            len(self.given),
            [(result.shape, result.dtype) for result in self.results],
            [
                (k, tuple([a.number] if isinstance(a, StandIn) else a for a in given), well)
                for k, given, well in self.steps
            ],
            [output.number for output in ([outputs] if isinstance(outputs, StandIn) else outputs)],
            outputs_type,
        )

    def index_fault(self, pool: Pool, index: Any, scope: str) -> None:
        """Where there is one, the kernels decline."""
        self.steps.append((plan_of(pool).find_bad_index, (index, SCOPES[scope]), -1))

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self.results.append(StandIn(len(self.given) + len(self.results), shape, dtype))
        return self.results[-1]

    def _run(self, operation: Callable[..., bool | None], *arguments: Any) -> None:
        self.steps.append((operation, arguments, True))

    def _dense(self, array: Any) -> Any:
        return array
