"""The studio: a folder of pages, the ones that are open, the gallery, and files on their way out.

It knows neither HTTP nor notebooks; `app` and `widget` put it there.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import poolgrad
from poolgrad.graph import PageError
from poolgrad.graph.engines import ENGINES

from . import document, layout
from .catalog import catalog
from .document import Document
from .folder import LARGEST_PAGE, PAGE, Folder
from .frames import Message
from .problems import Refused
from .room import MOST_BLOCKS, Room
from .storage import Store, buried, entered, parse, read_text
from .tensors import MOST_ROWS
from .workers import Workers

LARGEST_UPLOAD: Final = 256 * 2**20
MOST_ROOMS: Final = 16
MOST_RECENT: Final = 12
MOST_DELETED: Final = 20
IDLE_SECONDS: Final = 900
TICKET_SECONDS: Final = 120
EXAMPLE: Final = "example:"


@dataclass
class Ticket:
    """A file that may be fetched once."""

    path: Path
    name: str
    until: float = field(default_factory=lambda: time.monotonic() + TICKET_SECONDS)


class Studio:
    """One folder, served to any number of tabs."""

    def __init__(
        self,
        folder: Path,
        *,
        max_memory: int | None = None,
        run_seconds: float = 600.0,
        engine: str = "cpu",
        examples: Path | None = None,
    ) -> None:
        self.folder = Folder(folder)
        self.workers = Workers(max_memory)
        self.run_seconds = run_seconds
        self.engine = engine
        self.examples = examples if examples is not None else examples_folder()
        self.rooms: dict[str, Room] = {}
        self._tickets: dict[str, Ticket] = {}
        self.temporary = Path(tempfile.mkdtemp(prefix="poolgrad-studio-"))

    async def start(self) -> None:
        """Warms up."""
        self.workers.warm_up()

    async def close(self) -> None:
        """Saves every page and ends every process."""
        for room in self.rooms.values():
            with contextlib.suppress(Exception):
                await room.close()
        self.rooms.clear()
        await self.workers.close()
        shutil.rmtree(self.temporary, ignore_errors=True)

    @cached_property
    def welcome(self) -> Message:
        """What every tab is told first."""
        return {
            "version": poolgrad.__version__, "folder": self.folder.name, "writable": True, "engines": sorted(ENGINES),
            "limits": {"upload": LARGEST_UPLOAD, "page": LARGEST_PAGE, "table": MOST_ROWS, "blocks": MOST_BLOCKS},
            "catalog": catalog(),
        }  # fmt: skip

    @cached_property
    def groups(self) -> dict[str, str]:
        """The palette's group of every block type."""
        return {entry["type"]: entry["group"] for entry in catalog()}

    # -- pages --------------------------------------------------------------------------------------------------------

    async def open(self, page: object) -> Room:
        """The room of a page."""
        path = self.folder.path(page)
        name = self.folder.name_of(path)
        if name not in self.rooms:
            await self._make_room()
            self.rooms[name] = Room(self, name)
        self._note_recent(name)
        return self.rooms[name]

    async def _make_room(self) -> None:
        """Closes pages that nobody has looked at for long, and the longest left one where there are too many."""
        empty = sorted((room for room in self.rooms.values() if not room.members), key=lambda room: room.left_at)
        surplus = len(self.rooms) - MOST_ROOMS + 1
        for position, room in enumerate(empty):
            if position < surplus or time.monotonic() - room.left_at > IDLE_SECONDS:
                del self.rooms[room.page_name]
                await room.close()
        if len(self.rooms) >= MOST_ROOMS:
            raise Refused("too_many", f"{MOST_ROOMS} pages are open already: close one of them")

    def new(self, title: str, page: object = None) -> str:
        """An empty page."""
        doc: Document = {**document.empty(), "page": {"title": title}}
        return self._create(doc, page if page is not None else self.folder.free_name(title))

    def copy(self, source: object, page: object, overwrite: bool) -> str:
        """A copy of a page, or of an example. An example that is already here unchanged is simply opened."""
        doc, origin = self._source(source)
        if page is None:
            wanted = str(source).removeprefix(EXAMPLE)
            wanted = wanted if wanted.endswith(PAGE) else wanted + PAGE
            if self._is_here(wanted, doc):
                return wanted
            page = self.folder.free_name(wanted)
        target = self.folder.path(page)
        if overwrite and target.exists():
            if self.folder.name_of(target) in self.rooms:
                raise Refused("busy", f"{page} is open: close it first, or choose another name")
            self.delete(page)
        name = self._create(doc, page)
        self._bring_data(doc, origin, target.parent)
        return name

    def _source(self, source: object) -> tuple[Document, Path]:
        if isinstance(source, str) and source.startswith(EXAMPLE):
            path = next((p for p in self._example_files() if p.name == source.removeprefix(EXAMPLE)), None)
            if path is None:
                raise Refused("not_found", f"there is no example {source.removeprefix(EXAMPLE)}")
            return parse(read_text(path, path.name), path.parent), path.parent
        path = self.folder.path(source)
        room = self.rooms.get(self.folder.name_of(path))
        return (room.doc if room else parse(read_text(path, str(source)), path.parent)), path.parent

    def _is_here(self, name: str, doc: Document) -> bool:
        path = self.folder.path(name)
        try:
            return path.exists() and parse(read_text(path, name), path.parent) == doc
        except Refused:
            return False

    def _bring_data(self, doc: Document, origin: Path, target: Path) -> None:
        """Copies the files beside the page that its blocks read."""
        if origin == target:
            return
        for block in doc["block"].values():
            named = block["attributes"].get("file")
            if not isinstance(named, str) or block["type"] == "Save":
                continue
            source = (origin / named.partition(":")[0]).resolve()
            there = target / source.relative_to(origin.resolve()) if source.is_relative_to(origin.resolve()) else None
            if there is not None and source.is_file() and not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, there)

    def _create(self, doc: Document, page: object) -> str:
        store = Store(self.folder, self.folder.name_of(self.folder.path(page)))
        try:
            store.create(doc)
        except PageError as error:
            raise Refused("bad_request", str(error)) from None
        except OSError as error:
            raise Refused("refused", f"{page} cannot be written: {error.strerror}") from None
        return store.page

    async def rename(self, page: object, to: object) -> None:
        """Moves a page that nobody has open."""
        source, target = self.folder.path(page), self.folder.path(to)
        await self._vacate(page)
        if target.exists():
            raise Refused("exists", f"{to} exists already")
        if not source.exists():
            raise Refused("not_found", f"there is no page {page}")
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        Store(self.folder, self.folder.name_of(source)).move_history(Store(self.folder, self.folder.name_of(target)))

    def delete(self, page: object) -> None:
        """Removes a page; its last state stays in its history, from where it can be restored."""
        Store(self.folder, self.folder.name_of(self.folder.path(page))).bury()

    def restore(self, page: object) -> str:
        """Brings a deleted page back."""
        name = self.folder.name_of(self.folder.path(page))
        for buried_page, entry in buried(self.folder):
            if buried_page == name:
                path = self.folder.path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(entry, path)
                return name
        raise Refused("exists" if self.folder.path(name).exists() else "not_found", f"{name} is not a deleted page")

    async def _vacate(self, page: object) -> None:
        name = self.folder.name_of(self.folder.path(page))
        room = self.rooms.get(name)
        if room is not None:
            if room.members:
                raise Refused("busy", f"{name} is open in a tab: close it there first")
            del self.rooms[name]
            await room.close()

    async def remove(self, page: object) -> None:
        """Deletes a page that nobody has open."""
        await self._vacate(page)
        self.delete(page)

    def upload(self, header: Message, payload: memoryview) -> Message:
        """Takes in a page, or data for a page's Load blocks."""
        if len(payload) > LARGEST_UPLOAD:
            raise Refused("too_large", f"an upload may have at most {LARGEST_UPLOAD >> 20} MB")
        name = header.get("name")
        if header.get("kind") == "data":
            return self._upload_data(name, header.get("page"), payload)
        if not isinstance(name, str) or len(payload) > LARGEST_PAGE:
            raise Refused("too_large", f"a page may have at most {LARGEST_PAGE >> 20} MB")
        doc = parse(bytes(payload), self.folder.root)
        stem = Path(name.replace("\\", "/")).name.removesuffix(".json").removesuffix(".page")
        return {"type": "created", "page": self._create(doc, self.folder.free_name(stem))}

    def _upload_data(self, name: object, page: object, payload: memoryview) -> Message:
        beside = self.folder.path(page).parent
        plain = Path(str(name).replace("\\", "/")).name
        relative = beside.relative_to(self.folder.root)
        path = self.folder.data_path((relative / plain).as_posix())
        if path.exists() and path.read_bytes() != payload:
            tries = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(2, 10_000))
            path = next(candidate for candidate in tries if not candidate.exists())
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            fresh.write_bytes(payload)
            fresh.replace(path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise Refused("refused", f"{path.name} cannot be written: {error.strerror}") from None
        return {"type": "uploaded", "path": path.name}

    # -- the gallery --------------------------------------------------------------------------------------------------

    def gallery(self) -> Message:
        """Examples, recent pages, all pages and those that were deleted, as cards."""
        examples = [self._card(path, f"{EXAMPLE}{path.name}") for path in self._example_files()]
        pages = [self._card(path, self.folder.name_of(path)) for path in self.folder.pages()]
        pages.sort(key=lambda card: -card["modified"])
        by_name = {card["page"]: card for card in pages}
        recent = [by_name[name] for name in self._recent() if name in by_name]
        return {"examples": examples, "pages": pages, "recent": recent, "deleted": self._deleted()}

    def _deleted(self) -> list[Message]:
        """Cards of the pages that were deleted last."""
        found = sorted(buried(self.folder), key=lambda kept: kept[1].name, reverse=True)[:MOST_DELETED]
        return [self._card(entry, page) | {"modified": entered(entry)} for page, entry in found]

    def _example_files(self) -> list[Path]:
        return sorted(self.examples.glob(f"*{PAGE}")) if self.examples.is_dir() else []

    def _card(self, path: Path, name: str) -> Message:
        found = path.stat()
        return {"page": name, "modified": found.st_mtime} | _look(path, found.st_mtime_ns, tuple(self.groups.items()))

    def _recent(self) -> list[str]:
        try:
            kept = json.loads((self.folder.private / "recent.json").read_text())
            return [name for name in kept if isinstance(name, str)][:MOST_RECENT]
        except (OSError, ValueError, TypeError):
            return []

    def _note_recent(self, name: str) -> None:
        kept = [name, *(other for other in self._recent() if other != name)][:MOST_RECENT]
        with contextlib.suppress(OSError):
            self.folder.private.mkdir(exist_ok=True)
            (self.folder.private / "recent.json").write_text(json.dumps(kept))

    # -- files on their way out ---------------------------------------------------------------------------------------

    def issue_ticket(self, path: Path, name: str) -> str:
        """The address under which a file may be fetched once."""
        self._drop_old_tickets()
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = Ticket(path, name)
        return f"/download/{ticket}"

    def redeem(self, ticket: str) -> Ticket | None:
        """The file of a ticket, which is then used up."""
        self._drop_old_tickets()
        return self._tickets.pop(ticket, None)

    def _drop_old_tickets(self) -> None:
        now = time.monotonic()
        for key in [key for key, ticket in self._tickets.items() if ticket.until < now]:
            shutil.rmtree(self._tickets.pop(key).path.parent, ignore_errors=True)


@lru_cache(maxsize=2000)
def _look(path: Path, modified: int, groups: tuple[tuple[str, str], ...]) -> Message:
    """What a card shows of a file that was last modified then."""
    try:
        doc = parse(read_text(path, path.name), path.parent)
    except Refused as error:
        return {"title": path.name.removesuffix(PAGE), "description": "", "blocks": 0, "problem": str(error),
                "miniature": {"blocks": [], "wires": []}}  # fmt: skip
    return {
        "title": doc["page"].get("title") or path.name.removesuffix(PAGE),
        "description": doc["page"].get("comment", ""),
        "blocks": len(doc["block"]),
        "miniature": layout.miniature(doc, dict(groups)),
    }


def examples_folder() -> Path:
    """The example pages: those of the source tree the package is developed in, else those it was built with."""
    here = Path(__file__).resolve().parent
    beside = here.parents[2] / "examples"
    return beside if any(beside.glob(f"*{PAGE}")) else here / "examples"
