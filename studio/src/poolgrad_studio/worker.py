"""The process that runs pages and keeps their results. It has a memory limit and can be killed at any moment.

It reads requests from its standard input, writes replies and events to its standard output (see `pipes`), and ends when
the server does. Runs, summaries of results and questions about them each have their own thread, so that results can be
looked at while others are still being computed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from poolgrad.errors import PoolgradError
from poolgrad.graph import ClientSession, Page
from poolgrad.policy import Policy

from . import frames, tensors, window_view
from .frames import Message
from .pipes import HEAD, LARGEST, TEXT, envelope, opened
from .problems import Refused
from .tensors import Array
from .window_view import Pooling

FLUSH_SECONDS: Final = 0.03
LARGE: Final = 2**22
"""Results with more elements are shown first and measured afterwards."""


class Desk:
    """One page's session, its results, and the answers to questions about them."""

    def __init__(self, out: IO[bytes], max_memory: int | None) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._max_memory = max_memory
        self._session: ClientSession | None = None
        self._page: Page | None = None
        self._results: dict[str, Array] = {}
        self._cancel = threading.Event()
        self._engine = ""
        self._summaries: queue.SimpleQueue[tuple[int, str, Array] | Message] = queue.SimpleQueue()
        self._progress: dict[str, Message] = {}
        self._questions = ThreadPoolExecutor(2, thread_name_prefix="question")
        threading.Thread(target=self._summarise, daemon=True).start()

    # -- talking ------------------------------------------------------------------------------------------------------

    def serve(self, requests: IO[bytes]) -> None:
        """Answers until the server is gone."""
        while True:
            head = requests.read(HEAD.size)
            if len(head) < HEAD.size:
                return
            length, ticket, kind = HEAD.unpack(head)
            if length > LARGEST:
                return
            message = opened(requests.read(length), kind)
            self._take(frames.loads(message) if kind == TEXT else frames.unpack(message)[0], ticket)  # type: ignore[arg-type]

    def _take(self, message: Message, ticket: int) -> None:
        if message["type"] == "run":
            self._cancel.clear()
            threading.Thread(target=self._run, args=(message,), daemon=True).start()
        elif message["type"] == "cancel":
            self._cancel.set()
        elif message["type"] == "clear":
            self._session, self._results = None, {}
        else:
            self._questions.submit(self._answer, message, ticket)

    def _send(self, message: Message, payload: Any = None, ticket: int = 0) -> None:
        body = frames.dumps(message) if payload is None else frames.pack(message, payload)
        with self._lock:
            self._out.write(envelope(body, ticket))
            self._out.flush()

    # -- running ------------------------------------------------------------------------------------------------------

    def _run(self, ask: Message) -> None:
        started = time.monotonic()
        run = ask["run"]
        self._send({"type": "begun", "run": run})
        try:
            state, message = self._evaluate(ask, run)
        except PoolgradError as error:
            state, message = "failed", str(error)
        except MemoryError:
            state, message = "failed", "the run needs more memory than it may have"
        except Exception as error:
            traceback.print_exc()
            state, message = "failed", f"{type(error).__name__}: {error}"
        self._flush(run)
        seconds = time.monotonic() - started
        over = {"type": "finished", "run": run, "state": state, "message": message, "seconds": seconds}
        self._summaries.put(over | {"fresh": sorted(self._results)})

    def _evaluate(self, ask: Message, run: int) -> tuple[str, str | None]:
        page = Page.loads(ask["text"], folder=Path(ask["folder"]))
        if self._session is None or self._engine != ask["engine"]:
            self._engine = ask["engine"]
            self._session = ClientSession(page, engine=self._engine, max_memory=self._max_memory)
        session = self._session
        session.page = self._page = page
        flusher = Ticker(FLUSH_SECONDS, lambda: self._flush(run))
        try:
            report = session.evaluate(
                ask.get("fetch"), on_event=lambda event: self._note(run, event), cancel=self._cancel
            )
        finally:
            flusher.stop()
        # What the page no longer has is forgotten; what this run did not touch stays as it was.
        self._results = {key: array for key, array in self._results.items() if key.partition(".")[0] in page.blocks}
        for name, result in report.blocks.items():
            for output, array in result.outputs.items():
                self._keep(run, f"{name}.{output}", array)
        if self._cancel.is_set():
            return "stopped", None
        return ("done", None) if report.ok else ("failed", "; ".join(p.message for p in report.problems[:3]))

    def _note(self, run: int, event: Any) -> None:
        """Progress of a block. Its results are shown at once."""
        states = {"started": "running", "cancelled": "skipped"}
        noted: Message = {"state": states.get(event.status, event.status)}
        if event.seconds is not None:
            noted["seconds"] = event.seconds
        if event.problem is not None:
            noted["problem"] = event.problem.to_dict()
        self._progress[event.block] = noted
        for output, array in (getattr(event, "outputs", None) or {}).items():
            self._keep(run, f"{event.block}.{output}", array)

    def _keep(self, run: int, key: str, array: Any) -> None:
        assert self._session is not None
        values = np.asarray(self._session.engine.to_numpy(array))
        if self._results.get(key) is not values:
            self._results[key] = values
            self._summaries.put((run, key, values))

    def _flush(self, run: int) -> None:
        noted, self._progress = self._progress, {}
        if noted:
            self._send({"type": "progress", "run": run, "blocks": noted})

    def _summarise(self) -> None:
        """Sends a small picture of every result, and the word that a run is over behind the last of them."""
        while True:
            waiting = self._summaries.get()
            if isinstance(waiting, dict):
                self._send(waiting)
                continue
            run, key, array = waiting
            if array.size <= LARGE:
                self._picture(run, key, array, with_statistics=True)
            else:
                self._picture(run, key, array, with_statistics=False)
                self._questions.submit(self._picture, run, key, array, with_statistics=True)

    def _picture(self, run: int, key: str, array: Array, with_statistics: bool) -> None:
        block, _, output = key.partition(".")
        try:
            header, values = tensors.summary(array, with_statistics)
        except Exception:
            traceback.print_exc()
            return
        named = {"type": "result", "run": run, "key": key, "block": block, "output": output}
        self._send(named | header | {"dtype": "float32", "shape": list(values.shape)}, values.tobytes())

    # -- questions ----------------------------------------------------------------------------------------------------

    def _answer(self, ask: Message, ticket: int) -> None:
        reply = {"type": ask["type"], "id": ask.get("id")}
        try:
            header, payload = QUESTIONS[ask["type"]](self, ask)
            self._send(reply | header, payload, ticket)
        except Refused as error:
            self._refuse(reply, error.code, str(error), ticket)
        except (PoolgradError, MemoryError) as error:
            self._refuse(reply, "refused", str(error) or "there is not enough memory for that", ticket)
        except Exception as error:
            traceback.print_exc()
            self._refuse(reply, "internal", f"{type(error).__name__}: {error}", ticket)

    def _refuse(self, reply: Message, code: str, message: str, ticket: int) -> None:
        self._send(reply | {"type": "error", "code": code, "message": message}, None, ticket)

    def result(self, key: object) -> Array:
        """An array that a block gave."""
        found = self._results.get(key) if isinstance(key, str) else None
        if found is None:
            raise Refused("no_result", f"{key} has no result: run the page first")
        return found

    def pooling(self, ask: Message) -> tuple[Pooling, dict[str, str | None]]:
        """The pooling behind a block, and where its tensors are on the page."""
        page, name = self._page, ask.get("block")
        if page is None or not isinstance(name, str) or name not in page.blocks:
            raise Refused("no_result", f"{name} has not run yet: run the page first")
        pooling = self._pooling_of(page, name)
        others = []
        for other, block in page.blocks.items():
            if other != name and block.type.name in (pooling.first.name, pooling.second.name):
                with contextlib.suppress(Refused, PoolgradError):
                    others.append(self._pooling_of(page, other))
        return pooling.beside(others), self._keys(page, name, pooling)

    def _pooling_of(self, page: Page, name: str) -> Pooling:
        block = page.blocks[name]
        given: dict[str, Any] = {key: value for key, value in block.attributes.items() if key not in ("ties", "nan")}
        for pin, sources in block.inputs.items():
            given[pin] = self.result(sources[0])
        outputs = {output: self.result(f"{name}.{output}") for output in block.type.outputs}
        rule = Policy(*(block.attributes.get(key) or getattr(page.policy, key) for key in ("ties", "nan")))
        return Pooling.of(block.type.name, given, outputs, rule)

    def _keys(self, page: Page, name: str, pooling: Pooling) -> dict[str, str | None]:
        wired = {pin: sources[0] for pin, sources in page.blocks[name].inputs.items()}
        source = next((wired[pin] for pin in window_view.INPUTS if pin in wired), None)
        gradient = next((wired[pin] for pin in window_view.GRADIENTS if pin in wired), None)
        made = f"{name}.output"
        keys: dict[str, str | None] = {"input": source, "output": wired.get("orig_output")}
        if pooling.order == 0:
            return keys | {"output": made}
        return keys | (
            {"grad": gradient, "grad_out": made} if pooling.order == 1 else {"second_in": gradient, "second_out": made}
        )

    def slice(self, ask: Message) -> tuple[Message, Any]:
        """A plane of a result."""
        header, values = tensors.slice_of(self.result(ask.get("key")), ask)
        return {"key": ask["key"]} | header | {"dtype": "float32", "shape": list(values.shape)}, values.tobytes()

    def download(self, ask: Message) -> tuple[Message, Any]:
        """A result as a file in the folder that the server names."""
        path, kind = tensors.write_file(self.result(ask.get("key")), ask, Path(tempfile.mkdtemp(dir=ask["folder"])))
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in ask["key"])
        return {"type": "file", "name": f"{name}.{kind}", "path": str(path), "bytes": path.stat().st_size}, None

    def window_planes(self, ask: Message) -> tuple[Message, Any]:
        """The planes of the window view."""
        header, payload = window_view.planes(self.pooling(ask)[0], ask)
        return {"block": ask["block"]} | header, payload

    def window_view(self, ask: Message) -> tuple[Message, Any]:
        """The geometry of a pooling block."""
        pooling, keys = self.pooling(ask)
        return {"block": ask["block"]} | window_view.describe(pooling, keys), None


