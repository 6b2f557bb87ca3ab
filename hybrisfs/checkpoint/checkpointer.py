"""Does what the agreement on checkpoints asks for (`hybrisfs.checkpoint.agree`), on this disk and on the
clouds, and makes it known by heads and links.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from hybrisfs.checkpoint.agree import Action, AgreementMachine, Compact, Find, Put, State, View, Write
from hybrisfs.checkpoint.compaction import CloudCheckpoint
from hybrisfs.checkpoint.deposit import NotToBeHadError
from hybrisfs.checkpoint.intake import Intake
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import SnapshotHash, Snapshotter
from hybrisfs.checkpoint.state_at_vector import Base, look_back
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.state.checkpoints import Recorded
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync import CheckpointId, DecodeError, DeviceKey, Head, Statement, VersionVector

__all__ = ["Checkpointer"]

log = logging.getLogger(__name__)


class Checkpointer:
    """Checkpoints of one volume. `look` is called by one thread, the other methods by any."""

    def __init__(
        self,
        fs: FileSystem,
        volume: bytes,
        key: DeviceKey,
        snapshots: LocalSnapshots,
        intake: Intake,
        cloud_checkpoint: CloudCheckpoint,
    ) -> None:
        self._fs = fs
        self._volume = volume
        self._key = key
        self._snapshots = snapshots
        self.intake = intake
        self.cloud_checkpoint = cloud_checkpoint
        with fs.state.transaction() as tx:
            at_start = [one.stored.snapshot for one in tx.checkpoints.all()]
        limits = fs.environment.limits.of(CheckpointLimits)
        self.machine: Final = AgreementMachine(volume, key.device_id, limits, at_start)
        self.news = Topic[[]]()
        """Called when the own head should name other checkpoints or statements."""

    # -- what heads and links tell ---------------------------------------------------------------

    def statement(self, tx: Transaction) -> Statement | None:
        """What this device states now. Nothing while the clouds lack own updates, or chunks, that the
        statement covers: so a machine that has only the clouds finds a state that it can read."""
        return self._statement_of(tx, tx.checkpoints.stated())

    def _statement_of(self, tx: Transaction, stated: Recorded | None) -> Statement | None:
        if stated is None or (stated.root is None and not tx.checkpoints.is_shipped(stated.through)):
            return None
        return Statement.of(self._volume, stated.vector, stated.stored.snapshot, self._key)

    def newest(self, tx: Transaction, before: CheckpointId | None = None) -> CheckpointId | None:
        """See `AgreementMachine.named`."""
        has = before is not None and self.intake.has(tx, before.snapshot)
        return self.machine.named(tx.checkpoints.deposited(), before, has=has)

    def is_current(self) -> bool:
        """Whether the newest checkpoint on the clouds covers all that this device has accepted."""
        with self._fs.state.transaction() as tx:
            agreed = tx.checkpoints.agreed()
            vector = tx.updates.state.vector
        return agreed is not None and agreed.deposited is not None and agreed.vector == vector

    def waits_for(self, heads: Mapping[bytes, Head]) -> list[bytes]:
        """See `AgreementMachine.waits_for`."""
        return self.machine.waits_for(self._view(), heads)

    def root(self) -> bytes | None:
        """The name of the root that others may ask this device for."""
        with self._fs.state.transaction() as tx:
            agreed = tx.checkpoints.agreed()
        return (
            self._snapshots.name_of(agreed.root) if agreed is not None and agreed.root is not None else None
        )

    # -- one look --------------------------------------------------------------------------------

    def look(self, heads: Mapping[bytes, Head], now: float) -> None:
        """Do what is due; *heads*: the newest known of each device, *now*: seconds, monotonic."""
        self.intake.look(heads, now)
        view = self._view()
        for decide in (self.machine.to_state, self.machine.to_agree, self.machine.to_bring):
            action = decide(view, heads, now)
            while action is not None:
                action = self._carry_out(action, view, heads, now)
                view = self._view()

    def _view(self) -> View:
        clouds = self.cloud_checkpoint.clouds
        with self._fs.state.transaction() as tx:
            stated = tx.checkpoints.stated()
            return View(
                tx.updates.state.vector,
                tx.checkpoints.is_shipped(tx.checkpoints.through()),
                tx.members.devices(),
                [one.device for one in tx.members.asked()],
                stated,
                self._statement_of(tx, stated),
                tx.checkpoints.agreed(),
                clouds,
            )

    def _carry_out(
        self, action: Action, view: View, heads: Mapping[bytes, Head], now: float
    ) -> Action | None:
        """What follows from how it went."""
        match action:
            case State():
                self._state_if_due(action, view.agreed, now)
            case Write(row):
                self._write(row)
            case Find() | Put() | Compact():
                try:
                    return self._ask_clouds(action, view, heads, now)
                except (CloudsUnavailable, NotToBeHadError) as error:
                    self.machine.failed(now, damaged=False)
                    log.info("the checkpoint waits for the clouds: %s", error)
                except (DecodeError, OSError) as error:
                    self.machine.failed(now, damaged=True)
                    log.warning("the checkpoint cannot be read here, another one will be made: %s", error)
        return None

    def _write(self, row: Recorded) -> None:
        with self._fs.state.transaction() as tx:
            tx.checkpoints.put(row)
        if row.deposited is None:
            log.info("checkpoint %s is agreed", row.stored.snapshot.hex())
        else:
            self.news()

    def _ask_clouds(
        self, action: Find | Put | Compact, view: View, heads: Mapping[bytes, Head], now: float
    ) -> Action | None:
        match action:
            case Find(agreed, roots):
                found = self.cloud_checkpoint.found(agreed, roots)
                if found is None:
                    return self.machine.not_found(agreed, now)
                return self.machine.deposited(agreed, found)
            case Put(agreed):
                return self.machine.deposited(agreed, self.cloud_checkpoint.put(agreed))
            case Compact(agreed):
                done = self.cloud_checkpoint.compact(agreed, heads)
                self.machine.compacted(agreed, view.clouds, now, done=done)
                return None

    # -- stating ---------------------------------------------------------------------------------

    def _state_if_due(self, action: State, agreed: Recorded | None, now: float) -> None:
        if action.least_bytes:
            covered = agreed.vector if agreed is not None else VersionVector()
            with self._fs.state.transaction() as tx:
                if tx.checkpoints.grown_beyond(covered) < action.least_bytes:
                    return
        if self._state(action.theirs):
            self.machine.stated(now)
        elif action.theirs is not None:
            self.machine.declined(action.theirs, now)

    def _state(self, theirs: Statement | None = None) -> bool:
        """Make a snapshot of what is here, or was here at the vector of *theirs*, and state it; False when it
        cannot be found any more what was here then."""
        self._fs.journal.sync()
        with ExitStack() as reading:
            with self._fs.state.transaction() as tx:
                self._fs.commit(tx)
                vector, through = tx.updates.state.vector, tx.checkpoints.through()
                agreed = tx.checkpoints.agreed()
                database = reading.enter_context(self._fs.state.snapshot())
            if theirs is not None and theirs.vector != vector:
                if not self._looked_back(database, theirs.vector, agreed):
                    return False
                vector = theirs.vector
            hasher = SnapshotHash()
            snapshotter = Snapshotter(database, self._volume, self.machine.limits.slice_bytes)

            def pieces() -> Iterator[bytes]:
                for piece in snapshotter.slices():
                    hasher.update(piece)
                    yield piece

            stored = self._snapshots.put(pieces(), snapshotter.hints(), hasher.digest)
        with self._fs.state.transaction() as tx:
            tx.checkpoints.put(Recorded(stored, vector, through))
            kept = [one.stored.snapshot for one in tx.checkpoints.all()]
        self._snapshots.keep_only(kept)
        log.info("stated snapshot %s", stored.snapshot.hex())
        self.news()
        return True

    def _looked_back(self, db: sqlite3.Connection, vector: VersionVector, agreed: Recorded | None) -> bool:
        """See `look_back`."""
        base = Base(agreed.vector, self._snapshots.pieces(agreed.stored)) if agreed is not None else None
        try:
            return look_back(db, vector, base, self.machine.limits.past_bytes)
        except (DecodeError, OSError) as error:
            log.warning("the last checkpoint cannot be read: %s", error)
            return False
