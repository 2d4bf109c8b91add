"""Compares two runs by poolgrad's share of the memory limit, which holds still where absolute times do not.

A row counts as a regression only if both the best time and the round-by-round median lost more than the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .records import Record, Row, geometric_mean, load, rows

THRESHOLD = 0.10


@dataclass(frozen=True)
class Change:
    """`best` and `steady` are new share / old share: below 1 is slower."""

    row: Row
    old: float
    best: float
    steady: float

    def regressed(self, threshold: float) -> bool:
        return max(self.best, self.steady) < 1 - threshold

    def improved(self, threshold: float) -> bool:
        return min(self.best, self.steady) > 1 / (1 - threshold)


def changes(base: Record, new: Record) -> list[Change]:
    """The rows that both runs hold, the largest loss first."""
    before = {row.key: row for row in rows(base)}
    pairs = [(before[row.key], row) for row in rows(new) if row.key in before]
    found = [
        Change(row, old.fraction, row.fraction_at_best / old.fraction_at_best, row.fraction / old.fraction)
        for old, row in pairs
    ]
    return sorted(found, key=lambda change: max(change.best, change.steady))


def compare(base: Path, new: Record, threshold: float = THRESHOLD) -> int:
    """Prints what changed beyond the threshold; 1 if anything regressed, else 0."""
    console, old = Console(), load(base)
    method = old.get("method", 1), new.get("method", 1)
    if method[0] != method[1]:
        console.print(
            f"[yellow]the runs were measured in different ways[/] (methods {method[0]} and {method[1]}, "
            "see METHOD in benchmarks/records.py): small changes mean nothing",
            highlight=False,
        )
    for fact in ("processor", "model", "kernels", "threads"):  # as far as both say
        before, now = old["machine"].get(fact), new["machine"].get(fact)
        if before and now and before != now:
            console.print(
                f"[yellow]the runs differ in more than the code[/]: {fact} was {before}, is {now}", highlight=False
            )
    found = changes(old, new)
    if not found:
        console.print(f"no cell of {base} was measured again")
        return 0
    regressed = [change for change in found if change.regressed(threshold)]
    improved = [change for change in found if change.improved(threshold)]
    table = Table(title=f"against {base.name}: share of the memory limit, changes beyond {threshold:.0%}")
    for column in ("cell", "layout", "allocation", "before", "now", "change"):
        table.add_column(column, justify="left" if column in ("cell", "layout", "allocation") else "right")
    for change in (*regressed, *improved):
        row = change.row
        style = "red" if change in regressed else "green"
        shares = (f"{change.old:.2f}", f"{row.fraction:.2f}", f"{change.best - 1:+.0%}")
        table.add_row(row.cell.name, row.layout, row.mode, *shares, style=style)
    if table.row_count:
        console.print(table)
    mean = geometric_mean(change.best for change in found) or 1.0
    console.print(
        f"{len(found)} rows compared: {len(regressed)} slower, {len(improved)} faster, geometric mean {mean - 1:+.1%}"
    )
    return 1 if regressed else 0
