"""Who is heard: only the page that this process served, in a browser of this user.

* The link that opens the page carries a code in its fragment, which browsers send to nobody. The page
  exchanges it, once, for a token that it keeps for its tab and sends in a header with every request, reads
  included: so no other site can make a browser ask for anything (CSRF), and no cookie is there to be stolen
  or confused with those of other ports.
* Other users of the machine may see the link in the list of processes while the browser starts. The kernel
  knows whose the other end of a connection is: the code is taken from this user only.
* `Host` must be the address that is served, so that a name that is bound to 127.0.0.1 later (DNS
  rebinding) reads nothing; `Origin` and `Sec-Fetch-Site` must be the page's own.
* The page may load and run only what comes from here, without inline scripts and styles, and is not framed.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["TOKEN_HEADER", "Guard", "Session", "owner_of"]

TOKEN_HEADER: Final = "X-HybrisFS-Token"
_SECRET_BYTES: Final = 32
_METHODS: Final = ("GET", "POST")
_OPEN_TO_ALL: Final = "/api/session"  # where the code is exchanged

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Session:
    """The code that opens the page, good for one exchange, and the token that it is exchanged for.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._code: str | None = secrets.token_urlsafe(_SECRET_BYTES)
        self._token = secrets.token_urlsafe(_SECRET_BYTES)

    @property
    def code(self) -> str:
        """Raises ValueError when it was used."""
        if self._code is None:
            raise ValueError("the code was used")
        return self._code

    def exchange(self, code: str) -> str | None:
        """The token for the code; None when it is wrong or was used before."""
        with self._lock:
            if self._code is None or not _same(code, self._code):
                return None
            self._code = None
            return self._token

    def holds(self, token: str) -> bool:
        """Whether this is the token of somebody who had the code."""
        return self._code is None and _same(token, self._token)


class Guard:
    """An ASGI application around another one, which hears only what passes. *heard* is called for each."""

    def __init__(self, app: ASGIApp, session: Session, port: int, heard: Callable[[], None]) -> None:
        self._app = app
        self._session = session
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._heard = heard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refuse(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is not None:
            code, why = refusal
            await PlainTextResponse(f"{why}\n", code)(scope, receive, send_guarded)
            return
        if scope["path"].startswith("/api/"):
            self._heard()
        await self._app(scope, receive, send_guarded)

    def _refuse(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason if the request is not to be answered."""
        if method not in _METHODS:
            return 405, "Only GET and POST are known here."
        if len(headers.getlist("host")) != 1 or headers["host"] not in self._hosts:
            return 421, "This is not the address that is served here."
        origin = headers.get("origin")
        if (origin is None and method == "POST") or (origin is not None and origin not in self._origins):
            return 403, "Another site asks."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "Another site asks."
        if method == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return 415, "Only JSON is understood here."
        needs_token = path.startswith("/api/") and path != _OPEN_TO_ALL
        if needs_token and not self._session.holds(headers.get(TOKEN_HEADER, "")):
            return 401, "Run hybrisfs ui again: this page was opened by another one."
        return None


def owner_of(
    client: tuple[str, int], server: tuple[str, int], table: Path = Path("/proc/net/tcp")
) -> int | None:
    """The user whose process has the other end of an IPv4 connection on this machine; None if not known."""
    wanted = _hexadecimal(*client), _hexadecimal(*server)
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        columns = line.split()
        if len(columns) > 7 and (columns[1], columns[2]) == wanted and columns[7].isdigit():
            return int(columns[7])
    return None


def _hexadecimal(host: str, port: int) -> str:
    """An address as /proc/net/tcp writes it: the bytes of the host as a number of this machine's order."""
    number = int.from_bytes(bytes(map(int, host.split("."))), sys.byteorder)
    return f"{number:08X}:{port:04X}"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
