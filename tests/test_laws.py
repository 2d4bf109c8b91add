"""Laws that hold whatever the numbers: transposes are transposes, layouts permute, threads change nothing.

Data are small whole numbers in float64 where a law is about sums, so that both sides are exact and equality means
equality.
"""

import numpy as np
import pytest
from generate import DTYPES, FLOATS, array_of, with_specials
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import assert_same_bits

import poolgrad as pg
import poolgrad.backends
from poolgrad import windows as pw
from poolgrad.windows import Pool

backend = poolgrad.backends.of(np.zeros(0))
TIES = ("first", "all", "split")


# Geometry -----------------------------------------------------------------------------------------------------------


@st.composite
def axes(draw, longest=12):
    """The windows of one axis, of any kind."""
    n = draw(st.integers(1, longest))
    kind = draw(st.sampled_from(["VALID", "SAME", "EXPLICIT", "fractional", "adaptive"]))
    if kind == "fractional":
        inner = draw(st.sets(st.integers(1, n - 1))) if n > 1 else set()
        return pw.fractional(n, [0, *sorted(inner), n], draw(st.booleans()))
    if kind == "adaptive":
        return pw.adaptive(n, draw(st.integers(1, 2 * n)))
    s = draw(st.integers(1, 4))
    if kind == "SAME":
        return pw.regular(n, draw(st.integers(1, 2 * n)), s, "SAME")
    d = draw(st.integers(1, 3))
    k = draw(st.integers(1, max(1, (n - 1) // d + 1)))
    if kind == "VALID":
        return pw.regular(n, k, s, "VALID", dilation=d)
    pads = st.integers(0, min(k - 1, 2))
    return pw.explicit(n, k, s, draw(pads), draw(pads))


@st.composite
def pools(draw, most_axes=3):
    windows = draw(st.lists(axes(), min_size=1, max_size=most_axes))
    letters = "DHW"[-len(windows) :]
    layout = draw(
        st.sampled_from([letters, f"N{letters}C", f"NC{letters}", f"{letters}C", f"C{letters}", f"N{letters}"])
    )
    lengths = {"N": draw(st.integers(1, 3)), "C": draw(st.integers(1, 5))} | {
        a: w.size for a, w in zip(letters, windows)
    }
    return Pool.of(tuple(lengths[letter] for letter in layout), layout, tuple(windows))


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def dot(a, b):
    return float((np.asarray(a, np.float64) * np.asarray(b, np.float64)).sum())


# The maps -----------------------------------------------------------------------------------------------------------


@given(pools(), seeds)
def test_put_is_the_transpose_of_take(pool, rng):
    """<take v, g> = <v, put g>, exactly."""
    x, v = array_of(rng, pool.shape, "float64"), array_of(rng, pool.shape, "float64")
    g = array_of(rng, pool.out_shape, "float64")
    choice = backend.choose(pool, x, "propagate")
    assert dot(backend.take(pool, v, choice), g) == dot(v, backend.put(pool, g, choice))


@given(pools(), seeds)
def test_spread_is_the_transpose_of_mean(pool, rng):
    """<mean v, g> = <v, spread g>, up to the rounding of the quotients."""
    v, g = array_of(rng, pool.shape, "float64"), array_of(rng, pool.out_shape, "float64")
    left, right = dot(backend.mean(pool, v), g), dot(v, backend.spread(pool, g))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12 * (1 + np.abs(g).sum()))


@given(pools(), seeds, st.sampled_from(TIES))
def test_max_put_is_the_transpose_of_max_take(pool, rng, ties):
    """The same with the choice recomputed, for every way to treat ties."""
    x, v = array_of(rng, pool.shape, "float64"), array_of(rng, pool.shape, "float64")
    g = array_of(rng, pool.out_shape, "float64")
    for equal_to in (None, array_of(rng, pool.out_shape, "float64")):
        left = dot(backend.max_take(pool, x, v, ties, "propagate", equal_to=equal_to), g)
        right = dot(v, backend.max_put(pool, x, g, ties, "propagate", equal_to=equal_to))
        if ties == "split":
            assert left == pytest.approx(right, rel=1e-12, abs=1e-12 * (1 + np.abs(g).sum()))
        else:
            assert left == right


@given(pools(), seeds, st.sampled_from(DTYPES), st.sampled_from(["propagate", "ignore"]))
def test_the_maximum_is_what_the_choice_takes(pool, rng, dtype, nan):
    """maximum(x) = take(x, choose(x)), bit for bit, NaN and signed zeros included; the fused form gives both."""
    x = array_of(rng, pool.shape, dtype)
    if dtype in FLOATS:
        x = with_specials(rng, x)
    choice = backend.choose(pool, x, nan)
    assert_same_bits(backend.maximum(pool, x, nan), backend.take(pool, x, choice))
    y, again = backend.maximum_and_choice(pool, x, nan)
    assert_same_bits(y, backend.maximum(pool, x, nan))
    assert_same_bits(again, choice)


@given(pools(), seeds, st.sampled_from(DTYPES))
def test_a_choice_lies_in_its_window(pool, rng, dtype):
    x = array_of(rng, pool.shape, dtype)
    choice = backend.choose(pool, x, "propagate")
    assert choice.dtype == pool.choice_dtype and choice.shape == tuple(pool.out_shape)
    assert int(choice.max(initial=0)) < pool.elements
    assert backend.choice_fault(pool, choice) is None


@given(pools(), seeds)
def test_a_code_is_refused_exactly_if_it_names_no_element_of_its_window(pool, rng):
    """One code of a good choice is changed: what it now names is worked out from the windows, position by position."""
    choice = backend.choose(pool, array_of(rng, pool.shape, "float32"), "propagate")
    if choice.size == 0:
        return
    at = np.unravel_index(int(rng.integers(choice.size)), choice.shape)
    code = int(rng.integers(0, min(pool.elements + 2, np.iinfo(choice.dtype).max)))
    choice[at] = code
    digits = np.unravel_index(code, pool.extents) if code < pool.elements else None
    places = at[pool.axis : pool.axis + len(pool.windows)]
    real = digits is not None and all(
        w.start[o] <= w.origin[o] + digit * w.dilation < w.stop[o]
        for w, o, digit in zip(pool.windows, places, digits, strict=True)
    )
    assert backend.choice_fault(pool, choice) == (None if real else (tuple(map(int, at)), code))


@given(pools(), seeds, st.sampled_from(TIES))
def test_gradients_share_out_what_they_are_given(pool, rng, ties):
    """first, split and spread keep the sum of the gradient; all may only multiply it."""
    x, g = array_of(rng, pool.shape, "float64"), np.abs(array_of(rng, pool.out_shape, "float64"))
    total = float(backend.max_put(pool, x, g, ties, "propagate").sum())
    if ties == "all":
        assert total >= g.sum() - 1e-9
    else:
        assert total == pytest.approx(g.sum(), rel=1e-12, abs=1e-12)
    assert float(backend.spread(pool, g).sum()) == pytest.approx(g.sum(), rel=1e-12, abs=1e-12)


@given(pools(), seeds, st.sampled_from(DTYPES))
def test_without_ties_the_policies_agree(pool, rng, dtype):
    x = array_of(rng, pool.shape, "float64", "distinct")
    g = array_of(rng, pool.out_shape, "float64")
    first = backend.max_put(pool, x, g, "first", "propagate")
    for ties in ("all", "split"):
        assert_same_bits(backend.max_put(pool, x, g, ties, "propagate") + 0.0, first + 0.0)


@given(st.sampled_from(["NHWC", "NCHW", "WC", "NCDHW"]), seeds, st.sampled_from(DTYPES))
def test_a_window_of_one_is_the_identity(layout, rng, dtype):
    shape = tuple(int(n) for n in rng.integers(1, 9, len(layout)))
    sizes = [n for letter, n in zip(layout, shape) if letter not in "NC"]
    pool = Pool.of(shape, layout, tuple(pw.regular(n, 1, 1, "VALID") for n in sizes))
    x = array_of(rng, shape, dtype, "plain")
    for y in (backend.maximum(pool, x, "propagate"), backend.mean(pool, x), backend.spread(pool, x)):
        assert_same_bits(y, x)
    assert_same_bits(backend.max_put(pool, array_of(rng, shape, dtype), x, "first", "propagate"), x)
    assert_same_bits(backend.max_take(pool, array_of(rng, shape, dtype), x, "first", "propagate"), x)
    assert not backend.choose(pool, x, "propagate").any()


@given(seeds, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["NWC", "NCW"]))
def test_translation(rng, k, s, layout):
    """Moving the input by a stride moves the result by one."""
    n = k + 7 * s
    x = array_of(rng, (2, n, 5) if layout == "NWC" else (2, 5, n), "float32", "plain")
    along = layout.index("W")
    moved = np.take(x, range(s, n), along)
    whole = Pool.of(x.shape, layout, (pw.regular(n, k, s, "VALID"),))
    part = Pool.of(moved.shape, layout, (pw.regular(n - s, k, s, "VALID"),))
    for run in (
        lambda p, a: backend.maximum(p, a, "propagate"),
        backend.mean,
        lambda p, a: backend.choose(p, a, "propagate"),
    ):
        y, later = run(whole, x), run(part, moved)
        assert_same_bits(later, np.take(y, range(1, y.shape[along]), along))


@given(pools(), seeds)
def test_a_larger_input_never_gives_a_smaller_maximum(pool, rng):
    x, more = array_of(rng, pool.shape, "float32"), np.abs(array_of(rng, pool.shape, "float32"))
    assert (backend.maximum(pool, x + more, "propagate") >= backend.maximum(pool, x, "propagate")).all()


@given(pools(), seeds)
def test_images_and_channels_do_not_meet(pool, rng):
    """Reversing the outer or the inner part of the array reverses the result."""
    x = array_of(rng, pool.shape, "float32", "plain")
    axis = (
        0
        if pool.outer > 1
        and len(pool.shape) > len(pool.windows)
        and pool.spatial_shape != pool.shape[: len(pool.windows)]
        else None
    )
    if axis is None:
        return
    for run in (lambda a: backend.maximum(pool, a, "propagate"), lambda a: backend.mean(pool, a)):
        assert_same_bits(run(np.ascontiguousarray(np.flip(x, axis))), np.flip(run(x), axis))


# The raw operators --------------------------------------------------------------------------------------------------


@st.composite
def calls(draw, spatial=2, longest=7):
    """A channels-last shape and the attributes of a pooling with a non-empty result."""
    n = draw(st.lists(st.integers(1, longest), min_size=spatial, max_size=spatial))
    s = draw(st.lists(st.integers(1, 4), min_size=spatial, max_size=spatial))
    padding = draw(st.sampled_from(["SAME", "VALID", "EXPLICIT"]))
    k = [draw(st.integers(1, length if padding == "VALID" else 5)) for length in n]
    attrs = {"ksize": [1, *k, 1], "strides": [1, *s, 1], "padding": padding}
    if padding == "EXPLICIT":
        pads = []
        for length, window in zip(n, k):
            before = draw(st.integers(0, window - 1))
            pads += [before, draw(st.integers(min(window - 1, max(0, window - length - before)), window - 1))]
        if any(length + pads[2 * i] + pads[2 * i + 1] < k[i] for i, length in enumerate(n)):
            attrs["padding"] = "SAME"
        else:
            attrs["explicit_paddings"] = [0, 0, *pads, 0, 0]
    return (draw(st.integers(1, 2)), *n, draw(st.integers(1, 4))), attrs


def pair(forward, backward):
    """<forward v, g> and <v, backward g>."""
    return lambda v, g: (dot(forward(v), g), dot(v, backward(g)))


@given(calls(), seeds, st.sampled_from(TIES), st.sampled_from(["", "V2"]))
def test_max_pool_pair(call, rng, ties, version):
    """MaxPoolGrad and MaxPoolGradGrad are transposes, with ties, at every policy."""
    shape, attrs = call
    x = array_of(rng, shape, "float64")
    with pg.policy(ties=ties):
        y = getattr(pg.raw_ops, "MaxPool" + version)(input=x, **attrs)
        given_both = {"orig_input": x, "orig_output": y, **attrs}
        sides = pair(
            lambda v: getattr(pg.raw_ops, "MaxPoolGradGrad" + version)(grad=v, **given_both),
            lambda g: getattr(pg.raw_ops, "MaxPoolGrad" + version)(grad=g, **given_both),
        )(array_of(rng, shape, "float64"), array_of(rng, y.shape, "float64"))
    assert sides[0] == pytest.approx(sides[1], rel=1e-12, abs=1e-9 if ties == "split" else 0)


@given(calls(3, 4), seeds, st.sampled_from(TIES))
def test_max_pool_3d_pair(call, rng, ties):
    """In three dimensions too, where TensorFlow's are not."""
    shape, attrs = call
    x = array_of(rng, shape, "float64")
    with pg.policy(ties=ties):
        y = pg.raw_ops.MaxPool3D(input=x, **attrs)
        given_both = {"orig_input": x, "orig_output": y, **attrs}
        sides = pair(
            lambda v: pg.raw_ops.MaxPool3DGradGrad(grad=v, **given_both),
            lambda g: pg.raw_ops.MaxPool3DGrad(grad=g, **given_both),
        )(array_of(rng, shape, "float64"), array_of(rng, y.shape, "float64"))
    assert sides[0] == pytest.approx(sides[1], rel=1e-12, abs=1e-9 if ties == "split" else 0)


@given(calls(), seeds, st.booleans())
def test_argmax_pair(call, rng, include_batch):
    shape, attrs = call
    attrs["include_batch_in_index"] = include_batch
    x = array_of(rng, shape, "float64")
    y, index = pg.raw_ops.MaxPoolWithArgmax(input=x, **attrs)
    sides = pair(
        lambda v: pg.raw_ops.MaxPoolGradGradWithArgmax(input=x, grad=v, argmax=index, **attrs),
        lambda g: pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=g, argmax=index, **attrs),
    )(array_of(rng, shape, "float64"), array_of(rng, y.shape, "float64"))
    assert sides[0] == sides[1]
    assert_same_bits(
        y, pg.raw_ops.MaxPool(input=x, **{k: v for k, v in attrs.items() if k != "include_batch_in_index"})
    )


