"""What is said of a page before it runs is true when it runs, and what is open is said to be open."""

import numpy as np
import pytest
from graphs import pages
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed import GOOD

from poolgrad.catalog import operators
from poolgrad.errors import InvalidArgument
from poolgrad.graph import ClientSession, Output, Page, Scope, ops


def agrees(spec, array):
    assert spec.dtype in (None, array.dtype.name)
    assert spec.shape is None or len(spec.shape) == array.ndim
    assert spec.shape is None or all(n is None or n == m for n, m in zip(spec.shape, array.shape))
    assert spec.value is None or all(n is None or n == m for n, m in zip(spec.value, array.reshape(-1)))


@settings(max_examples=60)
@given(pages(open_shapes=True))
def test_inference_never_says_what_is_not_so(made):
    scope, inputs, _, numbers = made
    before = scope.page.infer().outputs
    report = ClientSession(scope).evaluate(feeds=dict(zip(inputs, numbers)))
    assert report.ok, report.problems
    for name, result in report.blocks.items():
        for output, array in result.outputs.items():
            agrees(before[f"{name}.{output}"], array)


@settings(max_examples=30)
@given(pages())
def test_known_inputs_leave_nothing_open(made):
    assert all(spec.known for spec in made[0].page.infer().outputs.values())


def placed(name, open_axes, unknown_dtype=False, unknown_rank=False):
    """A good call of an operator whose inputs are placeholders with some axes open."""
    scope = Scope.new_root()
    given = {k: v for k, v in GOOD[name]().items() if v is not None}
    feeds = {}
    for key, value in given.items():
        if isinstance(value, np.ndarray) and key in {i.name for i in operators[name].inputs}:
            shape = [-1 if axis in open_axes else n for axis, n in enumerate(value.shape)]
            inner = scope.with_name(key)
            given[key] = ops.Placeholder(inner, value.dtype.name, shape=[] if unknown_rank else shape)
            feeds[key] = value
    made = getattr(ops, name)(scope, **given)
    return scope, feeds, [made] if isinstance(made, Output) else list(made)


@pytest.mark.parametrize("open_axes", [(), (0,), (1,), (1, 2), (3,), (0, 1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("name", sorted(operators))
def test_every_operator_with_open_axes(name, open_axes):
    scope, feeds, outputs = placed(name, open_axes)
    before = [o.spec for o in outputs]
    for spec, array in zip(before, ClientSession(scope).run(outputs, feeds)):
        agrees(spec, array)
    if not open_axes and not any(pin.host for pin in operators[name].inputs):
        assert all(spec.known for spec in before)


@pytest.mark.parametrize("name", sorted(operators))
def test_every_operator_with_nothing_known_but_the_dtype(name):
    scope, feeds, outputs = placed(name, (), unknown_rank=True)
    for spec, array in zip([o.spec for o in outputs], ClientSession(scope).run(outputs, feeds)):
        agrees(spec, array)


def test_an_open_batch_leaves_the_rest_known():
    root = Scope.new_root()
    x = ops.Placeholder(root, "float32", shape="-1,9,8,3")
    y = ops.MaxPool(root, x, "1,3,2,1", "1,2,2,1", "VALID")
    g = ops.MaxPoolGrad(root, x, y, y, "1,3,2,1", "1,2,2,1", "VALID")
    assert (y.shape, g.shape) == ((None, 4, 4, 3), (None, 9, 8, 3))
    assert repr(y) == "<Output MaxPool.output: float32 [?, 4, 4, 3]>"


def test_strides_longer_than_any_guess():
    """An open axis stays open even where the lengths that were tried all give the same."""
    root = Scope.new_root()
    x = ops.Placeholder(root, "float32", shape="1,-1,4,1")
    y = ops.MaxPool(root, x, "1,1,1,1", "1,100000,1,1", "SAME")
    assert y.shape == (1, None, 4, 1)


def test_problems_are_found_although_the_batch_is_open():
    root = Scope.new_root()
    x = ops.Placeholder(root, "float32", shape="-1,4,4,1")
    with pytest.raises(InvalidArgument, match=r"ksize .*expected 4 integers"):
        ops.MaxPool(root, x, "1,2,2", "1,2,2,1", "VALID")
    with pytest.raises(InvalidArgument, match="must be at least 1"):
        ops.MaxPool(root, x, "1,0,2,1", "1,2,2,1", "VALID")


def test_shapes_travel_through_shape_blocks():
    root = Scope.new_root()
    x = ops.Placeholder(root, "float32", shape="-1,6")
    flat = ops.Reshape(root, x, "-1")
    back = ops.Reshape(root, flat, ops.Shape(root, x))
    assert back.shape == (None, 6)
    part = ops.Slice(root, ops.Shape(root, x), [1], [1])
    assert part.spec.value == (6,)


def test_known_sequences_are_checked_before_the_run():
    page = Page()
    page.add("Const", "x", {"value": 0, "shape": "1,4,4,1"})
    page.add("Const", "rows", {"value": "0,2,5", "dtype": "int64"})
    attributes = {"col_pooling_sequence": "0,1,4"}
    page.add("FractionalAvgPoolGradGrad", "pool", attributes)
    page.wire("x.output", "pool.grad")
    page.wire("rows.output", "pool.row_pooling_sequence")
    (problem,) = page.infer().problems
    assert (problem.block, problem.place) == ("pool", "row_pooling_sequence")


def test_sequences_of_which_only_the_length_is_known():
    root = Scope.new_root()
    x = ops.Placeholder(root, "float32", shape="-1,30,30,2")
    r = ops.FractionalMaxPool(root, x, "1,1.44,1.73,1")
    assert r.output.shape == (None, 20, 17, 2)
    assert r.row_pooling_sequence.shape == (21,)
    g = ops.FractionalMaxPoolGrad(
        root, x, r.output, r.output, r.row_pooling_sequence, r.col_pooling_sequence
    )  # fmt: skip
    assert g.shape == (None, 30, 30, 2)


def test_a_problem_does_not_cascade():
    page = Page()
    page.add("Const", "x", {"value": "1,2"})
    page.add("Reshape", "bad", {"shape": "3"})
    page.wire("x.output", "bad.tensor")
    for name in ("a", "b"):
        page.add("Square", name)
    page.wire("bad.output", "a.x")
    page.wire("a.output", "b.x")
    found = page.infer()
    assert [(p.block, p.place) for p in found.problems] == [("bad", "shape")]
    assert found.outputs["b.output"].text() == "? [...]"
    assert found.to_dict()["problems"][0]["message"].startswith("shape [3] does not fit the 2 elements")


@settings(max_examples=100)
@given(st.data())
def test_blocks_with_any_attributes_never_surprise(data):
    """Whatever is typed into a block, inference ends in a spec or in one of our errors, quickly."""
    name = data.draw(st.sampled_from(["MaxPool", "AvgPool3D", "FractionalMaxPool", "Pad", "Slice", "Reshape", "Sum"]))
    page = Page()
    page.add("Const", "x", {"value": 0, "shape": data.draw(st.lists(st.integers(0, 5), max_size=5))})
    numbers = st.lists(st.integers(-2, 2**40), max_size=6)
    block = page.add(name)
    for setting in block.type.settings.values():
        if data.draw(st.booleans()):
            page.set(block.name, setting.name, data.draw(st.one_of(numbers, st.sampled_from(["", "SAME", "1,2", "x"]))))
    for pin in block.type.inputs[:1]:
        page.wire("x.output", f"{block.name}.{pin.name}")
    page.infer()
    ClientSession(page, max_memory=2**20, threads=1).evaluate()
