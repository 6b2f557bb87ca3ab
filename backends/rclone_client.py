"""Requests to the `rclone` of this process about one remote, by its remote control (as of rclone 1.60).

A call is ``POST /operations/NAME`` with a JSON object, and answers with one; an upload is a form; and
``GET /[REMOTE:]/path`` is an object or a range of it. A refusal is

    {"error": "what went wrong, in words", "path": "operations/NAME", "input": {...}, "status": 500}

with status 404 when rclone found nothing there, and 500 for all else. rclone does not hand on the status
that a provider refused with, so the words must tell (`backends.rclone_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import Struct

from backends.body import BodyError, GuardedBody, Timing, receiving
from backends.http_errors import HttpFailure
from backends.pacing import PacedBody
from backends.rclone_process import RCLONE, USER, Endpoint, Rclone, RcloneEndedError

__all__ = ["UNOPENED", "Entry", "RcloneClient", "RefusedError"]

UNOPENED: Final = "unopened"  # the code of a refusal without words: there was an object, or still is
_CONNECTIONS: Final = 16
_BLOCK: Final = 1 << 16  # bytes of a request that are sent at a time
_MAX_ENTRIES: Final = 1_000_000  # of one folder
_ONCE: Final = {"Connection": "close"}  # rclone breaks connections on which it has announced a wrong length


class RefusedError(Exception):
    """rclone did not do it; the status is 404 when it found nothing there."""

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.failure = HttpFailure(status, code, reason)


class Entry(Struct, frozen=True):
    """A file or folder; `size` in bytes, `changed` as RFC 3339 writes it, "" unless it was asked for."""

    name: str
    is_folder: bool
    size: int
    changed: str


class RcloneClient:
    """Talks about paths below `folder` of `remote`, which ends in a colon. Thread-safe.

    Paths are without a slash at their ends. All methods raise `RefusedError`, `NoRcloneError`,
    `RcloneEndedError`, `BodyError`, urllib3's `HTTPError`, and what an answer without sense leads to.
    """

    def __init__(self, remote: str, folder: str, timing: Timing, rclone: Rclone = RCLONE) -> None:
        self._remote = f"{remote}/" if folder.startswith("/") else remote
        self._folder = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._timing = timing
        self._rclone = rclone
        self._pool: Any = None
        self._endpoint: Endpoint | None = None

    def config(self, name: str) -> Mapping[str, str]:
        """The kind of a remote, and the remotes below it: of all else that rclone knows of it, nothing."""
        known = self._call("config/get", {"name": name})
        kept = ("type", "remote", "upstreams", "remotes")
        return {key: value for key in kept if isinstance(value := known.get(key), str)}

    def features(self) -> Mapping[str, object]:
        """What the remote can do, by rclone's names."""
        features = self._call("operations/fsinfo", {"fs": self._remote})["Features"]
        return dict(features)

    def upload(self, path: str, data: bytes) -> None:
        """Store a file, in place of another one if there is one."""
        folder, _, name = f"{self._folder}{path}".rpartition("/")
        boundary = token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        form = b"".join((head.encode(), data, f"\r\n--{boundary}--\r\n".encode()))
        target = "/operations/uploadfile?" + urlencode({"fs": self._remote, "remote": folder})
        # rclone may take all of it at once, and then send it on without a word.
        patience = self._timing.stall + len(data) / self._timing.slowest
        kind = f"multipart/form-data; boundary={boundary}"
        with self._answer("POST", target, form, {"Content-Type": kind}, patience) as answer:
            _decoded(answer)

    def move(self, path: str, target: str, *, replacing: bool) -> None:
        """Move a file to a name; `replacing` deletes what has that name before."""
        places = {"srcFs": self._remote, "srcRemote": self._folder + path}
        places |= {"dstFs": self._remote, "dstRemote": self._folder + target}
        self._call(
            "operations/movefile", {**places, "_config": {"NoCheckDest": not replacing, "IgnoreTimes": True}}
        )

    def get(self, path: str, limit: int) -> bytes:
        """Return a file of at most `limit` bytes."""
        with receiving(limit), self._answer("GET", self._object(path), None, _ONCE) as answer:
            return answer.read()

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes of a file; fewer where it ends before.

        From a remote that serves no ranges, no more than `offset + length` bytes are read.
        """
        end = offset + length
        wanted = {**_ONCE, "Range": f"bytes={offset}-{end - 1}"}
        with receiving(end), self._answer("GET", self._object(path), None, wanted) as answer:
            if answer.status == 200:
                parts: list[bytes] = []
                came = 0
                for part in answer.stream():
                    parts.append(part)
                    came += len(part)
                return b"".join(parts)[offset:end]
            data = b"" if _ends_before(answer.headers.get("Content-Range", ""), end) else answer.read()
            if len(data) > length:
                raise BodyError("garbled", "more bytes came than were asked for")
            return data

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None when there is none."""
        asked = {"fs": self._remote, "remote": self._folder + path, "opt": {"filesOnly": True}}
        item = self._call("operations/stat", asked)["item"]
        return None if item is None else _entry(item).size

    def children(self, path: str, *, times: bool = False) -> Iterator[Entry]:
        """What a folder holds, in no order; `times` asks when files were changed, too."""
        asked = {"noModTime": not times, "noMimeType": True}
        folder = (self._folder + path).rstrip("/")
        found = self._call("operations/list", {"fs": self._remote, "remote": folder, "opt": asked})["list"]
        if len(found) > _MAX_ENTRIES:
            raise BodyError("garbled", f"more than {_MAX_ENTRIES} entries in one folder")
        for one in found:
            entry = _entry(one)
            if "/" not in entry.name:
                yield entry

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._call("operations/deletefile", {"fs": self._remote, "remote": self._folder + path})

    def forget(self) -> None:
        """Have rclone read the configuration of its remotes again at the next call."""
        self._call("fscache/clear", {})

    def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            self._pool.close()

    def _object(self, path: str) -> str:
        return "/" + quote(f"[{self._remote}]{self._folder}{path}")

    def _call(self, what: str, asked: Mapping[str, object]) -> dict[str, Any]:
        kind = {"Content-Type": "application/json"}
        with self._answer("POST", f"/{what}", json.dumps(asked).encode(), kind) as answer:
            return _decoded(answer)

    @contextmanager
    def _answer(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        patience: float | None = None,
    ) -> Iterator[GuardedBody]:
        import urllib3

        endpoint = self._rclone.endpoint()
        login = urllib3.make_headers(basic_auth=f"{USER}:{endpoint.password}")
        length = {} if data is None else {"Content-Length": str(len(data))}
        done = False
        raw = None
        try:
            raw = self._connections(endpoint).request(
                method,
                target,
                body=None if data is None else PacedBody(data),
                headers={**login, "Accept-Encoding": "identity", **length, **headers},
                timeout=urllib3.Timeout(connect=self._timing.connect, read=patience or self._timing.stall),
                preload_content=False,
                redirect=False,
            )
            answer = GuardedBody(raw, self._timing)
            if raw.status not in (200, 206):
                raise _refusal(raw.status, answer)
            yield answer
            done = True
        except (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError) as error:
            words = self._rclone.last_words(endpoint)
            if words is not None:
                raise RcloneEndedError(words) from error
            raise
        finally:
            # What is left unread makes the connection useless.
            if raw is not None and done:
                raw.release_conn()
            elif raw is not None:
                raw.close()

    def _connections(self, endpoint: Endpoint) -> Any:
        import urllib3

        if self._endpoint != endpoint:
            # Two threads may both make one: then one of them is used once.
            self._pool = urllib3.HTTPConnectionPool(
                "127.0.0.1", endpoint.port, maxsize=_CONNECTIONS, retries=False, blocksize=_BLOCK
            )
            self._endpoint = endpoint
        return self._pool


