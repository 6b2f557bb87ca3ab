"""Requests to an HTTP server that keeps objects below one URL: a connection pool, guarded answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from backends.body import GuardedBody, Timing, receiving
from backends.http_errors import REDIRECTS, HttpFailure, RedirectedError
from backends.pacing import PacedBody

__all__ = ["HttpClient", "RefusedError"]

_CONNECTIONS: Final = 16
_BLOCK: Final = 1 << 16  # bytes of a request that are sent at a time
_MAX_MESSAGE: Final = 200  # characters of a refusal that are kept


class RefusedError(Exception):
    """The server answered with a status that says that it did not do it."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    @property
    def status(self) -> int:
        return self.failure.status


class HttpClient:
    """Talks to a server about paths below a URL. Thread-safe.

    Paths are decoded, without a slash in front; "" is the place itself. All methods raise `RefusedError`,
    `RedirectedError`, `BodyError` and urllib3's `HTTPError`.
    """

    def __init__(
        self, origin: str, folder: str, headers: Mapping[str, str], timing: Timing, **options: Any
    ) -> None:
        """*origin* is the URL of the server, *folder* the path of the place, encoded, with slashes around it.
        *headers* go along with all requests, *options* to urllib3's pool."""
        import urllib3

        self._timing = timing
        self._origin = origin
        self._folder = folder
        self._headers = {"User-Agent": "hybrisfs", "Accept-Encoding": "identity", **headers}
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            blocksize=_BLOCK,
            timeout=urllib3.Timeout(connect=timing.connect, read=timing.stall),
            retries=False,
            **options,
        )

    def call(self, method: str, path: str, data: bytes | None = None, **headers: str) -> int:
        """Send a request whose answer has no interesting body; returns its status, 2xx."""
        with self._answer(method, path, data, headers) as answer:
            for _ in answer.stream():
                pass
            return int(answer.status)

    def get(
        self, path: str, limit: int, query: str = "", **headers: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status (2xx or 304), the body of at most `limit` bytes, and the headers. *query* is what
        stands behind the question mark, encoded."""
        with receiving(limit), self._answer("GET", path, None, headers, query) as answer:
            return int(answer.status), answer.read(), answer.headers

    def size(self, path: str) -> int:
        """Return the length that the server states for a resource, in bytes."""
        with self._answer("HEAD", path, None, {}) as answer:
            length = str(answer.headers.get("Content-Length", ""))
        return int(length) if length.isascii() and length.isdigit() else 0

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    @contextmanager
    def _answer(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], query: str = ""
    ) -> Iterator[GuardedBody]:
        # As a stream: bytes would be sent in one call, for which the time to connect would have to do.
        length = {} if data is None else {"Content-Length": str(len(data))}
        raw = self._pool.request(
            method,
            self._origin + self._folder + quote(path) + (f"?{query}" if query else ""),
            body=None if data is None else PacedBody(data),
            headers={**self._headers, **length, **headers},
            preload_content=False,
            redirect=False,
        )
        done = False
        try:
            if raw.status in REDIRECTS:
                raise RedirectedError
            answer = GuardedBody(raw, self._timing)
            if raw.status >= 400:
                # Who refuses a body may not have read it, and take it for the next request; and some send one
                # with the refusal of a HEAD, which would be taken for the next answer once it has been read
                # on.
                said = b"" if method == "HEAD" else b"".join(answer.stream())
                done = method != "HEAD" and not data
                text = said.decode("utf-8", "replace")
                message = "" if text.lstrip().startswith("<") else text[:_MAX_MESSAGE]
                raise RefusedError(HttpFailure(raw.status, message=message, headers=raw.headers))
            yield answer
            done = True
        finally:
            # What is left unread makes the connection useless.
            if done:
                raw.release_conn()
            else:
                raw.close()
