"""One tab: what it asks, what it is told. The messages are those of docs/studio-protocol.md.

Edits are taken in the order in which they arrive; questions about results are answered as soon as the worker has them.
Whatever goes wrong with a request ends in an `error` reply to it, never in a closed connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from poolgrad.errors import PoolgradError
from poolgrad.graph import TextError, attribute_text, parse_attribute
from poolgrad.graph.engines import ENGINES

from . import frames
from .frames import BadFrame, Message
from .problems import Refused
from .room import Room
from .studio import Studio
from .worker import QUESTIONS

LARGEST_TEXT: Final = 16 * 2**20
MOST_QUESTIONS: Final = 64
LARGEST_BACKLOG: Final = 256 * 2**20
COLORS: Final = ("#c2410c", "#0f766e", "#7c3aed", "#b91c1c", "#1d4ed8", "#a16207", "#be185d", "#15803d")

log = logging.getLogger("poolgrad.studio")


class Connection:
    """A tab. `send_out` passes a message on to it."""

    def __init__(self, studio: Studio, send_out: Callable[[str | bytes], Awaitable[None]], files_by_url: bool) -> None:
        self.studio = studio
        self.client = secrets.token_hex(8)
        self.name = "Somebody"
        self.color = COLORS[0]
        self.selection: list[str] = []
        self.room: Room | None = None
        self.closed = asyncio.Event()
        self._send_out = send_out
        self._files_by_url = files_by_url
        self._outgoing: asyncio.Queue[Message | bytes | str] = asyncio.Queue()
        self._backlog = 0
        self._questions: set[asyncio.Task[None]] = set()
        self._writer = asyncio.create_task(self._write())

    # -- in and out ---------------------------------------------------------------------------------------------------

    def send(self, message: Message | bytes | str) -> None:
        """Queues a message. A tab that does not keep up is given up: it will reconnect and ask anew."""
        self._backlog += len(message) if isinstance(message, bytes | str) else 1000
        if self._backlog > LARGEST_BACKLOG:
            self.closed.set()
            return
        self._outgoing.put_nowait(message)

    async def _write(self) -> None:
        while True:
            message = await self._outgoing.get()
            try:
                await self._send_out(frames.dumps(message) if isinstance(message, dict) else message)
            except Exception:
                self.closed.set()
                return
            self._backlog -= len(message) if isinstance(message, bytes | str) else 1000

    async def receive(self, message: str | bytes) -> None:
        """Takes a message from the tab."""
        ask: Message = {}
        try:
            ask, payload = self._read(message)
            if ask["type"] in QUESTIONS:
                self._question(ask)
                return
            handler = HANDLERS.get(ask["type"])
            if handler is None:
                raise Refused("bad_request", f"there is no request {str(ask['type'])[:50]!r}")
            reply = await handler(self, ask, payload)
            if reply is not None:
                self.send(reply | {"id": ask.get("id")})
        except Exception as error:
            self.send(_refusal(error, ask.get("id")))

    async def leave(self) -> None:
        """The tab is gone."""
        if self.room is not None:
            self.room.leave(self)
            self.room = None
        for task in self._questions:
            task.cancel()
        self._writer.cancel()

    def _read(self, message: str | bytes) -> tuple[Message, memoryview]:
        if isinstance(message, str):
            if len(message) > LARGEST_TEXT:
                raise Refused("too_large", f"a message may have at most {LARGEST_TEXT >> 20} MB")
            ask, payload = frames.loads(message), memoryview(b"")
        else:
            ask, payload = frames.unpack(message)
        if not isinstance(ask.get("type"), str):
            raise Refused("bad_request", "a message has a type")
        if type(ask.get("id")) not in (int, type(None)):
            ask["id"] = None
        return ask, payload

    # -- questions about results --------------------------------------------------------------------------------------

    def _question(self, ask: Message) -> None:
        if len(self._questions) >= MOST_QUESTIONS:
            raise Refused("busy", "too many questions at once")
        task = asyncio.create_task(self._answer(ask))
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _answer(self, ask: Message) -> None:
        try:
            if ask["type"] == "download":
                ask["folder"] = str(self.studio.temporary)
            answer = await self._here().ask(ask)
            if ask["type"] == "download" and isinstance(answer, str):
                answer = self._file(frames.loads(answer))
            self.send(answer)
        except Exception as error:
            self.send(_refusal(error, ask.get("id")))

    def _file(self, answer: Message) -> str | bytes:
        """A file that the worker wrote: as an address, or where there is none, as its bytes."""
        if answer["type"] != "file":
            return frames.dumps(answer)
        path = Path(answer.pop("path"))
        if self._files_by_url:
            return frames.dumps(answer | {"url": self.studio.issue_ticket(path, answer["name"])})
        if answer["bytes"] > 2**26:
            raise Refused("too_large", "a notebook takes files of at most 64 MB: save it with a Save block")
        return frames.pack(answer, path.read_bytes())

    def _here(self) -> Room:
        if self.room is None:
            raise Refused("bad_request", "no page is open")
        return self.room

    # -- requests -----------------------------------------------------------------------------------------------------

    async def hello(self, ask: Message, payload: memoryview) -> Message:
        """Who is there."""
        given = ask.get("client")
        taken = {m.client for room in self.studio.rooms.values() for m in room.members if m is not self}
        if isinstance(given, str) and 8 <= len(given) <= 64 and given not in taken:
            self.client = given
        self.color = COLORS[sum(self.client.encode()) % len(COLORS)]
        self.name = str(ask.get("name") or f"Guest {self.client[:4]}")[:40]
        user = {"client": self.client, "name": self.name, "color": self.color}
        return {"type": "welcome", **self.studio.welcome, "user": user, "client": self.client}

    async def gallery(self, ask: Message, payload: memoryview) -> Message:
        """All pages."""
        return {"type": "gallery", **await asyncio.to_thread(self.studio.gallery)}

    async def new(self, ask: Message, payload: memoryview) -> Message:
        """An empty page."""
        return {"type": "created", "page": self.studio.new(str(ask.get("title") or "Untitled")[:200], ask.get("page"))}

    async def copy(self, ask: Message, payload: memoryview) -> Message:
        """An example, or save as."""
        page = self.studio.copy(ask.get("from"), ask.get("page"), ask.get("overwrite") is True)
        return {"type": "created", "page": page}

    async def rename(self, ask: Message, payload: memoryview) -> Message:
        """Another name for a page."""
        await self.studio.rename(ask.get("page"), ask.get("to"))
        return {"type": "done"}

    async def delete(self, ask: Message, payload: memoryview) -> Message:
        """A page less."""
        await self.studio.remove(ask.get("page"))
        return {"type": "done"}

    async def undelete(self, ask: Message, payload: memoryview) -> Message:
        """A deleted page again."""
        return {"type": "created", "page": self.studio.restore(ask.get("page"))}

    async def upload(self, ask: Message, payload: memoryview) -> Message:
        """A page or data from the person's machine."""
        return await asyncio.to_thread(self.studio.upload, ask, payload)

    async def open(self, ask: Message, payload: memoryview) -> None:
        """Shows a page; its results follow the reply."""
        room = await self.studio.open(ask.get("page"))
        if self.room is not room:
            await self.close(ask, payload)
            self.room = room
            room.join(self)
        first, *rest = room.opening(self, ask.get("have"))
        assert isinstance(first, dict)
        self.send(first | {"id": ask.get("id")})
        for frame in rest:
            self.send(frame)

    async def close(self, ask: Message, payload: memoryview) -> Message:
        """Leaves the page."""
        if self.room is not None:
            self.room.leave(self)
            self.room, self.selection = None, []
        return {"type": "done"}

    async def edit(self, ask: Message, payload: memoryview) -> Message:
        """One step."""
        return self._here().edit(self, ask)

    async def presence(self, ask: Message, payload: memoryview) -> None:
        """What is selected here."""
        chosen = ask.get("selection")
        self.selection = [str(name)[:200] for name in chosen[:200]] if isinstance(chosen, list) else []
        self._here().tell_peers()

    async def check(self, ask: Message, payload: memoryview) -> Message:
        """Whether a text is a value for an attribute."""
        type_name, attribute, text = (ask.get(key) for key in ("block_type", "attribute", "text"))
        if not (isinstance(type_name, str) and isinstance(attribute, str) and isinstance(text, str)):
            raise Refused("bad_request", "check needs block_type, attribute and text")
        try:
            value = parse_attribute(type_name, attribute, text)
            return {"type": "checked", "ok": True, "text": attribute_text(type_name, attribute, value)}
        except TextError as error:
            return {"type": "checked", "ok": False, "problem": error.problem, "position": error.position}
        except (PoolgradError, LookupError) as error:
            return {"type": "checked", "ok": False, "problem": str(error), "position": None}

    async def run(self, ask: Message, payload: memoryview) -> Message:
        """A run of the page."""
        engine = ask.get("engine") or self.studio.engine
        if not isinstance(engine, str) or engine not in ENGINES:
            raise Refused("bad_request", f"there is no engine {engine!r}")
        return await self._here().run(_names(ask, "fetch") or None, engine)

    async def stop(self, ask: Message, payload: memoryview) -> Message:
        """No run any more."""
        await self._here().stop()
        return {"type": "done"}

    async def live(self, ask: Message, payload: memoryview) -> Message:
        """A run after every edit, or not."""
        self._here().set_live(ask.get("on") is True)
        return {"type": "done"}

    async def clear(self, ask: Message, payload: memoryview) -> Message:
        """No results any more."""
        await self._here().clear()
        return {"type": "done"}

    async def gradients(self, ask: Message, payload: memoryview) -> Message:
        """Gradient blocks."""
        return self._here().add_gradients(self, _names(ask, "outputs"), _names(ask, "inputs"))

    async def export(self, ask: Message, payload: memoryview) -> Message:
        """The page as a program."""
        room = self._here()
        if ask.get("to", "python") != "python":
            raise Refused("bad_request", f"pages are exported to python, not to {ask.get('to')!r}")
        text = await asyncio.to_thread(room.page.to_python)
        return {"type": "text", "name": f"{_stem(room)}.py", "text": text}

    async def page_text(self, ask: Message, payload: memoryview) -> Message:
        """The page as its file."""
        room = self._here()
        return {"type": "text", "name": f"{_stem(room)}.page.json", "text": room.page.dumps()}

    async def history(self, ask: Message, payload: memoryview) -> Message:
        """Earlier states."""
        return {"type": "history", "entries": self._here().store.history()}

    async def history_page(self, ask: Message, payload: memoryview) -> Message:
        """An earlier state, to look at."""
        return {"type": "history_page", "doc": self._here().store.entry(ask.get("entry"))}

    async def restore(self, ask: Message, payload: memoryview) -> Message:
        """An earlier state again."""
        return self._here().restore(self, ask.get("entry"))

    async def resolve_disk(self, ask: Message, payload: memoryview) -> Message:
        """Ours or the file's."""
        self._here().resolve_disk(ask.get("keep"))
        return {"type": "done"}


