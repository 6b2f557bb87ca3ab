"""Extended attributes as the kernel asks for them: those that are kept, access control lists, and our own.

The kernel checks which users may see or change them (xattr(7)), but for two things: it shows the names of
`trusted` ones to nobody but root only when it gets none to others, and it leaves it to us that a user who
sets an access control list cannot make set-group-id programs of groups of which the user is no member.
"""

from __future__ import annotations

from hybrisfs.fuse import Request
from hybrisfs.mount.answers import sized
from hybrisfs.mount.callers import is_in_group
from hybrisfs.state.state import Transaction
from hybrisfs.tree import acl
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.residency import Residency

__all__ = ["ExtendedAttributes"]


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
            keeps = _may_set_group_id(request, inode)
            self._fs.set_acl(tx, inode, name, value, keeps_set_group_id=keeps)
        else:
            self._fs.set_xattr(tx, inode, name, value, flags)

    def remove(self, ino: int, name: bytes) -> None:
        self._residency.refuse_change(name)
        with self._fs.state.transaction() as tx:
            self._fs.require_writable()
            self._fs.attributes.remove_xattr(tx, self._fs.get(tx, ino), name)


def _may_set_group_id(request: Request, inode: Inode) -> bool:
    if request.uid == 0 or request.gid == inode.gid:
        return True
    return is_in_group(request.pid, inode.gid)
