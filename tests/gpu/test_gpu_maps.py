"""The GPU kernels against the definition, over every kind of window, dtype and layout."""

import math
import os
import random
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import reference as ref

from poolgrad import sequences
from poolgrad.errors import CompilerFault
from poolgrad.gpu import Gpu, launch
from poolgrad.gpu.frame import frame_of
from poolgrad.windows import Pool, adaptive, explicit, fractional, regular

GPU = Gpu()
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
CASES = int(os.environ.get("POOLGRAD_GPU_CASES", "60" if torch.cuda.is_available() else "12"))


def seeds(count, long=()):
    """Seeds of random cases. Those that keep the interpreter busy for seconds are in the full tests only."""
    left = () if torch.cuda.is_available() else long
    return [pytest.param(seed, marks=pytest.mark.full) if seed in left else seed for seed in range(count)]


def draw_axis(rng):
    """An axis: the windows of the library, and the same as the reference's lists."""
    n = rng.randint(1, 9)
    kind = rng.choice(
        ["valid", "same", "explicit", "dilated", "fractional", "overlapping", "adaptive", "idle", "apart"]
    )
    if kind == "idle":
        return regular(n, 1, 1), ref.regular(n, 1, 1)
    if kind == "adaptive":
        m = rng.randint(1, n + 2)
        return adaptive(n, m), ref.adaptive(n, m)
    if kind in ("fractional", "overlapping"):
        edges = [0, *sorted(rng.sample(range(1, n), rng.randint(0, n - 1))), n]
        return fractional(n, edges, kind == "overlapping"), ref.fractional(n, edges, kind == "overlapping")
    k, s = rng.randint(1, min(n, 4)), rng.randint(1, 4)
    if kind == "apart":
        k = s = min(n, rng.choice([2, 2, 3]))
    if kind == "same":
        return regular(n, k, s, "SAME"), ref.regular(n, k, s, "SAME")
    if kind == "explicit":
        before, after = rng.randint(0, k - 1), rng.randint(0, k - 1)
        try:
            return explicit(n, k, s, before, after), ref.regular(n, k, s, "EXPLICIT", 1, before, after)
        except (ValueError, ref.Refused):
            return draw_axis(rng)
    if kind == "dilated":
        d = rng.randint(1, 3)
        try:
            return regular(n, k, s, "SAME", d), ref.regular(n, k, s, "SAME", d)
        except (ValueError, ref.Refused):
            return draw_axis(rng)
    return regular(n, k, s), ref.regular(n, k, s)


def draw_pool(rng):
    rank = rng.randint(1, 3)
    axes = [draw_axis(rng) for _ in range(rank)]
    sizes = [w.size for w, _ in axes]
    layout = rng.choice(["NC", "N", "C", ""])
    if rng.random() < 0.5:
        shape, first = [2, 3, *sizes][("N" not in layout) :], 2 - ("N" not in layout)
    else:
        shape, first = [2, *sizes, rng.choice([1, 2, 5, 16])], 1
    pool = Pool(tuple(shape), first, tuple(w for w, _ in axes), shape[0] if first else 1)
    return pool, [w for _, w in axes], list(range(first, first + rank))


def draw_array(rng, shape, dtype, device, special=True):
    """Few different values, so that there are ties; and the numbers that make trouble."""
    seed = np.random.default_rng(rng.getrandbits(32))
    if dtype.is_floating_point:
        x = seed.integers(-3, 4, shape).astype(np.float64)
        if special and rng.random() < 0.5 and x.size:
            for value in (np.nan, -np.inf, np.inf):
                x[seed.random(shape) < 0.15] = value
        return torch.from_numpy(x).to(device, dtype)
    low, high = (-3, 4) if dtype.is_signed else (0, 7)
    x = torch.from_numpy(seed.integers(low, high, shape))
    if dtype.itemsize == 8 and rng.random() < 0.5:
        x = x * (2**61)
    return x.to(dtype).to(device)


def as_numpy(t):
    t = t.detach().cpu()
    if t.dtype == torch.bfloat16:
        return t.float().numpy()
    return t.numpy()


def exactly(t):
    """A tensor for the reference: fractions where sums must be exact."""
    return ref.exact(as_numpy(t))


