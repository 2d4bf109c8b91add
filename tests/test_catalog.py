"""The catalog: every operator plans without data, and its stated derivatives are its derivatives."""

import numpy as np
import pytest
from generate import array_of
from malformed import GOOD

import poolgrad as pg
from poolgrad.catalog import Tensor, operators

NAMES = list(operators)


def seeded(op):
    return {"deterministic": True, "seed": 3} if op in ("FractionalMaxPool", "FractionalAvgPool") else {}


def tensors(op):
    """The names of the operator's data inputs of floating type."""
    return [i.name for i in operators[op].inputs if i.kind.name == "tensor"]


def outputs(op, arguments):
    result = getattr(pg.raw_ops, op)(**arguments)
    return dict(zip(operators[op].outputs, result if isinstance(result, tuple) else (result,)))


def good(op, rng=None):
    """A good call in float64; random tie-free data if a generator is given."""
    a = GOOD[op]() | seeded(op)
    for name in tensors(op):
        a[name] = a[name].astype(np.float64)
    if rng is not None:
        first = next((n for n in ("orig_input", "input", "value") if n in a), None)
        if first:
            a[first] = array_of(rng, a[first].shape, "float64", "distinct")
        if "orig_output" in a:
            forward = op.replace("Grad", "")
            keep = {k: v for k, v in a.items() if k not in ("orig_input", "orig_output", "grad", "out_backprop")}
            if "Fractional" in op:
                shape_of = [np.diff(a[s]) for s in ("row_pooling_sequence", "col_pooling_sequence")]
                x = a["orig_input"]
                rows = np.maximum.reduceat(x, np.cumsum(shape_of[0]) - shape_of[0], axis=1)
                a["orig_output"] = np.maximum.reduceat(rows, np.cumsum(shape_of[1]) - shape_of[1], axis=2)
            else:
                a["orig_output"] = getattr(pg.raw_ops, forward)(input=a["orig_input"], **keep)
        for name in ("grad", "out_backprop"):
            if name in a:
                a[name] = array_of(rng, a[name].shape, "float64")
    return a


@pytest.mark.parametrize("op", NAMES)
def test_a_plan_tells_the_shapes_without_data(op):
    a = good(op)
    data = {i.name for i in operators[op].inputs if not i.host}
    described = {k: Tensor(v.shape, str(v.dtype)) if k in data else v for k, v in a.items()}
    plan = operators[op].plan(**described)
    results = outputs(op, a)
    assert [t.name for t in plan.outputs] == list(results)
    for tensor, result in zip(plan.outputs, results.values()):
        assert (tuple(tensor.shape), tensor.dtype) == (result.shape, str(result.dtype))


@pytest.mark.parametrize("op", NAMES)
def test_a_plan_refuses_what_a_call_refuses(op):
    data = {i.name for i in operators[op].inputs if not i.host}
    a = {k: Tensor((*v.shape, 1), str(v.dtype)) if k in data else v for k, v in good(op).items()}
    with pytest.raises(pg.errors.InvalidArgument, match=op):
        operators[op].plan(**a)


@pytest.mark.parametrize("op", NAMES)
def test_every_operator_has_a_derivative(op):
    """And its operator is in the catalog, so there is a derivative of any order."""
    assert operators[op].derivatives
    for wrt, derivative in operators[op].derivatives.items():
        assert wrt in tensors(op) and derivative.operator in operators


@pytest.mark.parametrize("op", NAMES)
def test_the_derivative_is_right(rng, op):
    """<d op(v), g> = <v, derivative(g)>: by central differences, exact for piecewise linear functions away from
    ties."""
    a = good(op, rng)
    produced = outputs(op, a)
    name = operators[op].outputs[0]
    for wrt, derivative in operators[op].derivatives.items():
        g = array_of(rng, produced[name].shape, "float64")
        arguments = derivative.arguments(a, produced, {name: g})
        gx = getattr(pg.raw_ops, derivative.operator)(**arguments)
        gx = gx[0] if isinstance(gx, tuple) else gx
        assert gx.shape == a[wrt].shape
        v = array_of(rng, a[wrt].shape, "float64")
        step = 1 / 64  # data lie 1/4 apart: no maximum changes hands, and binary fractions add exactly
        up, down = (outputs(op, {**a, wrt: a[wrt] + sign * step * v})[name] for sign in (1, -1))
        slope = float(((up - down) * g).sum()) / (2 * step)
        assert slope == pytest.approx(float((gx * v).sum()), rel=1e-9, abs=1e-9), f"{op} with respect to {wrt}"


@pytest.mark.parametrize("op", NAMES)
def test_derivatives_of_derivatives_come_back(op):
    """Following the first tensor's derivative four times never leaves the catalog."""
    current = op
    for _ in range(4):
        current = next(iter(operators[current].derivatives.values())).operator
        assert current in operators
