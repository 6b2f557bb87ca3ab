"""The filesystem of one volume: what a mount, a mirror or a test calls.

Methods are called in a transaction, also those that do not take it, and none of them waits: not for a cloud,
not for fsync. An operation that must wait (for bytes that are elsewhere, durability, room in the cache) says
so to its caller, which waits outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from msgspec import Struct

from hybrisfs.errors import failure
from hybrisfs.registers.tree import attr_key
from hybrisfs.state.database import Snapshot
from hybrisfs.state.extents import Extent
from hybrisfs.state.journal import RESERVE, JournalFullError
from hybrisfs.state.redo import Record
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import State, Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.attributes import Attributes
from hybrisfs.tree.borders import Borders
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.content import FileBytes, Missing, ReceivedContent
from hybrisfs.tree.facets import Facets, Labels
from hybrisfs.tree.ignored import Ignored, RuleFiles
from hybrisfs.tree.inodes import Inode, InodeTable
from hybrisfs.tree.names import Names
from hybrisfs.tree.pins import Pins
from hybrisfs.tree.unseen import Change, Unseen
from sync.codec import Buffer

__all__ = ["FileSystem", "Handle", "Space"]

T = TypeVar("T")

_COMMIT_RESERVE: Final = RESERVE // 4
_MOST_BYTES: Final = (1 << 63) - 1  # as SQLite stores it: sparse files may claim more together
_SPACE_CHECK_CALLS: Final = 64
_MOST_ROWS: Final = 512  # of nodes and registers in a record, so that it takes no longer than its sync


class Handle(Struct):
    """An open file."""

    inode: Inode
    writable: bool


class Space(Struct, frozen=True):
    """What df shows, in bytes and files."""

    total: int
    free: int
    files: int


class FileSystem:
    """Inode-based operations. They raise OSError with the errno that the program is to see."""

    def __init__(
        self,
        tx: Transaction,
        state: State,
        *,
        owner: tuple[int, int],
    ) -> None:
        self.state: Final = state
        self.environment: Final = state.environment
        self.journal: Final = state.journal
        self.changes = Changes(tx)
        self.borders = Borders()
        self.inodes = InodeTable(tx, state.environment, self.borders)
        self.content = FileBytes(
            state.journal,
            self.inodes,
            self.changes,
            total_bytes=tx.meta("bytes"),
        )
        self.received = ReceivedContent(tx, self.inodes, self.content)
        self.facets = Facets(self.changes)
        self.labels = Labels(self.inodes, self.facets)
        self.attributes = Attributes(self.inodes, self.changes, self.labels)
        self.names = Names(state.environment, self.inodes, self.changes, self.borders)
        self.names.nameless.listen(self._unlinked)
        rule_files = RuleFiles(self.inodes, self.content, self.received)
        self.ignored = Ignored(tx, self.inodes, self.changes, self.facets, rule_files)
        self.names.moved.listen(self.ignored.moved)
        self.pins = Pins(tx, self.inodes)
        self.unseen = Unseen(state.environment)
        self.shown = Topic[[Sequence[Change]]]()
        """The view has changed otherwise than through the mount. Called with locks held, so that listeners
        only take note."""
        self.shown.listen(self.ignored.shown)
        self.read_only = False
        """Whether nothing may be changed here: what other devices change still is."""
        self.is_full = True
        """Whether this device is a full member, which sees to what all have in common."""
        self.total_files: int = tx.meta("files")
        self.cache_generation = 0
        self.being_chunked: list[Extent] = []  # staged bytes that the publisher is reading
        self._monotonic = state.environment.monotonic
        self.syncing: set[int] = set()  # open files that programs sync while they have them open
        self.restless: set[int] = set()  # those of them that have been written since
        self._handles: dict[int, Handle] = {}
        self._lingering: dict[int, Inode] = {}  # without name or handle, but the kernel may be opening them
        self._lingering_long: set[int] = set()  # those that were there at the last commit
        self._next_handle = 1
        self._calls_until_space_check = 0
        self._drop_orphans(tx)
        if self.inodes.find(tx, ROOT_INO) is None:
            root = self.inodes.create_root(*owner)
            self.changes.mark(attr_key(root.id), root.ino)

    # -- names -----------------------------------------------------------------------------------

    def lookup(self, tx: Transaction, parent: int, name: bytes) -> Inode | None:
        self.inodes.trim()
        if len(name) > 255:
            raise failure(errno.ENAMETOOLONG)
        return self.names.find(tx, parent, name)

    def locate(self, tx: Transaction, path: Iterable[bytes], folder: int = ROOT_INO) -> Inode | None:
        """The node at a path from a folder; None when there is none. All find paths by this; the way from a
        node to its path is `hybrisfs.state.shown_nodes.way_up`."""
        inode: Inode | None = self.get(tx, folder)
        for name in path:
            if inode is None or not inode.is_directory:
                return None
            inode = self.lookup(tx, inode.ino, name)
        return inode

    def get(self, tx: Transaction, ino: int) -> Inode:
        self.inodes.trim()
        return self.names.inode(tx, ino)

    def make(
        self,
        tx: Transaction,
        parent: int,
        name: bytes,
        mode: int,
        uid: int,
        gid: int,
        *,
        umask: int = 0,
        rdev: int = 0,
        target: bytes | None = None,
    ) -> Inode:
        """A new file, directory, symlink, FIFO, socket or device: *mode* holds the type.

        A default access control list of the directory counts instead of *umask*.
        """
        self.inodes.trim()
        self._require_space()
        default = (
            self.attributes.default_acl(tx, self.names.directory(tx, parent)) if target is None else None
        )
        mode = default.limit(mode) if default else mode & ~umask
        inode = self.names.create(tx, parent, name, mode, uid, gid, rdev=rdev, target=target)
        if default:
            self.attributes.inherit(tx, inode, default)
        if stat.S_ISREG(mode):
            self.total_files += 1
        return inode

    def link(self, tx: Transaction, ino: int, parent: int, name: bytes) -> Inode:
        self._require_space()
        inode = self.get(tx, ino)
        first = inode.linkable
        self.names.link(tx, ino, parent, name)
        if first:
            self.total_files += 1
            tx.nodes.forget_nameless(ino)
        return inode

    def unlink(self, tx: Transaction, parent: int, name: bytes) -> None:
        self.require_writable()
        self.names.unlink(tx, parent, name)

    def rmdir(self, tx: Transaction, parent: int, name: bytes) -> None:
        self.require_writable()
        self.names.rmdir(tx, parent, name)

    def rename(
        self, tx: Transaction, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        self._require_space(RESERVE // 2)  # programs save with it: it works longer than what makes things
        self.names.rename(tx, parent, name, new_parent, new_name, flags)

    def set_xattr(self, tx: Transaction, inode: Inode, name: bytes, value: bytes, flags: int) -> None:
        self._require_space()
        self.attributes.set_xattr(tx, inode, name, value, flags)

    def set_acl(
        self, tx: Transaction, inode: Inode, name: bytes, value: bytes, *, keeps_set_group_id: bool
    ) -> None:
        self._require_space()
        self.attributes.set_acl(tx, inode, name, value, keeps_set_group_id=keeps_set_group_id)

    def require_writable(self) -> None:
        """Raises OSError (EROFS) when nothing may be changed here."""
        if self.read_only:
            raise failure(errno.EROFS)

    def _require_space(self, reserve: int = RESERVE) -> None:
        """Raise JournalFullError when the disk has less than *reserve* left; looks now and then. Raises
        OSError (EROFS) when nothing may be changed here."""
        self.require_writable()
        self._calls_until_space_check -= 1
        if self._calls_until_space_check <= 0:
            self.journal.require_free_space(reserve)
            self._calls_until_space_check = _SPACE_CHECK_CALLS

    def unnamed(self, tx: Transaction, inode: Inode) -> None:
        """Another device took the last name of the node; it goes now, or when the last handle is closed."""
        inode.looked_up = False  # a program that is about to open it does better to look again
        self._unlinked(tx, inode)

    def _unlinked(self, tx: Transaction, inode: Inode) -> None:
        """The node has lost its last name; it goes when no program has it open or is about to open it."""
        self.ignored.nameless(tx, inode)
        if inode.is_file:
            self.total_files -= 1
        if inode.handles:
            tx.nodes.note_nameless(inode.ino)
            self.inodes.touch(inode)
        else:
            self._let_go(tx, inode)

    def _let_go(self, tx: Transaction, inode: Inode) -> None:
        """Destroy a node without name and handle, unless a program may have looked up the name that it had
        and be about to open it: that has to succeed, as on any disk, although the name means another by now.
        """
        inode.linkable = False
        if inode.is_file and inode.looked_up:
            self._lingering[inode.ino] = inode
        else:
            self._destroy(tx, inode)

    def _end_lingering(self, tx: Transaction) -> None:
        """Destroy nodes that have lingered for two commits: the kernel has forgotten it, or never asks for
        it."""
        for ino in self._lingering_long:
            inode = self._lingering.pop(ino, None)
            if inode is not None:
                self._destroy_nameless(tx, inode)
        self._lingering_long = set(self._lingering)
        for inode in self._lingering.values():
            tx.nodes.note_nameless(inode.ino)

    def _destroy_nameless(self, tx: Transaction, inode: Inode) -> None:
        tx.nodes.forget_nameless(inode.ino)
        self._destroy(tx, inode)

    def _destroy(self, tx: Transaction, inode: Inode) -> None:
        if inode.is_file:
            self.content.discard(tx, inode)
            self.received.forget(tx, inode)
        self.attributes.discard(tx, inode)
        self.inodes.destroy(tx, inode)

    def _drop_orphans(self, tx: Transaction) -> None:
        """Delete files that were open without a name when the daemon stopped."""
        for ino in tx.nodes.nameless():
            inode = self.names.inode(tx, ino)
            inode.orphan = True
            self._destroy_nameless(tx, inode)
            self.inodes.forget(ino)

    def forget(self, tx: Transaction, ino: int) -> None:
        """The kernel does not know this node any more."""
        inode = self.inodes.cached(ino)
        if inode is None:
            return
        inode.looked_up = False
        if inode.orphan and not inode.handles:
            if self._lingering.pop(ino, None) is not None:
                self._destroy_nameless(tx, inode)
            self.inodes.forget(ino)

    # -- attributes ------------------------------------------------------------------------------

    def truncate(self, tx: Transaction, inode: Inode, size: int) -> None:
        if inode.is_directory:
            raise failure(errno.EISDIR)
        if not inode.is_file:
            raise failure(errno.EINVAL)
        self.require_writable()
        self.content.truncate(tx, inode, size)
        self._content_changed(inode)

    def space(self) -> Space:
        free = max(self.journal.free_bytes(), 0)
        return Space(self.content.total_bytes + free, free, self.total_files)

    # -- open files ------------------------------------------------------------------------------

    def open(self, tx: Transaction, ino: int, flags: int) -> int:
        """A new handle on a regular file; O_TRUNC is obeyed.

        Raises OSError, ESTALE for a file that is gone for good: the kernel looks for the name again.
        """
        inode = self.get(tx, ino)
        if inode.orphan and not inode.handles:
            if self._lingering.pop(ino, None) is None:
                raise failure(errno.ESTALE)
            tx.nodes.note_nameless(inode.ino)
        if inode.is_directory:
            raise failure(errno.EISDIR)
        writable = flags & os.O_ACCMODE != os.O_RDONLY
        if writable:
            self.require_writable()
            self.borders.require_change(tx, self.inodes.shown_as(tx, inode))
        if flags & os.O_TRUNC:
            self.truncate(tx, inode, 0)
        return self._new_handle(inode, writable)

    def create(
        self,
        tx: Transaction,
        parent: int,
        name: bytes,
        mode: int,
        uid: int,
        gid: int,
        flags: int,
        *,
        umask: int = 0,
    ) -> tuple[Inode, int]:
        """Make a regular file and open it."""
        inode = self.make(tx, parent, name, stat.S_IFREG | stat.S_IMODE(mode), uid, gid, umask=umask)
        self._content_changed(inode)  # other devices need not see it empty first
        inode.unsynced = True
        return inode, self._new_handle(inode, flags & os.O_ACCMODE != os.O_RDONLY)

    def create_nameless(
        self, tx: Transaction, parent: int, mode: int, uid: int, gid: int, flags: int, *, umask: int = 0
    ) -> tuple[Inode, int]:
        """Make a regular file without a name and open it. It goes with its last handle unless `link` has
        named it, which O_EXCL forbids."""
        self.inodes.trim()
        self._require_space()
        default = self.attributes.default_acl(tx, self.names.directory(tx, parent))
        mode = stat.S_IFREG | stat.S_IMODE(default.limit(mode) if default else mode & ~umask)
        inode = self.names.create_nameless(tx, parent, mode, uid, gid)
        if default:
            self.attributes.inherit(tx, inode, default)
        inode.linkable = not flags & os.O_EXCL
        tx.nodes.note_nameless(inode.ino)
        self._content_changed(inode)
        return inode, self._new_handle(inode, flags & os.O_ACCMODE != os.O_RDONLY)

    def create_scratch(self, tx: Transaction, mode: int, uid: int, gid: int) -> tuple[Inode, int]:
        """A regular file without a name, open for writing, as O_TMPFILE makes one. No update names it.
        When it is closed or the daemon dies, it is gone: its content is for `FileBytes.take_over`."""
        self.inodes.trim()
        self._require_space()
        inode = self.inodes.create(tx, stat.S_IFREG | stat.S_IMODE(mode), uid, gid)
        inode.nlink, inode.orphan = 0, True
        tx.nodes.note_nameless(inode.ino)
        return inode, self._new_handle(inode, True)

    def _new_handle(self, inode: Inode, writable: bool) -> int:
        number = self._next_handle
        self._next_handle = number + 1
        self._handles[number] = Handle(inode, writable)
        inode.handles += 1
        inode.writers += writable
        return number

    def handle(self, number: int) -> Inode:
        try:
            return self._handles[number].inode
        except KeyError:
            raise failure(errno.EBADF) from None

    def release(self, tx: Transaction, number: int) -> None:
        """Close a handle."""
        handle = self._handles.pop(number)
        inode = handle.inode
        inode.handles -= 1
        inode.writers -= handle.writable
        if handle.writable and not inode.writers:
            self.syncing.discard(inode.ino)
            self.restless.discard(inode.ino)
            if inode.dirty_since:
                self.changes.announce()  # it was held back until now
        if inode.orphan and not inode.handles:
            tx.nodes.forget_nameless(inode.ino)
            self._let_go(tx, inode)

    def read(self, tx: Transaction, inode: Inode, offset: int, size: int) -> bytes | Missing:
        return self.content.read(tx, inode, offset, size)

    def write(self, tx: Transaction, inode: Inode, offset: int, data: Buffer) -> int:
        self.require_writable()
        written = self.content.write(tx, inode, offset, data)
        self._content_changed(inode)
        return written

    def allocate(self, tx: Transaction, inode: Inode, mode: int, offset: int, length: int) -> None:
        if not inode.is_file:
            raise failure(errno.ENODEV)
        self.require_writable()
        self.content.allocate(tx, inode, mode, offset, length)
        self._content_changed(inode)

    def synced(self, tx: Transaction, ino: int) -> None:
        """A program waits for an fsync of the file: what it has written is as it is meant to be, and what is
        written from now on may rely on it."""
        inode = self.inodes.cached(ino)
        if inode is None:
            return
        self.inodes.rely_on(tx, inode)
        if inode.writers:
            self.syncing.add(ino)
            self.restless.discard(ino)

    def _content_changed(self, inode: Inode) -> None:
        if not inode.dirty_since:
            inode.dirty_since = self._monotonic()
        if inode.ino in self.syncing:
            self.restless.add(inode.ino)

    # -- committing ------------------------------------------------------------------------------

    def is_uncommitted(self, tx: Transaction) -> bool:
        return self.inodes.dirty or self.changes.dirty or tx.is_changed()

    @contextmanager
    def committed(self, look: Callable[[Transaction], T]) -> Iterator[tuple[T, Snapshot]]:
        """A snapshot of all that has been done, which is committed for it, and what *look* returns of the
        same moment. The block runs without the lock. Raises OSError as `commit` does."""
        self.journal.sync()
        with ExitStack() as reading:
            with self.state.transaction() as tx:
                if self.is_uncommitted(tx):
                    self.commit(tx)
                seen = look(tx)
                database = reading.enter_context(self.state.snapshot())
            yield seen, database

    def commit(self, tx: Transaction) -> None:
        """End the transaction: what was done so far happens entirely or, after a crash, not at all.

        What the rows name in the journal is synced first, in every commit: a power cut must not leave rows
        without their bytes. A caller with much to sync does it before, without the lock.

        Raises JournalFullError, having changed nothing, when the disk has no room for it; to be tried again.
        Raises OSError when the disk is broken.
        """
        if self.journal.free_bytes(_COMMIT_RESERVE) < 0:
            raise JournalFullError("the disk that holds the volume's database is full", budget=False)
        self._end_lingering(tx)
        self.flush(tx)
        self.journal.sync()
        tx.set_meta("files", self.total_files)
        tx.set_meta("bytes", self._total_bytes())
        tx.commit()

    def record(self, tx: Transaction) -> bool:
        """Note what was done since the last commit in the redo log; False when only a commit will do.

        It survives a power cut once `State.sync_records` has returned true. It takes changes of content and
        attributes, new names, and few of these and few bytes; a name that goes or moves takes a commit.
        """
        if not tx.may_record() or not self.changes.is_only_marked or self.journal.failure is not None:
            return False
        if self.inodes.unrecorded + self.changes.unrecorded > _MOST_ROWS:
            return False
        ranges = self.journal.unrecorded()
        if ranges is None:
            return False
        nodes, extents = self.inodes.record()
        pending = self.changes.record()
        places = tx.unrecorded_places
        if ranges or nodes or places or extents.gone or extents.come or pending:
            record = Record(
                nodes,
                places,
                extents,
                pending,
                self.changes.seq,
                self.total_files,
                self._total_bytes(),
                ranges,
            )
            if not tx.record(record):
                self.flush(tx)  # rows that are in no record: there is none until the commit
                return False
        self.journal.note_recorded()
        return True

    def _total_bytes(self) -> int:
        return min(self.content.total_bytes, _MOST_BYTES)

    def flush(self, tx: Transaction) -> None:
        """Write changes that are only in memory into the open transaction."""
        self.inodes.flush(tx)
        self.changes.flush(tx)
