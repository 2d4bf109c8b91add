"""The studio over HTTP: our own files, one socket, downloads. `security.Guard` stands in front of all of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from . import door
from .connection import Connection
from .security import Access, Guard
from .studio import Studio

STATIC: Final = Path(__file__).resolve().parent / "static"
MOST_SOCKETS: Final = 32
LONGEST_FORM: Final = 4096


def make_app(studio: Studio, access: Access, secure: bool = False) -> Starlette:
    """The application."""
    served = Server(studio, access, secure)
    (STATIC / "assets").mkdir(parents=True, exist_ok=True)
    return Starlette(
        routes=[
            Route("/", served.index),
            Route("/login", served.login, methods=["POST"]),
            Route("/download/{ticket}", served.download),
            Route("/favicon.ico", served.favicon),
            Route("/door.css", served.door_style),
            Mount("/assets", Assets(directory=STATIC / "assets")),
            WebSocketRoute("/socket", served.socket),
        ],
        middleware=[Middleware(Guard, access=access, secure=secure)],
        lifespan=served.lifespan,
    )


class Assets(StaticFiles):
    """The bundle. Its names carry hashes, so it may be kept forever."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """The file, to be kept."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


class Server:
    """The handlers."""

    def __init__(self, studio: Studio, access: Access, secure: bool) -> None:
        self.studio = studio
        self.access = access
        self.secure = secure
        self.sockets = 0

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Warm from the start, everything saved at the end."""
        await self.studio.start()
        yield
        await self.studio.close()

    async def index(self, request: Request) -> Response:
        """The front end for those who have a session; a token begins one."""
        token = request.query_params.get("token")
        if token is not None:
            return self._begin() if self.access.opens(token) else HTMLResponse(door.EXPIRED, 401)
        if not self.access.knows(request.headers):
            return HTMLResponse(door.EXPIRED if self.access.password is None else door.login(), 401)
        page = STATIC / "index.html"
        return HTMLResponse(page.read_text() if page.is_file() else door.NOT_BUILT, 200 if page.is_file() else 503)

    async def login(self, request: Request) -> Response:
        """A session for the password."""
        if int(request.headers.get("content-length") or LONGEST_FORM + 1) > LONGEST_FORM:
            raise HTTPException(413)
        form = parse_qs((await request.body()).decode(errors="replace"))
        if self.access.guess(form.get("password", [""])[0]):
            return self._begin()
        await asyncio.sleep(0.5)
        tired = "These were too many tries. Wait a minute." if self.access.weary else "That is not the password."
        return HTMLResponse(door.login(tired), 401)

    async def download(self, request: Request) -> Response:
        """A file that was asked for over the socket."""
        self._expect_session(request)
        ticket = self.studio.redeem(request.path_params["ticket"])
        if ticket is None:
            raise HTTPException(404)
        tidy = BackgroundTask(shutil.rmtree, ticket.path.parent, ignore_errors=True)
        return FileResponse(ticket.path, filename=ticket.name, media_type="application/octet-stream", background=tidy)

    async def favicon(self, request: Request) -> Response:
        """None: the front end brings its own."""
        return Response(status_code=204)

    async def door_style(self, request: Request) -> Response:
        """How the pages look that stand in front of the studio."""
        return FileResponse(door.STYLE, media_type="text/css")

    async def socket(self, socket: WebSocket) -> None:
        """A tab, for as long as it lives."""
        if self.sockets >= MOST_SOCKETS:
            await socket.accept()
            await socket.close(4429, "too many tabs")
            return
        self.sockets += 1
        await socket.accept()
        connection = Connection(self.studio, lambda message: _send(socket, message), files_by_url=True)
        given_up = asyncio.create_task(connection.closed.wait())
        try:
            while not connection.closed.is_set():
                incoming = asyncio.create_task(socket.receive())
                await asyncio.wait({incoming, given_up}, return_when=asyncio.FIRST_COMPLETED)
                if not incoming.done():
                    incoming.cancel()
                    break
                message = incoming.result()
                if message["type"] == "websocket.disconnect":
                    break
                text = message.get("text")
                await connection.receive(text if text is not None else message["bytes"])
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            given_up.cancel()
            self.sockets -= 1
            await connection.leave()

    def _begin(self) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self.access.cookie, self.access.begin_session(), httponly=True, samesite="lax", secure=self.secure, path="/"
        )
        return response

    def _expect_session(self, request: Request) -> None:
        if not self.access.knows(request.headers):
            raise HTTPException(401)


async def _send(socket: WebSocket, message: str | bytes) -> None:
    if isinstance(message, str):
        await socket.send_text(message)
    else:
        await socket.send_bytes(message)
