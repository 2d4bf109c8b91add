"""Live TensorFlow 2.21 as the oracle: random geometry, all twenty operators, every type its CPU kernels run.

TensorFlow's known faults are kept out by construction (NaN, ties and close values in three dimensions, the wrong
windows of
AvgPoolGrad, AvgPool3D, MaxPool3D and their gradients): tests/test_golden.py asserts our rule for those.
"""

import numpy as np
import pytest
from expected import expected
from generate import array_of, pooling
from judge import assert_outcomes, assert_same_bits

import poolgrad as pg

INTEGERS_OF_TF = ("int8", "uint8", "int16", "uint16", "int32", "int64")
ALL = ("float16", "bfloat16", "float32", "float64", *INTEGERS_OF_TF)
GRADIENTS = (*ALL, "uint32", "uint64")
THREE_D = ("bfloat16", "float32")
ROUNDS = 12


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    assert tensorflow.__version__.startswith("2.21"), "the rules were measured against TensorFlow 2.21"
    return tensorflow


def compare(tf, op, a):
    """One call of both libraries, judged: selections bit for bit, sums as close to the truth as TensorFlow's."""
    tensors = {k: tf.constant(v) if isinstance(v, np.ndarray) else v for k, v in a.items()}
    theirs = getattr(tf.raw_ops, op)(**tensors)
    theirs = [t.numpy() for t in (theirs if isinstance(theirs, tuple) else [theirs])]
    result = getattr(pg.raw_ops, op)(**a)
    plain = {k: v.ravel().tolist() if op.endswith("V2") and k in ("ksize", "strides") else v for k, v in a.items()}
    if op in ("FractionalMaxPool", "FractionalAvgPool"):
        plain |= {"row_pooling_sequence": theirs[1], "col_pooling_sequence": theirs[2]}
        assert_same_bits(result.row_pooling_sequence, theirs[1], f"{op} {a} rows")
        assert_same_bits(result.col_pooling_sequence, theirs[2], f"{op} {a} columns")
    note = f"{op} " + str({k: (v.shape, str(v.dtype)) if isinstance(v, np.ndarray) else v for k, v in a.items()})
    wanted = expected(op, plain)
    assert_outcomes(result, wanted, note, theirs)
    for ours, tensor, want in zip(result if isinstance(result, tuple) else [result], theirs, wanted):
        if not want.is_sum:
            assert_same_bits(ours, tensor, note)
    return result


def sure(attrs, shape, rule):
    """Geometry on which TensorFlow is right."""
    pairs = list(zip(shape, attrs["ksize"], attrs["strides"]))[1:-1]
    return attrs["padding"] != "SAME" or all(rule(n, k, s) for n, k, s in pairs)


def draw(rng, spatial, rule=lambda n, k, s: True, **options):
    while True:
        shape, attrs = pooling(rng, spatial, **options)
        if sure(attrs, shape, rule):
            return shape, attrs


def no_overlong_window(n, k, s):
    return k <= n


def no_gap(n, k, s):
    return s <= k


@pytest.mark.parametrize("kind", ["ties", "plain"])
@pytest.mark.parametrize("dtype", ALL)
def test_max_pool(tf, rng, dtype, kind):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 2, paddings=("SAME", "VALID", "EXPLICIT"))
        compare(tf, "MaxPool", {"input": array_of(rng, shape, dtype, kind), **attrs})


@pytest.mark.parametrize("kind", ["ties", "plain"])
@pytest.mark.parametrize("dtype", GRADIENTS)
def test_max_pool_grad(tf, rng, dtype, kind):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 2, paddings=("SAME", "VALID", "EXPLICIT"))
        x = array_of(rng, shape, dtype, kind)
        y = pg.raw_ops.MaxPool(input=x, **attrs)
        compare(
            tf,
            "MaxPoolGrad",
            {"orig_input": x, "orig_output": y, "grad": array_of(rng, y.shape, dtype, "plain"), **attrs},
        )


