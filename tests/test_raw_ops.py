"""The raw operators: TensorFlow's signatures, and what we add to them."""

import ast
import inspect
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from expected import expected
from generate import DTYPES, array_of, pooling, sequence
from judge import assert_outcomes, assert_same_bits
from malformed import GOOD

import poolgrad as pg

OPERATORS = [
    "MaxPool", "MaxPoolV2", "MaxPoolGrad", "MaxPoolGradV2", "MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPoolWithArgmax",
    "MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax", "AvgPool", "AvgPoolGrad", "MaxPool3D", "MaxPool3DGrad",
    "MaxPool3DGradGrad", "AvgPool3D", "AvgPool3DGrad", "FractionalMaxPool", "FractionalMaxPoolGrad",
    "FractionalAvgPool", "FractionalAvgPoolGrad",
]  # fmt: skip
OURS = ["FractionalMaxPoolGradGrad", "FractionalAvgPoolGradGrad"]
HAVE_PADDING = [op for op in OPERATORS if "Fractional" not in op]


def parameters(op):
    return inspect.signature(getattr(pg.raw_ops, op)).parameters


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


# Signatures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS)
def test_signature_is_tensorflows(tf, op):
    """The same names in the same order with the same defaults; ours come after, have defaults, and stand before
    `name`."""
    theirs = inspect.signature(getattr(tf.raw_ops, op)).parameters
    ours = parameters(op)
    extra = [name for name in ours if name not in theirs]
    assert [name for name in ours if name in theirs] == list(theirs)
    assert set(extra) <= {"explicit_paddings", "data_format"}
    assert [name for name in ours if name != "name"][: len(theirs) - 1] == [name for name in theirs if name != "name"]
    for name, parameter in theirs.items():
        default = parameter.default
        if isinstance(default, tf.DType):
            assert np.dtype(ours[name].default) == default.as_numpy_dtype
        elif isinstance(default, list):
            assert list(ours[name].default) == default
        else:
            assert ours[name].default == default, name
    for name in extra:
        assert ours[name].default is not inspect.Parameter.empty
    assert ours["name"].default is None and list(ours)[-1] == "name"


@pytest.mark.parametrize("op", OPERATORS + OURS)
def test_arguments_are_keywords(op):
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters(op).values())
    with pytest.raises(TypeError):
        getattr(pg.raw_ops, op)(np.zeros((1, 4, 4, 1)))
    with pytest.raises(TypeError, match="no_such_argument"):
        getattr(pg.raw_ops, op)(**GOOD[op](), no_such_argument=1)
    missing = GOOD[op]()
    name = next(iter(missing))
    del missing[name]
    with pytest.raises(TypeError, match=name):
        getattr(pg.raw_ops, op)(**missing)


@pytest.mark.parametrize("op", HAVE_PADDING)
def test_explicit_padding_and_layout_are_everywhere(op):
    assert list(parameters(op)["explicit_paddings"].default) == []
    assert parameters(op)["data_format"].default == ("NDHWC" if "3D" in op else "NHWC")


@pytest.mark.parametrize("op", [op for op in OPERATORS if "Fractional" in op] + OURS)
def test_fractional_operators_have_a_layout(op):
    assert parameters(op)["data_format"].default == "NHWC"


def test_the_operators_of_our_own():
    assert list(parameters("FractionalMaxPoolGradGrad"))[:6] == [
        "orig_input", "orig_output", "grad", "row_pooling_sequence", "col_pooling_sequence", "overlapping",
    ]  # fmt: skip
    assert list(parameters("FractionalAvgPoolGradGrad"))[:4] == [
        "grad",
        "row_pooling_sequence",
        "col_pooling_sequence",
        "overlapping",
    ]


@pytest.mark.parametrize("op", OPERATORS + OURS)
def test_help_explains(op):
    function = getattr(pg.raw_ops, op)
    text = inspect.getdoc(function)
    assert text and len(text) > 80 and ">>>" in text, "a docstring with a running example"
    assert function.__name__ == op and function.__module__ == "poolgrad.raw_ops"
    assert op in pg.raw_ops.__all__ and op in dir(pg.raw_ops)


