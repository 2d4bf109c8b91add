"""Symbolic gradients are right: against PyTorch on random pages, against differences for every block and order."""

import numpy as np
import pytest
from graphs import gradients_in_torch, pages
from hypothesis import given, settings
from malformed import GOOD

import poolgrad as pg
from poolgrad.catalog import operators
from poolgrad.errors import InvalidArgument, InvalidType
from poolgrad.graph import ClientSession, Output, PageError, Scope, add_symbolic_gradients, block_types, ops


@settings(max_examples=60)
@given(pages())
def test_random_pages_have_the_gradients_of_pytorch(made):
    scope, inputs, loss, numbers = made
    value, expected = gradients_in_torch(scope.page, loss, inputs, numbers)
    found = add_symbolic_gradients(scope, [loss], inputs)
    got = ClientSession(scope).run([loss, *found])
    np.testing.assert_allclose(got[0], value.detach().numpy(), rtol=1e-9, atol=1e-9)
    for mine, theirs in zip(got[1:], expected):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-8, atol=1e-8)


@settings(max_examples=30)
@given(pages(open_shapes=True))
def test_open_shapes_give_the_same_gradients(made):
    """Where a placeholder leaves shapes open, gradients find them when they run."""
    scope, inputs, loss, numbers = made
    _, expected = gradients_in_torch(scope.page, loss, inputs, numbers)
    found = add_symbolic_gradients(scope, [loss], inputs)
    got = ClientSession(scope).run(found, feeds=dict(zip(inputs, numbers)))
    for mine, theirs in zip(got, expected):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-8, atol=1e-8)


# ---------------------------------------------------------------------------------------------------------------------
# Every block by itself

VALUE = np.array([[0.7, -1.3, 2.1], [0.4, 1.9, -0.6]])
OTHER = np.array([[1.5, 0.8, -0.9], [-2.2, 0.3, 1.1]])
POSITIVE = np.abs(VALUE) + 0.1

CALLS = {
    "Identity": ((VALUE,), {}),
    "Cast": ((VALUE, "float64"), {}),
    "Negate": ((VALUE,), {}),
    "Square": ((VALUE,), {}),
    "Sqrt": ((POSITIVE,), {}),
    "Abs": ((VALUE,), {}),
    "Relu": ((VALUE,), {}),
    "ReluGrad": ((VALUE, OTHER), {}),
    "Exp": ((VALUE,), {}),
    "Log": ((POSITIVE,), {}),
    "Add": ((VALUE, OTHER[:1]), {}),
    "Subtract": ((VALUE[:, :1], OTHER), {}),
    "Multiply": ((VALUE, OTHER[0]), {}),
    "Divide": ((VALUE, OTHER[:1]), {}),
    "Maximum": ((VALUE, OTHER), {}),
    "Minimum": ((VALUE, OTHER), {}),
    "Select": ((VALUE > 0.5, VALUE, OTHER), {}),
    "Sum": ((VALUE, [1]), {}),
    "Repeat": ((VALUE, [2, 4, 3]), {"axis": [1]}),
    "Mean": ((VALUE, [-1]), {"keep_dims": True}),
    "Spread": ((VALUE, [2, 4, 3]), {"axis": [1]}),
    "SumTo": ((VALUE, [1, 3]), {}),
    "BroadcastTo": ((VALUE, [4, 2, 3]), {}),
    "Max": ((VALUE, [0]), {}),
    "Min": ((VALUE, []), {}),
    "Reshape": ((VALUE, [3, -1]), {}),
    "Transpose": ((VALUE, [1, 0]), {}),
    "Slice": ((VALUE, [0, 1], [-1, 2]), {}),
    "Place": ((VALUE, [4, 5], [1, 2]), {}),
    "Pad": ((VALUE, [1, 0, 2, 1]), {"constant_values": 3.5}),
}


def const(scope, value):
    return ops.Const(scope, value) if isinstance(value, np.ndarray) and value.ndim else value


