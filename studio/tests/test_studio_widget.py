"""The editor in a notebook: the same messages over the notebook's channel."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from poolgrad.graph import Page
from poolgrad_studio import frames
from poolgrad_studio.widget import PageWidget, page_widget


@pytest.fixture
def page():
    made = Page("In a notebook")
    made.add("Const", "x", {"value": [1.0, -2.0]})
    made.add("Square", "y")
    made.wire("x.output", "y.x")
    return made


class Cell:
    """The browser's side of a widget."""

    def __init__(self, widget: PageWidget) -> None:
        self.widget = widget
        self.replies: asyncio.Queue[tuple[dict, bytes]] = asyncio.Queue()
        widget.send = self._sent  # type: ignore[method-assign]

    def _sent(self, content, buffers=None):
        if buffers:
            header, payload = frames.unpack(buffers[0])
            self.replies.put_nowait((header, bytes(payload)))
        else:
            self.replies.put_nowait((frames.loads(content["text"]), b""))

    async def ask(self, **message):
        self.widget._take(self.widget, {"text": frames.dumps({"id": 1, **message})}, [])
        return await self.until(lambda m: m.get("id") == 1)

    async def until(self, holds):
        while True:
            header, payload = await asyncio.wait_for(self.replies.get(), 30)
            if holds(header):
                return header, payload


def test_a_page_is_edited_run_and_read_back(page):
    async def story():
        widget = page_widget(page, height=500)
        cell = Cell(widget)
        welcome, _ = await cell.ask(type="hello", client="notebook-cell")
        assert welcome["catalog"]
        opened, _ = await cell.ask(type="open", page=widget.page_name)
        assert opened["doc"]["wire"] == {"y.x": "x.output"}
        change = ["block", "y", {"type": "Abs", "attributes": {}}]
        accepted, _ = await cell.ask(type="edit", base=1, edit="e", changes=[change])
        assert accepted["type"] == "accepted"
        assert widget.page.blocks["y"].type.name == "Abs"
        await cell.ask(type="run")
        await cell.until(lambda m: m["type"] == "run" and m["state"] == "done")
        header, payload = await cell.ask(type="slice", key="y.output")
        assert np.frombuffer(payload, header["dtype"]).tolist() == [1, 2]
        _, payload = await cell.ask(type="download", key="y.output", format="npy")
        assert payload[:6] == b"\x93NUMPY", "a notebook has no address to fetch it from"
        await widget._studio.close()

    with ThreadPoolExecutor(1) as thread:  # a browser test's event loop may be running in this one
        thread.submit(asyncio.run, story()).result()


def test_a_page_has_a_widget(page):
    widget = page.widget(height=300)
    assert isinstance(widget, PageWidget)
    assert widget.height == 300
    assert widget.page == page


def test_the_widget_brings_its_own_code():
    for name in ("_esm", "_css"):
        text = str(getattr(PageWidget, name))
        assert len(text) > 10_000, "the bundle, in one piece"
    assert "http://" not in str(PageWidget._css).replace("http://www.w3.org", "")