@given(st.one_of(calls(), calls(3, 4)), seeds)
def test_avg_pool_pair(call, rng):
    shape, attrs = call
    three = len(shape) == 5
    forward, backward = ("AvgPool3D", "AvgPool3DGrad") if three else ("AvgPool", "AvgPoolGrad")
    v = array_of(rng, shape, "float64")
    y = getattr(pg.raw_ops, forward)(**{"input" if three else "value": v}, **attrs)
    g = array_of(rng, y.shape, "float64")
    gx = getattr(pg.raw_ops, backward)(orig_input_shape=list(shape), grad=g, **attrs)
    assert dot(y, g) == pytest.approx(dot(v, gx), rel=1e-12, abs=1e-9)


@given(seeds, st.booleans(), st.booleans(), st.sampled_from(TIES))
def test_fractional_pairs(rng, pseudo_random, overlapping, ties):
    shape = tuple(int(n) for n in rng.integers(2, 10, 4))
    attrs = {"pooling_ratio": [1.0, 1.4, 1.8, 1.0], "pseudo_random": pseudo_random, "overlapping": overlapping}
    attrs |= {"deterministic": True, "seed": int(rng.integers(1, 1000)), "seed2": 5}
    x, v = array_of(rng, shape, "float64"), array_of(rng, shape, "float64")
    y, rows, columns = pg.raw_ops.FractionalMaxPool(value=x, **attrs)
    g = array_of(rng, y.shape, "float64")
    cells = {"row_pooling_sequence": rows, "col_pooling_sequence": columns, "overlapping": overlapping}
    with pg.policy(ties=ties):
        taken = pg.raw_ops.FractionalMaxPoolGradGrad(orig_input=x, orig_output=y, grad=v, **cells)
        put = pg.raw_ops.FractionalMaxPoolGrad(orig_input=x, orig_output=y, out_backprop=g, **cells)
    assert dot(taken, g) == pytest.approx(dot(v, put), rel=1e-12, abs=1e-9 if ties == "split" else 0)
    mean = pg.raw_ops.FractionalAvgPoolGradGrad(grad=v, **cells)
    spread = pg.raw_ops.FractionalAvgPoolGrad(orig_input_tensor_shape=list(shape), out_backprop=g, **cells)
    assert dot(mean, g) == pytest.approx(dot(v, spread), rel=1e-12, abs=1e-9)
    assert_same_bits(mean, pg.raw_ops.FractionalAvgPool(value=v, **attrs).output)


