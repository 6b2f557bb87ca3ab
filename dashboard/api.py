"""What the page asks: JSON over HTTP, each request answered by one or two commands of the daemon.

GET  /api/volumes[?look=1]           status of all volumes, each with its verdict; look: ask the clouds
GET  /api/volumes/NAME/WHAT          WHAT: traffic, history?span=hour|day, cost, clouds, recovery,
                                     deletions, held?id=ID, events, conflicts?first=N, containers, settings,
                                     pending, shared, moments, pins
POST /api/volumes/NAME/folder        {"path", "after"}: a page of what is in a folder;
                                     {"path", "at", "after"}: of what was in it then
POST /api/volumes/NAME/preview       {"path"}: the beginning of a file, if it is text
POST /api/volumes/NAME/versions      {"path"}: what a file was before
POST /api/volumes/NAME/removed       {"path"}: what was removed from a folder
POST /api/volumes/NAME/restore       {"path", "since"}: the version that was begun then;
                                     {"path", "at"}: as it was then; {"path"}: what was removed;
                                     {"path": "", "at", "confirm"}: all of the volume, by its name
POST /api/volumes/NAME/restore-preview   {"path", "at"}: what that would change
POST /api/volumes/NAME/merge         {"path"}: what merging the versions in conflict would change;
                                     {"path", "mark"}: merge them
POST /api/volumes/NAME/keys          {"container", "prefix", "after"}: a page of the keys of a container
POST /api/volumes/NAME/do/ACTION     one of `ACTIONS`
GET  /api/kinds                      the kinds of clouds: how the URL of one is written, and what it is
POST /api/do/ACTION                  one of `ON_MACHINE`
GET  /api/service                    whether systemd could start the daemon at every login, and does not yet
POST /api/service                    let it do so
GET  /api/jobs, POST /api/jobs       long work: {"kind", "volume", ...} begins it
POST /api/jobs/ID/stop
POST /api/session                    {"code"}: the token

An error is {"error": what and why, "advice": what to do}. Names that are no UTF-8 travel as lone surrogates,
as on the control socket; that is why paths travel in bodies. A GET answers 304 when nothing has changed.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dashboard.actions import AnyRequest, ask, perform
from dashboard.guard import Session, owner_of
from dashboard.jobs import Jobs
from hybrisfs.api.clouds import CloudListRequest
from hybrisfs.api.cost import CostRequest
from hybrisfs.api.decisions import (
    ConflictsCompareRequest,
    ConflictsListRequest,
    ConflictsSettleRequest,
    DeletionsListRequest,
    DeletionsShowRequest,
)
from hybrisfs.api.files import FileReadRequest, FolderListRequest, PinListRequest
from hybrisfs.api.key_value import FoundKey, KvContainersRequest, KvPageRequest, Place
from hybrisfs.api.maintenance import Kit, RecoveryShowRequest
from hybrisfs.api.objects import attributes_of
from hybrisfs.api.parcels import ParcelList, ShareListRequest
from hybrisfs.api.request import message_of
from hybrisfs.api.status import AnyVolume, EventsRequest, PendingRequest, StatusRequest, UnusableVolume
from hybrisfs.api.traffic import HistoryRequest, TrafficRequest
from hybrisfs.api.versions import (
    VersionsFolderRequest,
    VersionsListRequest,
    VersionsMomentsRequest,
    VersionsPreviewRequest,
    VersionsRemovedRequest,
    VersionsRestoreRequest,
)
from hybrisfs.api.volumes import VolumeSetRequest
from hybrisfs.client import (
    DaemonError,
    HybrisError,
    Message,
    UnknownVolumeError,
    UsageError,
    cloud_kinds,
    install_service,
    judge,
    scratch_folder,
    service_status,
)

__all__ = ["Api", "merge"]

_MAX_BODY: Final = 64 << 10  # bytes
_PAGE: Final = 100  # names, keys or conflicts in one answer
_EVENTS: Final = 200  # the latest
_PENDING: Final = 20  # files that have waited longest
_HELD: Final = 20  # files of what waits for a person
_MOST_VERSIONS: Final = 200  # versions, or names that were removed, in one answer; the latest
_PREVIEW: Final = 64 << 10  # bytes of a file that are shown
_PLAIN: Final[Mapping[str, Callable[[str], AnyRequest]]] = {
    "clouds": CloudListRequest,
    "traffic": TrafficRequest,
    "cost": CostRequest,
    "deletions": DeletionsListRequest,
    "settings": VolumeSetRequest,
    "moments": VersionsMomentsRequest,
    "pending": lambda name: PendingRequest(name, limit=_PENDING),
}
_STATUS: Final = ((UsageError, 400), (UnknownVolumeError, 404), (DaemonError, 503))


class Api:
    """The routes of the page's requests. Answers are bounded."""

    def __init__(self, session: Session, jobs: Jobs) -> None:
        self._session = session
        self._jobs = jobs
        self.routes: list[BaseRoute] = [
            Route("/api/session", self._begin, methods=["POST"]),
            Route("/api/volumes", _reading(self._volumes)),
            Route("/api/volumes/{name}/folder", _writing(self._folder), methods=["POST"]),
            Route("/api/volumes/{name}/preview", _writing(self._preview), methods=["POST"]),
            Route("/api/volumes/{name}/versions", _writing(self._versions), methods=["POST"]),
            Route("/api/volumes/{name}/removed", _writing(self._removed), methods=["POST"]),
            Route("/api/volumes/{name}/restore", _writing(self._restore), methods=["POST"]),
            Route("/api/volumes/{name}/restore-preview", _writing(self._would_restore), methods=["POST"]),
            Route("/api/volumes/{name}/merge", _writing(self._merge), methods=["POST"]),
            Route("/api/volumes/{name}/keys", _writing(self._keys), methods=["POST"]),
            Route("/api/volumes/{name}/do/{action}", _writing(self._do), methods=["POST"]),
            Route("/api/volumes/{name}/{what}", _reading(self._facts)),
            Route("/api/service", _reading(_service), methods=["GET"]),
            Route("/api/service", _writing(_install), methods=["POST"]),
            Route("/api/kinds", _reading(_kinds)),
            Route("/api/do/{action}", _writing(self._do_here), methods=["POST"]),
            Route("/api/jobs", _reading(lambda _: {"jobs": self._jobs.all()}), methods=["GET"]),
            Route("/api/jobs", _writing(self._start), methods=["POST"]),
            Route("/api/jobs/{id:int}/stop", _writing(self._stop), methods=["POST"]),
        ]

    async def _begin(self, request: Request) -> Response:
        client, server = request.scope.get("client"), request.scope.get("server")
        owner = owner_of(tuple(client), tuple(server)) if client and server else None
        if owner is not None and owner != os.getuid():
            return _json({"error": "Another user of this machine asks.", "advice": ""}, 403)
        try:
            code = (await _body(request)).get("code")
        except HybrisError as error:
            return _failed(error)
        token = self._session.exchange(code) if isinstance(code, str) else None
        if token is None:
            return _json({"error": "This link was used already.", "advice": "Run hybrisfs ui again."}, 403)
        return _json({"token": token})

    # -- reading ---------------------------------------------------------------------------------

    def _volumes(self, request: Request) -> Message:
        look = request.query_params.get("look") == "1"
        facts = ask(StatusRequest(without_look=not look))
        return {
            "daemon": {"version": facts.daemon.version},
            "volumes": list(map(_judged, facts.volumes)),
        }

    def _facts(self, request: Request) -> Message:
        name, what = request.path_params["name"], request.path_params["what"]
        if what in _PLAIN:
            return message_of(ask(_PLAIN[what](name)))
        if what == "history":
            span = request.query_params.get("span", "hour")
            return message_of(ask(HistoryRequest(name=name, span=span)))
        if what == "events":
            return {"events": message_of(ask(EventsRequest(name, limit=_EVENTS)).events)}
        if what == "conflicts":
            first = request.query_params.get("first", "0")
            if not first.isdecimal() or len(first) > 9:
                raise UsageError("first must be a number")
            return message_of(ask(ConflictsListRequest(name, int(first), _PAGE)))
        if what == "held":
            held = ask(DeletionsShowRequest(name=name, id=request.query_params.get("id", "")))
            return {"files": message_of(held.files[:_HELD]), "count": held.count}
        if what == "containers":
            return {"places": list(map(_place, ask(KvContainersRequest(name)).places))}
        if what == "pins":
            pins = ask(PinListRequest()).pins
            return {"pins": [message_of(one) for one in pins if one.volume == name]}
        if what == "shared":
            return _shared(ask(ShareListRequest(name)))
        if what == "recovery":
            return {"kits": [_kit(one) for one in ask(RecoveryShowRequest(name)).kits]}
        raise UsageError(f"nothing is known of {what[:80]!r}")

    def _folder(self, request: Request, body: Message) -> Message:
        wanted = {"path": body.get("path", ""), "after": body.get("after", ""), "limit": _PAGE}
        wanted["name"] = request.path_params["name"]
        if "at" not in body:
            return message_of(ask(FolderListRequest.read(wanted)))
        return message_of(
            ask(VersionsFolderRequest.read({**wanted, "path": _inside(body), "at": body["at"]}))
        )

    def _preview(self, request: Request, body: Message) -> Message:
        wanted = {"path": body.get("path", ""), "offset": 0, "length": _PREVIEW}
        part = ask(FileReadRequest.read({"name": request.path_params["name"], **wanted}))
        return {"size": part.size, "text": _text(part.base64), "whole": part.size <= len(part.base64)}

    def _versions(self, request: Request, body: Message) -> Message:
        found = ask(VersionsListRequest(name=request.path_params["name"], path=_inside(body)))
        return {"versions": message_of(found.versions[:_MOST_VERSIONS])}

    def _removed(self, request: Request, body: Message) -> Message:
        found = ask(VersionsRemovedRequest(name=request.path_params["name"], path=_inside(body)))
        return {"removed": message_of(found.removed[:_MOST_VERSIONS])}

    def _restore(self, request: Request, body: Message) -> Message:
        name, path = request.path_params["name"], _inside(body)
        if not {*path.split("/")} - {"", "."} and body.get("confirm") != name:
            raise UsageError(f"the volume is called {name}", "nothing was changed")
        if "since" not in body:
            asked = VersionsRestoreRequest.read({"name": name, "path": path, "at": body.get("at")})
            return message_of(ask(asked))
        # Numbers change when there is a new version; when a version was begun does not.
        found = ask(VersionsListRequest(name=name, path=path)).versions
        number = next((one.version for one in found if one.since == body["since"]), None)
        if number is None:
            raise UsageError("this version is not kept any more")
        return message_of(ask(VersionsRestoreRequest(name=name, path=path, version=number)))

    def _would_restore(self, request: Request, body: Message) -> Message:
        wanted = {"name": request.path_params["name"], "path": _inside(body), "at": body.get("at")}
        preview = message_of(ask(VersionsPreviewRequest.read(wanted)))
        preview["changes"] = preview["changes"][:_MOST_VERSIONS]
        return preview

    def _merge(self, request: Request, body: Message) -> Message:
        mark = body.get("mark")
        if mark is not None and not isinstance(mark, str):
            raise UsageError("mark must be a text")
        return merge(request.path_params["name"], _inside(body), mark)

    def _keys(self, request: Request, body: Message) -> Message:
        asked: Message = {name: body[name] for name in ("container", "prefix", "after") if name in body}
        # One more than is shown tells whether others follow.
        asked.update(name=request.path_params["name"], limit=_PAGE + 1)
        found = ask(KvPageRequest.read(asked)).keys
        return {"keys": list(map(_key, found[:_PAGE])), "more": len(found) > _PAGE}

    # -- doing -----------------------------------------------------------------------------------

    def _do(self, request: Request, body: Message) -> Message:
        return perform(request.path_params["action"], request.path_params["name"], body)

    def _do_here(self, request: Request, body: Message) -> Message:
        return perform(request.path_params["action"], None, body)

    def _start(self, _: Request, body: Message) -> Message:
        kind, volume = body.pop("kind", None), body.pop("volume", None)
        if not isinstance(kind, str) or not isinstance(volume, str):
            raise UsageError("kind and volume must be texts")
        return {"id": self._jobs.start(kind, volume, body)}

    def _stop(self, request: Request, _: Message) -> Message:
        self._jobs.stop(request.path_params["id"])
        return {}


