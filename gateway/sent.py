"""The answer that is an object: its values are fetched one after the other while it is sent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.errors import S3Error
from gateway.objects import Reading, Stretch
from hybrisfs.client import HybrisError

__all__ = ["Sent"]

log = logging.getLogger(__name__)

_BLOCK: Final = 256 << 10  # bytes

Open: TypeAlias = Callable[[Stretch], Awaitable[IO[bytes]]]
"""Opens the file with a stretch, in a thread."""


class Sent:
    """An answer that is an object, or a part of it. Its first stretch has been opened."""

    def __init__(
        self,
        reading: Reading,
        stretches: Sequence[Stretch],
        first: IO[bytes] | None,
        head: Response,
        opened: Open,
    ) -> None:
        self._reading = reading
        self._stretches = stretches
        self._file = first
        self._head = head
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._reading:
            try:
                await self._send(Request(scope, receive), send)
            except (S3Error, HybrisError, OSError) as error:
                # The client sees that the connection ends too early.
                log.error("%s was not sent to its end: %s", self._reading.stored.key, error)

    async def _send(self, http: Request, send: Send) -> None:
        status, headers = self._head.status_code, self._head.raw_headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for stretch in self._stretches:
            if self._file is None:
                if await http.is_disconnected():
                    return
                self._file = await self._opened(stretch)
            left = stretch.end - stretch.start
            while left:
                data = self._file.read(min(left, _BLOCK))
                if not data:
                    raise S3Error("InternalError", "a value is shorter than it was")
                await send({"type": "http.response.body", "body": data, "more_body": True})
                left -= len(data)
            self._file = None
        await send({"type": "http.response.body", "body": b"", "more_body": False})
