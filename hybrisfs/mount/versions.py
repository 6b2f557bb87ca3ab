"""Versions in a mount: `versions.browser` answers requests below `.hybrisfs`, the adapter all others.

Answers come from the workers, since a snapshot of the database is read for them. A change of
anything there is refused (EROFS), and so is another node called `.hybrisfs` at the root (EEXIST).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from hybrisfs import fuse
from hybrisfs.errors import failure
from hybrisfs.fuse import LATER, Attributes, Entry, Later, Listing, ListingPlus, Opened, Request
from hybrisfs.mount.adapter import Adapter, Pages, Served
from hybrisfs.mount.answers import sized
from hybrisfs.mount.echo import HIDDEN_INO
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import BLOCK
from hybrisfs.versions.browser import HISTORY_INO, HISTORY_NAME, VersionEntry
from hybrisfs.versions.contents import size_of

__all__ = ["VersionsAdapter"]

_DOTS: Final = 2
_SECTOR: Final = 512


class VersionsAdapter(Adapter):
    """The handlers of a mounted volume that has a past."""

    def __init__(self, served: Served, pages: Pages) -> None:
        super().__init__(served, pages)
        self.versions = served.versions

    # -- reading ---------------------------------------------------------------------------------

    def lookup(self, request: Request, parent: int, name: bytes) -> Entry | Later:
        if _is_version(parent):
            return self._later(request, lambda: self._found(self.versions.lookup(parent, name)))
        if self._is_reserved(request, parent, name):
            return self._found(self.versions.top())
        return super().lookup(request, parent, name)

    def _found(self, entry: VersionEntry | None) -> Entry:
        return Entry.negative(0.0) if entry is None else Entry(_attributes(entry), entry.holds, entry.holds)

    def forget(self, forgets: Sequence[tuple[int, int]]) -> None:
        for ino, lookups in forgets:
            if _is_version(ino):
                self.versions.forget(ino, lookups)
        super().forget([one for one in forgets if not _is_version(one[0])])

    def getattr(self, request: Request, ino: int, fh: int | None) -> tuple[Attributes, float]:
        if _is_version(ino):
            entry = self.versions.get(ino)
            return _attributes(entry), entry.holds
        return super().getattr(request, ino, fh)

    def readlink(self, request: Request, ino: int) -> bytes:
        return self.versions.get(ino).node.attr.target if _is_version(ino) else super().readlink(request, ino)

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> bytes | int:
        if not _is_version(ino):
            return super().getxattr(request, ino, name, size)
        value = dict(self.versions.get(ino).node.attr.xattrs).get(name)
        if value is None:
            raise failure(errno.ENODATA)
        return sized(value, size)

    def listxattr(self, request: Request, ino: int, size: int) -> bytes | int:
        if not _is_version(ino):
            return super().listxattr(request, ino, size)
        names = [name for name, _ in self.versions.get(ino).node.attr.xattrs]
        if request.uid != 0:
            names = [name for name in names if not name.startswith(b"trusted.")]
        return sized(b"".join(name + b"\0" for name in names), size)

    def opendir(self, request: Request, ino: int, flags: int) -> Opened:
        return Opened() if _is_version(ino) else super().opendir(request, ino, flags)

    def readdir(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Listing | Later:
        if not _is_version(ino):
            return super().readdir(request, ino, fh, offset, size)

        def work() -> Listing:
            listing = Listing(size)
            self._list(
                ino,
                offset,
                listing.add,
                lambda name, entry, following: listing.add(name, entry.ino, entry.node.attr.mode, following),
            )
            return listing

        return self._later(request, work)

    def readdirplus(self, request: Request, ino: int, fh: int, offset: int, size: int) -> ListingPlus | Later:
        if not _is_version(ino):
            return super().readdirplus(request, ino, fh, offset, size)

        def work() -> ListingPlus:
            listing = ListingPlus(size)

            def add(name: bytes, entry: VersionEntry, following: int) -> bool:
                self.versions.looked_up(entry)  # before the kernel can forget it
                if listing.add(name, self._found(entry), following):
                    return True
                self.versions.forget(entry.ino, 1)
                return False

            self._list(ino, offset, listing.add_name, add)
            return listing

        return self._later(request, work)

    def _list(
        self,
        ino: int,
        offset: int,
        add_dot: Callable[[bytes, int, int, int], bool],
        add: Callable[[bytes, VersionEntry, int], bool],
    ) -> None:
        if offset == 0 and not add_dot(b".", ino, stat.S_IFDIR, 1):
            return
        if offset <= 1 and not add_dot(b"..", self.versions.get(ino).parent, stat.S_IFDIR, _DOTS):
            return
        start = max(offset - _DOTS, 0)
        for index, (name, entry) in enumerate(self.versions.list(ino)[start:], start):
            if not add(name, entry, index + 1 + _DOTS):
                return

    def open(self, request: Request, ino: int, flags: int) -> Opened | Later:
        if not _is_version(ino):
            return super().open(request, ino, flags)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise failure(errno.EROFS)
        return Opened(self.versions.open(ino), keep_cache=True)

    def read(self, request: Request, ino: int, fh: int, offset: int, size: int) -> bytes | Later:
        if not _is_version(ino):
            return super().read(request, ino, fh, offset, size)
        reader = self.versions.reader(fh)
        self._prepare_to_fetch(request)
        return self._later(request, lambda: reader.read(offset, size))

    def release(self, request: Request, ino: int, fh: int, flags: int) -> None:
        if _is_version(ino):
            self.versions.release(fh)
        else:
            super().release(request, ino, fh, flags)

    def lseek(self, request: Request, ino: int, fh: int, offset: int, whence: int) -> int | Later:
        if not _is_version(ino):
            return super().lseek(request, ino, fh, offset, whence)
        size = self.versions.reader(fh).size
        if not 0 <= offset < size:
            raise failure(errno.ENXIO)
        return offset if whence == os.SEEK_DATA else size

    def _later(self, request: Request, work: Callable[[], object]) -> Later:
        self._workers.submit(self._answer_later, request, work)
        return LATER

    # -- changing --------------------------------------------------------------------------------

    def _is_reserved(self, request: Request, parent: int, name: bytes) -> bool:
        """Whether the name is that of the past, and not of a node that has had it for longer."""
        if parent != ROOT_INO or name != HISTORY_NAME or self.echoes.is_one(request):
            return False
        with self._state.transaction() as tx:
            return self._fs.lookup(tx, parent, name) is None

    def _require_free(self, request: Request, parent: int, name: bytes) -> None:
        """Raise OSError unless something may be made under the name."""
        _require_present(parent)
        if self._is_reserved(request, parent, name):
            raise failure(errno.EEXIST)

    def _require_own(self, request: Request, parent: int, name: bytes) -> None:
        """Raise OSError unless what has the name may be removed."""
        _require_present(parent)
        if self._is_reserved(request, parent, name):
            raise failure(errno.EPERM)

    def mknod(self, request: Request, parent: int, name: bytes, mode: int, rdev: int) -> Entry | Later:
        self._require_free(request, parent, name)
        return super().mknod(request, parent, name, mode, rdev)

    def mkdir(self, request: Request, parent: int, name: bytes, mode: int) -> Entry | Later:
        self._require_free(request, parent, name)
        return super().mkdir(request, parent, name, mode)

    def symlink(self, request: Request, target: bytes, parent: int, name: bytes) -> Entry | Later:
        self._require_free(request, parent, name)
        return super().symlink(request, target, parent, name)

    def link(self, request: Request, ino: int, new_parent: int, new_name: bytes) -> Entry | Later:
        _require_present(ino)
        self._require_free(request, new_parent, new_name)
        return super().link(request, ino, new_parent, new_name)

    def create(
        self, request: Request, parent: int, name: bytes, mode: int, flags: int
    ) -> tuple[Entry, Opened] | Later:
        if parent == ROOT_INO or _is_version(parent):
            self._require_free(request, parent, name)
        return super().create(request, parent, name, mode, flags)

    def unlink(self, request: Request, parent: int, name: bytes) -> None:
        if parent == ROOT_INO or _is_version(parent):
            self._require_own(request, parent, name)
        super().unlink(request, parent, name)

    def rmdir(self, request: Request, parent: int, name: bytes) -> None:
        self._require_own(request, parent, name)
        super().rmdir(request, parent, name)

    def rename(
        self, request: Request, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> Later | None:
        if parent == ROOT_INO or new_parent == ROOT_INO or _is_version(parent) or _is_version(new_parent):
            self._require_own(request, parent, name)
            self._require_free(request, new_parent, new_name)
        return super().rename(request, parent, name, new_parent, new_name, flags)

    def setattr(
        self, request: Request, ino: int, attributes: Attributes, to_set: int, fh: int | None
    ) -> tuple[Attributes, float] | Later:
        _require_present(ino)
        return super().setattr(request, ino, attributes, to_set, fh)

    def setxattr(self, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> Later | None:
        _require_present(ino)
        return super().setxattr(request, ino, name, value, flags)

    def removexattr(self, request: Request, ino: int, name: bytes) -> None:
        _require_present(ino)
        super().removexattr(request, ino, name)


def _is_version(ino: int) -> bool:
    return HISTORY_INO <= ino < HIDDEN_INO


def _require_present(ino: int) -> None:
    """Raise OSError for a node of the past, which cannot be changed."""
    if _is_version(ino):
        raise failure(errno.EROFS)


def _attributes(entry: VersionEntry) -> fuse.Attributes:
    """What stat(2) shows."""
    node, attr = entry.node, entry.node.attr
    size = len(attr.target) if stat.S_ISLNK(attr.mode) else size_of(node.content)
    return fuse.Attributes(
        entry.ino,
        attr.mode,
        node.links,
        attr.uid,
        attr.gid,
        attr.rdev,
        size,
        -(-size // _SECTOR),
        attr.mtime,
        attr.mtime,
        attr.mtime,
        BLOCK,
    )
