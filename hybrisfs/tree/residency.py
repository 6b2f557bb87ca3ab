"""Where the content of a file is: the extended attributes that programs read it from.

`user.hybrisfs.state`, of regular files, and of folders that are ignored:

ignored     an ignore rule keeps it on this device, and no cloud gets it (`hybrisfs.tree.ignored`);
conflict    it is shown under a conflict name, or concurrent versions of it are shown beside it;
local       something of it (bytes, attributes or a name) is not on the clouds, and nothing brings it there
            now: a program has it open for writing, or too few clouds can be reached;
uploading   something of it is not on the clouds, but waits for its turn or is on its way; also while another
            device has yet to tell that what it made has arrived there;
cloud-only  all of it is on the clouds, and some of its bytes are not on this device: reading fetches them;
durable     all of it is on f+k clouds and on this device.

The first that holds is the one shown. `user.hybrisfs.where`, of regular files, says where its content is:
`3 clouds, laptop, desktop`, or `no cloud yet, laptop`. Of other devices those are named that state that they
keep it.

`user.hybrisfs.pinned`, of files and folders: `yes`, `inherited` (a folder above it is pinned) or `no`.

They are computed when asked for. They are not listed, so that no copying program carries them along, and
cannot be set or removed.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from enum import Enum
from typing import Final, Protocol

from hybrisfs.errors import failure
from hybrisfs.registers.tree import pack_key
from hybrisfs.shown import shown
from hybrisfs.state.file_chunks import packs_of_file, whereabouts
from hybrisfs.state.shown_nodes import is_in_conflict
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import (
    UnplacedContent,
    held_of,
    is_any_unplaced,
    unplaced_content,
    unproven,
)
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = [
    "PINNED_XATTR",
    "STATE_XATTR",
    "WHERE_XATTR",
    "CloudHealth",
    "OtherKeepers",
    "Residency",
    "State",
    "Unplaced",
]

STATE_XATTR: Final = b"user.hybrisfs.state"
PINNED_XATTR: Final = b"user.hybrisfs.pinned"
WHERE_XATTR: Final = b"user.hybrisfs.where"
_OURS: Final = (STATE_XATTR, PINNED_XATTR, WHERE_XATTR)


class State(Enum):
    """Where the content of a file is, see above."""

    IGNORED = "ignored"
    CONFLICT = "conflict"
    LOCAL = "local"
    UPLOADING = "uploading"
    CLOUD_ONLY = "cloud-only"
    DURABLE = "durable"


class CloudHealth(Protocol):
    """The clouds of a volume, as far as it matters here how they are."""

    def can_upload(self) -> bool:
        """Whether enough clouds are well for anything to leave this device."""

    def copies(self) -> int:
        """On how many clouds files are that have no content of their own."""


class OtherKeepers(Protocol):
    """The other devices, by what they state to keep."""

    def holders(self, tx: Transaction, ino: int, parent: int, /) -> list[bytes]:
        """Those that have all of a file, which stands in the folder *parent*."""


class Residency:
    """Tells where content is, under the volume's lock."""

    def __init__(self, fs: FileSystem, clouds: CloudHealth, others: OtherKeepers) -> None:
        self._fs = fs
        self._clouds = clouds
        self._others = others

    def attribute(self, tx: Transaction, inode: Inode, name: bytes) -> bytes | None:
        """The value of an extended attribute of ours; None when *name* is none of them.

        Raises OSError (ENODATA) when the node has none of that name.
        """
        if name == STATE_XATTR and inode.is_file:
            return self.state(tx, inode).value.encode()
        if name == STATE_XATTR and inode.is_directory and self._fs.ignored.covers(tx, inode):
            return State.IGNORED.value.encode()
        if name == PINNED_XATTR and (inode.is_file or inode.is_directory):
            return self._fs.pins.standing(tx, inode).value.encode()
        if name == WHERE_XATTR and inode.is_file and not inode.orphan:
            return self._described(tx, inode).encode()
        if name in _OURS:
            raise failure(errno.ENODATA)
        return None

    def _described(self, tx: Transaction, inode: Inode) -> str:
        clouds, devices = self.places(tx, inode)
        words = f"{clouds} cloud{'' if clouds == 1 else 's'}" if clouds else "no cloud yet"
        return ", ".join([words, *(shown(tx.members.name_of(device)) for device in devices)])

    def places(self, tx: Transaction, inode: Inode) -> tuple[int, list[bytes]]:
        """On how many clouds the content of a regular file is, 0 while not all of it is on any; and the
        devices that have all of it, this one first if it has."""
        self._fs.flush(tx)
        here = whereabouts(tx, inode.ino)
        is_new = here.pending or here.elsewhere or tx.extents.is_staged(inode.ino)
        packs = [tx.packs.placement(pack) for pack in packs_of_file(tx, inode.ino)]
        clouds = min((len({*placement}) for placement in packs), default=self._clouds.copies())
        lacks = here.absent or self._fs.received.unlisted(tx, inode) is not None
        [parent, *_] = tx.places.parents_of(inode.ino)
        devices = [] if lacks else [tx.updates.device]
        return 0 if is_new else clouds, devices + self._others.holders(tx, inode.ino, parent)

    def refuse_change(self, name: bytes) -> None:
        """Raises OSError (EPERM) when *name* is one of ours."""
        if name in _OURS:
            raise failure(errno.EPERM)

    def state(self, tx: Transaction, inode: Inode) -> State:
        """The state of a regular file."""
        self._fs.flush(tx)
        if self._fs.ignored.covers(tx, inode):
            return State.IGNORED
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


# -- files that are shown here and whose bytes no cloud has ---------------------------------------------
# That is so for a moment whenever a link brings a change. It stays so when the maker reaches no cloud, or is
# lost: then a device that holds the bytes brings them to the clouds.


_SHARE: Final = 10  # of the time, at most one part in so many goes into counting


_NOTHING: Final = UnplacedContent(0, 0, ())


class Unplaced:
    """Looks at what no cloud is known to have.

    It takes time in proportion to how much that is; files that the clouds have cost nothing.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._last = _NOTHING
        self._again = 0.0

    def count(self, tx: Transaction) -> UnplacedContent:
        """As it is now; as it was counted last when counting takes so long that it may not be done again yet.

        It never says that there is nothing when there is something.
        """
        now = self._monotonic()
        if now >= self._again or not (self._last.files and self.is_left(tx)):
            self._last = self._count(tx)
            self._again = now + (self._monotonic() - now) * _SHARE
        return self._last

    def _count(self, tx: Transaction) -> UnplacedContent:
        self._fs.flush(tx)
        return unplaced_content(tx)

    def newest(self, tx: Transaction) -> int:
        """The number of the newest chunk, see `is_left`."""
        return tx.chunks.newest()

    def is_left(self, tx: Transaction, through: int | None = None) -> bool:
        """Whether there is any such content; with *through*, among the chunks up to that number."""
        self._fs.flush(tx)
        return is_any_unplaced(tx, self.newest(tx) if through is None else through)

    def unproven(self, tx: Transaction) -> list[int]:
        """See `hybrisfs.state.unplaced.unproven`."""
        return unproven(tx)

    def take_over(
        self, tx: Transaction, devices: Collection[bytes], branches: Collection[bytes] = ()
    ) -> bool:
        """Have this device bring to the clouds what it holds of the files that these devices wrote, or that
        were written on these branches; False when it holds none of that."""
        self._fs.flush(tx)
        found = held_of(tx, devices, branches)
        for number in found:
            tx.chunks.take_over(number)
        return bool(found)
