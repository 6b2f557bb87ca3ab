"""A cloud at a remote of rclone: ``rclone:REMOTE:folder``, as rclone itself writes it. Nothing in it is
percent-encoded. ``rclone:REMOTE:/folder`` is absolute where the remote tells that apart (SFTP, local).

Credentials: none. rclone keeps the logins of its remotes; each machine needs a remote of that name. A URL
names a remote of rclone's configuration and nothing else: rclone's connection strings could run programs.

Write order of `put`: providers that show an object when all of it is there (Google Drive, OneDrive, Dropbox,
object stores) get it under its name. Where readers could see half a file (`_SHOW_HALVES`), it is uploaded to
a temporary name and moved over the name. SFTP servers do not move over a name for rclone 1.60: there the old
file is deleted before, so a reader may find nothing for a moment, and looks again. rclone does not
sync disks: for a folder or an SSH server of one's own, ``file:`` and ``sftp:`` are the better choice.

`put_if_absent`: rclone has nothing exclusive, not even mkdir (Google Drive holds two folders of one name). A
writer leaves a claim, a file of its own name in `.hybrisfs`, and lists the claims of others. It goes on only
when there are none; of several that wait, the one whose name sorts first stays, the others take theirs back.
This is safe where a listing shows what any machine has written before, not where listings come late. There
both writers may believe that they were first, and the later content stays. What is stored so bears that:
whose marker was replaced finds another volume's and writes there no more, and all else is the same from every
writer, or signed.

A claim older than five minutes was left behind by a writer that died.

Google Drive and MEGA may hold two files of one name, if two writers made it at the same time. rclone reads
either; what lies in them is sealed or signed, so an old one is taken for what it is. `delete` removes all.

The file `.hybrisfs/root` says that the folder is ours, since object stores have no empty folders.

crash after ...        at the provider                       repaired by
temporary file         a stale file in .hybrisfs             the first `put` a day later removes it
deletion before move   no object of that name (SFTP)         its writer, at the next `put`; other clouds
claim                  nobody can create that one object     `put_if_absent` five minutes later
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from secrets import token_hex
from typing import Final

from backends.address import is_remote
from backends.body import BodyError, Timing
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.driver import CloudKind, HttpDriver, as_bytes
from backends.errors import AuthError, PermanentError, StoreError, TransientError
from backends.folder import MARKER, Child, FolderStore, list_tree, no_folder
from backends.http_errors import HttpFailure, connection_error
from backends.rclone_client import UNOPENED, RcloneClient, RefusedError
from backends.rclone_errors import rclone_error
from backends.rclone_process import RCLONE, NoRcloneError, Rclone, RcloneEndedError
from backends.store import Buffer, Page

__all__ = ["RcloneStore", "any_shows_halves"]

_SHOW_HALVES: Final = frozenset(
    {"azurefiles", "ftp", "hdfs", "local", "pcloud", "quatrix", "sftp", "smb", "webdav"}
)
"""Kinds of remotes that show a file while it is being uploaded: those that newer versions of rclone give the
feature PartialUploads, and WebDAV, where it depends on the server."""

_ROOT: Final = f"{MARKER}/root"
_ROOT_CONTENT: Final = b"The folder above is a cloud of HybrisFS.\n"
_ROOT_HOLDS: Final = 60.0  # seconds for which a root that was seen is believed to be there
_CLAIM_EXPIRES: Final = 300.0  # seconds; the clocks of several machines are compared
_PAUSE: Final = 0.05  # seconds between two looks
_REPLACED_WITHIN: Final = 0.5  # seconds that a name is looked at when its object may be being replaced
_COPIES: Final = 10  # of one name that `delete` removes
_DEPTH: Final = 5  # remotes upon remotes


class RcloneStore(FolderStore[RcloneClient], HttpDriver[RcloneClient]):
    """A `backends.store.Store` in a folder of a remote of rclone."""

    kind = CloudKind(
        schemes=("rclone",),
        form="rclone:REMOTE:folder",
        what="Google Drive, OneDrive, Dropbox, pCloud, MEGA and what else rclone knows",
        logins="rclone keeps the logins of its remotes; change them with: rclone config",
        problem=no_folder,
        keeps_nothing="rclone does not tell what its remotes keep of deleted files",
    )
    when_gone = "is it the right remote, and has nobody deleted the folder?"

    _seen_root = -_ROOT_HOLDS
    _halves: bool | None = None
    _doubles = False

    def __init__(
        self,
        url: str,
        credentials: Credentials = NO_CREDENTIALS,
        timing: Timing | None = None,
        rclone: Rclone = RCLONE,
    ) -> None:
        """*rclone*: the program; one serves all remotes of this process."""
        super().__init__(url, credentials, timing)
        self._rclone = rclone

    def _initialise(self) -> None:
        client = self._client()
        if client.size(_ROOT) is None:
            client.upload(_ROOT, _ROOT_CONTENT)

    def _put(self, client: RcloneClient, name: str, data: Buffer) -> None:
        if self._shows_halves(client) or time.monotonic() - self._seen_root > _ROOT_HOLDS:
            self._require_root(client, "put", name)
        self._sweep(client)
        self._store(client, name, as_bytes(data))
        if self._shows_halves(client):
            # rclone makes the folders on the way: those of a disk that went in this moment, on another disk.
            self._require_root(client, "put", name)

    def _store(self, client: RcloneClient, name: str, data: bytes) -> None:
        if not self._shows_halves(client):
            client.upload(name, data)
            return
        temporary = f"{MARKER}/{token_hex(12)}"
        try:
            client.upload(temporary, data)
            try:
                client.move(temporary, name, replacing=False)
            except RefusedError:
                if client.size(name) is None:
                    raise
                client.move(temporary, name, replacing=True)
        except BaseException:
            self._remove(client, temporary)
            raise

    def _put_if_absent(self, client: RcloneClient, name: str, data: Buffer) -> bool:
        claims = f"claim-{blake2b(name.encode(), digest_size=16).hexdigest()}-"
        ours = f"{claims}{token_hex(8)}"
        deadline = time.monotonic() + self._timing.another_writer
        while True:
            self._require_root(client, "put_if_absent", name)
            if client.size(name) is not None:
                return False
            if not self._others(client, claims, ours):
                with self._claiming(client, ours):
                    if self._alone(client, claims, ours, deadline):
                        # Another writer may have made it and be done with its claim already.
                        if client.size(name) is not None:
                            return False
                        self._store(client, name, as_bytes(data))
                        return True
            if time.monotonic() > deadline:
                raise TransientError(self.url, "put_if_absent", name, "another writer is creating it")
            time.sleep(_PAUSE)

    @contextlib.contextmanager
    def _claiming(self, client: RcloneClient, claim: str) -> Iterator[None]:
        try:
            client.upload(f"{MARKER}/{claim}", b"A claim.\n")
            yield
        finally:
            self._remove(client, f"{MARKER}/{claim}")

    def _alone(self, client: RcloneClient, claims: str, ours: str, deadline: float) -> bool:
        """Whether no claim but ours is left; waits only while ours is the first of them."""
        while others := self._others(client, claims, ours):
            if min(others) < ours or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        return True

    def _others(self, client: RcloneClient, claims: str, ours: str) -> list[str]:
        """The claims of others. Those of dead writers are removed."""
        living = []
        for name, changed in self._leftovers(client):
            if not name.startswith(claims) or name == ours:
                continue
            if time.time() - changed > _CLAIM_EXPIRES:
                self._remove(client, f"{MARKER}/{name}")
            else:
                living.append(name)
        return living

    def _get(self, client: RcloneClient, name: str, limit: int) -> bytes:
        # rclone looks the size up before it opens the object, which may be another one by then; and where a
        # file is deleted before its successor takes the name, there is none for a moment.
        until = time.monotonic() + _REPLACED_WITHIN
        while True:
            try:
                return client.get(name, limit)
            except RefusedError as error:
                passing = error.failure.status == 404 or error.failure.code == UNOPENED
                if not passing or not self._shows_halves(client) or time.monotonic() > until:
                    raise
            except BodyError as error:
                if error.kind != "short" or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)

    def _get_range(self, client: RcloneClient, name: str, offset: int, length: int) -> bytes:
        try:
            return client.get_range(name, offset, length)
        except RefusedError as error:
            # Of a range beyond the end, too, rclone says only that it cannot open the object.
            size = client.size(name) if error.failure.code == UNOPENED else None
            if size is None or size >= offset + length:
                raise
            return b""

    def _size(self, client: RcloneClient, name: str) -> int:
        size = client.size(name)
        if size is None:
            raise RefusedError(404, "no such object")
        return size

    def _delete(self, client: RcloneClient, name: str) -> None:
        client.delete(name)
        self._shows_halves(client)
        for _ in range(_COPIES if self._doubles else 0):
            client.delete(name)  # until there is none

    def _list(self, client: RcloneClient, prefix: str, after: str, limit: int) -> Page:
        def children(folder: str) -> Iterator[Child]:
            with self._tolerating(404):  # it may be gone by now
                for entry in client.children(folder.rstrip("/")):
                    yield Child(entry.name, entry.is_folder, entry.size)

        self._require_root(client, "list", prefix)
        return list_tree(children, prefix, after, limit)

    def _leftovers(self, client: RcloneClient) -> Iterator[tuple[str, float]]:
        for entry in client.children(MARKER, times=True):
            if not entry.is_folder and f"{MARKER}/{entry.name}" != _ROOT:
                yield entry.name, _timestamp(entry.changed)

    def _remove_leftover(self, client: RcloneClient, name: str) -> None:
        client.delete(f"{MARKER}/{name}")

    def _remove(self, client: RcloneClient, path: str) -> None:
        """Remove what nobody needs any more; if it does not work, it is removed when it is stale."""
        with contextlib.suppress(StoreError), self._translated("delete", ""):
            client.delete(path)

    def _shows_halves(self, client: RcloneClient) -> bool:
        """Whether readers may see a file that is still being uploaded."""
        if self._halves is None:
            features = client.features()
            self._doubles = features.get("DuplicateFiles") is True
            self._halves = features.get("Move") is True and any_shows_halves(client, self._address.host)
        return self._halves

    def _require_root(self, client: RcloneClient, operation: str, name: str) -> None:
        """Raise `MissingRootError` unless the folder is there and ours."""
        if client.size(_ROOT) is None:
            trouble = f"the remote has no folder {self._address.path}, or not the one that was set up"
            raise self._absent(operation, name, trouble)
        self._seen_root = time.monotonic()

    def _connect(self, secrets: Secrets) -> RcloneClient:
        remote, _, folder = self.url.partition(":")[2].partition(":")
        return RcloneClient(f"{remote}:", folder, self._timing, self._rclone)

    def _failure(self, error: Exception) -> HttpFailure | None:
        return error.failure if isinstance(error, RefusedError) else None

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.status != 404:
            found = rclone_error(self.url, operation, name, f"{self._address.host}:", failure.message)
            if isinstance(found, AuthError):
                # Who logs in again, or corrects a password, does it in rclone's configuration.
                with contextlib.suppress(StoreError), self._calling("list", "") as client:
                    client.forget()
            return found
        if operation == "initialise":
            return PermanentError(self.url, operation, name, failure.message, "check the folder in the URL")
        try:
            with self._calling("list", "") as client:
                self._require_root(client, operation, name)
        except StoreError as missing_root:
            return missing_root
        return self._absent(operation, name, "")

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        from urllib3.exceptions import HTTPError

        if isinstance(error, NoRcloneError):
            advice = "install it with: apt install rclone; and make the remote with: rclone config"
            return PermanentError(self.url, operation, name, str(error), advice)
        if isinstance(error, RcloneEndedError):
            return rclone_error(self.url, operation, name, f"{self._address.host}:", f"rclone ended: {error}")
        if isinstance(error, HTTPError):
            return connection_error(self.url, operation, name, error)
        return None


def any_shows_halves(client: RcloneClient, remote: str, depth: int = 0) -> bool:
    """Whether a remote, or one that it stores its files at, shows files while they are being uploaded."""
    known = client.config(remote)
    below = " ".join(known.get(key, "") for key in ("remote", "remotes", "upstreams")).split()
    if known.get("type", "local") in _SHOW_HALVES or depth == _DEPTH:
        return True
    # A path without a remote is local.
    return any(
        not is_remote(one.partition(":")[0])
        or ":" not in one
        or any_shows_halves(client, one.partition(":")[0], depth + 1)
        for one in below
    )


def _timestamp(changed: str) -> float:
    """Seconds since the epoch of a time as RFC 3339 writes it; now when it makes no sense."""
    try:
        return datetime.fromisoformat(changed).timestamp()
    except (ValueError, OverflowError):
        return time.time()
