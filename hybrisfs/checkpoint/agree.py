"""Agreement on checkpoints (Depot 5.5) as one device sees it, a sans-IO machine: what to state, when all have
stated it, when it goes to the clouds, and when what it replaces goes.

`hybrisfs.checkpoint.checkpointer` asks `to_state`, `to_agree` and `to_bring` in this order, carries out each
action and reports how it went. What outlasts a restart stands in the rows of the `checkpoint` table.

    a row is    that means                         it goes on when                            by
    ---------   --------------------------------   ----------------------------------------   ---------------
    (none)                                         another device states what this one went   State
                                                   through; or much has come, and the
                                                   device rests, hurries, or has stated
                                                   nothing for long
    withheld    stated, but the clouds lack an     the clouds have it
                own update that it covers
    stated      signed in heads                    another state is due, as above             State
                                                   all members have signed the same           Write
    agreed      its root has all statements;       a root that a head names is of it          Find, Write
                heads name the one before          it is the turn of this device              Put, Write
    deposited   on f+k clouds; heads name it       all who are asked name the same root       Compact
    compacted   what it replaces is gone           other clouds are used; or half an hour     Compact
                                                   later, when a cloud did not obey

What always holds (tests/checkpoint/test_agree.py):

1. A device states only what its own registers were, and tells of it when the clouds have its part of it.
2. A root has the signature of every member. So a device that states nothing, or something else, keeps the
   others from letting go of anything, and can do no more than that.
3. Heads name a checkpoint when it was put on f+k clouds and read back, by this device or by one whose root
   this device has read.
4. `Compact` comes when the heads of all who are asked name the very root that this device names, its own head
   on the clouds among them, and this device has stated nothing newer. No device needs what goes then, nor
   does a machine that begins with these heads.

Any action may fail, or end in a crash before it is reported; then it is asked for again. None relies on an
action before it but through the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.state.checkpoints import Recorded
from sync import CheckpointId, Head, Members, Statement, VersionVector
from sync.checkpoint import Root, states

__all__ = ["Action", "AgreementMachine", "Find", "Put", "Compact", "State", "View", "Write"]

_TURN_SECONDS: Final = 60.0  # that each device waits longer than the one before it
_CLOUD_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 300.0
_AGAIN_SECONDS: Final = 1800.0  # when a cloud did not delete what it should


class State(Struct, frozen=True):
    """Make a snapshot of what is here, or was here at the vector of a statement of another device, and state
    it; but only if updates of so many bytes have come since the last checkpoint. Report `stated` or
    `declined`."""

    theirs: Statement | None
    least_bytes: float


class Write(Struct, frozen=True):
    """Write this row over the one before it."""

    row: Recorded


class Find(Struct, frozen=True):
    """Find out whether one of these roots (each with the device that names it) belongs to the checkpoint and
    can be fetched. Report `deposited`, `not_found` or `failed`."""

    agreed: Recorded
    roots: tuple[tuple[bytes, bytes], ...]


class Put(Struct, frozen=True):
    """Put the checkpoint on the clouds and read it back. Report `deposited` or `failed`."""

    agreed: Recorded


class Compact(Struct, frozen=True):
    """See that the checkpoint is safe, then let go of what it replaces. Report `compacted` or `failed`."""

    agreed: Recorded


Action: TypeAlias = State | Write | Find | Put | Compact


class View(Struct, frozen=True):
    """What is here at one moment."""

    vector: VersionVector
    shipped: bool
    """Whether the clouds have all that was signed here."""
    members: Members
    asked: Collection[bytes]
    """The devices that must name a checkpoint before anything that it replaces goes: all members, and
    suspended devices, which may come back."""
    stated: Recorded | None
    """The newest row."""
    statement: Statement | None
    """The statement as heads carry it: none while it is withheld."""
    agreed: Recorded | None
    """The newest row with a root."""
    clouds: object
    """The clouds that it may be on, and on how many it is to be."""


class _Choice(NamedTuple):
    """A state that devices may agree upon; *theirs*: the statement of it, None when it is this device's."""

    vector: VersionVector
    snapshot: bytes
    theirs: Statement | None


def _best(choices: Sequence[_Choice]) -> _Choice | None:
    """The newest choice; of concurrent ones, the one with the lowest hash."""
    newest = [
        one
        for one in choices
        if not any(other.vector != one.vector and other.vector.covers(one.vector) for other in choices)
    ]
    return min(newest, key=lambda one: one.snapshot, default=None)


