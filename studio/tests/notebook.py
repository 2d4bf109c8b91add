"""A notebook's front end, as far as a widget sees it: a page in the browser that shows views of one model."""

from __future__ import annotations

import base64
import queue
from typing import Any

from playwright.sync_api import Page, Route

from poolgrad_studio.widget import STATIC, PageWidget

ADDRESS = "http://notebook.test/"

HTML = """<!doctype html><html lang="en"><title>A notebook</title><link rel="stylesheet" href="widget.css">
<body><input aria-label="a cell"><div id="first"></div><div id="second"></div>
<script type="module">
import widget from "./widget.js";
const listeners = new Set();
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const model = {
  get: (name) => window.traits[name],
  on: (_, listener) => listeners.add(listener),
  off: (_, listener) => listeners.delete(listener),
  send: (content, _, buffers = []) =>
    window.toKernel(content, buffers.map((b) => btoa(String.fromCharCode(...new Uint8Array(b))))),
};
window.notebookKeys = [];
document.addEventListener("keydown", (event) => {
  if (!event.target.closest("[data-lm-suppress-shortcuts]")) window.notebookKeys.push(event.key);
}, true);
window.show = (where) => { widget.render({ model, el: document.getElementById(where) }); };
const listen = async () => {
  for (const { content, buffers } of await window.fromKernel())
    for (const listener of [...listeners]) listener(content, buffers.map((b) => new DataView(bytes(b).buffer)));
  setTimeout(listen, 10);
};
listen();
</script>"""


def open_notebook(page: Page, widget: PageWidget) -> None:
    """Connects a browser's page with a widget. `show("first")` in it shows a view."""
    sent: queue.Queue[tuple[Any, Any]] = queue.Queue()
    widget.send = lambda content, buffers=None: sent.put((content, buffers or []))  # type: ignore[method-assign,assignment]

    def to_kernel(content: Any, buffers: list[str]) -> None:
        widget._take(widget, content, [base64.b64decode(b) for b in buffers])

    def from_kernel() -> list[dict[str, Any]]:
        found = [sent.get_nowait() for _ in range(sent.qsize())]
        return [{"content": c, "buffers": [base64.b64encode(b).decode() for b in bs]} for c, bs in found]

    def serve(route: Route) -> None:
        name = route.request.url.removeprefix(ADDRESS)
        if name:
            route.fulfill(path=STATIC / name)
        else:
            route.fulfill(body=HTML, content_type="text/html")

    page.route(f"{ADDRESS}**", serve)
    page.expose_function("toKernel", to_kernel)
    page.expose_function("fromKernel", from_kernel)
    page.add_init_script(f"window.traits = {{page_name: {widget.page_name!r}, height: {widget.height}}}")
    page.goto(ADDRESS)
    page.wait_for_function("window.show !== undefined")