def test_nothing_else_is_offered():
    assert set(OPERATORS + OURS) == set(pg.raw_ops.__all__)


@pytest.mark.parametrize("op", OPERATORS + OURS)
def test_a_name_is_accepted(op):
    extra = {"deterministic": True, "seed": 1} if op in ("FractionalMaxPool", "FractionalAvgPool") else {}
    call = getattr(pg.raw_ops, op)
    first, second = call(**GOOD[op](), **extra), call(**GOOD[op](), **extra, name="here")
    for a, b in zip(first if isinstance(first, tuple) else [first], second if isinstance(second, tuple) else [second]):
        assert_same_bits(a, b)


def test_several_outputs_are_a_named_tuple(tf):
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    cells = {"pooling_ratio": [1.0, 2.0, 2.0, 1.0], "deterministic": True, "seed": 1}
    for op, a in (
        ("MaxPoolWithArgmax", {"input": x, **pool}),
        ("FractionalMaxPool", {"value": x, **cells}),
        ("FractionalAvgPool", {"value": x, **cells}),
    ):
        ours, theirs = getattr(pg.raw_ops, op)(**a), getattr(tf.raw_ops, op)(**a)
        assert isinstance(ours, tuple) and ours._fields == theirs._fields
        for field, value in zip(ours._fields, ours):
            assert getattr(ours, field) is value
            assert_same_bits(value, getattr(theirs, field).numpy())


