"""Settings every test shares: TensorFlow's plain kernels as the oracle, repeatable Hypothesis runs, the `full`
marker."""

import os
import sys
from pathlib import Path

# Read by TensorFlow when it is first imported: the native kernels are the reference (oneDNN rounds and breaks ties
# differently).
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

sys.path.insert(0, str(Path(__file__).parent))

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=200,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.register_profile("full", hypothesis.settings.get_profile("default"), max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config):
    config.addinivalue_line("markers", "full: long or memory-hungry; run by `make test-full`, left out otherwise")


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run the tests marked `full`")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full") or "full" in config.getoption("-m", default=""):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture
def rng(request):
    """Random numbers that depend on the test's own name only."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def quiet_numpy():
    """NaN and infinity are data here, not accidents."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def threads():
    """Sets the number of threads for one test and restores it afterwards."""
    import poolgrad

    before = poolgrad.get_num_threads()
    yield poolgrad.set_num_threads
    poolgrad.set_num_threads(before)
