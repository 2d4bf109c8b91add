"""Where the tests of poolgrad.torch run: on the CPU, and on a GPU if there is one.

They also run without the rest of the suite's settings (`make test-gpu`), so the `full` marker is known here too.
"""

import os

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of a GPU for itself

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def have_cpu_kernels():
    from poolgrad.cpu import _kernels

    return _kernels.__name__.endswith("_kernels")


def interpreting():
    """Whether CPU tensors go to the Triton kernels in Triton's interpreter."""
    from poolgrad.backends.torch import kernels

    return kernels.interpreted


def pytest_configure(config):
    config.addinivalue_line("markers", "full: long or memory-hungry; run by `make test-full`, left out otherwise")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full", default=False) or "full" in config.getoption("-m", default=""):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(params=DEVICES)
def device(request):
    """A device that has kernels. Without the compiled module the CPU has none."""
    if request.param == "cpu" and not (have_cpu_kernels() or interpreting()):
        pytest.skip("the compiled CPU kernels are not installed")
    return torch.device(request.param)


@pytest.fixture
def numpy_works():
    """For tests that compare with NumPy arrays on the CPU kernels."""
    if not have_cpu_kernels():
        pytest.skip("the compiled CPU kernels are not installed")


@pytest.fixture(autouse=True)
def repeatable():
    """The same random numbers in every run, and PyTorch's settings as they were."""
    torch.manual_seed(0)
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)