def test_the_stub_matches_the_module():
    """raw_ops.pyi declares every operator with the parameters it really has."""
    stub = Path(inspect.getfile(pg.raw_ops)).with_suffix(".pyi")
    declared = {node.name: node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert set(declared) >= set(OPERATORS + OURS)
    for op in OPERATORS + OURS:
        assert [a.arg for a in declared[op].args.kwonlyargs] == list(parameters(op)), op
        assert all(a.annotation is not None for a in declared[op].args.kwonlyargs) and declared[op].returns is not None


# Types --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATORS + OURS)
def test_every_type_on_every_operator(rng, op, dtype):
    """The result has the type of the data and is what the reference says."""
    a = GOOD[op]()
    x = None
    for name in a:
        if name in ("input", "value", "orig_input"):
            x = a[name] = array_of(rng, a[name].shape, dtype)
    for name in a:
        if name in ("grad", "out_backprop"):
            a[name] = array_of(rng, a[name].shape, dtype, "ties")
    plain = {
        k: v.ravel().tolist() if k in ("ksize", "strides") and isinstance(v, np.ndarray) else v for k, v in a.items()
    }
    if "orig_output" in a:
        forward = "FractionalMaxPool" if "Fractional" in op else "MaxPool"
        a["orig_output"] = plain["orig_output"] = expected(forward, {**plain, "input": x, "value": x})[0].value
    if op in ("FractionalMaxPool", "FractionalAvgPool"):
        a |= {"deterministic": True, "seed": 9}
        result = getattr(pg.raw_ops, op)(**a)
        plain |= {
            "row_pooling_sequence": result.row_pooling_sequence,
            "col_pooling_sequence": result.col_pooling_sequence,
        }
    result = getattr(pg.raw_ops, op)(**a)
    assert_outcomes(result, expected(op, plain), f"{op} {dtype}")


@pytest.mark.parametrize("op", ["MaxPoolGrad", "MaxPoolGradGrad", "MaxPool3DGrad", "MaxPool3DGradGrad"])
def test_types_must_agree(op):
    """A gradient of another type than the input is an error, not a silent conversion."""
    a = GOOD[op]()
    a["grad"] = a["grad"].astype(np.float64)
    with pytest.raises(pg.errors.InvalidType, match=f"{op}.*grad"):
        getattr(pg.raw_ops, op)(**a)


@pytest.mark.parametrize("targmax", [np.int64, np.int32, "int64", "int32", np.dtype("int32")])
def test_targmax(targmax):
    result = pg.raw_ops.MaxPoolWithArgmax(**GOOD["MaxPoolWithArgmax"](), Targmax=targmax)
    assert result.argmax.dtype == np.dtype(targmax)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_argmax_of_either_width_is_accepted(rng, dtype):
    a = GOOD["MaxPoolGradWithArgmax"]()
    a["argmax"] = a["argmax"].astype(dtype)
    assert_outcomes(pg.raw_ops.MaxPoolGradWithArgmax(**a), expected("MaxPoolGradWithArgmax", a))


@pytest.mark.parametrize("shape_type", [list, tuple, np.int32, np.int64])
def test_shapes_may_be_lists_or_arrays(shape_type):
    a = GOOD["AvgPoolGrad"]()
    shape = a["orig_input_shape"]
    a["orig_input_shape"] = shape_type(shape) if shape_type in (list, tuple) else np.array(shape, shape_type)
    assert_same_bits(pg.raw_ops.AvgPoolGrad(**a), pg.raw_ops.AvgPoolGrad(**GOOD["AvgPoolGrad"]()))


@pytest.mark.parametrize("form", [tuple, np.array, lambda v: np.array(v, np.int32), lambda v: [np.int64(i) for i in v]])
def test_windows_may_be_any_sequence_of_integers(form):
    a = GOOD["MaxPool"]()
    wanted = pg.raw_ops.MaxPool(**a)
    assert_same_bits(pg.raw_ops.MaxPool(**a | {"ksize": form(a["ksize"]), "strides": form(a["strides"])}), wanted)


def test_python_lists_are_arrays():
    """Nested lists of numbers are read as NumPy reads them."""
    x = [[[[1.0], [5.0]], [[3.0], [2.0]]]]
    y = pg.raw_ops.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    assert y.tolist() == [[[[5.0]]]] and y.dtype == np.float64


# Beyond TensorFlow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        "AvgPool",
        "AvgPoolGrad",
        "MaxPoolV2",
        "MaxPoolGradV2",
        "MaxPoolGradGrad",
        "MaxPoolGradGradV2",
        "MaxPoolWithArgmax",
        "MaxPoolGradWithArgmax",
        "MaxPoolGradGradWithArgmax",
    ],
)
def test_explicit_padding_in_two_dimensions(rng, op):
    for _ in range(10):
        shape, attrs = pooling(rng, 2, paddings=("EXPLICIT",))
        x = array_of(rng, shape, "float64")
        y = expected("MaxPool", {"input": x, **attrs})[0].value
        index = expected("MaxPoolWithArgmax", {"input": x, **attrs})[1].value
        g, v = array_of(rng, y.shape, "float64"), array_of(rng, shape, "float64")
        tensors = {
            "AvgPool": {"value": x},
            "AvgPoolGrad": {"orig_input_shape": np.array(shape), "grad": g},
            "MaxPoolV2": {"input": x},
            "MaxPoolWithArgmax": {"input": x},
            "MaxPoolGradWithArgmax": {"input": x, "grad": g, "argmax": index},
            "MaxPoolGradGradWithArgmax": {"input": x, "grad": v, "argmax": index},
        }.get(op, {"orig_input": x, "orig_output": y, "grad": v if "GradGrad" in op else g})
        assert_outcomes(
            getattr(pg.raw_ops, op)(**tensors, **attrs), expected(op, {**tensors, **attrs}), f"{op} {shape} {attrs}"
        )


@pytest.mark.parametrize("op", ["MaxPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad", "AvgPool3D", "AvgPool3DGrad"])
def test_explicit_padding_in_three_dimensions(rng, op):
    for _ in range(8):
        shape, attrs = pooling(rng, 3, largest=4, paddings=("EXPLICIT",))
        x = array_of(rng, shape, "float64")
        y = expected("MaxPool3D", {"input": x, **attrs})[0].value
        g, v = array_of(rng, y.shape, "float64"), array_of(rng, shape, "float64")
        tensors = {
            "MaxPool3D": {"input": x}, "AvgPool3D": {"input": x},
            "AvgPool3DGrad": {"orig_input_shape": np.array(shape), "grad": g},
        }.get(op, {"orig_input": x, "orig_output": y, "grad": v if "GradGrad" in op else g})  # fmt: skip
        assert_outcomes(
            getattr(pg.raw_ops, op)(**tensors, **attrs), expected(op, {**tensors, **attrs}), f"{op} {shape} {attrs}"
        )


