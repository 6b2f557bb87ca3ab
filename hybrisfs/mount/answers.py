"""Answers to the kernel: attributes of nodes, extended attributes, listings of directories."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from typing import Final

from hybrisfs.errors import failure
from hybrisfs.fuse import Attributes, Entry, Listing, ListingPlus, Request, StatVfs, records
from hybrisfs.mount.programs import has_capability, is_in_group
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import newest_name
from hybrisfs.state.state import Transaction
from hybrisfs.tree import acl
from hybrisfs.tree.content import BLOCK
from hybrisfs.tree.filesystem import FileSystem, Space
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.residency import Residency

__all__ = [
    "FOREVER",
    "ExtendedAttributes",
    "KnownDirectories",
    "Listings",
    "attributes_of",
    "change_attributes",
    "clear_privileges",
    "kills_by_allocating",
    "list_entries",
    "list_names",
    "sized",
    "statvfs_of",
]

# The kernel may keep answers for long: it is notified of changes that do not come through this mount.
FOREVER: Final = 86400.0


def attributes_of(inode: Inode) -> Attributes:
    """What stat(2) shows."""
    return Attributes(
        inode.ino,
        inode.mode,
        inode.nlink,
        inode.uid,
        inode.gid,
        inode.rdev,
        inode.size,
        inode.blocks,
        inode.atime,
        inode.mtime,
        inode.ctime,
        BLOCK,
    )


def change_attributes(
    tx: Transaction, fs: FileSystem, request: Request, inode: Inode, attributes: Attributes, to_set: int
) -> None:
    """Obey setattr, but for the size."""
    if to_set & _CLEARING or _changes_nothing(request, inode, to_set):
        kill = not to_set or bool(to_set & records.FATTR_KILL_SUIDGID)
        is_root = request.uid == 0 and not to_set & records.FATTR_SIZE
        clear_privileges(tx, fs, request, inode, kill=kill, is_root=is_root)
    now = fs.inodes.now()
    fs.attributes.change(
        tx,
        inode,
        mode=attributes.mode if to_set & records.FATTR_MODE else None,
        uid=attributes.uid if to_set & records.FATTR_UID else None,
        gid=attributes.gid if to_set & records.FATTR_GID else None,
        atime=now
        if to_set & records.FATTR_ATIME_NOW
        else attributes.atime_ns
        if to_set & records.FATTR_ATIME
        else None,
        mtime=now
        if to_set & records.FATTR_MTIME_NOW
        else attributes.mtime_ns
        if to_set & records.FATTR_MTIME
        else None,
    )


# -- privileges of programs that are changed ------------------------------------------------------------
# With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves it to us to clear set-id bits and security.capability
# when a file is written, truncated or given away. It says when bits are to go (unless the caller has
# CAP_FSETID; always, when a file is given away), but for fallocate(2). The attribute goes in any case.
# A setattr of nothing is chown(-1, -1), or comes before such a write: the bits go, too, when the owner does
# it. They stay when root does it, who may be writing.


_CAP_FSETID: Final = 4
_CLEARING: Final = records.FATTR_KILL_SUIDGID | records.FATTR_SIZE


def _changes_nothing(request: Request, inode: Inode, to_set: int) -> bool:
    """Whether this is the owner's setattr of nothing."""
    return not to_set and not inode.is_directory and request.uid == inode.uid != 0


def clear_privileges(
    tx: Transaction, fs: FileSystem, request: Request, inode: Inode, *, kill: bool, is_root: bool = False
) -> None:
    """The caller changes what the file does: capabilities go. With *kill*, set-id bits go, too. That of the
    group stays, as on Linux' own disks, when the group may not execute the file and the caller is a member of
    the group, or with *is_root*."""
    if not kill and not inode.xattrs:
        return
    has_group_bit = kill and inode.mode & stat.S_ISGID
    fs.attributes.clear_privileges(
        tx,
        inode,
        set_user_id=kill,
        set_group_id=bool(
            has_group_bit and (inode.mode & stat.S_IXGRP or not (is_root or _is_member(request, inode.gid)))
        ),
    )


def kills_by_allocating(request: Request, inode: Inode) -> bool:
    """Whether fallocate(2) by this caller clears the set-id bits of a file. The kernel does not say so."""
    if not inode.mode & (stat.S_ISUID | stat.S_ISGID):
        return False
    return request.uid != 0 or not has_capability(request.pid, _CAP_FSETID)


def statvfs_of(space: Space) -> StatVfs:
    """What statvfs(2) shows."""
    free = space.free // BLOCK
    return StatVfs(
        bsize=BLOCK,
        frsize=BLOCK,
        blocks=space.total // BLOCK,
        bfree=free,
        bavail=free,
        files=space.files + free,
        ffree=free,
    )


def sized(value: bytes, size: int) -> bytes | int:
    """The answer for a caller with room for *size* bytes; 0 asks how many there are. Raises OSError
    (ERANGE)."""
    if size == 0:
        return len(value)
    if len(value) > size:
        raise failure(errno.ERANGE)
    return value


# -- extended attributes as the kernel asks for them ----------------------------------------------------
# The kernel checks which users may see or change them (xattr(7)), but for two things: it shows the names of
# `trusted` ones to nobody but root only when it gets none to others, and it leaves it to us that a user who
# sets an access control list cannot make set-group-id programs of groups of which the user is not a member.


