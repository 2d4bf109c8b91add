"""Random geometry and data for the randomised tests. Everything comes from the generator it is given."""

import ml_dtypes
import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = FLOATS + INTEGERS


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def array_of(rng, shape, dtype, kind="ties"):
    """kind: "ties" few small integers, "plain" anything NaN-free, "distinct" all different and at least 1/4 apart
    where the type can."""
    dtype, size = dtype_of(dtype), int(np.prod(shape))
    low = 0 if dtype.kind == "u" else -3
    if kind == "ties":
        x = rng.integers(low, 4, size)
    elif kind == "distinct":
        x = rng.permutation(size) / 4.0 - (0 if dtype.kind == "u" else size // 8)
        assert dtype.kind not in "iu" and len(np.unique(x.astype(dtype))) == size, (
            "too many different values for the type"
        )
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True).reshape(shape)
    else:
        x = rng.normal(0, 2, size)
    return np.asarray(x).reshape(shape).astype(dtype)


def with_specials(rng, x, share=0.15):
    """The same float array with NaN, infinities and signed zeros strewn in."""
    x = x.copy()
    where = rng.random(x.shape) < share
    x[where] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0]), int(where.sum())).astype(x.dtype)
    return x


def pooling(rng, spatial, largest=7, paddings=("SAME", "VALID"), layout="channels_last", channels=None):
    """A random input shape and TensorFlow-style attributes whose forward result is not empty."""
    while True:
        n = rng.integers(1, largest + 1, spatial)
        k = rng.integers(1, 5, spatial)
        s = rng.integers(1, 5, spatial)
        padding = str(rng.choice(list(paddings)))
        pads = [0] * 2 * spatial
        if padding == "EXPLICIT":
            pads = [int(rng.integers(0, k[i // 2])) for i in range(2 * spatial)]
        padded = n + np.array(pads).reshape(-1, 2).sum(axis=1)
        if padding == "SAME" or (padded >= k).all():
            break
    batch, depth = int(rng.integers(1, 3)), int(channels or rng.integers(1, 4))

    def around(values, edge, by=1):
        values = [int(v) for v in values]
        first = [edge] * by
        return first + values + first if layout == "channels_last" else first + first + values

    attrs = {"ksize": around(k, 1), "strides": around(s, 1), "padding": padding}
    if padding == "EXPLICIT":
        attrs["explicit_paddings"] = around(pads, 0, by=2)
    shape = (batch, *map(int, n), depth) if layout == "channels_last" else (batch, depth, *map(int, n))
    return shape, attrs


def sequence(rng, n, out=None):
    """A random strictly increasing sequence from 0 to n."""
    out = out or int(rng.integers(1, n + 1))
    inner = np.sort(rng.choice(np.arange(1, n), out - 1, replace=False)) if out > 1 else []
    return np.array([0, *inner, n], np.int64)