def _over_result(look: Callable[[Array, Message], Message]) -> Callable[[Desk, Message], tuple[Message, Any]]:
    return lambda desk, ask: ({"key": ask.get("key")} | look(desk.result(ask.get("key")), ask), None)


def _as_text(array: Array, ask: Message) -> Message:
    output = str(ask["key"]).partition(".")[2]
    return {"type": "text"} | tensors.as_text(array, ask, f"result_{output}")


QUESTIONS: Final[dict[str, Callable[[Desk, Message], tuple[Message, Any]]]] = {
    "slice": Desk.slice,
    "cells": _over_result(tensors.cells),
    "table": _over_result(tensors.table),
    "histogram": _over_result(tensors.histogram),
    "statistics": _over_result(lambda array, ask: tensors.all_statistics(array)),
    "copy_text": _over_result(_as_text),
    "download": Desk.download,
    "window_view": Desk.window_view,
    "window_planes": Desk.window_planes,
    "window_cell": lambda desk, ask: ({"block": ask.get("block")} | window_view.cell(desk.pooling(ask)[0], ask), None),
}
"""What may be asked about results, by the type of the message."""


class Ticker:
    """Calls a function again and again until it is stopped."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, args=(seconds, call), daemon=True)
        self._thread.start()

    def _tick(self, seconds: float, call: Callable[[], None]) -> None:
        while not self._over.wait(seconds):
            call()

    def stop(self) -> None:
        """No call begins after this."""
        self._over.set()
        self._thread.join()


def limit_memory(most: int | None) -> None:
    """From now on this process may allocate so many bytes more; and it is the first to go when the machine runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")
    if most is None:
        return
    try:
        import resource
    except ImportError:  # Windows: only the check before each block's allocation
        return
    used = 0
    with contextlib.suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text().splitlines()
        used = int(next(line for line in status if line.startswith("VmData")).split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (used + most, used + most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """The process. What blocks print goes to standard error: standard output belongs to the server."""
    out = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    max_memory = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] != "0" else None
    limit_memory(max_memory)
    requests = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    desk = Desk(out, max_memory)
    try:
        desk.serve(requests)
    finally:
        os._exit(0)  # whatever still runs here has nobody to report to


if __name__ == "__main__":
    main()
