"""The keeper of checkpoints: what this device states, what all have agreed upon, what is on the clouds."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, NamedTuple

from hybrisfs.checkpoint.compaction import Compactor
from hybrisfs.checkpoint.deposit import Depositor
from hybrisfs.checkpoint.fetching import Fetching, NotToBeHadError
from hybrisfs.checkpoint.intake import Intake
from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.checkpoint.retrospect import Base, look_back
from hybrisfs.checkpoint.shelf import Shelf
from hybrisfs.checkpoint.snapshot import SnapshotHash, Snapshotter
from hybrisfs.checkpoint.succession import Succession
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.registers import Registers
from hybrisfs.state.checkpoints import CheckpointTable, Recorded
from hybrisfs.state.updates import UpdateLog
from hybrisfs.tree.filesystem import FileSystem
from sync import (
    Buffer,
    CheckpointId,
    DecodeError,
    DeviceKey,
    Head,
    Members,
    Statement,
    VersionVector,
)
from sync.checkpoint import Root, states

__all__ = ["Keeper"]

log = logging.getLogger(__name__)

_TURN_SECONDS: Final = 60.0  # that each device waits longer than the one before it
_CLOUD_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 300.0


class _Choice(NamedTuple):
    """A state that devices may agree upon; *theirs*: the statement of it, None when it is this device's."""

    vector: VersionVector
    snapshot: bytes
    theirs: Statement | None


def _best(choices: Sequence[_Choice]) -> _Choice | None:
    """The newest one; of those that are concurrent, that with the lowest hash."""
    newest = [
        one
        for one in choices
        if not any(other.vector != one.vector and other.vector.covers(one.vector) for other in choices)
    ]
    return min(newest, key=lambda one: one.snapshot, default=None)


