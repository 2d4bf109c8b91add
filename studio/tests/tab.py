"""A browser tab without a browser, and a server of its own for a test: for everything that needs no pictures."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from poolgrad_studio import frames

PATIENCE = 30.0


AT_MOST = 40_000
"""Milliseconds to wait for something that must happen. Speed is measured elsewhere: this ends what hangs."""


def patience() -> float:
    """By how much times may be longer than their goals.

    Other tests run beside these, so only a blunder may fail them: twenty times. `make test-full`, which sets
    POOLGRAD_STRICT, has the machine to itself, and times count; where it has not, less strictly.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return 20 if not os.environ.get("POOLGRAD_STRICT") else 1 if waiting < 1.5 else 2 * waiting


class Server:
    """`poolgrad studio` as a process."""

    def __init__(
        self, folder: Path, *options: str, port: int = 0, state: Path | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        env = os.environ | {"XDG_STATE_HOME": str(state or folder / ".state")} | (env or {})
        command = [sys.executable, "-m", "poolgrad_studio", str(folder), "--port", str(port), "--no-browser", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.said = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if "Ctrl-C" in line:
                break
        found = re.search(r"https?://\S+", "".join(self.said))
        assert found, f"the server did not start: {''.join(self.said)}"
        self.link = found[0]
        self.host, self.port = urlsplit(self.link).hostname, urlsplit(self.link).port
        self.token = re.search(r"token=([\w-]+)", self.link)[1]  # type: ignore[index]
        self._await_answer()

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> http.client.HTTPResponse:
        """An HTTP request with exactly these headers (underscores stand for hyphens)."""
        link = http.client.HTTPConnection(self.host or "", self.port, timeout=PATIENCE)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        link.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in given.items():
            link.putheader(name, value)
        if body is not None:
            link.putheader("Content-Length", str(len(body)))
        link.endheaders(body.encode() if body is not None else None)
        return link.getresponse()

    def cookie(self) -> str:
        """A session, as the link gives it."""
        answer = self.request("GET", f"/?token={self.token}")
        assert answer.status == 303
        return str(answer.getheader("Set-Cookie")).partition(";")[0]

    def tab(self, cookie: str | None = None, **options: Any) -> Tab:
        return Tab(self, cookie or self.cookie(), **options)

    def kill(self) -> None:
        """As if the power went."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def _await_answer(self) -> None:
        for _ in range(300):
            try:
                self.request("GET", "/favicon.ico")
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("the server does not answer")


class Refusal(Exception):
    """An `error` reply."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(reply["message"])
        self.code = reply["code"]
        self.reply = reply


class Tab:
    """Speaks the protocol. Events that nobody waits for are kept in `events`, pictures in `results`."""

    def __init__(self, server: Server, cookie: str, client: str | None = None, hello: bool = True) -> None:
        headers = {"Cookie": cookie}
        address = f"ws://{server.host}:{server.port}/socket"
        self._connection = connect(address, origin=server.origin, additional_headers=headers, max_size=2**30)
        self.socket = self._connection.__enter__()
        self.events: list[dict[str, Any]] = []
        self.results: dict[str, tuple[dict[str, Any], np.ndarray[Any, Any]]] = {}
        self._ids = itertools.count(1)
        self.version = 0
        if hello:
            self.welcome = self.ask("hello", client=client or secrets.token_hex(8))

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        """The reply to a request."""
        number = next(self._ids)
        self.send({"type": type, "id": number, **fields})
        return self.reply(number)

    def reply(self, number: int | None) -> dict[str, Any]:
        reply = self.wait(lambda m: "id" in m and m["id"] == number)
        if reply["type"] == "error":
            raise Refusal(reply)
        return reply

    def ask_array(self, type: str, **fields: Any) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
        reply = self.ask(type, **fields)
        return reply, reply["payload"].view(reply["dtype"]).reshape(reply["shape"])

    def upload(self, payload: bytes, **fields: Any) -> dict[str, Any]:
        number = next(self._ids)
        self.socket.send(frames.pack({"type": "upload", "id": number, **fields}, payload))
        return self.reply(number)

    def open(self, page: str, **fields: Any) -> dict[str, Any]:
        opened = self.ask("open", page=page, **fields)
        self.version, self.doc, self.token = opened["version"], opened.get("doc"), opened["token"]
        return opened

    def edit(
        self, *changes: Any, base: int | None = None, edit: str | None = None, label: str = "Edit"
    ) -> dict[str, Any]:
        reply = self.ask(
            "edit", edit=edit or secrets.token_hex(8), base=base or self.version, changes=list(changes), label=label
        )
        self.version = reply["version"]
        return reply

    def run(self, **fields: Any) -> dict[str, Any]:
        """Runs the page to the end."""
        started = self.ask("run", **fields)
        return self.event("run", lambda m: m["run"] == started["run"] and m["state"] != "running")

    def event(self, type: str, holds: Callable[[dict[str, Any]], bool] = lambda m: True) -> dict[str, Any]:
        """The next event of a type, of those that came and those to come."""
        for number, message in enumerate(self.events):
            if message["type"] == type and holds(message):
                return self.events.pop(number)
        return self.wait(lambda m: "id" not in m and m["type"] == type and holds(m))

    def wait(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            message = self._read(end - time.monotonic())
            if holds(message):
                return message
            self.events.append(message)
        raise AssertionError(f"nothing came but {[m['type'] for m in self.events][-20:]}")

    def _read(self, seconds: float) -> dict[str, Any]:
        raw = self.socket.recv(timeout=seconds)
        if isinstance(raw, str):
            return frames.loads(raw)
        header, payload = frames.unpack(raw)
        header["payload"] = np.frombuffer(payload, np.uint8)
        if header["type"] == "result":
            values = header["payload"].view(header["dtype"]).reshape(header["shape"])
            self.results[header["key"]] = (header, values)
        return header

    def closed_with(self) -> int | None:
        """The code with which the server closed the socket."""
        try:
            while True:
                self.socket.recv(timeout=PATIENCE)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None

    def close(self) -> None:
        self.socket.close()
