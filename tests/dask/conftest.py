"""Settings of the tests on chunked arrays."""

import sys
from pathlib import Path

import dask
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def in_this_thread():
    """Small graphs are quicker without a pool of threads."""
    with dask.config.set(scheduler="synchronous"):
        yield