def code_of(won, pool, windows, axes):
    """The reference's winners as choice codes."""
    places, real = ref.cells(windows)
    local = np.zeros(real.shape, np.int64)
    for a, w in enumerate(pool.windows):
        origin = w.origin.reshape(-1, *[1] * (len(axes) - a))
        local = local * pool.extents[a] + (places[a] - origin) // w.dilation
    window, _ = ref.winners(won, windows)
    out = np.full(pool.out_shape, -1, np.int64)
    ref.front(out, axes)[window] = local[np.nonzero(won)[: real.ndim]]
    return out


def same(got, want):
    np.testing.assert_array_equal(as_numpy(got).astype(np.float64), np.asarray(want, np.float64))


@pytest.mark.parametrize("seed", range(CASES))
def test_winners(seed, device):
    rng = random.Random(seed)
    pool, windows, axes = draw_pool(rng)
    dtype = rng.choice(FLOATS + INTS)
    nan = rng.choice(["propagate", "ignore"])
    x = draw_array(rng, pool.shape, dtype, device)
    won = ref.choose(as_numpy(x), windows, axes, "first", nan)
    codes = code_of(won, pool, windows, axes)
    y, choice = GPU.maximum_and_choice(pool, x, nan)
    assert choice.dtype == getattr(torch, pool.choice_dtype.name)
    np.testing.assert_array_equal(as_numpy(choice).astype(np.int64), codes)
    same(y, ref.take(as_numpy(x), won, windows, axes))
    same(GPU.maximum(pool, x, nan), as_numpy(y))
    np.testing.assert_array_equal(as_numpy(GPU.choose(pool, x, nan)), as_numpy(choice))
    assert GPU.choice_fault(pool, choice) is None
    v = draw_array(rng, pool.shape, dtype, device)
    same(GPU.take(pool, v, choice), ref.take(as_numpy(v), won, windows, axes))
    same(GPU.max_take(pool, x, v, "first", nan), ref.take(as_numpy(v), won, windows, axes))


@pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize("sizes", [(13,), (7, 18), (4, 5, 7)], ids=str)
def test_the_first_of_equal_zeros_and_of_nans_wins(sizes, layout, dtype, device):
    """Overlapping windows with padding; short floats may go two at a time. What wins keeps its bits, -0 included."""
    seed = np.random.default_rng(len(sizes))
    shape = (2, 3, *sizes) if layout == "channels first" else (2, *sizes, 16)
    axis = 2 if layout == "channels first" else 1
    pool = Pool(shape, axis, tuple(explicit(n, 3, 2, 1, 1) for n in sizes), 2)
    windows = [ref.regular(n, 3, 2, "EXPLICIT", 1, 1, 1) for n in sizes]
    axes = list(range(axis, axis + len(sizes)))
    x = seed.choice([-1.0, -0.0, 0.0, -np.inf], shape)
    x[seed.random(shape) < 0.05] = np.nan
    x = torch.from_numpy(x).to(device, dtype)
    won = ref.choose(as_numpy(x), windows, axes, "first", "propagate")
    want = ref.take(as_numpy(x), won, windows, axes)
    y, choice = GPU.maximum_and_choice(pool, x, "propagate")
    np.testing.assert_array_equal(as_numpy(choice).astype(np.int64), code_of(won, pool, windows, axes))
    np.testing.assert_array_equal(as_numpy(GPU.choose(pool, x, "propagate")), as_numpy(choice))
    for got in (y, GPU.maximum(pool, x, "propagate")):
        same(got, want)
        real = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(as_numpy(got))[real], np.signbit(want)[real])


CHUNKS = [(24, 3, 1, 1), (2, 3, 1, 1), (16, 3, 0, 1), (8, 5, 2, 1)]
if torch.cuda.is_available():  # the interpreter is slow
    CHUNKS += [
        (40, 3, 0, 1),
        (8, 4, 1, 1),
        (32, 5, 2, 1),
        (16, 3, 1, 1),
        (12, 3, 1, 0),
        (16, 5, 2, 2),
        (48, 4, 0, 2),
        (80, 3, 1, 1),
        (600, 3, 1, 1),
        (10, 2, 1, 1),
    ]


