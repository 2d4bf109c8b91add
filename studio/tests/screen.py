"""A real browser: the studio as a person sees it, with names for what a person does.

A page that logs an error, breaks the Content-Security-Policy or asks another host for anything fails its test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    FloatRect,
    Locator,
    Page,
    Playwright,
    WebSocketRoute,
    expect,
)
from tab import AT_MOST, Server

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
APT = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
WEB = Path(__file__).resolve().parents[1] / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"


def find_browser() -> str | None:
    """Chromium, installed with apt where it is missing and that is possible."""
    found = _installed()
    if found or os.environ.get("POOLGRAD_NO_BROWSER") or not shutil.which("apt-get"):
        return found
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for command in ("update -q", "install -y -q --no-install-recommends chromium"):
        try:
            subprocess.run([*root, "apt-get", *command.split()], check=False, capture_output=True, env=APT, timeout=600)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return _installed()


def _installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def launch(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


class Screen:
    """A tab, and a person in front of it."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.server = server
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.tolerated: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.set_default_timeout(AT_MOST)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def check(self) -> None:
        """Fails if anything went wrong behind the scenes."""
        assert [f for f in self.faults if not any(re.search(t, f) for t in self.tolerated)] == []

    @contextmanager
    def without_server(self) -> Iterator[None]:
        """While the server is away, the browser complains about lost connections, as it should."""
        self.tolerated.append("WebSocket|ERR_CONNECTION|ERR_EMPTY")
        yield

    def slow_line(self, seconds: float) -> None:
        """Whatever the server says to this tab takes so long to arrive, in the order in which it was said."""

        def connect(line: WebSocketRoute) -> None:
            server = line.connect_to_server()
            server.on_message(lambda said: (self.page.wait_for_timeout(1000 * seconds), line.send(said)))

        self.page.route_web_socket("**/socket", connect)

    def late_line(self, seconds: float) -> None:
        """The connection to the server takes so long to open."""
        self.page.add_init_script(
            f"""const Socket = window.WebSocket;
            window.WebSocket = class extends Socket {{
                get readyState() {{ return this.late ? super.readyState : Socket.CONNECTING; }}
                set onopen(then) {{
                    super.onopen = (event) => setTimeout(() => {{ this.late = true; then(event); }}, {1000 * seconds});
                }}
            }};"""
        )

    # -- finding ------------------------------------------------------------------------------------------------------

    def at(self, name: str) -> Locator:
        """What carries a test id."""
        return self.page.get_by_test_id(name)

    def block(self, name: str) -> Locator:
        return self.at(f"block-{name}")

    def block_names(self) -> set[str]:
        found = self.page.locator(".react-flow__node [data-testid^='block-']").all()
        return {str(block.get_attribute("data-testid")).removeprefix("block-") for block in found}

    def has_blocks(self, *names: str) -> None:
        """Exactly these are on the page."""
        expect(self.page.locator(".react-flow__node-block")).to_have_count(len(names))
        self.until(lambda: self.block_names() == set(names), f"the blocks are {names}, not {self.block_names()}")

    def has_wires(self, count: int) -> None:
        expect(self.page.locator(".react-flow__edge")).to_have_count(count)

    # -- doing --------------------------------------------------------------------------------------------------------

    def open_gallery(self) -> None:
        self.page.goto(self.server.link)
        expect(self.at("gallery")).to_be_visible()

    def open_page(self, name: str) -> None:
        self.page.goto(f"{self.server.link}#/page/{name}")
        self.ready()

    def ready(self) -> None:
        """Waits until the page is open: before, it takes no edits."""
        expect(self.at("editor")).to_have_attribute("aria-busy", "false")
        expect(self.at("canvas")).to_be_visible()

    def open_example(self, name: str) -> None:
        """One click on a card of the gallery: the page opens and runs."""
        self.open_gallery()
        self.at(f"example-{name}.page.json").click()
        expect(self.at("canvas")).to_be_visible()
        expect(self.at("run-status")).to_contain_text("Done")

    def block_name(self) -> Locator:
        """The field with the name of the selected block."""
        return self.at("inspector").get_by_role("textbox", name="Name", exact=True)

    def new_page(self) -> None:
        self.open_gallery()
        self.at("new-page").click()
        self.ready()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """With the mouse, in steps, as hands do."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, steps=6)
        mouse.move(*end, steps=6)
        mouse.up()

    def box(self, where: Locator) -> FloatRect:
        """Where something is, once it does not move any more."""
        where.evaluate(
            """(element) => new Promise((resolve, reject) => {
                let [last, still, frames] = ["", 0, 0];
                const look = () => {
                    if (frames++ > 2000) reject(new Error("it never stands still"));
                    const {x, y, width, height} = element.getBoundingClientRect();
                    const now = [x, y, width, height].join();
                    still = now === last ? still + 1 : 0;
                    last = now;
                    if (still < 5) requestAnimationFrame(look);
                    else resolve();
                };
                look();
            })"""
        )
        box = where.bounding_box()
        assert box is not None, f"{where} is not on the screen"
        return box

    def middle(self, where: Locator) -> tuple[float, float]:
        box = self.box(where)
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def wire(self, source: str, target: str) -> None:
        """Draws a wire from an output to a pin."""
        self.drag(self.middle(self.at(f"pin-{source}")), self.middle(self.at(f"pin-{target}")))

    def bring_into_sight(self, where: Locator) -> None:
        """Shows the whole page if something on the canvas is out of sight, as behind the panel below.

        Playwright would scroll the canvas, which scrolls back at the next frame: the button may be pressed on a block
        and released beside it, and that deselects.
        """
        at, canvas = self.box(where), self.box(self.at("canvas"))
        sides = (("x", "width"), ("y", "height"))
        if not all(canvas[a] <= at[a] + at[size] / 2 <= canvas[a] + canvas[size] for a, size in sides):
            self.at("zoom-fit").click()
            self.box(where)

    def select(self, block: str) -> None:
        """With a click; what the inspector shows belongs to the block from then on.

        While a page that was just opened is brought into view, a click can fall beside the block: people click again.
        """
        name = self.block_name()
        head = self.block(block).locator(".block-head")
        for patience in (5_000, 10_000):
            self.bring_into_sight(head)
            head.click()
            with suppress(AssertionError):
                expect(name).to_have_value(block, timeout=patience)
                return
        self.bring_into_sight(head)
        head.click()
        expect(name).to_have_value(block)

    def set(self, block: str, **attributes: str) -> None:
        """Types attributes in the inspector."""
        self.select(block)
        for name, text in attributes.items():
            field = self.at(f"attribute-{name}")
            field.fill(text)
            field.press("Tab")

    def run(self) -> None:
        """One click, never a second one: the button that starts a run becomes the one that stops it."""
        expect(self.at("run")).to_be_enabled()
        self.page.mouse.click(*self.middle(self.at("run")))
        expect(self.at("run-status")).to_contain_text("Done")

    def values(self, key: str) -> list[str]:
        """The list of a result, as `name value` lines."""
        self.bring_into_sight(self.at(f"result-{key}"))
        self.at(f"result-{key}").click()
        self.at("view-list").click()
        rows = self.at("value-list").locator("[role=row]")
        expect(rows.first).to_be_visible()
        expect(self.at("value-list")).not_to_contain_text("…")
        return [re.sub(r"\s+", " ", row.inner_text()).strip() for row in rows.all()]

    def saved(self) -> None:
        expect(self.at("save-status")).to_contain_text("Saved")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for something that the page itself does not show."""
        end = time.monotonic() + AT_MOST / 1000
        while not holds():
            assert time.monotonic() < end, f"it never came about that {what}"
            self.page.wait_for_timeout(50)

    def shoot(self, path: Path | None) -> None:
        """A picture for the documentation."""
        if path is not None:
            self.page.mouse.move(2, 2)
            self.page.wait_for_timeout(350)
            self.page.screenshot(path=path, animations="disabled")

    def milliseconds(self, action: str, selector: str, count: int) -> float:
        """How long it takes from an action until so many elements are painted."""
        return float(
            self.page.evaluate(
                """([action, selector, count, most]) => new Promise((resolve, reject) => {
                    const begin = performance.now();
                    const look = () => {
                        const found = document.querySelectorAll(selector).length;
                        if (performance.now() - begin > most) reject(new Error(`${found} of ${count} ${selector}`));
                        else if (found < count) requestAnimationFrame(look);
                        else requestAnimationFrame(() => resolve(performance.now() - begin));
                    };
                    ACTION;
                    look();
                })""".replace("ACTION", action),
                [action, selector, count, AT_MOST],
            )
        )

    def frames_while(self, act: Callable[[], None]) -> list[float]:
        """The lengths of the frames that the browser shows while something is done."""
        self.page.evaluate(
            """() => { window.frameTimes = []; let last = performance.now();
                const tick = (now) => { window.frameTimes.push(now - last); last = now; requestAnimationFrame(tick); };
                requestAnimationFrame(tick); }"""
        )
        act()
        return [float(time) for time in self.page.evaluate("window.frameTimes")]

    def axe(self) -> list[str]:
        """What an accessibility check finds."""
        if not AXE.exists():
            subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=WEB, check=True)
        self.page.evaluate(AXE.read_text())
        found: Any = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{v['id']}: {v['help']} at {[n['target'] for n in v['nodes']][:4]}" for v in found["violations"]]


def outside(url: str, server: Server) -> bool:
    """Whether a request goes to anybody but the server."""
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and (parts.hostname, parts.port) != (server.host, server.port)
