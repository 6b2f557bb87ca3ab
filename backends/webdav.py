"""A cloud in a WebDAV folder: ``webdavs://user@host/folder``, or ``webdav://`` without encryption.

Credentials: `password`, and `user` unless the URL has it.

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
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from secrets import token_hex
from typing import Final

from backends.body import BodyError
from backends.credentials import Secrets
from backends.driver import CloudKind, HttpDriver, Secret, as_bytes
from backends.errors import PermanentError, StoreError, TransientError
from backends.folder import MARKER, Child, FolderStore, list_tree, no_folder
from backends.http_client import RefusedError
from backends.http_errors import HttpFailure, RedirectedError, connection_error, http_error
from backends.store import Buffer, Page
from backends.webdav_client import WebDavClient, server_of

__all__ = ["WebDavStore"]

_CLAIM_EXPIRES: Final = 60.0  # seconds
_CLAIM_PAUSE: Final = 0.05  # seconds between two looks
_NOT_THERE: Final = frozenset({404, 410})
_NO_PARENT: Final = frozenset({403, 404, 409, 500})  # what servers say of a MOVE into a missing folder
_CLAIMED: Final = frozenset({405, 409, 423, 500})  # what servers say of a collection that is just being made


class WebDavStore(FolderStore[WebDavClient], HttpDriver[WebDavClient]):
    """A `backends.store.Store` in a WebDAV folder."""

    kind = CloudKind(
        schemes=("webdavs", "webdav"),
        form="webdavs://user@host/folder",
        what="Nextcloud, a NAS",
        secrets=(Secret("user", "User name", hidden=False), Secret("password", "Password")),
        problem=no_folder,
        server=server_of,
        keeps_nothing="WebDAV has no older versions of files that can be relied on",
    )
    when_gone = "is the server's disk mounted?"

    def _initialise(self) -> None:
        client = self._client()
        self._make_root(client, 0)
        with contextlib.suppress(_ExistsError):
            _make_folder(client, MARKER)

    def _put(self, client: WebDavClient, name: str, data: Buffer) -> None:
        self._sweep(client)
        with _temporary(client, as_bytes(data)) as temporary:
            _move(client, temporary, name, overwrite=True)

    def _put_if_absent(self, client: WebDavClient, name: str, data: Buffer) -> bool:
        if self._exists(client, name):
            return False
        with _temporary(client, as_bytes(data)) as temporary:
            return self._move_if_absent(client, temporary, name)

    def _get(self, client: WebDavClient, name: str, limit: int) -> bytes:
        return _fetch(client, name, limit)[1]

    def _get_range(self, client: WebDavClient, name: str, offset: int, length: int) -> bytes:
        with self._tolerating(416):
            status, data, _ = _fetch(client, name, length, Range=f"bytes={offset}-{offset + length - 1}")
            if status != 206 and offset:
                raise BodyError("garbled", "the server does not serve parts of objects")
            return data
        return b""

    def _size(self, client: WebDavClient, name: str) -> int:
        return client.size(name)

    def _delete(self, client: WebDavClient, name: str) -> None:
        client.call("DELETE", name)

    def _list(self, client: WebDavClient, prefix: str, after: str, limit: int) -> Page:
        def children(folder: str) -> Iterator[Child]:
            for name, resource in client.children(folder.rstrip("/")):
                yield Child(name, resource.is_folder, resource.size)

        self._require_root(client, "list", prefix)
        return list_tree(children, prefix, after, limit)

    def _make_root(self, client: WebDavClient, up: int) -> None:
        """Make the folder `up` levels above ours, and those above it where they are missing."""
        try:
            _make_folder(client, "../" * up)
        except _ExistsError:
            return
        except RefusedError as error:
            if error.status != 409 or up == self._address.path.count("/"):
                raise
            self._make_root(client, up + 1)
            with contextlib.suppress(_ExistsError):
                _make_folder(client, "../" * up)

    def _move_if_absent(self, client: WebDavClient, temporary: str, name: str) -> bool:
        claim = f"{MARKER}/claim-{blake2b(name.encode(), digest_size=16).hexdigest()}"
        deadline = time.monotonic() + self._timing.another_writer
        while not _take(client, claim):
            if time.monotonic() > deadline:
                raise TransientError(self.url, "put_if_absent", name, "another writer is creating it")
            time.sleep(_CLAIM_PAUSE)
        try:
            # Another client may have made it and be done with the claim already.
            if not self._exists(client, name):
                _move(client, temporary, name, overwrite=False)
                return True
        except RefusedError as error:
            if error.status != 412:
                raise
        finally:
            _remove(client, claim)
        _remove(client, temporary)
        return False

    def _exists(self, client: WebDavClient, name: str) -> bool:
        with self._tolerating(*_NOT_THERE):
            client.size(name)
            return True
        self._require_root(client, "put_if_absent", name)
        return False

    def _leftovers(self, client: WebDavClient) -> Iterator[tuple[str, float]]:
        for name, resource in client.children(MARKER):
            yield name, _timestamp(resource.modified)

    def _remove_leftover(self, client: WebDavClient, name: str) -> None:
        client.call("DELETE", f"{MARKER}/{name}")

    def _require_root(self, client: WebDavClient, operation: str, name: str) -> None:
        """Raise `MissingRootError` unless the folder is there and ours."""
        if not _is_there(client, MARKER):
            trouble = f"there is no folder {self._address.path}, or it is not the one that was set up"
            raise self._absent(operation, name, trouble)

    def _connect(self, secrets: Secrets) -> WebDavClient:
        return WebDavClient(self._address, secrets, self._timing)

    def _failure(self, error: Exception) -> HttpFailure | None:
        return error.failure if isinstance(error, RefusedError) else None

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.status not in _NOT_THERE and failure.status != 409:
            return http_error(self.url, operation, name, failure)
        if operation == "initialise":
            return PermanentError(self.url, operation, name, failure.reason, "check the folder in the URL")
        try:
            with self._calling("list", "") as client:
                self._require_root(client, operation, name)
        except StoreError as missing_root:
            return missing_root
        if failure.status == 409 and operation not in ("put", "put_if_absent", "delete"):
            return http_error(self.url, operation, name, failure)
        return self._absent(operation, name, "")

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        from urllib3.exceptions import HTTPError

        if isinstance(error, HTTPError):
            return connection_error(self.url, operation, name, error)
        return None


class _ExistsError(Exception):
    """The folder is there already."""


def _fetch(client: WebDavClient, name: str, limit: int, **headers: str) -> tuple[int, bytes, object]:
    try:
        return client.get(name, limit, **headers)
    except RefusedError as error:
        if error.status not in _NOT_THERE:
            raise
    # It may just be being replaced.
    return client.get(name, limit, **headers)


@contextlib.contextmanager
def _temporary(client: WebDavClient, data: bytes) -> Iterator[str]:
    """Upload `data` under a name of its own, which is gone when something goes wrong afterwards."""
    temporary = f"{MARKER}/{token_hex(12)}"
    client.call("PUT", temporary, data)
    try:
        yield temporary
    except BaseException:
        _remove(client, temporary)
        raise


def _remove(client: WebDavClient, path: str) -> None:
    """Remove what nobody needs any more; if it does not work, it is removed when it is stale."""
    from urllib3.exceptions import HTTPError

    with contextlib.suppress(RefusedError, RedirectedError, BodyError, HTTPError):
        client.call("DELETE", path)


def _move(client: WebDavClient, temporary: str, name: str, *, overwrite: bool) -> None:
    try:
        client.move(temporary, name, overwrite=overwrite)
    except RefusedError as error:
        if error.status not in _NO_PARENT or "/" not in name:
            raise
        *folders, _ = name.split("/")
        for depth in range(len(folders)):
            with contextlib.suppress(_ExistsError):
                _make_folder(client, "/".join(folders[: depth + 1]))
        client.move(temporary, name, overwrite=overwrite)


def _make_folder(client: WebDavClient, path: str) -> None:
    """Make one folder. Raises `_ExistsError`, also when another client is making it at this moment."""
    try:
        client.call("MKCOL", path + "/")
    except RefusedError as error:
        if error.status in (405, 301) or (error.status in _CLAIMED and _is_folder(client, path)):
            raise _ExistsError from None
        raise


def _is_folder(client: WebDavClient, path: str) -> bool:
    with contextlib.suppress(RefusedError):
        return _is_there(client, path.rstrip("/"))
    return False


def _is_there(client: WebDavClient, path: str) -> bool:
    """Whether the server knows the folder. Raises `RefusedError` when it does not say so."""
    try:
        for _ in client.children(path):
            break
    except RefusedError as error:
        if error.status not in _NOT_THERE and error.status != 409:
            raise
        return False
    return True


def _take(client: WebDavClient, claim: str) -> bool:
    """Make the claim ours, if nobody has it."""
    try:
        client.call("MKCOL", claim + "/")
    except RefusedError as error:
        if error.status not in _CLAIMED:
            raise
        _expire(client, claim)
        return False
    return True


def _expire(client: WebDavClient, claim: str) -> None:
    try:
        found = list(client.children(MARKER))
    except RefusedError:
        return  # some servers stumble over what goes away while they look
    for name, resource in found:
        if f"{MARKER}/{name}" == claim and time.time() - _timestamp(resource.modified) > _CLAIM_EXPIRES:
            client.call("DELETE", claim)


def _timestamp(modified: str) -> float:
    """Seconds since the epoch of an HTTP date; now when it makes no sense."""
    try:
        return parsedate_to_datetime(modified).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return time.time()
