"""The functional face: any rank and layout, against the reference and against PyTorch in double precision."""

import itertools

import numpy as np
import pytest
import reference as ref
from generate import DTYPES, array_of, sequence, with_specials
from judge import assert_same_bits, assert_sum

import poolgrad as pg
from poolgrad.errors import InvalidArgument, InvalidType, PoolgradError

LAYOUTS = {
    1: ("NWC", "NCW", "W"),
    2: ("NHWC", "NCHW", "HW", "HWC"),
    3: ("NDHWC", "NCDHW", "ZYX"),
    4: ("NABDEC", "ABDE"),
}


def spatial(layout):
    return tuple(i for i, letter in enumerate(layout) if letter not in "NC")


def shape_of(rng, layout, longest=8):
    return tuple(int(n) for n in rng.integers(2, longest if len(layout) < 5 else 5, len(layout)))


def geometries(rng, layout, rounds=6):
    """Random arguments, with the reference's windows for them."""
    axes = spatial(layout)
    while rounds:
        shape = shape_of(rng, layout)
        k, s = rng.integers(1, 4, len(axes)).tolist(), rng.integers(1, 4, len(axes)).tolist()
        d = rng.integers(1, 3, len(axes)).tolist()
        padding = ["valid", "same", "pairs"][rounds % 3]
        pairs = (
            [(int(rng.integers(0, w)), int(rng.integers(0, w))) for w in k]
            if padding == "pairs"
            else [(0, 0)] * len(axes)
        )
        kind = {"valid": "VALID", "same": "SAME", "pairs": "EXPLICIT"}[padding]
        try:
            windows = [ref.regular(shape[a], *z[:2], kind, z[2], *p) for a, z, p in zip(axes, zip(k, s, d), pairs)]
        except ref.Refused:
            continue
        if not all(windows):
            continue
        rounds -= 1
        yield (
            shape,
            {
                "window": k,
                "strides": s,
                "dilation": d,
                "padding": pairs if padding == "pairs" else padding,
                "layout": layout,
            },
            windows,
        )


@pytest.mark.parametrize("layout", list(itertools.chain(*LAYOUTS.values())))
def test_max_pool_and_its_derivatives(rng, layout):
    for shape, a, windows in geometries(rng, layout):
        axes = spatial(layout)
        x = array_of(rng, shape, "float64")
        y = ref.maximum(x, windows, axes)
        assert_same_bits(pg.max_pool(x, **a), y, str((shape, a)))
        g, v = array_of(rng, y.shape, "float64"), array_of(rng, shape, "float64")
        for ties in ("first", "all", "split"):
            won = ref.choose(x, windows, axes, ties)
            gx = ref.put(g, won, windows, axes, [shape[i] for i in axes], ties)
            assert_sum(
                pg.max_pool_grad(x, g, ties=ties, **a),
                gx,
                "float64",
                note=str((shape, a)),
                scale=np.full(gx.shape, 30.0),
            )
            gg = ref.take(v, won, windows, axes, ties)
            assert_sum(
                pg.max_pool_grad_grad(x, v, ties=ties, **a),
                gg,
                "float64",
                note=str((shape, a)),
                scale=np.full(gg.shape, 30.0),
            )


