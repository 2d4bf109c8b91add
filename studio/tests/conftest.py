"""Servers and pages for the tests of the studio."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tab import Server, Tab


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
