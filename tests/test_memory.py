"""The memory of results: what is gone serves the next one, up to a limit, and can be given back."""

import os
import sys

import pytest
from interpreter import run_python

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or "POOLGRAD_SANITIZED" in os.environ,
    reason="reads Linux's figures, of the usual allocator",
)

SETTING = """
    import resource, numpy as np, poolgrad as pg
    from poolgrad import cpu
    pg.set_num_threads(1)
    x = np.ones((1, 1024, 1024, 8), np.float32)
    def pool():  # 8 MiB of result
        return pg.raw_ops.AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [pool() for _ in range(4)]
    full = resident()
"""


def test_a_result_in_the_place_of_one_that_is_gone_costs_no_page_fault():
    out = run_python(
        SETTING
        + """
    held.clear()
    before = faults()
    for _ in range(20):
        pool()
    print(faults() - before)
    """,
        POOLGRAD_CACHE_MIB="512",
    )
    assert int(out) < 20  # the interpreter may have some of its own; a result has 4, in huge pages, or 2048


def test_results_that_are_held_have_memory_of_their_own():
    run_python(
        SETTING
        + """
    places = {y.ctypes.data for y in held}
    assert len(places) == 4
    held.clear()
    again = [pool() for _ in range(4)]
    assert {y.ctypes.data for y in again} == places
    """,
        POOLGRAD_CACHE_MIB="512",
    )


def test_kept_memory_is_given_back_on_request():
    run_python(
        SETTING
        + """
    held.clear()
    assert resident() > full - 2
    cpu.release_memory()
    assert resident() < full - 30, (full, resident())
    """,
        POOLGRAD_CACHE_MIB="512",
    )


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (20, 16)])
def test_the_environment_limits_what_is_kept(limit, kept):
    out = run_python(
        SETTING
        + """
    held.clear()
    print(full - resident())
    """,
        POOLGRAD_CACHE_MIB=str(limit),
    )
    assert abs(float(out) - (32 - kept)) < 3
