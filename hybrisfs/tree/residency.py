"""Where the content of a file is: the extended attributes that programs read it from.

`user.hybrisfs.state`, of regular files:

conflict    it is shown under a conflict name, or concurrent versions of it are shown beside it;
local       something of it (bytes, attributes or a name) is not on the clouds, and nothing brings it there
            now: a program has it open for writing, or too few clouds can be reached;
uploading   something of it is not on the clouds, but waits for its turn or is on its way; also while another
            device has yet to tell that what it made has arrived there;
cloud-only  all of it is on the clouds, and some of its bytes are not on this device: reading fetches them;
durable     all of it is on f+k clouds and on this device.

The first that holds is the one shown. `user.hybrisfs.pinned`, of files and folders: `yes`, `inherited` (a
folder above it is pinned) or `no`.

Both are computed when asked for. They are not listed, so that no copying program carries them along, and
cannot be set or removed.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import Final, Protocol

from hybrisfs.errors import failure
from hybrisfs.registers.tree import pack_key
from hybrisfs.state.file_chunks import packs_of_file, whereabouts
from hybrisfs.state.shown_nodes import is_in_conflict
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["PINNED_XATTR", "STATE_XATTR", "CloudHealth", "Residency", "State"]

STATE_XATTR: Final = b"user.hybrisfs.state"
PINNED_XATTR: Final = b"user.hybrisfs.pinned"


class State(Enum):
    """Where the content of a file is, see above."""

    CONFLICT = "conflict"
    LOCAL = "local"
    UPLOADING = "uploading"
    CLOUD_ONLY = "cloud-only"
    DURABLE = "durable"


class CloudHealth(Protocol):
    """The clouds of a volume, as far as it matters here how they are."""

    def can_upload(self) -> bool:
        """Whether enough clouds are well for anything to leave this device."""


class Residency:
    """Tells where content is, under the volume's lock."""

    def __init__(self, fs: FileSystem, clouds: CloudHealth) -> None:
        self._fs = fs
        self._clouds = clouds

    def attribute(self, tx: Transaction, inode: Inode, name: bytes) -> bytes | None:
        """The value of an extended attribute of ours; None when *name* is none of them.

        Raises OSError (ENODATA) when the node has none of that name.
        """
        if name == STATE_XATTR and inode.is_file:
            return self.state(tx, inode).value.encode()
        if name == PINNED_XATTR and (inode.is_file or inode.is_directory):
            return self._fs.pins.standing(tx, inode).value.encode()
        if name in (STATE_XATTR, PINNED_XATTR):
            raise failure(errno.ENODATA)
        return None

    def refuse_change(self, name: bytes) -> None:
        """Raises OSError (EPERM) when *name* is one of ours."""
        if name in (STATE_XATTR, PINNED_XATTR):
            raise failure(errno.EPERM)

    def state(self, tx: Transaction, inode: Inode) -> State:
        """The state of a regular file."""
        self._fs.flush(tx)
        if self._is_in_conflict(tx, inode):
            return State.CONFLICT
        chunks = whereabouts(tx, inode.ino)
        if chunks.pending or tx.extents.is_staged(inode.ino) or self._is_untold(tx, inode):
            held_back = inode.writers > 0 and inode.dirty_since > 0
            return State.LOCAL if held_back or not self._clouds.can_upload() else State.UPLOADING
        if chunks.elsewhere:
            return State.UPLOADING
        if chunks.absent or self._fs.received.unlisted(tx, inode) is not None:
            return State.CLOUD_ONLY
        return State.DURABLE

    def _is_in_conflict(self, tx: Transaction, inode: Inode) -> bool:
        return inode.is_conflict_copy or is_in_conflict(tx, inode.ino, inode.id)

    def _is_untold(self, tx: Transaction, inode: Inode) -> bool:
        """Whether the clouds lack a register of the file, or the record of a pack that holds some of it."""
        pending = tx.pending
        if pending.is_node_pending(inode.id):
            return True
        untold = pending.packs()
        return bool(untold) and any(pack_key(pack) in untold for pack in packs_of_file(tx, inode.ino))
