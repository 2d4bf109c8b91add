"""The kernels against the reference, over the sizes where vector code goes wrong: one less, exact and one more than
a vector.

Values are small integers, so sums are exact in every type and selections are full of ties.
"""

import math

import numpy as np
import pytest
import reference as ref
from generate import DTYPES, FLOATS, array_of, dtype_of, sequence, with_specials
from judge import assert_same_bits, assert_sum

import poolgrad.backends
from poolgrad import parts
from poolgrad import windows as pw
from poolgrad.windows import Pool

EDGES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
backend = poolgrad.backends.of(np.zeros(0))


def axis(n, k, s=1, padding="VALID", d=1, before=0, after=0):
    """One axis twice: the library's Windows and the reference's lists."""
    if padding == "EXPLICIT":
        ours = pw.explicit(n, k, s, before, after, dilation=d)
    else:
        ours = pw.regular(n, k, s, padding, dilation=d)
    return ours, ref.regular(n, k, s, padding, d, before, after)


def fractional_axis(n, edges, overlapping=False):
    return pw.fractional(n, edges, overlapping), ref.fractional(n, edges, overlapping)


def adaptive_axis(n, m):
    return pw.adaptive(n, m), ref.adaptive(n, m)


def positions(pool, axes, choice, shape):
    """A stored choice told as flat positions in the input array."""
    code = np.moveaxis(choice.astype(np.int64), axes, range(len(axes)))
    index = np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), axes, range(len(axes)))
    local = []
    for extent in reversed(pool.extents):
        local.append(code % extent)
        code = code // extent
    assert not code.any(), "a choice code is below the number of window elements"
    out, places = code.shape[: len(axes)], []
    for a, (w, p) in enumerate(zip(pool.windows, reversed(local))):
        origin = np.asarray(w.origin).reshape([-1 if i == a else 1 for i in range(code.ndim)])
        places.append(origin + p * w.dilation)
        assert (places[-1] >= 0).all() and (places[-1] < w.size).all(), "a choice lies inside the input"
    rest = np.indices(code.shape)[len(axes) :]
    assert out == code.shape[: len(axes)]
    return np.moveaxis(index[(*places, *rest)], range(len(axes)), axes)


def check_all_maps(rng, shape, layout, pairs, dtype, specials=False, ties_too=True):
    """Every map and every fusion on one geometry."""
    ours, windows = [p[0] for p in pairs], [p[1] for p in pairs]
    pool = Pool.of(shape, layout, tuple(ours))
    axes = tuple(i for i, letter in enumerate(layout) if letter not in "NC")
    sizes = [shape[i] for i in axes]
    x = array_of(rng, shape, dtype)
    note = f"{dtype} {layout} {shape} {ours}"
    for nan in ("propagate", "ignore") if specials else ("propagate",):
        if specials:
            x = with_specials(rng, x)
        won = ref.choose(x, windows, axes, "first", nan)
        y = ref.take(x, won, windows, axes)
        choice = backend.choose(pool, x, nan)
        assert choice.dtype == pool.choice_dtype and choice.shape == tuple(pool.out_shape) == y.shape, note
        flat = np.arange(int(np.prod(shape))).reshape(shape)
        assert_same_bits(
            positions(pool, axes, choice, shape), ref.take(flat, won, windows, axes), f"choose {nan} {note}"
        )
        assert_same_bits(backend.maximum(pool, x, nan), y, f"maximum {nan} {note}")
        both = backend.maximum_and_choice(pool, x, nan)
        assert_same_bits(both[0], y, f"maximum_and_choice {nan} {note}")
        assert_same_bits(both[1], choice, f"maximum_and_choice {nan} {note}")
        g, v = array_of(rng, y.shape, dtype), array_of(rng, shape, dtype)
        wide_g, wide_v = g.astype(np.float64), v.astype(np.float64)
        assert_same_bits(backend.take(pool, v, choice), ref.take(v, won, windows, axes), f"take {note}")
        gx = ref.narrow(ref.put(wide_g, won, windows, axes, sizes), v.dtype)
        assert_values(backend.put(pool, g, choice), gx, f"put {note}")
        for equal_to in (None, y, array_of(rng, y.shape, dtype)):
            tied = ref.choose(x, windows, axes, "all", nan, equal_to) if ties_too else None
            first = won if equal_to is None else ref.choose(x, windows, axes, "first", nan, equal_to)
            for ties in ("first", "all", "split") if ties_too else ("first",):
                winners = first if ties == "first" else tied
                kind = f"{ties} {nan} {'maximum' if equal_to is None else 'equal_to'} {note}"

                def put(terms, winners=winners, ties=ties):
                    return ref.put(terms, winners, windows, axes, sizes, ties)

                def take(terms, winners=winners, ties=ties):
                    return ref.take(terms, winners, windows, axes, ties)

                ours_put = backend.max_put(pool, x, g, ties, nan, equal_to=equal_to)
                close(ours_put, put, wide_g, ties, f"max_put {kind}")
                taken = backend.max_take(pool, x, v, ties, nan, equal_to=equal_to)
                if ties == "first":
                    assert_same_bits(taken, take(v), f"max_take {kind}")
                else:
                    close(taken, take, wide_v, ties, f"max_take {kind}")
    x, g = array_of(rng, shape, dtype), array_of(rng, tuple(pool.out_shape), dtype)
    wide_x, wide_g = x.astype(np.float64), g.astype(np.float64)

    def mean(terms):
        return ref.mean(terms, windows, axes)

    def spread(terms):
        return ref.spread(terms, windows, axes, sizes)

    close(backend.mean(pool, x), mean, wide_x, "mean", f"mean {note}")
    close(backend.spread(pool, g), spread, wide_g, "spread", f"spread {note}")
    if not ties_too:
        return
    divisors = [divisors_of(rng, w.count) for w in ours]
    factor = np.ones((1,) * len(shape))  # from the number of elements to the divisors
    for a, w, d in zip(axes, ours, divisors, strict=True):
        factor = factor * (w.length / d).reshape([-1 if i == a else 1 for i in range(len(shape))])
    divided, note = pool.divided_by(divisors), f"{note} divided by {[d.tolist() for d in divisors]}"
    close(backend.mean(divided, x), lambda terms: mean(terms) * factor, wide_x, "mean", f"mean {note}")
    close(backend.spread(divided, g), spread, wide_g * factor, "spread", f"spread {note}")


def divisors_of(rng, count):
    """Divisors of one axis: all alike, alike but for the borders, or of any size and sign."""
    kind, usual = rng.integers(3), int(rng.integers(1, 5))
    if kind == 0:
        return np.full(count, usual)
    if kind == 1:
        return np.where(np.arange(count) % max(count - 1, 1), usual, usual + 1)
    return rng.choice([-7, -2, -1, 1, 2, 3, 11], count)


def assert_values(ours, theirs, note):
    """Bit for bit, except that a sum of nothing but -0.0 may be 0.0."""
    assert_same_bits(np.asarray(ours) + np.zeros(1, ours.dtype), np.asarray(theirs) + np.zeros(1, theirs.dtype), note)


