"""What no race shows: the overhead of a call, how work scales with threads, how much memory a call takes.

Runs in a process of its own, without the peers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

import poolgrad as pg

from . import machine
from .cases import CASES, Cell, choice_bytes
from .data import data_of
from .measure import Effort, Local, race
from .ours import Poolgrad

# Cells whose arithmetic outweighs their memory traffic.
COMPUTE_BOUND = (("512x512-k65", "max_forward"), ("2d-k7s1", "max_forward"), ("2d-k7s1", "max_grad"))
GRADIENTS = (
    ("2d-k3s2", "max_grad"),
    ("2d-k3s2", "avg_grad"),
    ("2d-k3s1", "max_grad"),
    ("3d-k3s2", "max_grad"),
    ("3d-k3s2", "max_gradgrad"),
    ("volume-k3s2", "max_grad"),
    ("2d-k7s1", "max_grad"),
)
EFFORT = Effort(seconds=2.0)
OFTEN = Effort(seconds=4.0, rounds=100)
"""For calls of a few milliseconds, of which only some find both processors free on a machine that others use too."""


def measure(threads: int) -> dict[str, Any]:
    """All of it, for the record."""
    return {
        "busy": busy(),
        "overhead_us": overhead(),
        "scaling": scaling(threads) if threads > 1 else {},
        "choice_bytes": stored_choice(threads),
        "beyond_mb": memory(threads),
    }


def busy() -> list[float]:
    """For every processor, by what a loop in its nearest cache takes longer than at best, in the median of two seconds.

    More than 1.1 means that others compute on the same core: then arithmetic takes longer, and a copy does not.
    """
    small = np.ones(1024, np.float32)
    result, found, allowed = np.empty_like(small), [], os.sched_getaffinity(0)
    for processor in sorted(allowed):
        os.sched_setaffinity(0, {processor})
        samples = []
        for _ in range(400):
            start = perf_counter()
            for _ in range(100):
                np.multiply(small, small, out=result)
            samples.append(perf_counter() - start)
            sleep(0.005)
        found.append(round(statistics.median(samples) / min(samples), 2))
    os.sched_setaffinity(0, allowed)
    return found


def overhead() -> float:
    """Microseconds of a raw-op call whose kernel has four elements to look at."""
    x = np.zeros((1, 2, 2, 1), np.float32)
    run = partial(pg.raw_ops.MaxPool, input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    return round(race([Local("call", run)], EFFORT)["call"].best * 1e6, 3)


def scaling(threads: int) -> dict[str, float]:
    """One thread's time over two threads' time, in cells that are not limited by bandwidth."""
    found = {}
    for name, operator in COMPUTE_BOUND:
        cell = _cell(name, operator)
        call = Poolgrad("last", threads).call(cell, data_of(cell.case), True)
        if call:
            timings = race([Local(str(count), partial(_with_threads, count, call.run)) for count in (1, 2)], OFTEN)
            found[cell.name] = round(timings["1"].best / timings["2"].best, 3)
    pg.set_num_threads(threads)
    return found


def _with_threads(count: int, run: Callable[[], object]) -> None:
    pg.set_num_threads(count)
    run()


def stored_choice(threads: int) -> int | None:
    """Bytes of one chosen element as the forward stores it."""
    cell = _cell("small", "max_forward_choice")
    call = Poolgrad("last", threads).call(cell, data_of(cell.case), False)
    return int(call.run()[1].dtype.itemsize) if call else None


def memory(threads: int) -> dict[str, float]:
    """By how many MB a gradient's first call grows a fresh process beyond its output and a choice."""
    jobs = [(name, operator, layout, threads) for name, operator in GRADIENTS for layout in ("last", "first")]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        found = processes.starmap(_growth, jobs, chunksize=1)
    return {
        f"{name} {operator}, channels-{layout}": round(grown / 1e6, 2)
        for (name, operator, layout, _), grown in zip(jobs, found, strict=True)
        if grown is not None
    }


def _growth(name: str, operator: str, layout: str, threads: int) -> int | None:
    cell = _cell(name, operator)
    data, peer = data_of(cell.case), Poolgrad(layout, threads)
    small = _cell("small", operator)
    peer.call(small, data_of(small.case), False)  # threads and tables of the library exist from here on
    for array in ("x", "y", "g", "v"):
        data.array(array, layout)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _peak()
    if peer.call(cell, data, False) is None:
        return None
    output = prod(cell.case.out_shape if operator.startswith("max_gradgrad") else cell.case.shape) * 4
    return max(_peak() - before - output - prod(cell.case.out_shape) * choice_bytes(cell.case), 0)


def _peak() -> int:
    """The largest resident size so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _cell(name: str, operator: str) -> Cell:
    return next(Cell(case, operator) for case in CASES if case.label == name)


if __name__ == "__main__":
    machine.bind(int(sys.argv[2]))
    Path(sys.argv[1]).write_text(json.dumps(measure(int(sys.argv[2]))))