def _reading(answer: Callable[[Request], Message]) -> Callable[[Request], Response]:
    """An endpoint that answers 304 when the page has what it would answer. Runs in a thread."""

    def endpoint(request: Request) -> Response:
        try:
            response = _json(answer(request))
        except HybrisError as error:
            return _failed(error)
        tag = f'"{hashlib.blake2b(bytes(response.body), digest_size=16).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        response.headers["ETag"] = tag
        return response

    return endpoint


def _writing(answer: Callable[[Request, Message], Message]) -> Any:
    """An endpoint that takes a JSON object."""

    async def endpoint(request: Request) -> Response:
        try:
            return _json(await run_in_threadpool(answer, request, await _body(request)))
        except HybrisError as error:
            return _failed(error)

    return endpoint


async def _body(request: Request) -> Message:
    """The object that was sent. Raises UsageError."""
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > _MAX_BODY:
                raise UsageError("the request is too long")
        body = json.loads(data or b"{}")
    except (ClientDisconnect, ValueError, RecursionError) as error:
        raise UsageError("the request is no JSON") from error
    if not isinstance(body, dict):
        raise UsageError("the request is no JSON object")
    return body


def _json(facts: Mapping[str, Any], status: int = 200) -> Response:
    # ASCII: lone surrogates cannot be encoded otherwise.
    return Response(json.dumps(facts).encode("ascii"), status, media_type="application/json")