@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("form", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("c", "k"), [(4, 2), (6, 3), (16, 16), (34, 2), (66, 33)])
def test_depthwise_pooling_and_its_derivatives(rng, c, k, form, version):
    """A window over k neighbouring channels; TensorFlow has no gradient for it."""
    shape, ksize = ((2, 3, 5, c), [1, 1, 1, k]) if form == "NHWC" else ((2, c, 3, 5), [1, k, 1, 1])
    attrs = {"ksize": ksize, "strides": ksize, "padding": "VALID", "data_format": form}
    x = array_of(rng, shape, "float32")
    y = getattr(pg.raw_ops, "MaxPool" + version)(input=x, **attrs)
    assert_outcomes(y, expected("MaxPool", {"input": x, **attrs}))
    for op, size in (("MaxPoolGrad", y.shape), ("MaxPoolGradGrad", shape)):
        for ties in ("first", "all"):
            a = {"orig_input": x, "orig_output": y, "grad": array_of(rng, size, "float32"), **attrs}
            with pg.policy(ties=ties):
                assert_outcomes(getattr(pg.raw_ops, op + version)(**a), expected(op, a, ties), f"{op}{version} {ties}")


def test_depthwise_rules():
    """The channel window divides the channels, equals its stride, and does not mix with a spatial one."""
    x = np.zeros((1, 2, 2, 6), np.float32)
    for ksize, strides in (
        ([1, 1, 1, 4], [1, 1, 1, 4]),
        ([1, 1, 1, 3], [1, 1, 1, 1]),
        ([1, 2, 1, 3], [1, 1, 1, 3]),
        ([1, 1, 1, 7], [1, 1, 1, 7]),
    ):
        with pytest.raises(pg.errors.InvalidArgument, match=r"MaxPool.*(ksize|strides)"):
            pg.raw_ops.MaxPool(input=x, ksize=ksize, strides=strides, padding="VALID")
    for op, name in (("AvgPool", "value"), ("MaxPoolWithArgmax", "input")):
        with pytest.raises(pg.errors.InvalidArgument, match=f"{op}.*ksize"):
            getattr(pg.raw_ops, op)(**{name: x}, ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding="VALID")


def test_second_derivatives_that_tensorflow_lacks(rng):
    """FractionalMaxPoolGradGrad and FractionalAvgPoolGradGrad, by the reference."""
    for overlapping in (False, True):
        x, v = array_of(rng, (2, 9, 7, 3), "float64"), array_of(rng, (2, 9, 7, 3), "float64", "plain")
        cells = {
            "row_pooling_sequence": sequence(rng, 9),
            "col_pooling_sequence": sequence(rng, 7),
            "overlapping": overlapping,
        }
        y = expected("FractionalMaxPool", {"value": x, **cells})[0].value
        for ties in ("first", "all", "split"):
            a = {"orig_input": x, "orig_output": y, "grad": v, **cells}
            with pg.policy(ties=ties):
                assert_outcomes(
                    pg.raw_ops.FractionalMaxPoolGradGrad(**a), expected("FractionalMaxPoolGradGrad", a, ties), ties
                )
        assert_outcomes(
            pg.raw_ops.FractionalAvgPoolGradGrad(grad=v, **cells),
            expected("FractionalAvgPoolGradGrad", {"grad": v, **cells}),
        )


