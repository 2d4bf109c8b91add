"""Attributes as the texts that blocks show, with errors at the offending character."""

import contextlib
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad.catalog import operators
from poolgrad.errors import InvalidArgument, InvalidType
from poolgrad.graph import ClientSession, Scope, TextError, attribute_text, block_types, ops, parse_attribute
from poolgrad.graph.text import Reader, options, parse
from poolgrad.graph.values import Values


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("ints", "1,2,2,2,1", (1, 2, 2, 2, 1)),
        ("ints", " [1, 2,2 ,1] ", (1, 2, 2, 1)),
        ("ints", "{1,-2}", (1, -2)),
        ("ints", "", ()),
        ("floats", "1.0,1.44,1.73,1.0", (1.0, 1.44, 1.73, 1.0)),
        ("floats", "1e-3, .5, 2.", (1e-3, 0.5, 2.0)),
        ("int", "7", 7),
        ("int", "-9223372036854775808", -(2**63)),
        ("float", "1e-05", 1e-5),
        ("bool", "false", False),
        ("bool", "True", True),
        ("string", "SAME", "SAME"),
        ("string", '"SAME"', "SAME"),
        ("string", " 'NDHWC' ", "NDHWC"),
        ("array", "1,2,3", Values([1, 2, 3])),
        ("array", "3.5", Values(3.5)),
        ("array", "-0", Values(-0.0)),
        ("array", "nan", Values("nan")),
        ("array", "[[1,2],[3,4]]", Values([[1, 2], [3, 4]])),
        ("array", "{{1,2},{3,4}}", Values([[1, 2], [3, 4]])),
        ("array", "[1,2],[3,4]", Values([[1, 2], [3, 4]])),
        ("array", "true,false", Values([True, False])),
    ],
)
def test_what_texts_mean(kind, text, value):
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "position", "problem"),
    [
        ("ints", "1,2,x,1", 4, "expected an integer"),
        ("ints", "1,2.5", 2, "expected an integer"),
        ("ints", "1 2", 2, "expected a comma"),
        ("ints", "[1,2", 4, "expected a comma or ]"),
        ("ints", "[1,2}", 4, "expected a comma or ]"),
        ("ints", "1,2,", 4, "expected an integer"),
        ("ints", "[1,2] 3", 6, "expected nothing more"),
        ("floats", "1.0,abc", 4, "expected a number"),
        ("int", "7;", 1, "expected nothing more"),
        ("int", "", 0, "expected an integer"),
        ("bool", "yes", 0, "expected true or false"),
        ("bool", " 1", 1, "expected true or false"),
        ("array", "[[1,2],[3,]", 10, "expected a number"),
    ],
)
def test_errors_point_at_the_character(kind, text, position, problem):
    with pytest.raises(TextError) as raised:
        parse(kind, text)
    assert (raised.value.position, raised.value.problem) == (position, problem)
    assert str(raised.value).splitlines()[-1].index("^") == position + 4


def test_a_word_that_is_not_allowed():
    with pytest.raises(TextError) as raised:
        parse_attribute("MaxPool", "padding", " SAMEE")
    assert raised.value.position == 1
    assert raised.value.argument == "padding"
    assert "expected one of SAME, VALID, EXPLICIT" in str(raised.value)


def test_deeply_nested_text_is_refused():
    with pytest.raises(TextError, match="too deeply"):
        parse("array", "[" * 100_000)


