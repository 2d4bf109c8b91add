"""The editor in a notebook cell, `page.widget()`: the same front end and messages, over the notebook's own channel."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any, Final

from poolgrad.errors import PoolgradError
from poolgrad.graph import Page

from .connection import Connection
from .folder import PAGE
from .studio import Studio

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise PoolgradError("the editor in a notebook needs anywidget: pip install 'poolgrad-studio[jupyter]'") from error

STATIC: Final = Path(__file__).resolve().parent / "static"


class PageWidget(anywidget.AnyWidget):
    """A page that is edited in place. `widget.page` is the page as it is now."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"
    page_name = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(600).tag(sync=True)

    def __init__(self, page: Page, *, height: int = 600, max_memory: int | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="poolgrad-widget-"))
        name = f"page{PAGE}"
        page.save(self._folder / name)
        self._studio = Studio(self._folder, max_memory=max_memory)
        self._connection: Connection | None = None
        super().__init__(page_name=name, height=height)
        self.on_msg(self._take)

    @property
    def page(self) -> Page:
        """The page as it is now."""
        room = self._studio.rooms.get(self.page_name)
        return room.page if room is not None else Page.load(self._folder / self.page_name)

    def close(self) -> None:
        """Ends the worker and lets go of the files."""
        super().close()
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().create_task(self._studio.close())

    def _take(self, widget: Any, content: Any, buffers: list[Any]) -> None:
        """A message from the cell. It is worked on in the notebook's own event loop."""
        message = bytes(buffers[0]) if buffers else content.get("text")
        if isinstance(message, str | bytes):
            asyncio.get_running_loop().create_task(self._receive(message))

    async def _receive(self, message: str | bytes) -> None:
        if self._connection is None:
            self._connection = Connection(self._studio, self._pass_on, files_by_url=False)
        await self._connection.receive(message)

    async def _pass_on(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self.send({"text": message})
        else:
            self.send({}, [message])


def page_widget(page: Page, **options: Any) -> PageWidget:
    """The widget of a page, for `page.widget()`."""
    return PageWidget(page, **options)
