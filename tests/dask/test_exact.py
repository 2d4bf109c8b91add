"""Chunked equals whole, bit for bit: every operator, map and functional call, whatever the chunks."""

import itertools

import dask
import dask.array as da
import generate
import numpy as np
import pytest
from calls import arguments, chunked, on_dask, results
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import assert_same_bits

import poolgrad as pg
from poolgrad import maps, windows

pytestmark = pytest.mark.usefixtures("in_this_thread")
SEEDS = st.integers(0, 2**32)


def assert_chunked_is_whole(lazy, whole, note=""):
    """Also what Dask knows before it computes: shape, dtype and chunks."""
    for chunks, value in zip(results(lazy), results(whole), strict=True):
        assert isinstance(chunks, da.Array), note
        assert (chunks.shape, chunks.dtype) == (value.shape, value.dtype), note
        shapes = [block.shape for block in dask.compute(*chunks.to_delayed(optimize_graph=False).ravel())]
        assert shapes == list(itertools.product(*chunks.chunks)), note
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


@settings(max_examples=100)
@given(seed=SEEDS, dtype=st.sampled_from(generate.DTYPES))
def test_every_map(seed, dtype):
    """Over windows of any kind: longer than chunks, dilated, with gaps, with padding on every side."""
    check_every_map(seed, dtype)


@pytest.mark.full
@settings(max_examples=3000)
@given(seed=SEEDS, dtype=st.sampled_from(generate.DTYPES))
def test_every_map_at_length(seed, dtype):
    check_every_map(seed, dtype)


def check_every_map(seed, dtype):
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
@pytest.mark.parametrize("window", [(15, 15), (16, 16), (16, 17), (17, 16), (64, 3), (5, 28), (60, 60)])
def test_large_windows(window, dtype, rng):
    """Where many windows overlap, the kernels add up in another order: chunks must do as the whole does."""
    pool = pg.pool((1, 61, 47, 1), window, 1, "same")
    x = generate.array_of(rng, pool.shape, dtype, "plain")
    for chunks in ((1, 61, 47, 1), (1, 7, 9, 1), (1, 30, 30, 1), (1, 1, 47, 1)):
        lazy = da.from_array(x, chunks=chunks)
        assert_chunked_is_whole(maps.mean(pool, lazy), maps.mean(pool, x), f"mean {window} {chunks}")
        assert_chunked_is_whole(maps.spread(pool, lazy), maps.spread(pool, x), f"spread {window} {chunks}")


FUNCTIONAL = {
    "max_pool": lambda x, layout, rng: pg.max_pool(
        x, 3, 2, "same", layout=layout, return_choice=True, return_indices=True
    ),
    "max_pool dilated": lambda x, layout, rng: pg.max_pool(x, 2, 1, 1, dilation=2, layout=layout),
    "min_pool": lambda x, layout, rng: pg.min_pool(x, 2, layout=layout, return_indices=True),
    "avg_pool": lambda x, layout, rng: pg.avg_pool(x, 3, 2, 1, layout=layout, count_include_pad=True),
    "avg_pool by 7": lambda x, layout, rng: pg.avg_pool(x, 3, 2, layout=layout, divisor_override=7),
    "adaptive_max_pool": lambda x, layout, rng: pg.adaptive_max_pool(x, 3, layout=layout, return_indices=True),
    "adaptive_avg_pool": lambda x, layout, rng: pg.adaptive_avg_pool(x, 4, layout=layout),
    "fractional_max_pool": lambda x, layout, rng: pg.fractional_max_pool(x, 1.5, seed=3, layout=layout),
    "fractional_avg_pool": lambda x, layout, rng: pg.fractional_avg_pool(
        x, 1.3, seed=(3, 4), overlapping=True, pseudo_random=True, layout=layout
    ),
    "max_pool_grad": lambda x, layout, rng: pg.max_pool_grad(x, x, 3, 1, "same", layout=layout, ties="split"),
    "max_pool_grad_grad": lambda x, layout, rng: pg.max_pool_grad_grad(x, x, 3, 2, layout=layout),
    "avg_pool_grad": lambda x, layout, rng: pg.avg_pool_grad(
        x.shape, x, 3, 1, "same", layout=layout, count_include_pad=True
    ),
    "global average": lambda x, layout, rng: pg.adaptive_avg_pool(x, 1, layout=layout),
}
FLOATS_ONLY = {
    "lp_pool": lambda x, layout, rng: pg.lp_pool(x, 2, p=3, layout=layout),
    "lp_pool by maximum": lambda x, layout, rng: pg.lp_pool(x, 2, p=np.inf, layout=layout),
}


FLOATS, INTEGERS = ("float32", "float16", "bfloat16"), ("int16", "uint8")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(dtype, name) for dtype in FLOATS + INTEGERS for name in FUNCTIONAL]
    + [(dtype, name) for dtype in FLOATS for name in FLOATS_ONLY],
)
def test_every_functional_call(name, dtype, rng):
    call = {**FUNCTIONAL, **FLOATS_ONLY}[name]
    for layout in ("NHWC", "NCHW", "ZYX"):
        shape = (9, 8, 7) if layout == "ZYX" else (2, 9, 7, 3) if layout == "NHWC" else (2, 3, 9, 7)
        x = generate.array_of(rng, shape, dtype, "plain")
        assert_chunked_is_whole(call(chunked(rng, x), layout, rng), call(x, layout, rng), f"{name} {layout}")


def test_unpooling(rng):
    """Indices may lead anywhere; of two that are equal the last stands, in whatever chunk it lies."""
    y = generate.array_of(rng, (2, 5, 6, 2), "float32", "plain")
    indices = rng.integers(0, 12 * 13, y.shape)
    whole = pg.max_unpool(y, indices, (2, 12, 13, 2))
    assert len(np.unique(indices)) < indices.size
    lazy = pg.max_unpool(chunked(rng, y), chunked(rng, indices), (2, 12, 13, 2))
    assert_chunked_is_whole(lazy, whole)
    with dask.config.set({"array.chunk-size": "200B"}):
        lazy = pg.max_unpool(chunked(rng, y), chunked(rng, indices), (2, 12, 13, 2))
    assert lazy.npartitions > 8
    assert_chunked_is_whole(lazy, whole)


def test_every_order_of_derivative(rng):
    """Results are inputs again: a third derivative is a graph like any other, and knows its chunks."""
    x = generate.array_of(rng, (1, 11, 12, 10, 2), "float32", "distinct")
    grid = {"ksize": [1, 3, 2, 3, 1], "strides": [1, 2, 1, 2, 1], "padding": "SAME"}

    def third_order(x):
        y = pg.raw_ops.MaxPool3D(input=x, **grid)
        gx = pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=y, **grid)
        gy = pg.raw_ops.MaxPool3DGradGrad(orig_input=x, orig_output=y, grad=gx, **grid)
        return pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=gy, **grid)

    lazy = chunked(rng, x)
    assert third_order(lazy).chunks == lazy.chunks
    assert_chunked_is_whole(third_order(lazy), third_order(x))


def test_no_window_at_all():
    """An axis that no window fits: no gradient for anybody, chunked or not."""
    pool = windows.Pool.of((8, 7), "YX", [windows.regular(8, 9, 1), windows.adaptive(7, 5)])
    g, choice = np.zeros((0, 5), np.int32), np.zeros((0, 5), np.uint8)
    for found in (
        maps.put(pool, g, choice),
        maps.put(pool, da.from_array(g), da.from_array(choice)).compute(),
        maps.spread(pool, da.from_array(g)).compute(),
    ):
        np.testing.assert_array_equal(found, np.zeros((8, 7), np.int32))
