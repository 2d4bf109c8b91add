"""Times the contenders of a cell against each other: interleaved rounds, each in an order of its own."""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter, sleep
from typing import Protocol

SETTLE = 0.008
"""Seconds of sleep before a sample. PyTorch's OpenMP threads spin for about 5 ms after a call, which takes a processor
away from whoever is measured next; the others go to sleep at once."""


class Contender(Protocol):
    """Something with a name that can run `count` times and say how many seconds that took."""

    name: str

    def time(self, count: int) -> float: ...


@dataclass
class Local:
    """A contender in this process."""

    name: str
    run: Callable[[], object]

    def time(self, count: int) -> float:
        run = self.run
        start = perf_counter()
        for _ in range(count):
            run()
        return perf_counter() - start


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds for a whole cell, rounds, and the least length of one sample."""

    seconds: float = 3.2
    rounds: int = 24
    least_rounds: int = 3
    sample: float = 0.0015
    slow: float = 1.0


QUICK = Effort(seconds=1.6, rounds=8, least_rounds=2, slow=0.25)


@dataclass
class Timing:
    """Seconds of one call in every round; None where the contender sat the round out."""

    samples: list[float | None] = field(default_factory=list)

    @property
    def taken(self) -> list[float]:
        return [sample for sample in self.samples if sample is not None]

    @property
    def best(self) -> float:
        return min(self.taken)

    @property
    def median(self) -> float:
        return statistics.median(self.taken)


def race(contenders: Sequence[Contender], effort: Effort, name: str = "") -> dict[str, Timing]:
    """One timing per contender. A slow one has used up its time after one call and sits out the later rounds.

    Who comes after whom changes from round to round, the same way in every run of the cell of that name: nobody always
    meets what the same other call leaves in the caches, or its threads that still spin.
    """
    runners = [_Runner(contender, effort, effort.seconds / len(contenders)) for contender in contenders]
    shuffle = random.Random(name).shuffle
    started = perf_counter()
    gc.collect()
    gc.disable()
    try:
        for round in range(effort.rounds):
            if round >= effort.least_rounds and perf_counter() - started > effort.seconds:
                break
            order = runners.copy()
            shuffle(order)
            for runner in order:
                runner.sample()
    finally:
        gc.enable()
    return {runner.contender.name: runner.timing for runner in runners}


class _Runner:
    """A contender with its share of the cell's time."""

    def __init__(self, contender: Contender, effort: Effort, share: float) -> None:
        self.contender, self.effort, self.share = contender, effort, share
        self.timing = Timing()
        self.spent = 0.0
        self.count = 0

    def sample(self) -> None:
        """Adds one sample, or None when the share is used up."""
        if self.count == 0:
            first = self._run(1)
            if first > self.effort.slow:
                self.count = 1
                self.timing.samples.append(first)
                return
            self.count = self._batch(first)
        enough = len(self.timing.taken) >= self.effort.least_rounds
        if self.timing.taken and self.spent > (self.share if enough else 2 * self.share):
            self.timing.samples.append(None)
            return
        sleep(SETTLE)
        self._run(1)
        self.timing.samples.append(self._run(self.count) / self.count)

    def _batch(self, first: float) -> int:
        """How many calls make a sample long enough to time."""
        if first < self.effort.sample:
            first = self._run(5) / 5
        return max(1, ceil(self.effort.sample / first))

    def _run(self, count: int) -> float:
        seconds = self.contender.time(count)
        self.spent += seconds
        return seconds
