"""A run as a record: what is stored as JSON, and the rows that reports, goals and comparisons read from it."""

from __future__ import annotations

import json
import math
import re
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
TRAFFIC = "traffic"
BEYOND_EAGER = ("TF graph",)

_CASES = {case.label: case for case in CASES}


@dataclass(frozen=True)
class Row:
    """One cell, one layout of poolgrad, one allocation mode. Times are seconds, best of the rounds; shares of what memory
    gives are medians over the rounds, each with its own times."""

    mode: str
    cell: Cell
    layout: str
    seconds: float
    limit: float
    fraction: float
    of_traffic: float | None
    peers: dict[str, float]
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


LAYOUTS = {"last": "channels-last", "first": "channels-first"}


def cell_record(cell: Cell, timings: dict[str, Timing], faults: dict[str, str | None]) -> Record:
    """What is kept of one cell: best and median of everybody, and poolgrad's share of what memory gives, round by round."""
    limit, traffic = _limit(timings), timings.get(TRAFFIC)
    ours = {name.removeprefix(OURS): timing for name, timing in timings.items() if name.startswith(OURS)}
    times = {
        name: [_digits(timing.best), _digits(timing.median)]
        for name, timing in timings.items()
        if not name.startswith((LIMIT, TRAFFIC))
    }
    return {
        "case": cell.case.label,
        "operator": cell.operator,
        "bytes": cell.bytes,
        "limit": [_digits(limit.best), _digits(limit.median)],
        "times": times,
        "steady": {layout: _digits(_median_ratio(limit, timing)) for layout, timing in ours.items()},
        "of_traffic": {layout: _digits(_median_ratio(traffic, timing)) for layout, timing in ours.items() if traffic},
        "faults": {layout: fault for layout, fault in faults.items() if fault},
    }


def rows(record: Record) -> list[Row]:
    """All rows of a run; cells that no longer exist are left out."""
    return [row for mode, cells in record["modes"].items() for cell in cells for row in _rows_of(mode, cell)]


def _rows_of(mode: str, stored: Record) -> Iterable[Row]:
    case = _CASES.get(stored["case"])
    if case is None:
        return
    peers = {name: best for name, (best, _) in stored["times"].items() if not name.startswith(OURS)}
    limit, of_traffic = stored["limit"][0], stored.get("of_traffic", {})
    for layout, fraction in stored["steady"].items():
        seconds, fault = stored["times"][OURS + layout][0], stored["faults"].get(layout)
        cell = Cell(case, stored["operator"])
        yield Row(mode, cell, layout, seconds, limit, fraction, of_traffic.get(layout), peers, fault)


def _limit(timings: dict[str, Timing]) -> Timing:
    """The quickest way of copying in every round."""
    copies = [timing.samples for name, timing in timings.items() if name.startswith(LIMIT)]
    rounds = [[sample for sample in round if sample is not None] for round in zip(*copies, strict=True)]
    return Timing([min(round, default=None) for round in rounds])


def _median_ratio(limit: Timing, ours: Timing) -> float:
    ratios = sorted(a / b for a, b in zip(limit.samples, ours.samples, strict=True) if a and b)
    return ratios[len(ratios) // 2] if ratios else limit.best / ours.best


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
