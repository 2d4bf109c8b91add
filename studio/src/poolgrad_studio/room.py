"""A page that is open: everybody who looks at it, its edits in order, its inference, its runs.

All edits pass through here one after the other. Each is applied to the newest version or, where it touches what
somebody else changed in the meantime, refused as a conflict: nothing is overwritten unseen. Whatever changes is told
to all tabs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from poolgrad.graph import Page, PageError

from . import document, frames, layout
from .document import Change, Document
from .frames import Message
from .problems import Refused
from .storage import ChangedOnDisk, Opened, Step, Store, as_page
from .workers import Worker

if TYPE_CHECKING:
    from .studio import Studio

log = logging.getLogger("poolgrad.studio")

SAVE_SECONDS: Final = 0.4
DISK_SECONDS: Final = 1.0
LIVE_SECONDS: Final = 0.15
STOP_SECONDS: Final = 1.0
"""How long a run may take to stop by itself, before its process is killed."""
START_SECONDS: Final = 120.0
"""How long a process may take to come up and take its first run. The time that a run may take begins after that."""
REMEMBERED_STEPS: Final = 2000
MOST_BLOCKS: Final = 5000


class Member(Protocol):
    """Somebody who looks at the page."""

    client: str
    name: str
    color: str
    selection: list[str]

    def send(self, message: Message | bytes) -> None:
        """Queues a message."""


class Room:
    """One open page."""

    def __init__(self, studio: Studio, page: str) -> None:
        self.studio = studio
        self.page_name = page
        self.store = Store(studio.folder, page)
        self.members: list[Member] = []
        self.left_at = time.monotonic()
        self._opened: Opened = self.store.open()
        self._page = as_page(self._opened.doc, self.store.path.parent)
        self._log: deque[Step] = deque(self._opened.steps, REMEMBERED_STEPS)
        self._inference: Message = self._page.infer().to_dict()
        self._inferred = self._opened.version
        self._saved: Message = {"state": "saved", "at": time.time()}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._worker: Worker | None = None
        self._run: Message = {"run": 0, "state": "idle"}
        self._fresh: dict[str, str] = {}
        self._frames: dict[str, tuple[Message, bytes]] = {}
        self._signed: dict[str, str] = {}
        self._stale: list[str] = []
        self.live = False
        self._engine = studio.engine

    # -- who is here --------------------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Lets somebody see the page."""
        self.members.append(member)
        self._background("disk", self._watch_disk)
        if self._opened.unsaved:
            self._background("save", self._save_soon)
        self.tell_peers()

    def leave(self, member: Member) -> None:
        """The page stays open for a while."""
        if member in self.members:
            self.members.remove(member)
            self.left_at = time.monotonic()
            self.tell_peers()

    def tell_peers(self) -> None:
        """Tells everybody who is here."""
        peers = self._peers()
        for member in self.members:
            member.send({"type": "peers", "peers": [peer for peer in peers if peer["client"] != member.client]})

    def tell(self, message: Message | bytes, but: Member | None = None) -> None:
        """Sends a message to all tabs."""
        for member in list(self.members):
            if member is not but:
                member.send(message)

    def _peers(self) -> list[Message]:
        return [{"client": m.client, "name": m.name, "color": m.color, "selection": m.selection} for m in self.members]

    def opening(self, member: Member, have: object) -> list[Message | bytes]:
        """What a tab needs to show the page: all of it, or what it missed since the version it has."""
        reply: Message = {
            "type": "page", "page": self.page_name, "version": self.version, "token": self._opened.token,
            "inference": self._inference, "inferred": self._inferred, "run": self._run, "live": self.live,
            "results": [header for header, _ in self._frames.values()], "stale": self._stale,
            "peers": [peer for peer in self._peers() if peer["client"] != member.client],
            "saved": self._saved, "history_available": True,
        }  # fmt: skip
        missed = self._missed(have)
        if missed is None:
            reply["doc"] = self.doc
        else:
            reply["since"] = [step.event() for step in missed]
        return [reply, *(frame for _, frame in self._frames.values())]

    def _missed(self, have: object) -> list[Step] | None:
        if not isinstance(have, dict) or have.get("token") != self._opened.token:
            return None
        version = have.get("version")
        if type(version) is not int or not 0 < version <= self.version:
            return None
        return self._since(version)

    # -- edits --------------------------------------------------------------------------------------------------------

    @property
    def doc(self) -> Document:
        """The page as it is now."""
        return self._opened.doc

    @property
    def version(self) -> int:
        """How many edits it has seen."""
        return self._opened.version

    @property
    def page(self) -> Page:
        """The page as the library has it."""
        return self._page

    def edit(self, member: Member, ask: Message) -> Message:
        """Applies an edit, or says what it collides with."""
        edit, label = str(ask.get("edit") or "")[:100], str(ask.get("label") or "Edit")[:200]
        if edit and edit in self._opened.edits:
            return {"type": "accepted", "version": self._opened.edits[edit]}
        changes = document.read_changes(ask.get("changes"))
        others = [step for step in self._since_base(ask.get("base")) if step.client != member.client]
        clash = document.clashes(changes, [change for step in others for change in step.changes])
        if clash:
            return self._conflict(clash, others, ask["base"])
        also = self.apply(changes, label, member, edit)
        return {"type": "accepted", "version": self.version, "also": also}

    def apply(
        self, changes: list[Change], label: str, member: Member | None, edit: str = "", echo: bool = False
    ) -> list[Change]:
        """Applies changes as one step and tells the others; `echo`: the member too. What had to be tidied up."""
        doc = document.applied(self.doc, changes)
        also = document.orphans(doc)
        doc = document.applied(doc, also)
        page = self._checked(doc, changes if not also else None)
        who = (member.client, member.name, member.color) if member else ("", "disk", "")
        step = Step(self.version + 1, changes + also, edit, *who, label=label)
        self.store.append(step)
        self._page = page
        edits = self._opened.edits | ({edit: step.version} if edit else {})
        self._opened = replace(
            self._opened, doc=doc, version=step.version, edits=edits, steps=[*self._opened.steps, step]
        )
        self._log.append(step)
        self.tell(step.event(), but=None if echo else member)
        self._after_change(step)
        return also

    def _checked(self, doc: Document, changes: list[Change] | None) -> Page:
        """The page of the document. Where blocks only moved, there is no need to read all of it again."""
        if len(doc["block"]) > MOST_BLOCKS:
            raise Refused("too_many", f"a page may have at most {MOST_BLOCKS} blocks")
        try:
            if changes is not None and all(kind == "position" and place for kind, _, place in changes):
                return _moved(self._page, changes)
            return as_page(doc, self.store.path.parent)
        except PageError as error:
            raise Refused("refused", getattr(error, "reason", None) or str(error)) from None

    def _conflict(self, clash: Iterable[document.Entry], others: list[Step], base: int) -> Message:
        last = others[-1]
        return {
            "type": "conflict", "version": self.version,
            "entries": [{"kind": kind, "key": key, "theirs": self.doc[kind].get(key)} for kind, key in clash],
            "by": {"client": last.client, "name": last.name, "color": last.color},
            "changes": [step.event() for step in self._since(base) or ()],
        }  # fmt: skip

    def _since_base(self, base: object) -> list[Step]:
        if type(base) is not int or not 0 < base <= self.version:
            raise Refused("bad_request", f"there is no version {base!r} of this page", version=self.version)
        found = self._since(base)
        if found is None:
            raise Refused("conflict", "that version is too old: reload the page", version=self.version)
        return found

    def _since(self, version: int) -> list[Step] | None:
        """The steps after a version; None if they are no longer known."""
        missing = self.version - version
        if missing > len(self._log):
            return None
        return list(self._log)[len(self._log) - missing :]

    def _after_change(self, step: Step) -> None:
        if any(kind in ("block", "wire", "page") for kind, _, _ in step.changes):
            self._background("infer", self._infer)
            self._mark_stale()
            if self.live:
                self._background("live", self._run_again)
        self._set_saved("saving")
        self._background("save", self._save_soon)

    async def _infer(self) -> None:
        while self._inferred != self.version:
            page, version = self._page, self.version
            self._inference = (await asyncio.to_thread(page.infer)).to_dict()
            self._inferred = version
            if version == self.version:
                self.tell({"type": "inference", "version": version, "inference": self._inference})

    # -- the file -----------------------------------------------------------------------------------------------------

    async def _save_soon(self) -> None:
        """Writes the file a moment after the last edit, again and again until it holds them all."""
        while self._opened.unsaved and self._saved["state"] != "conflict":
            await asyncio.sleep(SAVE_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Writes the file now."""
        before = self._opened
        if not before.unsaved or self._saved["state"] == "conflict":
            return
        try:
            self.store.begin_save(before.version)
            text = await asyncio.to_thread(self.store.write, self._page)
        except ChangedOnDisk:
            self._disk_changed()
            return
        except (OSError, PageError) as error:
            self._set_saved("failed", f"the page cannot be saved: {error}")
            await asyncio.sleep(2)
            return
        rest = [step for step in self._opened.steps if step.version > before.version]
        self._opened = replace(self._opened, steps=rest, saved=before.doc)
        self.store.finish_save(text, self._opened)
        if not rest:
            self._set_saved("saved")

    def _set_saved(self, state: str, message: str | None = None) -> None:
        if state == "saving" and self._saved["state"] == "conflict":
            return
        self._saved = {"state": state, "at": time.time()} | ({"message": message} if message else {})
        self.tell({"type": "saved", **self._saved})

    async def _watch_disk(self) -> None:
        while self.members:
            await asyncio.sleep(DISK_SECONDS)
            if self._saved["state"] == "saved" and self.store.changed_on_disk():
                self._disk_changed()

    def _disk_changed(self) -> None:
        """Somebody else wrote the file: taken over if there is nothing unsaved here, else a conflict to be resolved."""
        if not self.store.path.exists():
            self._set_saved("conflict", "The file was removed outside the studio. Keep this page to write it again.")
            return
        if self._opened.unsaved:
            self._set_saved("conflict", "The file was changed outside the studio while there were unsaved edits here.")
            return
        try:
            self._take_over_disk()
        except Refused as error:
            self._set_saved("conflict", f"The file was changed outside the studio and cannot be read: {error}")

    def _take_over_disk(self) -> None:
        found = self.store.on_disk()
        changes = self.difference_to(found)
        if changes:
            self.store.snapshot(self.doc, "Before a change on disk")
        self.store.accept_disk()
        if changes:
            self.apply(changes, "Changed on disk", None)
        self._opened = replace(self._opened, steps=[], saved=self.doc)
        self.store.finish_save(self.store.path.read_bytes(), self._opened)
        self._set_saved("saved")

    def resolve_disk(self, keep: object) -> None:
        """Ends a conflict with the file: our page is written over it, or it is taken over. The other one is kept in the
        history."""
        if self._saved["state"] != "conflict":
            return
        if keep == "disk":
            self._take_over_disk()
        elif keep == "mine":
            with contextlib.suppress(Refused):
                self.store.snapshot(self.store.on_disk(), "The file as it was on disk")
            self.store.accept_disk()
            self._saved = {"state": "saving", "at": time.time()}
            if not self._opened.unsaved:
                self.apply([], "Keep this page", None)
            self._background("save", self._save_soon)
        else:
            raise Refused("bad_request", f"keep is 'mine' or 'disk', not {keep!r}")

    def difference_to(self, doc: Document) -> list[Change]:
        """The changes that lead to a document out of a file, whose notes have no names of their own."""
        notes = list(doc["note"].values())
        if notes == list(self.doc["note"].values()):
            named = self.doc["note"]
        else:
            named = {f"n{self.version + 1}-{i}": note for i, note in enumerate(notes)}
        return document.difference(self.doc, {**doc, "note": named})

    # -- steps that the server makes ----------------------------------------------------------------------------------

    def add_gradients(self, member: Member, outputs: list[str], inputs: list[str]) -> Message:
        """Adds the blocks that give the gradients of outputs with respect to inputs, laid out below the others."""
        page = self._page.copy()
        try:
            made = page.add_gradients(outputs, inputs)
        except PageError as error:
            raise Refused("refused", getattr(error, "reason", None) or str(error)) from None
        doc = document.from_file(page.to_dict())
        positions = layout.below(self.doc, doc, made["blocks"])
        # What is there stays as it was typed: its results count on.
        blocks = {name: self.doc["block"].get(name, block) for name, block in doc["block"].items()}
        places = {**self.doc["position"], **positions}
        doc = {**doc, "page": self.doc["page"], "block": blocks, "note": self.doc["note"], "position": places}
        self.apply(document.difference(self.doc, doc), "Add gradients", member, echo=True)
        return {"type": "accepted", "version": self.version, "keys": made["wires"], "blocks": made["blocks"]}

    def restore(self, member: Member, entry: object) -> Message:
        """Goes back to an entry of the history, as a step that can be undone."""
        changes = self.difference_to(self.store.entry(entry))
        self.store.snapshot(self.doc, "Before going back")
        self.apply(changes, "Go back in history", member, echo=True)
        return {"type": "accepted", "version": self.version}

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, fetch: list[str] | None, engine: str) -> Message:
        """Starts a run of the page, or of what some blocks need."""
        if self._run["state"] == "running":
            raise Refused("busy", "the page is running already")
        unknown = [name for name in fetch or () if name.partition(".")[0] not in self.doc["block"]]
        if unknown:
            raise Refused("bad_request", f"there is no block {unknown[0]}")
        self._engine = engine
        number = self._run["run"] + 1
        self._run = {"run": number, "state": "running", "version": self.version, "started": time.time()}
        self._signed = document.signatures(self.doc)
        text, folder = self._page.dumps(), str(self.store.path.parent)
        try:
            worker = await self._ready_worker()
        except OSError as error:
            self._run["state"] = "failed"
            raise Refused("internal", f"no worker process can be started: {error}") from None
        worker.send({"type": "run", "run": number, "text": text, "folder": folder, "fetch": fetch, "engine": engine})
        self.tell({"type": "run", **self._run, "total": len(self.doc["block"])})
        self._background("limit", self._limit_start)
        return {"type": "started", "run": number}

    async def stop(self, why: str | None = None) -> None:
        """Ends a run: politely, then by force."""
        if self._run["state"] != "running" or self._worker is None:
            return
        self._worker.send({"type": "cancel"})
        until = time.monotonic() + STOP_SECONDS
        while self._run["state"] == "running" and time.monotonic() < until:
            await asyncio.sleep(0.02)
        if self._run["state"] == "running":
            await self._drop_worker("stopped", why or "the block did not stop by itself, so its process was ended")

    async def clear(self) -> None:
        """Forgets all results."""
        await self.stop()
        if self._worker is not None:
            self._worker.send({"type": "clear"})
        self._forget_results("the results were cleared")

    async def ask(self, question: Message) -> str | bytes:
        """An answer of the worker about the results."""
        if self._worker is None:
            raise Refused("no_result", "there are no results yet: run the page first")
        return await self._worker.ask(question)

    def set_live(self, on: bool) -> None:
        """With `on`, the page runs again after every edit."""
        self.live = on
        self.tell({"type": "live", "on": on})
        if on:
            self._background("live", self._run_again)

    async def close(self) -> None:
        """Saves and lets go of everything."""
        for name in ("live", "limit", "disk"):
            self._cancel(name)
        await self.save()
        for name in list(self._tasks):
            self._cancel(name)
        if self._worker is not None:
            await self._worker.kill()
        self.store.close()

    async def _ready_worker(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            worker = await self.studio.workers.take()
            worker.attend(self._on_event, lambda: self._on_end(worker))
            self._worker = worker
        return self._worker

    async def _run_again(self) -> None:
        """The newest version, once the edits pause."""
        await asyncio.sleep(LIVE_SECONDS)
        while self.live:
            if self._run["state"] == "running":
                await self.stop()
            ran = self.version
            with contextlib.suppress(Refused):
                await self.run(None, self._engine)
            while self._run["state"] == "running" and ran == self.version:
                await asyncio.sleep(0.02)
            if ran == self.version:
                return

    async def _limit_start(self) -> None:
        await self._stop_after(START_SECONDS, f"the process of the run did not start within {START_SECONDS:g} seconds")

    async def _limit_time(self) -> None:
        seconds = self.studio.run_seconds
        await self._stop_after(seconds, f"the run took longer than {seconds:g} seconds")

    async def _stop_after(self, seconds: float, why: str) -> None:
        number = self._run["run"]
        await asyncio.sleep(seconds)
        if self._run["state"] == "running" and self._run["run"] == number:
            await self.stop(why)

    async def _on_event(self, message: str | bytes) -> None:
        header = frames.loads(message) if isinstance(message, str) else frames.unpack(message)[0]
        if header.get("run") != self._run["run"]:
            self._measured(header, message)
        elif isinstance(message, bytes):
            self._frames[header["key"]] = (header, message)
            self._fresh[header["key"]] = self._signed.get(header["block"], "")
            self.tell(message)
        elif header["type"] == "begun":
            self._background("limit", self._limit_time)
        elif header["type"] == "progress":
            self.tell(header)
        elif header["type"] == "finished":
            self._finish(header)

    def _measured(self, header: Message, message: str | bytes) -> None:
        """The figures of a large result may come when the next run has begun; they count while the result does."""
        shown = self._frames.get(header.get("key", ""))
        if isinstance(message, bytes) and shown is not None and shown[0]["run"] == header["run"]:
            self._frames[header["key"]] = (header, message)
            self.tell(message)
            self._mark_stale(always=True)

    def _finish(self, header: Message) -> None:
        present = set(header["fresh"])
        self._frames = {key: frame for key, frame in self._frames.items() if key in present}
        for key in present if header["state"] == "done" else ():
            self._fresh[key] = self._signed.get(document.block_of(key), "")
        self._run |= {"state": header["state"], "seconds": header["seconds"], "message": header["message"]}
        self._cancel("limit")
        self.tell({"type": "run", **self._run})
        self._mark_stale(always=True)

    async def _on_end(self, worker: Worker) -> None:
        if worker is self._worker:
            await self._drop_worker("lost", "the process that ran the page ended, perhaps for lack of memory")

    async def _drop_worker(self, state: str, message: str) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and worker.alive:
            await worker.kill()
        if self._run["state"] == "running":
            self._run |= {"state": state, "seconds": time.time() - self._run["started"], "message": message}
            self._cancel("limit")
            self.tell({"type": "run", **self._run})
        self._forget_results(message)

    def _forget_results(self, message: str) -> None:
        self._frames, self._fresh, self._stale = {}, {}, []
        self.tell({"type": "results_lost", "message": message})

    def _mark_stale(self, always: bool = False) -> None:
        """Tells which results no longer belong to the page as it is."""
        if not self._frames:
            return
        now = document.signatures(self.doc)
        stale = sorted(key for key in self._frames if self._fresh.get(key) != now.get(document.block_of(key)))
        if always or stale != self._stale:
            self._stale = stale
            self.tell({"type": "stale", "keys": stale})

    # -- background work ----------------------------------------------------------------------------------------------

    def _background(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a piece of work, unless it is under way. The time limit begins anew."""
        running = self._tasks.get(name)
        if running is not None and not running.done():
            if name != "limit":
                return
            running.cancel()
        self._tasks[name] = asyncio.create_task(work())
        self._tasks[name].add_done_callback(_report)

    def _cancel(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()


def _moved(page: Page, changes: list[Change]) -> Page:
    made = page.copy()
    for _, name, place in changes:
        if len(place) != 2 or not all(type(at) in (int, float) for at in place):
            raise PageError(f"the position of {name} must be two numbers")
        made.move(name, *place)
    return made


def _report(task: asyncio.Task[None]) -> None:
    """Says so if work in the background failed: nobody waits for it."""
    if not task.cancelled() and task.exception() is not None:
        log.error("work in the background failed", exc_info=task.exception())