def along(session, output, source, direction, feeds, step=1e-6):
    """The derivative of an output along a direction of one input, by differences."""
    up, down = (session.run(output, feeds | {source: feeds[source] + s * direction}) for s in (step, -step))
    return (up - down) / (2 * step)


def check_against_differences(scope, outputs, sources, rng, rtol=1e-5):
    """For a random weight of every output: the symbolic gradient, and the slope along a random direction."""
    session = ClientSession(scope)
    first = session.run(outputs[0])
    weight = ops.Const(scope, rng.normal(size=first.shape))
    loss = ops.Sum(scope, ops.Multiply(scope, outputs[0], weight))
    gradients = add_symbolic_gradients(scope, [loss], sources)
    feeds = dict(zip(sources, session.run(list(sources))))
    for source, gradient in zip(sources, session.run(gradients)):
        direction = rng.normal(size=feeds[source].shape)
        expected = along(session, loss, source, direction, feeds)
        np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=rtol, atol=1e-6)
    return gradients


@pytest.mark.parametrize("name", CALLS)
def test_every_block_and_its_second_derivative(name, rng):
    arguments, named = CALLS[name]
    scope = Scope.new_root()
    given = [const(scope, a) for a in arguments]
    sources = [a for a in given if isinstance(a, Output) and a.dtype == "float64"]
    output = getattr(ops, name)(scope, *given, **named)
    squared = ops.Square(scope, output)
    first = check_against_differences(scope, [squared], sources, rng)
    second = ops.Sum(scope, ops.Square(scope, first[0]))
    check_against_differences(scope, [second], sources[:1], rng, rtol=1e-4)


def test_concat_and_its_parts(rng):
    scope = Scope.new_root()
    x, y = ops.Const(scope, VALUE), ops.Const(scope, OTHER[:1])
    joined = ops.Square(scope, ops.Concat(scope, [x, y, x], 0))
    first = check_against_differences(scope, [joined], [x, y], rng)
    check_against_differences(scope, [ops.Sum(scope, ops.Square(scope, first[0]))], [x, y], rng)


def test_every_differentiable_block_is_tried_here():
    """A new block with a derivative must come with a test of it."""
    elsewhere = {"Concat", "ConcatPart", "Save"}
    assert {n for n, t in block_types.items() if t.derive and not t.pooling} - elsewhere == set(CALLS)


# ---------------------------------------------------------------------------------------------------------------------
# Pooling: every operator of the catalog, three orders


def pooling_call(name, scope):
    given = {k: v for k, v in GOOD[name]().items() if v is not None}
    if "deterministic" in {a.name for a in operators[name].attributes}:
        given |= {"deterministic": True, "seed": 3}
    floats = {k: v.astype(np.float64) for k, v in given.items() if isinstance(v, np.ndarray) and v.dtype == np.float32}
    wired = {k: ops.Const(scope, v) for k, v in (given | floats).items() if isinstance(v, np.ndarray)}
    made = getattr(ops, name)(scope, **given | wired)
    return wired, made if isinstance(made, Output) else made.output


@pytest.mark.parametrize("name", sorted(operators))
def test_pooling_operators_to_the_third_order(name, rng):
    """The derivative with respect to the linear input is exact: the map is linear in it, so differences are too."""
    scope = Scope.new_root()
    wired, output = pooling_call(name, scope)
    linear = [wired[pin] for pin in operators[name].derivatives if "Grad" in name or "Avg" in name]
    sources = linear or [wired[pin] for pin in operators[name].derivatives]
    for _ in range(3):
        session = ClientSession(scope)
        weight = rng.normal(size=session.run(output).shape)
        loss = ops.Sum(scope, ops.Multiply(scope, output, ops.Const(scope, weight)))
        (gradient,) = add_symbolic_gradients(scope, [loss], sources)
        if linear:
            x = session.run(sources[0])
            direction = rng.normal(size=x.shape)
            slope = (session.run(gradient) * direction).sum()
            with_direction = session.run(loss, {sources[0]: direction}) if x.dtype == np.float64 else slope
            np.testing.assert_allclose(slope, with_direction, rtol=1e-9, atol=1e-9)
        output = ops.Multiply(scope, gradient, ops.Const(scope, rng.normal(size=session.run(gradient).shape)))
        output = ops.Multiply(scope, output, sources[0])


