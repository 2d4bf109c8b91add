"""Pooling written from its definition: loops over windows, nothing clever. The tests trust this file.

A window of one axis is the list of input positions it reads; an axis is a list of such lists. Sums are taken in the
numbers they are given: pass `exact(x)` (Python fractions) to get the truth, or float64 for data whose sums it holds.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product

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
    """Every output position, and the input positions of its window in scan order (as an index: an array per axis)."""
    return _cells(tuple(tuple(map(tuple, axis)) for axis in windows))


@lru_cache(8)  # each map of a pool asks again
def _cells(windows):
    return [
        (o, tuple(map(np.array, zip(*product(*(axis[i] for axis, i in zip(windows, o)))))))
        for o in product(*(range(len(axis)) for axis in windows))
    ]


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
    x, won = front(comparable(x), axes), {}
    target = None if equal_to is None else front(comparable(equal_to), axes)
    for o, members in cells(windows):
        b = x[members]  # (elements of the window, all other axes)
        if target is None:
            best = np.max(b, axis=0) if nan == "propagate" or x.dtype.kind != "f" else np.fmax.reduce(b, axis=0)
        else:
            best = target[o]
        same = (b == best) | (is_nan(b) & is_nan(best))
        won[o] = same & (np.cumsum(same, axis=0) == 1) if ties == "first" else same
    return won


def take(v, won, windows, axes, ties="first"):
    """The winner's value (0 without a winner); the sum of the winners under "all", their average under "split"."""
    y, out = result_like(v, axes, windows, v.dtype)
    v = front(v, axes)
    for o, members in cells(windows):
        b, w = v[members], won[o]
        if ties == "first":
            for element, wins in zip(b, w):
                np.copyto(out[(*o, ...)], element, where=wins)
        else:
            total = np.where(w, b, b * 0).sum(axis=0)
            out[o] = total / np.maximum(w.sum(axis=0), 1).astype(total.dtype) if ties == "split" else total
    return y


def put(g, won, windows, axes, sizes, ties="first"):
    """The transpose of take: every winner gets the gradient of its window (an equal share of it under "split")."""
    shape = list(g.shape)
    for axis, n in zip(axes, sizes):
        shape[axis] = n
    gx = np.zeros(shape, g.dtype)
    out, g = front(gx, axes), front(g, axes)
    for o, members in cells(windows):
        w = won[o]
        share = g[o] / np.maximum(w.sum(axis=0), 1).astype(g.dtype) if ties == "split" else g[o]
        out[members] = out[members] + np.where(w, share, share * 0 if g.dtype == object else 0)
    return gx


def maximum(x, windows, axes, nan="propagate"):
    return take(x, choose(x, windows, axes, "first", nan), windows, axes)


def mean(x, windows, axes):
    y, out = result_like(x, axes, windows, x.dtype)
    x = front(x, axes)
    for o, members in cells(windows):
        out[o] = x[members].sum(axis=0) / len(members[0])
    return y


def spread(g, windows, axes, sizes):
    everyone = {o: np.ones((len(members[0]), *front(g, axes)[o].shape), bool) for o, members in cells(windows)}
    return put(g, everyone, windows, axes, sizes, "split")


# The last step of every sum -----------------------------------------------------------------------------------------


def narrow(x, dtype):
    """To the result type: integers are truncated toward zero and wrap, floats are rounded to nearest."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        return np.asarray(x, np.float64).astype(dtype)
    bits = 8 * dtype.itemsize
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