# Empty tensors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "out"), [((0, 4, 4, 2), (0, 2, 2, 2)), ((2, 0, 4, 2), (2, 0, 2, 2)), ((2, 4, 4, 0), (2, 2, 2, 0))]
)
def test_empty_inputs_have_empty_results(shape, out):
    x, y = np.zeros(shape, np.float32), np.zeros(out, np.float32)
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    given_both = {"orig_input": x, "orig_output": y, **pool}
    assert pg.raw_ops.MaxPool(input=x, **pool).shape == out
    assert pg.raw_ops.AvgPool(value=x, **pool).shape == out
    assert [r.shape for r in pg.raw_ops.MaxPoolWithArgmax(input=x, **pool)] == [out, out]
    assert pg.raw_ops.MaxPoolGrad(grad=y, **given_both).shape == shape
    assert pg.raw_ops.MaxPoolGradGrad(grad=x, **given_both).shape == out
    assert pg.raw_ops.AvgPoolGrad(orig_input_shape=shape, grad=y, **pool).shape == shape
    index = np.zeros(out, np.int64)
    assert pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=y, argmax=index, **pool).shape == shape
    assert pg.raw_ops.MaxPoolGradGradWithArgmax(input=x, grad=x, argmax=index, **pool).shape == out
    shape3, out3 = (shape[0], 4, *shape[1:]), (out[0], 2, *out[1:])
    x3, y3 = np.zeros(shape3, np.float32), np.zeros(out3, np.float32)
    pool3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    assert pg.raw_ops.MaxPool3D(input=x3, **pool3).shape == out3
    assert pg.raw_ops.MaxPool3DGrad(orig_input=x3, orig_output=y3, grad=y3, **pool3).shape == shape3
    assert pg.raw_ops.MaxPool3DGradGrad(orig_input=x3, orig_output=y3, grad=x3, **pool3).shape == out3
    assert pg.raw_ops.AvgPool3DGrad(orig_input_shape=shape3, grad=y3, **pool3).shape == shape3


