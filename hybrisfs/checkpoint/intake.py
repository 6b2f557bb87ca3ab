"""Which of the checkpoints that others name this device takes in: one that it can believe, and that stands
for updates which are not known here and may be had in no other way.

The names of updates in the index of the checkpoint show what is lacking; vectors do not. Branches get other
names when a fork comes to light, so that a vector may seem to cover what the log lacks, and to lack what it
has. The log forgets no name: so no device takes in a checkpoint twice, nor one that it has stated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, takewhile
from operator import itemgetter
from typing import Final, cast

from hybrisfs.checkpoint.deposit import Fetching, NotToBeHadError
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import Header, HintedPack, Latest, SnapshotHash, read_hints, read_snapshot
from hybrisfs.log import Merged, is_kept
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.packs import Placement
from hybrisfs.process import without_collections
from hybrisfs.registers.tree import PackRecord
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.checkpoints import Recorded, StoredSnapshot
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import names_of_updates
from hybrisfs.state.versions import know_no_versions_before_bare
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import ZERO_HASH, CheckpointId, DecodeError, Head, LimitError, Members, Rename, VersionVector
from sync.checkpoint import Root
from sync.log_index import IndexEntry
from sync.log_tree import Placed

__all__ = ["Adoption", "Intake", "check_snapshot"]

log = logging.getLogger(__name__)

_ENTRIES: Final = 2048
_RETRY_SECONDS: Final = 300.0


class Intake:
    """Takes in checkpoints for one volume. `offered` is called by any thread, all else by one."""

    def __init__(
        self,
        fs: FileSystem,
        arrivals: Arrivals,
        snapshots: LocalSnapshots,
        fetching: Fetching,
    ) -> None:
        self._fs = fs
        self._limits = fs.environment.limits.of(CheckpointLimits)
        self._arrivals = arrivals
        self._snapshots = snapshots
        self._fetching = fetching
        self.taken_in = Topic[[Transaction]]()
        """Shows what a checkpoint has brought; called with the locks held that `Receiver` holds."""
        self._examined: dict[bytes, float] = {}  # names of roots -> when to look at them again
        self._offered: set[bytes] = set()
        self._lacking: dict[bytes, float] = {}  # names of roots -> since when something of them is lacking
        self._complete: set[bytes] = set()  # snapshots of which nothing is lacking, nor ever will be

    def offered(self, root: bytes) -> None:
        """A device says that the updates lacking here begin below the checkpoint with this root."""
        self._offered.add(root)
        self._examined.pop(root, None)

    def has(self, tx: Transaction, snapshot: bytes) -> bool:
        """Whether this device lacks nothing of the checkpoint with this snapshot, as far as it knows."""
        return snapshot in self._complete or snapshot in [one.stored.snapshot for one in tx.checkpoints.all()]

    def begin(self, named: CheckpointId) -> bool:
        """Begin with the checkpoint that the inviter names; False when that cannot be done."""
        self._offered.add(named.root)
        return self._examine(named.root, named.snapshot, float("-inf"), vouched=True)

    def look(self, heads: Mapping[bytes, Head], now: float) -> None:
        """Take in a checkpoint that is named or was offered, if it is needed; *now*: seconds, monotonic."""
        with self._fs.state.transaction() as tx:
            self._complete.update(one.stored.snapshot for one in tx.checkpoints.all())
            inviter = tx.meta("inviter")
        named = {
            head.checkpoint.root: (head.checkpoint.snapshot, device == inviter)
            for device, head in sorted(heads.items(), key=lambda one: one[0] == inviter)
            if head.checkpoint is not None and head.checkpoint.snapshot not in self._complete
        }
        for root in (*named, *(self._offered - named.keys())):
            if now < self._examined.get(root, 0.0):
                continue
            self._examined[root] = now + _RETRY_SECONDS
            snapshot, vouched = named.get(root, (None, False))
            self._examine(root, snapshot, now, vouched=vouched)

    def _examine(self, name: bytes, snapshot: bytes | None, now: float, *, vouched: bool) -> bool:
        """Take in the checkpoint with this root if this device lacks something of it and can trust it."""
        try:
            root = self._fetching.root(name)
            with self._fs.state.transaction() as tx:
                members, volume = tx.members.devices(), tx.updates.volume
            root.check(volume, members)
            if snapshot not in (None, root.snapshot) or not (vouched or self._is_trusted(root, members)):
                return False
            if not self._is_wanted(name, root, now):
                return False
            stored = self._fetching.fetch_slices(root)
            check_snapshot(self._snapshots, stored, root)
            with without_collections(), self._fs.state.cutting, self._fs.state.transaction() as tx:
                Adoption(self._fs, self._arrivals).run(tx, self._snapshots, stored)
                through = tx.checkpoints.through()
                tx.checkpoints.put(Recorded(stored, root.vector, through, root.encode(), name))
                self.taken_in(tx)
        except (NotToBeHadError, DecodeError, LimitError, OSError) as error:
            log.warning("checkpoint %s is not taken in: %s", name.hex(), error)
            return False
        self._offered.discard(name)
        log.info("took in checkpoint %s", root.snapshot.hex())
        return True

    def _is_wanted(self, name: bytes, root: Root, now: float) -> bool:
        with self._fs.state.transaction() as tx:
            vector = tx.updates.state.vector
        ahead = root.vector.highest - vector.highest
        if ahead <= 0 and not self._lacks(root):
            self._complete.add(root.snapshot)
            self._offered.discard(name)
            self._lacking.pop(name, None)
            return False
        if not len(vector) or ahead >= self._limits.far_behind or name in self._offered:
            return True
        return now - self._lacking.setdefault(name, now) >= self._limits.patience_seconds

    def _lacks(self, root: Root) -> bool:
        """Whether it stands for updates that are not known here. Raises NotToBeHadError, DecodeError."""
        if root.snapshot in self._complete:
            return False
        pieces = (self._fetching.part(one.name) for one in root.slices)
        entries = takewhile(lambda one: not isinstance(one, Latest), read_snapshot(pieces))
        while some := {one.hash for one in islice(entries, _ENTRIES) if isinstance(one, IndexEntry)}:
            with self._fs.state.transaction() as tx:
                if not some <= tx.updates.known(some):
                    return True
        return False

    def _is_trusted(self, root: Root, members: Members) -> bool:
        """Whether this device or its inviter has stated the checkpoint. When the inviter is no member (a
        recovery kit, or removed), the statement of any member is enough."""
        with self._fs.state.transaction() as tx:
            inviter, own = tx.meta("inviter"), tx.updates.device
        if inviter and inviter not in members:
            return any(device in members for device in root.evidence)
        return own in root.evidence or inviter in root.evidence


# -- taking in a checkpoint: as if all updates that it stands for had come, one after the other ---------
# The log gets the names of those that it lacks, placed as if they had been accepted: forks that come to light
# rename branches as usual. Sets of register values merge as sets with dotted version vectors do: a value that
# only one side has stays if the other side does not cover the update that wrote it; otherwise the other side
# has something that supersedes it. What is unsigned here makes way as for any update.


_KEYS: Final = 4096  # registers that are merged at once
_PACKS: Final = 64


def check_snapshot(snapshots: LocalSnapshots, stored: StoredSnapshot, root: Root) -> Header:
    """Read all of a snapshot and its hints, and verify that it is well formed and the one of *root*.

    Raises DecodeError, OSError.
    """
    hasher = SnapshotHash()
    records = read_snapshot(_hashed(snapshots.pieces(stored), hasher))
    header = next(records, None)
    for _ in records:
        pass
    if not isinstance(header, Header) or hasher.digest() != root.snapshot:
        raise DecodeError("the slices are not those of the snapshot that devices have stated")
    if (header.volume, header.vector) != (root.volume, root.vector):
        raise DecodeError("the snapshot does not cover what its root says")
    for _ in read_hints(snapshots.hints(stored), header.updates):
        pass
    return header


def _hashed(pieces: Iterable[bytes], hasher: SnapshotHash) -> Iterator[bytes]:
    for piece in pieces:
        hasher.update(piece)
        yield piece


class Adoption:
    """Takes in one checked checkpoint, under the volume's lock; `Arrivals.refresh` follows."""

    def __init__(self, fs: FileSystem, arrivals: Arrivals) -> None:
        self._fs = fs
        self._arrivals = arrivals
        self._stamps: list[Stamp] = []  # of the checkpoint's updates, by their numbers
        self._ours = VersionVector()
        self._theirs = VersionVector()

    def run(self, tx: Transaction, snapshots: LocalSnapshots, stored: StoredSnapshot) -> None:
        """Raises LimitError, and nothing has changed, when there are too many branches."""
        records = read_snapshot(snapshots.pieces(stored))
        next(records)
        latest = self._adopt_log(tx, records)
        self._merge(tx, latest)
        # Nobody has signed where packs are, or that they have ended. Chunks that are read from one pack and
        # are in another one, too, are seen in the first one first.
        for primary in (True, False):
            packs = read_hints(snapshots.hints(stored), len(self._stamps))
            while some := list(islice(packs, _PACKS)):
                self._arrivals.place(
                    tx, [self._placement(one, primary=primary) for one in some if primary or one.spare]
                )
        # What was superseded before, and when, a checkpoint does not tell.
        know_no_versions_before_bare(tx)

    def _adopt_log(
        self, tx: Transaction, records: Iterator[Header | IndexEntry | Latest]
    ) -> Iterator[Latest]:
        """Take in the entries; what comes after them."""
        before = tx.updates.state.vector
        hashes: list[bytes] = []
        renames: list[Rename] = []
        rest: list[Latest] = []
        with tx.updates.adopting():
            while entries := list(_entries(records, rest)):
                for placed in self._adopt_some(tx, entries, hashes):
                    renames += placed.renames
                    before = before.renamed(placed.renames)
        self._arrivals.renamed(tx, renames)
        self._ours = before
        self._find_stamps(tx, hashes)
        return chain(rest, cast("Iterator[Latest]", records))

    def _adopt_some(
        self, tx: Transaction, entries: Sequence[IndexEntry], hashes: list[bytes]
    ) -> Iterator[Placed]:
        """Take in the next entries, whose hashes join *hashes*. Returns the positions of those that renamed
        others."""
        known = tx.updates.known(entry.hash for entry in entries)
        for entry in entries:
            if entry.hash not in known:
                prev = ZERO_HASH if entry.prev is None else hashes[entry.prev]
                placed = tx.updates.adopt(entry, prev, [hashes[cause] for cause in entry.causes])
                if placed.renames:
                    yield placed
            hashes.append(entry.hash)

    def _find_stamps(self, tx: Transaction, hashes: Sequence[bytes]) -> None:
        """Find the stamps that the log of this device has for the checkpoint's updates."""
        wanted = set(hashes)
        found = {
            identity: Stamp(clock, branch)
            for identity, clock, branch in names_of_updates(tx)
            if identity in wanted
        }
        self._stamps = [found[identity] for identity in hashes]
        theirs: dict[bytes, int] = {}
        for clock, branch in self._stamps:
            theirs[branch] = max(clock, theirs.get(branch, 0))
        self._theirs = VersionVector(theirs)

    def _merge(self, tx: Transaction, latest: Iterator[Latest]) -> None:
        registers = groupby(latest, key=itemgetter(0))
        while some := [(key, list(values)) for key, values in islice(registers, _KEYS)]:
            ours = tx.registers.between(some[0][0], some[-1][0])
            merged = [self._merged(key, ours.get(key, ()), values) for key, values in some if is_kept(key)]
            self._arrivals.absorb(tx, [one for one in merged if one.gone or one.come])

    def _merged(self, key: bytes, ours: Sequence[Value], latest: Sequence[Latest]) -> Merged:
        if not ours and not self._ours:
            return Merged(key, (), [Value(self._stamps[one.update], one.value) for one in latest])
        theirs = {self._stamps[one.update]: one.value for one in latest}
        known = {value.stamp for value in ours}
        gone = [stamp for stamp in known if stamp not in theirs and _covers(self._theirs, stamp)]
        come = [
            Value(stamp, value)
            for stamp, value in theirs.items()
            if stamp not in known and not _covers(self._ours, stamp)
        ]
        return Merged(key, gone, come)

    def _placement(self, pack: HintedPack, *, primary: bool) -> Placement:
        chunks = pack.primary if primary else pack.spare
        record = PackRecord(pack.k, pack.n, pack.placement, chunks)
        value = record.encode() if pack.n else None
        return Placement(pack.id, value, self._stamps[pack.update], hearsay=True)


def _covers(vector: VersionVector, stamp: Stamp) -> bool:
    return vector[stamp.branch] >= stamp.clock


def _entries(records: Iterator[Header | IndexEntry | Latest], rest: list[Latest]) -> Iterator[IndexEntry]:
    """The next entries, if there are any; what comes after the last one goes to *rest*."""
    for record in islice(records, _ENTRIES) if not rest else ():
        if isinstance(record, IndexEntry):
            yield record
        else:
            assert isinstance(record, Latest)
            rest.append(record)
            return