@pytest.mark.parametrize("layout", list(itertools.chain(*LAYOUTS.values())))
def test_avg_pool_and_its_gradient(rng, layout):
    for shape, a, windows in geometries(rng, layout):
        axes = spatial(layout)
        x = array_of(rng, shape, "float64")
        y = ref.mean(x, windows, axes)
        assert_sum(pg.avg_pool(x, **a), y, "float64", note=str((shape, a)), scale=np.full(y.shape, 3.0))
        g = array_of(rng, y.shape, "float64")
        gx = ref.spread(g, windows, axes, [shape[i] for i in axes])
        assert_sum(pg.avg_pool_grad(shape, g, **a), gx, "float64", note=str((shape, a)), scale=np.full(gx.shape, 3.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_minimum(rng, dtype):
    """The minimum is the maximum of the reversed order, at the ends of every type's range too."""
    for layout in ("NHWC", "NCW"):
        for shape, a, windows in geometries(rng, layout, 3):
            for kind in ("ties", "plain"):
                x = array_of(rng, shape, dtype, kind)
                view = ref.comparable(x)
                want = (
                    -ref.maximum(-view, windows, spatial(layout))
                    if x.dtype.kind not in "iu"
                    else ~ref.maximum(~x, windows, spatial(layout))
                )
                assert_same_bits(pg.min_pool(x, **a), want.astype(x.dtype))


def test_minimum_of_nan(rng):
    x = np.array([3, np.nan, 1, 2], np.float32)
    assert np.isnan(pg.min_pool(x, 4, layout="X")).all()
    assert pg.min_pool(x, 4, layout="X", nan="ignore").tolist() == [1]


def test_defaults():
    """Channels last, stride = window, no padding."""
    x = np.arange(2 * 6 * 6 * 3.0).reshape(2, 6, 6, 3)
    assert_same_bits(pg.max_pool(x, 2), x.reshape(2, 3, 2, 3, 2, 3).max((2, 4)))
    assert_same_bits(pg.avg_pool(x, 3), x.reshape(2, 2, 3, 2, 3, 3).mean((2, 4)))
    assert pg.max_pool(np.zeros((1, 9, 2)), 3).shape == (1, 3, 2)
    assert pg.max_pool(np.zeros((1, 4, 4, 4, 2)), 2).shape == (1, 2, 2, 2, 2)
    with pytest.raises(InvalidArgument, match=r"max_pool.*layout"):
        pg.max_pool(np.zeros((4, 4)), 2)


def test_one_number_or_one_per_axis():
    x = np.random.default_rng(0).normal(size=(1, 8, 9, 2))
    assert_same_bits(pg.max_pool(x, 2, 3, 1), pg.max_pool(x, (2, 2), [3, 3], [(1, 1), (1, 1)]))
    assert_same_bits(pg.max_pool(x, 3, 2, [0, 1]), pg.max_pool(x, 3, 2, [(0, 0), (1, 1)]))


def test_policies_by_keyword_and_by_block():
    x, g = np.array([2.0, 2.0, np.nan, 1.0]), np.array([6.0, 6.0])
    assert pg.max_pool_grad(x, g, 2, layout="X").tolist() == [6, 0, 6, 0]
    assert pg.max_pool_grad(x, g, 2, layout="X", ties="split", nan="ignore").tolist() == [3, 3, 0, 6]
    with pg.policy(ties="all", nan="ignore"):
        assert pg.max_pool_grad(x, g, 2, layout="X").tolist() == [6, 6, 0, 6]
        assert pg.max_pool_grad(x, g, 2, layout="X", ties="first").tolist() == [6, 0, 0, 6], "the keyword is stronger"
    for wrong in ({"ties": "last"}, {"nan": "drop"}):
        with pytest.raises(PoolgradError, match="max_pool"):
            pg.max_pool(x, 2, layout="X", **wrong)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NWC", "NCDHW"])
def test_choices_and_indices(rng, layout):
    """On request the stored choice and flat indices in the spatial block; both lead back to the maxima."""
    for shape, a, windows in geometries(rng, layout, 4):
        axes = spatial(layout)
        x = array_of(rng, shape, "float32")
        y, choice, index = pg.max_pool(x, return_choice=True, return_indices=True, **a)
        assert_same_bits(y, pg.max_pool(x, **a))
        assert choice.dtype.kind == "u" and choice.shape == y.shape
        block = np.moveaxis(x, axes, range(len(axes))).reshape(-1, *[n for i, n in enumerate(shape) if i not in axes])
        places = np.moveaxis(index, axes, range(len(axes))).reshape(-1, *block.shape[1:])
        assert_same_bits(
            np.take_along_axis(block, places, 0), np.moveaxis(y, axes, range(len(axes))).reshape(places.shape)
        )
        sizes = [shape[i] for i in axes]
        flat = np.moveaxis(
            np.broadcast_to(
                np.arange(int(np.prod(sizes))).reshape(*sizes, *[1] * (len(shape) - len(axes))),
                [*sizes, *block.shape[1:]],
            ),
            range(len(axes)),
            axes,
        )
        assert_same_bits(index, ref.take(np.ascontiguousarray(flat), ref.choose(x, windows, axes), windows, axes))


@pytest.mark.parametrize(("n", "m"), [(5, 3), (7, 7), (3, 8), (10, 1), (17, 4)])
def test_adaptive(rng, n, m):
    for layout, shape in (("NHWC", (2, n, 6, 3)), ("NCHW", (2, 3, n, 6))):
        windows = [ref.adaptive(n, m), ref.adaptive(6, 2)]
        x = array_of(rng, shape, "float64")
        assert_same_bits(pg.adaptive_max_pool(x, (m, 2), layout=layout), ref.maximum(x, windows, spatial(layout)))
        assert_sum(pg.adaptive_avg_pool(x, (m, 2), layout=layout), ref.mean(x, windows, spatial(layout)), "float64")


def test_fractional(rng):
    x = array_of(rng, (2, 9, 11, 3), "float64")
    edges = [sequence(rng, 9), sequence(rng, 11)]
    for overlapping in (False, True):
        windows = [ref.fractional(n, e, overlapping) for n, e in zip((9, 11), edges)]
        assert_same_bits(
            pg.fractional_max_pool(x, sequences=edges, overlapping=overlapping), ref.maximum(x, windows, (1, 2))
        )
        assert_sum(
            pg.fractional_avg_pool(x, sequences=edges, overlapping=overlapping), ref.mean(x, windows, (1, 2)), "float64"
        )
    y, drawn = pg.fractional_max_pool(x, (1.5, 2.0), seed=(3, 4), return_sequences=True)
    raw = pg.raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1.0, 1.5, 2.0, 1.0], deterministic=True, seed=3, seed2=4)
    assert_same_bits(y, raw.output)
    for ours, theirs in zip(drawn, raw[1:]):
        assert_same_bits(ours, theirs)
    assert len({pg.fractional_max_pool(np.arange(99.0), 1.7, layout="X").tobytes() for _ in range(10)}) > 1, (
        "no seed: a fresh draw"
    )
    cube = pg.fractional_max_pool(array_of(rng, (7, 8, 9), "int16"), 1.4, seed=1, layout="ZYX")
    assert cube.shape == (5, 5, 6)


