"""A cloud in a WebDAV folder: ``webdavs://user@host/folder``, or ``webdav://`` without encryption.

Object `a/b` is the resource `folder/a/b`. The folder `.hybrisfs` in it is made by `initialise` and says that
this folder is ours; it also holds what is being written. Credentials: `password`, and `user` unless the URL
has it.

Write order of `put`: a temporary resource, then MOVE over the name. RFC 4918 has a MOVE remove what it
replaces before it moves, so a reader may find nothing for a moment at some servers (Apache, WsgiDAV; nginx
and Nextcloud replace in one step); reads look a second time before they believe it.

`put_if_absent` cannot rely on ``Overwrite: F``, for servers look first and move later. Making a collection is
atomic everywhere: the writer that makes `.hybrisfs/claim-HASH` may move its object to the name, and removes
the claim afterwards. A claim older than a minute was left behind by a writer that died, and is removed.

crash after ...        in the cloud                          repaired by
temporary resource     a stale resource in .hybrisfs         the first `put` a day later removes it
claim                  nobody can create that one object     `put_if_absent` a minute later
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from secrets import token_hex
from typing import Final

import urllib3

from backends.address import parse_address
from backends.arguments import as_bytes, check_page, check_range
from backends.body import BodyError, Timing, body_failure
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.errors import (
    CorruptError,
    MissingError,
    MissingRootError,
    PermanentError,
    StoreError,
    TransientError,
)
from backends.http_errors import RedirectedError, connection_error, http_error
from backends.lazy import LazyClient
from backends.names import check_name, check_prefix
from backends.secrets import secret_names
from backends.store import MAX_PAGE, Buffer, Page
from backends.tree import Child, list_tree
from backends.webdav_client import RefusedError, WebDavClient

__all__ = ["WebDavStore"]

_FORM: Final = "webdavs://user@host/folder"
_SECRETS: Final = secret_names("webdav")
_MARKER: Final = ".hybrisfs"
_STALE_AFTER: Final = 24 * 3600.0  # seconds
_CLAIM_EXPIRES: Final = 60.0  # seconds
_CLAIM_PATIENCE: Final = 10.0  # seconds to wait for another writer that has the claim
_CLAIM_PAUSE: Final = 0.05  # seconds between two looks
_NOT_THERE: Final = frozenset({404, 410})
_NO_PARENT: Final = frozenset({403, 404, 409, 500})  # what servers say of a MOVE into a missing folder
_CLAIMED: Final = frozenset({405, 409, 423, 500})  # what servers say of a collection that is just being made


class WebDavStore:
    """A `backends.store.Store` in a WebDAV folder."""

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._address = parse_address(url, options=frozenset(), form=_FORM)
        if not self._address.path:
            raise PermanentError(url, "open", "", "names no folder", f"write {_FORM}")
        self._timing = timing or Timing()
        self._lazy = LazyClient(url, credentials, _SECRETS, self._connect)
        self._swept = False

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            self._make_root(0)
            with contextlib.suppress(_ExistsError):
                self._make_folder(_MARKER)

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._translated("put", name):
            self._sweep()
            with self._temporary(as_bytes(data)) as temporary:
                self._move(temporary, name, overwrite=True)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._translated("put_if_absent", name):
            if self._exists(name):
                return False
            with self._temporary(as_bytes(data)) as temporary:
                return self._move_if_absent(temporary, name)

    def get(self, name: str, *, limit: int) -> bytes:
        check_name(name)
        with self._translated("get", name):
            return self._get(name, limit)[1]

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        status, data = 206, b""
        with self._translated("get_range", name):
            if not length:
                enough = self._client.size(name) >= offset
            else:
                try:
                    status, data, _ = self._get(name, length, Range=f"bytes={offset}-{offset + length - 1}")
                except RefusedError as error:
                    if error.status != 416:
                        raise
                enough = len(data) == length
        if not enough:
            raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
        if status != 206 and offset:
            raise CorruptError(self.url, "get_range", name, "the server does not serve parts of objects")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        # The tags of many servers are times and sizes, which quick changes share; only the content tells.
        data = self.get(name, limit=limit)
        current = blake2b(data, digest_size=16).hexdigest()
        return None if current == tag else (data, current)

    def delete(self, name: str) -> None:
        check_name(name)
        with contextlib.suppress(MissingError), self._translated("delete", name):
            self._client.call("DELETE", name)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys([check_name(name) for name in names]):
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        check_page(limit)

        def children(folder: str) -> Iterator[Child]:
            for name, resource in self._client.children(folder.rstrip("/")):
                yield Child(name, resource.is_folder, resource.size)

        with self._translated("list", prefix):
            self._require_marker("list", prefix)
            return list_tree(children, prefix, after, limit)

    def close(self) -> None:
        self._lazy.close()

    def _get(self, name: str, limit: int, **headers: str) -> tuple[int, bytes, object]:
        try:
            return self._client.get(name, limit, **headers)
        except RefusedError as error:
            if error.status not in _NOT_THERE:
                raise
        # It may just be being replaced.
        return self._client.get(name, limit, **headers)

    def _make_root(self, up: int) -> None:
        """Make the folder `up` levels above ours, and those above it where they are missing."""
        try:
            self._make_folder("../" * up)
        except _ExistsError:
            return
        except RefusedError as error:
            if error.status != 409 or up == self._address.path.count("/"):
                raise
            self._make_root(up + 1)
            with contextlib.suppress(_ExistsError):
                self._make_folder("../" * up)

    @contextlib.contextmanager
    def _temporary(self, data: bytes) -> Iterator[str]:
        """Upload `data` under a name of its own, which is gone afterwards."""
        temporary = f"{_MARKER}/{token_hex(12)}"
        self._client.call("PUT", temporary, data)
        try:
            yield temporary
        except BaseException:
            self._remove(temporary)
            raise

    def _remove(self, path: str) -> None:
        """Remove what nobody needs any more; if it does not work, it is removed when it is stale."""
        with contextlib.suppress(RefusedError, RedirectedError, BodyError, urllib3.exceptions.HTTPError):
            self._client.call("DELETE", path)

    def _move_if_absent(self, temporary: str, name: str) -> bool:
        claim = f"{_MARKER}/claim-{blake2b(name.encode(), digest_size=16).hexdigest()}"
        deadline = time.monotonic() + _CLAIM_PATIENCE
        while not self._take(claim):
            if time.monotonic() > deadline:
                raise TransientError(self.url, "put_if_absent", name, "another writer is creating it")
            time.sleep(_CLAIM_PAUSE)
        try:
            # Somebody else may have made it and be done with the claim already.
            if not self._exists(name):
                self._move(temporary, name, overwrite=False)
                return True
        except RefusedError as error:
            if error.status != 412:
                raise
        finally:
            self._remove(claim)
        self._remove(temporary)
        return False

    def _move(self, temporary: str, name: str, *, overwrite: bool) -> None:
        try:
            self._client.move(temporary, name, overwrite=overwrite)
        except RefusedError as error:
            if error.status not in _NO_PARENT or "/" not in name:
                raise
            *folders, _ = name.split("/")
            for depth in range(len(folders)):
                with contextlib.suppress(_ExistsError):
                    self._make_folder("/".join(folders[: depth + 1]))
            self._client.move(temporary, name, overwrite=overwrite)

    def _make_folder(self, path: str) -> None:
        """Make one folder. Raises `_ExistsError`, also when somebody else is making it at this moment."""
        try:
            self._client.call("MKCOL", path + "/")
        except RefusedError as error:
            if error.status in (405, 301) or (error.status in _CLAIMED and self._is_folder(path)):
                raise _ExistsError from None
            raise

    def _is_folder(self, path: str) -> bool:
        try:
            for _ in self._client.children(path.rstrip("/")):
                break
        except RefusedError:
            return False
        return True

    def _take(self, claim: str) -> bool:
        """Make the claim ours, if nobody has it."""
        try:
            self._client.call("MKCOL", claim + "/")
        except RefusedError as error:
            if error.status not in _CLAIMED:
                raise
            self._expire(claim.rpartition("/")[2])
            return False
        return True

    def _expire(self, claim: str) -> None:
        try:
            found = list(self._client.children(_MARKER))
        except RefusedError:
            return  # some servers stumble over what goes away while they look
        for name, resource in found:
            if name == claim and _age(resource.modified) > _CLAIM_EXPIRES:
                self._client.call("DELETE", f"{_MARKER}/{name}")

    def _exists(self, name: str) -> bool:
        try:
            self._client.size(name)
        except RefusedError as error:
            if error.status not in _NOT_THERE:
                raise
            self._require_marker("put_if_absent", name)
            return False
        return True

    def _sweep(self) -> None:
        """Once per process, remove what writers that died long ago left behind."""
        if self._swept:
            return
        self._swept = True
        for name, resource in self._client.children(_MARKER):
            if _age(resource.modified) > _STALE_AFTER:
                self._client.call("DELETE", f"{_MARKER}/{name}")

    def _require_marker(self, operation: str, name: str) -> None:
        """Raise `MissingRootError` unless the folder is there and ours."""
        if not self._is_there(_MARKER):
            reason = f"there is no folder {self._address.path}, or it is not the one that was set up"
            raise MissingRootError(self.url, operation, name, reason, "is the server's disk mounted?")

    def _is_there(self, path: str) -> bool:
        try:
            for _ in self._client.children(path):
                break
        except RefusedError as error:
            if error.status not in _NOT_THERE and error.status != 409:
                raise
            return False
        return True

    @property
    def _client(self) -> WebDavClient:
        return self._lazy.get()

    def _connect(self, secrets: Secrets) -> WebDavClient:
        return WebDavClient(self._address, secrets, self._timing)

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn whatever comes up into the `StoreError` that says what to do about it."""
        try:
            yield
        except BodyError as error:
            raise body_failure(self.url, operation, name, error) from error
        except RefusedError as error:
            raise self._refusal(operation, name, error) from error
        except (urllib3.exceptions.HTTPError, RedirectedError, OSError) as error:
            raise connection_error(self.url, operation, name, error) from error

    def _refusal(self, operation: str, name: str, error: RefusedError) -> StoreError:
        if error.status not in _NOT_THERE and error.status != 409:
            return http_error(self.url, operation, name, error.failure)
        if operation == "initialise":
            return PermanentError(
                self.url, operation, name, error.failure.reason, "check the folder in the URL"
            )
        try:
            with self._translated("list", ""):
                self._require_marker(operation, name)
        except StoreError as missing_root:
            return missing_root
        if operation.startswith("put"):
            return TransientError(self.url, operation, name, "the folder changed meanwhile")
        if error.status == 409 and operation != "delete":
            return http_error(self.url, operation, name, error.failure)
        return MissingError(self.url, operation, name, "no such object")


class _ExistsError(Exception):
    """The folder is there already."""


def _age(modified: str) -> float:
    """Seconds since an HTTP date; 0 when it makes no sense."""
    try:
        return time.time() - parsedate_to_datetime(modified).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return 0.0