def _failed(error: HybrisError) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 409)
    sentence, _, advice = str(error).partition("\n")
    return _json({"error": sentence, "advice": advice}, status)


def _judged(volume: AnyVolume) -> Message:
    """What status says of a volume, with the verdict, and without what only programs compare."""
    for device in volume.devices:
        device.vector = UNSET
    if isinstance(volume, UnusableVolume):
        return {**message_of(volume), "verdict": {"level": "unusable"}}
    verdict = judge(volume)
    return {
        **message_of(volume),
        "verdict": {
            "level": verdict.level if volume.missing_mount is None else "unmounted",
            "unreadable": [one.name for one in verdict.unreadable],
            "unwritable": [one.name for one in verdict.unwritable],
            "needed": verdict.needed,
            "working": verdict.working,
            "pending": verdict.pending,
        },
    }


def _service(_: Request) -> Message:
    facts = service_status()
    return {"offered": bool(facts["manager"]) and not facts["enabled"]}


def _install(_: Request, __: Message) -> Message:
    install_service()
    return {}


def _kinds(_: Request) -> Message:
    return {"kinds": [{"form": form, "what": what} for form, what in cloud_kinds()]}


def _inside(body: Message) -> str:
    """The path that was sent. Raises UsageError."""
    path = body.get("path")
    if not isinstance(path, str) or path.startswith("/"):
        raise UsageError("path must be one inside the volume")
    return path