@given(seeds, st.sampled_from([2, 3, 4]), st.sampled_from(["float32", "float64", "int32", "bfloat16"]), st.booleans())
def test_fractional_with_a_whole_ratio_is_plain_pooling(rng, k, dtype, pseudo_random):
    shape = (2, k * int(rng.integers(1, 6)), k * int(rng.integers(1, 6)), 3)
    x = array_of(rng, shape, dtype, "plain")
    plain = {"ksize": [1, k, k, 1], "strides": [1, k, k, 1], "padding": "VALID"}
    attrs = {
        "pooling_ratio": [1.0, float(k), float(k), 1.0],
        "pseudo_random": pseudo_random,
        "deterministic": True,
        "seed": 7,
    }
    y = pg.raw_ops.FractionalMaxPool(value=x, **attrs)
    assert_same_bits(y.output, pg.raw_ops.MaxPool(input=x, **plain))
    assert_same_bits(pg.raw_ops.FractionalAvgPool(value=x, **attrs).output, pg.raw_ops.AvgPool(value=x, **plain))
    g = array_of(rng, y.output.shape, dtype, "plain")
    cells = {"row_pooling_sequence": y.row_pooling_sequence, "col_pooling_sequence": y.col_pooling_sequence}
    assert_same_bits(
        pg.raw_ops.FractionalMaxPoolGrad(orig_input=x, orig_output=y.output, out_backprop=g, **cells),
        pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y.output, grad=g, **plain),
    )
    assert_same_bits(
        pg.raw_ops.FractionalAvgPoolGrad(orig_input_tensor_shape=list(shape), out_backprop=g, **cells),
        pg.raw_ops.AvgPoolGrad(orig_input_shape=list(shape), grad=g, **plain),
    )


