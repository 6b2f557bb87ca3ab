"""The namespace: the names of nodes in folders. Every change marks the registers it changes."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from typing import Final

from hybrisfs.errors import failure
from hybrisfs.registers.tree import MAX_NAME, MAX_TARGET, attr_key, content_key, place_key
from hybrisfs.state.database import Database
from hybrisfs.state.places import PlaceRow, PlaceTable
from hybrisfs.tree.borders import Borders
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode, InodeTable, Intent

__all__ = ["RENAME_EXCHANGE", "RENAME_NOREPLACE", "Names"]

RENAME_NOREPLACE: Final = 1
RENAME_EXCHANGE: Final = 2


class Names:
    """Lookup, creation, removal and renaming. *discard* gets each node that lost its last name."""

    def __init__(
        self,
        database: Database,
        places: PlaceTable,
        inodes: InodeTable,
        changes: Changes,
        borders: Borders,
        discard: Callable[[Inode], None],
    ) -> None:
        self._places = places
        self._random_bytes = database.environment.random_bytes
        self._borders = borders
        self._inodes = inodes
        self._changes = changes
        self._discard = discard

    # -- reading ---------------------------------------------------------------------------------

    def inode(self, ino: int) -> Inode:
        try:
            return self._inodes.get(ino)
        except KeyError:
            raise failure(errno.ESTALE) from None

    def directory(self, ino: int) -> Inode:
        inode = self.inode(ino)
        if not inode.is_directory:
            raise failure(errno.ENOTDIR)
        return inode

    def find(self, parent: int, name: bytes) -> Inode | None:
        """The node called *name* in *parent*, or None."""
        place = self._places.find(parent, name)
        return self.inode(place[0]) if place else None

    def list(self, parent: int, after: int, limit: int) -> list[tuple[int, bytes, Inode]]:
        """Up to *limit* entries as (number, name, node), those whose numbers come after *after*."""
        self._inodes.trim()
        rows = self._places.listing(parent, after, limit)
        # A node made since the last flush has no row yet, but then it is in memory.
        adopt, get = self._inodes.adopt, self._inodes.get
        return [(row[0], row[1], adopt(row[3:]) if row[3] is not None else get(row[2])) for row in rows]

    def _require(self, parent: int, name: bytes) -> PlaceRow:
        place = self._places.find(parent, name)
        if place is None:
            raise failure(errno.ENOENT)
        return place

    # -- adding ----------------------------------------------------------------------------------

    def create(
        self,
        parent: int,
        name: bytes,
        mode: int,
        uid: int,
        gid: int,
        *,
        rdev: int = 0,
        target: bytes | None = None,
    ) -> Inode:
        """A new node. Raises FileExistsError and the like."""
        directory = self._require_living_directory(parent)
        _check_name(name)
        if target is not None and len(target) > MAX_TARGET:
            raise failure(errno.ENAMETOOLONG)
        if self._places.find(parent, name) is not None:
            raise failure(errno.EEXIST)
        inode = self._new_node(directory, mode, uid, gid, rdev, target)
        self._insert(directory, name, inode, 0, 0)
        self._changes.mark(attr_key(inode.id), inode.ino)
        return inode

    def create_nameless(self, parent: int, mode: int, uid: int, gid: int) -> Inode:
        """A new file as it would be in *parent*; `link` can give it a name while it is open."""
        inode = self._new_node(self._require_living_directory(parent), mode, uid, gid)
        inode.nlink = 0
        inode.orphan = inode.linkable = True
        return inode

    def _new_node(
        self, directory: Inode, mode: int, uid: int, gid: int, rdev: int = 0, target: bytes | None = None
    ) -> Inode:
        self._borders.require_entry(directory)
        if directory.mode & stat.S_ISGID:
            gid = directory.gid
            if stat.S_ISDIR(mode):
                mode |= stat.S_ISGID
        return self._inodes.create(mode, uid, gid, rdev, target, self._borders.inside(directory))

    def link(self, ino: int, parent: int, name: bytes) -> Inode:
        """A further name of a node that is no directory, or the first one of a file made without."""
        inode = self.inode(ino)
        directory = self._require_living_directory(parent)
        _check_name(name)
        if inode.is_directory:
            raise failure(errno.EPERM)
        if inode.orphan and not inode.linkable:
            raise failure(errno.ENOENT)
        if self._places.find(parent, name) is not None:
            raise failure(errno.EEXIST)
        standing = None if inode.linkable else self._inodes.find(self._places.parent_of(ino))
        self._borders.require_name(inode, standing, directory)
        self._inodes.intend(inode, Intent.CHANGE)
        inode.nlink += 1
        inode.ctime = self._inodes.now()
        inode.forced = True
        self._inodes.touch(inode)
        slot = int.from_bytes(self._random_bytes(7)) | 1
        if inode.linkable:
            inode.orphan = inode.linkable = False
            slot = 0
            self._changes.mark(attr_key(inode.id), inode.ino)
            self._changes.mark(content_key(inode.id), inode.ino)
        self._insert(directory, name, inode, slot, 0)
        return inode

    def _require_living_directory(self, ino: int) -> Inode:
        directory = self.directory(ino)
        if directory.orphan:
            raise failure(errno.ENOENT)
        return directory

    def _insert(
        self, directory: Inode, name: bytes, inode: Inode, slot: int, stamp: int, number: int | None = None
    ) -> None:
        self._places.insert(directory.ino, name, inode.ino, slot, stamp, number)
        self._changes.mark(place_key(inode.id, slot), inode.ino)
        self._changed_entries(directory, name, 1 if inode.is_directory else 0)

    def _changed_entries(self, directory: Inode, name: bytes, subdirectories: int) -> None:
        directory.nlink += subdirectories
        self._inodes.disturbed.add((directory.ino, name))
        self._inodes.touch(directory)
        if self._borders.may_change(directory):  # not that of a contributor's folder itself
            directory.mtime = directory.ctime = self._inodes.now()
            self._changes.mark(attr_key(directory.id), directory.ino)

    # -- removing --------------------------------------------------------------------------------

    def unlink(self, parent: int, name: bytes) -> None:
        place = self._require(parent, name)
        inode = self.inode(place[0])
        if inode.is_directory:
            raise failure(errno.EISDIR)
        self._remove(self.directory(parent), name, inode, place)

    def rmdir(self, parent: int, name: bytes) -> None:
        place = self._require(parent, name)
        inode = self.inode(place[0])
        if not inode.is_directory:
            raise failure(errno.ENOTDIR)
        self._require_empty(inode.ino)
        self._remove(self.directory(parent), name, inode, place)

    def _require_empty(self, ino: int) -> None:
        if not self._places.is_empty(ino):
            raise failure(errno.ENOTEMPTY)

    def _remove(self, directory: Inode, name: bytes, inode: Inode, place: PlaceRow) -> int:
        """Take a name away, and the node with it when it was the last; the number of the name."""
        ino, slot, stamp = place
        self._borders.require_entry(directory)
        self._inodes.intend(inode, Intent.REMOVE)
        number = self._places.remove_name(directory.ino, name)
        self._changes.retire(place_key(inode.id, slot), ino, stamp=stamp)
        self._changed_entries(directory, name, -1 if inode.is_directory else 0)
        inode.ctime = self._inodes.now()
        inode.nlink -= 2 if inode.is_directory else 1
        if inode.nlink > 0:
            self._inodes.touch(inode)
            return number
        inode.nlink = 0
        inode.orphan = True
        self._changes.drop(attr_key(inode.id))
        self._changes.drop(content_key(inode.id))
        self._discard(inode)
        return number

    # -- renaming --------------------------------------------------------------------------------

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0) -> None:
        """rename(2) with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        if flags not in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
            raise failure(errno.EINVAL)
        source = self._require(parent, name)
        target = self._places.find(new_parent, new_name)
        _check_name(new_name)
        old_dir, new_dir = self.directory(parent), self._require_living_directory(new_parent)
        moved = self.inode(source[0])
        self._borders.require_move(moved, old_dir, new_dir)
        if target is not None:
            self._borders.require_move(self.inode(target[0]), new_dir, old_dir)
        if flags == RENAME_EXCHANGE:
            if target is None:
                raise failure(errno.ENOENT)
            self._exchange(old_dir, name, source, new_dir, new_name, target)
            return
        if target is not None and flags == RENAME_NOREPLACE:
            raise failure(errno.EEXIST)
        if target is not None:
            if target[0] == source[0]:
                return  # two names of one file: POSIX says do nothing
            self._require_replaceable(moved, self.inode(target[0]))
        self._require_outside(moved, new_parent)
        replaced = number = None
        if target is not None:
            replaced = place_key(self.inode(target[0]).id, target[1])
            number = self._remove(new_dir, new_name, self.inode(target[0]), target)
        source = self._about_to_move(moved, source)
        self._places.remove_name(old_dir.ino, name)
        self._changed_entries(old_dir, name, -1 if moved.is_directory else 0)
        self._insert(new_dir, new_name, moved, source[1], source[2], number)
        if replaced is not None:
            self._changes.tie(replaced)
        self._moved(moved)

    def _exchange(
        self, one_dir: Inode, one: bytes, first: PlaceRow, two_dir: Inode, two: bytes, second: PlaceRow
    ) -> None:
        if first[0] == second[0]:
            return  # two names of one file, or one name twice
        left, right = self.inode(first[0]), self.inode(second[0])
        self._require_outside(left, two_dir.ino)
        self._require_outside(right, one_dir.ino)
        first, second = self._about_to_move(left, first), self._about_to_move(right, second)
        numbers = self._places.remove_name(one_dir.ino, one), self._places.remove_name(two_dir.ino, two)
        self._changed_entries(one_dir, one, -1 if left.is_directory else 0)
        self._changed_entries(two_dir, two, -1 if right.is_directory else 0)
        self._insert(one_dir, one, right, second[1], second[2], numbers[0])
        self._insert(two_dir, two, left, first[1], first[2], numbers[1])
        self._changes.tie(place_key(right.id, second[1]))
        self._moved(left)
        self._moved(right)

    def _about_to_move(self, inode: Inode, place: PlaceRow) -> PlaceRow:
        """The place, once nothing else hangs on it: then it may be one that no update has named."""
        self._inodes.intend(inode, Intent.MOVE)
        return place if inode.attr_stamp else (place[0], place[1], 0)

    def _moved(self, inode: Inode) -> None:
        inode.ctime = self._inodes.now()
        # What stands under a new name must not be published without its bytes.
        inode.forced = True
        self._inodes.touch(inode)

    def _require_replaceable(self, moved: Inode, target: Inode) -> None:
        if target.is_directory:
            if not moved.is_directory:
                raise failure(errno.EISDIR)
            self._require_empty(target.ino)
        elif moved.is_directory:
            raise failure(errno.ENOTDIR)

    def _require_outside(self, moved: Inode, directory: int) -> None:
        """A directory may not move into itself."""
        if moved.is_directory and moved.ino in (directory, *self._places.above(directory)):
            raise failure(errno.EINVAL)


def _check_name(name: bytes) -> None:
    if len(name) > MAX_NAME:
        raise failure(errno.ENAMETOOLONG)
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise failure(errno.EINVAL)