@pytest.mark.parametrize("dtype", FLOATS[:3] if torch.cuda.is_available() else FLOATS[1:2], ids=str)
@pytest.mark.parametrize("chunk", CHUNKS, ids=str)
def test_rows_in_chunks(chunk, dtype, device):
    """Rows whose elements lie side by side are read several at once. That gives what reading channels does."""
    width, window, before, after = chunk
    rng = np.random.default_rng(width)
    heights = (2, 3) if width in (24, 40) else (5,)
    windows = (*(explicit(n, 3, 2, 1, 1) for n in heights), explicit(width, window, 2, before, after))
    first = Pool((2, 2, *heights, width), 2, windows, 2)
    last = Pool((2, *heights, width, 2), 1, windows, 2)
    values = rng.choice(
        [-1.0, -0.0, 0.0, -np.inf, np.nan, 0.3, 5.0], first.shape, p=[0.2, 0.1, 0.1, 0.2, 0.02, 0.19, 0.19]
    )
    x = torch.from_numpy(values).to(device, dtype)
    g = torch.from_numpy(rng.integers(-9, 9, first.out_shape) / 7).to(device, dtype)
    xl, gl = (t.movedim(1, -1).contiguous() for t in (x, g))

    def equal(got, want):
        kind = torch.int16 if dtype.itemsize == 2 else torch.int32
        got, want = got, want.movedim(-1, 1).contiguous()
        if got.is_floating_point():
            got, want = (torch.where(t.isnan(), torch.nan, t).view(kind) for t in (got, want))
        np.testing.assert_array_equal(got.cpu().numpy(), want.cpu().numpy())

    for nan in ("propagate", "ignore"):
        y, choice = GPU.maximum_and_choice(first, x, nan)
        for got, want in zip((y, choice), GPU.maximum_and_choice(last, xl, nan), strict=True):
            equal(got, want)
        equal(GPU.maximum(first, x, nan), GPU.maximum(last, xl, nan))
        equal(GPU.max_take(first, x, x, "first", nan), GPU.max_take(last, xl, xl, "first", nan))
    equal(GPU.put(first, g, choice), GPU.put(last, gl, choice.movedim(1, -1).contiguous()))
    equal(GPU.mean(first, x), GPU.mean(last, xl))
    equal(GPU.spread(first, g), GPU.spread(last, gl))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8], ids=str)
def test_whole_numbers_in_padded_volumes(dtype, device):
    """Nothing outside the array wins, however low the numbers in it are."""
    pool = Pool((1, 1, 3, 3, 8), 2, (*[explicit(3, 3, 2, 1, 1)] * 2, explicit(8, 3, 2, 1, 1)), 1)
    x = torch.full(pool.shape, 0 if dtype == torch.uint8 else -5, dtype=dtype, device=device)
    y, choice = GPU.maximum_and_choice(pool, x, "propagate")
    assert torch.equal(y, torch.full_like(y, x.flatten()[0].item()))
    np.testing.assert_array_equal(as_numpy(choice), as_numpy(GPU.choose(pool, x, "propagate")))
    assert as_numpy(choice)[0, 0, 0, 0].tolist() == [13, 12, 12, 12]
    assert as_numpy(choice)[0, 0, 1, 1].tolist() == [1, 0, 0, 0]


def test_nan_in_listed_windows_of_short_floats(device):
    pool = Pool((1, 5), 1, (fractional(5, [0, 2, 5]),), 1)
    for dtype in FLOATS[:3]:
        x = torch.tensor([[1.0, np.nan, 2, 3, 4]], dtype=dtype, device=device)
        assert GPU.choose(pool, x, "propagate").tolist() == [[1, 2]]


