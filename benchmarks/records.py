"""A run as a record: what is stored as JSON, and the rows that reports, goals and comparisons read from it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .cases import CASES, Case, Cell
from .measure import Timing

Record: TypeAlias = dict[str, Any]

HISTORY = Path(__file__).parent / "history"
OURS = "poolgrad "
LIMIT = "copy "
TRAFFIC = "traffic "
BEYOND_EAGER = ("TF graph",)

_CASES = {case.label: case for case in CASES}


@dataclass(frozen=True)
class Row:
    """One cell, one layout of poolgrad, one allocation mode.

    Times are seconds, best of the rounds. `fraction`, `of_traffic` and `by_rounds` are medians over the rounds, each of
    which has its own times: what a copy, plain traffic and the peers took as a multiple of poolgrad's time.
    """

    mode: str
    cell: Cell
    layout: str
    seconds: float
    limit: float
    fraction: float
    of_traffic: float | None
    peers: dict[str, float]
    by_rounds: dict[str, float]
    fault: str | None

    @property
    def case(self) -> Case:
        return self.cell.case

    @property
    def operator(self) -> str:
        return self.cell.operator

    @property
    def key(self) -> tuple[str, str, str]:
        return self.mode, self.cell.name, self.layout

    @property
    def name(self) -> str:
        return f"{self.cell.name}, {LAYOUTS[self.layout]}, {self.mode}"

    @property
    def fraction_at_best(self) -> float:
        """The best copy over the best call, whenever they were."""
        return self.limit / self.seconds

    def best_peer(self, without: tuple[str, ...] = ()) -> str | None:
        others = {name: seconds for name, seconds in self.peers.items() if name not in without}
        return min(others, key=others.__getitem__) if others else None

    def speedup(self, without: tuple[str, ...] = ()) -> float | None:
        best = self.best_peer(without)
        return self.peers[best] / self.seconds if best else None

    @property
    def speedup_by_rounds(self) -> float | None:
        """Over the peer that was quickest by rounds; None in runs that did not keep that."""
        return min(self.by_rounds.values(), default=None)


LAYOUTS = {"last": "channels-last", "first": "channels-first"}


METHOD = 3
"""What is measured, and how: another number where figures of two runs do not mean the same. 2: every round has its own
copy, plain traffic. 3: rounds in an order of their own, ONNX Runtime's quick averages and its maxima with indices."""


def cell_record(
    cell: Cell, timings: dict[str, Timing], faults: dict[str, str | None], absent: dict[str, str]
) -> Record:
    """What is kept of one cell: best and median of everybody, how many samples that is, who took what multiple of
    poolgrad's time, round by round, and what peers raised that could not take part."""
    limit, traffic = _quickest(timings, LIMIT), _quickest(timings, TRAFFIC)
    ours = {name.removeprefix(OURS): timing for name, timing in timings.items() if name.startswith(OURS)}
    raced = {name: timing for name, timing in timings.items() if not name.startswith((LIMIT, TRAFFIC))}
    peers = {name: timing for name, timing in raced.items() if not name.startswith(OURS)}
    return {
        "case": cell.case.label,
        "operator": cell.operator,
        "bytes": cell.bytes,
        "limit": [_digits(limit.best), _digits(limit.median)],
        "times": {name: [_digits(timing.best), _digits(timing.median)] for name, timing in raced.items()},
        "samples": {name: len(timing.taken) for name, timing in raced.items()},
        "steady": {layout: _by_rounds(limit, mine) for layout, mine in ours.items()},
        "of_traffic": {layout: _by_rounds(traffic, mine) for layout, mine in ours.items()} if traffic.taken else {},
        "by_rounds": {
            layout: {name: _by_rounds(timing, mine) for name, timing in peers.items()} for layout, mine in ours.items()
        },
        "faults": {layout: fault for layout, fault in faults.items() if fault},
        "absent": absent,
    }


def rows(record: Record) -> list[Row]:
    """All rows of a run; cells that no longer exist are left out."""
    return [row for mode, cells in record["modes"].items() for cell in cells for row in _rows_of(mode, cell)]


def _rows_of(mode: str, stored: Record) -> Iterable[Row]:
    case = _CASES.get(stored["case"])
    if case is None:
        return
    peers = {name: best for name, (best, _) in stored["times"].items() if not name.startswith(OURS)}
    cell, limit = Cell(case, stored["operator"]), stored["limit"][0]
    of_traffic, by_rounds = stored.get("of_traffic", {}), stored.get("by_rounds", {})
    for layout, fraction in stored["steady"].items():
        seconds, fault = stored["times"][OURS + layout][0], stored["faults"].get(layout)
        steady = by_rounds.get(layout, {})
        yield Row(mode, cell, layout, seconds, limit, fraction, of_traffic.get(layout), peers, steady, fault)


def _quickest(timings: dict[str, Timing], kind: str) -> Timing:
    """The quickest way of a kind in every round."""
    ways = [timing.samples for name, timing in timings.items() if name.startswith(kind)]
    rounds = [[sample for sample in round if sample is not None] for round in zip(*ways, strict=True)]
    return Timing([min(round, default=None) for round in rounds])


def _by_rounds(other: Timing, ours: Timing) -> float:
    """What another took as a multiple of our time, the median over the rounds that have both; the first always does."""
    pairs = zip(other.samples, ours.samples, strict=True)
    return _digits(statistics.median(theirs / mine for theirs, mine in pairs if theirs and mine))


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def save(record: Record, path: Path) -> None:
    """Compact JSON, one cell a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in record.items() if key != "modes"}
    modes = ",\n".join(
        f'  "{mode}": [\n' + ",\n".join(f"    {json.dumps(cell, ensure_ascii=False)}" for cell in cells) + "\n  ]"
        for mode, cells in record["modes"].items()
    )
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    path.write_text("\n".join(["{", *lines, ' "modes": {', modes, " }", "}"]) + "\n")


def load(path: Path) -> Record:
    record: Record = json.loads(path.read_text())
    return record


def history_path(record: Record) -> Path:
    processor = re.sub(r"[^a-z0-9]+", "-", record["machine"]["processor"].lower()).strip("-")
    date = re.sub(r"[^0-9]+", "", record["machine"]["date"])
    return HISTORY / f"{date[:8]}-{date[8:12]}-{processor}.json"


def geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None
