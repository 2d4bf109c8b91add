"""Chunked equals whole, bit for bit: every operator, map and functional call, whatever the chunks."""

import dask
import dask.array as da
import numpy as np
import poolgrad as pg
import pytest
from calls import arguments, chunked, on_dask, results
from hypothesis import given, settings
from hypothesis import strategies as st
from poolgrad import maps, windows

import generate
from judge import assert_same_bits

pytestmark = pytest.mark.usefixtures("in_this_thread")
SEEDS = st.integers(0, 2**32)


def assert_chunked_is_whole(lazy, whole, note=""):
    """Also what Dask knows before it computes: shape, dtype and chunks."""
    for chunks, value in zip(results(lazy), results(whole), strict=True):
        assert isinstance(chunks, da.Array), note
        assert (chunks.shape, chunks.dtype) == (value.shape, value.dtype), note
        for block in np.ndindex(*chunks.numblocks) if chunks.size < 200 else []:
            piece = chunks.blocks[block]
            assert piece.compute().shape == piece.shape, note
        assert_same_bits(chunks.compute(), value, note)


@pytest.mark.parametrize("name", pg.catalog.operators)
@settings(max_examples=25)
@given(seed=SEEDS, dtype=st.sampled_from(generate.DTYPES), kind=st.sampled_from(["ties", "plain", "special"]))
def test_every_operator(name, seed, dtype, kind):
    rng = np.random.default_rng(seed)
    call = arguments(rng, name, dtype, kind)
    operator = getattr(pg.raw_ops, name)
    with pg.policy(
        ties=str(rng.choice(["first", "first", "all", "split"])), nan=str(rng.choice(["propagate", "ignore"]))
    ):
        try:
            whole = operator(**call)
        except pg.errors.InvalidArgument:  # an orig_output that is no maximum under this policy
            assert name.startswith("FractionalMaxPoolGrad")
            with pytest.raises(pg.errors.InvalidArgument, match=name):
                dask.compute(operator(**on_dask(rng, name, call)))
            return
        lazy = operator(**on_dask(rng, name, call))
    assert_chunked_is_whole(lazy, whole, f"{name} {call}")


def random_windows(rng, n):
    """Windows of any kind over an axis of length n."""
    kind = rng.integers(4)
    if kind == 0:
        return windows.fractional(n, generate.sequence(rng, n), bool(rng.integers(2)))
    if kind == 1:
        return windows.adaptive(n, int(rng.integers(1, n + 3)))
    k, s, d = (int(rng.integers(1, most)) for most in (2 * n + 2, n + 3, 4))
    if kind == 2:
        return windows.regular(n, k, s, "SAME", d)
    before, after = (int(rng.integers(0, (k - 1) * d + 1)) for _ in range(2))
    return windows.explicit(n, k, s, before, after, d, ceil=bool(rng.integers(2)))


def random_pool(rng, longest=20):
    """A pool with windows of any kind, or None where a window would be empty."""
    rank = int(rng.integers(1, 4))
    sizes = [int(rng.integers(1, (longest, 12, 7)[rank - 1])) for _ in range(rank)]
    layout = str(rng.choice(["{}", "N{}C", "NC{}", "C{}"])).format("ZYX"[:rank])
    shape, at = [], iter(sizes)
    for letter in layout:
        shape.append(int(rng.integers(1, 4)) if letter in "NC" else next(at))
    try:
        axes = [random_windows(rng, n) for n in sizes]
    except pg.errors.InvalidArgument:
        return None
    if rng.integers(3):
        return windows.Pool.of(shape, layout, axes)
    divisors = [rng.integers(1, 9, w.count) for w in axes]
    return windows.Pool.of(shape, layout, axes).divided_by(divisors)


@settings(max_examples=400)
@given(seed=SEEDS, dtype=st.sampled_from(generate.DTYPES))
def test_every_map(seed, dtype):
    """Over windows of any kind: longer than chunks, dilated, with gaps, with padding on every side."""
    rng = np.random.default_rng(seed)
    pool = random_pool(rng)
    if pool is None:
        return
    x = generate.array_of(rng, pool.shape, dtype, "plain")
    g = generate.array_of(rng, pool.out_shape, dtype, "plain")
    choice = maps.choose(pool, x)
    lazy_x, lazy_g, lazy_choice = (chunked(rng, array) for array in (x, g, choice))
    assert_chunked_is_whole(maps.choose(pool, lazy_x), choice, "choose")
    assert_chunked_is_whole(maps.take(pool, lazy_x, lazy_choice), maps.take(pool, x, choice), "take")
    assert_chunked_is_whole(maps.put(pool, lazy_g, lazy_choice), maps.put(pool, g, choice), "put")
    assert_chunked_is_whole(maps.mean(pool, lazy_x), maps.mean(pool, x), "mean")
    assert_chunked_is_whole(maps.spread(pool, lazy_g), maps.spread(pool, g), "spread")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("window", [(15, 15), (9, 11), (10, 10), (64, 3), (5, 21), (60, 60)])
def test_large_windows(window, dtype, rng):
    """Where many windows overlap, the kernels add up in another order: chunks must do as the whole does."""
    pool = pg.pool((1, 61, 47, 1), window, 1, "same")
    x = generate.array_of(rng, pool.shape, dtype, "plain")
    for chunks in ((1, 61, 47, 1), (1, 7, 9, 1), (1, 30, 30, 1), (1, 1, 47, 1)):
        lazy = da.from_array(x, chunks=chunks)
        assert_chunked_is_whole(maps.mean(pool, lazy), maps.mean(pool, x), f"mean {window} {chunks}")
        assert_chunked_is_whole(maps.spread(pool, lazy), maps.spread(pool, x), f"spread {window} {chunks}")
