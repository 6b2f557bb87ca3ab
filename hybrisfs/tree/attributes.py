"""Attributes of nodes: mode, owner, times, extended attributes.

`user.hybrisfs.labels` is not an extended attribute of the node's attributes: its value is the node's labels
(`hybrisfs.tree.facets`). The kernel allows it on regular files and directories only, so that it is listed of
these.
"""

from __future__ import annotations

import errno
import stat
from typing import Final

from hybrisfs.errors import failure
from hybrisfs.registers.served import VIA_XATTR
from hybrisfs.registers.tree import (
    MAX_NAME,
    MAX_XATTR_VALUE,
    MAX_XATTRS,
    MAX_XATTRS_SIZE,
    Attr,
    attr_key,
)
from hybrisfs.state.state import Transaction
from hybrisfs.tree import acl
from hybrisfs.tree.acl import Acl
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.facets import LABELS_XATTR, Labels
from hybrisfs.tree.inodes import Inode, InodeTable, Intent

__all__ = ["XATTR_CREATE", "XATTR_REPLACE", "Attributes"]

XATTR_CREATE: Final = 1
XATTR_REPLACE: Final = 2
_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")
_CAPABILITY: Final = b"security.capability"
_FIRST_TIME: Final = -(1 << 63)  # what the database and an update can hold, in nanoseconds: the year 1677
_LAST_TIME: Final = (1 << 63) - 1  # the year 2262