def test_options_of_the_blocks():
    text = "pseudo_random_ = false;overlapping_ = true; deterministic=true ;seed_ = 7;"
    assert [(n, v) for n, _, v in options(text)] == [
        ("pseudo_random", "false"), ("overlapping", "true"), ("deterministic", "true"), ("seed", "7")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attrs", "position", "problem"),
    [
        ("data_format_ = NHWCC;", 15, "expected one of NHWC, NCHW"),
        ("data_format_ : NHWC;", 13, "expected ="),
        ("= NHWC;", 0, "expected the name of an option"),
        ("data_format_ = NHWC; data_format = NCHW", 21, "data_format is given twice"),
        ("no_such_ = 1;", 0, "MaxPool has no attribute 'no_such'"),
        ("explicit_paddings_ = 1,2,x;", 25, "expected an integer"),
    ],
)
def test_errors_in_options_point_at_the_character(attrs, position, problem):
    root = Scope.new_root()
    x = ops.Const(root, np.zeros((1, 2, 2, 1), np.float32))
    with pytest.raises(TextError) as raised:
        ops.MaxPool(root, x, "1,2,2,1", "1,2,2,1", "SAME", attrs)
    assert raised.value.position == position
    assert raised.value.problem.startswith(problem) or problem in raised.value.problem
    assert list(root.page.blocks) == ["Const"]


def test_values_and_texts_are_the_same():
    root = Scope.new_root()
    x = ops.Const(root, np.zeros((1, 4, 4, 4, 2), np.float32))
    text = ops.MaxPool3D(root, x, "1,2,2,2,1", "1,2,2,2,1", "SAME", "data_format_ = NDHWC;")
    value = ops.MaxPool3D(root, x, ksize=[1, 2, 2, 2, 1], strides=(1, 2, 2, 2, 1), padding="SAME", data_format="NDHWC")
    array = ops.MaxPool3D(root, input=x, ksize=np.array([1, 2, 2, 2, 1]), strides="1,2,2,2,1", padding='"SAME"')
    blocks = [root.page[o.block].attributes for o in (text, value, array)]
    assert blocks[0] == blocks[1] == blocks[2]


@pytest.mark.parametrize("name", sorted(block_types))
def test_every_default_can_be_written_and_read_back(name):
    for attribute in block_types[name].attributes:
        if attribute.default is not None and attribute.kind.name != "array":
            text = attribute_text(name, attribute.name, attribute.default)
            assert block_types[name].parse(attribute.name, text) == attribute.default


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_lists_of_integers_survive(values):
    assert parse_attribute("Pad", "paddings", attribute_text("Pad", "paddings", values)) == tuple(values)


@given(st.text(max_size=30), st.sampled_from(["ints", "floats", "int", "float", "bool", "array", "string", "shape"]))
def test_no_text_does_anything_but_be_read_or_refused(text, kind):
    with contextlib.suppress(TextError, InvalidArgument):
        parse(kind, text)


@given(st.text(alphabet="ab_=;,1 '\"{}", max_size=30))
def test_no_options_do_anything_but_be_read_or_refused(text):
    with contextlib.suppress(TextError):
        options(text)


def test_a_reader_stops_at_the_end():
    assert Reader("  ").skip() == ""


# ---------------------------------------------------------------------------------------------------------------------
# Calls in TensorFlow's C++ order


def test_tensorflows_argument_order():
    """Inputs, required attributes, options; host inputs such as ksize of MaxPoolV2 stand where TensorFlow has them."""
    root = Scope.new_root()
    x = ops.Const(root, np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1))
    k = ops.Const(root, np.array([1, 2, 2, 1], np.int32))
    y = ops.MaxPoolV2(root, x, k, "1,2,2,1", "VALID", "data_format_ = NHWC;")
    g = ops.AvgPoolGrad(root, "1,4,4,1", y, "1,2,2,1", "1,2,2,1", "VALID")
    assert ClientSession(root).run([y, g])[1].shape == (1, 4, 4, 1)