def _refusal(status: int, answer: GuardedBody) -> RefusedError:
    """What an answer that is none says."""
    try:
        said = b"".join(answer.stream())
    except BodyError:
        said = b""  # rclone states the length of the object, also when it cannot be opened
    try:
        reason = str(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return RefusedError(500, f"rclone cannot open the object (HTTP {status})", UNOPENED)
    return RefusedError(status, reason)


def _decoded(answer: GuardedBody) -> dict[str, Any]:
    decoded = json.loads(answer.read())
    if not isinstance(decoded, dict):
        raise BodyError("garbled", "the answer of rclone is not a JSON object")
    return decoded


def _entry(item: Mapping[str, Any]) -> Entry:
    name, is_folder, size, changed = item["Name"], item["IsDir"], item["Size"], item.get("ModTime", "")
    if not (isinstance(name, str) and isinstance(is_folder, bool) and isinstance(changed, str)):
        raise BodyError("garbled", "an entry of a listing makes no sense")
    return Entry(name, is_folder, max(int(size), 0), changed)


def _ends_before(content_range: str, end: int) -> bool:
    """Whether the object ends before byte `end`, as the header (RFC 9110, 14.4) of an answer tells."""
    total = content_range.rpartition("/")[2]
    return total.isascii() and total.isdigit() and int(total[:19]) < end
