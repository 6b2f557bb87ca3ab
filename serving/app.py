"""The application: lets a request in, and hands it to WsgiDAV in a thread. Bodies pass in pieces."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send
from wsgidav.request_resolver import RequestResolver
from wsgidav.wsgidav_app import WsgiDAVApp

from hybrisfs.client import HybrisError
from hybrisfs.door import neighbour
from serving.answers import Answer, answer_of, plain
from serving.moves import Environ
from serving.resources import OPENED, Locks, Provider
from serving.users import Guard

__all__ = ["AppLimits", "WebDav"]

log = logging.getLogger(__name__)

_PIECE: Final = 1 << 18  # bytes
_ENDLESS: Final = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<D:error xmlns:D="DAV:"><D:propfind-finite-depth/></D:error>\n'
)


class AppLimits(Struct, frozen=True):
    """How much, and for how long."""

    workers: int = 32
    """Requests at a time of users who have logged in."""
    document: int = 1 << 20
    """Bytes of a body that is not a file."""
    wait_seconds: float = 120.0
    """For which a client may neither send nor take anything in the midst of a request."""


_LIMITS: Final = AppLimits()


class WebDav:
    """An ASGI application. Each request needs a user and a password. *entered* hears who has shown both."""

    def __init__(
        self,
        provider: Provider,
        guard: Guard,
        entered: Callable[[tuple[str, int]], None],
        limits: AppLimits = _LIMITS,
    ) -> None:
        logging.getLogger("wsgidav").setLevel(logging.CRITICAL + 1)  # what goes wrong is reported here
        self._application = WsgiDAVApp(
            {
                "provider_mapping": {"/": provider},
                "middleware_stack": [RequestResolver],
                "lock_storage": Locks(),
                "property_manager": None,
                "mutable_live_props": ["{DAV:}getlastmodified"],
                "hotfixes": {"emulate_win32_lastmod": True, "re_encode_path_info": False},
                "honor_mtime_header": True,
                "suppress_version_info": True,
                "block_size": _PIECE,
                "verbose": 0,
                "logging": {"enable": False},
            }
        )
        self._guard = guard
        self._entered = entered
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.workers, "request")
        self._logins = ThreadPoolExecutor(2, "login")

    def close(self) -> None:
        """End the threads."""
        self._logins.shutdown()
        self._pool.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        what = f"{scope['method']} {ascii(scope['path'])[:200]}"
        try:
            answer = await self._answer(scope, receive, send, what)
        except (HybrisError, OSError) as error:
            answer = answer_of(error, what)
        if answer is not None:
            await _send(answer, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, what: str) -> Answer | None:
        """The answer, unless it has been sent."""
        user = await self._user(scope)
        if isinstance(user, Answer):
            return user
        self._entered(scope["client"])
        try:
            environ = _environ(scope, user)
        except ValueError:
            return plain(400, "There can be no such path.")
        if scope["method"] == "PROPFIND" and environ.get("HTTP_DEPTH", "infinity").lower() == "infinity":
            return Answer(403, [("content-type", "application/xml; charset=utf-8")], _ENDLESS)
        conversation = _Conversation(receive, send, self._limits.wait_seconds)
        if scope["method"] != "PUT":
            document = await conversation.whole_body(self._limits.document)
            if document is None:
                return plain(413)
            environ |= {"CONTENT_LENGTH": str(len(document)), "wsgidav.all_input_read": 1}
        environ["wsgi.input"] = conversation
        async with conversation.watched(scope["method"] != "PUT"):
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, self._run, environ, conversation, what
            )

    def _run(self, environ: Environ, conversation: _Conversation, what: str) -> Answer | None:
        """Have WsgiDAV answer, in this thread."""
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            started.append((status, headers))

        parts: Iterable[bytes] = self._application(environ, start_response)
        sent = False
        try:
            for part in parts:
                if not sent:
                    status, headers = started[-1]
                    if _is_page(status, headers):
                        return _without_page(status, headers)
                    conversation.start(status, headers)
                    sent = True
                if part:
                    conversation.send_body(part)
            conversation.end()
        except Exception as error:
            if not sent and not conversation.is_over:
                return answer_of(error, what)
            if not conversation.is_over:
                answer_of(error, what)
                raise ConnectionAbortedError from error  # the server cuts an answer off that is not whole
        finally:
            with contextlib.suppress(RuntimeError, AttributeError):
                parts.close()  # type: ignore[attr-defined]
            for file in environ[OPENED]:
                file.close()
        return None

    async def _user(self, scope: Scope) -> str | Answer:
        """The user who asks, or what somebody else is answered."""
        said = _credentials(scope)
        if said is None:
            return _who_are_you()
        name, password = said
        if self._guard.is_known(name, password):
            return name
        address = neighbour(scope["client"][0])
        if not self._guard.has_tries(address):
            return plain(429, "Too many wrong passwords. Try again later.", (("retry-after", "600"),))
        admits = asyncio.get_running_loop().run_in_executor
        if await admits(self._logins, self._guard.admits, address, name, password):
            return name
        log.warning("a wrong password from %s", scope["client"][0])
        return _who_are_you()


class _Conversation:
    """A request's body and its answer, for a thread."""

    def __init__(self, receive: Receive, send: Send, wait_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send
        self._wait = wait_seconds
        self._buffer = bytearray()
        self._more = True
        self._gone = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the client has gone."""
        return self._gone.is_set()

    async def whole_body(self, most: int) -> bytes | None:
        """A body that is not a file; None when it is too large."""
        while self._more:
            self._take(await asyncio.wait_for(self._receive(), self._wait))
            if len(self._buffer) > most:
                return None
        return bytes(self._buffer)

    @contextlib.asynccontextmanager
    async def watched(self, is_read: bool) -> AsyncIterator[None]:
        """Within the context, learn when the client goes, unless the thread does so as it reads the body."""
        watcher = asyncio.create_task(self._watch()) if is_read else None
        try:
            yield
        finally:
            if watcher is not None:
                watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()

    # -- in the thread -------------------------------------------------------------------------------------

    def read(self, size: int) -> bytes:
        """The next bytes of the body; none at its end. Raises OSError when the client goes, or sends none."""
        while self._more and len(self._buffer) < size:
            self._take(self._in_loop(self._receive()))
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def start(self, status: str, headers: list[tuple[str, str]]) -> None:
        """Send the head of the answer."""
        self._say(
            {
                "type": "http.response.start",
                "status": int(status.split(" ", 1)[0]),
                "headers": [
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in headers
                    if name.lower() != "date"
                ],
            }
        )

    def send_body(self, part: bytes) -> None:
        """Send bytes of the answer."""
        self._say({"type": "http.response.body", "body": part, "more_body": True})

    def end(self) -> None:
        """The answer is whole."""
        self._say({"type": "http.response.body", "body": b"", "more_body": False})

    def _say(self, message: Message) -> None:
        if self._gone.is_set():
            raise ConnectionAbortedError
        self._in_loop(self._send(message))

    def _take(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._gone.set()
            raise ConnectionAbortedError
        self._buffer += message.get("body", b"")
        self._more = message.get("more_body", False)

    def _in_loop(self, waiting: Any) -> Any:
        try:
            future = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        except RuntimeError:  # the loop has ended, and the server with it
            waiting.close()
            self._gone.set()
            raise ConnectionAbortedError from None
        try:
            return future.result(self._wait)
        except (CancelledError, FutureTimeoutError):
            future.cancel()
            self._gone.set()
            raise ConnectionAbortedError from None


def _credentials(scope: Scope) -> tuple[str, str] | None:
    """The user and the password that a request names."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, said = value.partition(b" ")
            if kind.decode("latin-1").lower() != "basic":
                return None
            try:
                user, colon, password = base64.b64decode(said.strip(), validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            return (user, password) if colon else None
    return None


def _who_are_you() -> Answer:
    return plain(
        401,
        "A user and a password are needed.",
        (("www-authenticate", 'Basic realm="HybrisFS", charset="UTF-8"'),),
    )


def _environ(scope: Scope, user: str) -> Environ:
    """The request in the words of WSGI, with a path that is text. Raises ValueError."""
    path = unquote_to_bytes(scope["raw_path"]).decode()
    if "\0" in path or not {".", ".."}.isdisjoint(path.split("/")):
        raise ValueError("a path that no name in a folder can be")
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": scope["server"][0],
        "SERVER_PORT": str(scope["server"][1]),
        "REMOTE_ADDR": scope["client"][0],
        "wsgi.url_scheme": scope["scheme"],
        "wsgidav.auth.user_name": user,
        OPENED: [],
    }
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").upper().replace("-", "_")
        key = name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
        said = value.decode("latin-1")
        environ[key] = f"{environ[key]},{said}" if key in environ else said
    environ.setdefault("HTTP_HOST", f"{scope['server'][0]}:{scope['server'][1]}")
    return environ


def _is_page(status: str, headers: list[tuple[str, str]]) -> bool:
    """Whether an answer is a page of WsgiDAV's, for people: it advertises itself, and tells its version."""
    return not status.startswith("200") and any(
        name.lower() == "content-type" and value.startswith("text/html") for name, value in headers
    )


def _without_page(status: str, headers: list[tuple[str, str]]) -> Answer:
    kept = [one for one in headers if one[0].lower() in ("etag", "lock-token", "allow")]
    return plain(int(status.split(" ", 1)[0]), headers=tuple(kept))


async def _send(answer: Answer, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
