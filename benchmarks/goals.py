"""The goals as data, and which of them a run reaches. A goal without measured rows is neither reached nor missed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .cases import AVG, FIRST_ORDER, FORWARD, ITEM_BYTES, MAX, SECOND_ORDER, TIMES
from .records import BEYOND_EAGER, OURS, Record, Row, geometric_mean, rows

Rows = Sequence[Row]
NOISE_MS = 0.5  # by which differences of medians move
MOST_NAMED = 6  # rows that fall short
NOISE_MB = 4.0  # how far a process grows by itself: stacks, huge-page rounding, Python


@dataclass(frozen=True)
class Outcome:
    """`reached` is None when the run holds nothing to judge by."""

    group: str
    goal: str
    reached: bool | None
    found: str


@dataclass(frozen=True)
class Fraction:
    """At least `least` of the memory limit in every chosen row, float32, outputs in reused memory.

    By rounds; what the best copy and the best call say is told too. Where a row falls short, what it reaches of plain
    traffic tells whether memory or the kernel limits it.
    """

    group: str
    what: str
    least: float
    chosen: Callable[[Row], bool]

    def judge(self, all_rows: Rows) -> Outcome:
        mine = [row for row in all_rows if row.mode == "reused" and row.case.dtype == "float32" and self.chosen(row)]
        goal = f"{self.what}: at least {self.least:.2f} of the limit"
        found = _judge(self.group, goal, mine, lambda row: row.fraction, self.least, note=_of_traffic)
        return replace(found, found=f"{found.found}{_at_best(mine, self.least)}")


def _is(
    row: Row, layout: str, group: tuple[str, ...], operators: tuple[str, ...], disjoint: bool | None = None
) -> bool:
    placed = row.layout == layout and row.case.group in group and row.operator in operators
    return placed and disjoint in (None, row.case.disjoint)


_LAST = "channels-last"
_FIRST = "channels-first"
_GRIDS = ("2-D", "3-D")

FRACTIONS = (
    Fraction(_LAST, "2-D forward", 0.90, lambda r: _is(r, "last", ("2-D",), FORWARD)),
    Fraction(_LAST, "3-D forward k2 s2", 0.85, lambda r: _is(r, "last", ("3-D",), FORWARD, True)),
    Fraction(_LAST, "3-D forward k3 s2", 0.65, lambda r: _is(r, "last", ("3-D",), FORWARD, False)),
    Fraction(_LAST, "max gradient k = s", 0.90, lambda r: _is(r, "last", _GRIDS, ("max_grad",), True)),
    Fraction(
        _LAST, "max gradient k3 s2, 2-D", 0.80,
        lambda r: _is(r, "last", ("2-D",), ("max_grad",), False) and r.case.stride[0] == 2,
    ),
    Fraction(
        _LAST, "max gradient k3 s1, and 3-D k3 s2", 0.50,
        lambda r: _is(r, "last", _GRIDS, ("max_grad",), False) and (r.case.stride[0] == 1 or r.case.rank == 3),
    ),
    Fraction(_LAST, "average gradient k = s", 0.90, lambda r: _is(r, "last", _GRIDS, ("avg_grad",), True)),
    Fraction(_LAST, "average gradient k3", 0.65, lambda r: _is(r, "last", _GRIDS, ("avg_grad",), False)),
    Fraction(_FIRST, "k = s", 0.60, lambda r: _is(r, "first", _GRIDS, MAX + AVG, True)),
    Fraction(_FIRST, "overlapping", 0.45, lambda r: _is(r, "first", _GRIDS, MAX + AVG, False)),
    Fraction("one-channel volumes", "all operators", 0.50, lambda r: r.case.group == "volume"),
)  # fmt: skip


def judge(record: Record) -> list[Outcome]:
    """Every goal with what this run found."""
    every = rows(record)
    return [
        _every_case(every),
        *(_gradients(every, mode, least) for mode, least in (("default", 4.0), ("reused", 2.5))),
        *(fraction.judge(every) for fraction in FRACTIONS),
        _ahead_of_torch(every),
        _growth(every),
        _ahead_of_scipy(every),
        _small(every),
        _overhead(record),
        _page_faults(every),
        _memory(record),
        _threads(record),
    ]


def gradient_speedups(every: Rows, mode: str, without: tuple[str, ...] = ()) -> list[float]:
    """Speed-ups over the best peer of all first- and second-order gradients of a mode."""
    chosen = [row for row in every if row.mode == mode and row.operator in FIRST_ORDER + SECOND_ORDER]
    return [speedup for row in chosen if (speedup := row.speedup(without))]


def _every_case(every: Rows) -> Outcome:
    mine = [row for row in every if row.peers]
    found = _judge("every case", "faster than the best peer", mine, lambda row: row.speedup() or 0.0, 1.0, TIMES)
    steady = [row for row in mine if row.speedup_by_rounds]
    if not steady:
        return found
    rounds = _judge("", "", steady, lambda row: row.speedup_by_rounds or 0.0, 1.0, TIMES)
    return replace(found, found=f"{found.found}. By rounds: {rounds.found}")


def _gradients(every: Rows, mode: str, least: float) -> Outcome:
    mean = geometric_mean(gradient_speedups(every, mode))
    eager = geometric_mean(gradient_speedups(every, mode, BEYOND_EAGER))
    goal = f"geometric mean of the speed-up at least {least:g}, {mode} allocation"
    if mean is None or eager is None:
        return Outcome("gradients, both orders", goal, None, "not measured")
    return Outcome(
        "gradients, both orders",
        goal,
        mean >= least,
        f"{mean:.1f}{TIMES} ({eager:.1f}{TIMES} against eager TensorFlow and the others)",
    )


def _ahead_of_torch(every: Rows) -> Outcome:
    def over(row: Row) -> float:
        return min(seconds for name, seconds in row.peers.items() if name.startswith("torch")) / row.seconds

    operators = ("max_grad", "max_gradgrad", "max_grad_choice", "max_gradgrad_choice")
    mine = [
        row
        for row in every
        if row.mode == "reused" and _is(row, "first", _GRIDS, operators, False) and "torch" in row.peers
    ]
    return _judge(
        _FIRST, "overlapping max gradients, both orders: ahead of PyTorch, reused memory", mine, over, 1.0, TIMES
    )


def _growth(every: Rows) -> Outcome:
    """Cost per element against the window, 1-D: growth by no more than the logarithms' ratio."""
    goal = "cost per element grows at most logarithmically with the window (1-D, window 3 to 513)"
    found = []
    for operator in ("max_forward", "max_grad", "max_gradgrad", "avg_forward", "avg_grad"):
        times = {row.case.name: row.seconds for row in every if row.mode == "reused" and row.operator == operator}
        if "1d-k3" in times and "1d-k513" in times:
            found.append((times["1d-k513"] / times["1d-k3"], operator))
    if not found:
        return Outcome("large windows", goal, None, "not measured")
    worst, operator = max(found)
    allowed = math.log(513) / math.log(3)
    found_text = f"at most {worst:.1f}{TIMES} ({operator}), {allowed:.1f}{TIMES} allowed"
    return Outcome("large windows", goal, worst <= allowed, found_text)


