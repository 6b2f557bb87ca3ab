"""Takes in the checkpoints that `hybrisfs.checkpoint.adopt` decides for: fetches and verifies them, and
merges them into the log and the registers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, takewhile
from operator import itemgetter
from typing import Final, cast

from hybrisfs.checkpoint.adopt import Action, AdoptionMachine, Compare, Read, TakeIn, View
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
from sync import ZERO_HASH, CheckpointId, DecodeError, Head, LimitError, Rename, VersionVector
from sync.checkpoint import Root
from sync.log_index import IndexEntry
from sync.log_tree import Placed

__all__ = ["Adoption", "Intake", "check_snapshot"]

log = logging.getLogger(__name__)

_ENTRIES: Final = 2048


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
        self._arrivals = arrivals
        self._snapshots = snapshots
        self._fetching = fetching
        with fs.state.transaction() as tx:
            volume, device = tx.updates.volume, tx.updates.device
        self._machine = AdoptionMachine(volume, device, fs.environment.limits.of(CheckpointLimits))
        self.taken_in = Topic[[Transaction]]()
        """Shows what a checkpoint has brought; called with the locks held that `Receiver` holds."""

    def offered(self, root: bytes) -> None:
        """See `AdoptionMachine.offered`."""
        self._machine.offered(root)

    def has(self, tx: Transaction, snapshot: bytes) -> bool:
        """Whether this device lacks nothing of the checkpoint with this snapshot, as far as it knows."""
        recorded = (one.stored.snapshot for one in tx.checkpoints.all())
        return self._machine.is_complete(snapshot) or snapshot in recorded

    def begin(self, named: CheckpointId) -> bool:
        """Begin with the checkpoint that the inviter names; False when that cannot be done."""
        return self._run(self._machine.begin(named), float("-inf"))

    def look(self, heads: Mapping[bytes, Head], now: float) -> None:
        """Take in a checkpoint that is named or was offered, if it is needed; *now*: seconds, monotonic."""
        while action := self._machine.due(self._view(), heads, now):
            self._run(action, now)

    def _view(self) -> View:
        with self._fs.state.transaction() as tx:
            recorded = [one.stored.snapshot for one in tx.checkpoints.all()]
            return View(tx.updates.state.vector, tx.members.devices(), tx.meta("inviter"), recorded)

    def _run(self, first: Action, now: float) -> bool:
        """Do what is due for one checkpoint; whether it was taken in."""
        action: Action | None = first
        try:
            while action is not None:
                done, action = action, self._carry_out(action, now)
        except (NotToBeHadError, DecodeError, LimitError, OSError) as error:
            log.warning("checkpoint %s is not taken in: %s", first.name.hex(), error)
            return False
        return isinstance(done, TakeIn)

    def _carry_out(self, action: Action, now: float) -> Action | None:
        """What follows from how it went. Raises NotToBeHadError, DecodeError, LimitError, OSError."""
        match action:
            case Read(name):
                root = self._fetching.root(name)
                return self._machine.read(action, root, self._view(), now)
            case Compare(_, root):
                view = self._view()
                return self._machine.compared(action, view, now, lacks=self._lacks(root))
            case TakeIn(name, root):
                self._take_in(name, root)
                self._machine.taken_in(action)
                return None

    def _take_in(self, name: bytes, root: Root) -> None:
        stored = self._fetching.fetch_slices(root)
        check_snapshot(self._snapshots, stored, root)
        with without_collections(), self._fs.state.log_transaction() as tx:
            Adoption(self._fs, self._arrivals).run(tx, self._snapshots, stored)
            through = tx.checkpoints.through()
            tx.checkpoints.put(Recorded(stored, root.vector, through, root.encode(), name))
            self.taken_in(tx)
        log.info("took in checkpoint %s", root.snapshot.hex())

    def _lacks(self, root: Root) -> bool:
        """Whether it stands for updates that are not known here. Raises NotToBeHadError, DecodeError."""
        pieces = (self._fetching.part(one.name) for one in root.slices)
        entries = takewhile(lambda one: not isinstance(one, Latest), read_snapshot(pieces))
        while some := {one.hash for one in islice(entries, _ENTRIES) if isinstance(one, IndexEntry)}:
            with self._fs.state.transaction() as tx:
                if not some <= tx.updates.known(some):
                    return True
        return False


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
        raise DecodeError("the slices are not those of the snapshot that machines have stated")
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