# Layouts ------------------------------------------------------------------------------------------------------------


def first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def last(x):
    return np.moveaxis(x, 1, -1)


def reordered(attrs):
    """The attributes of a channels-last call in channels-first order."""
    out = dict(attrs)
    for name in ("ksize", "strides"):
        out[name] = [attrs[name][0], attrs[name][-1], *attrs[name][1:-1]]
    if "explicit_paddings" in attrs:
        p = attrs["explicit_paddings"]
        out["explicit_paddings"] = [*p[:2], *p[-2:], *p[2:-2]]
    return out | {"data_format": "NCHW" if len(attrs["ksize"]) == 4 else "NCDHW"}


@settings(max_examples=150)
@given(st.one_of(calls(), calls(3, 4)), seeds, st.sampled_from(DTYPES), st.sampled_from(TIES))
def test_layouts_permute(call, rng, dtype, ties):
    """A channels-first call is the channels-last call of the permuted arrays, bit for bit, in every operator."""
    shape, attrs = call
    firsts, d = reordered(attrs), "3D" if len(shape) == 5 else ""
    x, v = array_of(rng, shape, dtype), array_of(rng, shape, dtype, "plain")
    ops = pg.raw_ops

    def both(op, **tensors):
        call = getattr(ops, op)
        a = call(**tensors, **attrs)
        b = call(
            **{k: first(t) if isinstance(t, np.ndarray) else [t[0], t[-1], *t[1:-1]] for k, t in tensors.items()},
            **firsts,
        )
        assert_same_bits(last(b), a, f"{op} {dtype} {ties} {shape} {attrs}")
        return a

    with pg.policy(ties=ties):
        y = both(f"MaxPool{d}", input=x)
        g = array_of(rng, y.shape, dtype, "plain")
        both(f"MaxPool{d}Grad", orig_input=x, orig_output=y, grad=g)
        both(f"MaxPool{d}GradGrad", orig_input=x, orig_output=y, grad=v)
        both(f"AvgPool{d}", **{"input" if d else "value": v})
        both(f"AvgPool{d}Grad", orig_input_shape=list(shape), grad=g)
        if not d:
            both("MaxPoolV2", input=x)
            both("MaxPoolGradV2", orig_input=x, orig_output=y, grad=g)
            both("MaxPoolGradGradV2", orig_input=x, orig_output=y, grad=v)