class Keeper:
    """Checkpoints of one volume. `look` is called by one thread, the other methods by any."""

    def __init__(
        self,
        fs: FileSystem,
        updates: UpdateLog,
        registers: Registers,
        arrivals: Arrivals,
        key: DeviceKey,
        members: Callable[[], Members],
        shelf: Shelf,
        name_of: Callable[[Buffer], bytes],
        fetching: Fetching,
        depositor: Depositor,
        compactor: Compactor,
        taken_in: Callable[[], None],
        announce: Callable[[], None],
    ) -> None:
        """*taken_in*: see `Intake`. *announce* has the own head go out soon."""
        self.limits = fs.environment.limits.of(CheckpointLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._updates = updates
        self._key = key
        self._members = members
        self._shelf = shelf
        self._name_of = name_of
        self._fetching = fetching
        self._depositor = depositor
        self._asked = compactor.asked
        self.succession = Succession(fs, shelf, name_of, fetching, depositor, compactor)
        self.intake = Intake(fs, updates, registers, arrivals, members, shelf, fetching, taken_in)
        self._announce = announce
        self._table = CheckpointTable(fs.db)
        self._resting: tuple[VersionVector, float] | None = None  # a vector, and since when it is ours
        self._stated_at = float("-inf")
        self._began: float | None = None  # when it was looked first
        self._declined: set[bytes] = set()  # snapshots of others that this device cannot state
        self._hurried = False
        self._agreed_at: float | None = None
        self._not_before = float("-inf")  # when the clouds are asked again
        self.alarm: str | None = None
        with fs.lock:
            self._at_start = {one.shelved.snapshot for one in self._table.all()}

    # -- what heads and links tell ---------------------------------------------------------------

    def statement(self) -> Statement | None:
        """What this device states now: nothing while the clouds lack what it has signed of that, chunks and
        all, so that whoever has no more than the clouds finds a state that can be read. Called with the
        volume's lock held."""
        stated = self._table.stated()
        if stated is None or self._waits_for_clouds(stated):
            return None
        return Statement.of(self._updates.volume, stated.vector, stated.shelved.snapshot, self._key)

    def newest(self, before: CheckpointId | None = None) -> CheckpointId | None:
        """Return the checkpoint that the own head names: the newest agreed one that is on the clouds. Called
        with the volume's lock held.

        A device whose state was set back does not know the one that its heads named *before*. It goes on
        naming that one until it has taken it in, or has agreed upon another one since the start: the
        segments that it covers may be gone, and every other device may have been set back, too.
        """
        newest = self._table.deposited()
        mine = None
        if newest is not None and newest.deposited is not None:
            mine = CheckpointId(newest.deposited, newest.shelved.snapshot)
        renewed = mine is not None and mine.snapshot not in self._at_start
        return mine if before is None or renewed or self.intake.has(before.snapshot) else before

    def hurry(self) -> None:
        """Somebody may be let in soon: a checkpoint is worth while although the last one is not old, and
        although the volume does not rest."""
        self._hurried = True

    def is_current(self) -> bool:
        """Whether the newest checkpoint on the clouds is of all that this device has accepted."""
        with self._fs.lock:
            agreed = self._table.agreed()
            vector = self._updates.state.vector
        return agreed is not None and agreed.deposited is not None and agreed.vector == vector

    def root(self) -> bytes | None:
        """The name of the root that others may ask this device for. Called with the volume's lock held."""
        agreed = self._table.agreed()
        return self._name_of(agreed.root) if agreed is not None and agreed.root is not None else None

    # -- one look --------------------------------------------------------------------------------

    def look(self, heads: Mapping[bytes, Head], now: float) -> None:
        """Do what is due; *heads*: the newest known of each device, *now*: seconds, monotonic."""
        self.intake.look(heads, now)
        wanted = self._wanted(heads)
        if wanted is not None or self._is_worth_while(now):
            self._state(wanted)
            self._stated_at = now
        self._agree(heads, now)
        self._bring_to_the_clouds(heads, now)

    # -- stating ---------------------------------------------------------------------------------

    def _wanted(self, heads: Mapping[bytes, Head]) -> Statement | None:
        """What somebody else states and this device should, too: the newest state that is not agreed upon
        yet, and that this device has gone through; of concurrent ones, the one that everybody picks."""
        with self._fs.lock:
            vector = self._updates.state.vector
            stated, agreed = self._table.stated(), self._table.agreed()
            if self._updates.device not in self._members():
                return None
        self._declined.intersection_update(one.stated.snapshot for one in heads.values() if one.stated)
        before = agreed.vector if agreed is not None else VersionVector()
        choices = [
            _Choice(one.vector, one.snapshot, one)
            for device, head in heads.items()
            if (one := head.stated) is not None
            and one.snapshot not in self._declined
            and one.vector != before
            and (one.vector == vector or (vector.covers(one.vector) and one.vector.covers(before)))
            and self._is_valid(device, head)
        ]
        if stated is not None and stated.root is None:
            choices.append(_Choice(stated.vector, stated.shelved.snapshot, None))
        best = _best(choices)
        if best is None or (stated is not None and stated.vector == best.vector):
            return None
        return best.theirs

    def _is_worth_while(self, now: float) -> bool:
        """Whether to state what is here now, unasked."""
        with self._fs.lock:
            vector = self._updates.state.vector
            stated, agreed = self._table.stated(), self._table.agreed()
            if not len(vector) or (stated is not None and stated.vector == vector):
                return False
            if self._updates.device not in self._members():
                return False
            published = self._table.is_published(self._table.through())
        if self._resting is None or self._resting[0] != vector:
            self._resting = vector, now
        if self._began is None:
            self._began = now
        alone = len(self._members()) == 1
        disagreed = stated is not None and stated.root is None
        rests = now - self._resting[1] >= self.limits.quiet_seconds and (published or alone)
        since = self._stated_at if alone else max(self._stated_at, self._began)
        if not (rests or self._hurried or now - since >= self.limits.restless_seconds):
            return False
        if disagreed and now - self._stated_at < self.limits.restate_seconds and not self._hurried:
            return False
        if stated is not None and self._waits_for_clouds(stated):
            return False
        return self._has_grown(agreed)

    def _has_grown(self, agreed: Recorded | None) -> bool:
        """Whether so much has been accepted since the last checkpoint that another one is worth it."""
        hurried, self._hurried = self._hurried, False
        held = sum(one.length for one in agreed.shelved.slices) if agreed is not None else 0
        with self._fs.lock:
            grown = self._table.grown_beyond(agreed.vector if agreed is not None else VersionVector())
        return grown >= max(self.limits.least_bytes, 0 if hurried else held * self.limits.least_share)

    def _waits_for_clouds(self, stated: Recorded) -> bool:
        """Whether a statement covers something that this device has signed and that is not on the clouds."""
        return stated.root is None and not self._table.is_published(stated.through)

    def _state(self, wanted: Statement | None = None) -> None:
        """Make a snapshot of what is here, or was here at the vector that is *wanted*, and state it."""
        self._fs.journal.sync()
        with ExitStack() as reading:
            with self._fs.lock:
                self._fs.commit()
                vector, through = self._updates.state.vector, self._table.through()
                agreed = self._table.agreed()
                database = reading.enter_context(self._fs.db.snapshot())
            if wanted is not None and wanted.vector != vector:
                if not self._looked_back(database, wanted.vector, agreed):
                    self._declined.add(wanted.snapshot)
                    return
                vector = wanted.vector
            hasher = SnapshotHash()
            snapshotter = Snapshotter(database, self._updates.volume, self.limits.slice_bytes)

            def pieces() -> Iterator[bytes]:
                for piece in snapshotter.slices():
                    hasher.update(piece)
                    yield piece

            shelved = self._shelf.put(pieces(), snapshotter.hints(), hasher.digest)
        with self._fs.lock:
            self._table.put(Recorded(shelved, vector, through))
            kept = [one.shelved.snapshot for one in self._table.all()]
        self._shelf.keep_only(kept)
        log.info("stated snapshot %s", shelved.snapshot.hex())
        self._announce()

    def _looked_back(self, db: sqlite3.Connection, vector: VersionVector, agreed: Recorded | None) -> bool:
        """See `look_back`."""
        base = Base(agreed.vector, self._shelf.pieces(agreed.shelved)) if agreed is not None else None
        try:
            return look_back(db, vector, base, self.limits.past_bytes)
        except (DecodeError, OSError) as error:
            log.warning("the last checkpoint cannot be read: %s", error)
            return False

    # -- agreeing --------------------------------------------------------------------------------

    def _is_valid(self, device: bytes, head: Head) -> bool:
        """Whether the head's writer has signed the statement in it; heads of others are not looked at."""
        public = self._members().public_key(device)
        if head.stated is None or public is None or device == self._updates.device:
            return False
        stated = head.stated
        return states(self._updates.volume, device, public, stated.snapshot, stated.signature)

    def _agree(self, heads: Mapping[bytes, Head], now: float) -> None:
        with self._fs.lock:
            stated, mine = self._table.stated(), self.statement()
        if stated is None or mine is None or stated.root is not None:
            return
        evidence = {self._updates.device: mine.signature}
        self.alarm = None
        for device, head in heads.items():
            if head.stated is None or not self._is_valid(device, head):
                continue
            if head.stated.snapshot == mine.snapshot:
                evidence[device] = head.stated.signature
            elif head.stated.vector == mine.vector:
                self.alarm = f"device {device.hex()} has made another state of the same log"
        if any(device not in evidence for device in self._members()):
            return
        root = Root(
            self._updates.volume,
            mine.snapshot,
            mine.vector,
            stated.shelved.slices,
            stated.shelved.hints,
            evidence,
        )
        with self._fs.lock:
            before = self._table.agreed()
            former = None
            if before is not None:
                former = before.vector if before.deposited is not None else before.former
            self._table.put(replace(stated, root=root.encode(), former=former))
        self._agreed_at = now
        log.info("checkpoint %s is agreed by %d devices", mine.snapshot.hex(), len(evidence))

    def waits_for(self, heads: Mapping[bytes, Head]) -> list[bytes]:
        """The members that have yet to state what this device states, if it waits for any."""
        with self._fs.lock:
            stated = self._table.stated()
            if stated is None or stated.root is not None or self._waits_for_clouds(stated):
                return []
        snapshot = stated.shelved.snapshot
        return [
            device
            for device in self._members()
            if device != self._updates.device
            and not ((head := heads.get(device)) and head.stated and head.stated.snapshot == snapshot)
        ]

    # -- the clouds ------------------------------------------------------------------------------

    def _bring_to_the_clouds(self, heads: Mapping[bytes, Head], now: float) -> None:
        """See to it that the agreed checkpoint is there, and what it replaces is not."""
        with self._fs.lock:
            agreed = self._table.agreed()
        if agreed is None or agreed.root is None or now < self._not_before:
            return
        try:
            if agreed.deposited is None:
                name = self._found(agreed, heads) or self._deposited(agreed, now)
                if name is None:
                    return
                agreed = replace(agreed, deposited=name)
                with self._fs.lock:
                    self._table.put(agreed)
                self._announce()
            elif self._all_name(agreed, heads):
                self.succession.settle(agreed, now)
        except (CloudsUnavailable, NotToBeHadError) as error:
            self._not_before = now + _CLOUD_SECONDS
            log.info("the checkpoint waits for the clouds: %s", error)
        except (DecodeError, OSError) as error:
            self._not_before = now + _RETRY_SECONDS
            log.warning("the checkpoint cannot be read here, another one will be made: %s", error)

    def _found(self, agreed: Recorded, heads: Mapping[bytes, Head]) -> bytes | None:
        """The name of the same checkpoint's root, if another device has put it there."""
        for device, head in heads.items():
            named = head.checkpoint
            if named is None or named.snapshot != agreed.shelved.snapshot or device == self._updates.device:
                continue
            try:
                root = self._fetching.root(named.root)
                root.check(self._updates.volume, self._members())
            except DecodeError as error:
                log.warning("device %s names a checkpoint that is none: %s", device.hex(), error)
                continue
            if root.snapshot == agreed.shelved.snapshot:
                return named.root
        return None

    def _deposited(self, agreed: Recorded, now: float) -> bytes | None:
        """Put it there when it is our turn among those who have agreed; the name of its root."""
        assert agreed.root is not None
        rank = sum(device < self._updates.device for device in Root.decode(agreed.root).evidence)
        if self._agreed_at is None:
            self._agreed_at = now
        return self._depositor.put(agreed) if now - self._agreed_at >= rank * _TURN_SECONDS else None

    def _all_name(self, agreed: Recorded, heads: Mapping[bytes, Head]) -> bool:
        """Whether nobody needs what this checkpoint replaces: all members name it, and the devices that are
        only suspended, for these may come back."""
        return self._updates.device in self._members() and all(
            (head := heads.get(device)) is not None
            and head.checkpoint is not None
            and head.checkpoint.root == agreed.deposited
            for device in self._asked()
            if device != self._updates.device
        )