def test_an_empty_forward_has_a_zero_gradient():
    """Window 3 on length 2 with stride 1: no window fits, and nothing gets a gradient (TensorFlow returns raw
    memory here)."""
    x, none = np.ones((1, 2, 2, 1), np.float32), np.zeros((1, 0, 0, 1), np.float32)
    pool = {"ksize": [1, 3, 3, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    assert pg.raw_ops.MaxPool(input=x, **pool).shape == (1, 0, 0, 1)
    for gx in (
        pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=none, grad=none, **pool),
        pg.raw_ops.AvgPoolGrad(orig_input_shape=[1, 2, 2, 1], grad=none, **pool),
    ):
        assert gx.shape == (1, 2, 2, 1) and not gx.any()


# Results ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS + OURS)
def test_arguments_are_not_changed_and_not_returned(op):
    """Results are fresh memory: writing to one changes no argument, no cached state and no later result."""
    extra = {"deterministic": True, "seed": 1} if op in ("FractionalMaxPool", "FractionalAvgPool") else {}
    a = GOOD[op]()
    before = {k: v.copy() for k, v in a.items() if isinstance(v, np.ndarray)}
    call = getattr(pg.raw_ops, op)
    result = call(**a, **extra)
    outputs = result if isinstance(result, tuple) else (result,)
    kept = [r.copy() for r in outputs]
    for r in outputs[:2] if op == "MaxPoolWithArgmax" else outputs[:1]:
        assert r.flags.writeable and r.flags.c_contiguous and r.ctypes.data % 64 == 0
        assert not any(np.shares_memory(r, v) for v in a.values() if isinstance(v, np.ndarray))
        r[...] = 77
    again = call(**a, **extra)
    for r, k in zip(again if isinstance(again, tuple) else (again,), kept):
        assert_same_bits(r, k)
    for name, value in before.items():
        assert_same_bits(a[name], value)


def test_a_window_of_one_returns_a_copy():
    x = np.ones((1, 2, 2, 1), np.float32)
    y = pg.raw_ops.MaxPool(input=x, ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="VALID")
    y[...] = 5
    assert (x == 1).all()


def test_changed_attribute_lists_are_seen():
    """A plan is remembered by value: changing a list between two calls changes the result."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    ksize, strides = [1, 2, 2, 1], [1, 2, 2, 1]
    assert pg.raw_ops.MaxPool(input=x, ksize=ksize, strides=strides, padding="VALID").shape == (1, 2, 2, 1)
    ksize[1] = strides[1] = 4
    assert pg.raw_ops.MaxPool(input=x, ksize=ksize, strides=strides, padding="VALID").shape == (1, 1, 2, 1)
    shape = np.array([1, 4, 4, 1], np.int32)
    a = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    assert pg.raw_ops.AvgPoolGrad(orig_input_shape=shape, grad=np.ones((1, 2, 2, 1)), **a).shape == (1, 4, 4, 1)
    shape[1] = 5
    assert pg.raw_ops.AvgPoolGrad(orig_input_shape=shape, grad=np.ones((1, 2, 2, 1)), **a).shape == (1, 5, 4, 1)
    rows = np.array([0, 2, 4])
    cells = {"row_pooling_sequence": rows, "col_pooling_sequence": np.array([0, 2, 4])}
    first = pg.raw_ops.FractionalAvgPoolGradGrad(grad=x, **cells)
    rows[1] = 1
    assert not np.array_equal(pg.raw_ops.FractionalAvgPoolGradGrad(grad=x, **cells), first)


def test_attributes_equal_in_python_but_not_in_kind():
    """True == 1 == 1.0 in Python: a remembered plan for one must not answer for the others."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    pg.raw_ops.MaxPool(input=x, ksize=[1, 1, 2, 1], strides=[1, 1, 2, 1], padding="VALID")
    with pytest.raises(pg.errors.InvalidType, match=r"MaxPool.*ksize"):
        pg.raw_ops.MaxPool(input=x, ksize=[1, 1.0, 2, 1], strides=[1, 1, 2, 1], padding="VALID")


def test_attributes_equal_in_bytes_but_not_in_kind():
    """The same 16 bytes are four int32, two int64, or four float32: only the first is a ksize, whatever was asked
    before."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    ksize, strides = np.array([1, 2, 2, 1], np.int32), np.array([1, 2, 2, 1], np.int32)
    for op in ("MaxPool", "MaxPoolV2"):
        call = getattr(pg.raw_ops, op)
        for _ in range(2):
            assert call(input=x, ksize=ksize, strides=strides, padding="VALID").shape == (1, 2, 2, 1)
        for wrong in (ksize.view(np.int64), ksize.view(np.float32), ksize.tobytes(), ksize.astype(object)[:2]):
            with pytest.raises(pg.errors.PoolgradError, match=f"{op}.*ksize"):
                call(input=x, ksize=wrong, strides=strides, padding="VALID")
    with pytest.raises(pg.errors.PoolgradError, match=r"MaxPool.*ksize"):
        pg.raw_ops.MaxPool(input=x, ksize=ksize.reshape(2, 2), strides=strides, padding="VALID")


def test_sequences_equal_in_bytes_but_not_in_shape():
    x, edges = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1), np.array([0, 2, 4])
    for _ in range(2):
        pg.raw_ops.FractionalAvgPoolGradGrad(grad=x, row_pooling_sequence=edges, col_pooling_sequence=edges)
    for wrong in (edges[None], edges[:, None], edges.view(np.float64), edges.view(np.int32)):
        with pytest.raises(pg.errors.PoolgradError, match=r"FractionalAvgPoolGradGrad.*row_pooling_sequence"):
            pg.raw_ops.FractionalAvgPoolGradGrad(grad=x, row_pooling_sequence=wrong, col_pooling_sequence=edges)


def test_byte_order_is_part_of_what_is_remembered():
    """A swapped array after a native one of the same shape, and the other way round."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    wanted = pg.raw_ops.MaxPool(input=x, **pool)
    for _ in range(2):
        assert_same_bits(pg.raw_ops.MaxPool(input=x.astype(">f4"), **pool), wanted)
        assert_same_bits(pg.raw_ops.MaxPool(input=x, **pool), wanted)


def test_strided_after_contiguous():
    """A remembered plan for a contiguous array meets a view of the same shape and dtype."""
    x = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    wanted = pg.raw_ops.MaxPool(input=x, **pool)
    big = np.zeros((2, 8, 8, 3), np.float32)
    big[:, ::2, ::2] = x
    for view in (
        big[:, ::2, ::2],
        x[::-1].copy()[::-1],
        np.asfortranarray(x),
        np.moveaxis(np.moveaxis(x, 3, 1).copy(), 1, 3),
    ):
        assert_same_bits(pg.raw_ops.MaxPool(input=view, **pool), wanted)
        gx = pg.raw_ops.MaxPoolGrad(orig_input=view, orig_output=wanted, grad=wanted, **pool)
        assert_same_bits(gx, pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=wanted, grad=wanted, **pool))


