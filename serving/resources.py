"""Files and folders as WsgiDAV wants to see them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

from wsgidav import util
from wsgidav.dav_error import HTTP_FORBIDDEN, HTTP_INTERNAL_ERROR, HTTP_PRECONDITION_FAILED, DAVError
from wsgidav.dav_provider import DAVCollection, DAVNonCollection, DAVProvider
from wsgidav.lock_man.lock_storage import LockStorageDict

from serving.answers import status_of
from serving.folder import Entry, Folder, Path, Upload
from serving.moves import Environ, copy_or_move, writer_of

__all__ = ["OPENED", "Locks", "Provider"]

OPENED: Final = "hybrisfs.opened"
"""Where an environment has the files that are to be closed when the request is over."""

_MOST_LOCKS: Final = 10_000
_LONGEST_LOCK: Final = 86_400.0  # seconds
_LATEST: Final = 1 << 33  # seconds since the epoch
_READS: Final = ("GET", "HEAD")


def is_litter(name: str) -> bool:
    """Whether it is what macOS leaves beside everything: it is of use to the one Mac that has written it."""
    return name.startswith("._") or name == ".DS_Store"


class Locks(LockStorageDict):  # type: ignore[misc]
    """Locks in memory, of a bounded number and for a bounded time."""

    def create(self, path: str, lock: dict[str, Any]) -> dict[str, Any]:
        if self._dict is not None and len(self._dict) >= _MOST_LOCKS:
            self._forget_old()
            if len(self._dict) >= _MOST_LOCKS:
                raise DAVError(HTTP_FORBIDDEN, "there are too many locks")
        lock["timeout"] = _bounded(float(lock["timeout"]))
        return super().create(path, lock)  # type: ignore[no-any-return]

    def refresh(self, token: str, *, timeout: float) -> dict[str, Any]:
        return super().refresh(token, timeout=_bounded(float(timeout)))  # type: ignore[no-any-return]

    def _forget_old(self) -> None:
        now = time.time()
        for token, lock in list(self._dict.items()):
            if isinstance(lock, dict) and lock["expire"] < now:
                self.delete(token)


def _bounded(timeout: float) -> float:
    return timeout if 0 < timeout < _LONGEST_LOCK else _LONGEST_LOCK


class _Place:
    """What files and folders have in common. `path` is that of the URL."""

    provider: Provider
    path: str
    remove_all_locks: Callable[..., None]
    _request: Environ

    def _open_place(self, folder: Folder, where: Path, status: os.stat_result) -> None:
        self._folder = folder
        self._where = where
        self._status = status

    def get_creation_date(self) -> float:
        return min(self._status.st_ctime, self._status.st_mtime)

    def get_last_modified(self) -> float:
        return self._status.st_mtime

    def set_last_modified(self, _: str, said: str, *, dry_run: bool) -> bool:
        seconds = said if isinstance(said, int) else util.parse_time_string(said)
        if seconds is None or not 0 <= seconds < _LATEST or not self._where:
            raise DAVError(HTTP_FORBIDDEN)
        if not dry_run:
            self._folder.set_modified(self._where, seconds)
        return True

    def delete(self) -> None:
        try:
            self._folder.remove(self._where, writer_of(self._request))
        except OSError as error:  # WsgiDAV would call it an internal error
            raise DAVError(status_of(error) or HTTP_INTERNAL_ERROR) from error
        self.remove_all_locks(recursive=True)


class _File(_Place, DAVNonCollection):  # type: ignore[misc]
    """A file, or one that is about to be there."""

    def __init__(
        self, path: str, environ: Environ, folder: Folder, where: Path, status: os.stat_result | None
    ) -> None:
        DAVNonCollection.__init__(self, path, environ)
        self._request = environ
        self._upload: Upload | None = None
        self._content: BinaryIO | None = None
        if status is not None:
            self._open_place(folder, where, status)
        else:
            self._folder, self._where = folder, where

    def open(self) -> None:
        """Have length, date and content be those of one and the same file, whatever is renamed there."""
        self._content = self._folder.read(self._where)
        self._request[OPENED].append(self._content)
        self._status = os.fstat(self._content.fileno())

    def get_content_length(self) -> int:
        return self._status.st_size

    def get_content_type(self) -> str:
        return str(util.guess_mime_type(self.path, self._request["wsgidav.config"]))

    def get_etag(self) -> str:
        status = self._status
        return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"

    def support_etag(self) -> bool:
        return True

    def support_ranges(self) -> bool:
        return True

    def get_content(self) -> BinaryIO:
        assert self._content is not None
        return self._content

    def begin_write(self, *, content_type: str | None = None) -> Upload:
        self._upload = self._folder.upload(self._where, writer_of(self._request))
        return self._upload

    def make_empty(self) -> None:
        """Make an empty file, unless a program was quicker to make one."""
        with contextlib.suppress(FileExistsError):
            self._folder.upload(self._where, writer_of(self._request)).finish(replace=False)
        self._status = self._folder.status(self._where)

    def end_write(self, *, with_errors: bool) -> None:
        upload, self._upload = self._upload, None
        if upload is None:
            return
        if with_errors:
            upload.discard()
            return
        try:
            self._check_conditions()
        except DAVError:
            upload.discard()
            raise
        try:
            upload.finish(replace=self._request.get("HTTP_IF_NONE_MATCH", "").strip() != "*")
        except FileExistsError:
            raise DAVError(HTTP_PRECONDITION_FAILED) from None
        self._status = self._folder.status(self._where)

    def _check_conditions(self) -> None:
        """Check the conditions of the request again: others may have saved the file during the upload. Raises
        DAVError."""
        now = self.provider.get_resource_inst(self.path, self._request)
        if isinstance(now, _File):
            modified = int(now.get_last_modified())
            util.evaluate_http_conditionals(now, modified, now.get_etag(), self._request)


class _Folder(_Place, DAVCollection):  # type: ignore[misc]
    def __init__(
        self, path: str, environ: Environ, folder: Folder, where: Path, status: os.stat_result
    ) -> None:
        DAVCollection.__init__(self, path, environ)
        self._request = environ
        self._open_place(folder, where, status)

    def get_used_bytes(self) -> int:
        return self._folder.space().used

    def get_available_bytes(self) -> int:
        return self._folder.space().free

    def get_member_names(self) -> list[str]:
        return [one.name for one in self._entries()]

    def get_member_list(self) -> list[Any]:
        return [
            self.provider.resource(util.join_uri(self.path, one.name), self._request, one.status)
            for one in self._entries()
        ]

    def create_empty_resource(self, name: str) -> _File:
        """A file that PUT is about to write; for LOCK, which wants to have the name, one that is empty."""
        made = self.provider.new_file(util.join_uri(self.path, name), self._request)
        if self._request["REQUEST_METHOD"] != "PUT":
            made.make_empty()
        return made

    def create_collection(self, name: str) -> None:
        if is_litter(name):
            raise DAVError(HTTP_FORBIDDEN)
        self._folder.make_folder((*self._where, name), writer=writer_of(self._request))

    def handle_delete(self) -> bool:
        """All at once. Raises DAVError when something within is locked by somebody else."""
        self.provider.lock_manager.check_write_permission(
            url=self.get_ref_url(),
            depth="infinity",
            token_list=self._request["wsgidav.ifLockTokenList"],
            principal=self._request["wsgidav.user_name"],
        )
        self.delete()
        return True

    def _entries(self) -> Iterable[Entry]:
        return [one for one in self._folder.entries(self._where) if not is_litter(one.name)]


class Provider(DAVProvider):  # type: ignore[misc]
    """The served folder. What macOS leaves beside files stays in *litter*, a folder of this machine."""

    def __init__(self, folder: Folder, litter: Folder, *, read_only: bool) -> None:
        super().__init__()
        self.folder = folder
        self._litter = litter
        self._read_only = read_only

    def is_readonly(self) -> bool:
        return self._read_only

    def place(self, path: str) -> tuple[Folder, Path]:
        """In which folder a path of a URL leads to what."""
        names = tuple(name for name in path.split("/") if name)
        if names and is_litter(names[-1]):
            return self._litter, (hashlib.sha256("/".join(names).encode(errors="replace")).hexdigest(),)
        return self.folder, names

    def get_resource_inst(self, path: str | None, environ: Environ) -> _File | _Folder | None:
        if path is None:  # what WsgiDAV calls the parent of the root
            return None
        folder, where = self.place(path)
        try:
            found = self.resource(path, environ, folder.status(where))
            if isinstance(found, _File) and environ["REQUEST_METHOD"] in _READS:
                found.open()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return found

    def resource(self, path: str, environ: Environ, status: os.stat_result) -> _File | _Folder:
        """What is known to be at a path."""
        folder, where = self.place(path)
        if stat.S_ISDIR(status.st_mode):
            return _Folder(path, environ, folder, where, status)
        return _File(path, environ, folder, where, status)

    def new_file(self, path: str, environ: Environ) -> _File:
        """One that is about to be there."""
        folder, where = self.place(path)
        return _File(path, environ, folder, where, None)

    def custom_request_handler(
        self, environ: Environ, start_response: Callable[..., Any], default_handler: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("COPY", "MOVE"):
            return copy_or_move(self, default_handler.__self__, environ, start_response)  # type: ignore[attr-defined]
        return default_handler(environ, start_response)  # type: ignore[no-any-return]