@given(calls(), seeds, st.booleans())
def test_argmax_counts_in_the_layout_of_its_array(call, rng, include_batch):
    shape, attrs = call
    firsts = reordered(attrs) | {"include_batch_in_index": include_batch}
    attrs = attrs | {"include_batch_in_index": include_batch}
    x, v = array_of(rng, shape, "float32"), array_of(rng, shape, "float32", "plain")
    y, index = pg.raw_ops.MaxPoolWithArgmax(input=x, **attrs)
    y1, index1 = pg.raw_ops.MaxPoolWithArgmax(input=first(x), **firsts)
    assert_same_bits(last(y1), y)
    base = 0 if include_batch else (np.arange(shape[0]) * x[0].size).reshape(-1, 1, 1, 1)
    places = np.ascontiguousarray(
        np.moveaxis(np.arange(x.size).reshape(shape), -1, 1)
    ).ravel()  # channels-first place -> channels-last
    assert_same_bits(places[last(index1) + base], index + base)
    g = array_of(rng, y.shape, "float32", "plain")
    gx = pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=g, argmax=index, **attrs)
    gx1 = pg.raw_ops.MaxPoolGradWithArgmax(input=first(x), grad=first(g), argmax=index1, **firsts)
    assert_same_bits(last(gx1), gx)
    gg = pg.raw_ops.MaxPoolGradGradWithArgmax(input=x, grad=v, argmax=index, **attrs)
    gg1 = pg.raw_ops.MaxPoolGradGradWithArgmax(input=first(x), grad=first(v), argmax=index1, **firsts)
    assert_same_bits(last(gg1), gg)