def test_lp_pool(rng):
    x = np.abs(array_of(rng, (2, 6, 6, 3), "float64", "plain"))
    blocks = x.reshape(2, 3, 2, 3, 2, 3)
    np.testing.assert_allclose(pg.lp_pool(x, 2), np.sqrt((blocks**2).sum((2, 4))), rtol=1e-13)
    np.testing.assert_allclose(pg.lp_pool(-x, 2, p=1), blocks.sum((2, 4)), rtol=1e-13)
    np.testing.assert_allclose(pg.lp_pool(x, 2, p=3), np.cbrt((blocks**3).sum((2, 4))), rtol=1e-13)
    assert_same_bits(pg.lp_pool(-x, 2, p=np.inf), blocks.max((2, 4)))


# PyTorch ------------------------------------------------------------------------------------------------------------


def torch_functions():
    import torch

    return torch, torch.nn.functional


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_against_torch_max(rng, axes):
    """Values, indices, first and second derivatives of max_pool1d, 2d and 3d, with dilation and ties."""
    torch, functional = torch_functions()
    call, layout = getattr(functional, f"max_pool{axes}d"), "NC" + "DHW"[-axes:]
    for _ in range(25):
        k, s, d = (int(v) for v in rng.integers(1, 4, 3))
        pad = int(rng.integers(0, k // 2 + 1))
        sizes = [int(n) for n in rng.integers((k - 1) * d + 1, (k - 1) * d + 7, axes)]
        x = array_of(rng, (2, 3, *sizes), "float64", str(rng.choice(["ties", "plain"])))
        t = torch.tensor(x, requires_grad=True)
        theirs, index = call(t, k, s, pad, d, return_indices=True)
        y, ours = pg.max_pool(x, k, s, pad, dilation=d, layout=layout, return_indices=True)
        assert_same_bits(y, theirs.detach().numpy())
        assert_same_bits(ours, index.numpy())
        g = array_of(rng, y.shape, "float64")
        (gx,) = torch.autograd.grad(theirs, t, torch.tensor(g))
        assert_same_bits(pg.max_pool_grad(x, g, k, s, pad, dilation=d, layout=layout) + 0.0, gx.numpy() + 0.0)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_against_torch_avg(rng, axes):
    torch, functional = torch_functions()
    call, layout = getattr(functional, f"avg_pool{axes}d"), "NC" + "DHW"[-axes:]
    for _ in range(25):
        k, s = (int(v) for v in rng.integers(1, 5, 2))
        pad, count_pad = int(rng.integers(0, k // 2 + 1)), bool(rng.integers(2))
        sizes = [int(n) for n in rng.integers(k, k + 6, axes)]
        options, ours = {"count_include_pad": count_pad}, {"count_include_pad": count_pad}
        if axes > 1 and rng.random() < 0.3:
            options["divisor_override"] = ours["divisor_override"] = int(rng.integers(1, 9))
        x = array_of(rng, (2, 3, *sizes), "float64", "plain")
        t = torch.tensor(x, requires_grad=True)
        theirs = call(t, k, s, pad, **options)
        y = pg.avg_pool(x, k, s, pad, layout=layout, **ours)
        np.testing.assert_allclose(y, theirs.detach().numpy(), rtol=1e-12, atol=1e-14)
        g = array_of(rng, y.shape, "float64", "plain")
        (gx,) = torch.autograd.grad(theirs, t, torch.tensor(g))
        np.testing.assert_allclose(
            pg.avg_pool_grad(x.shape, g, k, s, pad, layout=layout, **ours), gx.numpy(), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_averages_with_a_divisor(rng, dtype):
    """The exact sum is divided once and cut toward zero, with padding counted and with a divisor of one's own."""
    x = rng.integers(0 if dtype[0] == "u" else -100, 100, (3, 9)).astype(dtype)
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1)))
    sums = padded[:, 0:9:2] + padded[:, 1:10:2] + padded[:, 2:11:2]
    for divisor, options in ((3, {"count_include_pad": True}), (5, {"divisor_override": 5})):
        expected = (np.sign(sums) * (np.abs(sums) // divisor)).astype(dtype)
        np.testing.assert_array_equal(pg.avg_pool(x, 3, 2, 1, layout="NX", **options), expected)
    np.testing.assert_array_equal(pg.avg_pool(x, 3, 2, 1, layout="NX", divisor_override=-1), (-sums).astype(dtype))


@pytest.mark.parametrize("divisor", [0, 2.5, "3", True, 2**70])
def test_divisors_must_be_integers_other_than_zero(divisor):
    for call in (
        lambda: pg.avg_pool(np.ones(4, np.float32), 2, layout="X", divisor_override=divisor),
        lambda: pg.avg_pool_grad([4], np.ones(2, np.float32), 2, layout="X", divisor_override=divisor),
    ):
        with pytest.raises((pg.errors.InvalidArgument, pg.errors.InvalidType), match="divi"):
            call()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_against_torch_adaptive(rng, axes):
    torch, functional = torch_functions()
    layout = "NC" + "DHW"[-axes:]
    for _ in range(15):
        sizes, outs = rng.integers(1, 9, axes).tolist(), rng.integers(1, 9, axes).tolist()
        x = array_of(rng, (2, 3, *sizes), "float64")
        theirs, index = getattr(functional, f"adaptive_max_pool{axes}d")(torch.tensor(x), outs, return_indices=True)
        y, ours = pg.adaptive_max_pool(x, outs, layout=layout, return_indices=True)
        assert_same_bits(y, theirs.numpy())
        assert_same_bits(ours, index.numpy())
        theirs = getattr(functional, f"adaptive_avg_pool{axes}d")(torch.tensor(x), outs)
        np.testing.assert_allclose(pg.adaptive_avg_pool(x, outs, layout=layout), theirs.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_against_torch_unpool(rng, axes):
    torch, functional = torch_functions()
    layout = "NC" + "DHW"[-axes:]
    for _ in range(10):
        k = int(rng.integers(1, 4))
        sizes = [int(n) for n in rng.integers(k, k + 6, axes)]
        x = array_of(rng, (2, 3, *sizes), "float64", "plain")
        y, index = pg.max_pool(x, k, layout=layout, return_indices=True)
        theirs = getattr(functional, f"max_unpool{axes}d")(
            torch.tensor(y), torch.tensor(index), k, k, 0, output_size=list(x.shape)
        )
        assert_same_bits(pg.max_unpool(y, index, x.shape, layout=layout), theirs.numpy())


def test_against_torch_lp(rng):
    torch, functional = torch_functions()
    x = np.abs(array_of(rng, (2, 3, 8, 8), "float64", "plain"))
    for p in (1.0, 2.0, 3.5):
        theirs = functional.lp_pool2d(torch.tensor(x), p, 3, 2).numpy()
        np.testing.assert_allclose(pg.lp_pool(x, 3, 2, p=p, layout="NCHW"), theirs, rtol=1e-12)


def test_float32_averages_are_at_least_as_close_as_torchs(rng):
    """Judged against the exact mean, element by element in total and at worst."""
    torch, functional = torch_functions()
    for k, s in ((3, 1), (7, 2), (20, 20)):
        x = array_of(rng, (2, 4, 40, 40), "float32", "plain")
        truth = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (k, k), (2, 3))[:, :, ::s, ::s].mean(
            (-1, -2)
        )
        theirs = functional.avg_pool2d(torch.tensor(x), k, s).numpy()
        ours = pg.avg_pool(x, k, s, layout="NCHW")
        assert np.abs(ours - truth).max() <= np.abs(theirs - truth).max() + 1e-12
        assert np.abs(ours - truth).mean() <= np.abs(theirs - truth).mean() + 1e-12


# out= and errors ------------------------------------------------------------------------------------------------------

X = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype(np.float32)
WRITERS = {
    "max_pool": lambda **o: pg.max_pool(X, 2, **o),
    "min_pool": lambda **o: pg.min_pool(X, 2, **o),
    "avg_pool": lambda **o: pg.avg_pool(X, 2, **o),
    "avg_pool padded": lambda **o: pg.avg_pool(X, 2, 2, 1, count_include_pad=True, **o),
    "avg_pool divided": lambda **o: pg.avg_pool(X, 2, divisor_override=3, **o),
    "lp_pool": lambda **o: pg.lp_pool(X, 2, **o),
    "max_pool_grad": lambda **o: pg.max_pool_grad(X, X[:, :4, :4], 2, **o),
    "max_pool_grad_grad": lambda **o: pg.max_pool_grad_grad(X, X[::-1], 2, **o),
    "avg_pool_grad": lambda **o: pg.avg_pool_grad(X.shape, X[:, :4, :4], 2, **o),
    "adaptive_max_pool": lambda **o: pg.adaptive_max_pool(X, 3, **o),
    "adaptive_avg_pool": lambda **o: pg.adaptive_avg_pool(X, 3, **o),
    "fractional_max_pool": lambda **o: pg.fractional_max_pool(X, 1.5, seed=1, **o),
    "fractional_avg_pool": lambda **o: pg.fractional_avg_pool(X, 1.5, seed=1, **o),
    "max_unpool": lambda **o: pg.max_unpool(X[:, :4, :4], np.arange(96).reshape(2, 4, 4, 3) % 64, X.shape, **o),
}


@pytest.mark.parametrize("name", WRITERS)
def test_out_is_filled_and_returned(name):
    fresh = WRITERS[name]()
    out = np.full_like(fresh, 99)
    assert WRITERS[name](out=out) is out
    assert_same_bits(out, fresh)


@pytest.mark.parametrize("name", WRITERS)
def test_an_unfit_out_is_refused(name):
    fresh = WRITERS[name]()
    frozen = fresh.copy()
    frozen.setflags(write=False)
    for wrong in (
        np.zeros(3, np.float32),
        fresh.astype(np.float64),
        np.zeros((*fresh.shape, 2), np.float32)[..., 0],
        frozen,
        "out",
        fresh.tolist(),
        np.zeros(fresh.shape, object),
    ):
        with pytest.raises((InvalidArgument, InvalidType), match=rf"{name.split()[0]}.*out"):
            WRITERS[name](out=wrong)


def test_out_must_not_overlap_the_input():
    x = np.zeros(100, np.float32)
    with pytest.raises(InvalidArgument, match=r"max_pool.*out"):
        pg.max_pool(x[:50], 1, layout="X", out=x[25:75])


@pytest.mark.parametrize(
    "arguments",
    [
        {"window": 0}, {"window": -1}, {"window": 2.5}, {"window": None}, {"window": "2"}, {"window": [2]},
        {"window": [2, 2, 2]}, {"window": 2**64, "strides": 1},
        {"window": 2, "strides": 0}, {"window": 2, "strides": [1, 0]}, {"window": 2, "strides": "a"}, {"window": 2,
        "padding": "full"}, {"window": 2, "padding": -1},
        {"window": 2, "padding": 2}, {"window": 2, "padding": [(0, 0)]}, {"window": 2, "padding": [(0, 0), (0, 2)]},
        {"window": 2, "padding": None}, {"window": 2, "padding": 0.5},
        {"window": 2, "dilation": 0}, {"window": 2, "strides": 1, "dilation": 9}, {"window": 2, "layout": "NHW"},
        {"window": 2, "layout": "HHWC"}, {"window": 2, "layout": 5},
        {"window": 2, "ties": 3}, {"window": 2, "return_choice": "yes"}, {"window": np.zeros((2, 2))}, {"window": True},
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises((InvalidArgument, InvalidType), match="max_pool"):
        pg.max_pool(X, **arguments)


@pytest.mark.parametrize(
    "wrong", [None, "abc", object(), [[1], [1, 2]], np.zeros((2, 4, 4, 3), complex), np.zeros((2, 4, 4, 3), object), {}]
)
def test_impossible_data_are_refused(wrong):
    for call in (
        lambda: pg.max_pool(wrong, 2),
        lambda: pg.avg_pool(wrong, 2),
        lambda: pg.adaptive_avg_pool(wrong, 2),
        lambda: pg.fractional_max_pool(wrong, 1.5),
        lambda: pg.lp_pool(wrong, 2),
        lambda: pg.min_pool(wrong, 2),
        lambda: pg.max_unpool(wrong, np.zeros((1, 1, 1, 1), int), (1, 2, 2, 1)),
        lambda: pg.max_unpool(np.zeros((1, 1, 1, 1)), wrong, (1, 2, 2, 1)),
        lambda: pg.max_pool_grad(X, wrong, 2),
    ):
        with pytest.raises((InvalidArgument, InvalidType)):
            call()


def test_gradients_of_the_wrong_shape_are_refused():
    for call in (
        lambda g: pg.max_pool_grad(X, g, 2),
        lambda g: pg.avg_pool_grad(X.shape, g, 2),
        lambda g: pg.max_pool_grad_grad(X, g, 2),
    ):
        for shape in ((2, 4, 4), (2, 4, 4, 2), (1, 4, 4, 3), (2, 5, 4, 3), (0,)):
            with pytest.raises(InvalidArgument, match=r"grad|v"):
                call(np.zeros(shape, np.float32))


def test_unpool_checks_its_indices():
    y = np.ones((1, 2, 1), np.float32)
    for index in (-1, 4, 2**62):
        with pytest.raises(InvalidArgument, match=r"max_unpool.*indices"):
            pg.max_unpool(y, np.array([0, index]).reshape(1, 2, 1), (1, 4, 1))
    assert pg.max_unpool(y, np.array([1, 3]).reshape(1, 2, 1), (1, 4, 1)).ravel().tolist() == [0, 1, 0, 1]
    twice = pg.max_unpool(np.array([5.0, 7.0]).reshape(1, 2, 1), np.array([2, 2]).reshape(1, 2, 1), (1, 4, 1))
    assert twice.ravel().tolist() == [0, 0, 7, 0], "the last one stands, as in PyTorch"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"ratio": 1.5, "sequences": [[0, 8], [0, 8]]}, {"ratio": 0.5}, {"ratio": 9.0}, {"ratio": float("nan")},
    {"ratio": [1.5]}, {"ratio": "a"}, {"sequences": [[0, 8]]},
     {"sequences": [[0, 8], [0, 7]]}, {"sequences": 5}, {"ratio": 1.5, "seed": "a"}, {"ratio": 1.5, "seed": (1, 2, 3)},
     {"ratio": 1.5, "overlapping": "yes"}],
)  # fmt: skip
def test_impossible_fractions_are_refused(arguments):
    with pytest.raises((InvalidArgument, InvalidType), match="fractional_max_pool"):
        pg.fractional_max_pool(X, **arguments)


def test_a_window_too_long_by_less_than_a_stride_has_an_empty_result():
    """TensorFlow's rule: 9 does not fit 8, but (8 - 9 + 9) / 9 is 0, not negative."""
    assert pg.max_pool(X, 9).shape == (2, 0, 0, 3)
    with pytest.raises(InvalidArgument, match=r"max_pool.*window"):
        pg.max_pool(X, 10, 1)


def test_empty_arrays():
    assert pg.max_pool(np.zeros((0, 4, 4, 3)), 2).shape == (0, 2, 2, 3)
    assert pg.avg_pool(np.zeros((2, 4, 4, 0)), 2).shape == (2, 2, 2, 0)
    assert pg.max_pool_grad(np.zeros((0, 4)), np.zeros((0, 2)), 2, layout="NX").shape == (0, 4)


def test_specials_follow_the_policy(rng):
    for nan in ("propagate", "ignore"):
        for shape, a, windows in geometries(rng, "NHWC", 4):
            x = with_specials(rng, array_of(rng, shape, "float32"))
            assert_same_bits(pg.max_pool(x, nan=nan, **a), ref.maximum(x, windows, (1, 2), nan))