def test_wrong_calls():
    root = Scope.new_root()
    x = ops.Const(root, np.zeros((1, 4, 4, 1), np.float32))
    with pytest.raises(InvalidType, match="MaxPool: takes input, ksize, strides, padding, attrs after the scope"):
        ops.MaxPool(root, x, "1,2,2,1", "1,2,2,1", "SAME", "", 6)
    with pytest.raises(InvalidType, match="ksize is given twice"):
        ops.MaxPool(root, x, "1,2,2,1", "1,2,2,1", "SAME", ksize="1,1,1,1")
    with pytest.raises(InvalidArgument, match="no attribute 'kzise'"):
        ops.MaxPool(root, x, kzise="1,1,1,1")
    with pytest.raises(InvalidArgument, match="padding must be given"):
        ops.MaxPool(root, x, "1,2,2,1", "1,2,2,1")
    with pytest.raises(InvalidArgument, match="data_format is given twice"):
        ops.MaxPool(root, x, "1,2,2,1", "1,2,2,1", "SAME", "data_format_ = NHWC;", data_format="NHWC")
    pooled = ops.FractionalMaxPool(root, x, "1,1.5,1.5,1")
    with pytest.raises(InvalidType, match=r"several outputs; say which: \.output"):
        ops.Square(root, pooled)
    assert [b.type.name for b in root.page.blocks.values()] == ["Const", "FractionalMaxPool"]


def test_plain_numbers_become_constants_of_the_other_operands_dtype():
    root = Scope.new_root()
    x = ops.Const(root, np.ones(3, np.float64))
    y = ops.Multiply(root, x, 2)
    assert (y.dtype, ClientSession(root).run(y).tolist()) == ("float64", [2, 2, 2])


def test_names_and_scopes():
    root = Scope.new_root()
    layer = root.new_sub_scope("layer")
    names = [ops.Const(s, [1.0]).block for s in (root, root, layer, layer.with_name("w"), layer.with_name("w"))]
    assert names == ["Const", "Const_1", "layer/Const", "layer/w", "layer/w_1"]
    assert ops.Const(root.new_sub_scope("layer"), [1.0]).block == "layer_1/Const"
    assert ops.Const(layer.new_sub_scope("inner"), [1.0]).block == "layer/inner/Const"


def test_scopes_with_a_policy():
    root = Scope.new_root()
    x = ops.Const(root, np.ones((1, 2, 2, 1), np.float32))
    y = ops.MaxPool(root.with_policy(nan="ignore").with_policy(ties="all"), x, "1,2,2,1", "1,2,2,1", "VALID")
    assert root.page[y.block].attributes["ties"] == "all"
    assert root.page[y.block].attributes["nan"] == "ignore"
    with pytest.raises(InvalidArgument, match="ties is 'last'"):
        root.with_policy(ties="last")


TENSORFLOWS = {"Concat": "ConcatV2", "RandomNormal": "RandomStandardNormal", "Divide": "RealDiv", "Subtract": "Sub"} | {
    "Multiply": "Mul", "Negate": "Neg"
}  # fmt: skip


def test_the_argument_order_is_that_of_tensorflows_operators():
    """C++ has the inputs first, then the attributes without a default, for every operator of that name."""
    pytest.importorskip("tensorflow")
    from tensorflow.python.framework import op_def_registry

    compared = set()
    for name in block_types:
        declared = op_def_registry.get(TENSORFLOWS.get(name, name))
        if declared is None or name in ("Const", "Load", "Save", "Select"):
            continue
        inputs = [argument.name for argument in declared.input_arg]
        counts = {argument.number_attr for argument in declared.input_arg}
        types = {argument.type_attr for argument in declared.input_arg}
        required = [a.name for a in declared.attr if not a.HasField("default_value") and a.name not in counts | types]
        mine = [p for p in inspect.signature(getattr(ops, name)).parameters if p not in ("scope", "attrs")]
        expected = [{"reduction_indices": "axis"}.get(n, n) for n in inputs + required]
        assert mine[: len(expected)] == expected, name
        compared.add(name)
    assert compared >= {n for n in operators if n not in ("FractionalMaxPoolGradGrad", "FractionalAvgPoolGradGrad")}
    assert compared >= {"Reshape", "Transpose", "Slice", "Pad", "Sum", "Max", "Cast", "Relu", "ReluGrad", "Concat"}
