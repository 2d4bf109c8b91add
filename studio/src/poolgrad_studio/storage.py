"""A page on disk: its file, a journal of the edits since the file was written, and its history.

Every accepted edit is in the journal before anybody is told so; the file follows a moment later, whole or not at all.
So a server that is killed loses nothing that was acknowledged, and one that starts again goes on where it was: same
version, same token. A file that somebody else changed is never overwritten unseen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote, unquote

from poolgrad.graph import Page, PageError

from . import document
from .document import Change, Document
from .folder import LARGEST_PAGE, PAGE, Folder
from .problems import Refused

HISTORY_SECONDS: Final = 60
"""Snapshots are at least this far apart, unless a step is worth one of its own."""
MOST_SNAPSHOTS: Final = 200
REMEMBERED_EDITS: Final = 500


class ChangedOnDisk(Exception):
    """The file is not the one that was read or written last."""


@dataclass(frozen=True)
class Step:
    """An accepted edit: what one undo undoes."""

    version: int
    changes: list[Change]
    edit: str = ""
    client: str = ""
    name: str = ""
    color: str = ""
    label: str = ""
    at: float = field(default_factory=time.time)

    def event(self) -> dict[str, Any]:
        """The step as other tabs are told."""
        by = {"client": self.client, "name": self.name, "color": self.color}
        return {
            "type": "changed", "version": self.version, "changes": self.changes, "label": self.label, "at": self.at,
            "edit": self.edit, "by": by,
        }  # fmt: skip


@dataclass
class Opened:
    """A page as it was found: the file with the journal on top."""

    doc: Document
    version: int
    token: str
    steps: list[Step]
    edits: dict[str, int]
    """The versions that edits got, by their id."""
    saved: Document
    """The part of it that is in the file."""

    @property
    def unsaved(self) -> bool:
        """Whether the file lacks something."""
        return bool(self.steps)


class Store:
    """The files of one page."""

    def __init__(self, folder: Folder, page: str) -> None:
        self.folder = folder
        self.page = page
        self.path = folder.path(page)
        self._journal_path = folder.private / "journal" / f"{page}l"
        self._history = folder.private / "history" / page
        self._journal: IO[str] | None = None
        self._known = b""
        self._seen: tuple[int, int, int] | None = None
        self._snapshot_at = 0.0

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self) -> Opened:
        """Reads the file and whatever the journal has beyond it."""
        text = read_text(self.path, self.page)
        doc = parse(text, self.path.parent)
        self._remember(text)
        opened = self._recovered(doc) or Opened(doc, 1, secrets.token_hex(8), [], {}, doc)
        self._begin_journal(opened)
        return opened

    def _recovered(self, doc: Document) -> Opened | None:
        try:
            lines = list(_lines(self._journal_path))
            head, base = lines[0], {kind: dict(lines[0]["doc"][kind]) for kind in document.KINDS}
            replayed, reached, saved = _replay(base, lines[1:], doc if head["base"] != _digest(self._known) else None)
            as_page(replayed, self.path.parent)
        except (LookupError, TypeError, ValueError, AttributeError, OSError, PageError, Refused):
            return None
        if reached is None:
            # The file was changed elsewhere after the last edits here: it counts, and the edits go into the history.
            if replayed != base:
                self.snapshot(replayed, "Edits that were not in the file")
            return None
        steps = [step for step in _steps(lines[1:]) if step.version > reached]
        version = max([int(head["version"]), *(step.version for step in _steps(lines[1:]))])
        edits = dict(head["edits"]) | {step.edit: step.version for step in _steps(lines[1:]) if step.edit}
        return Opened(replayed, version, head["token"], steps, edits, saved)

    def on_disk(self) -> Document:
        """The file as it is now."""
        return parse(read_text(self.path, self.page), self.path.parent)

    def changed_on_disk(self) -> bool:
        """Whether somebody else wrote the file, or removed it."""
        seen = _stat(self.path)
        if seen == self._seen:
            return False
        with contextlib.suppress(OSError):
            if self.path.stat().st_size <= LARGEST_PAGE and self.path.read_bytes() == self._known:
                self._seen = seen
                return False
        return True

    def accept_disk(self) -> None:
        """From now on the file as it is now is the one that we know."""
        self._remember(self.path.read_bytes() if self.path.exists() else b"")

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, step: Step) -> None:
        """Notes an edit, so that it outlives the process."""
        if self._journal is not None:
            self._journal.write(json.dumps(asdict(step)) + "\n")
            self._journal.flush()

    def begin_save(self, version: int) -> None:
        """Notes that the file is about to hold this version; refuses if it is no longer the file that we know."""
        if self.changed_on_disk():
            raise ChangedOnDisk
        if self._journal is not None:
            self._journal.write(json.dumps({"saving": version}) + "\n")
            self._journal.flush()

    def write(self, page: Page) -> bytes:
        """Writes the file, whole or not at all; what it holds now. This may take a while and may run in a thread."""
        if self._journal is not None:
            os.fsync(self._journal.fileno())
        self._keep_previous()
        page.save(self.path)
        return self.path.read_bytes()

    def finish_save(self, text: bytes, opened: Opened) -> None:
        """Begins a new journal over the written file, with the edits that came in meanwhile."""
        self._remember(text)
        self._begin_journal(opened)

    def save(self, opened: Opened) -> Opened:
        """All of that in one go."""
        self.begin_save(opened.version)
        text = self.write(as_page(opened.doc, self.path.parent))
        saved = replace(opened, steps=[], saved=opened.doc)
        self.finish_save(text, saved)
        return saved

    def create(self, doc: Document) -> None:
        """Writes a page that was not there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            raise Refused("exists", f"{self.page} exists already")
        as_page(doc, self.path.parent).save(self.path)

    def close(self) -> None:
        """Gives the journal back."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _begin_journal(self, opened: Opened) -> None:
        """A journal that stands on the file as it is now; edits that are not in the file are carried over."""
        head = {
            "base": _digest(self._known), "doc": opened.saved, "token": opened.token,
            "version": opened.version - len(opened.steps),
            "edits": dict(list(opened.edits.items())[-REMEMBERED_EDITS:]),
        }  # fmt: skip
        carried = [json.dumps(asdict(step)) for step in opened.steps]
        self.close()
        self._private(self._journal_path.parent)
        fresh = self._journal_path.with_name(f"{self._journal_path.name}.new")
        fresh.write_text("\n".join([json.dumps(head), *carried]) + "\n")
        fresh.replace(self._journal_path)
        self._journal = self._journal_path.open("a")

    def _remember(self, text: bytes) -> None:
        self._known, self._seen = text, _stat(self.path)

    # -- history ------------------------------------------------------------------------------------------------------

    def snapshot(self, doc: Document, label: str) -> None:
        """Keeps a document as an entry of the history."""
        self._write_snapshot(as_page(doc, self.path.parent).dumps(), label)

    def history(self) -> list[dict[str, Any]]:
        """The entries, newest first."""
        found = []
        for file in sorted(self._history.glob(f"*{PAGE}"), reverse=True):
            label = unquote(file.name.removesuffix(PAGE).partition("~")[2])
            found.append({"entry": file.name, "at": entered(file), "label": label, "bytes": file.stat().st_size})
        return found

    def entry(self, name: object) -> Document:
        """A document out of the history."""
        file = next((file for file in self._history.glob(f"*{PAGE}") if file.name == name), None)
        if file is None:
            raise Refused("not_found", f"the history has no entry {name!r}")
        return parse(file.read_bytes(), self.path.parent)

    def _keep_previous(self) -> None:
        """The file as it was goes into the history, now and then."""
        if self._known and time.time() - self._snapshot_at > HISTORY_SECONDS:
            self._write_snapshot(self._known.decode(), "Autosave" if self._snapshot_at else "Before editing")

    def bury(self) -> None:
        """Removes the page: its file, whatever it holds, becomes the last entry of its history."""
        if not self.path.exists():
            raise Refused("not_found", f"there is no page {self.page}")
        self.path.replace(self._new_entry("Deleted"))

    def move_history(self, to: Store) -> None:
        """The history goes where the page went."""
        if self._history.is_dir() and not to._history.exists():
            to._history.parent.mkdir(parents=True, exist_ok=True)
            self._history.rename(to._history)

    def _write_snapshot(self, text: str, label: str) -> None:
        self._new_entry(label).write_text(text)
        for file in sorted(self._history.glob(f"*{PAGE}"))[:-MOST_SNAPSHOTS]:
            file.unlink(missing_ok=True)

    def _new_entry(self, label: str) -> Path:
        self._private(self._history)
        self._snapshot_at = time.time()
        return self._history / f"{int(self._snapshot_at * 1000):013d}~{quote(label[:60], safe=' ')}{PAGE}"

    def _private(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = self.folder.private / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")


def buried(folder: Folder) -> Iterator[tuple[str, Path]]:
    """Pages that are no more, with the last entry of their history."""
    history = folder.private / "history"
    for kept in history.rglob(f"*{PAGE}"):
        if kept.is_dir():
            page = kept.relative_to(history).as_posix()
            entries = sorted(file for file in kept.glob(f"*{PAGE}") if file.is_file())
            if entries and not folder.path(page).exists():
                yield page, entries[-1]


def entered(entry: Path) -> float:
    """When an entry came into the history."""
    return int(entry.name.partition("~")[0]) / 1000


def read_text(path: Path, name: str) -> bytes:
    """A page file's bytes, unless it is missing or too large."""
    try:
        if path.stat().st_size > LARGEST_PAGE:
            raise Refused("too_large", f"{name} is larger than a page may be ({LARGEST_PAGE >> 20} MB)")
        return path.read_bytes()
    except FileNotFoundError:
        raise Refused("not_found", f"there is no page {name}") from None
    except OSError as error:
        raise Refused("refused", f"{name} cannot be read: {error.strerror}") from None


