"""Derivatives of every order, backward and forward, of every function, of the raw operators, and through transforms.

Numbers are compared with finite differences in double precision. Where a maximum switches there is no derivative, so
inputs are permutations of distinct, well separated numbers.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import poolgrad
import poolgrad.torch as pt
from poolgrad.catalog import operators

sys.path.insert(0, str(Path(__file__).parents[1]))
from malformed import GOOD

SAMPLES = {2: torch.tensor([[[0.2, 0.7], [0.5, 0.1]]]), 3: torch.tensor([[[0.2, 0.7, 0.4], [0.5, 0.1, 0.9]]])}


def distinct(*shape, device="cpu"):
    numbers = torch.randperm(int(np.prod(shape)), device=device).reshape(shape)
    return (numbers.double() / 10 + 0.1).requires_grad_()


def unpooled(x, axes):
    indices = getattr(pt, f"max_pool{axes}d")(x.detach(), 2, return_indices=True)[1]
    y = getattr(pt, f"avg_pool{axes}d")(x, 2)
    return getattr(pt, f"max_unpool{axes}d")(y, indices, 2)


def functions(axes):
    def of(name):
        return getattr(pt, f"{name}{axes}d")

    found = {
        "max": lambda x: of("max_pool")(x, 2, 1),
        "max same dilated": lambda x: of("max_pool")(x, 2, 2, "same", 2),
        "max with indices": lambda x: of("max_pool")(x, 3, 2, 1, return_indices=True)[0],
        "max, ties all": lambda x: of("max_pool")(x, 2, 1, ties="all"),
        "max, ties split": lambda x: of("max_pool")(x, 2, 1, ties="split"),
        "avg": lambda x: of("avg_pool")(x, 3, 2, 1),
        "avg of real elements": lambda x: of("avg_pool")(x, 3, 2, 1, True, False),
        "avg over a number": lambda x: of("avg_pool")(x, 2, divisor_override=3),
        "adaptive max": lambda x: of("adaptive_max_pool")(x, 3),
        "adaptive avg": lambda x: of("adaptive_avg_pool")(x, 3),
        "lp": lambda x: of("lp_pool")(x, 3, 2),
        "unpool": lambda x: unpooled(x, axes),
    }
    if axes > 1:
        found |= {
            "fractional max": lambda x: of("fractional_max_pool")(
                x, 2, 3, _random_samples=SAMPLES[axes].to(x.device, x.dtype)
            ),
            "fractional max, seed": lambda x: of("fractional_max_pool")(x, None, 3, seed=5, overlapping=True),
            "fractional avg": lambda x: of("fractional_avg_pool")(
                x, 2, 3, _random_samples=SAMPLES[axes].to(x.device, x.dtype)
            ),
            "fractional avg, seed": lambda x: of("fractional_avg_pool")(x, 2, 3, seed=5),
        }
    return found


CASES = [(axes, name) for axes in (1, 2, 3) for name in functions(axes)]
SMALL = {1: (1, 2, 6), 2: (1, 2, 5, 4), 3: (1, 2, 4, 4, 4)}


@pytest.mark.parametrize(("axes", "name"), CASES)
def test_first_order(axes, name, device):
    """Backward, forward, and both for a batch of directions at once."""
    assert gradcheck(
        functions(axes)[name],
        distinct(*SMALL[axes], device=device),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=axes == 3,
    )


@pytest.mark.parametrize(("axes", "name"), CASES)
def test_second_order(axes, name, device):
    """Backward over backward and forward over backward. The cube makes second derivatives that are not zero."""
    function = functions(axes)[name]
    x = distinct(*SMALL[axes], device=device)
    assert gradgradcheck(lambda x: function(x) ** 3, x, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize(("axes", "name"), [case for case in CASES if case[0] == 2])
def test_third_order(axes, name, device):
    """The derivative of a second derivative, against finite differences of that."""
    function = functions(axes)[name]

    def second(x):
        (first,) = torch.autograd.grad((function(x) ** 4).sum(), x, create_graph=True)
        (found,) = torch.autograd.grad((first**2).sum(), x, create_graph=True)
        return found

    assert gradcheck(second, distinct(1, 2, 5, 4, device=device), fast_mode=True)


@pytest.mark.parametrize("name", [name for axes, name in CASES if axes == 2 and name != "unpool"])
def test_transforms(name, device):
    """torch.func: each transform of a transform gives what plain autograd gives."""
    function = functions(2)[name]
    x = distinct(1, 2, 4, 4, device=device).detach()

    def loss(x):
        return (function(x) ** 3).sum()

    expected = torch.autograd.functional.hessian(loss, x)
    hessians = [
        torch.func.hessian(loss)(x),
        torch.func.jacrev(torch.func.jacrev(loss))(x),
        torch.func.jacfwd(torch.func.jacfwd(loss))(x),
        torch.func.jacrev(torch.func.jacfwd(loss))(x),
    ]
    for found in hessians:
        torch.testing.assert_close(found, expected)
    assert torch.func.jacrev(torch.func.hessian(loss))(x).abs().sum() > 0, "and a third on top"


@pytest.mark.parametrize("name", [name for axes, name in CASES if axes == 2])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_vmap_over_any_axis(name, at, device):
    function = functions(2)[name]
    several = [distinct(1, 2, 5, 4, device=device).detach() for _ in range(3)]
    stacked = torch.stack(several, at)
    expected = torch.stack([function(x) for x in several])
    torch.testing.assert_close(torch.func.vmap(function, in_dims=at)(stacked), expected)
    one_each = torch.func.vmap(torch.func.grad(lambda x: (function(x) ** 2).sum()), in_dims=at)(stacked)
    for x, found in zip(several, one_each, strict=True):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((function(leaf) ** 2).sum(), leaf)
        torch.testing.assert_close(found, gradient)


def test_forward_mode_by_hand(device):
    x = torch.tensor([[3.0, 1.0, 4.0, 1.0]], device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.tensor([[10.0, 20.0, 30.0, 40.0]], device=device))
        assert forward_ad.unpack_dual(pt.max_pool1d(dual, 2)).tangent.tolist() == [[10, 30]]
        assert forward_ad.unpack_dual(pt.avg_pool1d(dual, 2)).tangent.tolist() == [[15, 35]]


def test_backward_over_forward_by_hand(device):
    """The derivative along a direction has a gradient itself."""
    x = distinct(1, 6, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(pt.max_pool1d(dual**3, 2)).tangent
        (found,) = torch.autograd.grad(tangent.sum(), x)
    chosen = torch.zeros_like(x).scatter(1, pt.max_pool1d(x, 2, return_indices=True)[1], 1)
    torch.testing.assert_close(found, 6 * x.detach() * chosen)


# ---------------------------------------------------------------------------------------------------------------------
# The raw operators: what autograd finds is what the catalog declares


def good(name):
    """A good call. To make some of them takes a pooling on the CPU."""
    try:
        return dict(GOOD[name]())
    except poolgrad.errors.MissingKernels:
        pytest.skip("the compiled CPU kernels are not installed")


def arguments_of(name, device):
    """The arguments of a good call, with tensors in double precision that have no ties."""
    given = good(name)
    for key, value in given.items():
        if isinstance(value, np.ndarray) and key in {i.name for i in operators[name].inputs if i.kind.role == "data"}:
            given[key] = torch.from_numpy(np.array(value)).to(device)
            if value.dtype.kind == "f":
                given[key] = given[key].double()
    return given


@pytest.mark.parametrize("name", list(operators))
def test_raw_operators_on_tensors(name, device, numpy_works):
    """Tensors in, tensors out, with the values that arrays give."""
    given = arguments_of(name, device)
    found = getattr(poolgrad.raw_ops, name)(**given)
    plain = {key: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
    expected = getattr(poolgrad.raw_ops, name)(**plain)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for result, value in pairs:
        assert isinstance(result, torch.Tensor)
        assert np.array_equal(result.cpu().numpy(), value, equal_nan=True)


@pytest.mark.parametrize("name", list(operators))
def test_raw_operators_differentiate_as_declared(name, device):
    operator = operators[name]
    given = arguments_of(name, device)
    for argument, derivative in operator.derivatives.items():
        call = given | {argument: given[argument].clone().requires_grad_()}
        results = getattr(poolgrad.raw_ops, name)(**call)
        outputs = dict(zip(operator.outputs, results if isinstance(results, tuple) else (results,), strict=True))
        first = outputs[operator.outputs[0]]
        direction = torch.linspace(1, 2, first.numel(), dtype=first.dtype, device=device).reshape(first.shape)
        (found,) = torch.autograd.grad(first, call[argument], direction, create_graph=True)
        declared = derivative.arguments(
            call, {n: o.detach() for n, o in outputs.items()}, {operator.outputs[0]: direction}, shape=lambda x: x.shape
        )
        declared = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in declared.items()}
        torch.testing.assert_close(found, getattr(poolgrad.raw_ops, derivative.operator)(**declared))


@pytest.mark.parametrize("name", [name for name, op in operators.items() if op.derivatives])
def test_raw_operators_have_every_order(name, device):
    operator = operators[name]
    given = arguments_of(name, device)
    (argument,) = operator.derivatives
    if given.get("deterministic") is False:
        given |= {"deterministic": True, "seed": 1, "seed2": 2}
    x = distinct(*given[argument].shape, device=device)
    if argument in ("input", "value", "grad", "out_backprop"):

        def function(x):
            result = getattr(poolgrad.raw_ops, name)(**given | {argument: x})
            return (result[0] if isinstance(result, tuple) else result) ** 3

        assert gradcheck(function, x, check_forward_ad=True, fast_mode=True)
        assert gradgradcheck(function, x, check_fwd_over_rev=True, fast_mode=True)


def test_a_policy_holds_for_the_gradient_of_a_raw_operator(device):
    x = torch.ones(1, 2, 2, 1, dtype=torch.float64, device=device, requires_grad=True)
    with poolgrad.policy(ties="split"):
        y = poolgrad.raw_ops.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    y.sum().backward()
    assert x.grad.flatten().tolist() == [0.25] * 4


def test_maps_and_functional_calls_take_tensors(device, numpy_works):
    from poolgrad import maps

    x = distinct(1, 6, 6, 2, device=device)
    pool = poolgrad.pool(x.shape, 2)
    choice = maps.choose(pool, x)
    assert choice.dtype == torch.uint8
    assert torch.equal(maps.take(pool, x, choice), poolgrad.max_pool(x, 2))
    assert gradcheck(lambda g: maps.put(pool, g, choice), distinct(1, 3, 3, 2, device=device), check_forward_ad=True)
    assert gradcheck(lambda x: maps.take(pool, x, choice), x, check_forward_ad=True)
    assert gradcheck(lambda x: poolgrad.max_pool(x, 3, 2, "same", ties="split"), x)
    overlapping = poolgrad.pool(x.shape, 3, 1)
    choice = maps.choose(overlapping, x)
    put_last = lambda g: maps.put(overlapping, g, choice, assign=True)  # noqa: E731
    assert gradcheck(put_last, distinct(*choice.shape, device=device))
    g = torch.arange(float(choice.numel()), device=device).reshape(choice.shape)
    expected = maps.put(overlapping, g.cpu().numpy(), choice.cpu().numpy(), assign=True)
    assert np.array_equal(put_last(g).cpu().numpy(), expected)
    with pytest.raises(TypeError, match=r"poolgrad\.torch"):
        poolgrad.lp_pool(x, 2)
