"""Pooling for any array with any number of spatial axes, in any layout.

A layout names the axes: N the batch (first), C the channels (last, or directly after N), every other letter a spatial
axis. Without one an array is channels-last: "NWC", "NHWC", "NDHWC". Windows, strides and dilations are one integer or
one per spatial axis; padding is "valid", "same", an integer, one per axis, or a (before, after) pair per axis.

`ties` and `nan` overrule the policy in force (see `policy`). `out` takes an array to write the result to.

>>> import numpy as np, poolgrad as pg
>>> volume = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
>>> pg.max_pool(volume, window=2, layout="ZYX").shape
(2, 2, 2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import Any, TypeAlias

import numpy as np

from . import backends, checks, windows
from . import sequences as sequences_
from .cache import exact, keep, plain
from .checks import INT64_MAX, Int64Array
from .declare import refuse_more_than_memory
from .errors import InvalidArgument
from .maps import Array, data, destination, errors_named
from .policy import Policy, resolve
from .windows import Pool, Windows

PerAxis: TypeAlias = int | Sequence[int]
PaddingLike: TypeAlias = str | int | Sequence[int] | Sequence[tuple[int, int]]
Pairs: TypeAlias = tuple[tuple[int, int], ...]

# ---------------------------------------------------------------------------------------------------------------------
# Regular windows


@errors_named
def max_pool(
    x: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *, dilation: PerAxis = 1,
    layout: str | None = None, ties: str | None = None, nan: str | None = None, return_choice: bool = False,
    return_indices: bool = False, out: Array | None = None,
) -> Array:  # fmt: skip
    """The maximum of every window.

    With `return_choice` or `return_indices` a tuple: the maxima, then which element of its window won (a choice code,
    see `windows.Pool`), then its flat index in the spatial block. Both name the first of equal maxima, whatever `ties`.

    >>> x = np.array([3, 1, 4, 1, 5, 9], np.float32)
    >>> max_pool(x, 3, 2, "same", layout="X")
    array([4., 5., 9.], dtype=float32)
    >>> max_pool(x, 2, layout="X", return_indices=True)
    (array([3., 4., 9.], dtype=float32), array([0, 2, 5]))
    """
    on, x = data("x", x)
    pool = _regular(x.shape, layout, window, strides, padding, dilation)
    return _maximum(on, pool, x, resolve(ties, nan), return_choice, return_indices, out)


@errors_named
def min_pool(
    x: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *, dilation: PerAxis = 1,
    layout: str | None = None, ties: str | None = None, nan: str | None = None, return_choice: bool = False,
    return_indices: bool = False, out: Array | None = None,
) -> Array:  # fmt: skip
    """The minimum of every window; everything else as in `max_pool`.

    >>> min_pool(np.array([3, 1, 4, 1, 5, 9], np.uint8), 3, layout="X")
    array([1, 1], dtype=uint8)
    """
    on, x = data("x", x)
    _expect_no_tensor("x", on, x)
    pool = _regular(x.shape, layout, window, strides, padding, dilation)
    out = destination(out, pool.out_shape, x.dtype, x)
    found = _maximum(on, pool, _flipped(x), resolve(ties, nan), return_choice, return_indices, out)
    return (_flipped_back(found[0]), *found[1:]) if isinstance(found, tuple) else _flipped_back(found)


@errors_named
def avg_pool(
    x: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *, dilation: PerAxis = 1,
    layout: str | None = None, count_include_pad: bool = False, divisor_override: int | None = None,
    out: Array | None = None,
) -> Array:  # fmt: skip
    """The average of every window over its real elements.

    With `count_include_pad` padding counts as zeros. `divisor_override` divides the window's sum by this number
    instead of its size.

    >>> x = np.array([2, 4, 6], np.float32)
    >>> avg_pool(x, 2, 2, padding=1, layout="X")
    array([2., 5.], dtype=float32)
    >>> avg_pool(x, 2, 2, padding=1, layout="X", count_include_pad=True)
    array([1., 5.], dtype=float32)
    >>> avg_pool(x, 2, 2, padding=1, layout="X", divisor_override=1)
    array([ 2., 10.], dtype=float32)
    """
    on, x = data("x", x)
    pool = _averaging(x.shape, layout, window, strides, padding, dilation, count_include_pad, divisor_override)
    return on.mean(pool, x, out=destination(out, pool.out_shape, x.dtype, x))


@errors_named
def lp_pool(
    x: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *, p: float = 2.0,
    dilation: PerAxis = 1, layout: str | None = None, out: Array | None = None,
) -> Array:  # fmt: skip
    """The p-norm of every window: the p-th root of the sum of |x| ** p. For p = infinity the largest absolute value.

    >>> lp_pool(np.array([3, 4, 6, 8], np.float32), 2, layout="X")
    array([ 5., 10.], dtype=float32)
    """
    on, x = data("x", x)
    _expect_no_tensor("x", on, x)
    _expect_floating("x", x)
    pool = _regular(x.shape, layout, window, strides, padding, dilation)
    p = checks.number("p", p, finite=False)
    if p < 1:
        checks.refuse("p", p, "at least 1")
    if p == math.inf:
        return on.maximum(pool, np.abs(x), "propagate", out=destination(out, pool.out_shape, x.dtype, x))
    sums = on.mean(pool.divided_by(_divisors(pool, 1)), np.abs(x.astype(np.float64)) ** p)
    return _stored(sums ** (1 / p), x, out)


@errors_named
def max_pool_grad(
    x: Array, grad: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *,
    dilation: PerAxis = 1, layout: str | None = None, ties: str | None = None, nan: str | None = None,
    out: Array | None = None,
) -> Array:  # fmt: skip
    """The gradient of `max_pool` at x: every window hands its entry of `grad` to the element that won.

    >>> x = np.array([3, 1, 4, 4], np.float32)
    >>> max_pool_grad(x, np.array([5, 6], np.float32), 2, layout="X")
    array([5., 0., 6., 0.], dtype=float32)
    >>> max_pool_grad(x, np.array([5, 6], np.float32), 2, layout="X", ties="split")
    array([5., 0., 3., 3.], dtype=float32)
    """
    _, x = data("x", x)
    pool = _regular(x.shape, layout, window, strides, padding, dilation)
    grad = _companion("grad", grad, pool.out_shape, x)
    on, rule = backends.of(x, grad), resolve(ties, nan)
    return on.max_put(pool, x, grad, rule.ties, rule.nan, out=destination(out, pool.shape, x.dtype, x, grad))


@errors_named
def max_pool_grad_grad(
    x: Array, v: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *,
    dilation: PerAxis = 1, layout: str | None = None, ties: str | None = None, nan: str | None = None,
    out: Array | None = None,
) -> Array:  # fmt: skip
    """The derivative of `max_pool` at x along v, and the gradient of `max_pool_grad`: of v what the winners of x have.

    >>> x = np.array([3, 1, 4, 4], np.float32)
    >>> max_pool_grad_grad(x, np.array([10, 20, 30, 40], np.float32), 2, layout="X")
    array([10., 30.], dtype=float32)
    """
    _, x = data("x", x)
    pool = _regular(x.shape, layout, window, strides, padding, dilation)
    v = _companion("v", v, pool.shape, x)
    on, rule = backends.of(x, v), resolve(ties, nan)
    return on.max_take(pool, x, v, rule.ties, rule.nan, out=destination(out, pool.out_shape, x.dtype, x, v))


@errors_named
def avg_pool_grad(
    shape: Sequence[int], grad: Array, window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid",
    *, dilation: PerAxis = 1, layout: str | None = None, count_include_pad: bool = False,
    divisor_override: int | None = None, out: Array | None = None,
) -> Array:  # fmt: skip
    """The gradient of `avg_pool` of an array of this shape: every window spreads its entry of `grad` evenly.

    >>> avg_pool_grad([3], np.array([6, 6], np.float32), 2, layout="X", padding="same")
    array([3., 3., 6.], dtype=float32)
    """
    shape = checks.integers("shape", shape, at_least=0)
    plain_pool = _regular(shape, layout, window, strides, padding, dilation)
    on, grad = data("grad", grad, plain_pool.out_shape)
    pool = _averaging(shape, layout, window, strides, padding, dilation, count_include_pad, divisor_override)
    return on.spread(pool, grad, out=destination(out, pool.shape, grad.dtype, grad))


# ---------------------------------------------------------------------------------------------------------------------
# Adaptive windows


@errors_named
def adaptive_max_pool(
    x: Array, size: PerAxis, *, layout: str | None = None, ties: str | None = None, nan: str | None = None,
    return_choice: bool = False, return_indices: bool = False, out: Array | None = None,
) -> Array:  # fmt: skip
    """The maximum of every window, with windows that cut each axis evenly into `size` parts.

    >>> adaptive_max_pool(np.array([3, 1, 4, 1, 5], np.float32), 2, layout="X")
    array([4., 5.], dtype=float32)
    """
    on, x = data("x", x)
    pool = _adaptive(on, x.shape, layout, size)
    return _maximum(on, pool, x, resolve(ties, nan), return_choice, return_indices, out)


@errors_named
def adaptive_avg_pool(x: Array, size: PerAxis, *, layout: str | None = None, out: Array | None = None) -> Array:
    """The average of every window, with windows that cut each axis evenly into `size` parts.

    >>> adaptive_avg_pool(np.array([3, 1, 5, 1, 6], np.float32), 2, layout="X")
    array([3., 4.], dtype=float32)
    """
    on, x = data("x", x)
    pool = _adaptive(on, x.shape, layout, size)
    return on.mean(pool, x, out=destination(out, pool.out_shape, x.dtype, x))


# ---------------------------------------------------------------------------------------------------------------------
# Fractional windows


@errors_named
def fractional_max_pool(
    x: Array, ratio: float | Sequence[float] | None = None, *, sequences: Sequence[Int64Array] | None = None,
    overlapping: bool = False, pseudo_random: bool = False, seed: int | tuple[int, int] | None = None,
    layout: str | None = None, ties: str | None = None, nan: str | None = None, return_choice: bool = False,
    return_indices: bool = False, return_sequences: bool = False, out: Array | None = None,
) -> Array:  # fmt: skip
    """The maximum of every cell of pooling sequences: given ones, or drawn for a ratio (one, or one per spatial axis).

    `seed` is TensorFlow's (seed, seed2), or seed alone; without it every call draws anew. With `return_sequences` the
    sequences, one per spatial axis, come last in the result.

    >>> x = np.array([3, 1, 4, 1, 5, 9], np.float32)
    >>> fractional_max_pool(x, sequences=[[0, 1, 3, 4, 6]], layout="X")
    array([3., 4., 1., 9.], dtype=float32)
    >>> fractional_max_pool(x, 1.5, seed=1, layout="X", return_sequences=True)
    (array([3., 4., 5., 9.], dtype=float32), (array([0, 2, 4, 5, 6]),))
    """
    on, x = data("x", x)
    pool, drawn = _fractional(x.shape, layout, ratio, sequences, overlapping, pseudo_random, seed)
    found = _maximum(on, pool, x, resolve(ties, nan), return_choice, return_indices, out)
    return _with_sequences(found, drawn, return_sequences)


@errors_named
def fractional_avg_pool(
    x: Array, ratio: float | Sequence[float] | None = None, *, sequences: Sequence[Int64Array] | None = None,
    overlapping: bool = False, pseudo_random: bool = False, seed: int | tuple[int, int] | None = None,
    layout: str | None = None, return_sequences: bool = False, out: Array | None = None,
) -> Array:  # fmt: skip
    """The average of every cell of pooling sequences; the arguments are those of `fractional_max_pool`.

    >>> x = np.array([3, 1, 5, 1, 5, 9], np.float32)
    >>> fractional_avg_pool(x, sequences=[[0, 1, 3, 4, 6]], layout="X")
    array([3., 3., 1., 7.], dtype=float32)
    """
    on, x = data("x", x)
    pool, drawn = _fractional(x.shape, layout, ratio, sequences, overlapping, pseudo_random, seed)
    found = on.mean(pool, x, out=destination(out, pool.out_shape, x.dtype, x))
    return _with_sequences(found, drawn, return_sequences)


# ---------------------------------------------------------------------------------------------------------------------
# Unpooling


@errors_named
def max_unpool(
    y: Array, indices: Array, shape: Sequence[int], *, layout: str | None = None, out: Array | None = None
) -> Array:
    """An array of this shape that is y at the indices that `max_pool` returned, and zero elsewhere.

    Where an index occurs more than once, the last entry of y stands.

    >>> y, indices = max_pool(np.array([3, 1, 4, 1, 5, 9], np.float32), 2, layout="X", return_indices=True)
    >>> max_unpool(y, indices, [6], layout="X")
    array([3., 0., 4., 0., 0., 9.], dtype=float32)
    """
    shape = checks.integers("shape", shape, at_least=0)
    on = backends.of(y, indices)
    _expect_no_tensor("y", on, y)
    _, y = data("y", y)
    indices = on.asarray(indices) if on.name == "dask" else checks.int64_array("indices", indices)
    axes = windows.spatial_axes(_layout(len(shape), layout))
    if y.ndim != len(shape) or any(y.shape[a] != n for a, n in enumerate(shape) if a not in axes):
        checks.refuse("y", y.shape, f"the rank, batch and channels of shape {shape}")
    if indices.shape != y.shape:
        checks.refuse("indices", indices.shape, f"the shape of y, {y.shape}")
    if on.name == "dask":
        return on.unpool(y, indices, shape, axes, out)
    places = math.prod(shape[axes.start : axes.stop])
    if indices.size and (indices.min() < 0 or indices.max() >= places):
        worst = int(indices.min() if indices.min() < 0 else indices.max())
        raise InvalidArgument(
            f"indices has an entry {worst}, expected 0 to {places - 1}", argument="indices", given=worst
        )
    result = destination(out, shape, y.dtype, y, indices)
    result = np.empty(shape, y.dtype) if result is None else result
    result[...] = 0
    outer, inner = math.prod(shape[: axes.start]), math.prod(shape[axes.stop :])
    flat = (outer, math.prod(y.shape[axes.start : axes.stop]), inner)
    np.put_along_axis(result.reshape(outer, places, inner), indices.reshape(flat), y.reshape(flat), axis=1)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# From arguments to pools


class _Geometry:
    """Regular windows for every spatial axis: plain numbers, paddings as (before, after)."""

    def __init__(
        self, window: tuple[int, ...], strides: tuple[int, ...], paddings: Pairs, dilation: tuple[int, ...]
    ) -> None:
        self.window, self.strides, self.paddings, self.dilation = window, strides, paddings, dilation

    def over(self, shape: tuple[int, ...], layout: str) -> Pool:
        sizes = shape[windows.spatial_axes(layout).start :]
        per_axis = zip(sizes, self.window, self.strides, self.paddings, self.dilation, strict=False)
        for i, (pads, k, d) in enumerate(zip(self.paddings, self.window, self.dilation, strict=True)):
            if max(pads) > (k - 1) * d:
                checks.refuse(
                    f"padding of spatial axis {i}", pads, f"less than the window's reach of {(k - 1) * d + 1}"
                )
        return Pool.of(shape, layout, [windows.explicit(n, k, s, *pads, d) for n, k, s, pads, d in per_axis])


def _regular(
    shape: tuple[int, ...],
    layout: str | None,
    window: PerAxis,
    strides: PerAxis | None,
    padding: PaddingLike,
    dilation: PerAxis,
) -> Pool:
    return _averaging(shape, layout, window, strides, padding, dilation, False, None)


def _averaging(
    shape: tuple[int, ...],
    layout: str | None,
    window: PerAxis,
    strides: PerAxis | None,
    padding: PaddingLike,
    dilation: PerAxis,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Pool:
    """The pool of regular windows, with what averages divide by."""
    arguments = (tuple(shape), layout, window, strides, padding, dilation, count_include_pad, divisor_override)
    key = exact(arguments) if plain(arguments) else None
    pool = _pools.get(key)
    if pool is None:
        full_layout, geometry = _geometry(shape, layout, window, strides, padding, dilation)
        pool = geometry.over(shape, full_layout)
        padding_counts = checks.flag("count_include_pad", count_include_pad)
        if divisor_override is not None:
            pool = pool.divided_by(_divisors(pool, _nonzero("divisor_override", divisor_override)))
        elif padding_counts:
            pool = pool.divided_by(_divisors(pool, *geometry.window))
        if key is not None:
            keep(_pools, key, pool)
    return pool


def _divisors(pool: Pool, *of_axes: int) -> list[Int64Array]:
    """Divisors for all windows of the pool: one per axis, 1 for the axes that are left."""
    if math.prod(map(abs, of_axes)) > INT64_MAX:
        raise InvalidArgument(f"dividing by {math.prod(of_axes)} is beyond 64-bit arithmetic", argument="divisors")
    padded = of_axes + (1,) * (len(pool.windows) - len(of_axes))
    return [np.full(w.count, divisor, np.int64) for w, divisor in zip(pool.windows, padded, strict=True)]


_pools: dict[Any, Pool] = {}


@errors_named
def pool(
    shape: Sequence[int], window: PerAxis, strides: PerAxis | None = None, padding: PaddingLike = "valid", *,
    dilation: PerAxis = 1, layout: str | None = None,
) -> Pool:  # fmt: skip
    """The `Pool` that `max_pool` and `avg_pool` use for an array of this shape: what the maps need.

    >>> from poolgrad import maps
    >>> x = np.array([3, 1, 4, 1, 5, 9])
    >>> y, choice = max_pool(x, 2, layout="X", return_choice=True)
    >>> maps.put(pool(x.shape, 2, layout="X"), y, choice)
    array([3, 0, 4, 0, 0, 9])
    """
    return _regular(checks.integers("shape", shape, at_least=0), layout, window, strides, padding, dilation)


def _geometry(
    shape: tuple[int, ...],
    layout: str | None,
    window: PerAxis,
    strides: PerAxis | None,
    padding: PaddingLike,
    dilation: PerAxis,
) -> tuple[str, _Geometry]:
    layout = _layout(len(shape), layout)
    axes = windows.spatial_axes(layout)
    window = _per_axis("window", window, len(axes))
    strides = window if strides is None else _per_axis("strides", strides, len(axes))
    dilation = _per_axis("dilation", dilation, len(axes))
    sizes = shape[axes.start : axes.stop]
    if isinstance(padding, str) and padding.lower() == "same":
        paddings = tuple(map(_same, sizes, window, strides, dilation))
    else:
        paddings = _paddings(padding, len(axes))
    return layout, _Geometry(window, strides, paddings, dilation)


def _same(n: int, k: int, s: int, d: int) -> tuple[int, int]:
    total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
    return total // 2, total - total // 2


def _paddings(padding: Any, axes: int) -> Pairs:
    if isinstance(padding, str):
        if padding.lower() != "valid":
            checks.refuse("padding", padding, "'valid', 'same', integers or (before, after) pairs")
        return ((0, 0),) * axes
    if isinstance(padding, (list, tuple)) and any(isinstance(pair, (list, tuple)) for pair in padding):
        pairs = [checks.integers(f"padding[{i}]", pair, at_least=0) for i, pair in enumerate(padding)]
        if len(pairs) != axes or any(len(pair) != 2 for pair in pairs):
            checks.refuse("padding", padding, f"{axes} pairs (before, after)")
        return tuple((before, after) for before, after in pairs)
    return tuple((amount, amount) for amount in _per_axis("padding", padding, axes, at_least=0))


def _per_axis(name: str, value: Any, axes: int, at_least: int = 1) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) and checks.rank(value) == 0:
        return (checks.integer(name, value, at_least),) * axes
    values = checks.integers(name, value, at_least)
    if len(values) != axes:
        checks.refuse(name, value, f"one integer or {axes}, one per spatial axis")
    return values


_AXES = "".join(sorted(set(ascii_letters) - set("NCnc")))


def _layout(rank: int, layout: str | None) -> str:
    """The layout given, or the channels-last one for this rank."""
    if layout is None:
        if rank < 3:
            raise InvalidArgument(f"layout is needed for an array of {rank} dimensions", argument="layout")
        spatial = rank - 2
        return f"N{'DHW'[-spatial:] if spatial <= 3 else _AXES[:spatial]}C"
    windows.spatial_axes(layout)
    if len(layout) != rank:
        checks.refuse("layout", layout, f"{rank} letters, one per dimension")
    return layout


def _adaptive(on: Any, shape: tuple[int, ...], layout: str | None, size: PerAxis) -> Pool:
    layout = _layout(len(shape), layout)
    axes = windows.spatial_axes(layout)
    counts = _per_axis("size", size, len(axes), at_least=0)
    if on.name != "dask":  # its results are never held as a whole
        refuse_more_than_memory("the result", shape[: axes.start] + counts + shape[axes.stop :], 1)
    return Pool.of(shape, layout, list(map(windows.adaptive, shape[axes.start : axes.stop], counts)))


def _fractional(
    shape: tuple[int, ...],
    layout: str | None,
    ratio: Any,
    sequences: Any,
    overlapping: bool,
    pseudo_random: bool,
    seed: Any,
) -> tuple[Pool, tuple[Int64Array, ...]]:
    layout = _layout(len(shape), layout)
    axes = windows.spatial_axes(layout)
    sizes = shape[axes.start : axes.stop]
    if (ratio is None) == (sequences is None):
        raise InvalidArgument("give either ratio or sequences", argument="ratio", given=ratio)
    if sequences is None:
        ratios = checks.numbers("ratio", ratio) if checks.rank(ratio) else (checks.number("ratio", ratio),) * len(axes)
        first, second = _seeds(seed)
        drawn = sequences_.fractional_axes(sizes, ratios, pseudo_random=pseudo_random, seed=first, seed2=second)
    else:
        if not isinstance(sequences, list | tuple):
            checks.refuse_type("sequences", sequences, "a list or tuple of sequences")
        drawn = tuple(checks.int64_array(f"sequences[{i}]", edges) for i, edges in enumerate(sequences))
    if len(drawn) != len(axes):
        checks.refuse("sequences", sequences, f"{len(axes)}, one per spatial axis")
    cells: list[Windows] = [windows.fractional(n, edges, overlapping) for n, edges in zip(sizes, drawn, strict=True)]
    return Pool.of(shape, layout, cells), drawn


def _seeds(seed: Any) -> tuple[int, int]:
    if seed is None:
        return sequences_.fresh_seeds()
    if not isinstance(seed, (list, tuple)):
        return checks.integer("seed", seed), 0
    seeds = checks.integers("seed", seed)
    if len(seeds) != 2:
        checks.refuse("seed", seed, "one integer or two")
    return seeds[0], seeds[1]


# ---------------------------------------------------------------------------------------------------------------------
# From pools to results


def _maximum(
    on: Any, pool: Pool, x: Array, rule: Policy, return_choice: bool, return_indices: bool, out: Array | None
) -> Array:
    out = destination(out, pool.out_shape, x.dtype, x)
    want_choice, want_indices = (
        checks.flag("return_choice", return_choice),
        checks.flag("return_indices", return_indices),
    )
    if not (want_choice or want_indices):
        if on.name == "torch":  # which will ask for the gradient itself
            return on.maximum(pool, x, rule.nan, ties=rule.ties)
        return on.maximum(pool, x, rule.nan, out=out)
    y, choice = on.maximum_and_choice(pool, x, rule.nan, out=out)
    indices = (on.choice_to_index(pool, choice, np.dtype(np.int64), "spatial"),) if want_indices else ()
    return (y, *([choice] * want_choice), *indices)


def _with_sequences(found: Array, drawn: tuple[Int64Array, ...], wanted: bool) -> Array:
    if not checks.flag("return_sequences", wanted):
        return found
    return (*found, drawn) if isinstance(found, tuple) else (found, drawn)


def _companion(name: str, value: Array, shape: tuple[int, ...], x: Array) -> Array:
    """A second array that must have a given shape and the dtype of x."""
    _, array = data(name, value, shape, like=x.dtype)
    if array.dtype != x.dtype:
        checks.refuse_type(name, array.dtype, f"dtype {x.dtype}, as x has")
    return array


def _flipped(x: Array, out: Array | None = None) -> Array:
    """The values in reverse order: the largest becomes the smallest."""
    flip = np.invert if x.dtype.kind in "iu" else np.negative
    return flip(x) if out is None else flip(x, out=out)


def _flipped_back(y: Array) -> Array:
    return _flipped(y, y if isinstance(y, np.ndarray) else None)


def _nonzero(name: str, value: int) -> int:
    if checks.integer(name, value) == 0:
        checks.refuse(name, value, "not zero")
    return int(value)


def _expect_no_tensor(name: str, on: Any, x: Array) -> None:
    if on.name not in ("numpy", "dask"):
        checks.refuse_type(name, x, "a NumPy or Dask array (poolgrad.torch has this for tensors)")


def _expect_floating(name: str, x: Array) -> None:
    if x.dtype.kind in "iu":
        checks.refuse_type(name, x.dtype, "a floating dtype")


def _stored(result: Array, like: Array, out: Array | None) -> Array:
    """The result in the dtype of the input, in `out` if there is one."""
    if backends.of(result).name == "dask":
        return backends.of(result).stored(result, like.dtype, out)
    target = destination(out, result.shape, like.dtype, like)
    if target is None:
        target = backends.of(like).empty(result.shape, like.dtype)
    target[...] = result
    return target