@pytest.mark.parametrize("kind", ["ties", "plain"])
@pytest.mark.parametrize("dtype", GRADIENTS)
def test_max_pool_grad_grad(tf, rng, dtype, kind):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 2)
        x = array_of(rng, shape, dtype, kind)
        y = pg.raw_ops.MaxPool(input=x, **attrs)
        if (
            rng.random() < 0.3
        ):  # any orig_output of the right shape is legal: the first element equal to it counts, or none
            y = array_of(rng, y.shape, dtype, "ties")
        compare(
            tf,
            "MaxPoolGradGrad",
            {"orig_input": x, "orig_output": y, "grad": array_of(rng, shape, dtype, "plain"), **attrs},
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_v2(tf, rng, dtype):
    """ksize and strides as tensors, of any shape with four elements."""
    for i in range(ROUNDS):
        shape, attrs = draw(rng, 2)
        form = [(4,), (2, 2)][i % 2]
        attrs |= {name: np.array(attrs[name], np.int32).reshape(form) for name in ("ksize", "strides")}
        x = array_of(rng, shape, dtype)
        y = compare(tf, "MaxPoolV2", {"input": x, **attrs})
        given = {"orig_input": x, "orig_output": y}
        compare(tf, "MaxPoolGradV2", {**given, "grad": array_of(rng, y.shape, dtype, "plain"), **attrs})
        compare(tf, "MaxPoolGradGradV2", {**given, "grad": array_of(rng, shape, dtype, "plain"), **attrs})


@pytest.mark.parametrize("include_batch", [False, True])
@pytest.mark.parametrize("dtype", GRADIENTS)
def test_argmax(tf, rng, dtype, include_batch):
    for i in range(ROUNDS):
        shape, attrs = draw(rng, 2)
        attrs["include_batch_in_index"] = include_batch
        x = array_of(rng, shape, dtype, ["ties", "plain"][i % 2])
        result = compare(tf, "MaxPoolWithArgmax", {"input": x, **attrs})
        g = array_of(rng, result.output.shape, dtype, "plain")
        compare(tf, "MaxPoolGradWithArgmax", {"input": x, "grad": g, "argmax": result.argmax, **attrs})


@pytest.mark.parametrize("dtype", GRADIENTS)
def test_argmax_of_32_bits_and_its_second_derivative(tf, rng, dtype):
    """TensorFlow has no CPU kernel for MaxPoolGradGradWithArgmax: the definition decides (out[i] = grad[argmax[i]])."""
    for i in range(ROUNDS):
        shape, attrs = draw(rng, 2)
        attrs["include_batch_in_index"] = bool(i % 2)
        x = array_of(rng, shape, dtype)
        compare(tf, "MaxPoolWithArgmax", {"input": x, "Targmax": np.int32, **attrs})
        index = pg.raw_ops.MaxPoolWithArgmax(input=x, **attrs).argmax
        a = {"input": x, "grad": array_of(rng, shape, dtype, "plain"), "argmax": index, **attrs}
        assert_outcomes(pg.raw_ops.MaxPoolGradGradWithArgmax(**a), expected("MaxPoolGradGradWithArgmax", a))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_avg_pool(tf, rng, dtype):
    for i in range(2 * ROUNDS):
        shape, attrs = draw(rng, 2)
        compare(tf, "AvgPool", {"value": array_of(rng, shape, dtype, ["ties", "plain"][i % 2]), **attrs})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_avg_pool_grad(tf, rng, dtype):
    for _ in range(2 * ROUNDS):
        shape, attrs = draw(rng, 2, no_overlong_window)
        out = pg.raw_ops.AvgPool(value=np.zeros(shape, np.float32), **attrs).shape
        a = {"orig_input_shape": np.array(shape, np.int32), "grad": array_of(rng, out, dtype, "plain"), **attrs}
        compare(tf, "AvgPoolGrad", a)


@pytest.mark.parametrize("dtype", THREE_D)
def test_max_pool_3d(tf, rng, dtype):
    for i in range(ROUNDS):
        shape, attrs = draw(rng, 3, no_gap, largest=5)
        compare(tf, "MaxPool3D", {"input": array_of(rng, shape, dtype, ["ties", "plain"][i % 2]), **attrs})


@pytest.mark.parametrize("dtype", THREE_D)
def test_max_pool_3d_grad(tf, rng, dtype):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 3, no_overlong_window, largest=4, channels=2)
        x = array_of(rng, shape, dtype, "distinct")
        y = pg.raw_ops.MaxPool3D(input=x, **attrs)
        compare(
            tf,
            "MaxPool3DGrad",
            {"orig_input": x, "orig_output": y, "grad": array_of(rng, y.shape, dtype, "plain"), **attrs},
        )


@pytest.mark.parametrize("kind", ["ties", "plain"])
@pytest.mark.parametrize("dtype", THREE_D)
def test_max_pool_3d_grad_grad(tf, rng, dtype, kind):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 3, largest=5)
        x = array_of(rng, shape, dtype, kind)
        y = pg.raw_ops.MaxPool3D(input=x, **attrs)
        compare(
            tf,
            "MaxPool3DGradGrad",
            {"orig_input": x, "orig_output": y, "grad": array_of(rng, shape, dtype, "plain"), **attrs},
        )


@pytest.mark.parametrize("dtype", THREE_D)
def test_avg_pool_3d(tf, rng, dtype):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 3, no_gap, largest=5)
        compare(tf, "AvgPool3D", {"input": array_of(rng, shape, dtype, "plain"), **attrs})


@pytest.mark.parametrize("dtype", THREE_D)
def test_avg_pool_3d_grad(tf, rng, dtype):
    for _ in range(ROUNDS):
        shape, attrs = draw(rng, 3, no_overlong_window, largest=5)
        out = pg.raw_ops.AvgPool3D(input=np.zeros(shape, np.float32), **attrs).shape
        a = {"orig_input_shape": np.array(shape, np.int32), "grad": array_of(rng, out, dtype, "plain"), **attrs}
        compare(tf, "AvgPool3DGrad", a)