@pytest.mark.parametrize("overlapping", [False, True])
def test_windows_that_are_drawn_anew_are_not_compiled_anew(overlapping, device):
    """What a kernel is compiled for does not tell one drawing of fractional windows from another."""
    compiled = set()
    for seed in range(30):
        axes = [fractional(64, sequences.fractional(64, 1.44, seed=seed, seed2=axis), overlapping) for axis in (1, 2)]
        pool = Pool((2, 3, 64, 64), 2, tuple(axes), 2)
        for start in (
            launch.scan(pool, device, torch.float32, "propagate", False, True, False, False),
            launch.put_listed(pool, device, torch.float32, False),
        ):
            compiled.add(tuple((name, value) for name, value in start.arguments.items() if name.isupper()))
    assert len(compiled) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_start_anywhere_and_in_graphs(device):
    """Aligned or not, again and again, and inside a CUDA graph, which must not lose the tables of its windows."""
    memory = torch.randn(2 * 3 * 16 * 16 + 1, device=device)
    pool = Pool((2, 3, 16, 16), 2, (adaptive(16, 7),) * 2, 2)
    for offset in (0, 1, 0, 1):
        x = memory[offset : offset + 2 * 3 * 16 * 16].reshape(2, 3, 16, 16)
        same(GPU.maximum(pool, x, "propagate"), as_numpy(torch.nn.functional.adaptive_max_pool2d(x, 7)))
    y = torch.empty(pool.out_shape, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        GPU.maximum(pool, x, "propagate", y)
    for cached in (launch.scan, frame_of):
        cached.cache_clear()
    x.normal_()
    graph.replay()
    same(y, as_numpy(torch.nn.functional.adaptive_max_pool2d(x, 7)))


@pytest.mark.parametrize("seed", seeds(CASES, long=[2]))
def test_gradients_of_winners(seed, device):
    rng = random.Random(1000 + seed)
    pool, windows, axes = draw_pool(rng)
    dtype = rng.choice(FLOATS + INTS)
    nan = rng.choice(["propagate", "ignore"])
    x = draw_array(rng, pool.shape, dtype, device)
    g = draw_array(rng, pool.out_shape, dtype, device, special=False)
    sizes = [pool.shape[a] for a in axes]
    equal = draw_array(rng, pool.out_shape, dtype, device) if rng.random() < 0.4 else None
    won = ref.choose(as_numpy(x), windows, axes, "first", nan, None if equal is None else as_numpy(equal))
    want = ref.put(exactly(g), won, windows, axes, sizes)
    finite = as_numpy(GPU.max_put(pool, x, g, "first", nan, equal_to=equal))
    np.testing.assert_array_equal(finite, ref.narrow(want, finite.dtype))
    if equal is None:
        choice = GPU.choose(pool, x, nan)
        np.testing.assert_array_equal(as_numpy(GPU.put(pool, g, choice)), finite)
    v = draw_array(rng, pool.shape, dtype, device)
    same(GPU.max_take(pool, x, v, "first", nan, equal_to=equal), ref.take(as_numpy(v), won, windows, axes))


@pytest.mark.parametrize("seed", range(CASES))
def test_averages(seed, device):
    rng = random.Random(2000 + seed)
    pool, windows, axes = draw_pool(rng)
    dtype = rng.choice(FLOATS + INTS)
    x = draw_array(rng, pool.shape, dtype, device, special=False)
    g = draw_array(rng, pool.out_shape, dtype, device, special=False)
    y, gx = as_numpy(GPU.mean(pool, x)), as_numpy(GPU.spread(pool, g))
    want_y = ref.mean(exactly(x), windows, axes)
    want_gx = ref.spread(exactly(g), windows, axes, [pool.shape[a] for a in axes])
    close(y, want_y, dtype)
    close(gx, want_gx, dtype)


@pytest.mark.parametrize("seed", range(CASES // 3))
def test_divisors(seed, device):
    rng = random.Random(3000 + seed)
    pool, windows, axes = draw_pool(rng)
    dtype = rng.choice(FLOATS + INTS)
    divisors = [[rng.choice([1, 2, 3, -2, 5]) for _ in range(w.count)] for w in pool.windows]
    pool = pool.divided_by(divisors)
    x = draw_array(rng, pool.shape, dtype, device, special=False)
    g = draw_array(rng, pool.out_shape, dtype, device, special=False)
    scale = np.ones([1] * len(pool.shape), object)
    length = np.ones([1] * len(pool.shape), object)
    for a, (d, w) in enumerate(zip(divisors, pool.windows, strict=True)):
        place = [1] * len(pool.shape)
        place[axes[a]] = -1
        scale = scale * np.array(d, object).reshape(place)
        length = length * np.array([int(n) for n in w.length], object).reshape(place)
    ratio = ref.exact(np.ones(1))[0] * length / scale if length.size else length
    close(as_numpy(GPU.mean(pool, x)), ref.mean(exactly(x), windows, axes) * ratio, dtype)
    shares = ref.spread(exactly(g) * ratio, windows, axes, [pool.shape[a] for a in axes])
    close(as_numpy(GPU.spread(pool, g)), shares, dtype)


def close(got, want, dtype):
    """Exact for integers; for floats the exact value rounded once, up to the roundings of the sums on the way."""
    if not dtype.is_floating_point:
        np.testing.assert_array_equal(got, ref.narrow(want, got.dtype))
        return
    want = np.asarray(want, np.float64)
    on_the_way = {torch.float64: 2.0**-90, torch.float32: 2.0**-48}.get(dtype, 2.0**-20)
    allowed = torch.finfo(dtype).eps * np.abs(want) + on_the_way
    assert np.all(np.abs(got.astype(np.float64) - want) <= allowed), (got, want)


@pytest.mark.parametrize("ties", ["all", "split"])
@pytest.mark.parametrize("seed", seeds(CASES * 3 // 4, long=[3]))
def test_ties(seed, ties, device):
    rng = random.Random(4000 + seed)
    pool, windows, axes = draw_pool(rng)
    dtype = rng.choice(FLOATS + INTS)
    nan = rng.choice(["propagate", "ignore"])
    x = draw_array(rng, pool.shape, dtype, device)
    g = draw_array(rng, pool.out_shape, dtype, device, special=False)
    v = draw_array(rng, pool.shape, dtype, device, special=False)
    won = ref.choose(as_numpy(x), windows, axes, ties, nan)
    want = ref.put(exactly(g), won, windows, axes, [pool.shape[a] for a in axes], ties)
    tolerant(as_numpy(GPU.max_put(pool, x, g, ties, nan)), want, dtype)
    tolerant(as_numpy(GPU.max_take(pool, x, v, ties, nan)), ref.take(exactly(v), won, windows, axes, ties), dtype)


def tolerant(got, want, dtype):
    if not dtype.is_floating_point:
        np.testing.assert_array_equal(got, ref.narrow(want, got.dtype))
        return
    np.testing.assert_allclose(
        got.astype(np.float64), np.asarray(want, np.float64), rtol=8 * torch.finfo(dtype).eps, atol=1e-5
    )


@pytest.mark.parametrize("scope", ["spatial", "image", "batch"])
@pytest.mark.parametrize("seed", seeds(CASES // 3, long=[1]))
def test_indices(seed, scope, device):
    rng = random.Random(5000 + seed)
    pool, _, _ = draw_pool(rng)
    x = draw_array(rng, pool.shape, torch.float32, device, special=False)
    y, choice = GPU.maximum_and_choice(pool, x, "propagate")
    index = GPU.choice_to_index(pool, choice, np.dtype(np.int64), scope)
    assert GPU.index_fault(pool, index, scope) is None
    same(GPU.index_take(pool, x, index, scope), as_numpy(y))
    g = draw_array(rng, pool.out_shape, torch.float32, device, special=False)
    same(GPU.index_put(pool, g, index, scope), as_numpy(GPU.put(pool, g, choice)))
    if index.numel():
        wrong = index.clone()
        wrong.view(-1)[-1] = math.prod(pool.shape)
        position, value = GPU.index_fault(pool, wrong, scope)
        assert value == math.prod(pool.shape)
        assert position == tuple(n - 1 for n in pool.out_shape)


def test_a_code_outside_its_window_is_found(device):
    pool = Pool((1, 5), 1, (regular(5, 3, 2, "SAME"),), 1)
    codes = torch.tensor([[1, 0, 2]], dtype=torch.uint8, device=device)
    assert GPU.choice_fault(pool, codes) == ((0, 2), 2)


def test_a_code_that_leads_out_of_the_array_reads_nothing(device):
    pool = Pool((1, 4, 4), 1, (regular(4, 2, 2), regular(4, 2, 2)), 1)
    codes = torch.tensor([[[0, 3], [3, 255]]], dtype=torch.uint8, device=device)
    assert GPU.take(pool, torch.ones(pool.shape, device=device), codes).tolist() == [[[1, 1], [1, 0]]]


def test_assign_takes_the_last_window(device):
    pool = Pool((1, 4), 1, (regular(4, 2, 1),), 1)
    x = torch.tensor([[0.0, 9.0, 8.0, 1.0]], device=device)
    choice = GPU.choose(pool, x, "propagate")
    g = torch.tensor([[1.0, 2.0, 3.0]], device=device)
    assert GPU.put(pool, g, choice, assign=True).tolist() == [[0.0, 2.0, 3.0, 0.0]]
    assert GPU.put(pool, g, choice).tolist() == [[0.0, 3.0, 3.0, 0.0]]


@pytest.mark.parametrize(
    "window", [regular(2, 3, 2), regular(2, 3, 3), adaptive(2, 0)], ids=["overlap", "apart", "listed"]
)
def test_where_no_window_fits_gradients_are_zero(window, device):
    pool = Pool((2, 3, 2), 2, (window,), 2)
    x, g = torch.ones(pool.shape, device=device), torch.ones(pool.out_shape, device=device)
    choice = torch.zeros(pool.out_shape, dtype=torch.uint8, device=device)
    zeros = np.zeros(pool.shape)
    for gx in (GPU.put(pool, g, choice), GPU.put(pool, g, choice, assign=True), GPU.spread(pool, g)):
        same(gx, zeros)
    for ties in ("first", "all", "split"):
        same(GPU.max_put(pool, x, g, ties, "propagate"), zeros)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 4, 4)], ids=["images", "channels"])
@pytest.mark.parametrize("first", [1, 2], ids=["channels-last", "channels-first"])
@pytest.mark.parametrize(
    "window", [regular(4, 2, 2), regular(4, 3, 1), adaptive(4, 3)], ids=["apart", "overlap", "listed"]
)
def test_of_nothing_every_map_makes_nothing(shape, first, window, device):
    shape = shape if first == 2 else (shape[0], *shape[2:], shape[1])
    pool = Pool(shape, first, (window, window), shape[0])
    x, g = (torch.ones(s, device=device) for s in (pool.shape, pool.out_shape))
    choice = GPU.choose(pool, x, "propagate")
    results = [GPU.maximum(pool, x, "propagate"), GPU.mean(pool, x), GPU.take(pool, x, choice)]
    gradients = [GPU.put(pool, g, choice), GPU.put(pool, g, choice, assign=True), GPU.spread(pool, g)]
    for ties in ("first", "all", "split"):
        results.append(GPU.max_take(pool, x, x, ties, "propagate"))
        gradients.append(GPU.max_put(pool, x, g, ties, "propagate"))
    for scope in ("spatial", "image", "batch"):
        index = GPU.choice_to_index(pool, choice, "int64", scope)
        assert GPU.index_fault(pool, index, scope) is None
        results.append(GPU.index_take(pool, x, index, scope))
        gradients.append(GPU.index_put(pool, g, index, scope))
    assert {tuple(y.shape) for y in (choice, *results)} == {pool.out_shape}
    assert {tuple(gx.shape) for gx in gradients} == {pool.shape}


def test_images_of_more_than_two_to_the_31_elements(device):
    """Most of the memory is never touched, so it costs nothing in the interpreter."""
    if device.type == "cuda" and torch.cuda.mem_get_info()[0] < 2**33:
        pytest.skip("needs 8 GiB of the GPU's memory")
    h, w = 2**16, 2**15 + 64
    x = torch.from_numpy(np.zeros((2, 1, h, w), np.uint8)).to(device)
    pool = Pool(tuple(x.shape), 2, (regular(h, 2, 2**15), regular(w, 2, 2**14)), 2)
    x[1, 0, 2**15 + 1, 2**14], x[1, 0, 0, 1] = 8, 4
    maxima = [[[[0, 0, 0], [0, 0, 0]]], [[[4, 0, 0], [0, 8, 0]]]]
    y, choice = GPU.maximum_and_choice(pool, x, "propagate")
    assert y.tolist() == maxima
    assert choice.tolist() == [[[[0, 0, 0], [0, 0, 0]]], [[[1, 0, 0], [0, 2, 0]]]]
    assert GPU.take(pool, x, choice).tolist() == maxima
    assert GPU.max_take(pool, x, x, "first", "propagate").tolist() == maxima
    assert GPU.max_take(pool, x, x, "all", "propagate").tolist() == maxima
    assert GPU.mean(pool, x).tolist() == [[[[0, 0, 0], [0, 0, 0]]], [[[1, 0, 0], [0, 2, 0]]]]
    index = GPU.choice_to_index(pool, choice, np.dtype(np.int64), "batch")
    assert index[1, 0, 1, 1].item() == (h + 2**15 + 1) * w + 2**14


class Found:
    """A compiled kernel."""

    def __init__(self, code, started):
        self.asm, self.started = {"llir": code}, started

    def __getitem__(self, grid):
        return lambda *given: self.started.append(given)


class StandIn:
    """A kernel and an array on a machine with two GPUs, of which the first is the current one."""

    arg_names = ("x", "y", "size", "BLOCK")
    __name__ = "stand-in"

    def __init__(self, wrong_with=()):
        self.found, self.started, self.wrong_with = [], [], wrong_with

    def run(self, *arrays, grid, warmup, num_warps, **named):
        assert warmup
        self.found.append((grid, named, num_warps))
        other = "31" if num_warps in self.wrong_with else "1"
        code = (
            f"%9 = shl nuw nsw <2 x i32> %8, <i32 {other}, i32 1>, !dbg !16\n"
            "%10 = shufflevector <2 x i32> %7, <2 x i32> %9, <2 x i32> <i32 0, i32 3>, !dbg !16\n"
        )
        return Found(code, self.started)

    @staticmethod
    def array(device=0, at=4096, dtype=torch.float32):
        return SimpleNamespace(is_cuda=True, get_device=lambda: device, data_ptr=lambda: at, dtype=dtype)


@pytest.mark.parametrize(("lies_on", "entered"), [(0, []), (1, [1])])
def test_kernels_start_on_the_gpu_of_their_arrays(lies_on, entered, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda number: nullcontext(seen.append(number)))
    kernel, x = StandIn(), StandIn.array(lies_on)
    launch.Start(kernel, (7, 1, 1), {"BLOCK": 4, "size": 3, "num_warps": 2})(x, x)
    assert kernel.found == [((7, 1, 1), {"BLOCK": 4, "size": 3}, 2)]
    assert seen == entered


def test_a_kernel_that_was_compiled_wrongly_is_not_started(monkeypatch):
    """LLVM may join a shift with another operation so that one lane spills into the other."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel, x = StandIn(wrong_with=(2,)), StandIn.array()
    launch.Start(kernel, (7, 1, 1), {"BLOCK": 4, "size": 3, "num_warps": 2})(x, x)
    assert [warps for *_, warps in kernel.found] == [2, 4]
    assert len(kernel.started) == 1
    kernel = StandIn(wrong_with=(2, 4, 8))
    with pytest.raises(CompilerFault, match="stand-in"):
        launch.Start(kernel, (7, 1, 1), {"BLOCK": 4, "size": 3, "num_warps": 2})(x, x)
    assert not kernel.started


def test_the_compiled_kernel_is_found_once_for_each_kind_of_arrays(monkeypatch):
    """What Triton compiles depends on dtypes and on whether arrays begin at a multiple of 16 bytes."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel = StandIn()
    start = launch.Start(kernel, (7, 1, 1), {"BLOCK": 4, "size": 3, "num_warps": 2})
    for at in (4096, 8192, 512):
        start(StandIn.array(at=at), StandIn.array(at=16))
    assert len(kernel.found) == 1
    assert kernel.started == [(4096, 16, 3, 4), (8192, 16, 3, 4), (512, 16, 3, 4)]
    start(StandIn.array(at=4100), StandIn.array())
    start(StandIn.array(), StandIn.array(dtype=torch.int64))
    assert len(kernel.found) == 3
    start(StandIn.array(at=8), StandIn.array())
    assert len(kernel.found) == 3


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (False, "%3 = shl nuw nsw <2 x i32> %2, splat (i32 1)\n%4 = shl i32 %1, 31"),
        (False, "%3 = shl nuw nsw <2 x i32> %2, <i32 1, i32 2>\n%4 = extractelement <2 x i32> %3, i64 0"),
        (True, "%3 = shl <2 x i32> %2, <i32 1, i32 -1>"),
        (True, "%3 = shl nsw <2 x i32> %2, <i32 7, i32 1>\n%5 = shufflevector <2 x i32> %3, <2 x i32> %4, "
               "<2 x i32> <i32 2, i32 1>"),
    ],
)  # fmt: skip
def test_only_shifts_of_which_a_lane_is_dropped_are_suspect(wrong, code):
    assert launch.miscompiled(code) == wrong


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_on_another_gpu(device):
    x = torch.randn(2, 3, 8, 8, device="cuda:1")
    pool = Pool(tuple(x.shape), 2, (regular(8, 2, 2),) * 2, 2)
    same(GPU.maximum(pool, x, "propagate"), as_numpy(torch.nn.functional.max_pool2d(x, 2)))