@given(seeds, st.booleans(), st.sampled_from(["float32", "int32", "bfloat16"]))
def test_fractional_layouts_permute(rng, overlapping, dtype):
    shape = tuple(int(n) for n in rng.integers(2, 12, 4))
    x, v = array_of(rng, shape, dtype), array_of(rng, shape, dtype, "plain")
    attrs = {"overlapping": overlapping, "deterministic": True, "seed": 3}
    y, rows, columns = pg.raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1.0, 1.5, 1.3, 1.0], **attrs)
    y1, rows1, columns1 = pg.raw_ops.FractionalMaxPool(
        value=first(x), pooling_ratio=[1.0, 1.0, 1.5, 1.3], data_format="NCHW", **attrs
    )
    assert_same_bits(rows1, rows)
    assert_same_bits(columns1, columns)
    assert_same_bits(last(y1), y)
    g = array_of(rng, y.shape, dtype, "plain")
    cells = {"row_pooling_sequence": rows, "col_pooling_sequence": columns, "overlapping": overlapping}
    ops = pg.raw_ops
    for op, tensors in {
        "FractionalMaxPoolGrad": {"orig_input": x, "orig_output": y, "out_backprop": g},
        "FractionalMaxPoolGradGrad": {"orig_input": x, "orig_output": y, "grad": v},
        "FractionalAvgPoolGradGrad": {"grad": v},
    }.items():
        a = getattr(ops, op)(**tensors, **cells)
        b = getattr(ops, op)(**{k: first(t) for k, t in tensors.items()}, **cells, data_format="NCHW")
        assert_same_bits(last(b), a, op)
    a = ops.FractionalAvgPoolGrad(orig_input_tensor_shape=list(shape), out_backprop=g, **cells)
    turned = [shape[0], shape[3], shape[1], shape[2]]
    b = ops.FractionalAvgPoolGrad(orig_input_tensor_shape=turned, out_backprop=first(g), data_format="NCHW", **cells)
    assert_same_bits(last(b), a)


# Threads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((3, 61, 67, 33), "NHWC"),
        ((3, 33, 61, 67), "NCHW"),
        ((1, 9, 33, 35, 40), "NDHWC"),
        ((700, 713), "HW"),
        ((1, 400001, 1), "NWC"),
    ],
)
def test_one_thread_equals_many(rng, threads, shape, layout, dtype):
    """The bits do not depend on the number of threads, for sums in random floats as for anything else."""
    sizes = [n for letter, n in zip(layout, shape) if letter not in "NC"]
    pool = Pool.of(shape, layout, tuple(pw.regular(n, 3, 2, "SAME") for n in sizes))
    x, v = array_of(rng, shape, dtype, "plain"), array_of(rng, shape, dtype, "plain")
    g = array_of(rng, pool.out_shape, dtype, "plain")

    def everything():
        choice = backend.choose(pool, x, "propagate")
        return {
            "maximum": backend.maximum(pool, x, "propagate"),
            "choose": choice,
            "take": backend.take(pool, v, choice),
            "put": backend.put(pool, g, choice),
            "mean": backend.mean(pool, x),
            "spread": backend.spread(pool, g),
            **{f"max_put {ties}": backend.max_put(pool, x, g, ties, "propagate") for ties in TIES},
            **{f"max_take {ties}": backend.max_take(pool, x, v, ties, "propagate") for ties in TIES},
        }

    threads(1)
    alone = everything()
    for count in (2, 3, 7):
        threads(count)
        assert pg.get_num_threads() == count
        for name, result in everything().items():
            assert_same_bits(result, alone[name], f"{name} with {count} threads")