def _ahead_of_scipy(every: Rows) -> Outcome:
    mine = [row for row in every if "SciPy" in row.peers]
    return _judge(
        "large windows", "ahead of SciPy's filters", mine, lambda row: row.peers["SciPy"] / row.seconds, 1.0, TIMES
    )


def _small(every: Rows) -> Outcome:
    mine = [row for row in every if row.case.group == "small" and row.peers]
    return _judge("small", "less than a third of the quickest peer", mine, lambda row: row.speedup() or 0.0, 3.0, TIMES)


def _overhead(record: Record) -> Outcome:
    goal = "at most 3 microseconds a call through raw_ops beyond the kernel"
    overhead = record.get("extras", {}).get("overhead_us")
    if overhead is None:
        return Outcome("small", goal, None, "not measured")
    return Outcome("small", goal, overhead <= 3.0, f"{overhead:.2f} µs")


def _page_faults(every: Rows) -> Outcome:
    """What a fresh output costs beyond a reused one, per 100 MB of output: poolgrad against the best peer."""
    goal = f"page-fault cost no worse than the best peer's ({NOISE_MS:g} ms allowed for noise)"
    costs: dict[str, list[float]] = {}
    reused = {(row.cell.name, row.layout): row for row in every if row.mode == "reused"}
    for row in every:
        other = reused.get((row.cell.name, row.layout))
        size = _output_bytes(row)
        if row.mode != "default" or other is None or size < 8 << 20:
            continue
        pairs = {OURS.strip(): (row.seconds, other.seconds)}
        pairs |= {name: (row.peers[name], other.peers[name]) for name in row.peers if name in other.peers}
        for name, (fresh, again) in pairs.items():
            costs.setdefault(name, []).append((fresh - again) / size * 1e11)
    medians = {name: max(statistics.median(values), 0.0) for name, values in costs.items() if len(values) >= 5}
    mine = medians.pop(OURS.strip(), None)
    if mine is None or not medians:
        return Outcome("freshly allocated outputs", goal, None, "not measured")
    best = min(medians, key=medians.__getitem__)
    found = f"{mine:.1f} ms per 100 MB of output, {best} {medians[best]:.1f} ms (medians)"
    return Outcome("freshly allocated outputs", goal, mine <= medians[best] + NOISE_MS, found)