def fractional(rng):
    shape = (int(rng.integers(1, 3)), int(rng.integers(2, 14)), int(rng.integers(2, 14)), int(rng.integers(2, 4)))
    ratio = [1.0, float(rng.uniform(1, min(shape[1], 4))), float(rng.uniform(1, min(shape[2], 4))), 1.0]
    return shape, {
        "pooling_ratio": ratio,
        "pseudo_random": bool(rng.integers(2)),
        "overlapping": bool(rng.integers(2)),
        "deterministic": True,
        "seed": int(rng.integers(1, 1 << 40)),
        "seed2": int(rng.integers(0, 1 << 40)),
    }


@pytest.mark.parametrize("kind", ["ties", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_fractional_max(tf, rng, dtype, kind):
    for _ in range(ROUNDS):
        shape, attrs = fractional(rng)
        x = array_of(rng, shape, dtype, kind)
        r = compare(tf, "FractionalMaxPool", {"value": x, **attrs})
        a = {"orig_input": x, "orig_output": r.output, "out_backprop": array_of(rng, r.output.shape, dtype, "plain")}
        a |= {"row_pooling_sequence": r.row_pooling_sequence, "col_pooling_sequence": r.col_pooling_sequence}
        compare(tf, "FractionalMaxPoolGrad", {**a, "overlapping": attrs["overlapping"]})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_fractional_avg(tf, rng, dtype):
    for _ in range(ROUNDS):
        shape, attrs = fractional(rng)
        r = compare(
            tf,
            "FractionalAvgPool",
            {"value": array_of(rng, shape, dtype, "ties" if dtype[0] == "i" else "plain"), **attrs},
        )
        g = array_of(rng, r.output.shape, dtype, "ties" if dtype[0] == "i" else "plain")
        if dtype[0] == "i":
            g = g * 3600  # every share is whole, so that TensorFlow's float64 quotients are exact too
        a = {
            "orig_input_tensor_shape": np.array(shape, np.int64),
            "out_backprop": g,
            "overlapping": attrs["overlapping"],
        }
        a |= {"row_pooling_sequence": r.row_pooling_sequence, "col_pooling_sequence": r.col_pooling_sequence}
        compare(tf, "FractionalAvgPoolGrad", a)


@pytest.mark.parametrize("pseudo_random", [False, True])
def test_sequences(tf, rng, pseudo_random):
    """The same seeds give TensorFlow's sequences, negative and 64-bit seeds included."""
    for _ in range(300):
        n, m = int(rng.integers(1, 200)), int(rng.integers(1, 200))
        ratio = [1.0, float(rng.uniform(1, n)), float(rng.uniform(1, m)), 1.0]
        seeds = rng.integers(-(1 << 63), 1 << 63, 2) if rng.random() < 0.5 else rng.integers(1, 100, 2)
        a = {"value": np.zeros((1, n, m, 1), np.float32), "pooling_ratio": ratio, "pseudo_random": pseudo_random}
        a |= {"deterministic": True, "seed": int(seeds[0]), "seed2": int(seeds[1])}
        theirs, ours = tf.raw_ops.FractionalMaxPool(**a), pg.raw_ops.FractionalMaxPool(**a)
        assert_same_bits(ours.row_pooling_sequence, theirs.row_pooling_sequence.numpy(), str(a | {"value": (n, m)}))
        assert_same_bits(ours.col_pooling_sequence, theirs.col_pooling_sequence.numpy(), str(a | {"value": (n, m)}))


def test_output_length_is_divided_in_float32(tf):
    """floor(n / ratio) in float32, as TensorFlow does: 11 / 1.1 is 10 there, 9 in float64."""
    for n in range(2, 40):
        for ratio in (1.1, 1.3, 1.7, 2.2, 3.3):
            if ratio > n:
                continue
            a = {
                "value": np.zeros((1, n, n, 1), np.float32),
                "pooling_ratio": [1.0, ratio, ratio, 1.0],
                "deterministic": True,
                "seed": 1,
            }
            assert pg.raw_ops.FractionalAvgPool(**a).output.shape == tuple(
                tf.raw_ops.FractionalAvgPool(**a).output.shape
            ), (n, ratio)


@pytest.mark.parametrize("dtype", ALL)
def test_depthwise(tf, rng, dtype):
    for c, k in ((4, 2), (6, 3), (8, 8), (33, 11)):
        a = {
            "input": array_of(rng, (2, 3, 2, c), dtype),
            "ksize": [1, 1, 1, k],
            "strides": [1, 1, 1, k],
            "padding": "VALID",
        }
        compare(tf, "MaxPool", a)
        compare(tf, "MaxPoolV2", a | {name: np.array(a[name], np.int32) for name in ("ksize", "strides")})
