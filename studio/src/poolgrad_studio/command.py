"""`poolgrad studio [FOLDER]`: the block editor on a folder of pages."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from poolgrad.errors import InvalidArgument, PoolgradError

from .folder import PAGE
from .security import LOOPBACK_NAMES, Access, state_file

PORT: Final = 8421
_UNITS: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def register(app: typer.Typer) -> None:
    """Adds the command to poolgrad's command line."""
    app.command("studio")(studio)


def studio(
    folder: Annotated[
        Path, typer.Argument(help="The folder with the pages; a page file opens its folder and itself.")
    ] = Path("."),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; if the usual one is taken, a free one is chosen.")
    ] = PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Others than this machine need a password.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    max_memory: Annotated[str, typer.Option(help="How much memory a run may take, such as 4G; 0 for no limit.")] = "",
    max_seconds: Annotated[float, typer.Option(help="How long a run may take.")] = 600.0,
    engine: Annotated[str, typer.Option(help="What runs the pages: cpu or cuda.")] = "cpu",
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password for --host; without it one is made up and shown.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A TLS certificate (.pem), for https.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None,
) -> None:
    """Open the block editor in the browser: build pages, run them, look at results, windows and gradients.

    Everything stays on this machine: the server listens on 127.0.0.1 and opens only for the link it shows.
    """
    serve(
        folder, port=port, host=host, browser=browser, max_memory=read_bytes(max_memory), max_seconds=max_seconds,
        engine=engine, password_file=password_file, certificate=certificate, key=key,
    )  # fmt: skip


def serve(
    folder: Path, *, port: int, host: str, browser: bool, max_memory: int | None, max_seconds: float, engine: str,
    password_file: Path | None, certificate: Path | None, key: Path | None,
) -> None:  # fmt: skip
    """Runs the server until it is interrupted."""
    import uvicorn

    from .app import make_app
    from .studio import LARGEST_UPLOAD, Studio

    _check_options(max_seconds, engine, certificate, key)
    folder, page = _folder_and_page(folder)
    foreign = host not in LOOPBACK_NAMES
    password = _password(password_file) if foreign else None
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    access = Access(port, host, password, state_file(folder, port))
    secure = certificate is not None
    app = make_app(Studio(folder, max_memory=max_memory, run_seconds=max_seconds, engine=engine), access, secure)
    link = _link(host, port, access.token, page, secure)
    _announce(folder, link, password, foreign, secure)
    if browser:
        threading.Timer(0.5, webbrowser.open, [link]).start()
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,  # numbers hardly shrink, and it would take longer than the way to the browser
        ws_max_size=LARGEST_UPLOAD + 2**16,
        ws_ping_interval=15,
        ws_ping_timeout=30,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=3,
        ssl_certfile=str(certificate) if certificate else None,
        ssl_keyfile=str(key) if key else None,
    )
    uvicorn.Server(config).run(sockets=[listening])


def read_bytes(text: str) -> int | None:
    """A number of bytes; by default three quarters of the machine's memory.

    >>> read_bytes("4G"), read_bytes("0")
    (4294967296, None)
    """
    if not text:
        return _machine_memory() * 3 // 4 or None
    number, unit = (text[:-1], text[-1].lower()) if text[-1].lower() in _UNITS else (text, "")
    try:
        found = int(float(number) * _UNITS.get(unit, 1))
    except ValueError:
        raise InvalidArgument(f"max-memory is {text!r}, expected a number of bytes such as 4G", given=text) from None
    if found < 0:
        raise InvalidArgument(f"max-memory is {text!r}, expected at least 0", given=text)
    return found or None


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _check_options(max_seconds: float, engine: str, certificate: Path | None, key: Path | None) -> None:
    """Says at once what would otherwise go wrong at the first run, or unencrypted."""
    from poolgrad.graph.engines import ENGINES

    if not 0 < max_seconds < float("inf"):
        raise InvalidArgument(f"max-seconds is {max_seconds:g}, expected a number above 0", given=max_seconds)
    if engine not in ENGINES:
        raise InvalidArgument(f"engine is {engine!r}, expected one of {', '.join(sorted(ENGINES))}", given=engine)
    if key is not None and certificate is None:
        raise InvalidArgument("there is a key but no certificate: give --certificate too", given=str(key))
    for file in (certificate, key):
        if file is not None and not file.is_file():
            raise InvalidArgument(f"there is no file {file}", given=str(file))


def _folder_and_page(given: Path) -> tuple[Path, str | None]:
    if given.is_file():
        if not given.name.endswith(PAGE):
            raise InvalidArgument(f"{given} is not a page: the name of a page ends with {PAGE}", given=str(given))
        return given.resolve().parent, given.name
    if given.suffix == ".json" and not given.exists():
        raise InvalidArgument(f"there is no page {given}", given=str(given))
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"the folder {given} cannot be made: {error.strerror}", given=str(given)) from None
    return given.resolve(), None


def _listen(host: str, port: int) -> socket.socket:
    """A socket on the port; on a free one where the usual port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in dict.fromkeys((port, 0) if port == PORT else (port,)):
        # With the protocol named, asyncio sends small messages at once instead of waiting for more (40 ms).
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, tried))
            return listening
        except OSError as error:
            listening.close()
            problem = f"cannot listen on {host}, port {tried}: {error.strerror}"
    raise PoolgradError(problem)


def _password(file: Path | None) -> str:
    if file is None:
        return secrets.token_urlsafe(12)
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PoolgradError(f"the password in {file} cannot be read: {error}") from None
    if len(password) < 8:
        raise PoolgradError(f"the password in {file} has less than 8 characters")
    return password


def _link(host: str, port: int, token: str, page: str | None, secure: bool) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    route = f"#/page/{quote(page, safe='')}" if page else ""
    return f"http{'s' * secure}://{name}:{port}/?token={token}{route}"


def _announce(folder: Path, link: str, password: str | None, foreign: bool, secure: bool) -> None:
    def say(*words: Any) -> None:
        print(*words, file=sys.stderr, flush=True)

    say(f"poolgrad studio on {folder}")
    say(f"  {link}")
    if foreign:
        say("  WARNING: other machines can reach this server. Whoever has the password can run pages here and read and")
        say(
            "  write the pages in this folder."
            + ("" if secure else " Without --certificate everything travels unencrypted.")
        )
        say(f"  Password: {password}")
    say("  Ctrl-C ends it. Everything is saved as you go.")