def test_bfloat16_is_the_ml_dtypes_one():
    y = pg.raw_ops.MaxPool(
        input=np.ones((1, 2, 2, 1), ml_dtypes.bfloat16), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
    )
    assert y.dtype == ml_dtypes.bfloat16 and float(y.item()) == 1.0


# orig_output --------------------------------------------------------------------------------------------------------


def test_the_role_of_orig_output():
    """MaxPoolGrad reads only its shape; MaxPool3DGrad and every GradGrad choose the first element equal to it; none
    means zero."""
    x = np.array([1, 5, 3, 3], np.float32)
    x2, x3 = x.reshape(1, 4, 1, 1), x.reshape(1, 4, 1, 1, 1)
    p2 = {"ksize": [1, 4, 1, 1], "strides": [1, 4, 1, 1], "padding": "VALID"}
    p3 = {"ksize": [1, 4, 1, 1, 1], "strides": [1, 4, 1, 1, 1], "padding": "VALID"}
    for value, chosen in ((5, 1), (3, 2), (9, None), (np.nan, None)):
        y2, g2 = np.full((1, 1, 1, 1), value, np.float32), np.full((1, 1, 1, 1), 7, np.float32)
        picked = [7.0 if i == chosen else 0.0 for i in range(4)]
        assert pg.raw_ops.MaxPoolGrad(orig_input=x2, orig_output=y2, grad=g2, **p2).ravel().tolist() == [0, 7, 0, 0]
        assert (
            pg.raw_ops.MaxPool3DGrad(orig_input=x3, orig_output=y2[..., None], grad=g2[..., None], **p3)
            .ravel()
            .tolist()
            == picked
        )
        want = 0 if chosen is None else [10, 20, 30, 40][chosen]
        v = np.array([10, 20, 30, 40], np.float32)
        assert (
            pg.raw_ops.MaxPoolGradGrad(orig_input=x2, orig_output=y2, grad=v.reshape(1, 4, 1, 1), **p2).item() == want
        )
        assert (
            pg.raw_ops.MaxPool3DGradGrad(
                orig_input=x3, orig_output=y2[..., None], grad=v.reshape(1, 4, 1, 1, 1), **p3
            ).item()
            == want
        )


def test_nan_equals_nan_and_zero_equals_minus_zero():
    x = np.array([1, np.nan, -0.0, 0.0], np.float32).reshape(1, 4, 1, 1)
    p = {"ksize": [1, 4, 1, 1], "strides": [1, 4, 1, 1], "padding": "VALID"}
    v = np.array([10, 20, 30, 40], np.float32).reshape(1, 4, 1, 1)
    for value, want in ((np.nan, 20), (0.0, 30), (-0.0, 30)):
        y = np.full((1, 1, 1, 1), value, np.float32)
        assert pg.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=v, **p).item() == want
    y = np.full((1, 1, 1, 1), np.nan, np.float32)
    cells = {"row_pooling_sequence": [0, 4], "col_pooling_sequence": [0, 1]}
    gx = pg.raw_ops.FractionalMaxPoolGrad(
        orig_input=x, orig_output=y, out_backprop=np.full((1, 1, 1, 1), 6, np.float32), **cells
    )
    assert gx.ravel().tolist() == [0, 6, 0, 0], "a NaN maximum is the recomputed one: not an error as in TensorFlow"
