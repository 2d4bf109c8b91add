"""The same bits on every run: under load, with any number of threads, in every mode."""

import threading

import pytest
import torch

import poolgrad
import poolgrad.torch as pt

CASES = {
    "max 3-D": lambda x: pt.max_pool3d(x, 3, 2, 1),
    "avg 3-D": lambda x: pt.avg_pool3d(x, 3, 1, 1),
    "adaptive max 3-D": lambda x: pt.adaptive_max_pool3d(x, 5),
    "adaptive avg 3-D": lambda x: pt.adaptive_avg_pool3d(x, 5),
    "fractional max 3-D": lambda x: pt.fractional_max_pool3d(x, 3, output_ratio=0.5),
    "fractional avg 3-D, seed": lambda x: pt.fractional_avg_pool3d(x, None, output_ratio=0.7, seed=1, overlapping=True),
    "unpool 3-D": lambda x: pt.max_unpool3d(*pt.max_pool3d(x, 3, 1, return_indices=True), 3, 1),
}


def bits(function, x):
    """Results and gradients to the second order, as bytes."""
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(3)
    y = function(x)
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), x)
    return [t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() for t in (y, first, second)]


@pytest.fixture
def load():
    """Other threads that keep the processor busy."""
    stop = threading.Event()

    def work():
        a = torch.randn(64, 64)
        while not stop.is_set():
            a = torch.tanh(a @ a)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    yield
    stop.set()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_fifty_runs_under_load_give_the_same_bits(name, dtype, device, load):
    x = torch.randn(2, 3, 9, 10, 11, device=device).to(dtype)
    torch.use_deterministic_algorithms(False)
    first = bits(CASES[name], x)
    for run in range(50):
        torch.use_deterministic_algorithms(run % 2 == 1)
        assert bits(CASES[name], x) == first


def test_any_number_of_threads(numpy_works):
    x = torch.randn(4, 8, 16, 32, 32)
    before = poolgrad.get_num_threads()
    try:
        found = []
        for n in (1, 2, 5):
            poolgrad.set_num_threads(n)
            found.append(bits(CASES["max 3-D"], x) + bits(CASES["avg 3-D"], x))
        assert found[0] == found[1] == found[2]
    finally:
        poolgrad.set_num_threads(before)


@pytest.mark.parametrize("name", CASES)
def test_deterministic_mode_is_not_refused(name, device):
    torch.use_deterministic_algorithms(True)
    assert bits(CASES[name], torch.randn(1, 2, 8, 8, 8, device=device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_gpu_chooses_as_the_cpu_does(dtype, numpy_works):
    x = torch.randn(2, 3, 9, 10, 11).to(dtype)
    expected = pt.max_pool3d(x, 3, 2, 1, return_indices=True)
    for found, value in zip(pt.max_pool3d(x.cuda(), 3, 2, 1, return_indices=True), expected, strict=True):
        assert torch.equal(found.cpu(), value)
