"""Servers and pages for the tests of the studio."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tab import AT_MOST, Server, Tab

from poolgrad_studio.app import STATIC


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: long or memory-hungry; run by `make test-full`, left out otherwise")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "full" not in config.getoption("-m", default="") and not config.getoption("--full", default=False):
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a folder of its own, shared by the tests of a file."""
    started = Server(tmp_path_factory.mktemp("pages"))
    yield started
    started.stop()


@pytest.fixture
def tab(server: Server) -> Iterator[Tab]:
    opened = server.tab()
    yield opened
    opened.close()


@pytest.fixture
def write_page(server: Server, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Writes a page file into the server's folder; its name."""

    def write(blocks: list[dict[str, Any]], wires: list[str] = (), name: str = "", **rest: Any) -> str:  # type: ignore[assignment]
        page = {"poolgrad-page": 1, "title": request.node.name, **rest, "blocks": blocks, "wires": list(wires)}
        name = name or f"{''.join(c if c.isalnum() else '-' for c in request.node.name)}.page.json"
        Path(server.folder, name).write_text(json.dumps(page))
        return name

    return write


# -- the browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium. Without one the stories cannot be told; in CI that is a failure."""
    from playwright.sync_api import expect, sync_playwright
    from screen import find_browser, launch

    expect.set_options(timeout=AT_MOST)

    path = find_browser()
    if path is None:
        message = "there is no Chromium, and it cannot be installed here"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    if not (STATIC / "index.html").is_file():
        pytest.fail("the front end is not built: pip install --editable studio")
    with sync_playwright() as playwright:
        started = launch(playwright, path)
        yield started
        started.close()


@pytest.fixture
def first_visit(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A tab of somebody who is here for the first time: the folder has no pages yet."""
    from screen import Screen

    (tmp_path / "pages").mkdir()
    started = Server(tmp_path / "pages")
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    screen = Screen(context, started)
    yield screen
    screen.check()
    context.close()
    started.stop()


@pytest.fixture
def new_screen(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens tabs. Afterwards: no error in the console, and no request that left the machine."""
    from screen import Screen, outside

    contexts, screens, strays = [], [], []

    def open_tab(own_context: bool = False, **options: Any) -> Any:
        if own_context or not contexts:
            settings = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"} | options
            contexts.append(browser.new_context(**settings))
            contexts[-1].on("request", lambda r: strays.append(r.url) if outside(r.url, server) else None)
            contexts[-1].on("websocket", lambda w: strays.append(w.url) if outside(w.url, server) else None)
        screens.append(Screen(contexts[-1], server))
        return screens[-1]

    yield open_tab
    for screen in screens:
        screen.check()
    assert strays == []
    for context in contexts:
        context.close()


@pytest.fixture
def screen(new_screen: Callable[..., Any]) -> Any:
    return new_screen()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures for the documentation go: `make images` names docs/images."""
    folder = Path(os.environ.get("POOLGRAD_IMAGES") or tmp_path_factory.mktemp("images"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