def _output_bytes(row: Row) -> int:
    shape = row.case.shape if row.operator.startswith(("max_grad_", "avg_grad")) or row.operator == "max_grad" else None
    return math.prod(shape or row.case.out_shape) * ITEM_BYTES[row.case.dtype]


def _memory(record: Record) -> Outcome:
    goal = "a choice is 1 byte an output; no gradient allocates more than its output and the choice"
    extras = record.get("extras", {})
    if not extras.get("beyond_mb"):
        return Outcome("memory", goal, None, "not measured")
    worst, name = max((grown, name) for name, grown in extras["beyond_mb"].items())
    found = f"{extras['choice_bytes']} byte; at most {worst:.1f} MB beyond output and choice ({name})"
    return Outcome("memory", goal, extras["choice_bytes"] == 1 and worst <= NOISE_MB, found)


def _threads(record: Record) -> Outcome:
    goal = "1 to 2 threads: at least 1.8 times where not limited by bandwidth"
    scaling = record.get("extras", {}).get("scaling")
    if not scaling:
        return Outcome("threads", goal, None, "not measured")
    found = ", ".join(f"{name} {factor:.2f}{TIMES}" for name, factor in scaling.items())
    return Outcome("threads", goal, min(scaling.values()) >= 1.8, found)


def _at_best(mine: Rows, least: float) -> str:
    if not mine:
        return ""
    values = [row.fraction_at_best for row in mine]
    below = sum(value < least for value in values)
    return f". Best over best: {min(values):.2f} to {max(values):.2f}, {below or 'none'} below"


def _of_traffic(row: Row) -> str:
    return f" ({row.of_traffic:.2f} of plain traffic)" if row.of_traffic else ""


def _judge(
    group: str,
    goal: str,
    mine: Rows,
    value: Callable[[Row], float],
    least: float,
    unit: str = "",
    note: Callable[[Row], str] = lambda row: "",
) -> Outcome:
    """Reached when every row reaches `least`; tells the range and, where one falls short, which rows do."""
    if not mine:
        return Outcome(group, goal, None, "not measured")
    ranked = sorted(mine, key=value)
    short = [row for row in ranked if value(row) < least]
    found = f"{value(ranked[0]):.2f}{unit} to {value(ranked[-1]):.2f}{unit}"
    if short:
        worst = ", ".join(f"{row.name} {value(row):.2f}{unit}{note(row)}" for row in short[:MOST_NAMED])
        found += f"; {len(short)} of {len(mine)} below: {worst}{', …' if len(short) > MOST_NAMED else ''}"
    return Outcome(group, goal, not short, found)
