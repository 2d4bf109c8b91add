"""The server's side of worker processes: start them, ask them, kill them.

A spare worker is kept warm, so that a first run and a run after a kill begin at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from . import frames
from .frames import Message
from .pipes import HEAD, envelope, opened
from .problems import Refused

OnEvent: TypeAlias = Callable[[str | bytes], Awaitable[None]]
LONGEST_ANSWER: Final = 60.0
BUFFER: Final = 2**20


class Worker:
    """One process that runs one page."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[str | bytes]] = {}
        self._tickets = 0
        self._reader: asyncio.Task[None] | None = None
        self.alive = True

    @classmethod
    async def start(cls, max_memory: int | None) -> Worker:
        """A new process. It leads a group of its own, so that a Ctrl-C meant for the server does not reach it."""
        # A slice is a megabyte: with room for one in the buffers it does not go through in sixteen pieces.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "poolgrad_studio.worker", str(max_memory or 0)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=BUFFER,
            pipesize=BUFFER,
            start_new_session=True,
        )
        return cls(process)

    def attend(self, on_event: OnEvent, on_end: Callable[[], Awaitable[None]]) -> None:
        """From now on events are passed on, and the end of the process is told."""
        self._reader = asyncio.create_task(self._read(on_event, on_end))

    def lives(self) -> bool:
        """Whether the process is still there. The system is asked, which knows before this process is told."""
        if self._process.returncode is not None or not hasattr(os, "waitid"):
            return self._process.returncode is None
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def send(self, message: Message) -> None:
        """Sends what is not answered."""
        self._write(message, 0)

    async def ask(self, message: Message) -> str | bytes:
        """The reply, as the browser is to get it."""
        if not self.alive:
            raise Refused("no_result", "the results are gone: run the page again")
        self._tickets += 1
        ticket = self._tickets
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            self._write(message, ticket)
            return await asyncio.wait_for(self._waiting[ticket], LONGEST_ANSWER)
        except asyncio.TimeoutError:
            raise Refused("busy", "that took too long") from None
        finally:
            self._waiting.pop(ticket, None)

    async def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        await self._process.wait()

    def _write(self, message: Message, ticket: int) -> None:
        assert self._process.stdin is not None
        if self.alive and not self._process.stdin.is_closing():
            self._process.stdin.write(envelope(frames.dumps(message), ticket))

    async def _read(self, on_event: OnEvent, on_end: Callable[[], Awaitable[None]]) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                length, ticket, kind = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
                message = opened(await self._process.stdout.readexactly(length), kind)
                if ticket == 0:
                    await on_event(message)
                elif ticket in self._waiting and not self._waiting[ticket].done():
                    self._waiting[ticket].set_result(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        self.alive = False
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Refused("no_result", "the results are gone: run the page again"))
        await on_end()


class Workers:
    """Where workers come from."""

    def __init__(self, max_memory: int | None) -> None:
        self._max_memory = max_memory
        self._spare: asyncio.Task[Worker] | None = None

    def warm_up(self) -> None:
        """Starts the spare one."""
        if self._spare is None:
            self._spare = asyncio.create_task(Worker.start(self._max_memory))

    async def take(self) -> Worker:
        """A worker of one's own."""
        self.warm_up()
        assert self._spare is not None
        spare, self._spare = self._spare, None
        worker = await spare
        if not worker.lives():
            worker = await Worker.start(self._max_memory)
        self.warm_up()
        return worker

    async def close(self) -> None:
        """Ends the spare one."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            await (await spare).kill()