class ExtendedAttributes:
    """Reads and changes them. Methods raise OSError."""

    def __init__(self, fs: FileSystem, residency: Residency) -> None:
        self._fs = fs
        self._residency = residency

    def get(self, ino: int, name: bytes, size: int) -> bytes | int:
        with self._fs.state.transaction() as tx:
            inode = self._fs.get(tx, ino)
            value = self._residency.attribute(tx, inode, name)
            if value is None:
                value = self._fs.attributes.get_xattr(tx, inode, name)
        return sized(value, size)

    def list(self, request: Request, ino: int, size: int) -> bytes | int:
        with self._fs.state.transaction() as tx:
            names = self._fs.attributes.list_xattrs(tx, self._fs.get(tx, ino))
        if request.uid != 0:
            names = [name for name in names if not name.startswith(b"trusted.")]
        return sized(b"".join(name + b"\0" for name in names), size)

    def set(self, tx: Transaction, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> None:
        self._residency.refuse_change(name)
        inode = self._fs.get(tx, ino)
        if name in acl.NAMES:
            keeps = not inode.mode & stat.S_ISGID or _may_set_group_id(request, inode)
            self._fs.set_acl(tx, inode, name, value, keeps_set_group_id=keeps)
        else:
            self._fs.set_xattr(tx, inode, name, value, flags)

    def remove(self, ino: int, name: bytes) -> None:
        self._residency.refuse_change(name)
        with self._fs.state.transaction() as tx:
            self._fs.require_writable()
            self._fs.attributes.remove_xattr(tx, self._fs.get(tx, ino), name)


def _may_set_group_id(request: Request, inode: Inode) -> bool:
    return request.uid == 0 or _is_member(request, inode.gid)


def _is_member(request: Request, gid: int) -> bool:
    return request.gid == gid or is_in_group(request.pid, gid)


# -- listing a directory into the kernel's buffer -------------------------------------------------------
# The dots are at offsets 0 and 1; the offset behind an entry is its number in the database + `_DOTS`, so that
# a listing goes on where it was, whatever has come and gone since. It ends at the number that was the highest
# when it began (`Listings`): a program that renames everything that it reads would otherwise never be done.


_DOTS: Final = 2
_FEWEST_BYTES: Final = 40  # of an entry in a listing
_FEWEST_BYTES_PLUS: Final = 160


class KnownDirectories:
    """The directories that the kernel knows. It counts our answers about each, for we may answer again
    before we read that it has forgotten earlier answers."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}
        self._known = {ROOT_INO}

    def __contains__(self, ino: int) -> bool:
        return ino in self._known

    def told(self, ino: int, *, echo: bool = False) -> None:
        """The kernel was given the number; for an *echo*, which tells no program of the directory."""
        self._told[ino] = self._told.get(ino, 0) + 1
        if not echo:
            self._known.add(ino)

    def forgotten(self, ino: int, times: int) -> bool:
        """The kernel has forgotten the number so many times. Whether it has known the directory until now."""
        left = self._told.pop(ino, 0) - times
        if left > 0:
            self._told[ino] = left
        elif ino in self._known and ino != ROOT_INO:
            self._known.discard(ino)
            return True
        return False


class Listings:
    """Open directories, by handle, and where the listing of each ends that is under way. For one thread."""

    def __init__(self) -> None:
        self._opened = 0
        self._ends: dict[int, int] = {}

    def open(self) -> int:
        """A new handle."""
        self._opened += 1
        return self._opened

    def end(self, tx: Transaction, fs: FileSystem, handle: int, offset: int) -> int:
        """The last number to be listed; a listing that begins, or begins again, goes up to the highest
        number."""
        if offset == 0 or handle not in self._ends:
            self._ends[handle] = newest_name(tx)
        return self._ends[handle]

    def close(self, handle: int) -> None:
        self._ends.pop(handle, None)


def list_names(tx: Transaction, fs: FileSystem, ino: int, offset: int, size: int, end: int) -> Listing:
    """Names and types, as far as they fit into *size* bytes."""
    listing = Listing(size)
    _list(
        tx,
        fs,
        ino,
        (offset, end),
        size // _FEWEST_BYTES + 1,
        listing.add,
        lambda name, inode, next_offset: listing.add(name, inode.ino, inode.mode, next_offset),
    )
    return listing


def list_entries(
    tx: Transaction,
    fs: FileSystem,
    ino: int,
    offset: int,
    size: int,
    end: int,
    entry: Callable[[Inode], Entry],
    told: Callable[[Inode], None],
) -> ListingPlus:
    """Likewise, with the *entry* of each node, of which the kernel is *told* by that."""
    listing = ListingPlus(size)

    def add(name: bytes, inode: Inode, next_offset: int) -> bool:
        if not listing.add(name, entry(inode), next_offset):
            return False
        told(inode)
        return True

    _list(
        tx,
        fs,
        ino,
        (offset, end),
        size // _FEWEST_BYTES_PLUS + 1,
        listing.add_name,
        add,
    )
    return listing


def _list(
    tx: Transaction,
    fs: FileSystem,
    ino: int,
    between: tuple[int, int],
    limit: int,
    add_dot: Callable[[bytes, int, int, int], bool],
    add: Callable[[bytes, Inode, int], bool],
) -> None:
    offset, end = between
    if offset == 0 and not add_dot(b".", ino, stat.S_IFDIR, 1):
        return
    if offset <= 1 and not add_dot(b"..", tx.places.parent_of(ino), stat.S_IFDIR, _DOTS):
        return
    for number, name, inode in fs.names.list(tx, ino, max(offset - _DOTS, 0), limit):
        if number > end or not add(name, inode, number + _DOTS):
            return
