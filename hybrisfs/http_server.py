"""Serves HTTP/1.1 on a socket, for the dashboard, S3, WebDAV and relays: in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal

import uvicorn

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["serve"]

_GOODBYE: Final = 3  # seconds for requests that are under way
_LOOK_EVERY: Final = 5.0  # seconds
_LOOK_SOON: Final = 0.01  # seconds, until it has started


def serve(
    app: ASGIApp,
    listener: socket.socket,
    connections: int,
    started: Callable[[], object],
    *,
    idle: int = 5,
    is_over: Callable[[], bool] | None = None,
    tls: tuple[Path, Path] | None = None,
    protocol: type[asyncio.Protocol] | Literal["h11"] = "h11",
) -> None:
    """Serve an application to at most so many connections at once; those that are idle are kept for *idle*
    seconds. With *tls*, the files of a certificate and its key, by HTTPS. *protocol* makes what speaks on a
    connection, if it is not HTTP alone.

    *started* is called, in a thread of its own, when clients can connect and Ctrl-C ends the server. Returns
    soon after *is_over* says so; raises KeyboardInterrupt at Ctrl-C.
    """
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        timeout_keep_alive=idle,
        timeout_graceful_shutdown=_GOODBYE,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    asyncio.run(_run(_Server(config), listener, started, is_over))


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # From here on requests are cut off. uvicorn would show a traceback for each.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


async def _run(
    server: uvicorn.Server,
    listener: socket.socket,
    started: Callable[[], object],
    is_over: Callable[[], bool] | None,
) -> None:
    async with contextlib.nullcontext() if is_over is None else _ending(server, is_over):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        # Ctrl-C may come as soon as the address is shown: the server has to hear signals before that.
        while not (server.started or serving.done()):
            await asyncio.sleep(_LOOK_SOON)
        if not serving.done():
            await asyncio.to_thread(started)
        await serving


@contextlib.asynccontextmanager
async def _ending(server: uvicorn.Server, is_over: Callable[[], bool]) -> AsyncIterator[None]:
    """Within the block, end the server when it is over."""

    async def watch() -> None:
        while not is_over():
            await asyncio.sleep(_LOOK_EVERY)
        server.should_exit = True

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