HANDLERS: Final[dict[str, Any]] = {
    request.__name__: request
    for request in (
        Connection.hello, Connection.gallery, Connection.new, Connection.copy, Connection.rename, Connection.delete,
        Connection.undelete, Connection.upload, Connection.open, Connection.close, Connection.edit,
        Connection.presence, Connection.check, Connection.run, Connection.stop, Connection.live, Connection.clear,
        Connection.gradients, Connection.export, Connection.page_text, Connection.history, Connection.history_page,
        Connection.restore, Connection.resolve_disk,
    )
}  # fmt: skip
"""What a tab may ask for, by the type of the message; beside the questions about results."""


def _refusal(error: Exception, request: object) -> Message:
    reply: Message = {"type": "error", "id": request}
    if isinstance(error, Refused):
        return reply | {"code": error.code, "message": str(error), "detail": error.detail}
    if isinstance(error, BadFrame):
        return reply | {"code": "bad_request", "message": str(error)}
    if isinstance(error, PoolgradError):
        return reply | {"code": "refused", "message": str(error)}
    log.error("a request failed", exc_info=error)
    return reply | {"code": "internal", "message": f"something went wrong in the server ({type(error).__name__})"}


def _names(ask: Message, field: str) -> list[str]:
    names = ask.get(field) or []
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise Refused("bad_request", f"{field} must be a list of names")
    return names


def _stem(room: Room) -> str:
    return room.page_name.rpartition("/")[2].removesuffix(".page.json")
