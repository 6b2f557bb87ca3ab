"""The namespace: the names of nodes in folders. Every change marks the registers it changes."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterable
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.errors import failure
from hybrisfs.registers.tree import MAX_NAME, MAX_TARGET, attr_key, content_key, place_key
from hybrisfs.state.nodes import PlaceRow
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.borders import Borders
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode, InodeTable, Intent

__all__ = ["RENAME_EXCHANGE", "RENAME_NOREPLACE", "Names"]

RENAME_NOREPLACE: Final = 1
RENAME_EXCHANGE: Final = 2


class Names:
    """Lookup, creation, removal and renaming."""

    def __init__(
        self,
        environment: Environment,
        inodes: InodeTable,
        changes: Changes,
        borders: Borders,
    ) -> None:
        self._random_bytes = environment.random_bytes
        self._borders = borders
        self._inodes = inodes
        self._changes = changes
        self.nameless = Topic[[Transaction, Inode]]()
        """A node has lost its last name."""
        self.moved = Topic[[Inode]]()
        """A program has given a node another name."""

    # -- reading ---------------------------------------------------------------------------------

    def inode(self, tx: Transaction, ino: int) -> Inode:
        try:
            return self._inodes.get(tx, ino)
        except KeyError:
            raise failure(errno.ESTALE) from None

    def directory(self, tx: Transaction, ino: int) -> Inode:
        inode = self.inode(tx, ino)
        if not inode.is_directory:
            raise failure(errno.ENOTDIR)
        return inode

    def find(self, tx: Transaction, parent: int, name: bytes) -> Inode | None:
        """The node called *name* in *parent*, or None."""
        place = tx.places.find(parent, name)
        return self.inode(tx, place[0]) if place else None

    def list(self, tx: Transaction, parent: int, after: int, limit: int) -> list[tuple[int, bytes, Inode]]:
        """Up to *limit* entries as (number, name, node), those whose numbers come after *after*."""
        self._inodes.trim()
        rows = tx.places.listing(parent, after, limit)
        # A node made since the last flush has no row yet, but then it is in memory.
        adopt, get = self._inodes.adopt, self._inodes.get
        return [
            (row[0], row[1], adopt(tx, row[3:]) if row[3] is not None else get(tx, row[2])) for row in rows
        ]

    def _require(self, tx: Transaction, parent: int, name: bytes) -> PlaceRow:
        place = tx.places.find(parent, name)
        if place is None:
            raise failure(errno.ENOENT)
        return place

    # -- adding ----------------------------------------------------------------------------------

    def create(
        self,
        tx: Transaction,
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
        directory = self._require_living_directory(tx, parent)
        _check_name(name)
        if target is not None and len(target) > MAX_TARGET:
            raise failure(errno.ENAMETOOLONG)
        if tx.places.find(parent, name) is not None:
            raise failure(errno.EEXIST)
        inode = self._new_node(tx, directory, mode, uid, gid, rdev, target)
        self._insert(tx, directory, name, inode, 0, 0)
        self._changes.mark(attr_key(inode.id), inode.ino)
        return inode

    def create_nameless(self, tx: Transaction, parent: int, mode: int, uid: int, gid: int) -> Inode:
        """A new file as it would be in *parent*; `link` can give it a name while it is open."""
        inode = self._new_node(tx, self._require_living_directory(tx, parent), mode, uid, gid)
        inode.nlink = 0
        inode.orphan = inode.linkable = True
        return inode

    def _new_node(
        self,
        tx: Transaction,
        directory: Inode,
        mode: int,
        uid: int,
        gid: int,
        rdev: int = 0,
        target: bytes | None = None,
    ) -> Inode:
        self._borders.require_entry(tx, directory.id)
        if directory.mode & stat.S_ISGID:
            gid = directory.gid
            if stat.S_ISDIR(mode):
                mode |= stat.S_ISGID
        return self._inodes.create(tx, mode, uid, gid, rdev, target, self._borders.inside(tx, directory.id))

    def link(self, tx: Transaction, ino: int, parent: int, name: bytes) -> Inode:
        """A further name of a node that is not a directory, or the first one of a file made without."""
        inode = self.inode(tx, ino)
        directory = self._require_living_directory(tx, parent)
        _check_name(name)
        if inode.is_directory:
            raise failure(errno.EPERM)
        if inode.orphan and not inode.linkable:
            raise failure(errno.ENOENT)
        if tx.places.find(parent, name) is not None:
            raise failure(errno.EEXIST)
        standing = None if inode.linkable else self._inodes.find(tx, tx.places.parent_of(ino))
        self._borders.require_name(tx, inode.id, None if standing is None else standing.id, directory.id)
        self._inodes.intend(tx, inode, Intent.CHANGE)
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
        self._insert(tx, directory, name, inode, slot, 0)
        return inode

    def _require_living_directory(self, tx: Transaction, ino: int) -> Inode:
        directory = self.directory(tx, ino)
        if directory.orphan:
            raise failure(errno.ENOENT)
        return directory

    def _insert(
        self,
        tx: Transaction,
        directory: Inode,
        name: bytes,
        inode: Inode,
        slot: int,
        stamp: int,
        number: int | None = None,
    ) -> None:
        self._put(tx, directory, name, inode, slot, stamp, number)
        self._changed_entries(tx, directory, (name,), _links_to_parent(inode))

    def _put(
        self,
        tx: Transaction,
        directory: Inode,
        name: bytes,
        inode: Inode,
        slot: int,
        stamp: int,
        number: int | None,
    ) -> None:
        tx.places.insert(directory.ino, name, inode.ino, slot, stamp, number)
        self._changes.mark(place_key(inode.id, slot), inode.ino)

    def _changed_entries(
        self, tx: Transaction, directory: Inode, names: Iterable[bytes], subdirectories: int
    ) -> None:
        """Names have come to a directory or gone from it, and with them so many *subdirectories*."""
        directory.nlink += subdirectories
        for name in names:
            self._inodes.disturbed.add((directory.ino, name))
        self._inodes.touch(directory)
        # A contributor does not change its folder itself.
        borders = self._borders
        if borders.limits is None or borders.may_change(tx, self._inodes.shown_as(tx, directory)):
            directory.mtime = directory.ctime = self._inodes.now()
            self._changes.mark(attr_key(directory.id), directory.ino)

    # -- removing --------------------------------------------------------------------------------

    def unlink(self, tx: Transaction, parent: int, name: bytes) -> None:
        place = self._require(tx, parent, name)
        inode = self.inode(tx, place[0])
        if inode.is_directory:
            raise failure(errno.EISDIR)
        self._remove(tx, self.directory(tx, parent), name, inode, place)

    def rmdir(self, tx: Transaction, parent: int, name: bytes) -> None:
        place = self._require(tx, parent, name)
        inode = self.inode(tx, place[0])
        if not inode.is_directory:
            raise failure(errno.ENOTDIR)
        self._require_empty(tx, inode.ino)
        self._remove(tx, self.directory(tx, parent), name, inode, place)

    def _require_empty(self, tx: Transaction, ino: int) -> None:
        if not tx.places.is_empty(ino):
            raise failure(errno.ENOTEMPTY)

    def _remove(self, tx: Transaction, directory: Inode, name: bytes, inode: Inode, place: PlaceRow) -> None:
        """Take a name away, and the node with it when it was the last."""
        ino, slot, stamp, number = place
        self._borders.require_entry(tx, directory.id)
        self._inodes.intend(tx, inode, Intent.REMOVE)
        tx.places.remove(number)
        self._changes.retire(place_key(inode.id, slot), ino, stamp=stamp)
        self._changed_entries(tx, directory, (name,), -_links_to_parent(inode))
        inode.ctime = self._inodes.now()
        inode.nlink -= 2 if inode.is_directory else 1
        if inode.nlink > 0:
            self._inodes.touch(inode)
            return
        inode.nlink = 0
        inode.orphan = True
        self._changes.drop(attr_key(inode.id))
        self._changes.drop(content_key(inode.id))
        self.nameless(tx, inode)

    # -- renaming --------------------------------------------------------------------------------

    def rename(
        self, tx: Transaction, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0
    ) -> None:
        """rename(2) with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        if flags not in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
            raise failure(errno.EINVAL)
        source = self._require(tx, parent, name)
        target = tx.places.find(new_parent, new_name)
        _check_name(new_name)
        new_dir = self._require_living_directory(tx, new_parent)
        old_dir = new_dir if parent == new_parent else self.directory(tx, parent)
        moved = self.inode(tx, source[0])
        self._require_move(tx, moved, old_dir, new_dir)
        if target is not None:
            self._require_move(tx, self.inode(tx, target[0]), new_dir, old_dir)
        if flags == RENAME_EXCHANGE:
            if target is None:
                raise failure(errno.ENOENT)
            self._exchange(tx, old_dir, name, source, new_dir, new_name, target)
            return
        if target is not None and flags == RENAME_NOREPLACE:
            raise failure(errno.EEXIST)
        if target is not None:
            if target[0] == source[0]:
                return  # two names of one file: POSIX says do nothing
            self._require_replaceable(tx, moved, self.inode(tx, target[0]))
        self._require_outside(tx, moved, new_parent)
        replaced = number = None
        if target is not None:
            self._inodes.rely_on(tx, moved)
            former = self.inode(tx, target[0])
            _stand_for(moved, former)
            replaced = place_key(former.id, target[1])
            number = target[3]
            self._remove(tx, new_dir, new_name, former, target)
        source = self._about_to_move(tx, moved, source)
        tx.places.remove(source[3])
        self._put(tx, new_dir, new_name, moved, source[1], source[2], number)
        if old_dir is new_dir:
            self._changed_entries(tx, new_dir, (name, new_name), 0)
        else:
            subdirectories = _links_to_parent(moved)
            self._changed_entries(tx, old_dir, (name,), -subdirectories)
            self._changed_entries(tx, new_dir, (new_name,), subdirectories)
        if replaced is not None:
            self._changes.tie(replaced)
        self._moved(moved)

    def _exchange(
        self,
        tx: Transaction,
        one_dir: Inode,
        one: bytes,
        first: PlaceRow,
        two_dir: Inode,
        two: bytes,
        second: PlaceRow,
    ) -> None:
        if first[0] == second[0]:
            return  # two names of one file, or one name twice
        left, right = self.inode(tx, first[0]), self.inode(tx, second[0])
        self._require_outside(tx, left, two_dir.ino)
        self._require_outside(tx, right, one_dir.ino)
        for moved, former in ((left, right), (right, left)):
            self._inodes.rely_on(tx, moved)
            _stand_for(moved, former)
        first, second = self._about_to_move(tx, left, first), self._about_to_move(tx, right, second)
        tx.places.remove(first[3])
        tx.places.remove(second[3])
        self._changed_entries(tx, one_dir, (one,), -_links_to_parent(left))
        self._changed_entries(tx, two_dir, (two,), -_links_to_parent(right))
        self._insert(tx, one_dir, one, right, second[1], second[2], first[3])
        self._insert(tx, two_dir, two, left, first[1], first[2], second[3])
        self._changes.tie(place_key(right.id, second[1]))
        self._moved(left)
        self._moved(right)

    def _about_to_move(self, tx: Transaction, inode: Inode, place: PlaceRow) -> PlaceRow:
        """The place, once nothing else hangs on it: then it may be one that no update has named."""
        self._inodes.intend(tx, inode, Intent.MOVE)
        return place if inode.attr_stamp else (place[0], place[1], 0, place[3])

    def _moved(self, inode: Inode) -> None:
        inode.ctime = self._inodes.now()
        # What stands under a new name must not be published without its bytes.
        inode.forced = True
        self._inodes.touch(inode)
        self.moved(inode)

    def _require_replaceable(self, tx: Transaction, moved: Inode, target: Inode) -> None:
        if target.is_directory:
            if not moved.is_directory:
                raise failure(errno.EISDIR)
            self._require_empty(tx, target.ino)
        elif moved.is_directory:
            raise failure(errno.ENOTDIR)

    def _require_move(self, tx: Transaction, moved: Inode, old: Inode, new: Inode) -> None:
        if self._borders.folders:
            self._borders.require_move(tx, self._inodes.shown_as(tx, moved), old.id, new.id)

    def _require_outside(self, tx: Transaction, moved: Inode, directory: int) -> None:
        """A directory may not move into itself."""
        if moved.is_directory and moved.ino in (directory, *tx.places.above(directory)):
            raise failure(errno.EINVAL)


def _links_to_parent(inode: Inode) -> int:
    """How many links a directory has from this node in it."""
    return 1 if inode.is_directory else 0


def _stand_for(inode: Inode, former: Inode) -> None:
    """A node takes the place of another: if other devices know that one, they must not see it go and nothing
    come."""
    if former.attr_stamp:
        inode.keep_synced()


def _check_name(name: bytes) -> None:
    if len(name) > MAX_NAME:
        raise failure(errno.ENAMETOOLONG)
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise failure(errno.EINVAL)
