"""How commands speak: results on stdout, everything else on stderr; tables and progress bars by Rich."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..graph.values import Array, Values

console: Final = Console(width=None if sys.stdout.isatty() else 160)
"""Where results go."""

messages: Final = Console(stderr=True)
"""Where progress and complaints go."""

LISTED: Final = 1024
"""How many values of a result `--json` writes out."""

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("kmgt", 1)
}


def complain(problem: str) -> None:
    """Says what is wrong, on stderr."""
    messages.print(Text.assemble(("error: ", "bold red"), harmless(problem)))


def harmless(text: str) -> str:
    """The text without characters that would command a terminal.

    >>> harmless("red \\x1b[31m alert")
    'red  [31m alert'
    """
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def write_json(data: Any) -> None:
    """Data for machines, on stdout, at once: the command may go on watching."""
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n")
    sys.stdout.flush()


def progress() -> Progress:
    """A bar that disappears when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal)


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table."""
    shown = None if title is None else Text(harmless(title), "italic")
    made = Table(title=shown, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def bytes_of(text: str) -> int:
    """A size in bytes.

    >>> bytes_of("4GiB"), bytes_of("500 MB"), bytes_of("1024")
    (4294967296, 500000000, 1024)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if not found or found[2] == "i":
        raise ValueError(f"{text!r} is not a size: expected something like 4GiB or 500MB")
    return int(float(found[1]) * _UNITS[found[2]])


def seconds(time: float) -> str:
    """A duration, short.

    >>> seconds(0.0123), seconds(75)
    ('12.3 ms', '75.00 s')
    """
    return f"{time * 1e3:.1f} ms" if time < 1 else f"{time:.2f} s"


def glance(numbers: Array) -> str:
    """A result at a glance: its values if they are few, otherwise their range.

    >>> glance(np.array([1.5, 2.0])), glance(np.arange(100.0))
    ('1.5 2', '0 .. 99')
    """
    if numbers.size <= 6:
        return " ".join(map(_short, numbers.reshape(-1)))
    found = extremes(numbers)
    missing = int(np.isnan(numbers).sum()) if _floating(numbers) else 0
    shown = f"{_short(found[0])} .. {_short(found[1])}" if found else ""
    return f"{shown} ({missing} NaN)" if missing else shown


def extremes(numbers: Array) -> tuple[Any, Any] | None:
    """The lowest and the highest value, NaN left out."""
    with np.errstate(all="ignore"):
        known = numbers[~np.isnan(numbers)] if _floating(numbers) else numbers
    return (known.min(), known.max()) if known.size else None


def described(numbers: Array) -> dict[str, Any]:
    """A result as JSON has it: what it is, its range, and its values if they are not too many."""
    found = extremes(numbers)
    low, high = (Values(np.asarray(n)).to_json() for n in found) if found else (None, None)
    data = {"dtype": numbers.dtype.name, "shape": list(numbers.shape), "min": low, "max": high}
    return data | ({"values": Values(numbers).to_json()} if numbers.size <= LISTED else {})


def _floating(numbers: Array) -> bool:
    return "float" in numbers.dtype.name


def _short(number: Any) -> str:
    return f"{number:.6g}" if "float" in number.dtype.name else str(number)