class Attributes:
    """Reads and changes attributes."""

    def __init__(self, inodes: InodeTable, changes: Changes, labels: Labels) -> None:
        self._inodes = inodes
        self._changes = changes
        self._labels = labels

    def change(
        self,
        tx: Transaction,
        inode: Inode,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime: int | None = None,
        mtime: int | None = None,
    ) -> None:
        """Set all that are not None; times are nanoseconds since the epoch.

        A time that cannot be kept becomes the nearest that can, as Linux has its own filesystems do.
        """
        self._inodes.intend(tx, inode, Intent.CHANGE)
        if mode is not None:
            inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
        if uid is not None:
            inode.uid = uid
        if gid is not None:
            inode.gid = gid
        if atime is not None:
            inode.atime = _nearest_time(atime)
        if mtime is not None:
            inode.mtime = _nearest_time(mtime)
        self._changed(inode)

    def clear_privileges(
        self, tx: Transaction, inode: Inode, *, set_user_id: bool, set_group_id: bool
    ) -> None:
        """Take the file's capabilities(7), and these of its set-id bits."""
        gone = stat.S_ISUID * set_user_id | stat.S_ISGID * set_group_id
        is_capable = self._value(tx, inode, _CAPABILITY) is not None
        if not (inode.mode & gone or is_capable):
            return
        self._inodes.intend(tx, inode, Intent.CHANGE)
        inode.mode &= ~gone
        if is_capable:
            self._remove(tx, inode, _CAPABILITY)
        self._changed(inode)

    def _changed(self, inode: Inode) -> None:
        inode.ctime = self._inodes.now()
        self._inodes.touch(inode)
        if not inode.orphan:
            self._changes.mark(attr_key(inode.id), inode.ino)

    def record(self, tx: Transaction, inode: Inode) -> Attr:
        """The value of the node's attr register."""
        xattrs = tuple(tx.nodes.xattrs(inode.ino)) if inode.xattrs else ()
        return Attr(inode.mode, inode.uid, inode.gid, inode.rdev, inode.mtime, inode.target or b"", xattrs)

    # -- extended attributes ---------------------------------------------------------------------

    def get_xattr(self, tx: Transaction, inode: Inode, name: bytes) -> bytes:
        if name in acl.NAMES:
            found = self._acl(tx, inode, name)
            value = found.encode() if found else None
        elif name == LABELS_XATTR:
            value = self._labels.text(tx, inode)
        else:
            _check_name(name)
            value = self._value(tx, inode, name)
        if value is None:
            raise failure(errno.ENODATA)
        return value

    def _value(self, tx: Transaction, inode: Inode, name: bytes) -> bytes | None:
        return tx.nodes.xattr(inode.ino, name) if inode.xattrs else None

    def list_xattrs(self, tx: Transaction, inode: Inode) -> list[bytes]:
        names = [name for name in self._kept(tx, inode) if name != VIA_XATTR]
        if (inode.is_file or inode.is_directory) and self._labels.of(tx, inode):
            names.append(LABELS_XATTR)
        return names

    def _kept(self, tx: Transaction, inode: Inode) -> list[bytes]:
        return tx.nodes.xattr_names(inode.ino) if inode.xattrs else []

    def set_xattr(self, tx: Transaction, inode: Inode, name: bytes, value: bytes, flags: int) -> None:
        """Set one that is not an access control list."""
        _check_name(name)
        if name == LABELS_XATTR:
            _require_allowed(flags, exists=bool(self._labels.of(tx, inode)))
            self._labels.set_text(tx, inode, value)
            return
        self._require_room(tx, inode, name, value, flags)
        self._inodes.intend(tx, inode, Intent.CHANGE)
        self._store(tx, inode, name, value)
        self._changed(inode)

    def _require_room(self, tx: Transaction, inode: Inode, name: bytes, value: bytes, flags: int = 0) -> None:
        if len(name) > MAX_NAME:
            raise failure(errno.ERANGE)
        if len(value) > MAX_XATTR_VALUE:
            raise failure(errno.E2BIG)
        exists = name in self._kept(tx, inode)
        _require_allowed(flags, exists=exists)
        if not exists and inode.xattrs >= MAX_XATTRS:
            raise failure(errno.ENOSPC)
        others = tx.nodes.size_of_xattrs(inode.ino, but=name)
        if others + len(name) + len(value) > MAX_XATTRS_SIZE:
            raise failure(errno.ENOSPC)

    def _store(self, tx: Transaction, inode: Inode, name: bytes, value: bytes) -> None:
        self._remove(tx, inode, name)
        tx.nodes.add_xattr(inode.ino, name, value)
        inode.xattrs += 1

    def remove_xattr(self, tx: Transaction, inode: Inode, name: bytes) -> None:
        """The mode stays what it is, also when the access control list goes. No list is none to be missed."""
        if name in acl.NAMES and self._acl(tx, inode, name) is None:
            return
        self.get_xattr(tx, inode, name)
        if name == LABELS_XATTR:
            self._labels.set_text(tx, inode, b"")
            return
        self._inodes.intend(tx, inode, Intent.CHANGE)
        self._remove(tx, inode, name)
        self._changed(inode)

    def _remove(self, tx: Transaction, inode: Inode, name: bytes) -> None:
        if inode.xattrs and tx.nodes.remove_xattr(inode.ino, name):
            inode.xattrs -= 1

    def discard(self, tx: Transaction, inode: Inode) -> None:
        if inode.xattrs:
            tx.nodes.clear_xattrs(inode.ino)

    # -- access control lists --------------------------------------------------------------------

    def set_acl(
        self, tx: Transaction, inode: Inode, name: bytes, value: bytes, *, keeps_set_group_id: bool
    ) -> None:
        """Set the access control list, with which the mode changes, or a directory's default one.

        Unless *keeps_set_group_id* the file is no longer a set-group-id program: as with chmod, a user that
        is not in its group cannot make it one. Raises OSError, EINVAL for what is not a valid list.
        """
        try:
            wanted = Acl.decode(value)
        except ValueError:
            raise failure(errno.EINVAL) from None
        if name == acl.DEFAULT and not inode.is_directory:
            raise failure(errno.EACCES)
        stored = name == acl.DEFAULT or not wanted.is_minimal
        if stored:
            self._require_room(tx, inode, name, value)
        self._inodes.intend(tx, inode, Intent.CHANGE)
        if name == acl.ACCESS:
            inode.mode = inode.mode & ~0o777 | wanted.permissions
            if not keeps_set_group_id:
                inode.mode &= ~stat.S_ISGID
        if stored:
            self._store(tx, inode, name, value)
        else:
            self._remove(tx, inode, name)
        self._changed(inode)

    def default_acl(self, tx: Transaction, directory: Inode) -> Acl | None:
        """Nodes made in *directory* inherit this."""
        return self._acl(tx, directory, acl.DEFAULT)

    def inherit(self, tx: Transaction, inode: Inode, default: Acl) -> None:
        """Let a new node have the lists that follow from the default one of its directory."""
        if not default.is_minimal:
            self._store(tx, inode, acl.ACCESS, default.encode())
        if inode.is_directory:
            self._store(tx, inode, acl.DEFAULT, default.encode())

    def _acl(self, tx: Transaction, inode: Inode, name: bytes) -> Acl | None:
        """The access list, adjusted to the mode; None also when another device wrote an invalid one."""
        value = self._value(tx, inode, name)
        try:
            found = Acl.decode(value) if value is not None else None
        except ValueError:
            return None
        return found.with_mode(inode.mode) if found and name == acl.ACCESS else found


def _nearest_time(time: int) -> int:
    return min(max(time, _FIRST_TIME), _LAST_TIME)


def _require_allowed(flags: int, *, exists: bool) -> None:
    if exists and flags & XATTR_CREATE:
        raise failure(errno.EEXIST)
    if not exists and flags & XATTR_REPLACE:
        raise failure(errno.ENODATA)


def _check_name(name: bytes) -> None:
    """Raise OSError unless attributes can have the name."""
    if not name.startswith(_NAMESPACES):
        raise failure(errno.EOPNOTSUPP)
    if name in _NAMESPACES:
        raise failure(errno.EINVAL)