def close(ours, sums, terms, what, note):
    """Sums of integers are exact; quotients may be off by the rounding of their terms. `sums` makes the truth from the
    terms, and from their absolute values what may be lost."""
    truth = sums(terms)
    if what in ("first", "all"):
        assert_values(ours, ref.narrow(truth, ours.dtype), note)
    elif ours.dtype.kind in "iu":
        # A quotient such as 1/3 + 2/3 may fall on either side of a whole number.
        low, high = ref.narrow(truth - 1e-9, ours.dtype), ref.narrow(truth + 1e-9, ours.dtype)
        assert ours.dtype == low.dtype and ours.shape == low.shape
        bad = (ours != low) & (ours != high)
        assert not bad.any(), f"{note}: {ours[bad][:3]}, expected {truth[bad][:3]}"
    else:
        assert_sum(ours, truth, ours.dtype, None, note, np.abs(sums(np.abs(terms))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", EDGES)
def test_channels_last(rng, dtype, channels):
    """The channels are what a vector holds."""
    for k, s, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME")):
        check_all_maps(
            rng, (2, 5, 4, channels), "NHWC", [axis(5, k, s, padding), axis(4, k, s, padding)], dtype, ties_too=k != 2
        )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64"])
@pytest.mark.parametrize("channels", [8, 13, 16, 35])
def test_windows_of_three_that_share_a_position_with_the_next(rng, dtype, channels):
    """The winner of the shared one is found once: a NaN or a zero there counts for both, whichever sign came first."""
    floats = dtype.startswith("float")
    for sizes, layout in (((5, 12), "NHWC"), ((7, 9), "NHWC"), ((3, 5, 11), "NDHWC")):
        shape, pairs = (2, *sizes, channels), [axis(n, 3, 2, "SAME") for n in sizes]
        check_all_maps(rng, shape, layout, pairs, dtype, specials=floats, ties_too=False)
        if not floats:
            continue
        axes, windows = tuple(range(1, 1 + len(sizes))), [w for _, w in pairs]
        pool = Pool.of(shape, layout, tuple(w for w, _ in pairs))
        for odds in ([0.3, 0.3, 0.4], [0.9, 0.001, 0.099], [0, 0.1, 0.9]):
            x = rng.choice([0.0, -0.0, -1.0], shape, p=odds).astype(dtype)
            expected = ref.take(x, ref.choose(x, windows, axes, "first", "propagate"), windows, axes)
            assert_same_bits(backend.maximum(pool, x, "propagate"), expected, f"{shape} {odds}")
            assert_same_bits(backend.maximum_and_choice(pool, x, "propagate")[0], expected, f"{shape} {odds}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", EDGES)
def test_channels_first(rng, dtype, width):
    """The width is what a vector runs along."""
    for k, s, padding in ((2, 2, "SAME"), (3, 2, "SAME"), (3, 1, "SAME")):
        check_all_maps(
            rng, (1, 2, 4, width), "NCHW", [axis(4, k, s, padding), axis(width, k, s, padding)], dtype, ties_too=k != 2
        )


@pytest.mark.parametrize("layout", ["NWC", "NCW"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_strides_and_dilations(rng, layout, stride, dilation):
    for dtype in ("float32", "bfloat16", "int8", "float64"):
        for k in (1, 2, 3, 5):
            for n in (17, 33, 65):
                for pads in ((0, 0), (k // 2, (k - 1) // 2)):
                    pair = axis(n, k, stride, "EXPLICIT", dilation, *pads)
                    shape = (2, n, 3) if layout == "NWC" else (2, 3, n)
                    check_all_maps(rng, shape, layout, [pair], dtype, ties_too=k == 3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_nan_and_infinities(rng, layout, dtype):
    for c, w, k, s in ((1, 9, 2, 2), (8, 6, 3, 2), (17, 5, 3, 1), (33, 4, 2, 1), (3, 33, 3, 2), (2, 65, 4, 3)):
        shape = (2, 6, w, c) if layout == "NHWC" else (2, c, 6, w)
        for _ in range(3):
            check_all_maps(rng, shape, layout, [axis(6, k, s, "SAME"), axis(w, k, s, "SAME")], dtype, specials=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize(
    "layout", ["W", "WC", "CW", "HW", "HWC", "CHW", "NHW", "NDHWC", "NCDHW", "ZYX", "NWXYZC", "NCWXYZ"]
)
def test_any_rank_and_layout(rng, layout, dtype):
    """One to four spatial axes, with or without batch and channels, in either order."""
    lengths = dict(zip("WHDZYX", (7, 5, 4, 4, 3, 5))) | {"N": 2, "C": 3}
    shape = tuple(lengths[letter] for letter in layout)
    spatial = [n for letter, n in zip(layout, shape) if letter not in "NC"]
    for k, s, padding, d in (
        (2, 2, "VALID", 1),
        (3, 2, "SAME", 1),
        (3, 1, "SAME", 1),
        (2, 1, "VALID", 2),
        (1, 2, "SAME", 1),
    ):
        check_all_maps(rng, shape, layout, [axis(n, k, s, padding, d) for n in spatial], dtype, ties_too=k == 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "uint8"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_listed_windows(rng, layout, dtype):
    """Fractional (disjoint, overlapping) and adaptive windows, alone and mixed with regular ones."""
    for c, h, w in ((3, 9, 13), (16, 7, 8), (17, 12, 5), (1, 11, 33)):
        shape = (2, h, w, c) if layout == "NHWC" else (2, c, h, w)
        for overlapping in (False, True):
            pairs = [fractional_axis(n, sequence(rng, n), overlapping) for n in (h, w)]
            check_all_maps(rng, shape, layout, pairs, dtype)
        check_all_maps(rng, shape, layout, [adaptive_axis(h, 4), adaptive_axis(w, 3)], dtype)
        check_all_maps(rng, shape, layout, [adaptive_axis(h, 2 * h), axis(w, 3, 2, "SAME")], dtype)
        check_all_maps(rng, shape, layout, [axis(h, 2, 1), fractional_axis(w, sequence(rng, w))], dtype)


def same_as_channels(planes, channels, name, *arguments, **more):
    """A map of planes [C, H, W] has the bits that it has of channels [H, W, C]."""

    def moved(argument):
        return np.ascontiguousarray(np.moveaxis(argument, 0, -1)) if isinstance(argument, np.ndarray) else argument

    compute = getattr(backend, name)
    ours = compute(planes, *arguments, **more)
    theirs = compute(channels, *map(moved, arguments), **{key: moved(value) for key, value in more.items()})
    assert_same_bits(moved(ours), theirs, f"{name}, {planes}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "uint8"])
@pytest.mark.parametrize(("count", "height", "width"), [(64, 70, 90), (33, 28, 28), (130, 19, 23), (12, 9, 300)])
def test_planes_have_the_bits_of_channels(rng, dtype, count, height, width):
    """Many planes, in boxes and with some left over; also where their rows lie apart."""
    for pairs in (
        [axis(height, 3, 1, "SAME"), axis(width, 3, 1, "SAME")],
        [axis(height, 3, 2, "SAME"), axis(width, 2, 2)],
        [axis(height, 2, 1, d=2), axis(width, 5, 3, "SAME", d=2)],
        [fractional_axis(height, sequence(rng, height), True), adaptive_axis(width, 7)],
    ):
        ours = [p[0] for p in pairs]
        planes, channels = Pool.of((count, height, width), "CHW", ours), Pool.of((height, width, count), "HWC", ours)
        x = array_of(rng, (count, height + 1, width), dtype)[:, 1:]
        v, g = array_of(rng, planes.shape, dtype), array_of(rng, planes.out_shape, dtype)
        y, choice = backend.maximum_and_choice(planes, x, "propagate")
        same_as_channels(planes, channels, "maximum", x, "propagate")
        same_as_channels(planes, channels, "choose", x, "propagate")
        same_as_channels(planes, channels, "put", g, choice)
        same_as_channels(planes, channels, "take", v, choice)
        same_as_channels(planes, channels, "mean", x)
        same_as_channels(planes, channels, "spread", g)
        for known in ({}, {"equal_to": y}):
            same_as_channels(planes, channels, "max_put", x, g, "first", "propagate", **known)
            same_as_channels(planes, channels, "max_take", x, v, "first", "propagate", **known)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "uint8"])
@pytest.mark.parametrize("count", [1, 3, 8, 31])
def test_few_channels_have_the_bits_of_many(rng, dtype, count):
    """Windows some elements apart in rows of few channels, which are no vectors; also where one long row is all."""
    for pairs in (
        [axis(10, 2, 2), axis(50, 2, 2)],
        [axis(11, 3, 2, "SAME"), axis(51, 3, 2, "SAME")],
        [axis(9, 3, 1, "SAME"), axis(40, 5, 3, "EXPLICIT", before=4, after=1)],
        [axis(7, 2, 3), axis(60, 2, 4)],
        [axis(9, 3, 2, d=2), axis(66, 3, 4, "SAME", d=3)],
        [axis(2101, 3, 2, "SAME")],
        [axis(300, 4, 7)],
    ):
        ours = [p[0] for p in pairs]
        letters, sizes = "HW"[-len(ours) :] + "C", [w.size for w in ours]
        few, many = Pool.of((*sizes, count), letters, ours), Pool.of((*sizes, 67), letters, ours)
        v, g = array_of(rng, many.shape, dtype), array_of(rng, many.out_shape, dtype)

        def some(argument, count=count):
            return np.ascontiguousarray(argument[..., :count]) if isinstance(argument, np.ndarray) else argument

        def same(name, *arguments, few=few, many=many, **more):
            compute = getattr(backend, name)
            ours = compute(few, *map(some, arguments), **{key: some(value) for key, value in more.items()})
            assert_same_bits(ours, some(compute(many, *arguments, **more)), f"{name}, {few}")

        for x in (
            plain := array_of(rng, many.shape, dtype),
            with_specials(rng, plain) if dtype in FLOATS else plain // 2,
        ):
            y, choice = backend.maximum_and_choice(many, x, "propagate")
            for nan in ("propagate", "ignore"):
                same("maximum", x, nan)
                same("choose", x, nan)
            same("take", v, choice)
            same("put", g, choice)
            same("put", g, choice, assign=True)
            same("mean", x)
            same("spread", g)
            for known in ({}, {"equal_to": y}):
                same("max_put", x, g, "first", "propagate", **known)
                same("max_take", x, v, "first", "propagate", **known)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16"])
@pytest.mark.parametrize(
    ("k", "s", "padding"), [(2, 1, "VALID"), (2, 2, "SAME"), (3, 1, "SAME"), (3, 2, "SAME"), (3, 2, "VALID")]
)
def test_averages_along_rows_have_the_bits_of_channels(rng, dtype, k, s, padding):
    """Rows that end anywhere in a vector, in few planes; where all is -0, and where rows lie in the same windows."""
    for width in (16, 17, 31, 33, 34, 50, 64, 65, 67, 112):
        along = axis(width, k, s, padding)[0]
        for down in (axis(9, k, s, padding), axis(6, 2, 2), adaptive_axis(7, 3)):
            check_averages_of_planes(rng, dtype, [down[0], along])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("width", [16, 34, 56, 112])
def test_averages_with_a_column_missing_in_front_have_the_bits_of_channels(rng, dtype, width):
    check_averages_of_planes(rng, dtype, [axis(n, 3, 2, "EXPLICIT", before=1)[0] for n in (8, width)])
    check_averages_of_planes(
        rng, dtype, [axis(8, 3, 1, "SAME")[0], axis(width, 3, 2, "EXPLICIT", before=1, after=1)[0]]
    )


def check_averages_of_planes(rng, dtype, windows):
    height, width = (w.size for w in windows)
    planes, channels = Pool.of((3, height, width), "CHW", windows), Pool.of((height, width, 3), "HWC", windows)
    x, g = array_of(rng, planes.shape, dtype), array_of(rng, planes.out_shape, dtype)
    x[0] = -x[0] * 0
    same_as_channels(planes, channels, "mean", x)
    same_as_channels(planes, channels, "spread", g)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("rank", [3, 4])
def test_rows_of_volumes_are_not_taken_for_rows_of_planes(rng, dtype, rank):
    """Three planes of windows with one row each, where three rows of one plane would be done two at a time."""
    padded, plain = axis(4, 3, 1, "EXPLICIT", before=1, after=1), axis(6, 3)
    for middle in (plain, padded):
        pairs = [*[padded] * (rank - 2), middle, axis(33, 3, 1, "SAME")]
        shape = (1, 1, *(ours.size for ours, _ in pairs))
        check_all_maps(rng, shape, "NC" + "ADHW"[-rank:], pairs, dtype, ties_too=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_rows_that_lie_in_the_same_windows_have_the_bits_of_single_ones(rng, dtype, before):
    """Two or four rows are made together of many channels and of one, but not of three. Windows may be missing on any
    side, be divided by anything, and lie side by side on an axis in front."""
    for sizes, strides in (
        ((9, 40), (2, 2)),
        ((8, 33), (1, 1)),
        ((1, 36), (1, 1)),
        ((5, 6, 37), (2, 2, 2)),
        ((4, 7, 36), (1, 2, 2)),
        ((3, 6, 35), (3, 1, 1)),
        ((2, 3, 5, 34), (3, 2, 2, 2)),
    ):
        windows = [pw.explicit(n, 3, s, min(before, n - 1), 1) for n, s in zip(sizes, strides)]
        divisors = [rng.choice([2, 3, 3, 3, -5], w.count) for w in windows]
        axes = "ADHW"[-len(sizes) :]
        for count, divided in ((27, False), (27, True), (1, True)):
            pools = [Pool.of((*sizes, c), axes + "C", windows) for c in (3, count)]
            pools.append(Pool.of((count, *sizes), "C" + axes, windows))
            few, channels, planes = (p.divided_by(divisors) for p in pools) if divided else pools
            g = rng.standard_normal((*channels.out_shape[:-1], 27)).astype(dtype_of(dtype))
            g[..., :5] *= -0.0
            expected = np.concatenate([backend.spread(few, g[..., i : i + 3]) for i in range(0, 27, 3)], axis=-1)
            context = f"{sizes}, {strides}, {count} channels, divided: {divided}"
            assert_same_bits(backend.spread(channels, g[..., :count]), expected[..., :count], context)
            turned = np.ascontiguousarray(np.moveaxis(g[..., :count], -1, 0))
            assert_same_bits(np.moveaxis(backend.spread(planes, turned), 0, -1), expected[..., :count], context)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "int32"])
@pytest.mark.parametrize(("k", "s"), [(2, 2), (3, 1), (3, 2)])
def test_averages_that_go_past_the_caches_have_the_bits_of_small_ones(rng, dtype, k, s):
    """Rows that end within a cache line, in a result of more than 8 MiB, against every plane alone."""
    for width in (150, 250):
        count = (1 << 23) * s * s // dtype_of(dtype).itemsize // (250 * width) + 1
        windows = [pw.regular(250, k, s, "SAME"), pw.regular(width, k, s, "SAME")]
        whole, alone = Pool.of((count, 250, width), "CHW", windows), Pool.of((1, 250, width), "CHW", windows)
        x, g = array_of(rng, whole.shape, dtype), array_of(rng, whole.out_shape, dtype)
        spread, mean = backend.spread(whole, g), backend.mean(whole, x)
        for n in range(0, count, 7):
            assert_same_bits(spread[n : n + 1], backend.spread(alone, g[n : n + 1]), f"{n}")
            assert_same_bits(mean[n : n + 1], backend.mean(alone, x[n : n + 1]), f"{n}")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [48, 64, 96, 192])
def test_shares_of_windows_side_by_side_that_go_past_the_caches_are_those_of_numpy(rng, dtype, width):
    """Rows of whole cache lines, also where the last vector of windows overlaps the one before; all kinds of shares."""
    count = (1 << 23) // dtype_of(dtype).itemsize // (66 * width) + 1
    pool = Pool.of((count, 66, width), "CHW", [pw.regular(66, 2, 2), pw.regular(width, 2, 2)])
    g = with_specials(rng, rng.standard_normal(pool.out_shape).astype(dtype_of(dtype)), 0.05)
    for divisor, shared in ((4, pool), (3, pool.divided_by([np.full(33, 3), np.ones(width // 2, np.int64)]))):
        share = (np.float32 if g.itemsize < 4 else np.float64)(1) / divisor
        expected = (0 + g.astype(share.dtype) * share).astype(g.dtype) if g.itemsize < 8 else 0 + g / divisor
        assert_same_bits(
            backend.spread(shared, g), expected.repeat(2, axis=1).repeat(2, axis=2), f"shares of 1/{divisor}"
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("k", [(7, 7), (5, 6), (8, 8), (9, 8)])
def test_codes_of_channels_are_followed_past_the_caches_as_in_them(rng, dtype, k):
    """Results of more than 8 MiB against every image alone; codes that name nothing too."""
    size = (23, 57)
    count = (1 << 23) // dtype_of(dtype).itemsize // (23 * 57 * 144) + 1
    windows = [pw.regular(n, extent, 1, "SAME") for n, extent in zip(size, k, strict=True)]
    whole, alone = (Pool.of((n, *size, 144), "NHWC", windows) for n in (count, 1))
    v, g = array_of(rng, whole.shape, dtype), array_of(rng, whole.out_shape, dtype)
    choice = backend.choose(whole, v, "propagate")
    foreign = np.where(rng.random(choice.shape) < 0.01, 255, choice).astype(np.uint8)
    taken, astray, put = backend.take(whole, v, choice), backend.take(whole, v, foreign), backend.put(whole, g, choice)
    for n in range(0, count, 3):
        one = slice(n, n + 1)
        assert_same_bits(taken[one], backend.take(alone, v[one], choice[one]), f"{n}")
        assert_same_bits(put[one], backend.put(alone, g[one], choice[one]), f"{n}")
    assert_same_bits(astray, np.where(foreign == 255, taken.dtype.type(0), taken))


@pytest.mark.parametrize("special", [np.nan, -np.nan, -0.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_that_are_done_together_have_one_that_needs_care(rng, dtype, special):
    """Where a NaN is, or which zero came first, is told of every row of many."""
    for height, width, k, s, padding in (
        (60, 90, 3, 1, "SAME"),
        (61, 128, 2, 2, "VALID"),
        (90, 40, 3, 2, "SAME"),
        (50, 65, 7, 1, "SAME"),
        (40, 70, 5, 1, "SAME"),
    ):
        ours = [pw.regular(height, k, s, padding), pw.regular(width, k, s, padding)]
        planes, channels = Pool.of((70, height, width), "CHW", ours), Pool.of((height, width, 70), "HWC", ours)
        x = -np.abs(array_of(rng, planes.shape, dtype))
        x[rng.integers(0, 70, 9), rng.integers(0, height, 9), rng.integers(0, width, 9)] = special
        for nan in ("propagate", "ignore"):
            same_as_channels(planes, channels, "maximum", x, nan)
            same_as_channels(planes, channels, "choose", x, nan)


APART = [
    [pw.regular(20, 2, 2), pw.regular(64, 2, 2)],
    [pw.regular(21, 2, 2), pw.regular(173, 2, 2)],  # a row and a column lie in no window
    [pw.regular(21, 2, 2, "SAME"), pw.regular(171, 2, 2, "SAME")],  # windows are cut short at the end,
    [pw.explicit(23, 2, 2, 1, 1), pw.explicit(160, 2, 2, 1, 1)],  # and in front
    [pw.regular(22, 2, 3), pw.regular(70, 2, 2)],  # rows between windows
    [pw.explicit(20, 3, 4, 2, 1), pw.explicit(131, 2, 2, 1, 0)],
    [pw.regular(5, 2, 2, "SAME"), pw.regular(7, 2, 2, "SAME"), pw.regular(90, 2, 2)],
    [pw.regular(7, 3, 3, "SAME"), pw.regular(9, 2, 4), pw.regular(141, 2, 2, "SAME")],
    [pw.regular(4203, 2, 2, "SAME")],
    [pw.regular(3, 2, 2, "SAME"), pw.regular(18001, 2, 2, "SAME")],  # rows are done in pieces
]
LARGE_APART = [  # written past the caches,
    [pw.regular(1200, 2, 2), pw.regular(1210, 2, 2)],
    [pw.regular(61, 2, 2, "SAME"), pw.regular(255, 2, 2), pw.regular(142, 2, 2)],
    [pw.regular(40, 2, 2), pw.regular(200, 2, 2), pw.regular(192, 2, 2)],  # directly, where rows fill lines
]


@pytest.mark.parametrize(
    ("dtype", "windows"),
    [(dtype, windows) for dtype in DTYPES for windows in APART]
    + [(dtype, windows) for dtype in ("float16", "float32", "uint8") for windows in LARGE_APART],
)
def test_windows_that_lie_apart_have_the_bits_of_channels(rng, dtype, windows):
    sizes = tuple(w.size for w in windows)
    large = np.prod(sizes) > 10**6
    count, letters = 6 if large else 19, "DHW"[-len(sizes) :]
    planes, channels = (
        Pool.of((count, *sizes), "C" + letters, windows),
        Pool.of((*sizes, count), letters + "C", windows),
    )
    x, v, g = (array_of(rng, shape, dtype) for shape in (planes.shape, planes.shape, planes.out_shape))
    if dtype in FLOATS:
        x, g = with_specials(rng, x, 1e-3), with_specials(rng, g, 0.1)
    for nan in ("propagate", "ignore") if dtype in FLOATS and not large else ("propagate",):
        y, choice = backend.maximum_and_choice(planes, x, nan)
        other = np.where(rng.random(y.shape) < 0.1, g, y)
        for known in ({}, {"equal_to": y}, {"equal_to": other}):
            same_as_channels(planes, channels, "max_put", x, g, "first", nan, **known)
            same_as_channels(planes, channels, "max_take", x, v, "first", nan, **known)
        same_as_channels(planes, channels, "put", g, choice)
        same_as_channels(planes, channels, "take", v, choice)


CHANNELS_APART = [
    [pw.regular(6, 2, 2), pw.regular(10, 2, 2)],
    [pw.regular(7, 2, 2), pw.regular(9, 2, 2)],  # a row and a column lie in no window
    [pw.explicit(7, 2, 2, 1, 0), pw.explicit(8, 2, 2, 1, 1)],  # windows are cut short
    [pw.regular(10, 3, 3, "SAME"), pw.regular(13, 3, 3)],
    [pw.regular(9, 2, 3), pw.regular(11, 3, 4)],  # elements lie between windows
    [pw.regular(5, 2, 2, "SAME"), pw.regular(4, 2, 2), pw.regular(7, 2, 2)],
    [pw.regular(9, 4, 4), pw.regular(9, 5, 5)],
    [pw.regular(41, 2, 2, "SAME")],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("windows", CHANNELS_APART)
def test_channels_over_windows_that_lie_apart(rng, dtype, windows):
    """Against places that NumPy computes from the codes, or from comparing every element."""
    for channels in (5, 12, 16, 33, 64):
        compare_apart(
            rng, Pool.of((2, *(w.size for w in windows), channels), "N" + "DHW"[-len(windows) :] + "C", windows), dtype
        )


@pytest.mark.parametrize(("dtype", "width"), [("float32", 262), ("bfloat16", 522)])
def test_channels_over_windows_that_lie_apart_written_past_the_caches(rng, dtype, width):
    windows = [pw.regular(131, 2, 2), pw.explicit(width, 2, 2, 1, 1)]
    compare_apart(rng, Pool.of((131, width, 64), "HWC", windows), dtype)


def compare_apart(rng, pool, dtype):
    x, v, g = (array_of(rng, shape, dtype) for shape in (pool.shape, pool.shape, pool.out_shape))
    if dtype in FLOATS:
        x, g = with_specials(rng, x, 1e-2), with_specials(rng, g, 0.1)
    everywhere = np.indices(pool.out_shape, sparse=True)

    def places(code):
        at = list(everywhere)
        for i, (local, w) in enumerate(zip(np.unravel_index(code, pool.extents), pool.windows, strict=True)):
            at[pool.axis + i] = w.origin[at[pool.axis + i]] + local
        return at

    def put(code, there):
        gx = np.zeros(pool.shape, x.dtype)
        gx[tuple(a[there] for a in np.broadcast_arrays(*places(code)))] = np.zeros((), x.dtype) + g[there]
        return gx

    def take(code, there):
        return np.where(there, v[tuple(places(np.where(there, code, first_real)))], np.zeros((), x.dtype))

    def equal_to(wanted):
        code, found = first_real, np.zeros(pool.out_shape, bool)
        for candidate in reversed(range(pool.elements)):
            at = places(np.full(pool.out_shape, candidate))
            real = np.ones(pool.out_shape, bool)
            for i, w in enumerate(pool.windows):
                where = at[pool.axis + i]
                real &= (where >= w.start[everywhere[pool.axis + i]]) & (where < w.stop[everywhere[pool.axis + i]])
            clipped = tuple(np.clip(a, 0, n - 1) for a, n in zip(at, pool.shape, strict=True))
            element = x[clipped]
            same = real & ((element == wanted) | ((element != element) & (wanted != wanted)))
            code, found = np.where(same, candidate, code), found | same
        return code, found

    choice = backend.choose(pool, x, "propagate")
    first_real = choice.astype(np.int64)
    all_of_them = np.ones(pool.out_shape, bool)
    y = backend.maximum(pool, x, "propagate")
    assert_same_bits(backend.put(pool, g, choice), put(first_real, all_of_them), "put")
    assert_same_bits(backend.take(pool, v, choice), take(first_real, all_of_them), "take")
    assert_same_bits(backend.max_put(pool, x, g, "first", "propagate"), put(first_real, all_of_them), "max_put")
    assert_same_bits(backend.max_take(pool, x, v, "first", "propagate"), take(first_real, all_of_them), "max_take")
    for wanted in (y, np.where(rng.random(y.shape) < 0.2, g, y)):
        found = equal_to(wanted)
        assert_same_bits(
            backend.max_put(pool, x, g, "first", "propagate", equal_to=wanted), put(*found), "max_put equal"
        )
        assert_same_bits(
            backend.max_take(pool, x, v, "first", "propagate", equal_to=wanted), take(*found), "max_take equal"
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize(("k", "s"), [(2, 2), (3, 1), (3, 2), (33, 1), (150, 1)])
def test_a_row_that_threads_share_has_the_bits_of_one_among_many(rng, dtype, k, s):
    width = 300_001 // dtype_of(dtype).itemsize
    windows = [pw.regular(1, 1, 1), pw.regular(width, k, s, "SAME")]
    alone, many = (Pool.of((n, 1, width, 1), "NHWC", windows) for n in (1, 9))
    x, g = array_of(rng, many.shape, dtype), array_of(rng, many.out_shape, dtype)
    choice = backend.choose(many, x, "propagate")
    one = slice(4, 5)
    for name, *arrays in (
        ("maximum", x, "propagate"), ("choose", x, "propagate"), ("take", x, choice), ("put", g, choice),
        ("max_put", x, g, "first", "propagate"), ("mean", x), ("spread", g),
    ):  # fmt: skip
        mine = [a[one] if isinstance(a, np.ndarray) else a for a in arrays]
        assert_same_bits(getattr(backend, name)(alone, *mine), getattr(backend, name)(many, *arrays)[one], name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "int8"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 1), (2, 0), (0, 2)])
def test_elements_that_share_windows_of_three_are_done_together(rng, dtype, stride, before, after):
    """Channels, some elements of a row at a time: from none that is whole to more than fit together."""
    for size in range(3, 15):
        pairs = [axis(5, 3, stride, "SAME"), axis(size, 3, stride, "EXPLICIT", before=before, after=after)]
        check_all_maps(rng, (1, 5, size, 67), "NHWC", pairs, dtype, ties_too=False)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("sizes", "windows"),
    [
        ((30, 112), [(3, 2, "SAME")] * 2),
        ((31, 113), [(3, 2, "VALID")] * 2),
        ((29, 111), [(3, 2, "SAME")] * 2),  # a column is missing in front
        ((30, 90), [(3, 1, "SAME")] * 2),
        ((31, 75), [(3, 1, "VALID")] * 2),
        ((1, 130), [(3, 2, "SAME")] * 2),
        ((2, 70), [(3, 1, "SAME")] * 2),
        ((6, 11, 130), [(3, 2, "SAME")] * 3),
        ((7, 9, 131), [(1, 3, "VALID"), (3, 2, "SAME"), (3, 2, "SAME")]),  # planes between windows
        ((7, 9, 128), [(2, 1, "SAME"), (3, 2, "SAME"), (3, 2, "VALID")]),
        ((2900, 112), [(3, 2, "SAME")] * 2),  # in boxes, and past the caches
        ((700, 453), [(3, 1, "SAME")] * 2),
        ((40, 96, 100), [(3, 2, "SAME")] * 3),
    ],
)
def test_gradients_of_windows_of_three_have_the_bits_of_channels(rng, dtype, sizes, windows):
    """Sums are added in the same order, and infinities cancel alike."""
    ours = [pw.regular(n, *window) for n, window in zip(sizes, windows, strict=True)]
    letters = "DHW"[-len(sizes) :]
    planes, channels = Pool.of((17, *sizes), "C" + letters, ours), Pool.of((*sizes, 17), letters + "C", ours)
    x, g = array_of(rng, planes.shape, dtype), with_specials(rng, array_of(rng, planes.out_shape, dtype, "plain"), 0.1)
    g[np.isnan(g)] = np.inf  # which of two NaN a sum is, is not said
    y, choice = backend.maximum_and_choice(planes, x, "propagate")
    same_as_channels(planes, channels, "put", g, choice)
    same_as_channels(planes, channels, "max_put", x, g, "first", "propagate")
    same_as_channels(planes, channels, "max_put", x, g, "first", "propagate", equal_to=y)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int32"])
@pytest.mark.parametrize("k", [(2, 2), (3, 3), (3, 5), (4, 3), (7, 7), (16, 9)])
def test_windows_that_begin_everywhere(rng, dtype, k):
    """Neighbours are done together, first along the rows: at the borders too, and where rows are cut into pieces."""
    for padding in ("SAME", "VALID"):
        pairs = [axis(n, size, 1, padding) for n, size in zip((18, 13), k, strict=True)]
        check_all_maps(rng, (2, 18, 13, 67), "NHWC", pairs, dtype, specials="float" in dtype, ties_too=False)
    ours = [pw.regular(19, k[0], 1, "SAME"), pw.regular(700, k[1], 1, "SAME")]
    planes, channels = Pool.of((65, 19, 700), "CHW", ours), Pool.of((19, 700, 65), "HWC", ours)
    x = array_of(rng, planes.shape, dtype)
    same_as_channels(planes, channels, "maximum", x, "propagate")
    same_as_channels(planes, channels, "choose", x, "propagate")
    if "float" in dtype:  # windows near a NaN are done again, the others are not
        x[rng.integers(0, 65, 40), rng.integers(0, 19, 40), rng.integers(0, 700, 40)] = np.nan
        for nan in ("propagate", "ignore"):
            same_as_channels(planes, channels, "maximum", x, nan)
            same_as_channels(planes, channels, "choose", x, nan)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "float64"])
@pytest.mark.parametrize("k", [33, 65, 257, 513])
def test_large_overlapping_windows(rng, k, dtype):
    """Windows so large that a kernel may slide or split them; the choice outgrows a byte."""
    n = k + 24
    for stride, padding in ((1, "VALID"), (3, "VALID")):
        check_all_maps(rng, (1, n, 3), "NWC", [axis(n, k, stride, padding)], dtype, ties_too=False)
        check_all_maps(rng, (1, 2, n), "NCW", [axis(n, k, stride, padding)], dtype, ties_too=False)
    if k <= 65:
        check_all_maps(rng, (1, n, 2), "NWC", [axis(n, k, 7, "SAME")], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_large_square_windows(rng, dtype):
    """33 x 33 elements at stride 1, and windows of more than 256 and more than 65536 elements."""
    check_all_maps(rng, (1, 36, 35, 2), "NHWC", [axis(36, 33), axis(35, 33)], dtype, ties_too=False)
    check_all_maps(rng, (1, 2, 36, 35), "NCHW", [axis(36, 33), axis(35, 33)], dtype, ties_too=False)
    check_all_maps(rng, (1, 17, 17, 1), "NHWC", [axis(17, 17), axis(17, 16)], dtype, ties_too=False)
    check_all_maps(rng, (257, 257), "HW", [axis(257, 257), axis(257, 256)], dtype, ties_too=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_last_window_sets_the_element(rng, dtype):
    """put with `assign`, where windows share elements, along rows and for channels, from codes of every width."""
    for shape, layout, k in (((1, 9, 11, 40), "NHWC", 3), ((2, 3, 12, 31), "NCHW", 3), ((1, 24, 25, 2), "NHWC", 15)):
        pool = Pool.of(shape, layout, [pw.regular(shape[layout.index(a)], k, 2, "SAME") for a in "HW"])
        x, g = (rng.integers(0, 50, shape).astype(dtype_of(dtype)) for shape in (pool.shape, pool.out_shape))
        choice = backend.choose(pool, x, "propagate")
        index = backend.choice_to_index(pool, choice, np.int64, "batch")
        added = backend.put(pool, g, choice)
        expected = np.zeros(x.size, x.dtype)
        for at, value in zip(index.flat, g.flat, strict=True):
            expected[at] = value
        for width in (np.uint8, np.uint16, np.uint32, np.uint64):
            codes = choice.astype(width)
            assert_same_bits(backend.put(pool, g, codes, assign=True), expected.reshape(shape))
            assert_same_bits(backend.put(pool, g, codes), added)
            assert_same_bits(backend.take(pool, x, codes), x.reshape(-1)[index])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("k", [16, 33, 300])
def test_neighbours_that_choose_the_same_element_or_come_back_to_it(rng, k, dtype):
    """Codes of any order in runs of any length; windows at the ends of a row are cut short."""
    n = 4001
    pool = Pool.of((2, 1, n), "NCW", [pw.explicit(n, k, 1, k // 3, k // 2)])
    w = pool.windows[0]
    nominal = np.arange(w.count) - k // 3
    wanted = np.repeat(rng.integers(0, n, w.count), rng.integers(1, 40, w.count))[
        : w.count
    ]  # elements, brought into their windows
    at = wanted.clip(np.maximum(nominal, 0), np.minimum(nominal + k, n) - 1)
    choice = np.broadcast_to(at - nominal, pool.out_shape).astype(pool.choice_dtype)
    g, v = array_of(rng, pool.out_shape, dtype), array_of(rng, pool.shape, dtype)
    assert_same_bits(backend.take(pool, v, choice), v[..., at])
    sums = np.zeros(pool.shape, np.float32 if dtype == "bfloat16" else dtype)
    for image in (0, 1):
        np.add.at(sums[image, 0], at, g[image, 0].astype(sums.dtype))
    assert_values(backend.put(pool, g, choice), sums.astype(g.dtype), dtype)
    x = array_of(rng, pool.shape, dtype)
    for width in (np.uint16, np.uint32, np.uint64):
        codes = np.empty(pool.out_shape, width)
        assert_same_bits(
            backend.choose(pool, x, "propagate", codes).astype(pool.choice_dtype), backend.choose(pool, x, "propagate")
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint16", "float64"])
@pytest.mark.parametrize("rows", range(1, 11))
def test_codes_of_windows_with_any_number_of_rows(rng, rows, dtype):
    """Every element of every window is chosen somewhere, in rows of windows shorter and longer than a vector."""
    for columns, stride, count in [(2, 1, 17), (7, 1, 56), (5, 2, 40), (16, 1, 33), (3, 3, 70), (25, 1, 64)]:
        n = (count - 1) * stride + columns
        pool = Pool.of((3, rows + 4, n), "NHW", (pw.regular(rows + 4, rows, 1), pw.regular(n, columns, stride)))
        choice = rng.integers(0, rows * columns, pool.out_shape).astype(pool.choice_dtype)
        v = array_of(rng, pool.shape, dtype)
        row, column = np.divmod(choice.astype(np.int64), columns)
        image, h, w = np.indices(choice.shape)
        assert_same_bits(backend.take(pool, v, choice), v[image, h + row, w * stride + column])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int16"])
@pytest.mark.parametrize("n", [17, 56])
def test_windows_of_three_centred_on_every_element(rng, n, dtype):
    """Nothing comes over the ends of rows that are done as one. A NaN or negative zero is found wherever it is."""
    across = axis(n, 3, 1, "SAME")
    for down in (axis(7, 3, 1, "SAME"), axis(9, 3, 1, "EXPLICIT", 2, 2, 2), axis(6, 2, 1)):
        rows = down[0].size
        check_all_maps(rng, (2, 3, rows, n), "NCHW", [down, across], dtype, specials=dtype in FLOATS)
        pool = Pool.of((1, 1, rows, n), "NCHW", (down[0], across[0]))
        for special in (np.nan, -0.0) if dtype in FLOATS else ():
            for h in range(rows):
                x = np.zeros(pool.shape, dtype_of(dtype))
                x[0, 0, h, h % 2 * (n - 1)] = special
                won = ref.choose(x, [down[1], across[1]], (2, 3), "first", "propagate")
                y = ref.take(x, won, [down[1], across[1]], (2, 3))
                assert_same_bits(backend.maximum(pool, x, "propagate"), y, f"{special} in row {h}")
                assert_same_bits(backend.maximum_and_choice(pool, x, "propagate")[0], y, f"{special} in row {h}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int16"])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_windows_of_three_around_elements(rng, dtype, before, after):
    """Whatever padding there is, where what should be chosen is no maximum, and where a NaN lies at a border."""
    for height, width in ((3, 18), (4, 34), (45, 57)):
        pairs = [axis(n, 3, 1, "EXPLICIT", before=before, after=after) for n in (height, width)]
        check_all_maps(rng, (2, 3, height, width), "NCHW", pairs, dtype, ties_too=False)
        ours = [pair[0] for pair in pairs]
        planes, channels = Pool.of((40, height, width), "CHW", ours), Pool.of((height, width, 40), "HWC", ours)
        x, v, g = (array_of(rng, shape, dtype) for shape in (planes.shape, planes.shape, planes.out_shape))
        other = backend.maximum(planes, x, "propagate")
        other[7, -1, -1] = v[0, 0, 0]
        same_as_channels(planes, channels, "max_take", x, v, "first", "propagate", equal_to=other)
        same_as_channels(planes, channels, "max_put", x, g, "first", "propagate", equal_to=other)
        for at in ((0, 5), (-1, 6), (1, 0), (2, -1)) if dtype in FLOATS else ():
            with_nan = x.copy()
            with_nan[(3, *at)] = np.nan
            same_as_channels(planes, channels, "maximum", with_nan, "propagate")
            same_as_channels(planes, channels, "choose", with_nan, "ignore")
            same_as_channels(planes, channels, "max_take", with_nan, v, "first", "propagate")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64", "uint64"])
def test_long_axes_are_done_in_parts(rng, dtype):
    """Parts of an axis join without a seam: windows shorter and longer than a part, cut by padding at both ends."""
    n, channels = 15011, 2
    x, v = (rng.integers(0, 7, (n, channels)).astype(dtype) for _ in range(2))
    few = np.zeros_like(x)  # sums stay below what a byte and a short float hold
    few[:: n // 90] = 1
    for k, s, d in ((513, 1, 1), (200, 3, 1), (130, 1, 5), (n - 7, 1, 1)):
        w = pw.explicit(n, k, s, (k - 1) * d // 2, (k - 1) * d // 3, dilation=d)
        pool = Pool.of(x.shape, "WC", [w])
        some = slice(None, None, w.count // 60)
        reads = np.asarray(w.origin)[some, None] + d * np.arange(k)
        inside, reads = (reads >= 0) & (reads < n), reads.clip(0, n - 1)
        winners = np.where(inside[..., None], x[reads].astype(np.int64), -1).argmax(1)
        chosen = np.take_along_axis(reads, winners, 1)
        y = backend.maximum(pool, x, "propagate")
        assert np.array_equal(y[some], np.take_along_axis(x, chosen, 0))
        assert np.array_equal(backend.choose(pool, x, "propagate")[some], winners)
        for equal_to in (None, y):
            taken = backend.max_take(pool, x, v, "first", "propagate", equal_to=equal_to)
            assert np.array_equal(taken[some], np.take_along_axis(v, chosen, 0))
        ones = pool.divided_by([np.ones(w.count, np.int64)])
        added = (inside[..., None] * few[reads].astype(np.int64)).sum(1)
        assert np.array_equal(backend.mean(ones, few)[some], added.astype(dtype))
        g = np.zeros(pool.out_shape, dtype)
        g[some] = 1
        given = np.zeros(n, np.int64)
        np.add.at(given, reads[inside], 1)
        assert np.array_equal(backend.spread(ones, g)[:, 0], given.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_few_elements_in_many_windows(rng, dtype):
    """More windows than elements: they overlap often although each is small."""
    many = axis(1, 6, 1, "EXPLICIT", before=5, after=5)
    check_all_maps(rng, (2, 12, 1, 10), "NHDW", [axis(12, 7, 3, "SAME"), many, axis(10, 9, 1, "SAME")], dtype)
    check_all_maps(rng, (2, 1, 40), "NHW", [many, axis(40, 9, 1, "SAME")], dtype)


@pytest.mark.parametrize("shape", [(1, 64, 64, 100), (2, 40, 66, 257), (1, 9, 30, 31, 96), (1, 300, 500, 1)])
def test_many_windows_share_an_element_and_little_of_the_result_is_worked_on_at_once(rng, shape):
    """Sums are finished as the windows pass by, some channels at a time: none is missed or counted twice."""
    k = {4: 5, 5: 3}[len(shape)] if shape[-1] > 1 else 11
    pool = Pool.of(shape, "NDHWC" if len(shape) == 5 else "NHWC", [pw.regular(n, k, 1, "SAME") for n in shape[1:-1]])
    x = array_of(rng, shape, "float32")
    choice = backend.choose(pool, x, "propagate")
    index = backend.choice_to_index(pool, choice, np.int64, "batch")
    g = rng.integers(-9, 10, pool.out_shape).astype(np.float32)
    expected = np.zeros(x.size, np.float32)
    np.add.at(expected, index.ravel(), g.ravel())
    assert np.array_equal(backend.put(pool, g, choice).ravel(), expected)
    assert np.array_equal(backend.take(pool, x, choice), x.ravel()[index])


def test_a_given_value_need_not_be_the_maximum(rng):
    """Where it is, its first place is found like the maximum's; a window where it is not changes no other."""
    shape = (1, 6, 40, 40)
    pool = Pool.of(shape, "NCHW", [pw.regular(40, 3, 1, "SAME")] * 2)
    x, v, g = (rng.integers(0, 5, s).astype(np.float32) for s in (shape, shape, pool.out_shape))
    most, choice = backend.maximum_and_choice(pool, x, "propagate")
    given = most.copy()
    given[0, 2, 17, 21], given[0, 3, 0, 0] = 99, np.nan
    real = given == most
    taken = backend.max_take(pool, x, v, "first", "propagate", equal_to=given)
    assert np.array_equal(taken, np.where(real, backend.take(pool, v, choice), 0))
    put = backend.max_put(pool, x, g, "first", "propagate", equal_to=given)
    assert np.array_equal(put, backend.put(pool, np.where(real, g, 0).astype(np.float32), choice))


@pytest.mark.parametrize("k", [254, 255, 256, 257])
def test_a_given_value_that_no_element_of_a_large_window_has(rng, k):
    """Its code is one that stands for none, also where the others nearly fill a byte."""
    pool = Pool.of((2, 600, 3), "NWC", [pw.regular(600, k, 1)])
    windows, axes = [ref.regular(600, k, 1, "VALID")], [1]
    x, v = (rng.integers(0, 40, pool.shape).astype(np.float32) for _ in range(2))
    g = rng.integers(1, 9, pool.out_shape).astype(np.float32)
    for change in ([0, 1], [0, -1], [0, -1, 1], [-100]):
        given = backend.maximum(pool, x, "propagate") + rng.choice(change, pool.out_shape).astype(np.float32)
        won = ref.choose(x, windows, axes, "first", "propagate", given)
        put = backend.max_put(pool, x, g, "first", "propagate", equal_to=given)
        assert np.array_equal(put, ref.put(g, won, windows, axes, [600]))
        taken = backend.max_take(pool, x, v, "first", "propagate", equal_to=given)
        assert np.array_equal(taken, ref.take(v, won, windows, axes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_global_pooling(rng, dtype):
    """One window that is the whole input."""
    for shape, layout in (
        ((2, 9, 11, 17), "NHWC"),
        ((2, 17, 9, 11), "NCHW"),
        ((1, 5, 6, 7, 3), "NDHWC"),
        ((1000,), "W"),
    ):
        spatial = [n for letter, n in zip(layout, shape) if letter not in "NC"]
        check_all_maps(rng, shape, layout, [axis(n, n, n) for n in spatial], dtype)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_windows_longer_than_the_input(rng, dtype):
    for n, k, s in ((1, 5, 1), (4, 5, 1), (5, 100, 2), (3, 2**31 - 1, 1), (7, 13, 3)):
        check_all_maps(rng, (2, n, 3), "NWC", [axis(n, k, s, "SAME")], dtype)
        check_all_maps(rng, (2, n, n, 3), "NHWC", [axis(n, k, s, "SAME"), axis(n, 2, 1, "SAME")], dtype)


def test_empty_arrays():
    for shape in ((0, 4, 4, 3), (2, 4, 4, 0), (2, 0, 4, 3)):
        pool = Pool.of(shape, "NHWC", tuple(pw.regular(n, 2, 2, "VALID") for n in shape[1:3]))
        x = np.zeros(shape, np.float32)
        for y in (backend.maximum(pool, x, "propagate"), backend.mean(pool, x), backend.choose(pool, x, "propagate")):
            assert y.shape == tuple(pool.out_shape) and y.size == 0
        g = np.zeros(pool.out_shape, np.float32)
        assert backend.spread(pool, g).shape == shape
        assert backend.max_put(pool, x, g, "first", "propagate").shape == shape


def test_elements_no_window_reads_get_zero():
    """Gaps between windows and the tail that VALID leaves over: zero, not whatever was in memory."""
    for layout, shape in (("NWC", (1, 11, 3)), ("NCW", (1, 3, 11))):
        pool = Pool.of(shape, layout, (pw.regular(11, 2, 4, "VALID"),))
        g = np.full(pool.out_shape, 5, np.float32)
        x = np.zeros(shape, np.float32)
        unread = np.array([i not in (0, 1, 4, 5, 8, 9) for i in range(11)])
        for gx in (
            backend.spread(pool, g),
            backend.max_put(pool, x, g, "all", "propagate"),
            backend.put(pool, g, backend.choose(pool, x, "propagate")),
        ):
            along = gx[0].T if layout == "NCW" else gx[0]
            assert (along[unread] == 0).all()


def test_divided_by_the_number_of_elements_is_the_mean(rng):
    """Divisors that say what is the case anyway change no bit, nor do those of one sign too many in both directions."""
    for dtype in DTYPES:
        for shape, layout in (((2, 9, 8, 17), "NHWC"), ((2, 3, 9, 40), "NCHW")):
            sizes = shape[1:3] if layout == "NHWC" else shape[2:]
            pool = Pool.of(shape, layout, [pw.regular(n, 3, 2, "SAME") for n in sizes])
            same, twice = (pool.divided_by([sign * w.length for w in pool.windows]) for sign in (1, -1))
            x, g = array_of(rng, shape, dtype, "plain"), array_of(rng, pool.out_shape, dtype, "plain")
            for other in (same, twice):
                assert_same_bits(backend.mean(other, x), backend.mean(pool, x), dtype)
                assert_same_bits(backend.spread(other, g), backend.spread(pool, g), dtype)


def test_divisors_of_large_windows(rng):
    """Windows that are summed axis by axis are divided in the end all the same."""
    for dtype in ("float16", "float32", "float64", "int8", "int64"):
        x = array_of(rng, (2, 400), dtype)
        pool = Pool.of(x.shape, "NW", [pw.regular(400, 301, 1, "SAME")])
        ones, wide = pool.divided_by([np.ones(400, np.int64)]), x.astype(np.float64)
        sums = ref.mean(wide, [ref.regular(400, 301, 1, "SAME")], (1,)) * pool.windows[0].length
        assert_same_bits(backend.mean(ones, x), ref.narrow(np.rint(sums), x.dtype), dtype)
        assert_same_bits(
            backend.spread(ones, x), backend.mean(ones, x), f"{dtype}: the windows are their own transpose"
        )


@pytest.mark.parametrize("window", [*range(1, 20), 25, 27, 49, 100])
def test_float32_means_are_float64_quotients(rng, window):
    """The sum in float64, one division, one rounding: of every size, and the sign of zero."""
    pool = Pool.of((1, window, 4000), "NXC", [pw.regular(window, window, 1, "VALID")])
    scale = np.float32(2) ** rng.integers(-149, 100, 4000).astype(np.float32)
    x = rng.integers(-1000, 1000, pool.shape).astype(np.float32) * scale
    x[..., :2] = -0.0, np.inf
    total = x[0, 0].astype(np.float64)
    for row in x[0, 1:]:
        total = total + row.astype(np.float64)
    assert_same_bits(backend.mean(pool, x)[0, 0], (total / window).astype(np.float32))


@pytest.mark.parametrize("channels", EDGES)
def test_shares_that_vanish_have_the_same_sign_everywhere(channels):
    """Half of the smallest number is rounded to a zero of its sign; a sum of nothing but zeros is +0."""
    pool = Pool.of((1, 28, channels), "NXC", [pw.regular(28, 2, 2, "VALID")])
    assert np.signbit(backend.spread(pool, np.full(pool.out_shape, -1e-45, np.float32))).all()
    for k, divisor in ((2, -3), (3, -4)):
        pool = Pool.of((1, 28, channels), "NXC", [pw.regular(28, k, 2, "VALID")])
        pool = pool.divided_by([np.full(pool.windows[0].count, divisor)])
        assert not np.signbit(backend.spread(pool, np.zeros(pool.out_shape, np.float32))).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_shares_that_vanish_have_one_sign_in_rows_of_any_length(dtype):
    """Divided by 2**20 the smallest number is gone; whatever sign its zero has, all zeros have it."""
    small = np.full((), 0x8001, np.uint16).view(dtype_of(dtype)) if dtype != "float32" else np.float32(-1e-45)
    signs = set()
    for width in range(2, 80, 2):
        for shape, layout in (((1, 3, 2, width), "NCHW"), ((1, 2, width, 3), "NHWC"), ((1, 2, width, 33), "NHWC")):
            windows = [pw.regular(2, 2, 2), pw.regular(width, 2, 2)]
            pool = Pool.of(shape, layout, windows).divided_by([np.full(1, 2**10), np.full(width // 2, 2**10)])
            gx = backend.spread(pool, np.full(pool.out_shape, small))
            assert not gx.astype(np.float64).any()
            signs |= set(np.signbit(gx).ravel().tolist())
    assert len(signs) == 1


@pytest.mark.parametrize("window", [pw.regular(27, 3, 3), pw.regular(27, 2, 3), pw.regular(26, 3, 3, "SAME")], ids=str)
def test_shares_of_float64_that_vanish_are_zeros_without_a_sign(window):
    """Whatever the layout, the number of planes, and the part of the axis that is computed."""
    for count in (1, 3, 8, 64):
        for shape, layout in (((1, window.size, count), "NXC"), ((1, count, window.size), "NCX")):
            pool = Pool.of(shape, layout, [window])
            assert not np.signbit(backend.spread(pool, np.full(pool.out_shape, -5e-324))).any()
    part = parts.of_outputs(window, window.count - 1, window.count).windows
    pool = Pool.of((1, part.size, 8), "NXC", [part])
    assert not np.signbit(backend.spread(pool, np.full(pool.out_shape, -5e-324))).any()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_integer_means_never_overflow(rng, dtype):
    """Exact wide accumulation, truncated toward zero at the end: also where the sum exceeds 64 bits."""
    pool = Pool.of((3, 40, 2), "NWC", (pw.regular(40, 7, 3, "SAME"),))
    lists, info = [ref.regular(40, 7, 3, "SAME")], np.iinfo(dtype)
    for x in (
        np.full((3, 40, 2), info.max, dtype),
        np.full((3, 40, 2), info.min, dtype),
        array_of(rng, (3, 40, 2), dtype, "plain"),
    ):
        assert_sum(backend.mean(pool, x), ref.mean(ref.exact(x), lists, (1,)), dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("channels", [1, 40])
@pytest.mark.parametrize("windows", [pw.adaptive(29, 20), pw.regular(29, 3, 1, "VALID")], ids=["listed", "regular"])
def test_integer_quotients_that_do_not_fit_wrap(rng, windows, channels, dtype):
    pool = Pool.of((1, 29, channels), "NXC", [windows])
    x = array_of(rng, pool.shape, dtype)
    x[:] = rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max], x.shape)
    found = backend.mean(pool.divided_by([np.full(windows.count, 1)]), x)
    sums = [x[0, start:stop].astype(object).sum(0) for start, stop in zip(windows.start, windows.stop, strict=True)]
    bits = 8 * x.itemsize
    assert (found[0].astype(object) % 2**bits == np.array(sums) % 2**bits).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_integer_gradient_sums_wrap(rng, dtype):
    pool = Pool.of((2, 30, 3), "NWC", (pw.regular(30, 9, 1, "SAME"),))
    lists = [ref.regular(30, 9, 1, "SAME")]
    x, g = array_of(rng, (2, 30, 3), dtype), array_of(rng, (2, 30, 3), dtype, "plain")
    for ties in ("first", "all"):
        won = ref.choose(x, lists, (1,), ties)
        assert_sum(
            backend.max_put(pool, x, g, ties, "propagate"), ref.put(ref.exact(g), won, lists, (1,), [30], ties), dtype
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_are_accumulated_in_float32(rng, dtype):
    """TensorFlow's float16 mean of 60 x 60 times 0.1 is 0.125; ours is the rounded truth. Gradient sums likewise."""
    x = np.full((1, 60, 60, 3), 0.1).astype(dtype_of(dtype))
    pool = Pool.of(x.shape, "NHWC", (pw.regular(60, 60, 60),) * 2)
    assert_same_bits(backend.mean(pool, x), x[:, :1, :1])
    pool = Pool.of((1, 600, 1), "NWC", (pw.regular(600, 599, 1, "SAME"),))
    peak = np.zeros((1, 600, 1), dtype_of(dtype))
    peak[0, 300] = 1
    g = array_of(rng, (1, 600, 1), dtype, "plain")
    truth = ref.put(
        ref.exact(g),
        ref.choose(peak, [ref.regular(600, 599, 1, "SAME")], (1,)),
        [ref.regular(600, 599, 1, "SAME")],
        (1,),
        [600],
    )
    assert_sum(backend.max_put(pool, peak, g, "first", "propagate"), truth, dtype_of(dtype))


@pytest.mark.parametrize("scope", ["spatial", "image", "batch"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_choices_and_indices_tell_the_same(rng, layout, scope):
    """A choice as flat indices (in the spatial block, the image or the whole array), and gradients through those
    indices."""
    shape = (2, 7, 9, 5) if layout == "NHWC" else (2, 5, 7, 9)
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    pool = Pool.of(shape, layout, (pw.regular(7, 3, 2, "SAME"), pw.regular(9, 2, 2, "VALID")))
    lists = [ref.regular(7, 3, 2, "SAME"), ref.regular(9, 2, 2)]
    x = array_of(rng, shape, "float32")
    spatial = np.arange(63).reshape(7, 9)
    flat = {
        "spatial": np.broadcast_to(spatial[None, :, :, None] if layout == "NHWC" else spatial, shape),
        "image": ref.flat_index(shape, False),
        "batch": ref.flat_index(shape, True),
    }[scope]
    choice = backend.choose(pool, x, "propagate")
    for dtype in (np.int64, np.int32):
        index = backend.choice_to_index(pool, choice, dtype, scope)
        assert_same_bits(index, ref.take(flat, ref.choose(x, lists, axes), lists, axes).astype(dtype))
    index = backend.choice_to_index(pool, choice, np.int64, scope)
    v, g = array_of(rng, shape, "float32"), array_of(rng, tuple(pool.out_shape), "float32")
    assert_same_bits(backend.index_take(pool, v, index, scope), backend.take(pool, v, choice))
    assert_values(backend.index_put(pool, g, index, scope), backend.put(pool, g, choice), "index_put")
    assert backend.index_fault(pool, index, scope) is None
    for bad in (-1, int(flat.max()) + 1, -(2**63), 2**63 - 1):
        wrong = index.copy()
        wrong[1, 2, 1, 3] = bad
        position, value = backend.index_fault(pool, wrong, scope)
        assert value == bad, "the fault names the index"
        assert tuple(position) == (1, 2, 1, 3), "and where it stands"


def test_a_choice_outside_its_window_is_found(rng):
    """Codes beyond the window's elements, and codes that fall on padding."""
    pool = Pool.of((1, 5, 1), "NWC", (pw.regular(5, 3, 2, "SAME"),))
    good = backend.choose(pool, array_of(rng, (1, 5, 1), "float32"), "propagate")
    assert backend.choice_fault(pool, good) is None
    for place, code in (
        (0, 0),
        (0, 3),
        (1, 255),
        (2, 2),
    ):  # the first window's position 0 and the last one's 2 are padding
        bad = good.copy()
        bad[0, place, 0] = code
        assert backend.choice_fault(pool, bad) is not None, (place, code)


@pytest.mark.parametrize(
    ("shape", "layout", "k"),
    [((2, 17, 19, 3), "NHWC", 5), ((2, 3, 17, 19), "NCHW", 5), ((2, 12, 9, 11), "NDHW", 3), ((1, 40, 41), "NHW", 17)],
)
def test_the_first_bad_code_is_found_wherever_it_is(rng, shape, layout, k):
    """Windows that are cut short on some axes lie among whole ones, whose codes need no second look."""
    axes = tuple(i for i, letter in enumerate(layout) if letter not in "NC")
    pool = Pool.of(shape, layout, tuple(pw.regular(shape[i], k, 1, "SAME") for i in axes))
    good = backend.choose(pool, array_of(rng, shape, "float32"), "propagate")
    assert backend.choice_fault(pool, good) is None
    names, elements = np.full(good.shape, True), k ** len(axes)
    code = rng.integers(0, elements + (good.dtype != np.uint8 or elements < 256), good.shape)
    for i, step in zip(axes, (k**n for n in reversed(range(len(axes)))), strict=True):
        at = np.moveaxis(code // step % k, i, -1) + np.asarray(pool.windows[axes.index(i)].origin)
        names &= np.moveaxis((at >= 0) & (at < shape[i]), -1, i)
    names &= code < elements
    bad = np.argwhere(~names)
    for place in bad[rng.integers(0, len(bad), 60)]:
        wrong = good.copy()
        wrong[tuple(place)] = code[tuple(place)]
        assert backend.choice_fault(pool, wrong) == (tuple(place), code[tuple(place)])
    assert backend.choice_fault(pool, code.astype(good.dtype)) == (tuple(bad[0]), code[tuple(bad[0])])


@pytest.mark.parametrize("shape", [(1, 3, 9, 40), (1, 9, 40, 17)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_a_code_that_names_nothing_takes_nothing(rng, dtype, shape):
    """Choices are checked before, but nobody can promise that they are not changed meanwhile."""
    layout, axes = ("NCHW", (2, 3)) if shape[1] == 3 else ("NHWC", (1, 2))
    pool = Pool.of(shape, layout, tuple(pw.regular(shape[a], 3, 1, "SAME") for a in axes))
    v = array_of(rng, shape, dtype)
    choice = backend.choose(pool, v, "propagate")
    for code in (9, 31, 32, 255):
        bad = np.where(rng.random(choice.shape) < 0.5, np.uint8(code), choice)
        assert_same_bits(
            backend.take(pool, v, bad), np.where(bad == code, v.dtype.type(0), backend.take(pool, v, choice))
        )


@pytest.mark.parametrize(("k", "s"), [(3, 1), (2, 1), (5, 1)])
def test_results_past_the_caches(rng, k, s):
    """Large results are written in whole cache lines wherever rows end: the same bits as image by image."""
    whole = Pool.of((3, 901, 899), "NHW", tuple(pw.regular(n, k, s, "SAME") for n in (901, 899)))
    one = Pool.of((1, 901, 899), "NHW", whole.windows)
    x, v, g = (array_of(rng, whole.shape, "float32") for _ in range(3))
    x[0, 7, ::5], x[1, 8, 3], x[2, 9] = -0.0, np.nan, -np.inf
    choice = backend.choose(whole, x, "propagate")
    for name, call in {
        "maximum": lambda p, i: backend.maximum(p, x[i], "propagate"),
        "choice": lambda p, i: backend.choose(p, x[i], "propagate"),
        "take": lambda p, i: backend.take(p, v[i], choice[i]),
        "put": lambda p, i: backend.put(p, g[i], choice[i]),
        "max_take": lambda p, i: backend.max_take(p, x[i], v[i], "first", "propagate"),
        "max_put": lambda p, i: backend.max_put(p, x[i], g[i], "first", "propagate"),
    }.items():
        parts = [call(one, slice(i, i + 1)) for i in range(3)]
        assert_same_bits(call(whole, slice(None)), np.concatenate(parts), name)


def test_results_go_where_they_are_told(rng):
    """`out=` is filled and returned."""
    x = array_of(rng, (2, 8, 8, 5), "float32")
    pool = Pool.of(x.shape, "NHWC", (pw.regular(8, 3, 2, "SAME"),) * 2)
    g = array_of(rng, tuple(pool.out_shape), "float32")
    choice = backend.choose(pool, x, "propagate")
    calls = {
        "maximum": lambda **o: backend.maximum(pool, x, "propagate", **o),
        "mean": lambda **o: backend.mean(pool, x, **o),
        "take": lambda **o: backend.take(pool, x, choice, **o),
        "put": lambda **o: backend.put(pool, g, choice, **o),
        "spread": lambda **o: backend.spread(pool, g, **o),
        "max_put": lambda **o: backend.max_put(pool, x, g, "first", "propagate", **o),
        "max_take": lambda **o: backend.max_take(pool, x, x, "first", "propagate", **o),
    }
    for name, call in calls.items():
        fresh = call()
        out = np.full_like(fresh, 77)
        assert call(out=out) is out, name
        assert_same_bits(out, fresh, name)
        assert fresh.ctypes.data % 64 == 0, f"{name}: results are 64-byte aligned"
        assert fresh.flags.owndata or fresh.base is not None


# Arrays large enough for several threads and tiles
# ----------------------------------------------------------------------------


def strided_windows(x, axes, k, s):
    view = np.lib.stride_tricks.sliding_window_view(x, (k,) * len(axes), axes)
    return view[tuple(slice(None, None, s) if i in axes else slice(None) for i in range(x.ndim))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "uint8", "int32"])
@pytest.mark.parametrize(("k", "s"), [(2, 2), (3, 2), (3, 1)])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((4, 57, 61, 67), "NHWC"),
        ((3, 33, 57, 61), "NCHW"),
        ((2, 17, 25, 29, 19), "NDHWC"),
        ((2, 9, 17, 25, 67), "NCDHW"),
        ((1000, 1037), "HW"),
    ],
)
def test_large_arrays(rng, shape, layout, k, s, dtype):
    """Against plain NumPy: the forward by sliding views, the gradients by scatter with the forward's argmax."""
    axes = tuple(i for i, letter in enumerate(layout) if letter not in "NC")
    pool = Pool.of(shape, layout, tuple(pw.regular(shape[i], k, s, "VALID") for i in axes))
    x = array_of(rng, shape, dtype)
    views = strided_windows(x.astype(np.float32), axes, k, s)
    flat = views.reshape(*views.shape[: x.ndim], -1)
    assert_same_bits(backend.maximum(pool, x, "propagate"), flat.max(-1).astype(x.dtype))
    where = np.ascontiguousarray(strided_windows(np.arange(x.size).reshape(shape), axes, k, s)).reshape(flat.shape)
    index = np.take_along_axis(where, flat.argmax(-1)[..., None], -1)[..., 0]
    g = array_of(rng, index.shape, dtype)
    gx = np.bincount(index.ravel(), g.ravel().astype(np.float64), x.size).reshape(shape)
    assert_values(backend.max_put(pool, x, g, "first", "propagate"), ref.narrow_fast(gx, x.dtype), "max_put")
    choice = backend.choose(pool, x, "propagate")
    assert_same_bits(backend.choice_to_index(pool, choice, np.int64, "batch") if "N" in layout else index, index)
    assert_values(backend.put(pool, g, choice), ref.narrow_fast(gx, x.dtype), "put")
    v = array_of(rng, shape, dtype, "plain")
    assert_same_bits(backend.take(pool, v, choice), v.ravel()[index])
    assert_same_bits(backend.max_take(pool, x, v, "first", "propagate"), v.ravel()[index])
    if x.dtype.kind != "u" and x.dtype.kind != "i":
        assert_sum(
            backend.mean(pool, x),
            flat.mean(-1, dtype=np.float64),
            x.dtype,
            scale=np.abs(flat).mean(-1, dtype=np.float64),
        )
        # Whole numbers are added first and divided once, so that the truth is exact.
        given = np.repeat(g.ravel().astype(np.float64), flat.shape[-1])
        spread, most = (np.bincount(where.ravel(), terms, x.size).reshape(shape) for terms in (given, np.abs(given)))
        assert_sum(backend.spread(pool, g), spread / k ** len(axes), x.dtype, scale=most / k ** len(axes))
    else:
        total = flat.astype(np.int64).sum(-1)
        assert_same_bits(backend.mean(pool, x), (np.sign(total) * (np.abs(total) // k ** len(axes))).astype(x.dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ("NCHW", [(300, 3, 2, "SAME"), (310, 3, 2, "SAME")]),
        ("NCHW", [(257, 3, 1, "SAME"), (263, 3, 1, "SAME")]),
        ("NCHW", [(300, 5, 1, "VALID"), (310, 4, 3, "SAME")]),
        ("NHWC", [(200, 3, 2, "SAME"), (210, 3, 2, "VALID")]),
        ("NCDHW", [(24, 3, 2, "SAME"), (66, 3, 2, "SAME"), (65, 3, 2, "SAME")]),
        ("NCDHW", [(24, 2, 2, "VALID"), (64, 2, 2, "VALID"), (64, 2, 2, "VALID")]),
        ("NCDHW", [(9, 3, 1, "SAME"), (130, 3, 3, "SAME"), (70, 2, 1, "SAME")]),
        ("NCW", [(200003, 3, 1, "SAME")]),
        ("NCW", [(200003, 5, 2, "VALID")]),
    ],
)
def test_gradients_that_are_worked_on_in_boxes(rng, dtype, layout, axes):
    """Windows reach across the borders of boxes; each box adds what falls into it, in ascending order."""
    shape = tuple(n for n, *_ in axes)
    shape = (2, 3, *shape) if layout[1] == "C" else (2, *shape, 3)
    pool = Pool.of(shape, layout, [pw.regular(*axis) for axis in axes])
    check_put(rng, pool, dtype)


@pytest.mark.parametrize("overlapping", [False, True])
def test_gradients_of_cells_that_are_worked_on_in_boxes(rng, overlapping):
    shape, edges = (2, 3, 301, 290), [sequence(rng, n, 150) for n in (301, 290)]
    for dtype in ("bfloat16", "float32", "int64"):
        cells = [pw.fractional(n, e, overlapping) for n, e in zip(shape[2:], edges, strict=True)]
        check_put(rng, Pool.of(shape, "NCHW", cells), dtype)


def check_put(rng, pool, dtype):
    """put by indices: the choice named in another way, added up one after the other."""
    x, g = array_of(rng, pool.shape, dtype), array_of(rng, pool.out_shape, dtype)
    choice = backend.choose(pool, x, "propagate")
    index = backend.choice_to_index(pool, choice, np.int64, "batch")
    sums = np.bincount(index.ravel(), g.ravel().astype(np.float64), x.size).reshape(pool.shape)
    expected = ref.narrow_fast(sums, g.dtype)
    assert_values(backend.put(pool, g, choice), expected, f"put {dtype} {pool}")
    assert_values(backend.max_put(pool, x, g, "first", "propagate"), expected, f"max_put {dtype} {pool}")
    assert_same_bits(backend.take(pool, x, choice), x.ravel()[index], f"take {dtype} {pool}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "uint8", "int32"])
@pytest.mark.parametrize("n", [14, 16, 20, 28, 30, 32, 56])
def test_small_images_that_windows_fill(rng, n, dtype):
    """Images are done as one where they follow one another in memory, and one by one where they do not."""
    pool = Pool.of((3, 5, 6, n), "NCHW", [pw.regular(size, 2, 2, "VALID") for size in (6, n)])
    check_put(rng, pool, dtype)
    x, g = array_of(rng, pool.shape, dtype), array_of(rng, pool.out_shape, dtype)
    cells = x.astype(np.float64).reshape(3, 5, 3, 2, n // 2, 2)
    assert_same_bits(backend.maximum(pool, x, "propagate"), cells.max((3, 5)).astype(x.dtype))
    choice = backend.choose(pool, x, "propagate")
    calls = {
        "maximum": lambda x, _: backend.maximum(pool, x, "propagate"),
        "choose": lambda x, _: backend.choose(pool, x, "propagate"),
        "take": lambda x, _: backend.take(pool, x, choice),
        "put": lambda _, g: backend.put(pool, g, choice),
        "max_put": lambda x, g: backend.max_put(pool, x, g, "first", "propagate"),
        "max_take": lambda x, _: backend.max_take(pool, x, x, "first", "propagate"),
        "mean": lambda x, _: backend.mean(pool, x),
        "spread": lambda _, g: backend.spread(pool, g),
    }
    with_gaps = [np.repeat(array, 2, axis=1)[:, ::2] for array in (x, g)]
    for name, call in calls.items():
        assert_same_bits(call(*with_gaps), call(x, g), name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("axes", [(3, 1), (3, 2), (2, 2), (7, 1)], ids=lambda axes: f"k{axes[0]}s{axes[1]}")
@pytest.mark.parametrize("spatial", [(94, 91), (13, 28, 25)], ids=["images", "volumes"])
def test_what_is_written_past_the_caches(rng, spatial, axes, dtype):
    """Large results of whole lines of channels are written in another way: an image is the same by itself and among
    others."""
    bytes_each = dtype_of(dtype).itemsize
    channels = 80 if bytes_each > 2 else 96  # whole lines, and no power of two of vectors
    count = (1 << 23) // (math.prod(spatial) * channels * bytes_each) + 1
    layout = "NHWC" if len(spatial) == 2 else "NDHWC"
    many, one = (
        Pool.of((n, *spatial, channels), layout, [pw.regular(size, *axes, "SAME") for size in spatial])
        for n in (count, 1)
    )
    x, v = array_of(rng, many.shape, dtype), array_of(rng, many.shape, dtype, "plain")
    g = array_of(rng, many.out_shape, dtype)
    if x.dtype.kind not in "iu":
        x[-1, 5, 7] = np.nan
    calls = {
        "maximum": lambda pool, i: backend.maximum(pool, x[i], "propagate"),
        "maximum_and_choice": lambda pool, i: backend.maximum_and_choice(pool, x[i], "propagate")[0],
        "take": lambda pool, i: backend.take(pool, v[i], backend.choose(pool, x[i], "propagate")),
        "put": lambda pool, i: backend.put(pool, g[i], backend.choose(pool, x[i], "propagate")),
        "max_put": lambda pool, i: backend.max_put(pool, x[i], g[i], "first", "propagate"),
        "max_take": lambda pool, i: backend.max_take(pool, x[i], v[i], "first", "propagate"),
        "mean": lambda pool, i: backend.mean(pool, v[i]),
        "spread": lambda pool, i: backend.spread(pool, g[i]),
    }
    for name, call in calls.items():
        together = call(many, slice(None))
        for i in range(count):
            assert_same_bits(together[i : i + 1], call(one, slice(i, i + 1)), f"{name}, image {i}")


def test_large_results_of_small_inputs(rng):
    """Written past the caches, although the input lies in them: more windows than elements, and a repeated array."""
    x = array_of(rng, (1, 1, 4096, 62), "float32")
    pool = Pool.of(x.shape, "NCHW", [pw.regular(4096, 1, 1, "VALID"), pw.adaptive(62, 682)])
    starts, stops = np.arange(682) * 62 // 682, -(-(np.arange(682) + 1) * 62 // 682)
    assert_same_bits(backend.maximum(pool, x, "propagate"), np.maximum(x[..., starts], x[..., stops - 1]))
    repeated = np.broadcast_to(array_of(rng, (1, 1, 64, 64), "float32"), (512, 32, 64, 64))
    pool = Pool.of(repeated.shape, "NCHW", [pw.regular(64, 1, 1, "VALID"), pw.regular(64, 1, 3, "VALID")])
    assert_same_bits(backend.maximum(pool, repeated, "propagate"), repeated[..., ::3])