def test_gradients_are_operators_of_the_catalog():
    """MaxPool3D is differentiated by MaxPool3DGrad blocks, those by MaxPool3DGradGrad, with the same attributes."""
    root = Scope.new_root()
    x = ops.Const(root, np.random.default_rng(0).normal(size=(1, 4, 4, 4, 1)))
    y = ops.MaxPool3D(root, x, "1,2,2,2,1", "1,1,1,1,1", "SAME", ties="split")
    (gx,) = add_symbolic_gradients(root, [ops.Sum(root, ops.Square(root, y))], [x])
    assert root.page[gx.block].type.name == "MaxPool3DGrad"
    assert root.page[gx.block].attributes["strides"] == (1, 1, 1, 1, 1)
    assert root.page[gx.block].attributes["ties"] == "split"
    add_symbolic_gradients(root, [gx], [x])
    assert "MaxPool3DGradGrad" in {block.type.name for block in root.page.blocks.values()}


def test_fractional_pooling_second_order(rng):
    root = Scope.new_root()
    x = ops.Const(root, rng.normal(size=(1, 6, 7, 2)))
    y = ops.FractionalMaxPool(root, x, "1,1.44,1.73,1", "overlapping_ = true;deterministic_ = true;seed_ = 5;")
    first = check_against_differences(root, [ops.Square(root, y.output)], [x], rng)
    check_against_differences(root, [ops.Sum(root, ops.Square(root, first[0]))], [x], rng, rtol=1e-4)


