"""What a relay is asked for objects, by HTTPS, and what it answers. Clients are `backends.relay`.

Each request has the token of the space: `Authorization: Bearer TOKEN`. NAME is the name of an object
(`backends.store`), and nothing else stands in a path.

    request                                  answers
    PUT    /SPACE/                           204: the space can hold objects from now on
    PUT    /SPACE/o/NAME                     204; the body is the object, Content-Length is needed
                                             with If-None-Match: * 412 if there is one of that name
                                             422 when it is not what its name says (`relay.checks`)
    GET    /SPACE/o/NAME                     200, with a tag in ETag
                                             with Range: bytes=FIRST-LAST 206, or 416 unless all is there
                                             with If-None-Match: "TAG" 304 when it is still that one
    HEAD   /SPACE/o/NAME                     200, without the object
    DELETE /SPACE/o/NAME                     204, also when there is none
    POST   /SPACE/delete                     204; the body is a JSON list of at most MAX_PAGE names
    GET    /SPACE/?prefix=P&after=A&limit=N  200: {"objects": [[NAME, SIZE], ...], "more": true or false}

    400  the request makes no sense
    401  there is no such space, or its token is another one
    404  there is no such object, with the header Hybrisfs-Missing: object; without it the space has no folder
    408  the body does not come to an end
    411  it is not said how long the body is
    413  it is longer than an object may be
    503  the relay's disk is in trouble
    507  the space, or the disk, is full
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backends.errors import (
    CorruptError,
    FullError,
    MissingError,
    MissingRootError,
    OversizeError,
    StoreError,
)
from backends.store import MAX_PAGE, check_name
from hybrisfs.client import HybrisError
from relay.checks import problem_of
from relay.rooms import MAX_OBJECT, Room, Rooms
from relay.spaces import Space, Spaces

__all__ = ["ObjectServer"]

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_THREADS: Final = 16
_MAX_LIST: Final = 1 << 20  # bytes of a list of names
_PATIENCE: Final = 60.0  # seconds in which the next piece of a body has to come
_PATH: Final = re.compile(r"/([a-z0-9-]{1,32})/(?:o/([a-z0-9._/-]{1,512})|(delete))?")
_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")
_Names = Annotated[list[str], Meta(max_length=MAX_PAGE)]


class _RefusedError(Exception):
    """The request is answered with this status."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.response = Response(reason, status, headers, "text/plain")


class ObjectServer:
    """An ASGI application."""

    def __init__(
        self,
        spaces: Spaces,
        rooms: Rooms,
        entered: Callable[[tuple[str, int]], None],
        *,
        memory: int = 256 << 20,
    ) -> None:
        """*entered* is called with the address and port of a client that has the token of a space. Objects
        that are on their way take at most *memory* bytes, those of one space half of it."""
        self._spaces = spaces
        self._rooms = rooms
        self._entered = entered
        self._memory = _Memory(memory)
        self._pool = ThreadPoolExecutor(_THREADS, "relay")

    def close(self) -> None:
        """Wait for what is being written."""
        self._pool.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            space, name, deletes = self._admitted(request)
            async with self._memory.of(space.name, _bytes_of(request)) as memory:
                response = await self._answer(request, space, name, deletes, memory)
                await response(scope, receive, send)
        except _RefusedError as refusal:
            await refusal.response(scope, receive, send)
        except ClientDisconnect:
            return

    def _admitted(self, request: Request) -> tuple[Space, str, bool]:
        """The space, the name of an object or "", and whether objects are to be deleted."""
        found = _PATH.fullmatch(request.scope["path"])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            space = self._spaces.opened(found[1], token) if found and scheme.lower() == "bearer" else None
        except (HybrisError, OSError) as error:
            log.error("the spaces cannot be read: %s", error)
            raise _RefusedError(503, "the relay is in trouble") from None
        if found is None or space is None:
            raise _RefusedError(401, "no such space, or another token")
        if request.client is not None:
            self._entered((request.client.host, request.client.port))
        return space, found[2] or "", found[3] is not None

    async def _answer(
        self, request: Request, space: Space, name: str, deletes: bool, memory: _Taken
    ) -> Response:
        room = self._rooms.of(space)
        try:
            if name:
                check_name(name)
                return await self._answer_object(request, room, name, space.quota, memory)
            if deletes and request.method == "POST":
                return await self._delete(room, await _body(request, _MAX_LIST))
            if not deletes and request.method == "PUT":
                await self._do(room.store.initialise)
                return Response(status_code=204)
            if not deletes and request.method == "GET":
                return await self._list(request, room)
        except (ValueError, msgspec.DecodeError):
            raise _RefusedError(400, "the request makes no sense") from None
        except StoreError as error:
            raise _refusal(error) from error
        raise _RefusedError(405, "there is no such request")

    async def _answer_object(
        self, request: Request, room: Room, name: str, quota: int, memory: _Taken
    ) -> Response:
        match request.method:
            case "PUT":
                return await self._put(request, room, name, quota)
            case "GET" if "range" in request.headers:
                return await self._part(request, room, name, memory)
            case "GET":
                await memory.more(await self._do(room.size_of, name))
                known = request.headers.get("if-none-match", "").strip('"') or None
                found = await self._do(partial(room.store.get_if_changed, limit=MAX_OBJECT), name, known)
                return Response(status_code=304) if found is None else _object(*found)
            case "HEAD":
                length = await self._do(room.size_of, name)
                return Response(headers={"Content-Length": str(length)})
            case "DELETE":
                await self._do(room.delete, name)
                return Response(status_code=204)
        raise _RefusedError(405, "there is no such request")

    async def _put(self, request: Request, room: Room, name: str, quota: int) -> Response:
        condition = request.headers.get("if-none-match")
        if condition not in (None, "*"):
            raise _RefusedError(400, "the condition makes no sense")
        data = await _body(request, MAX_OBJECT)
        problem = await self._do(problem_of, name, data)
        if problem:
            raise _RefusedError(422, problem)
        stored = await self._do(partial(room.put, only_new=condition == "*"), name, data, quota)
        return Response(status_code=204 if stored else 412)

    async def _part(self, request: Request, room: Room, name: str, memory: _Taken) -> Response:
        asked = _RANGE.fullmatch(request.headers["range"])
        length = int(asked[2]) - int(asked[1]) + 1 if asked else 0
        if asked is None or not 0 < length <= MAX_OBJECT:
            raise _RefusedError(400, "the range makes no sense")
        await memory.more(length)
        try:
            return Response(await self._do(room.store.get_range, name, int(asked[1]), length), 206)
        except OversizeError:
            raise
        except CorruptError:
            raise _RefusedError(416, "the object ends before") from None

    async def _list(self, request: Request, room: Room) -> Response:
        asked = request.query_params
        limit = int(asked.get("limit", MAX_PAGE))
        page = await self._do(room.list, asked.get("prefix", ""), asked.get("after", ""), limit)
        objects = [[one.name, one.size] for one in page.entries]
        answer = msgspec.json.encode({"objects": objects, "more": page.more})
        return Response(answer, media_type="application/json")

    async def _delete(self, room: Room, body: bytes) -> Response:
        names = [check_name(name) for name in msgspec.json.decode(body, type=_Names)]
        for name in names:
            await self._do(room.delete, name)
        return Response(status_code=204)

    async def _do(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments))


