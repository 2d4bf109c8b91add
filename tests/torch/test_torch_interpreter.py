"""The way of a tensor to the Triton kernels, in Triton's interpreter: they answer as the CPU kernels do."""

import pytest
import torch

import poolgrad.torch as pt
from poolgrad.backends.torch import kernels

if torch.cuda.is_available():
    pytest.skip("the GPU itself is tested instead", allow_module_level=True)
pytest.importorskip("triton")

CASES = {
    "max": lambda x: pt.max_pool2d(x, 3, 2, 1),
    "max, ties": lambda x: pt.max_pool2d(x, 2, ties="split"),
    "avg": lambda x: pt.avg_pool2d(x, 3, 2, 1),
    "adaptive max": lambda x: pt.adaptive_max_pool2d(x, 3),
    "fractional avg": lambda x: pt.fractional_avg_pool2d(x, None, output_size=3, seed=1),
    "fractional max": lambda x: pt.fractional_max_pool2d(
        x, 2, output_size=3, _random_samples=torch.full((1, 2, 2), 0.4)
    ),
    "unpool": lambda x: pt.max_unpool2d(*pt.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", CASES)
def test_the_triton_kernels_answer_as_the_cpu_kernels(name, memory_format, numpy_works, monkeypatch):
    x = torch.randn(1, 2, 5, 4).contiguous(memory_format=memory_format)
    found = []
    for interpreted in (False, True):
        monkeypatch.setattr(kernels, "interpreted", interpreted)
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = CASES[name](leaf)
        (first,) = torch.autograd.grad((y**2).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), leaf)
        found.append((y, first, second))
    for expected, result in zip(*found, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        assert result.stride() == expected.stride()
    if "max" in name:
        assert torch.equal(found[0][0], found[1][0]), "maxima to the bit"
