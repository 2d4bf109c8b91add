"""TensorFlow without oneDNN in a process of its own, driven over a pipe so that its samples fall into the same rounds.

oneDNN is chosen when TensorFlow is imported, so the other choice needs a second process. The parent writes one JSON
request a line ({"cell": name} or {"count": n}) and reads one JSON answer a line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import machine
from .cases import Cell, cells
from .measure import Local

NAME = "TF native"


class Worker:
    """The parent's end: a contender whose time is measured by the worker itself."""

    name = NAME

    def __init__(self, allocation: str, threads: int) -> None:
        self.has_tensorflow = importlib.util.find_spec("tensorflow") is not None
        if not self.has_tensorflow:
            return
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", allocation, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=machine.environment(allocation, threads, onednn=False),
            cwd=Path(__file__).parent.parent,
        )

    def prepare(self, cell: Cell) -> bool:
        """Whether the worker can run the cell, and something other than what the parent's TensorFlow runs."""
        return self.has_tensorflow and differs(cell) and self._ask({"cell": cell.name}) is True

    def time(self, count: int) -> float:
        return float(self._ask({"count": count}))

    def close(self) -> None:
        if not self.has_tensorflow:
            return
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline() or "null")


def differs(cell: Cell) -> bool:
    """oneDNN has kernels for these only; everything else runs the native kernel in both processes."""
    operators = ("max_forward", "avg_forward", "avg_grad")
    return cell.operator in operators and cell.case.dtype in ("float32", "bfloat16") and cell.case.ratio is None


def serve(allocation: str, threads: int) -> None:
    """Answers requests until the pipe closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the answers
    machine.bind(threads)
    from .data import data_of
    from .peers import TensorFlow

    peer = TensorFlow(NAME, threads)
    by_name = {cell.name: cell for cell in cells()}
    current: Local | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: object
        if "cell" in request:
            cell = by_name[request["cell"]]
            call = peer.call(cell, data_of(cell.case), allocation == "reused")
            current = Local(NAME, call.run) if call else None
            answer = current is not None
        else:
            answer = current.time(request["count"]) if current else None
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