def _object(data: bytes, tag: str) -> Response:
    return Response(data, headers={"ETag": f'"{tag}"'}, media_type="application/octet-stream")


def _refusal(error: StoreError) -> _RefusedError:
    match error:
        case MissingError():
            return _RefusedError(404, "no such object", **{"Hybrisfs-Missing": "object"})
        case MissingRootError():
            return _RefusedError(404, "the space has no objects")
        case FullError():
            return _RefusedError(507, error.reason)
    log.error("%s", error)
    return _RefusedError(503, "the relay's disk is in trouble")


def _bytes_of(request: Request) -> int:
    """The bytes of the body that is announced. Raises `_RefusedError` for too many, or no number."""
    length = request.headers.get("content-length")
    if length is None:
        if request.method in ("PUT", "POST") and "transfer-encoding" in request.headers:
            raise _RefusedError(411, "say how long it is")
        return 0
    if not length.isascii() or not length.isdigit() or len(length) > 19 or int(length) > MAX_OBJECT:
        raise _RefusedError(413, f"an object has at most {MAX_OBJECT} bytes")
    return int(length)


async def _body(request: Request, most: int) -> bytes:
    """The body, at most so many bytes. Raises `_RefusedError` when it is longer, or does not come."""
    parts: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(_PATIENCE) as patience:
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _RefusedError(413, f"at most {most} bytes are taken")
                parts.append(part)
                patience.reschedule(now() + _PATIENCE)
    except TimeoutError:
        raise _RefusedError(408, "nothing more came") from None
    return b"".join(parts)


class _Memory:
    """Bytes that may be held at a time; who wants more waits. One space holds half of them at most: whoever
    has its token may send and take as slowly as they like, and others go on. Used by one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = Counter[str]()
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def of(self, space: str, count: int) -> AsyncIterator[_Taken]:
        """So many bytes, and what is taken of `_Taken.more`, until the context ends."""
        taken = _Taken(self, space)
        try:
            await taken.more(count)
            yield taken
        finally:
            async with self._freed:
                self._used[space] -= taken.count
                self._freed.notify_all()

    async def take(self, space: str, count: int) -> None:
        """Wait until there are so many bytes more."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._has(space, count))
            self._used[space] += count

    def _has(self, space: str, count: int) -> bool:
        used, of_all = self._used[space], self._used.total()
        return (not used or used + count <= self._most // 2) and (not of_all or of_all + count <= self._most)


class _Taken:
    """What one request holds."""

    def __init__(self, memory: _Memory, space: str) -> None:
        self._memory = memory
        self._space = space
        self.count = 0

    async def more(self, count: int) -> None:
        """Hold so many bytes more, once there are."""
        await self._memory.take(self._space, count)
        self.count += count
