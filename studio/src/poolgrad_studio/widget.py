"""The editor in a notebook cell, `page.widget()`: the same front end and messages, over the notebook's own channel.

Notebooks differ in where they hand out messages: in the main thread between cells, or in threads beside it. The editor
works in a thread of its own, so it answers in all of them. Every view of a widget is a tab of its small studio.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from functools import cache
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
        self._kept = tempfile.TemporaryDirectory(prefix="poolgrad-widget-", ignore_cleanup_errors=True)
        self._folder = Path(self._kept.name)
        name = f"page{PAGE}"
        page.save(self._folder / name)
        self._studio = Studio(self._folder, max_memory=max_memory)
        self._views: dict[str, Connection] = {}
        self._incoming: asyncio.Queue[tuple[str, str | bytes | None]] = asyncio.Queue()
        self._work = asyncio.run_coroutine_threadsafe(self._answer(), _loop())
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
        self._work.cancel()

    def _take(self, widget: Any, content: Any, buffers: list[Any]) -> None:
        """A message from a view of the widget: a notebook may show it several times."""
        message = bytes(buffers[0]) if buffers else content.get("text")
        _loop().call_soon_threadsafe(self._incoming.put_nowait, (str(content.get("view")), message))

    async def _answer(self) -> None:
        """Answers one message after the other, until the widget is closed."""
        try:
            while True:
                view, message = await self._incoming.get()
                if message is None:
                    await self._leave(view)
                else:
                    await self._connection(view).receive(message)
        finally:
            for view in list(self._views):
                await self._leave(view)
            await self._studio.close()

    def _connection(self, view: str) -> Connection:
        """Every view has its own: for the studio they are tabs."""
        if view not in self._views:
            self._views[view] = Connection(self._studio, lambda m: self._pass_on(view, m), files_by_url=False)
        return self._views[view]

    async def _leave(self, view: str) -> None:
        connection = self._views.pop(view, None)
        if connection is not None:
            await connection.leave()

    async def _pass_on(self, view: str, message: str | bytes) -> None:
        if isinstance(message, str):
            self.send({"view": view, "text": message})
        else:
            self.send({"view": view}, [message])


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all widgets, in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="poolgrad-widgets", daemon=True).start()
    return loop


def page_widget(page: Page, **options: Any) -> PageWidget:
    """The widget of a page, for `page.widget()`."""
    return PageWidget(page, **options)
