"""`python -m benchmarks.cpu`: poolgrad against every peer on this processor, as a table, a page, a picture, a record.

Each way of allocating outputs is measured in a process of its own (it is a property of the process); within one, all
peers run interleaved on the same data with the same number of threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from . import compare, machine, records, report

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "benchmarks"
QUICK_SECONDS = 100.0


def main() -> int:
    arguments = _arguments()
    if arguments.compare and not arguments.compare.is_file():  # said before minutes of measuring
        stored = sorted(path.name for path in records.HISTORY.glob("*.json"))
        print(
            f"no record {arguments.compare}; in {records.HISTORY.relative_to(ROOT)}: {', '.join(stored)}",
            file=sys.stderr,
        )
        return 2
    if arguments.report:
        record = records.load(arguments.report)
    else:
        record = _measure(arguments)
        if not any(record["modes"].values()):
            print("no cell matches the filter", file=sys.stderr)
            return 2
    report.show(record, _console())
    whole = _is_whole(record)
    if whole and not arguments.report:
        path = records.history_path(record)
        records.save(record, path)
        print(f"record: {path.relative_to(ROOT)}")
    if arguments.out:
        records.save(record, arguments.out)
    if whole:
        page = report.write(record, DOCS)
        print(f"page and picture: {page.relative_to(ROOT)}, {page.stem}.svg")
    status = compare.compare(arguments.compare, record, arguments.threshold) if arguments.compare else 0
    return max(status, int(any(row.fault for row in records.rows(record))))


def _is_whole(record: records.Record) -> bool:
    """Every cell, both ways of allocating, with poolgrad: fit for the history and the page."""
    return bool(record["whole"]) and len(record["modes"]) == 2 and bool(records.rows(record))


def _console() -> Console:
    """The terminal, or a width that holds the table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a representative part, within two minutes")
    parser.add_argument("--filter", default="", metavar="WORDS", help="only cells whose name holds every word")
    parser.add_argument("--allocation", choices=("default", "reused", "both"), help="both; with --quick: reused")
    parser.add_argument("--threads", type=int, default=min(2, machine.processors()), help="default: 2")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also store the record here")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, report a stored record")
    parser.add_argument("--compare", type=Path, metavar="BASE", help="show changes against a stored record")
    parser.add_argument("--threshold", type=float, default=compare.THRESHOLD, help="what --compare lets pass (0.10)")
    arguments = parser.parse_args()
    if arguments.allocation is None:
        arguments.allocation = "reused" if arguments.quick else "both"
    return arguments


def _measure(arguments: argparse.Namespace) -> records.Record:
    modes = ("default", "reused") if arguments.allocation == "both" else (arguments.allocation,)
    whole = not arguments.quick and not arguments.filter
    described = machine.describe(arguments.threads)
    record: records.Record = {"method": records.METHOD, "machine": described, "whole": whole, "extras": {}, "modes": {}}
    with tempfile.TemporaryDirectory() as folder:
        for mode in modes:
            part = _session(mode, Path(folder) / f"{mode}.json", arguments, len(modes))
            record["modes"] |= part["modes"]
        if whole:
            record["extras"] = _extras(Path(folder) / "extras.json", arguments.threads)
    return record


def _session(mode: str, out: Path, arguments: argparse.Namespace, parts: int) -> records.Record:
    command = [sys.executable, "-m", "benchmarks.session", mode, str(out), "--threads", str(arguments.threads)]
    command += ["--filter", arguments.filter]
    if arguments.quick:
        command += ["--quick", "--seconds", str(QUICK_SECONDS / parts)]
    environment = machine.environment(mode, arguments.threads)
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return records.load(out)


def _extras(out: Path, threads: int) -> dict[str, Any]:
    """Overhead, scaling and memory of poolgrad; empty if it cannot be imported."""
    command = [sys.executable, "-m", "benchmarks.extras", str(out), str(threads)]
    failed = subprocess.run(command, cwd=ROOT, env=machine.environment("default", threads), check=False).returncode
    return {} if failed else json.loads(out.read_text())


if __name__ == "__main__":
    sys.exit(main())
