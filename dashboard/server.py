"""The process that serves the page: from `hybrisfs ui` until Ctrl-C, or until nobody looks any more."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from dashboard.api import Api
from dashboard.guard import Guard, Session
from dashboard.jobs import Jobs
from hybrisfs import http_server
from hybrisfs.environment import SYSTEM, Environment

__all__ = ["Dashboard", "serve"]

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FORGOTTEN_AFTER: Final = 900.0  # seconds without a request; a page that is open asks every minute
_CONNECTIONS: Final = 64
_IDLE: Final = 120  # seconds: longer than between two requests, as one fails whose connection is just closed


class Dashboard:
    """The application, on a port of 127.0.0.1. `link` opens the page, once."""

    def __init__(self, port: int, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._last_heard = self._clock()
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
        dashboard = Dashboard(listener.getsockname()[1], SYSTEM)
        try:
            http_server.serve(
                dashboard.app,
                listener,
                _CONNECTIONS,
                lambda: show(dashboard.link),
                idle=_IDLE,
                is_over=lambda: dashboard.is_forgotten,
            )
        finally:
            dashboard.jobs.stop_all()


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
