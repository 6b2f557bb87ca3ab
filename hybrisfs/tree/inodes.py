"""Inodes in memory: a write-back cache of the `node` rows.

An `Inode` that is open, changed since the last flush, or without a name stays in memory; the others go
when there are many. Rows are written in one batch by `flush`, inside the transaction of a commit.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.state.extents import ExtentMap, changed_extents
from hybrisfs.state.file_chunks import ContentPage
from hybrisfs.state.nodes import NODE_COLUMNS, NodeRow
from hybrisfs.state.redo import ExtentRow, ExtentRows
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.borders import Borders

__all__ = [
    "LEAST_PATIENCE",
    "NOTHING",
    "STALE",
    "LostName",
    "Inode",
    "InodeLimits",
    "InodeTable",
    "Intent",
]

LEAST_PATIENCE: Final = 1.0
_NAMED: Final = 1  # as a stamp: an update names the node, whichever it is
_row_of = attrgetter(*NODE_COLUMNS.split(", "))  # the fields are named like the columns
_BLOCK: Final = 512
NOTHING: Final = -1
STALE: Final = -2
"""`kernel_cache` of a file of which the kernel has no pages, and of one that has another content now than the
kernel may have pages of, and the size."""


class Inode:
    """One node of the tree. The fields up to `content_stamp` are those of its row."""

    __slots__ = (
        "atime",
        "attr_stamp",
        "content_stamp",
        "ctime",
        "dirty_since",
        "extents",
        "forced",
        "gid",
        "handles",
        "id",
        "ino",
        "is_conflict_copy",
        "kernel_cache",
        "linkable",
        "looked_up",
        "mode",
        "mtime",
        "nlink",
        "orphan",
        "pages",
        "patience",
        "rdev",
        "relied_on",
        "size",
        "snapshots",
        "stored",
        "target",
        "truncations",
        "uid",
        "unsynced",
        "writers",
        "xattrs",
    )

    def __init__(self, row: NodeRow) -> None:
        (
            self.ino,
            self.id,
            self.mode,
            self.uid,
            self.gid,
            self.rdev,
            self.nlink,
            self.size,
            self.stored,
            self.atime,
            self.mtime,
            self.ctime,
            self.target,
            self.xattrs,
            self.attr_stamp,
            self.content_stamp,
        ) = row
        self.extents: ExtentMap | None = None  # None: not read from the database yet
        self.handles = 0
        self.writers = 0
        self.orphan = False
        self.linkable = False  # without a name, which it has not had yet and may get
        self.is_conflict_copy = False  # a concurrent version of another node, not yet a node of its own
        self.truncations = 0  # tells a snapshot that the file has been cut shorter since
        self.dirty_since = 0.0  # when its oldest unpublished change of content was made; 0: there is none
        self.patience = LEAST_PATIENCE  # seconds that finished changes wait behind it while it is open
        # The pages that list all parts of a large file; None: unknown. Not of what is staged.
        self.pages: Sequence[ContentPage] | None = None
        # Made by a program since the start, never synced, and never put in the place of another one.
        self.unsynced = False
        self.relied_on = False  # synced, or put in the place of another one, since it was loaded
        self.snapshots = 0  # of its content that are being cut into chunks
        self.forced = False  # to be published although it is open for writing
        self.looked_up = False  # the kernel knows it and may open it without asking for a name
        self.kernel_cache = NOTHING  # cache generation in which the kernel may have pages of it

    def row(self) -> NodeRow:
        row: NodeRow = _row_of(self)
        return row

    def keep_synced(self) -> None:
        """No ignore rule keeps the node on this device: it is to be named by an update, as if one had."""
        self.attr_stamp = self.attr_stamp or _NAMED

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def blocks(self) -> int:
        """Blocks of 512 bytes that hold data: the size less the holes, rounded up."""
        stored = self.stored
        if self.extents:
            stored += self.extents.data_bytes()
        return (min(stored, self.size) + _BLOCK - 1) // _BLOCK

    @property
    def pinned(self) -> bool:
        return self.handles > 0 or self.orphan or self.snapshots > 0 or self.forced


class LostName(NamedTuple):
    """Where an open file without a name stood: ids of the node and of the directory, name."""

    node: bytes
    folder: bytes
    name: bytes


class Intent(Enum):
    """The coming change of a node that is part of a conflict."""

    WRITE = "write"
    CHANGE = "change"
    MOVE = "move"
    REMOVE = "remove"


class InodeLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    most_loaded: int = 50_000
    """That are in memory though nothing needs them there."""


class InodeTable:
    """All inodes that are in memory, by number."""

    def __init__(self, tx: Transaction, environment: Environment, borders: Borders) -> None:
        self._borders = borders
        self._loaded: dict[int, Inode] = {}
        self._dirty: dict[int, Inode] = {}
        self._extents_dirty: dict[int, Inode] = {}
        # What is in records, and in no row yet.
        self._recorded: dict[int, Inode] = {}
        self._extents_recorded: dict[tuple[int, int], ExtentRow | None] = {}  # None: it goes
        self.now = environment.time_ns
        self._random_bytes = environment.random_bytes
        self.most_loaded = environment.limits.of(InodeLimits).most_loaded
        # Nodes that are merged with others, have concurrent versions beside them, or are such a version:
        # `disputed` is called before this device changes one of them.
        self.in_conflict = tx.conflicts.inodes()
        self.disputed = Topic[[Transaction, Inode, Intent]]()
        # Open files that lost their names to other devices' updates; they are in `in_conflict`, too.
        self.lost_names: dict[int, LostName] = {}
        # Names that have come or gone since the last update, by directory.
        self.disturbed: set[tuple[int, bytes]] = set()
        # A node that is gone may still have names to withdraw: its number must not name another.
        self._next_ino = tx.nodes.highest() + 1

    def rely_on(self, tx: Transaction, inode: Inode) -> None:
        """What programs write from now on may rely on the bytes of this file: they are deferred no more."""
        inode.unsynced = False
        if not inode.relied_on:
            inode.relied_on = True
            if tx.chunks.deferred:  # it may have been written before it was loaded
                tx.chunks.hurry(tx.contents.chunks_of(inode.ino))

    def create_root(self, uid: int, gid: int) -> Inode:
        now = self.now()
        mode = stat.S_IFDIR | 0o755
        self._next_ino = max(self._next_ino, ROOT_INO + 1)
        row: NodeRow = (ROOT_INO, ROOT_ID, mode, uid, gid, 0, 2, 0, 0, now, now, now, None, 0, 0, 0)
        inode = self._loaded[ROOT_INO] = self._dirty[ROOT_INO] = Inode(row)
        return inode

    def create(
        self,
        tx: Transaction,
        mode: int,
        uid: int,
        gid: int,
        rdev: int = 0,
        target: bytes | None = None,
        area: bytes | None = None,
    ) -> Inode:
        """A new node without a name, which belongs to this area."""
        now = self.now()
        nlink = 2 if stat.S_ISDIR(mode) else 1
        size = len(target) if target is not None else 0
        number = self._next_ino
        self._next_ino = number + 1
        inode = Inode(
            (
                number, new_node_id(mode, now, area, self._random_bytes),
                mode, uid, gid, rdev, nlink, size, 0, now, now, now, target, 0, 0, 0,
            )
        )  # fmt: skip
        if stat.S_ISREG(mode):
            inode.extents = tx.extents.empty()
        self._loaded[number] = self._dirty[number] = inode
        return inode

    def reserve(self, count: int) -> range:
        """Numbers for so many new nodes, which the caller adds to the table."""
        first = self._next_ino
        self._next_ino = first + count
        return range(first, self._next_ino)

    def new_id(self, mode: int, area: bytes | None = None) -> bytes:
        """An id that no node ever had: see `new_node_id`."""
        return new_node_id(mode, self.now(), area, self._random_bytes)

    def give_new_id(self, tx: Transaction, inode: Inode, area: bytes | None = None) -> None:
        """Let the node have an id that none ever had, in this area."""
        self.identify(tx, inode, self.new_id(inode.mode, area))

    def identify(self, tx: Transaction, inode: Inode, identity: bytes) -> None:
        """Let the node have another id."""
        inode.id = identity
        tx.nodes.identify(inode.ino, identity)
        self._dirty[inode.ino] = inode

    def cached(self, ino: int) -> Inode | None:
        return self._loaded.get(ino)

    def get(self, tx: Transaction, ino: int) -> Inode:
        """Raises KeyError when there is no such node."""
        inode = self._loaded.get(ino)
        if inode is None:
            row = tx.nodes.find(ino)
            if row is None:
                raise KeyError(ino)
            inode = self._loaded[ino] = Inode(row)
            if ino in self.in_conflict:
                self._note_conflict_copy(tx, inode)
        return inode

    def find(self, tx: Transaction, ino: int) -> Inode | None:
        """The node, or None when there is none."""
        try:
            return self.get(tx, ino)
        except KeyError:
            return None

    def adopt(self, tx: Transaction, row: NodeRow) -> Inode:
        """The inode of a row just read from the database."""
        inode = self._loaded.get(row[0])
        if inode is None:
            inode = self._loaded[row[0]] = Inode(row)
            if inode.ino in self.in_conflict:
                self._note_conflict_copy(tx, inode)
        return inode

    def _note_conflict_copy(self, tx: Transaction, inode: Inode) -> None:
        inode.is_conflict_copy = tx.conflicts.original(inode.ino) is not None

    def trim(self) -> None:
        """When there are many, drop the quarter that has been in memory longest and that nothing needs.

        Called when an operation begins: in its midst a caller may hold an inode that nothing pins yet, change
        it, and a second one of the same node would be read from the database without that change.
        """
        if len(self._loaded) < self.most_loaded:
            return
        for ino in list(self._loaded)[: self.most_loaded // 4]:
            inode = self._loaded[ino]
            if not inode.pinned and not self._is_dirty(ino):
                del self._loaded[ino]
            else:
                # To the end of the line, so that the next sweep meets others first.
                self._loaded[ino] = self._loaded.pop(ino)

    def _is_dirty(self, ino: int) -> bool:
        return ino in self._dirty or ino in self._extents_dirty or ino in self._recorded

    def shown_as(self, tx: Transaction, inode: Inode) -> list[bytes]:
        """The nodes that are seen as this one; a conflict copy is seen as the node whose copy it is."""
        if inode.ino not in self.in_conflict:
            return [inode.id]
        others = tx.conflicts.shown_by(inode.ino)
        return others if inode.is_conflict_copy else [inode.id, *others]

    def note_conflict(self, ino: int, is_part: bool) -> None:
        """Say whether `disputed` must be called before the node changes."""
        (self.in_conflict.add if is_part else self.in_conflict.discard)(ino)

    def intend(self, tx: Transaction, inode: Inode, intent: Intent) -> None:
        """Call before this device changes a node, its attributes or its names. Raises OSError when it may
        not."""
        limited = self._borders.limits is not None
        if limited and (not inode.orphan or inode.ino in self.lost_names):
            self._borders.require_change(tx, self.shown_as(tx, inode))
        if inode.ino in self.in_conflict:
            self.disputed(tx, inode, intent)

    def extents_of(self, tx: Transaction, inode: Inode) -> ExtentMap:
        extents = inode.extents
        if extents is None:
            extents = inode.extents = tx.extents.of(inode.ino)
        return extents

    def touch(self, inode: Inode) -> None:
        """The row of *inode* must be written at the next flush, unless the node has been destroyed."""
        if not inode.orphan or inode.handles:
            self._dirty[inode.ino] = inode

    def touch_extents(self, inode: Inode) -> None:
        self._extents_dirty[inode.ino] = inode

    def destroy(self, tx: Transaction, inode: Inode) -> None:
        """The node is gone for good. It stays in memory, nameless, until the kernel forgets it."""
        self._dirty.pop(inode.ino, None)
        self._recorded.pop(inode.ino, None)
        if inode.extents is not None:
            self._flush_extents(tx, [inode])
        self._extents_dirty.pop(inode.ino, None)
        self.in_conflict.discard(inode.ino)
        self.lost_names.pop(inode.ino, None)
        tx.nodes.remove(inode.ino)

    def forget(self, ino: int) -> None:
        """Drop a destroyed node from memory."""
        self._loaded.pop(ino, None)

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._dirty or self._extents_dirty or self._recorded or self._extents_recorded)

    def flush(self, tx: Transaction) -> None:
        """Write all changed rows into the open transaction."""
        nodes = self._recorded | self._dirty
        if nodes:
            tx.nodes.put([inode.row() for inode in nodes.values()])
            self._recorded.clear()
            self._dirty.clear()
        if self._extents_dirty or self._extents_recorded:
            self._flush_extents(tx, self._extents_dirty.values())
            self._extents_dirty.clear()

    @property
    def unrecorded(self) -> int:
        """Of how many nodes `record` would tell."""
        return len(self._dirty) + len(self._extents_dirty)

    def record(self) -> tuple[Sequence[NodeRow], ExtentRows]:
        """The rows that are to be in a record: those that have changed since the last flush or record. The
        next flush writes them, too."""
        nodes = [inode.row() for inode in self._dirty.values()]
        extents = changed_extents({ino: inode.extents for ino, inode in self._extents_dirty.items()})
        self._recorded |= self._dirty | self._extents_dirty
        self._extents_recorded |= dict.fromkeys(extents.gone) | {row[:2]: row for row in extents.come}
        self._dirty.clear()
        self._extents_dirty.clear()
        return nodes, extents

    def _flush_extents(self, tx: Transaction, inodes: Collection[Inode]) -> None:
        gone = [key for key, row in self._extents_recorded.items() if row is None]
        come = [row for row in self._extents_recorded.values() if row is not None]
        tx.extents.put(ExtentRows(gone, come))
        self._extents_recorded.clear()
        tx.extents.put(changed_extents({inode.ino: inode.extents for inode in inodes}))
        for inode in inodes:
            if not inode.extents and not inode.handles and not inode.snapshots:
                inode.extents = None  # most files have none; the empty map is not worth its memory