def _kit(kit: Kit) -> Message:
    """What the page shows of a recovery kit."""
    return {
        "kit": kit.kit[:8],
        "created": kit.created,
        "used": kit.used,
        "clouds": [{"name": one.name, "state": one.state} for one in kit.clouds],
        "complete": kit.complete,
    }


def _shared(found: ParcelList) -> Message:
    """What the page shows of the files that are shared: not the links, which are secrets."""
    parcels: list[Message] = [message_of(one) for one in found.parcels]
    for one in parcels:
        del one["link"]
    return {"parcels": parcels, "silent": found.silent}


def _place(place: Place) -> Message:
    """What the page shows of a place of metadata."""
    return {**message_of(place), "where": place.shown}


def _key(found: FoundKey) -> Message:
    """What the page shows of a key."""
    said = attributes_of(found.attributes)
    return {
        "key": found.key,
        # The value of an object in parts is only the list of them.
        "size": found.size if said is None or said.upload is None else said.size,
        "version": found.version,
        "written": found.written,
    }


def _text(data: bytes) -> str | None:
    """The text that the beginning of a file is; None when it is not text."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut off where the beginning ends.
        return data[: error.start].decode("utf-8") if error.start >= len(data) - 3 > 0 else None


# -- merging of versions in conflict, in two steps: what would become of them, and that it does -------


_LARGEST: Final = 1 << 20  # bytes of a text whose difference is shown; finding it takes long
_LINES: Final = 500  # of the difference


def merge(volume: str, path: str, mark: str | None) -> Message:
    """Without a mark: the versions of a file that are in conflict, whether they can be merged, or why not,
    and what that would change. With the mark of such an answer: merge them, if they are still the same.

    Raises HybrisError.
    """
    with tempfile.TemporaryDirectory(prefix="hybrisfs-merge-", dir=scratch_folder()) as name:
        folder = Path(name)
        found = ask(ConflictsCompareRequest(name=volume, path=path, into=name))
        merged = folder / "merged"
        if mark is None:
            lines = _difference(folder / "0", merged) if found.merged else []
            return {
                "path": found.path,
                "versions": found.versions,
                "merged": found.merged,
                "why": found.why,
                "mark": found.mark,
                "difference": None if lines is None else lines[:_LINES],
                "more": lines is not None and len(lines) > _LINES,
            }
        if not found.merged or found.mark != mark:
            raise UsageError("the versions are not those that were shown", "", "Look again.")
        ask(ConflictsSettleRequest(name=found.name, path=found.path, mark=mark, source=str(merged)))
        return {"path": found.path}


def _difference(before: Path, after: Path) -> list[str] | None:
    """The lines of a unified diff, without its head; None for texts that are too large."""
    if max(before.stat().st_size, after.stat().st_size) > _LARGEST:
        return None
    old, new = (path.read_bytes().decode().removesuffix("\n").split("\n") for path in (before, after))
    return list(itertools.islice(difflib.unified_diff(old, new, lineterm=""), 2, 3 + _LINES))
