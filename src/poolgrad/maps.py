"""The five maps that all pooling is made of, for people who build on them.

Each map runs over a `Pool` (see `windows`) and is described in the same four lines: the shapes it leads from and to,
what its kernel computes, its derivative, and its transpose. A derivative is always one of the five again, so there is
no order of derivative that is not covered.

>>> import numpy as np
>>> pool = Pool.of((6,), "X", [regular(6, window=3, stride=2, padding="SAME")])
>>> x = np.array([3, 1, 4, 1, 5, 9], np.float32)
>>> winners = choose(pool, x)                       # local positions in windows [3 1 4], [4 1 5], [5 9]
>>> winners
array([2, 2, 1], dtype=uint8)
>>> y = take(pool, x, winners)                      # max pooling
>>> y
array([4., 5., 9.], dtype=float32)
>>> put(pool, np.ones_like(y), winners)             # its gradient
array([0., 0., 1., 0., 1., 1.], dtype=float32)
>>> mean(pool, x)                                   # average pooling
array([2.6666667, 3.3333333, 7.       ], dtype=float32)
>>> spread(pool, np.full_like(y, 6))                # its gradient
array([2., 2., 4., 2., 5., 3.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from . import backends, checks
from .cpu import Block, dtype_codes
from .declare import DTYPES, dtype_name, read_array
from .errors import InvalidArgument, named
from .policy import resolve
from .windows import Pool, Windows, adaptive, explicit, fractional, regular

__all__ = [
    "Pool", "Windows", "adaptive", "choose", "explicit", "fractional", "mean", "put", "regular", "spread", "take",
]  # fmt: skip

Array: TypeAlias = Any
_numpy = backends.of()
_P = ParamSpec("_P")
_R = TypeVar("_R")


def errors_named(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, with its name in the errors that leave it."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise named(function.__name__.lstrip("_"), error) from None

    return call


@errors_named
def choose(pool: Pool, x: Array, *, nan: str | None = None, out: Array | None = None) -> Array:
    """Which element of each window wins, as a choice code: the local position in scan order (see `Pool`).

    shape       pool.shape -> pool.out_shape, dtype pool.choice_dtype
    kernel      the first maximum of each window; a NaN wins or never wins, as `nan` says
    derivative  zero: a choice does not move
    transpose   none: it is not linear
    """
    _expect_pool(pool)
    on, x = data("x", x, pool.shape)
    rule = resolve(nan=nan)
    return on.choose(pool, x, rule.nan, out=destination(out, pool.out_shape, pool.choice_dtype, x))


def take(pool: Pool, v: Array, choice: Array, *, out: Array | None = None) -> Array:
    """Of each window the element that was chosen.

    shape       pool.shape, pool.out_shape -> pool.out_shape
    kernel      y[o] = v[the element that window o chose]
    derivative  take of the derivative of v, with the same choice
    transpose   put
    """
    # Where the pool has been used before, the kernels look for faults themselves: what they do not take is done slowly.
    plan = pool._native if type(pool) is Pool else None
    y = None if plan is None else plan.take_checked(dtype_codes, v, choice, pool.choice_dtype, out)
    return _take(pool, v, choice, out) if y is None else y


@errors_named
def _take(pool: Pool, v: Array, choice: Array, out: Array | None) -> Array:
    _expect_pool(pool)
    on, v = data("v", v, pool.shape)
    choice = _choice(on, pool, choice)
    return on.take(pool, v, choice, out=destination(out, pool.out_shape, v.dtype, v, choice))


def put(pool: Pool, g: Array, choice: Array, *, assign: bool = False, out: Array | None = None) -> Array:
    """To each element the sum over the windows that chose it.

    shape       pool.out_shape, pool.out_shape -> pool.shape
    kernel      gx[i] = sum of g[o] over the windows o that chose i; with `assign` the g[o] of the last one
    derivative  put of the derivative of g, with the same choice
    transpose   take
    """
    plan = pool._native if type(pool) is Pool and type(assign) is bool else None
    gx = None if plan is None else plan.put_checked(dtype_codes, g, choice, pool.choice_dtype, out, assign)
    return _put(pool, g, choice, out, assign) if gx is None else gx


@errors_named
def _put(pool: Pool, g: Array, choice: Array, out: Array | None, assign: bool) -> Array:
    _expect_pool(pool)
    on, g = data("g", g, pool.out_shape)
    choice = _choice(on, pool, choice)
    assign = checks.flag("assign", assign)
    return on.put(pool, g, choice, out=destination(out, pool.shape, g.dtype, g, choice), assign=assign)


@errors_named
def mean(pool: Pool, x: Array, *, out: Array | None = None) -> Array:
    """The average of each window over its real elements.

    shape       pool.shape -> pool.out_shape
    kernel      y[o] = sum of x over window o, divided by the number of its real elements (or by the pool's divisors)
    derivative  mean of the derivative of x
    transpose   spread
    """
    _expect_pool(pool)
    on, x = data("x", x, pool.shape)
    return on.mean(pool, x, out=destination(out, pool.out_shape, x.dtype, x))


@errors_named
def spread(pool: Pool, g: Array, *, out: Array | None = None) -> Array:
    """To each element its share of the windows that contain it.

    shape       pool.out_shape -> pool.shape
    kernel      gx[i] = sum of g[o] / (what mean divides window o by) over the windows o that contain i
    derivative  spread of the derivative of g
    transpose   mean
    """
    _expect_pool(pool)
    on, g = data("g", g, pool.out_shape)
    return on.spread(pool, g, out=destination(out, pool.shape, g.dtype, g))


def _expect_pool(pool: object) -> None:
    if not isinstance(pool, Pool):
        checks.refuse_type("pool", pool, "a Pool")


def data(name: str, value: Array, shape: tuple[int, ...] | None = None, like: Any = None) -> tuple[Any, Array]:
    """The value as a checked array of numbers, and the backend that computes on it. A list takes the dtype `like`."""
    if type(value) is np.ndarray and value.dtype in dtype_codes and (shape is None or value.shape == shape):
        return _numpy, value  # nothing left to check
    on = backends.of(value)
    array = read_array(on, name, value, None if hasattr(value, "dtype") else like)
    if dtype_name(array.dtype) not in DTYPES:
        checks.refuse_type(name, array, "one of " + ", ".join(DTYPES))
    if shape is not None and tuple(array.shape) != shape:
        raise InvalidArgument(
            f"{name} has shape {tuple(array.shape)}, expected {shape}", argument=name, given=array.shape, expected=shape
        )
    return on, array


def destination(out: Array | None, shape: tuple[int, ...], dtype: Any, *inputs: Array) -> Array | None:
    """The caller's `out`, if a result of this shape and dtype can be written there while the inputs are read."""
    if out is None:
        return None
    if type(out) is not np.ndarray:
        checks.refuse_type("out", out, "a NumPy array")
    if out.shape != shape:
        checks.refuse("out", out.shape, f"shape {shape}")
    if out.dtype != dtype:
        checks.refuse_type("out", out.dtype, f"dtype {dtype}")
    if not out.flags.carray:
        raise InvalidArgument("out must be C-contiguous, aligned and writeable", argument="out", given=out.flags)
    for array in inputs:
        if _may_share_memory(out, array):
            raise InvalidArgument("out overlaps an input in memory", argument="out")
    return out


_WHOLE = (Block, type(None))
"""What an array with memory of its own is based on: ours or NumPy's."""


def _may_share_memory(out: Array, array: Array) -> bool:
    if type(array) is not np.ndarray:
        return np.may_share_memory(out, array)
    mine, other = out.base, array.base
    if type(mine) in _WHOLE and type(other) in _WHOLE and mine is not other:
        return False  # one of them at least is ours, and nobody else has it
    return np.may_share_memory(out, array)


def _choice(on: Any, pool: Pool, value: Array) -> Array:
    choice = value
    if on is not _numpy or type(value) is not np.ndarray or value.dtype != pool.choice_dtype:
        choice = read_array(on, "choice", value, None if hasattr(value, "dtype") else pool.choice_dtype)
        if dtype_name(choice.dtype) != dtype_name(pool.choice_dtype):
            checks.refuse_type("choice", choice.dtype, f"dtype {pool.choice_dtype}, which `choose` gives for this pool")
    if tuple(choice.shape) != pool.out_shape:
        checks.refuse("choice", tuple(choice.shape), f"shape {pool.out_shape}")
    fault = on.choice_fault(pool, choice)
    if fault is not None:
        raise InvalidArgument(
            f"choice at {fault[0]} is {fault[1]}, outside its window", argument="choice", given=fault[1]
        )
    return choice
