"""Measures cells in one process with one way of allocating: builds the contenders, checks the answers, races them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import copying, machine, records
from .cases import Cell, cells
from .data import data_of, difference
from .measure import QUICK, Contender, Effort, Local, race
from .peers import Call, Peer, available
from .worker import Worker

REFERENCES = ("torch", "TF", "JAX", "SciPy")
SUMS = ("max_grad", "max_grad_choice", "avg_forward", "avg_grad")


class Session:
    """Every library loaded once; `measure` turns a cell into its record."""

    def __init__(self, allocation: str, threads: int, effort: Effort) -> None:
        self.allocation, self.threads, self.effort = allocation, threads, effort
        self.worker = Worker(allocation, threads)
        with machine.quiet():
            self.peers = available(threads)
        self.ours = _ours(threads)

    def measure(self, cell: Cell) -> records.Record:
        data, reuse = data_of(cell.case), self.allocation == "reused"
        calls = {peer.name: call for peer in self.peers if (call := peer.call(cell, data, reuse))}
        contenders: list[Contender] = [Local(name, call.run) for name, call in calls.items()]
        if self.worker.prepare(cell):
            contenders.append(self.worker)
        faults: dict[str, str | None] = {}
        for peer, layout in self._our_layouts(cell):
            call = peer.call(cell, data, reuse)
            if call:
                faults[layout] = _fault(call, calls, cell)
                contenders.append(Local(peer.name, call.run))
        for name, way in copying.ways(cell.bytes, self.threads).items():
            contenders.append(Local(f"{records.LIMIT}{name}", way))
        for name, way in copying.traffic(cell.read, cell.written, self.threads).items():
            contenders.append(Local(f"{records.TRAFFIC}{name}", way))
        timings = race(contenders, self.effort, cell.name)
        return records.cell_record(cell, timings, faults, absent(self.peers, calls, cell))

    def _our_layouts(self, cell: Cell) -> Iterator[tuple[Peer, str]]:
        for peer in self.ours:
            layout = peer.name.removeprefix(records.OURS)
            if layout in cell.case.layouts:
                yield peer, layout


def absent(peers: Iterable[Peer], calls: Container[str], cell: Cell) -> dict[str, str]:
    """Who cannot take part, and what was said: where one configuration refused, another may take part."""
    return {
        peer.name: peer.refused[cell.name] for peer in peers if peer.name not in calls and cell.name in peer.refused
    }


def _ours(threads: int) -> list[Peer]:
    try:
        from .ours import Poolgrad
    except ImportError as error:
        print(f"poolgrad cannot be imported ({error}): only its peers are measured", file=sys.stderr)
        return []
    return [Poolgrad(layout, threads) for layout in ("last", "first")]


def _fault(call: Call, peers: dict[str, Call], cell: Cell) -> str | None:
    """None if poolgrad's answer agrees with the first comparable peer's, or nobody has one."""
    for name in REFERENCES:
        peer = peers.get(name)
        if peer and peer.fetch and call.fetch:
            exact = cell.operator not in SUMS
            what = difference(call.fetch(call.run()), peer.fetch(peer.run()), cell.case, exact)
            return f"differs from {name}: {what}" if what else None
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("allocation", choices=("default", "reused"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--filter", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=None, help="stop beginning new cells after this time")
    arguments = parser.parse_args()
    machine.bind(arguments.threads)
    chosen = cells(arguments.filter, arguments.quick)
    found = list(_run(chosen, arguments))
    records.save({"modes": {arguments.allocation: found}}, arguments.out)


def _run(chosen: list[Cell], arguments: argparse.Namespace) -> Iterator[records.Record]:
    started = perf_counter()
    console = Console(stderr=True)
    session = Session(arguments.allocation, arguments.threads, QUICK if arguments.quick else Effort())
    columns = (TextColumn("{task.description:<48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(chosen))
        for number, cell in enumerate(chosen, 1):
            if arguments.seconds and perf_counter() - started > arguments.seconds:
                console.print(f"time is up: {len(chosen) - number + 1} cells not measured")
                break
            progress.update(task, description=f"{arguments.allocation}: {cell.name}")
            if not console.is_terminal:
                console.print(f"[{number}/{len(chosen)}] {arguments.allocation}: {cell.name}", markup=False)
            yield session.measure(cell)
            progress.advance(task)
    session.worker.close()


if __name__ == "__main__":
    main()