@pytest.mark.parametrize("ties", ["first", "all", "split"])
@pytest.mark.parametrize("reduce", [ops.Max, ops.Min])
def test_an_infinite_gradient_goes_to_the_winner_alone(reduce, ties):
    """The losers get nothing, which times infinity would not be a number."""
    sign = 1 if reduce is ops.Max else -1
    root = Scope.new_root()
    x = ops.Const(root, np.array([[-1, 0, -2], [3, 1, 2]], np.float64) * sign, dtype="float64")
    top = reduce(root, x, "1", ties=ties)
    (gx,) = add_symbolic_gradients(root, [ops.Sqrt(root, ops.Abs(root, top))], [x], nested=True)
    arriving = ops.Const(root, np.array([np.inf, 2.0]), dtype="float64")
    (direct,) = add_symbolic_gradients(root, [top], [x], [arriving])
    (again,) = add_symbolic_gradients(root, [direct], [arriving], [ops.OnesLike(root, x)])
    found, second = ClientSession(root).run([direct, again])
    assert found.tolist() == [[0, np.inf, 0], [2, 0, 0]]
    assert second.tolist() == [1, 1]
    assert ClientSession(root).run(gx)[0, [0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize("ties", ["first", "all", "split"])
def test_ties_of_a_reduction_follow_the_policy(ties):
    root = Scope.new_root()
    x = ops.Const(root, [2.0, 5.0, 5.0, 1.0])
    (gx,) = add_symbolic_gradients(root, [ops.Max(root, x, ties=ties)], [x])
    expected = {"first": [0, 1, 0, 0], "all": [0, 1, 1, 0], "split": [0, 0.5, 0.5, 0]}[ties]
    assert ClientSession(root).run(gx).tolist() == expected


# ---------------------------------------------------------------------------------------------------------------------
# The rules around them


def test_a_wired_permutation():
    root = Scope.new_root()
    x = ops.Const(root, np.arange(6.0).reshape(1, 2, 3))
    y = ops.Transpose(root, x, ops.Const(root, np.array([2, 0, 1], np.int32)))
    (gx,) = add_symbolic_gradients(root, [ops.Square(root, y)], [x])
    assert ClientSession(root).run(gx).tolist() == (2 * np.arange(6.0).reshape(1, 2, 3)).tolist()
    unknown = ops.Placeholder(root, "int32", shape="3")
    z = ops.Transpose(root, x, unknown)
    before = root.page.dumps()
    with pytest.raises(InvalidArgument, match="perm must be known before the run"):
        add_symbolic_gradients(root, [z], [x])
    assert root.page.dumps() == before, "nothing half-built stays on the page"


def test_given_gradients_arrive_at_the_outputs():
    root = Scope.new_root()
    x = ops.Const(root, [1.0, 2.0])
    (gx,) = add_symbolic_gradients(root, [ops.Square(root, x)], [x], [ops.Const(root, [10.0, 100.0])])
    assert ClientSession(root).run(gx).tolist() == [20, 400]


def test_what_does_not_matter_has_zeros():
    root = Scope.new_root()
    x, z = ops.Const(root, [1.0, 2.0]), ops.Const(root, [[3.0]])
    gradients = add_symbolic_gradients(root, [ops.Square(root, x), ops.Identity(root, x)], [x, z])
    assert [g.tolist() for g in ClientSession(root).run(gradients)] == [[3, 5], [[0]]]


def test_no_gradient_flows_through_integers():
    root = Scope.new_root()
    x = ops.Const(root, [1.5, 2.5])
    y = ops.Cast(root, ops.Cast(root, x, "int32"), "float32")
    assert ClientSession(root).run(add_symbolic_gradients(root, [y], [x]))[0].tolist() == [0, 0]
    with pytest.raises(InvalidType, match="int32"):
        add_symbolic_gradients(root, [ops.Cast(root, x, "int32")], [x])


def test_refusals():
    root, other = Scope.new_root(), Scope.new_root()
    x = ops.Const(root, [1.0])
    with pytest.raises(PageError, match="another page"):
        add_symbolic_gradients(other, [x], [x])
    with pytest.raises(InvalidType):
        add_symbolic_gradients(root, [np.ones(1)], [x])
    with pytest.raises(InvalidArgument, match="1 outputs, but 0"):
        add_symbolic_gradients(root, [x], [x], [])


def test_the_sum_of_several_paths_in_a_fixed_order():
    """The same page gives the same bits, however often it is built."""

    def build():
        root = Scope.new_root()
        x = ops.Const(root, np.linspace(0.1, 1, 7, dtype=np.float32))
        loss = ops.Sum(root, ops.Add(root, ops.Exp(root, x), ops.Multiply(root, ops.Square(root, x), ops.Log(root, x))))
        return root, add_symbolic_gradients(root, [loss], [x])[0]

    first, second = build(), build()
    assert first[0].page == second[0].page
    assert ClientSession(first[0]).run(first[1]).tobytes() == ClientSession(second[0]).run(second[1]).tobytes()


def test_page_add_gradients_for_an_editor():
    root = Scope.new_root()
    x = ops.Const(root.with_name("x"), [3.0])
    ops.Square(root.with_name("y"), x)
    made = root.page.add_gradients(["y.output"], ["x.output"])
    assert set(made["blocks"]) == {name for name in root.page.blocks if name.startswith("gradients/")}
    assert ClientSession(root).run(made["wires"][0]).tolist() == [6]
    before = root.page.dumps()
    with pytest.raises(PageError):
        root.page.add_gradients(["nothing.output"], ["x.output"])
    assert root.page.dumps() == before


def test_gradients_are_those_of_raw_ops(rng):
    x = rng.normal(size=(2, 5, 5, 3)).astype(np.float32)
    root = Scope.new_root()
    source = ops.Const(root, x)
    pooling = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    y = ops.MaxPool(root, source, **pooling)
    (gx,) = add_symbolic_gradients(root, [ops.Sum(root, y)], [source])
    top = pg.raw_ops.MaxPool(input=x, **pooling)
    expected = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=top, grad=np.ones_like(top), **pooling)
    assert ClientSession(root).run(gx).tobytes() == expected.tobytes()
