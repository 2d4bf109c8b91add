"""poolgrad.torch.functional against torch.nn.functional, which it can stand in for, and against its own rules where
PyTorch has none."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import poolgrad
import poolgrad.torch as pt
from poolgrad.errors import InvalidArgument, InvalidType

SIZES = (9, 10, 7)
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def image(axes, device, dtype=torch.float32, batch=2, channels=3):
    shape = (batch, channels, *SIZES[:axes])
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype, device=device)
    return torch.randint(0, 100, shape, dtype=dtype, device=device)


def both(name, axes):
    return getattr(F, f"{name}{axes}d"), getattr(pt, f"{name}{axes}d")


def with_gradient(function, x, *args, **kwargs):
    """The results, and the gradient of the first for a fixed direction."""
    x = x.detach().clone().requires_grad_()
    results = function(x, *args, **kwargs)
    first = results[0] if isinstance(results, tuple) else results
    direction = torch.linspace(-1, 1, first.numel(), dtype=first.dtype, device=first.device).reshape(first.shape)
    (gradient,) = torch.autograd.grad(first, x, direction)
    return results, gradient


def assert_same(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


REGULAR = list(itertools.product((2, 3), (None, 1, 2), (0, 1), (1, 2), (False, True)))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_pool(axes, device):
    theirs, ours = both("max_pool", axes)
    x = image(axes, device)
    for kernel, stride, padding, dilation, ceil in REGULAR:
        args = (kernel, stride, padding, dilation, ceil, True)
        expected, expected_gradient = with_gradient(theirs, x, *args)
        found, gradient = with_gradient(ours, x, *args)
        assert_same(found, expected, rtol=0, atol=0)
        assert_same(gradient, expected_gradient)
        assert torch.equal(ours(x, *args[:-1]), expected[0]), "without indices the same maxima"


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool(axes, include, device):
    theirs, ours = both("avg_pool", axes)
    x = image(axes, device)
    for kernel, stride, padding, dilation, ceil in REGULAR:
        if dilation == 1:
            args = (kernel, stride, padding, ceil, include)
            assert_same(with_gradient(ours, x, *args), with_gradient(theirs, x, *args))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("divisor", [1, 5, -3])
def test_divisor_override(axes, divisor, device):
    theirs, ours = both("avg_pool", axes)
    args = (3, 2, 1, True, True, divisor)
    x = image(axes, device)
    assert_same(with_gradient(ours, x, *args), with_gradient(theirs, x, *args))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 4, 7, 13])
def test_adaptive(axes, size, device):
    x = image(axes, device)
    theirs, ours = both("adaptive_max_pool", axes)
    (found, gradient), (expected, expected_gradient) = (with_gradient(f, x, size, True) for f in (ours, theirs))
    assert_same(found, expected, rtol=0, atol=0)
    assert_same(gradient, expected_gradient)
    theirs, ours = both("adaptive_avg_pool", axes)
    assert_same(with_gradient(ours, x, size), with_gradient(theirs, x, size))


def test_adaptive_keeps_what_is_none(device):
    x = image(3, device)
    assert_same(pt.adaptive_avg_pool3d(x, (None, 2, None)), F.adaptive_avg_pool3d(x, (None, 2, None)))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf, -math.inf])
def test_lp_pool(axes, p, device):
    theirs, ours = both("lp_pool", axes)
    if math.isinf(p) and F.lp_pool1d(torch.tensor([[1.0, 3.0]]), math.inf, 2) != 3:
        pytest.skip("this PyTorch has no answer for an infinite p")
    x = image(axes, device).abs() + 0.1
    for stride, ceil in itertools.product((None, 2), (False, True)):
        assert_same(with_gradient(ours, x, p, 3, stride, ceil), with_gradient(theirs, x, p, 3, stride, ceil))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_max_unpool(axes, device):
    theirs, ours = both("max_unpool", axes)
    x = image(axes, device)
    y, indices = both("max_pool", axes)[1](x, 2, return_indices=True)
    assert_same(
        with_gradient(ours, y, indices, 2, output_size=x.shape),
        with_gradient(theirs, y, indices, 2, output_size=x.shape),
    )


def test_unpooling_to_one_place_twice_keeps_the_last(device):
    y = torch.tensor([[1.0, 2.0, 3.0]], device=device, requires_grad=True)
    indices = torch.tensor([[1, 4, 1]], device=device)
    unpooled = pt.max_unpool1d(y, indices, 2)
    assert unpooled.tolist() == [[0, 3, 0, 0, 2, 0]]
    unpooled.backward(torch.arange(6.0, device=device)[None])
    assert y.grad.tolist() == [[0, 4, 1]], "what was overwritten has no influence, so no gradient"


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fractional_max_pool_is_pytorchs_for_the_same_random_numbers(axes, dtype, device):
    theirs, ours = both("fractional_max_pool", axes)
    x = image(axes, device, dtype)
    samples = torch.rand(2, 3, axes, dtype=dtype, device=device)
    args = ((3, 2, 2)[:axes], (4, 5, 3)[:axes], None, True, samples)
    (found, gradient), (expected, expected_gradient) = (with_gradient(f, x, *args) for f in (ours, theirs))
    assert_same(found, expected, rtol=0, atol=0)
    assert_same(gradient, expected_gradient)
    torch.manual_seed(5)
    expected = theirs(x, 2, output_ratio=(0.5,) * axes)
    torch.manual_seed(5)
    assert torch.equal(ours(x, 2, output_ratio=0.5), expected)
    assert_same(ours(x[0], *args[:-1], samples[:1]), theirs(x[0], *args[:-1], samples[:1]))


@pytest.mark.parametrize("axes", [2, 3])
def test_a_seed_gives_tensorflows_cells_on_every_device(axes, device, numpy_works):
    x = image(axes, device, torch.float64)
    layout = "NCDHW" if axes == 3 else "NCHW"
    for settings in ({}, {"overlapping": True}, {"pseudo_random": True}):
        found = getattr(pt, f"fractional_max_pool{axes}d")(x, None, output_size=4, seed=(7, 3), **settings)
        edges = poolgrad.sequences.counted_axes(
            x.shape[2:], [4] * axes, seed=7, seed2=3, pseudo_random="pseudo_random" in settings
        )
        expected = poolgrad.fractional_max_pool(
            x.cpu().numpy(), sequences=list(edges), overlapping="overlapping" in settings, layout=layout
        )
        assert found.cpu().numpy().tolist() == expected.tolist()
        averages = getattr(pt, f"fractional_avg_pool{axes}d")(x, None, output_size=4, seed=(7, 3), **settings)
        expected = poolgrad.fractional_avg_pool(
            x.cpu().numpy(), sequences=list(edges), overlapping="overlapping" in settings, layout=layout
        )
        assert_same(averages.cpu(), torch.from_numpy(expected))


def test_a_seed_with_a_kernel_size_pools_that_many_elements_of_every_cell(device):
    x = torch.arange(10.0, device=device).expand(1, 1, 10, 10)
    begin = poolgrad.sequences.counted_axes([10, 10], [7, 7], seed=7)[1][:-1]
    found = pt.fractional_max_pool2d(x, (1, 2), output_ratio=0.7, seed=7)
    assert found[0, 0, 0].tolist() == [min(start + 1, 9) for start in begin]


def test_fractional_averages_average_pytorchs_windows(device):
    x = image(2, device, torch.float64)
    samples = torch.rand(2, 3, 2, dtype=torch.float64, device=device)
    averages = pt.fractional_avg_pool2d(x, 1, (4, 5), _random_samples=samples)
    assert torch.equal(averages, pt.fractional_max_pool2d(x, 1, (4, 5), _random_samples=samples)), "of one element"
    ones = torch.ones_like(x)
    assert_same(pt.fractional_avg_pool2d(ones, 3, (4, 5)), torch.ones(2, 3, 4, 5, dtype=x.dtype, device=device))


# ---------------------------------------------------------------------------------------------------------------------
# Beyond PyTorch


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1), (2, 3), (4, 3)])
def test_same_padding_is_tensorflows(axes, kernel, stride, device):
    x = image(axes, device)
    pads = []
    for n in reversed(x.shape[2:]):
        total = max(0, (-(-n // stride) - 1) * stride + kernel - n)
        pads += [total // 2, total - total // 2]
    filled = F.pad(x, pads, value=-math.inf)
    expected = both("max_pool", axes)[0](filled, kernel, stride)
    assert torch.equal(both("max_pool", axes)[1](x, kernel, stride, padding="same"), expected)


def test_asymmetric_padding(device):
    x = image(2, device)
    expected = F.avg_pool2d(F.pad(x, (0, 2, 1, 0)), 3, 2)
    assert_same(pt.avg_pool2d(x, 3, 2, padding=((1, 0), (0, 2))), expected)
    expected = F.max_pool2d(F.pad(x, (0, 2, 1, 0), value=-math.inf), 3, 2)
    assert torch.equal(pt.max_pool2d(x, 3, 2, padding=((1, 0), (0, 2))), expected)


def test_ties(device):
    x = torch.tensor([[2.0, 2.0, 1.0, 2.0]], device=device, requires_grad=True)
    for ties, share in (("first", [4, 0, 0, 0]), ("all", [4, 4, 0, 4]), ("split", [4 / 3, 4 / 3, 0, 4 / 3])):
        y = pt.max_pool1d(x, 4, ties=ties)
        (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, 4))
        assert_same(gradient, torch.tensor([share], dtype=x.dtype, device=device))
        with poolgrad.policy(ties=ties):
            (gradient,) = torch.autograd.grad(pt.max_pool1d(x, 4), x, torch.full_like(y, 4))
        assert_same(gradient, torch.tensor([share], dtype=x.dtype, device=device))


def test_nan_propagates_as_in_pytorch_or_is_ignored(device):
    nan = math.nan
    x = torch.tensor([[1.0, nan, 3.0, 2.0, 5.0, 4.0]], device=device)
    assert_same(pt.max_pool1d(x, 3), F.max_pool1d(x, 3))
    assert pt.max_pool1d(x, 3, nan="ignore").tolist() == [[3, 5]]


def test_of_several_nans_the_first_is_chosen_where_pytorch_takes_the_last(device):
    """The one place where indices differ: a rule that does not depend on how a window is walked."""
    x = torch.tensor([[math.nan, 1.0, math.nan]], device=device)
    assert F.max_pool1d(x, 3, return_indices=True)[1].item() == 2
    assert pt.max_pool1d(x, 3, return_indices=True)[1].item() == 0


def test_windows_of_minus_infinity(device):
    x = torch.full((1, 1, 4), -math.inf, device=device)
    assert_same(pt.max_pool1d(x, 2, return_indices=True), F.max_pool1d(x, 2, return_indices=True))


# ---------------------------------------------------------------------------------------------------------------------
# Tensors of every kind


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floats(dtype, device):
    x = image(3, device, dtype)
    (y, gradient), (expected, expected_gradient) = (with_gradient(f, x, 3, 2, 1) for f in (pt.max_pool3d, F.max_pool3d))
    assert torch.equal(y, expected)
    exact = with_gradient(F.max_pool3d, x.double(), 3, 2, 1)[1]
    assert (gradient - exact).abs().max() <= (expected_gradient - exact).abs().max() + 1e-12
    exact = F.avg_pool3d(x.double(), 3, 2, 1)
    rounded_once = exact.to(dtype)
    assert_same(pt.avg_pool3d(x, 3, 2, 1), rounded_once, rtol=1.01 * torch.finfo(dtype).eps, atol=1e-15)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
)
def test_integers(dtype, device):
    small = torch.randint(0, 100, (2, 3, 8, 8), device=device)
    x = small.to(dtype)
    assert torch.equal(pt.max_pool2d(x, 2).to(torch.int64), F.max_pool2d(small.double(), 2).long())
    assert torch.equal(pt.avg_pool2d(x, 2).to(torch.int64), F.avg_pool2d(small.double(), 2).long()), "toward zero"


@pytest.mark.parametrize("axes", [2, 3])
def test_memory_formats_are_kept_and_nothing_else_changes(axes, device):
    plain = image(axes, device)
    x = plain.contiguous(memory_format=FORMATS[axes])
    for name, args in (("max_pool", (3, 2, 1)), ("avg_pool", (3, 2, 1)), ("adaptive_max_pool", (4,))):
        function = both(name, axes)[1]
        y, gradient = with_gradient(function, x, *args)
        assert y.is_contiguous(memory_format=FORMATS[axes])
        assert gradient.is_contiguous(memory_format=FORMATS[axes])
        expected, expected_gradient = with_gradient(function, plain, *args)
        assert_same(y, expected)
        assert_same(gradient, expected_gradient)
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        function(leaf, *args).sum().backward()
        assert leaf.grad.is_contiguous(memory_format=FORMATS[axes]), "for an expanded gradient too"
    y, indices = both("max_pool", axes)[1](x, 2, return_indices=True)
    assert torch.equal(indices, both("max_pool", axes)[0](plain, 2, return_indices=True)[1])


def test_any_strides(device):
    base = torch.randn(4, 20, 6, 22, device=device)
    views = [
        base[:, ::2], base[..., 1:], base.transpose(2, 3), base.permute(1, 0, 3, 2), base[:, :1].expand(4, 5, 6, 22),
        base.permute(3, 2, 1, 0), base[:1, :, :, ::3], base.flip(3), base[:, :, :1],
    ]  # fmt: skip
    for x in views:
        assert torch.equal(pt.max_pool2d(x, (1, 3), 2, (0, 1)), F.max_pool2d(x.contiguous(), (1, 3), 2, (0, 1)))
        assert_same(pt.avg_pool2d(x, (1, 3), 2, (0, 1)), F.avg_pool2d(x.contiguous(), (1, 3), 2, (0, 1)))


def test_unbatched_and_empty_batches(device):
    x = image(3, device)
    assert torch.equal(pt.max_pool3d(x[0], 2), pt.max_pool3d(x, 2)[0])
    none = x[:0].requires_grad_()
    y = pt.max_pool3d(none, 2)
    assert y.shape == (0, 3, 4, 5, 3)
    assert torch.autograd.grad(y.sum(), none)[0].shape == none.shape
    assert pt.avg_pool3d(none, 2).shape == (0, 3, 4, 5, 3)


def test_cpu_tensors_reach_the_kernels_without_a_copy(numpy_works):
    """The kernels see the very memory of the tensor, in every memory format."""
    from poolgrad.backends.torch.kernels import place
    from poolgrad.torch import arguments

    for x in (image(2, "cpu"), image(2, "cpu").contiguous(memory_format=torch.channels_last)):
        geometry = arguments.regular("test", x, 2, 2, 2, 0)
        placed, _ = place(geometry, x, pooled=False)
        assert placed.seen(x).data_ptr() == x.data_ptr()
        assert placed.seen(x).is_contiguous()
        result, seen = placed.pooled(x)
        assert seen.data_ptr() == result.data_ptr()
        assert seen.is_contiguous()


def test_a_max_pooling_keeps_one_byte_per_result(device):
    kept = []
    x = image(3, device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = pt.max_pool3d(x, 2)
    assert [(t.dtype, t.shape) for t in kept] == [(torch.uint8, y.shape)]


# ---------------------------------------------------------------------------------------------------------------------
# Bad arguments


@pytest.mark.parametrize(
    "call",
    [
        lambda x: pt.max_pool2d(x, 0),
        lambda x: pt.max_pool2d(x, 2, 0),
        lambda x: pt.max_pool2d(x, 2, 2, -1),
        lambda x: pt.max_pool2d(x, 2, 2, 2),
        lambda x: pt.max_pool2d(x, 2, dilation=0),
        lambda x: pt.max_pool2d(x, (2, 2, 2)),
        lambda x: pt.max_pool2d(x, 20),
        lambda x: pt.max_pool2d(x[0, 0], 2),
        lambda x: pt.max_pool2d(x[..., :0], 1),
        lambda x: pt.max_pool2d(x, 2, padding="reflect"),
        lambda x: pt.max_pool2d(x, 2, padding=((0, 2), (0, 0))),
        lambda x: pt.max_pool2d(x, 2, padding=((0, 1),)),
        lambda x: pt.avg_pool2d(x, 2, divisor_override=0),
        lambda x: pt.adaptive_max_pool2d(x, (1, 2, 3)),
        lambda x: pt.adaptive_avg_pool2d(x, -1),
        lambda x: pt.fractional_max_pool2d(x, 2),
        lambda x: pt.fractional_max_pool2d(x, 2, 3, 0.5),
        lambda x: pt.fractional_max_pool2d(x, 2, output_ratio=1.5),
        lambda x: pt.fractional_max_pool2d(x, 9, 9),
        lambda x: pt.fractional_max_pool2d(x, None, 3),
        lambda x: pt.fractional_max_pool2d(x, 2, 20, seed=1),
        lambda x: pt.fractional_max_pool2d(x, 2, 3, ties="all"),
        lambda x: pt.max_unpool2d(x, torch.zeros_like(x), 2),
        lambda x: pt.max_unpool2d(x, torch.zeros_like(x[..., 1:]).long(), 2),
        lambda x: pt.max_unpool2d(x, torch.zeros_like(x).long(), 2, output_size=(99, 99)),
    ],
)
def test_bad_arguments_are_refused_as_pytorch_refuses_them(call, device):
    with pytest.raises(RuntimeError) as caught:
        call(image(2, device))
    assert isinstance(caught.value, InvalidArgument)
    assert caught.value.operator
    assert caught.value.argument


def test_an_index_outside_is_refused(numpy_works):
    with pytest.raises(InvalidArgument, match="outside"):
        pt.max_unpool1d(torch.ones(1, 2), torch.tensor([[0, 4]]), 2)


def test_bad_words_and_types(device):
    x = image(2, device)
    with pytest.raises(ValueError, match="ties"):
        pt.max_pool2d(x, 2, ties="last")
    with pytest.raises(TypeError, match="kernel_size"):
        pt.max_pool2d(x, 2.5)
    with pytest.raises(TypeError, match="dtype"):
        pt.max_pool2d(torch.ones(1, 4, 4, dtype=torch.complex64, device=device), 2)
    with pytest.raises(InvalidArgument, match="no kernels for device"):
        poolgrad.backends.torch.kernels.kernels_for(torch.empty(1, device="meta"))


def test_integers_of_numpy_are_integers(device):
    x = torch.randn(1, 2, 8, 8, device=device)
    two = np.int64(2)
    assert torch.equal(pt.max_pool2d(x, two, (two, 1), padding=np.int32(1)), F.max_pool2d(x, 2, (2, 1), 1))
    assert torch.equal(pt.avg_pool2d(x, 2, divisor_override=two), pt.avg_pool2d(x, 2, divisor_override=2))
    drawn = pt.fractional_max_pool2d(x, 2, output_size=3, seed=np.int64(7))
    assert torch.equal(drawn, pt.fractional_max_pool2d(x, 2, output_size=3, seed=7))


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("input", lambda x: pt.max_pool2d(x.numpy(), 2)),
        ("input", lambda x: pt.adaptive_avg_pool2d(x.tolist(), 2)),
        ("input", lambda x: pt.fractional_max_pool2d([x], 2, output_size=3)),
        ("kernel_size", lambda x: pt.max_pool2d(x, 2.0)),
        ("divisor_override", lambda x: pt.avg_pool2d(x, 2, divisor_override=2.5)),
        ("seed", lambda x: pt.fractional_max_pool2d(x, 2, output_size=3, seed=3.5)),
        ("seed", lambda x: pt.fractional_max_pool2d(x, 2, output_size=3, seed=(1, 2, 3))),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(argument, call):
    with pytest.raises((InvalidType, InvalidArgument)) as error:
        call(torch.randn(1, 2, 8, 8))
    assert error.value.argument == argument
    assert error.value.operator.endswith("pool2d")