class AgreementMachine:
    """The checkpoints of one volume on one device. *now*: seconds, monotonic; *heads*: the newest known of
    each device."""

    def __init__(
        self, volume: bytes, device: bytes, limits: CheckpointLimits, at_start: Collection[bytes]
    ) -> None:
        """*at_start*: the snapshots in the rows."""
        self._volume = volume
        self._device = device
        self.limits = limits
        """They may be others at any moment."""
        self._at_start = frozenset(at_start)
        self._resting: tuple[VersionVector, float] | None = None  # a vector, and since when it is ours
        self._stated_at = float("-inf")
        self._began: float | None = None  # when it was looked first
        self._declined: set[bytes] = set()  # snapshots of others that this device cannot state
        self._hurried = False
        self._agreed_at: float | None = None
        self._not_before = float("-inf")  # when the clouds are asked again
        self._named: bytes | None = None  # the root in our head on the clouds, since the start
        self._compacted: object = None  # the root and the clouds for which all is as it should be
        self._again = float("inf")  # when to look nevertheless
        self.alarm: str | None = None

    def hurry(self) -> None:
        """A device may be let in soon: this makes a checkpoint worth while, even if the last one is recent
        and the volume is busy. From any thread."""
        self._hurried = True

    # -- stating ---------------------------------------------------------------------------------

    def to_state(self, view: View, heads: Mapping[bytes, Head], now: float) -> Action | None:
        """State what another device states, if this one should, too; or else the present state, if it is
        time."""
        if self._device not in view.members:
            return None
        theirs = self._wanted(view, heads)
        if theirs is not None:
            return State(theirs, 0)
        return State(None, self._least_bytes(view.agreed)) if self._is_time(view, now) else None

    def _wanted(self, view: View, heads: Mapping[bytes, Head]) -> Statement | None:
        """The newest state that another device states, that is not agreed on yet, and that this device has
        passed through; of concurrent ones, the one that all devices pick."""
        self._declined.intersection_update(one.stated.snapshot for one in heads.values() if one.stated)
        stated, vector = view.stated, view.vector
        before = view.agreed.vector if view.agreed is not None else VersionVector()
        choices = [
            _Choice(one.vector, one.snapshot, one)
            for device, head in heads.items()
            if (one := head.stated) is not None
            and one.snapshot not in self._declined
            and one.vector != before
            and (one.vector == vector or (vector.covers(one.vector) and one.vector.covers(before)))
            and self._is_valid(device, one, view.members)
        ]
        if stated is not None and stated.root is None:
            choices.append(_Choice(stated.vector, stated.stored.snapshot, None))
        best = _best(choices)
        if best is None or (stated is not None and stated.vector == best.vector):
            return None
        return best.theirs

    def _is_time(self, view: View, now: float) -> bool:
        """Whether to state what is here now, if enough has come."""
        stated = view.stated
        if not len(view.vector) or (stated is not None and stated.vector == view.vector):
            return False
        if self._resting is None or self._resting[0] != view.vector:
            self._resting = view.vector, now
        if self._began is None:
            self._began = now
        alone = len(view.members) == 1
        rests = now - self._resting[1] >= self.limits.quiet_seconds and (view.shipped or alone)
        since = self._stated_at if alone else max(self._stated_at, self._began)
        if not (rests or self._hurried or now - since >= self.limits.restless_seconds):
            return False
        if stated is None:
            return True
        if stated.root is None and not self._hurried and now - self._stated_at < self.limits.restate_seconds:
            return False
        return view.statement is not None

    def _least_bytes(self, agreed: Recorded | None) -> float:
        """The bytes of updates since the last checkpoint that make another one worth while."""
        hurried, self._hurried = self._hurried, False
        held = sum(one.length for one in agreed.stored.slices) if agreed is not None else 0
        return max(self.limits.least_bytes, 0 if hurried else held * self.limits.least_share)

    def stated(self, now: float) -> None:
        """There is a row of a new snapshot."""
        self._stated_at = now

    def declined(self, theirs: Statement, now: float) -> None:
        """The state at the vector of that statement cannot be reconstructed."""
        self._declined.add(theirs.snapshot)
        self._stated_at = now

    # -- agreeing --------------------------------------------------------------------------------

    def _is_valid(self, device: bytes, stated: Statement, members: Members) -> bool:
        """Whether another member has signed the statement in its head."""
        public = members.public_key(device)
        if public is None or device == self._device:
            return False
        return states(self._volume, device, public, stated.snapshot, stated.signature)

    def to_agree(self, view: View, heads: Mapping[bytes, Head], now: float) -> Action | None:
        """Make the root when all members have stated what this device states."""
        stated, mine = view.stated, view.statement
        if stated is None or mine is None or stated.root is not None:
            return None
        evidence = {self._device: mine.signature}
        self.alarm = None
        for device, head in heads.items():
            theirs = head.stated
            if theirs is None or not self._is_valid(device, theirs, view.members):
                continue
            if theirs.snapshot == mine.snapshot:
                evidence[device] = theirs.signature
            elif theirs.vector == mine.vector:
                self.alarm = f"machine {device.hex()} has made another state of the same log"
        if any(device not in evidence for device in view.members):
            return None
        slices, hints = stated.stored.slices, stated.stored.hints
        root = Root(self._volume, mine.snapshot, mine.vector, slices, hints, evidence)
        before, former = view.agreed, None
        if before is not None:
            former = before.vector if before.deposited is not None else before.former
        self._agreed_at = now
        return Write(replace(stated, root=root.encode(), former=former))

    def waits_for(self, view: View, heads: Mapping[bytes, Head]) -> list[bytes]:
        """The members that have yet to state what this device states, if it waits for any."""
        if view.stated is None or view.stated.root is not None or view.statement is None:
            return []
        snapshot = view.stated.stored.snapshot
        return [
            device
            for device in view.members
            if device != self._device
            and not ((head := heads.get(device)) and head.stated and head.stated.snapshot == snapshot)
        ]

    # -- the clouds ------------------------------------------------------------------------------

    def to_bring(self, view: View, heads: Mapping[bytes, Head], now: float) -> Action | None:
        """Bring the agreed checkpoint to the clouds, and remove what it replaces."""
        agreed = view.agreed
        if agreed is None or now < self._not_before:
            return None
        if agreed.deposited is not None:
            # While this device has stated nothing newer, nobody puts that on the clouds.
            is_wanted = view.stated == agreed and self._all_name(agreed, view, heads)
            return Compact(agreed) if is_wanted and not self._has_compacted(agreed, view, now) else None
        roots = tuple(
            (device, head.checkpoint.root)
            for device, head in heads.items()
            if head.checkpoint is not None
            and head.checkpoint.snapshot == agreed.stored.snapshot
            and device != self._device
        )
        return Find(agreed, roots) if roots else self.not_found(agreed, now)

    def not_found(self, agreed: Recorded, now: float) -> Action | None:
        """No root that others name can be fetched: put the checkpoint there when it is the turn of this
        device among those that agreed."""
        assert agreed.root is not None
        rank = sum(device < self._device for device in Root.decode(agreed.root).evidence)
        if self._agreed_at is None:
            self._agreed_at = now
        return Put(agreed) if now - self._agreed_at >= rank * _TURN_SECONDS else None

    def deposited(self, agreed: Recorded, root: bytes) -> Action:
        """It is on the clouds, by a root of this name."""
        return Write(replace(agreed, deposited=root))

    def failed(self, now: float, *, damaged: bool) -> None:
        """The clouds or other devices failed; or, when *damaged*, the data of this device cannot be read."""
        self._not_before = now + (_RETRY_SECONDS if damaged else _CLOUD_SECONDS)

    def named(
        self, newest: Recorded | None, before: CheckpointId | None, *, has: bool
    ) -> CheckpointId | None:
        """The checkpoint that the own head names: *newest*, the newest row of one that is on the clouds.

        A device whose state was set back does not know the one that its heads named *before*. It goes on
        naming that one until it *has* taken it in, or has agreed on another one since the start: the covered
        segments may be gone, and all other devices may have been set back, too.
        """
        mine = None
        if newest is not None and newest.deposited is not None:
            mine = CheckpointId(newest.deposited, newest.stored.snapshot)
        renewed = mine is not None and mine.snapshot not in self._at_start
        return mine if before is None or renewed or has else before

    def head_put(self, checkpoint: CheckpointId | None) -> None:
        """The clouds have a head of this device that names this checkpoint. From any thread."""
        self._named = checkpoint.root if checkpoint is not None else None

    def _all_name(self, agreed: Recorded, view: View, heads: Mapping[bytes, Head]) -> bool:
        """Whether no device needs what this checkpoint replaces."""
        mine = self._device in view.members and self._named == agreed.deposited
        return mine and all(
            (head := heads.get(device)) is not None
            and head.checkpoint is not None
            and head.checkpoint.root == agreed.deposited
            for device in view.asked
            if device != self._device
        )

    def _has_compacted(self, agreed: Recorded, view: View, now: float) -> bool:
        return self._compacted == (agreed.deposited, view.clouds) and now < self._again

    def compacted(self, agreed: Recorded, clouds: object, now: float, *, done: bool) -> None:
        """What the checkpoint replaces is gone from these clouds; without *done*, not from all."""
        self._compacted = agreed.deposited, clouds
        self._again = float("inf") if done else now + _AGAIN_SECONDS
