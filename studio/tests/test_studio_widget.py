"""The editor in a notebook: the same messages over the notebook's channel."""

from __future__ import annotations

import queue

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
    """The browser's side of a widget: one view of it."""

    def __init__(self, widget: PageWidget, view: str = "view") -> None:
        self.widget = widget
        self.view = view
        self.replies: queue.Queue[tuple[dict, bytes]] = queue.Queue()
        earlier = widget.send

        def send(content, buffers=None):
            if content["view"] == self.view:
                self._sent(content, buffers)
            else:
                earlier(content, buffers)

        widget.send = send  # type: ignore[method-assign]

    def _sent(self, content, buffers):
        if buffers:
            header, payload = frames.unpack(buffers[0])
            self.replies.put((header, bytes(payload)))
        else:
            self.replies.put((frames.loads(content["text"]), b""))

    def ask(self, **message):
        self.widget._take(self.widget, {"view": self.view, "text": frames.dumps({"id": 1, **message})}, [])
        return self.until(lambda m: m.get("id") == 1)

    def until(self, holds):
        while True:
            header, payload = self.replies.get(timeout=30)
            if holds(header):
                return header, payload

    def leave(self):
        self.widget._take(self.widget, {"view": self.view}, [])


def test_a_page_is_edited_run_and_read_back(page):
    """From a thread without an event loop, as some notebooks hand out messages."""
    widget = page_widget(page, height=500)
    cell = Cell(widget)
    welcome, _ = cell.ask(type="hello", client="notebook-cell")
    assert welcome["catalog"]
    opened, _ = cell.ask(type="open", page=widget.page_name)
    assert opened["doc"]["wire"] == {"y.x": "x.output"}
    change = ["block", "y", {"type": "Abs", "attributes": {}}]
    accepted, _ = cell.ask(type="edit", base=1, edit="e", changes=[change])
    assert accepted["type"] == "accepted"
    assert widget.page.blocks["y"].type.name == "Abs"
    cell.ask(type="run")
    cell.until(lambda m: m["type"] == "run" and m["state"] == "done")
    header, payload = cell.ask(type="slice", key="y.output")
    assert np.frombuffer(payload, header["dtype"]).tolist() == [1, 2]
    _, payload = cell.ask(type="download", key="y.output", format="npy")
    assert payload[:6] == b"\x93NUMPY", "a notebook has no address to fetch it from"
    widget.close()


def test_two_views_of_one_widget_see_each_other(page):
    """A notebook shows a widget as often as it is asked to; requests of the views may have the same numbers."""
    widget = page_widget(page)
    one, two = Cell(widget, "one"), Cell(widget, "two")
    for cell in (one, two):
        cell.ask(type="hello", client=f"client-{cell.view}")
        cell.ask(type="open", page=widget.page_name)
    one.ask(type="edit", base=1, edit="e", changes=[["page", "title", "Seen"]])
    changed, _ = two.until(lambda m: m["type"] == "changed")
    assert changed["changes"] == [["page", "title", "Seen"]]
    two.leave()
    one.until(lambda m: m["type"] == "peers" and m["peers"] == [])
    widget.close()


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


def test_a_person_edits_a_page_in_a_notebook(browser, page):
    """By mouse and by keyboard, in two views that follow each other; no key falls through to the notebook's cells."""
    from notebook import open_notebook
    from playwright.sync_api import expect

    widget = page_widget(page, height=500)
    context = browser.new_context(viewport={"width": 1300, "height": 1200}, reduced_motion="reduce")
    try:
        tab = context.new_page()
        faults: list[str] = []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        open_notebook(tab, widget)
        tab.evaluate("show('first')")
        one = tab.locator("#first")
        expect(one.get_by_test_id("block-y")).to_be_visible()
        assert one.locator(".studio").bounding_box()["height"] == 500
        one.get_by_test_id("block-x").locator(".block-head").click()
        one.get_by_test_id("attribute-value").fill("[3, -5]")
        one.get_by_test_id("attribute-value").press("Control+Enter")
        expect(one.get_by_test_id("result-y.output")).to_contain_text("25")
        one.get_by_test_id("block-y").locator(".block-head").click()
        tab.keyboard.press("Delete")
        expect(one.get_by_test_id("block-y")).to_have_count(0)
        tab.keyboard.press("d")  # what had the focus is gone: in a notebook D D deletes a cell
        expect(one.get_by_test_id("gradients-sheet")).to_be_visible()
        tab.keyboard.press("Escape")
        tab.keyboard.press("Control+z")
        expect(one.get_by_test_id("block-y")).to_be_visible()
        assert tab.evaluate("window.notebookKeys") == []
        tab.evaluate("show('second')")
        two = tab.locator("#second")
        expect(two.get_by_test_id("block-y")).to_be_visible()
        two.get_by_test_id("palette-Abs").click()
        expect(one.get_by_test_id("block-Abs")).to_be_visible()
        assert "Abs" in widget.page.blocks
        assert faults == []
    finally:
        context.close()
        widget.close()
