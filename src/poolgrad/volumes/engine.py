"""Runs the blocks of a work on the threads of this process or on a `distributed` cluster.

Only a few tasks per thread are handed out at a time, so a scheduler sees some hundred tasks where there are millions.
A task that fails is tried again, later and perhaps elsewhere; what fails to the end is collected and named.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..errors import InvalidArgument, Unfinished
from .blocks import Block, Done, Work, compute_block

BASE_MEMORY: Final = 2**28
"""What Python and the libraries take before any data is there."""

TIMES_INPUT: Final = 3
"""A task takes at most this many times the memory of its input: input, what is being decoded or encoded, result."""

MOST_FAILURES: Final = 20
"""So many blocks may fail before the rest is given up."""


@dataclass(frozen=True)
class Progress:
    """How far a run is: blocks done (also those of earlier runs), blocks in all, bytes of input read so far."""

    done: int
    total: int
    bytes: int


Watcher: TypeAlias = Callable[[Progress], None]


class Engine:
    """Where tasks run.

    workers       how many tasks can run at once
    task_memory   bytes of input that a task may have
    """

    def __init__(self, executor: Executor, workers: Callable[[], int], task_memory: int) -> None:
        self._executor = executor
        self.workers = workers
        self.task_memory = task_memory

    def run(
        self, work: Work, known: Callable[[Block], bool] | None, retries: int = 3, watch: Watcher | None = None
    ) -> int:
        """Computes all blocks but those that are `known` to be finished; how many pieces of the target were written."""
        fresh, again = work.blocks(), deque[Block]()  # one after the other: millions of blocks take no memory
        finished, read, written = 0, 0, 0
        failures: Counter[Block] = Counter()
        lost: dict[Block, BaseException] = {}
        running: dict[Future[Done], Block] = {}
        block: Block | None
        try:
            while True:
                while len(running) < 2 * self.workers() and len(lost) < MOST_FAILURES:
                    block = next(fresh, None)
                    if block is None and not again:
                        break
                    block = again.popleft() if block is None else block
                    if known is not None and not failures[block] and known(block):
                        finished += 1
                    else:
                        running[self._executor.submit(compute_block, work, block)] = block
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    block = running.pop(future)
                    error = future.exception()
                    if error is None:
                        done = future.result()
                        finished, read, written = finished + 1, read + done.read, written + done.written
                    elif failures[block] < retries:
                        failures[block] += 1
                        again.append(block)
                    else:
                        lost[block] = error
                    if watch is not None:
                        watch(Progress(finished, len(work), read))
        finally:
            for future in running:
                future.cancel()
        if lost:
            raise _unfinished(work, lost, len(work) - finished - len(lost), retries)
        return written


def _unfinished(work: Work, lost: dict[Block, BaseException], untried: int, retries: int) -> Unfinished:
    named = {_region(work, block): f"{type(error).__name__}: {error}" for block, error in lost.items()}
    listed = "; ".join(f"{region} ({error})" for region, error in list(named.items())[:5])
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    left = f"; {untried} blocks were not tried after that" if untried else ""
    problem = f"{len(named)} of {len(work)} blocks failed {retries + 1} times: {listed}{more}{left}"
    return Unfinished(f"{problem}. Everything else is written; run again with resume for the rest", given=named)


def _region(work: Work, block: Block) -> str:
    return "[" + ", ".join(f"{s.start}:{s.stop}" for s in work.place(block)) + "]"


@contextmanager
def local(threads: int | None, memory: int | None) -> Iterator[Engine]:
    """An engine of threads of this process. With less memory than all threads need, fewer tasks run at once."""
    count = threads or _cores()
    budget = (memory - BASE_MEMORY) if memory is not None else 2**30 * count
    if budget <= 0:
        raise InvalidArgument(f"memory must be more than {BASE_MEMORY >> 20} MiB", argument="memory", given=memory)
    executor = ThreadPoolExecutor(count, "poolgrad")
    try:
        # Twice as many tasks are handed out as run, but only those that run hold data.
        yield Engine(executor, lambda: count, budget // (TIMES_INPUT * count))
    finally:
        executor.shutdown(cancel_futures=True)


def _cores() -> int:
    """How many cores this process may use; not every system tells, then all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def cluster(address: str, memory: int | None, patience: float = 60) -> Iterator[Engine]:
    """An engine of the workers of a `distributed` scheduler. `memory` is per worker; otherwise half of what it has."""
    client = connected(address, patience)
    try:
        with client.get_executor(pure=False, retries=0) as executor:
            yield Engine(executor, _thread_counter(client), _memory_per_task(client, memory))
    finally:
        client.close()


def connected(address: str, patience: float = 60, current: bool = False) -> Any:
    """A client of the scheduler at this address, which has at least one worker; as the current one, if wanted."""
    from distributed import Client

    try:
        client = Client(address, timeout=patience, set_as_default=current)
        client.wait_for_workers(1, timeout=patience)
    except (OSError, TimeoutError, ValueError) as error:
        problem = f"cluster: no scheduler with workers answers at {address} ({error or type(error).__name__})"
        raise InvalidArgument(problem, argument="cluster", given=address) from None
    return client


def _memory_per_task(client: Any, memory: int | None) -> int:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    each = [(memory or (w["memory_limit"] or 2**33) // 2) // w["nthreads"] for w in workers]
    return int(min(each)) // TIMES_INPUT


def _thread_counter(client: Any, every: float = 5.0) -> Callable[[], int]:
    """How many threads the cluster has now, asked again from time to time: workers come and go."""
    known = [0, 0.0]

    def count() -> int:
        if time.monotonic() - known[1] > every or known[0] == 0:
            known[:] = [max(1, sum(client.nthreads().values())), time.monotonic()]
        return int(known[0])

    return count
