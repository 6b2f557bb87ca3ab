"""The state of a volume on this device: its database, its journal, and the lock that guards both.

`State.transaction` is the only way to the lock. It yields the open transaction, which is the only way to the
tables: code that is handed a `Transaction` holds the lock. All writes of a second or so share one SQLite
transaction, so leaving the block commits nothing; `Transaction.commit` does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Final

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.log import Registers, VersionStore
from hybrisfs.members.hearing import Hearing
from hybrisfs.members.member_table import MemberTable
from hybrisfs.members.role_table import Roles
from hybrisfs.state.checkpoints import CheckpointTable
from hybrisfs.state.chunks import ChunkStore
from hybrisfs.state.database import Database, RowWriter
from hybrisfs.state.decisions import ConflictTable, HeldDeletions
from hybrisfs.state.disposals import DeletionCandidateTable, DisposalTable, OrphanTable
from hybrisfs.state.extents import ExtentTable, put_extents
from hybrisfs.state.file_chunks import ContentTable
from hybrisfs.state.journal import Journal
from hybrisfs.state.known_ids import KnownIds
from hybrisfs.state.members import SightingTable
from hybrisfs.state.nodes import NodeTable, PlaceTable
from hybrisfs.state.packs import PackTable
from hybrisfs.state.pins import PinTable
from hybrisfs.state.segments import SegmentTable
from hybrisfs.state.shown_nodes import Direct
from hybrisfs.state.stored_log import BodyStore
from hybrisfs.state.unplaced import PendingTable
from hybrisfs.state.updates import LogRows, UpdateLog
from sync import DeviceKey

__all__ = ["State", "Transaction"]


class Transaction(RowWriter):
    """The open transaction, and the tables in it, the log and what follows from it among them. Only
    `State.transaction` hands it out. `commit` and the other calls are those of `Database`."""

    def __init__(self, database: Database, journal: Journal, namer: ChunkNamer, key: DeviceKey) -> None:
        super().__init__(database.connection)
        self.commit: Final = database.commit
        self.is_changed: Final = database.is_changed
        self.may_record: Final = database.may_record
        self.record: Final = database.record
        self.shrink: Final = database.shrink
        self._redo = database.redo
        self.unrecorded_places = database.rows.unrecorded_places
        self.nodes: Final = NodeTable(self)
        self.places: Final = PlaceTable(self)
        self.conflicts: Final = ConflictTable(self)
        self.extents: Final = ExtentTable(self, journal)
        self.contents: Final = ContentTable(self)
        self.known_ids: Final = KnownIds(self)
        self.direct: Final = Direct(self)
        self.pending: Final = PendingTable(self)
        self.held: Final = HeldDeletions(self)
        self.pins: Final = PinTable(self, self.places)
        self.chunks: Final = ChunkStore(self, journal, namer)
        self.packs: Final = PackTable(self)
        self.segments: Final = SegmentTable(self)
        self.bodies: Final = BodyStore(self)
        self.checkpoints: Final = CheckpointTable(self)
        self.deletion_candidates: Final = DeletionCandidateTable(self)
        self.orphans: Final = OrphanTable(self)
        self.disposals: Final = DisposalTable(self)
        self.sightings: Final = SightingTable(self)
        rows, roles = LogRows(self), Roles(self)
        self.hearing: Final = Hearing(rows, roles)
        self.members: Final = MemberTable(self, self.hearing)
        self.updates: Final = UpdateLog(rows, database.environment, self.members.writers(), key, roles)
        self.versions: Final = VersionStore(self, self.updates)
        self.registers: Final = Registers(self, self.chunks.condemned, self.versions, self.hearing)

    def is_suspended(self) -> bool:
        """Whether this device signs nothing now, but may again: what it has of others it still hands on."""
        return self.updates.device in self.members.suspended

    def recorded_segments(self) -> frozenset[int]:
        """The journal segments that a start after a crash needs for what is recorded."""
        return frozenset(self._redo.segments)


class _Turn:
    """Holds the lock from `__enter__` to `__exit__`. A thread that holds it already may take it again."""

    __slots__ = ("_lock", "_transaction")

    def __init__(self, transaction: Transaction) -> None:
        self._lock = threading.RLock()
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        self._lock.acquire()
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class State:
    """Database, journal and lock of one open volume. The calls of `Database` that are passed on do not take
    the lock."""

    def __init__(self, database: Database, journal: Journal, namer: ChunkNamer, key: DeviceKey) -> None:
        """*key*: that of this device, with which it signs. What the redo log has is done again. Raises
        OSError."""
        self._database = database
        _replay(database, journal)
        self.snapshot: Final = database.snapshot
        self.make_durable: Final = database.make_durable
        self.checkpoint: Final = database.checkpoint
        self.close: Final = database.close
        self.sync_records: Final = database.redo.sync
        self.journal: Final = journal
        self.namer: Final = namer
        self.environment: Final = database.environment
        self.cutting: Final = threading.Lock()
        """Held while changes are cut into updates, or updates of others are taken in: each is several
        transactions. It is taken before these."""
        self._turn: Final = _Turn(Transaction(database, journal, namer, key))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Hold the volume's lock, and with it the open transaction. Nothing in the block waits for a cloud,
        or for an fsync but the one of a commit."""
        return self._turn

    @contextmanager
    def log_transaction(self) -> Iterator[Transaction]:
        """A transaction that may add to the log: changes are not just being cut, nor updates taken in."""
        with self.cutting, self._turn as tx:
            yield tx

    def prepare_records(self) -> None:
        """Make the redo log unless the disk is short of room; without the lock."""
        redo = self._database.redo
        if redo.is_missing and self.journal.free_bytes() > self._database.limits.redo_bytes:
            redo.prepare()


def _replay(database: Database, journal: Journal) -> None:
    """Carry out what is recorded since the last commit, in the open transaction. The records stay valid until
    it is committed, so a crash in the midst of this changes nothing."""
    rows = database.rows
    nodes, places, pending = NodeTable(rows), PlaceTable(rows), PendingTable(rows)
    for record in database.replay():
        journal.restore(record.ranges)
        nodes.put(record.nodes)
        places.restore(record.places)
        put_extents(rows, record.extents)
        pending.put(record.pending, record.seq)
        rows.set_meta("files", record.files)
        rows.set_meta("bytes", record.size)
