"""PyTorch's own samples for its pooling functions, which ship with it: our functions pass what PyTorch's must pass.

`make test` takes an evenly spread part of the thousands of samples; `make test-full` takes all of them.
"""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import poolgrad.torch as pt

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")
invocations = pytest.importorskip("torch.testing._internal.common_methods_invocations")

ENTRIES = [
    entry
    for entry in invocations.op_db
    if entry.name.startswith("nn.functional.") and "pool" in entry.name and hasattr(pt, entry.name.rpartition(".")[2])
]
IDS = [entry.name.rpartition(".")[2] + entry.variant_test_name for entry in ENTRIES]


def ours(entry):
    return getattr(pt, entry.name.rpartition(".")[2])


def theirs(entry):
    return getattr(torch.nn.functional, entry.name.rpartition(".")[2])


def samples(entry, device, dtype, most=None, requires_grad=False):
    """An evenly spread part of the samples. Making them takes the longest, so long lists are not made to their end."""
    made = entry.sample_inputs(device, dtype, requires_grad=requires_grad)
    if most is None:
        return list(made)
    found = list(itertools.islice(made, 10 * most))
    return found[:: -(-len(found) // most)]


def outcome(function, sample):
    """The results and the gradient for a fixed direction. The same random numbers are drawn every time."""
    x = sample.input.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    torch.manual_seed(1)
    results = function(x, *sample.args, **sample.kwargs)
    first = results[0] if isinstance(results, tuple) else results
    direction = torch.linspace(-1, 1, first.numel(), dtype=first.dtype, device=first.device).reshape(first.shape)
    return results, torch.autograd.grad(first, x, direction)[0]


def check_results(entry, device, most):
    chosen = samples(entry, device, torch.float32, most)
    assert chosen
    for sample in chosen:
        (found, gradient), (expected, their_gradient) = (outcome(f(entry), sample) for f in (ours, theirs))
        torch.testing.assert_close(found, expected)
        if not entry.name.startswith("nn.functional.max_unpool") or entry.variant_test_name == "grad":
            # PyTorch hands an overwritten entry of an unpooling a gradient too
            torch.testing.assert_close(gradient, their_gradient)


def first_of(function, sample):
    def call(x):
        torch.manual_seed(1)
        results = function(x, *sample.args, **sample.kwargs)
        return results[0] if isinstance(results, tuple) else results

    return call


def check_derivatives(entry, device, most):
    for sample in samples(entry, device, torch.float64, most, requires_grad=True):
        if sample.input.numel() == 0:
            continue
        function = first_of(ours(entry), sample)
        assert gradcheck(function, sample.input, check_forward_ad=True, fast_mode=True)
        assert gradgradcheck(function, sample.input, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_results(entry, device):
    check_results(entry, device, most=20)


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_derivatives(entry, device):
    check_derivatives(entry, device, most=4)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.error_inputs_func], ids=lambda e: e.name.rpartition(".")[2])
def test_errors(entry, device):
    """What PyTorch refuses we refuse, with an error that the same `except` catches."""
    for error in entry.error_inputs(device):
        sample = error.sample_input
        with pytest.raises(error.error_type):
            ours(entry)(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.full
@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_all_results(entry, device):
    check_results(entry, device, most=None)


@pytest.mark.full
@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_all_derivatives(entry, device):
    check_derivatives(entry, device, most=None)


def test_every_pooling_function_of_pytorch_is_here():
    names = {name for name in dir(torch.nn.functional) if "pool" in name and not name.startswith("_")}
    assert {name for name in names if name[-1] == "d" or name.endswith("_with_indices")} - set(pt.__all__) == set()
