"""Who may talk to the studio. Everything that is not clearly its own page is turned away before any handler sees it.

- The `Host` must be an address of this server, so that no foreign name can be pointed at it (DNS rebinding).
- An `Origin`, where a browser sends one, must be this server's own: no other page can open its socket.
- A session begins with the random token of the opened link or, on a server for others, with a password. It is a cookie
  that scripts cannot read. Only hashes of sessions are kept, on disk too, so that a restarted server knows its tabs.
- Every answer carries a Content-Security-Policy under which nothing but our own files runs and no other host is asked.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_SECONDS: Final = 12 * 3600
GUESSES_PER_MINUTE: Final = 10
LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
NO_SESSION: Final = 4401
"""The code with which a socket without a session is closed."""


@dataclass
class Access:
    """The keys of one server."""

    port: int
    host: str = "127.0.0.1"
    password: str | None = None
    state: Path | None = None
    """Where hashes of sessions outlive the process."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _sessions: dict[str, float] = field(default_factory=dict)
    _guesses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sessions = _read_sessions(self.state)

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies do not know ports, names can."""
        return f"poolgrad_studio_{self.port}"

    def opens(self, token: str) -> bool:
        """Whether this is the token of the link."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def guess(self, password: str) -> bool:
        """Whether this is the password. Only so many guesses a minute are looked at."""
        now = time.monotonic()
        self._guesses = [at for at in self._guesses if now - at < 60]
        if self.password is None or len(self._guesses) >= GUESSES_PER_MINUTE:
            return False
        self._guesses.append(now)
        right = hmac.compare_digest(password.encode(), self.password.encode())
        if right:
            self._guesses.clear()
        return right

    @property
    def weary(self) -> bool:
        """Whether no more guesses are looked at for now."""
        return sum(time.monotonic() - at < 60 for at in self._guesses) >= GUESSES_PER_MINUTE

    def begin_session(self) -> str:
        """A new session's secret, for the cookie."""
        secret, now = secrets.token_urlsafe(32), time.time()
        self._sessions = {key: until for key, until in self._sessions.items() if until > now}
        self._sessions[_digest(secret)] = now + SESSION_SECONDS
        _write_sessions(self.state, self._sessions)
        return secret

    def knows(self, headers: Headers) -> bool:
        """Whether the request comes with a session."""
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and self._sessions.get(_digest(cookie.value), 0) > time.time()

    def serves_host(self, host: str) -> bool:
        """Whether a `Host` header names this server. A foreign name never does; an address cannot be rebound."""
        name, port = _split_host(host)
        if port != self.port:
            return False
        if name in LOOPBACK_NAMES:
            return True
        if self.host in LOOPBACK_NAMES:
            return False
        return _is_address(name) or name in (self.host.lower(), socket.gethostname().lower())


class Guard:
    """The first thing every request and every socket meets."""

    def __init__(self, app: ASGIApp, access: Access, secure: bool = False) -> None:
        self.app = app
        self.access = access
        self.scheme = "https" if secure else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        fault = self.fault(headers)
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, headers, fault)
        elif fault is not None:
            await PlainTextResponse(fault, 403)(scope, receive, self._sealing(send, headers, scope["path"]))
        else:
            await self.app(scope, receive, self._sealing(send, headers, scope["path"]))

    def fault(self, headers: Headers) -> str | None:
        """Why a request is none of ours; None if it is."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self.access.serves_host(hosts[0]):
            return "This server does not go by that name."
        if any(origin.lower() != f"{self.scheme}://{hosts[0].lower()}" for origin in origins):
            return "Other sites may not talk to this server."
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return "Other sites may not read from this server."
        return None

    async def _socket(self, scope: Scope, receive: Receive, send: Send, headers: Headers, fault: str | None) -> None:
        if fault is None and self.access.knows(headers):
            await self.app(scope, receive, send)
            return
        await receive()  # the connection request
        if fault is None:
            # A browser tells a page the code only of a socket that was once open.
            await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": NO_SESSION if fault is None else 4403, "reason": fault or ""})

    def _sealing(self, send: Send, request: Headers, path: str) -> Send:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seal(MutableHeaders(scope=message), request.get("host", ""), self.scheme, path)
            await send(message)

        return sealed


def seal(headers: MutableHeaders, host: str, scheme: str, path: str) -> None:
    """Adds what tells a browser to trust nothing but us."""
    form = path in ("/", "/login")
    headers["Content-Security-Policy"] = policy(host if _plain(host) else "", scheme, form)
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    # Without a referrer a browser sends a form with the origin "null", and the password would be turned away.
    headers["Referrer-Policy"] = "same-origin" if form else "no-referrer"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Permissions-Policy"] = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
    if not path.startswith("/assets/"):
        headers["Cache-Control"] = "no-store"


def policy(host: str, scheme: str, form: bool = False) -> str:
    """The Content-Security-Policy. Sockets are named, since not every browser takes 'self' for them."""
    sockets = f" {'wss' if scheme == 'https' else 'ws'}://{host}" if host else ""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        f"connect-src 'self'{sockets}; worker-src 'self'; manifest-src 'self'; base-uri 'none'; "
        f"form-action {chr(39)}{'self' if form else 'none'}{chr(39)}; frame-ancestors 'none'; object-src 'none'"
    )


def state_file(folder: Path, port: int) -> Path:
    """Where the sessions of the studio on this folder and port are kept, for this user only."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "poolgrad" / f"studio-{_digest(f'{folder}:{port}')[:16]}.json"


def _read_sessions(state: Path | None) -> dict[str, float]:
    try:
        kept = json.loads(state.read_text()) if state is not None else {}
        now = time.time()
        return {str(key): float(until) for key, until in kept.items() if now < float(until) < now + SESSION_SECONDS + 1}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write_sessions(state: Path | None, sessions: dict[str, float]) -> None:
    if state is None:
        return
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        fresh = state.with_suffix(f".{os.getpid()}")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(sessions, file)
        fresh.replace(state)
    except OSError:
        return  # a read-only home: tabs must use the new link after a restart


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _split_host(host: str) -> tuple[str, int]:
    name, _, port = host.strip().lower().rpartition(":")
    if host.endswith("]") or not port.isdecimal() or not name:
        name, port = host.strip().lower(), "80"
    return name.removeprefix("[").removesuffix("]").rstrip("."), int(port)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(host: str) -> bool:
    return all(c.isalnum() or c in ".:-[]" for c in host)