def parse(text: bytes, folder: Path) -> Document:
    """The document in a page file."""
    if len(text) > LARGEST_PAGE:
        raise Refused("too_large", f"a page may have at most {LARGEST_PAGE >> 20} MB")
    try:
        return document.from_file(Page.loads(text.decode(), folder=folder).to_dict())
    except UnicodeDecodeError as error:
        raise Refused("bad_request", f"the page is not UTF-8: {error}") from None
    except PageError as error:
        raise Refused("bad_request", str(error)) from None


def as_page(doc: Document, folder: Path) -> Page:
    """The page of a document; PageError says why it is none."""
    return Page.from_dict(document.to_file(doc), folder=folder)


def _replay(base: Document, lines: list[Any], disk: Document | None) -> tuple[Document, int | None, Document]:
    """The document after all edits; the version that the file has, None if it has none of them; and that document."""
    reached = 0 if disk is None else None
    doc = saved = base
    for line in lines:
        if "saving" not in line:
            doc = document.applied(doc, [(kind, key, value) for kind, key, value in line["changes"]])
        elif disk is not None and _same(doc, disk):
            reached, saved = int(line["saving"]), doc
    return doc, reached, saved


def _same(one: Document, other: Document) -> bool:
    """Whether two documents are equal, but for constants that moved into files and the names of notes."""
    equal = all(one[kind] == other[kind] for kind in ("page", "wire", "position"))
    notes = list(one["note"].values()) == list(other["note"].values())
    blocks = one["block"].keys() == other["block"].keys()
    return equal and notes and blocks and all(_same_block(one["block"][n], other["block"][n]) for n in one["block"])


def _same_block(one: Any, other: Any) -> bool:
    moved = "file" in other["attributes"] or "file" in one["attributes"]
    return bool(one["type"] == other["type"] and (moved or one["attributes"] == other["attributes"]))


def _lines(path: Path) -> Iterator[Any]:
    """The lines of a journal. The last one may be torn."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _steps(lines: list[Any]) -> Iterator[Step]:
    for line in lines:
        if "saving" not in line:
            yield Step(**line | {"changes": [(kind, key, value) for kind, key, value in line["changes"]]})


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
