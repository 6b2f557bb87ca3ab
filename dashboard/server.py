"""The process that serves the page: from `hybrisfs ui` until Ctrl-C, or until nobody looks any more."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from dashboard.api import Api
from dashboard.guard import Guard, Session
from dashboard.jobs import Jobs

__all__ = ["Dashboard", "serve"]

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FORGOTTEN_AFTER: Final = 900.0  # seconds without a request; a page that is open asks every minute
_LOOK_EVERY: Final = 5.0  # seconds
_LOOK_SOON: Final = 0.01  # seconds, until it has started
_CONNECTIONS: Final = 64
_GOODBYE: Final = 3  # seconds for requests that are under way


class Dashboard:
    """The application, on a port of 127.0.0.1. `link` opens the page, once."""

    def __init__(self, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_heard = clock()
        self._session = Session()
        self.jobs = Jobs()
        api = Api(self._session, self.jobs)
        routes = [*_pages(), *api.routes]
        self.app: ASGIApp = Guard(Starlette(routes=routes), self._session, port, self._note)
        self.link = f"http://127.0.0.1:{port}/#code={self._session.code}"

    def _note(self) -> None:
        self._last_heard = self._clock()

    @property
    def is_forgotten(self) -> bool:
        """Whether no page has asked for anything for long, and nothing is under way."""
        return self._clock() - self._last_heard > _FORGOTTEN_AFTER and not self.jobs.any_running


def serve(show: Callable[[str], None]) -> None:
    """Serve the page on a free port; *show* is called with the link when it can be opened.

    Returns when no page has asked for anything for a quarter of an hour; raises KeyboardInterrupt at Ctrl-C,
    OSError when there is no free port.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dashboard = Dashboard(listener.getsockname()[1])
        config = uvicorn.Config(
            dashboard.app,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GOODBYE,
        )
        try:
            asyncio.run(_run(uvicorn.Server(config), listener, dashboard, show))
        finally:
            dashboard.jobs.stop_all()


async def _run(
    server: uvicorn.Server, listener: socket.socket, dashboard: Dashboard, show: Callable[[str], None]
) -> None:
    async with _ending(server, dashboard):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        # Whoever sees the link may press Ctrl-C at once: by then the server has to listen to signals.
        while not (server.started or serving.done()):
            await asyncio.sleep(_LOOK_SOON)
        if not serving.done():
            await asyncio.to_thread(show, dashboard.link)
        await serving


@contextlib.asynccontextmanager
async def _ending(server: uvicorn.Server, dashboard: Dashboard) -> AsyncIterator[None]:
    """Within the block, end the server when nobody looks any more."""

    async def watch() -> None:
        while not dashboard.is_forgotten:
            await asyncio.sleep(_LOOK_EVERY)
        server.should_exit = True

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


def _pages() -> list[BaseRoute]:
    """A route for each file of the page; they are few and small, and kept in memory."""
    files = sorted(path for path in _STATIC.iterdir() if path.suffix in _TYPES)
    routes: list[BaseRoute] = [_page(f"/static/{path.name}", path) for path in files]
    return [_page("/", _STATIC / "index.html"), *routes]


def _page(url: str, path: Path) -> Route:
    content, media_type = path.read_bytes(), _TYPES[path.suffix]

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(url, answer, methods=["GET"])
