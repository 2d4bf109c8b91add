"""Pooling written from its definition: all elements of all windows, nothing clever. The tests trust this file.

A window of one axis is the list of input positions it reads; an axis is a list of such lists. Sums are taken in the
numbers they are given: pass `exact(x)` (Python fractions) to get the truth, or float64 for data whose sums it holds.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import prod

import numpy as np

# Windows of one axis ------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The definition gives no meaning to these arguments."""


def regular(n, k, s, padding="VALID", d=1, before=0, after=0):
    reach = (k - 1) * d + 1  # from the first to the last element of a window
    if k < 1 or s < 1 or d < 1 or padding not in ("SAME", "VALID", "EXPLICIT") or min(before, after) < 0:
        raise Refused("window, stride and dilation are positive, padding is known and not negative")
    if n == 0:
        return []
    if padding == "SAME":
        count = -(-n // s)
        before = max(0, (count - 1) * s + reach - n) // 2
    else:
        room = n + before + after - reach + s
        if room <= -s:
            raise Refused("output length would be negative")
        count = max(0, room // s)
    windows = [
        [i for i in range(n) if 0 <= i - (o * s - before) < reach and (i - o * s + before) % d == 0]
        for o in range(count)
    ]
    if not all(windows):
        raise Refused("a window without any real element")
    return windows


def fractional(n, sequence, overlapping=False):
    sequence = [int(edge) for edge in sequence]
    if len(sequence) < 2 or sequence[0] != 0 or sequence[-1] != n or any(b <= a for a, b in pairwise(sequence)):
        raise Refused("a sequence starts at 0, increases strictly and ends at the input length")
    return [list(range(a, min(b + bool(overlapping), n))) for a, b in pairwise(sequence)]


def adaptive(n, m):
    return [list(range(i * n // m, -(-(i + 1) * n // m))) for i in range(m)]


# Windows of all spatial axes ----------------------------------------------------------------------------------------


def cells(windows):
    """The input positions of every window in scan order: an array (outputs..., elements) per axis, and which of these
    elements there are. A window with fewer elements than another names its first ones again."""
    return _cells(tuple(tuple(map(tuple, axis)) for axis in windows))


@lru_cache(8)  # each map of a pool asks again
def _cells(windows):
    rank, places, real = len(windows), [], np.ones((), bool)
    for a, axis in enumerate(windows):
        longest = max(map(len, axis), default=1)
        shape = [len(axis) if i == a else longest if i == rank + a else 1 for i in range(2 * rank)]
        places.append(np.array([(window + window[:1] * longest)[:longest] for window in axis], int).reshape(shape))
        real = real & np.array([[i < len(window) for i in range(longest)] for window in axis], bool).reshape(shape)
    flat = (*real.shape[:rank], prod(real.shape[rank:]))
    return [np.broadcast_to(place, real.shape).reshape(flat) for place in places], real.reshape(flat)


def everyone(windows, rest):
    """The mask of all elements, for arrays with the axes `rest` after the spatial ones."""
    real = cells(windows)[1]
    return np.broadcast_to(real.reshape(*real.shape, *[1] * len(rest)), (*real.shape, *rest))


def winners(won, windows):
    """Every winner of a mask (outputs..., elements, other axes...): the index of its window, and its own."""
    at, rank = np.nonzero(won), len(windows)
    rest = at[rank + 1 :]
    return (*at[:rank], *rest), (*(place[at[: rank + 1]] for place in cells(windows)[0]), *rest)


def add(shape, at, terms):
    """Zeros, and on them the terms, one after the other."""
    sums = np.zeros(prod(shape), terms.dtype)
    if sums.size:
        np.add.at(sums, np.ravel_multi_index(at, shape), terms)
    return sums.reshape(shape)


def front(x, axes):
    return np.moveaxis(x, axes, range(len(axes)))


def result_like(x, axes, windows, dtype, value=0):
    """An array shaped like x but with the output lengths on the spatial axes, and a view of it with those axes in
    front."""
    shape = list(x.shape)
    for axis, w in zip(axes, windows):
        shape[axis] = len(w)
    y = np.full(shape, value, dtype)
    return y, front(y, axes)


def exact(x):
    """The same numbers as fractions, so that sums and quotients are exact."""
    x = np.asarray(x)
    as_python = x.astype(np.float64 if x.dtype.kind not in "iu" else x.dtype).tolist
    return np.frompyfunc(Fraction, 1, 1)(np.array(as_python(), object)) if x.size else np.zeros(x.shape, object)


def is_nan(x):
    return np.zeros(np.shape(x), bool) if x.dtype.kind in "iu" else np.isnan(x.astype(np.float64))


def comparable(x):
    return x.astype(np.float32) if x.dtype.name in ("bfloat16", "float16") else x


# choose, take, put, mean, spread ------------------------------------------------------------------------------------


def choose(x, windows, axes, ties="first", nan="propagate", equal_to=None):
    """For every window a mask over its elements: who wins. `equal_to` names the winning value instead of the
    maximum."""
    x, elements = front(comparable(x), axes), len(axes)
    places, _ = cells(windows)
    b = x[tuple(places)]  # (outputs..., elements of the window, all other axes)
    if equal_to is not None:
        best = front(comparable(equal_to), axes)
    elif nan == "propagate" or x.dtype.kind != "f":
        best = np.max(b, axis=elements)
    else:
        best = np.fmax.reduce(b, axis=elements)
    best = np.expand_dims(best, elements)
    same = everyone(windows, x.shape[elements:]) & ((b == best) | (is_nan(b) & is_nan(best)))
    return same & (np.cumsum(same, axis=elements, dtype=np.int32) == 1) if ties == "first" else same


def take(v, won, windows, axes, ties="first"):
    """The winner's value (0 without a winner); the sum of the winners under "all", their average under "split"."""
    y, out = result_like(v, axes, windows, v.dtype)
    window, winner = winners(won, windows)
    if ties == "first":
        out[window] = front(v, axes)[winner]
    else:
        out[...] = add(out.shape, window, front(v, axes)[winner])
        if ties == "split":
            out[...] = out / np.maximum(won.sum(axis=len(axes)), 1).astype(out.dtype)
    return y


def put(g, won, windows, axes, sizes, ties="first"):
    """The transpose of take: every winner gets the gradient of its window (an equal share of it under "split")."""
    share = front(g, axes)
    if ties == "split":
        share = share / np.maximum(won.sum(axis=len(axes)), 1).astype(g.dtype)
    window, winner = winners(won, windows)
    gx = add((*sizes, *share.shape[len(axes) :]), winner, share[window])
    return np.ascontiguousarray(np.moveaxis(gx, range(len(axes)), axes))


def maximum(x, windows, axes, nan="propagate"):
    return take(x, choose(x, windows, axes, "first", nan), windows, axes)


def mean(x, windows, axes):
    return take(x, everyone(windows, front(x, axes).shape[len(axes) :]), windows, axes, "split")


def spread(g, windows, axes, sizes):
    return put(g, everyone(windows, front(g, axes).shape[len(axes) :]), windows, axes, sizes, "split")


# The last step of every sum -----------------------------------------------------------------------------------------


def narrow(x, dtype):
    """To the result type: integers are truncated toward zero and wrap, floats are rounded to nearest."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        return np.asarray(x, np.float64).astype(dtype)
    x, bits = np.asarray(x), 8 * dtype.itemsize
    if x.dtype == np.float64 and (np.abs(x) < 2.0**63).all():
        return x.astype(np.int64).astype(dtype)
    wrap = np.frompyfunc(lambda v: (int(v) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1), 1, 1)
    whole = wrap(x).astype(np.int64) if np.size(x) else np.zeros(np.shape(x), np.int64)
    return whole.astype(dtype)


def narrow_fast(x, dtype):
    """As `narrow`, for float64 arrays of small whole numbers."""
    return x.astype(np.int64).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


def flat_index(shape, include_batch):
    """What MaxPoolWithArgmax calls an element: its place in the whole array, or in its own image."""
    index = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return (
        index
        if include_batch or not index.size
        else index - index.reshape(shape[0], -1)[:, 0].reshape(-1, *[1] * (len(shape) - 1))
    )
