"""The consistent cut: everything the next signed update will say, as it was at one moment.

A cut holds the values of changed registers, and of each changed file a snapshot of where its bytes are.
Programs go on writing: the bytes that they write are appended elsewhere in the journal and belong to the next
cut.

**Order.** What other devices see is always a state that this device was in: when a change is in a cut, all
earlier changes are in it or in an earlier one (Depot 5.1: the writes of a correct node are seen in its
order). A register is taken with its present value, so a node is in a cut with all of its changes or with
none. Nodes are therefore taken in *runs*: two nodes belong to one run when one was changed between two
changes of the other, and every change of a run is older than every change of the next run. A cut is a
number of whole runs, the oldest first.

**Files in the making.** A file that a program has open for writing, with changes that no update holds, is
*held back*, so that half-written files are not uploaded again and again. The run that it is in, and all
later ones, wait with it. The file is no longer held back once it is closed or has another name. Otherwise
its time is limited, to `hold_seconds`, or, if finished changes wait behind it, to the file's own patience:
one second, or longer when taking it meant much rewriting the last time. When the time is over, the cut
takes everything as it is at that moment, open files included. So no file is left out for ever, and what
others get of a database is what a power cut here would have left: the database and its log at one moment.

A program that syncs a file which it keeps open, as databases do, tells when the file is as it is meant to
be: from the fsync until the next write. For such a moment *of rest* the cut waits a little longer; the
committer holds back the answer to an fsync until the cut is taken (`Signals.offer_rest`). So others mostly
see what is between two transactions, even of a database that no journal protects.

**Size.** Programs wait while a cut is taken, and an update has a largest size, so a cut ends with the run
that brings it to `most_registers` or `most_bytes`; for this, changes of the attributes of directories do
not count, because every new name makes one. A run that comes to `utmost` times the limits is divided
between two nodes.

**Bytes that cannot be had** (a chunk is on the clouds only, and these are away) must not hold up all else:
the file is left for a later cut. If it has a new name, removals wait with it, because one of them may have
made room for that name: others must not see the old file go and nothing come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.kinds import ATTRIBUTES, PLACE, Trait, having
from hybrisfs.merge.unsigned import unsigned_place
from hybrisfs.state.extents import ZEROS, Extent
from hybrisfs.state.file_chunks import BaseRow, ContentPage
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import LEAST_PATIENCE, Inode
from hybrisfs.write.layout import ChunkLimits, to_list

__all__ = [
    "Cut",
    "CutLimits",
    "FileSnapshot",
    "Taken",
    "looked_at",
    "release",
    "take_cut",
]

_DIRECT: Final = having(Trait.DIRECT)
_LOOKED_AT: Final = 2  # times the limits: so much of what waits is looked at, when there is more
_LARGEST_LIST: Final = 4096  # bytes, more than a content register that names its chunks itself


class FileSnapshot(Struct):
    """Where the bytes of a file are at the moment of the cut; inode and segments stay until `release`."""

    key: bytes
    inode: Inode
    size: int
    extents: list[Extent]
    epoch: int
    truncations: int
    ranges: list[tuple[int, int]]
    """What has to be listed again, as (start, end), in order. For the rest the file has *pages*."""
    pages: Sequence[ContentPage]
    rows: list[BaseRow]
    """The parts in *ranges*."""
    recut: int = 0
    """Bytes that `Chunker.chunk` had to cut again although no program had written them since the last
    cut."""

    def segments(self) -> set[int]:
        return {extent.segment for extent in self.extents if extent.segment != ZEROS}


class CutLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    hold_seconds: float = 15.0
    """That open files hold up changes."""
    rest_seconds: float = 5.0
    """Additional seconds of waiting for a moment at which no program is in the midst of changing a file."""
    most_registers: int = 10_000
    """Another device takes in so many at once, while its programs wait."""
    most_bytes: int = 16 << 20
    utmost: int = 2
    """Times the limits: there a run is divided."""
    recut_rate: int = 1 << 20
    """Bytes a second that may be cut and uploaded again so that changes need not wait behind open files."""


class Cut(Struct):
    """Register values to be signed together, and the files whose content value is still to be made."""

    limits: CutLimits = field(default_factory=CutLimits)
    seqs: dict[bytes, int] = field(default_factory=dict)
    inos: dict[bytes, int] = field(default_factory=dict)
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    files: list[FileSnapshot] = field(default_factory=list)
    directories: set[bytes] = field(default_factory=set)
    """Keys of the places of directories."""
    reach: int = 0
    """The number of the first change of the node taken last."""

    size: int = 0  # of the values, estimated
    _by_node: dict[int, list[bytes]] = field(default_factory=dict)  # made when it is needed

    def write(self, key: bytes, value: bytes | None) -> None:
        """Take up the value of a register; for a file's content that is still to be made, None."""
        self.writes[key] = value
        self.size += len(key) + len(value or b"")

    def fills(self, times: int) -> bool:
        """Whether the cut has reached the limits, or so many *times* the limits."""
        return (
            len(self.seqs) >= times * self.limits.most_registers
            or self.size >= times * self.limits.most_bytes
        )

    def without(self, inode: Inode) -> None:
        """Leave all of a node for a later cut."""
        self._make_removals_wait(inode)
        self._leave(self._keys_of(inode))

    def without_removals(self) -> None:
        """Leave the removal of names for a later cut."""
        self._leave([key for key, value in self.writes.items() if key[0] == PLACE and value is None])

    def _make_removals_wait(self, inode: Inode) -> None:
        if any(key[0] == PLACE and self.writes[key] is not None for key in self._keys_of(inode)):
            self.without_removals()

    def _keys_of(self, inode: Inode) -> list[bytes]:
        if not self._by_node:
            for key, ino in self.inos.items():
                self._by_node.setdefault(ino, []).append(key)
        return [key for key in self._by_node.get(inode.ino, ()) if key in self.inos]

    def _leave(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            del self.seqs[key], self.inos[key], self.writes[key]


class _Node(Struct):
    """The unsigned changes of one node: from number *first* to number *latest*. Without *seqs*, changes that
    have become void."""

    ino: int
    inode: Inode | None  # None: not in memory
    first: int
    latest: int
    seqs: dict[bytes, int]
    renamed: tuple[int, int] | None = None  # the first and the latest change of its places

    @property
    def held(self) -> bool:
        inode = self.inode
        if inode is None or inode.orphan or inode.forced:
            return False
        return inode.writers > 0 and inode.dirty_since > 0

    @property
    def is_directory(self) -> bool:
        return self.inode is not None and self.inode.is_directory

    @property
    def is_finished(self) -> bool:
        """Whether it is more than a directory's side effect of nodes that are held back in it."""
        return bool(self.seqs) and not self.held and not (self.is_directory and self.renamed is None)


class Taken(NamedTuple):
    """What `take_cut` found."""

    cut: Cut | None
    """None: there is nothing to sign."""
    rest_wanted: bool
    """The time of what is held back is over, but a program is in the midst of changing a file."""


def take_cut(
    tx: Transaction,
    fs: FileSystem,
    now: float,
    limits: CutLimits,
    *,
    everything: bool,
    skip: Callable[[int], bool],
    withheld: Callable[[bytes, int], bool] | None = None,
) -> Taken:
    """The cut at this moment.

    *everything*: hold nothing back. *skip* says which nodes cannot be published now. *withheld* says, by key
    and node, which registers this device may not write: such a node waits, and nothing else waits with it.
    """
    if withheld is None:
        nodes = _oldest_nodes(fs, limits)
    else:
        nodes = [
            node
            for node in _changed_nodes(fs, fs.changes.spans())
            if not any(withheld(key, node.ino) for key in node.seqs)
        ]
    rest_wanted = False
    if not everything and any(node.held for node in nodes):
        every = _changed_nodes(fs, fs.changes.spans()) if withheld is None else nodes
        nodes, rest_wanted = _without_held(fs, every, now, limits)
    cut = Cut(limits)
    removals_wait = False
    for node in _that_fit(nodes, cut):
        if skip(node.ino):
            removals_wait |= any(
                key[0] == PLACE and unsigned_place(tx, fs, key, node.ino) is not None for key in node.seqs
            )
            continue
        _capture(tx, fs, cut, node)
    if removals_wait:
        cut.without_removals()
    if not cut.seqs:
        return Taken(None, rest_wanted)
    _begin(tx, fs, cut)
    return Taken(cut, rest_wanted)


def looked_at(limits: CutLimits) -> int:
    """How many of the oldest changes are looked at, when there are more."""
    return _LOOKED_AT * limits.most_registers


def _oldest_nodes(fs: FileSystem, limits: CutLimits) -> list[_Node]:
    """The nodes of the oldest runs, about as many as a cut can hold; all nodes, when the first run with
    changes that count is so long that its end is unknown here."""
    spans, reach = fs.changes.oldest(looked_at(limits))
    found = _changed_nodes(fs, spans)
    if len(spans) >= fs.changes.waiting:
        return found
    nodes: list[_Node] = []
    for run in _runs(found, lenient=True):
        if max(_span(node, lenient=True)[1] for node in run) > reach:
            break
        nodes += run
    return nodes if any(node.seqs for node in nodes) else _changed_nodes(fs, fs.changes.spans())


def _changed_nodes(fs: FileSystem, spans: Iterable[tuple[bytes, int, int, int]]) -> list[_Node]:
    """The nodes with these unsigned changes, by their first change."""
    nodes: dict[int, _Node] = {}
    for key, ino, first, latest in spans:
        node = nodes.get(ino)
        if node is None:
            node = nodes[ino] = _Node(ino, fs.inodes.cached(ino), first, latest, {})
        node.first, node.latest = min(node.first, first), max(node.latest, latest)
        node.seqs[key] = latest
        if key[0] == PLACE:
            before = node.renamed or (first, latest)
            node.renamed = min(before[0], first), max(before[1], latest)
    void = [_Node(0, None, first, latest, {}) for first, latest in fs.changes.withdrawn]
    return sorted([*nodes.values(), *void], key=lambda node: (node.first, node.latest))


def _runs(nodes: Iterable[_Node], *, lenient: bool = False) -> Iterator[list[_Node]]:
    """The nodes, which are sorted by their first change, in runs: every change in one is older than all in
    the next one. *lenient*: of a directory, only the changes of its places count."""
    run: list[_Node] = []
    reach = -1
    for node in nodes:
        first, latest = _span(node, lenient=lenient)
        if run and first > reach:
            yield run
            run = []
        run.append(node)
        reach = max(reach, latest)
    if run:
        yield run


def _span(node: _Node, *, lenient: bool) -> tuple[int, int]:
    """The numbers of the first and the latest change of a node that count for `_runs`."""
    if lenient and node.is_directory:
        return node.renamed or (node.first, node.first)
    return node.first, node.latest


def _without_held(
    fs: FileSystem, nodes: list[_Node], now: float, limits: CutLimits
) -> tuple[list[_Node], bool]:
    """The nodes of the runs before the first run with a file that is held back, or all nodes when its time is
    over; and whether a moment of rest is wanted."""
    if not any(node.held for node in nodes):
        return nodes, False
    free: list[_Node] = []
    for run in _runs(nodes):
        if any(node.held for node in run):
            break
        free += run
    behind = nodes[len(free) :]
    held = [node.inode for node in behind if node.held and node.inode is not None]
    patience = limits.hold_seconds
    if any(node.is_finished for node in behind):
        patience = min(patience, max(inode.patience for inode in held))
    waited = now - min(inode.dirty_since for inode in held)
    if waited < patience:
        return free, False
    if waited < patience + limits.rest_seconds and any(inode.ino in fs.restless for inode in held):
        return free, True
    return nodes, False


def _that_fit(nodes: list[_Node], cut: Cut) -> Iterator[_Node]:
    """The nodes that go into *cut*, which the caller fills as it gets them."""
    for run in _runs(nodes, lenient=True):
        if cut.fills(1):
            return
        for node in run:
            if cut.fills(cut.limits.utmost):
                return
            yield node


def _begin(tx: Transaction, fs: FileSystem, cut: Cut) -> None:
    """Keep what the cut holds unchanged until `release`."""
    fs.changes.begin_cut(set(cut.seqs), cut.reach)
    fs.being_chunked = [extent for snapshot in cut.files for extent in snapshot.extents]
    for ino in set(cut.inos.values()):
        inode = fs.inodes.cached(ino)
        if inode is not None:
            inode.forced = False
            inode.dirty_since = 0.0
    for snapshot in cut.files:
        snapshot.inode.snapshots += 1
        tx.chunks.soon_named.update(row.chunk.number for row in snapshot.rows)
        for segment in snapshot.segments():
            fs.journal.dirty_pieces[segment] += 1


def release(tx: Transaction, fs: FileSystem, cut: Cut) -> None:
    """The snapshots of *cut* are not needed any more."""
    for snapshot in cut.files:
        snapshot.inode.snapshots -= 1
        snapshot.inode.patience = max(LEAST_PATIENCE, snapshot.recut / cut.limits.recut_rate)
        for segment in snapshot.segments():
            fs.journal.dirty_pieces[segment] -= 1
    fs.being_chunked = []
    tx.chunks.soon_named.clear()
    fs.changes.end_cut()


def _capture(tx: Transaction, fs: FileSystem, cut: Cut, node: _Node) -> None:
    """Take the values of all changed registers of a node."""
    cut.reach = node.first
    for key, seq in node.seqs.items():
        if not _capture_register(tx, fs, cut, key, node.ino):
            fs.changes.drop(key)  # its node is gone, and no update has named it
            continue
        cut.seqs[key] = seq
        cut.inos[key] = node.ino
        if key[0] == PLACE and node.is_directory:
            cut.directories.add(key)


def _capture_register(tx: Transaction, fs: FileSystem, cut: Cut, key: bytes, ino: int) -> bool:
    """Take the value of one register; False when there is none and no update need say so."""
    kind = key[0]
    if kind == PLACE:
        place = unsigned_place(tx, fs, key, ino)
        cut.write(key, None if place is None else place.encode())
        return True
    if kind in _DIRECT:
        return _capture_direct(tx, fs, cut, key)
    inode = fs.inodes.find(tx, ino)
    if inode is None or inode.orphan:
        return False
    if kind == ATTRIBUTES:
        cut.write(key, fs.attributes.record(tx, inode).encode())
        return True
    listed = fs.received.unlisted(tx, inode)
    if listed is not None:
        cut.write(key, listed)
        return True
    cut.write(key, None)  # the publisher fills it in; the key keeps its place in the order
    cut.files.append(_snapshot(tx, fs, key, inode))
    cut.size += min(inode.size >> 14, _LARGEST_LIST) + (inode.size >> 24)
    return True


def _capture_direct(tx: Transaction, fs: FileSystem, cut: Cut, key: bytes) -> bool:
    """Take the value of a register without a row in the view. By now another inode may show the node."""
    value = tx.direct.unsigned(key)
    fs.inodes.flush(tx)
    if value is None or not tx.direct.is_wanted(key):
        tx.direct.forget([key])
        return False
    cut.write(key, value)
    return True


def _snapshot(tx: Transaction, fs: FileSystem, key: bytes, inode: Inode) -> FileSnapshot:
    extents = fs.inodes.extents_of(tx, inode)
    epoch, staged = extents.epoch, extents.snapshot()
    ranges: list[tuple[int, int]] = [(0, inode.size)] if inode.size else []
    pages: Sequence[ContentPage] = ()
    if inode.pages is not None:
        ranges, pages = to_list(inode.size, staged, inode.pages, fs.environment.limits.of(ChunkLimits))
    rows: list[BaseRow] = []
    for start, end in ranges if inode.stored else ():
        rows += fs.content.base_rows(tx, inode, start, end)
    return FileSnapshot(
        key=key,
        inode=inode,
        size=inode.size,
        extents=staged,
        epoch=epoch,
        truncations=inode.truncations,
        ranges=ranges,
        pages=pages,
        rows=rows,
    )
