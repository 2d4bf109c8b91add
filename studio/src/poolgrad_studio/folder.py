"""The folder whose pages the studio shows. No name that anybody sends leads out of it.

Pages are addressed by their path in the folder, with slashes: `sub/a.page.json`. What the studio keeps for itself
(history, journals, drafts) lies in `.poolgrad` there, which no such path can reach.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .problems import Refused

PAGE: Final = ".page.json"
DATA_SUFFIXES: Final = (".npy", ".npz", ".png", ".tif", ".tiff")
LARGEST_PAGE: Final = 8 * 2**20
MOST_PAGES: Final = 1000
MOST_FOLDERS: Final = 5000
_FORBIDDEN: Final = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*]')
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class Folder:
    """A folder of pages.

    >>> folder = Folder(Path("."))
    >>> folder.path("../etc/passwd.page.json")
    Traceback (most recent call last):
    poolgrad_studio.problems.Refused: '../etc/passwd.page.json' is not a name for a page: '..' is not a name for a file
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root.resolve()
        self.private: Final = self.root / ".poolgrad"

    @property
    def name(self) -> str:
        """What to call it on the screen."""
        return self.root.name or str(self.root)

    def path(self, page: object) -> Path:
        """The file of a page, whether or not it exists."""
        if not isinstance(page, str) or not page.endswith(PAGE):
            raise Refused("bad_request", f"{page!r} is not a name for a page: it must end with {PAGE}")
        return self._inside(page, "a page")

    def data_path(self, name: object) -> Path:
        """The file of an array or a picture."""
        if not isinstance(name, str) or not name.lower().endswith(DATA_SUFFIXES):
            raise Refused("bad_request", f"{name!r} is not a name for data: it must end with {' '.join(DATA_SUFFIXES)}")
        return self._inside(name, "data")

    def name_of(self, path: Path) -> str:
        """How a page's file is addressed."""
        return path.relative_to(self.root).as_posix()

    def pages(self) -> Iterator[Path]:
        """The page files, nearest first; hidden folders and links that lead outside are left out.

        At most `MOST_PAGES` in `MOST_FOLDERS`: somebody may start the studio in their home.
        """
        return itertools.islice(self._pages(), MOST_PAGES)

    def _pages(self) -> Iterator[Path]:
        waiting = deque([self.root])
        for _ in range(MOST_FOLDERS):
            if not waiting:
                return
            here = waiting.popleft()
            _, folders, files = next(os.walk(here), (here, [], []))
            for name in sorted(files):
                if name.endswith(PAGE) and not name.startswith(".") and self._stays(here / name):
                    yield here / name
            waiting += (here / name for name in sorted(folders) if _searched(here / name))

    def free_name(self, wanted: str) -> str:
        """A page name that is not taken: the wanted one, or with a number.

        >>> Folder(Path(".")).free_name("My first page!")
        'my-first-page.page.json'
        """
        *above, last = wanted.removesuffix(PAGE).split("/")
        stem = re.sub(r"[^\w.-]+", "-", last.lower()).strip("-.")[:80] or "page"
        tries = (f"{'/'.join([*above, stem])}{number}{PAGE}" for number in ("", *(f"-{n}" for n in range(2, 10_000))))
        return next(name for name in tries if not self.path(name).exists())

    def _inside(self, name: str, what: str) -> Path:
        for part in name.split("/"):
            fault = _fault(part)
            if fault is not None:
                raise Refused("bad_request", f"{name!r} is not a name for {what}: {fault}")
        path = self.root.joinpath(*name.split("/"))
        if not self._stays(path):
            raise Refused("refused", f"{name!r} is a link that leads out of the folder")
        return path

    def _stays(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.root)


def _searched(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.name != "node_modules" and not folder.is_symlink()


def _fault(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"{part!r} is not a name for a file"
    if part.startswith("."):
        return "hidden files are not pages"
    if _FORBIDDEN.search(part) or part != part.strip(" ") or part.endswith("."):
        return f"{part!r} has a character that file names should not have"
    if len(part.encode()) > 200 or _RESERVED.fullmatch(part):
        return f"{part!r} cannot be a file name everywhere"
    return None
