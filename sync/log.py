"""The log of accepted updates: which update comes next, and which may be accepted (Depot 4.1 to 4.3).

`LogState` holds what every decision needs in memory: the tree of branches (`sync.log_tree`) and the newest
update of each. The updates themselves are the caller's to store; `AcceptedLog` is what the state asks of that
store. It must show each accepted update, and each rename carried out, before the next call of `accept` or
`next_update`.

The rule. An update is accepted when
 1. it belongs to our volume, and a member signed it, or a device that was removed and a member depends on it:
    what a member saw before it heard of the removal belongs to its history and so to everybody's. The same
    goes for an update that makes a fork of a device that has `most_branches` branches already;
 2. the update of its writer that it follows (`prev`) is accepted;
 3. every update named in `deps` is accepted, is newer than what the writer's previous update depended
    on, and depends on nothing that the update's full dependency vector leaves out;
 4. its clock is one more than the highest clock among its causes. A correct writer depends on all
    that it has seen, so its clock *is* that; and nobody can exhaust the clock space with a jump;
 5. its history hash is the one that we compute over its full dependency vector from our own log.

The *full dependency vector* of an update is that of the writer's previous update, plus that update
itself, plus `deps` and the fork points below them. By 3 it is causally closed: u depends on v exactly if u's
vector covers v's stamp. The rule looks at accepted updates only, never at wall clocks or at the order of
arrival, so all correct devices decide alike, but for the forks of a device that has made too many: see below.

An update that follows an update which another one follows already makes a fork: it is accepted on a branch of
its own, and what is known of the fork is renamed. The pair is a proof against the writer.

Forks without end. A device can sign as many branches as it likes, and each is an entry in everybody's
vectors from then on, of which there are MAX_WRITERS at most. So of a device the first `most_branches` are
accepted from anybody, by each device those that come to it first; of the others only those on which another
member depends that is within its own bound: its update, refused for want of a cause, *vouches* for that
cause, and a cause that is vouched for vouches for its own. Two devices that took different branches of a
liar accept each other's updates all the same, as each vouches for what it took; then they have the same
branches. Of m members, h of them correct and l of them liars, at most l * h * `most_branches` branches come
together in this way, each with one entry more at most for the update at which it leaves another: no more
than m * m * `most_branches` / 2 entries, for which there is room by the choice of that number. So whatever
liars sign, and in whatever order it comes, correct devices go on accepting each other's updates, and the
first one of a new device.

That holds as long as no member vouches for a liar's branches on purpose. One that does, and does not fork
itself, can fill the room with a liar's help, at the price of a signed update for what it vouches for: from
then on no branch is accepted any more (`Reason.TOO_MANY_BRANCHES`), and devices that had taken different
ones before are parted, also when both have been removed. One that shows each device another branch of its
own can vouch for other forks at each. That takes two who conspire. No bound on what a member may vouch for
helps: a correct device vouches for all that it was shown, by all members together, and nobody can tell it
from one that does so on purpose.

*Bounds*. Members can sign that from now on a device may do less. To pretend that it does not know of it must
not help: its updates are to depend on the update that says so (`bind`). One that does not is accepted if
another device depends on it, or if the device has signed a later one that does: what an honest device did
before it knew of it counts. A device that signs that pretends no more: it knows it in what it signs then,
unless it forks, which convicts it. A device that was bound from its first update on has no such excuse: its
own word vouches for nothing. Two that bind each other at the same time would never hear of each other: so the
first word against the author of a bound, or against one that seconds it, gets through, of the one with the
lower id. Where another bound holds that word up, what follows it gets through by it, up to the update that
depends on the other bound.

A crash must never let a device sign two updates with one `prev`, for it would then fork itself: store
an own update before a byte of it leaves the device. If storing fails, drop this object and load the state
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sync.codec import ZERO_HASH
from sync.errors import LimitError, NotAMemberError
from sync.identity import DeviceKey, Members
from sync.log_tree import USUAL_LIMITS, AcceptedLog, Branch, Known, LogLimits, LogTree, including
from sync.outcome import Accepted, Duplicate, ForkProof, Outcome, Reason, Refused
from sync.update import (
    PREFIX_SIZE,
    SignedHeader,
    SignedUpdate,
    Update,
    UpdateStamp,
    Write,
    decode_signed_header,
    encode_signed,
    history_hash,
)
from sync.vector import MAX_WRITERS, VersionVector

__all__ = ["Bound", "LogState", "most_branches"]

_LEAST_BRANCHES = 4  # the first one, and one for each of three times that a device was set back to a backup
_ROOM = 2000  # entries of vectors, with some left for those who do not fork themselves
_MOST_VOUCHED = 100_000


class Bound(NamedTuple):
    """An update that those of a device are to depend on."""

    author: bytes
    branch: bytes
    clock: int
    from_first: bool
    """Whether the device never signed anything without knowing it, if it does what it should."""
    seconds: frozenset[bytes] = frozenset()
    """Other authors, of whom one at least must say the same, or it would not bind."""


def most_branches(members: int, limits: LogLimits = USUAL_LIMITS) -> int:
    """How many branches of a device are accepted from anybody, among so many members."""
    return min(limits.branches, max(_LEAST_BRANCHES, _ROOM // max(1, members * members)))


class LogState(LogTree):
    """What has been accepted into the log of one volume on one device.

    `accept` and `next_update` change the state, `set_members` says by whom; nothing else does.
    """

    def __init__(
        self,
        volume: bytes,
        members: Members,
        log: AcceptedLog,
        branches: Iterable[Branch] = (),
        tips: Iterable[Known] = (),
        signed: tuple[bytes, int] | None = None,
        limits: LogLimits = USUAL_LIMITS,
    ) -> None:
        """Load what was stored: all `branches`, the newest update of each that is not empty, and the
        (branch, clock) of the newest update that this device signed itself, or goes on from."""
        self._volume = volume
        self.set_members(members)
        super().__init__(log, branches, tips, signed, limits)
        self._vouched: set[bytes] = set()  # beginnings of hashes of what members depend on
        self._bounds: dict[bytes, Sequence[Bound]] = {}
        self._obeyed: dict[bytes, int] = {}  # by device: the clock of an update that depends on all of them
        self._met: dict[tuple[bytes, bytes], frozenset[Bound]] = {}
        """By writer and hash of updates that were refused for other bounds: those that they depend on, or got
        through in spite of."""

    @property
    def volume(self) -> bytes:
        return self._volume

    def set_members(self, members: Members) -> None:
        """From now on updates by these are accepted. Raises `LimitError` above MAX_WRITERS."""
        if len(members) > MAX_WRITERS:
            raise LimitError(f"{len(members)} members, a version vector holds {MAX_WRITERS}")
        self._members = members

    def bind(self, device: bytes, bounds: Sequence[Bound]) -> None:
        """From now on the updates of the device are to depend on these, and on no others."""
        self._bounds[device] = bounds
        self._obeyed.pop(device, None)

    def next_update(self, writes: Sequence[Write], time_ns: int, key: DeviceKey) -> Accepted:
        """Sign `writes` as our next update, which depends on all that is accepted, and accept it.

        `time_ns` is the time of day in ns since the epoch. A device that was removed may sign, too: others
        accept that once it is a member again. Raises `NotAMemberError`, `LimitError`, ValueError (see
        `encode_signed`).
        """
        writer = key.device_id
        if not self._members.known(writer):
            raise NotAMemberError(f"machine {writer.hex()} is not a member of volume {self._volume.hex()}")
        prev = self.newest(writer) or self._beginning(writer)
        known = prev.dependencies
        update = Update(
            volume=self._volume,
            writer=writer,
            clock=self.vector.highest + 1,
            prev_clock=prev.clock,
            prev=prev.hash,
            deps=tuple(
                sorted(
                    tip.stamp
                    for tip in self.tips()
                    if tip.branch != prev.branch and tip.clock > known[tip.branch]
                )
            ),
            history=self.history(),
            time_ns=time_ns,
            writes=writes,
        )
        data = encode_signed(update, key)
        signed = SignedUpdate(data, decode_signed_header(data), tuple(writes))
        hashes = {branch: tip.hash for branch, tip in self._tips.items()}
        accepted = self._put(signed, prev, self.vector, hashes)
        self._signed = (accepted.branch, signed.header.clock)
        return accepted

    def accept(self, signed: SignedUpdate, *, verified: bool = False) -> Outcome:
        """Accept an update that came from anywhere, or say why not.

        `verified`: the caller has checked that the member whom the update names signed it.
        """
        header = signed.header
        is_next = header.prev in self._leaves
        if not is_next:  # nothing that is accepted follows the newest of a branch
            found = self._find(header.hash[:PREFIX_SIZE])
            if found and found.hash == header.hash:
                return Duplicate()
        refused = self._check_author(header, verified)
        if refused:
            return refused
        prev = self._previous(header)
        if not is_next and (refused := self._check_fork(header, prev)):
            return refused
        if self._bounds and (refused := self._check_bounds(signed, prev)):
            return refused
        if isinstance(prev, Refused):
            return self._vouching(header, prev)
        causes = self._causes(header, prev)
        if isinstance(causes, Refused):
            return self._vouching(header, causes)
        refused = self._check_history(header, *causes)
        try:
            return refused or self._put(signed, prev, *causes)
        except LimitError as error:
            return Refused(Reason.TOO_MANY_BRANCHES, str(error))

    def _put(
        self, signed: SignedUpdate, prev: Known, causes: VersionVector, hashes: dict[bytes, bytes]
    ) -> Accepted:
        """Put the update where it belongs. Raises `LimitError`."""
        header = signed.header
        placed = self._place(header.writer, header.clock, header.hash, prev, causes, hashes)
        if not placed.siblings:
            return Accepted(signed, placed.branch, placed.dependencies, placed.renames)
        headers = [decode_signed_header(one.data) for one in placed.siblings if one.data is not None]
        proof = min(
            (ForkProof.of(one, header) for one in headers),
            key=lambda proof: (proof.first, proof.second),
            default=None,
        )
        return Accepted(signed, placed.branch, placed.dependencies, placed.renames, proof, forks=True)

    def _check_author(self, header: SignedHeader, verified: bool) -> Refused | None:
        if header.volume != self._volume:
            return Refused(Reason.FOREIGN_VOLUME, f"the update belongs to volume {header.volume.hex()}")
        public = self._members.public_key(header.writer)
        if public is None:
            public = self._members.former_key(header.writer)
            if public is None:
                return Refused(Reason.NOT_A_MEMBER, f"its writer {header.writer.hex()} is not a member")
            if not self._is_vouched(header):
                return Refused(Reason.NOT_VOUCHED, f"its writer {header.writer.hex()} was removed")
        if not verified and not header.verify(public):
            return Refused(Reason.BAD_SIGNATURE, f"{header.writer.hex()} did not sign this")
        return None

    def _check_fork(self, header: SignedHeader, prev: Known | Refused) -> Refused | None:
        if isinstance(prev, Known) and prev.branch not in self._branches:
            return None  # it is the first of its device
        if self._has_room(header.writer) or self._is_vouched(header):
            return None
        return Refused(Reason.NOT_VOUCHED, f"its writer {header.writer.hex()} has forked too often")

    def _check_bounds(self, signed: SignedUpdate, prev: Known | Refused) -> Refused | None:
        header = signed.header
        bounds = self._bounds.get(header.writer)
        if not bounds or self._is_vouched(header):
            return None
        causes = {stamp: self._find(stamp.prefix) for stamp in header.deps}
        known = [one for one in (prev, *causes.values()) if isinstance(one, Known)]
        # What precedes it may wait for just this one, as it does not depend on all of them itself.
        before = self._met.get((header.writer, header.prev), frozenset())
        missed = [one for one in _not_in(bounds, known) if one not in before]
        rivals = {one: {by for by in (one.author, *one.seconds) if header.writer < by} for one in missed}
        bound = set(self._log.binds(signed)) if any(rivals.values()) else set()
        missed = [one for one in missed if one.from_first or bound.isdisjoint(rivals[one])]
        if not missed:
            self._obeyed[header.writer] = max(header.clock, self._obeyed.get(header.writer, 0))
            return None
        for stamp, cause in causes.items():
            if cause is None:
                message = f"it depends on update {stamp}, which is not accepted here"
                return self._vouching(header, Refused(Reason.MISSING_DEPENDENCY, message, missing=stamp))
        if header.clock < self._obeyed_at(header.writer) and not any(one.from_first for one in missed):
            return None
        if met := frozenset(bounds).difference(missed):
            if len(self._met) >= _MOST_VOUCHED:
                self._met.clear()
            self._met[header.writer, header.hash] = met
        message = f"its writer {header.writer.hex()} pretends not to know what binds it"
        return Refused(Reason.NOT_VOUCHED, message, prev.missing if isinstance(prev, Refused) else None)

    def _obeyed_at(self, device: bytes) -> int:
        """The highest clock known of an update of the device that depends on all that it should."""
        tips = [tip for tip in self.tips() if tip.device == device]
        clocks = [tip.clock for tip in tips if not _not_in(self._bounds[device], [tip])]
        return max([self._obeyed.get(device, 0), *clocks])

    def _has_room(self, device: bytes) -> bool:
        """Whether one more branch of the device is accepted from anybody."""
        return self.ends(device) < most_branches(len(self._members), self._limits)

    def _is_vouched(self, header: SignedHeader) -> bool:
        return header.hash[:PREFIX_SIZE] in self._vouched

    def _vouching(self, header: SignedHeader, refused: Refused) -> Refused:
        """An update that may be accepted vouches for what it waits for."""
        missing = refused.missing
        if missing is not None and (
            self._is_vouched(header) or (missing.device != header.writer and self._has_room(header.writer))
        ):
            if len(self._vouched) >= _MOST_VOUCHED:
                self._vouched.clear()
            self._vouched.add(missing.prefix)
        return refused

    def _previous(self, header: SignedHeader) -> Known | Refused:
        if header.prev == ZERO_HASH:
            return self._beginning(header.writer)
        leaf = self._leaves.get(header.prev)
        found = self._tips[leaf] if leaf else self._find(header.prev[:PREFIX_SIZE])
        if (
            found is not None
            and found.hash == header.prev
            and found.device == header.writer
            and found.clock == header.prev_clock
        ):
            return found
        stamp = UpdateStamp(header.writer, header.prev_clock, header.prev[:PREFIX_SIZE])
        if found is None or found.hash != header.prev:
            return Refused(
                Reason.MISSING_PREVIOUS,
                f"it follows update {stamp} with a hash that is not accepted here",
                missing=stamp,
            )
        return Refused(Reason.FALSE_NAME, f"what it follows is not update {stamp}")

    def _causes(
        self, header: SignedHeader, prev: Known
    ) -> tuple[VersionVector, dict[bytes, bytes]] | Refused:
        """The full dependency vector, if all of it is accepted and nothing is left out, and hashes of it."""
        known = including(prev)
        if not header.deps:
            return self._closed(prev, known, ())
        causes: list[Known] = []
        for stamp in header.deps:
            cause = self._find(stamp.prefix)
            if cause is None:
                return Refused(
                    Reason.MISSING_DEPENDENCY,
                    f"it depends on update {stamp}, which is not accepted here",
                    missing=stamp,
                )
            if cause.stamp != stamp:
                return Refused(Reason.FALSE_NAME, f"it names {cause.stamp} as update {stamp}")
            if cause.clock <= known[cause.branch]:
                return Refused(Reason.STALE_DEPENDENCY, f"its writer already depended on {stamp}")
            causes.append(cause)
        full, hashes = self._closed(prev, known, causes)
        for cause in causes:
            if not full.covers(cause.dependencies):
                return Refused(
                    Reason.OMITTED_DEPENDENCY,
                    f"it depends on update {cause.stamp} but omits what that one depends on",
                )
        return full, hashes

    def _check_history(
        self, header: SignedHeader, causes: VersionVector, hashes: dict[bytes, bytes]
    ) -> Refused | None:
        due = causes.highest + 1
        if header.clock != due:
            return Refused(Reason.WRONG_CLOCK, f"its clock is {header.clock}, its causes make it {due}")
        newest: list[tuple[bytes, int, bytes]] = []
        for branch, clock in self._branches.leaves(causes):
            identity = hashes.get(branch)
            if identity is None:
                identity = hashes[branch] = self._hash_of(branch, clock)
            newest.append((self._branches[branch].device, clock, identity))
        if header.history != history_hash(newest):
            return Refused(Reason.WRONG_HISTORY, "its writer saw another history than the one accepted here")
        return None


def _not_in(bounds: Sequence[Bound], known: Sequence[Known]) -> list[Bound]:
    """The *bounds* that none of the *known* updates covers."""
    vectors = [including(one) for one in known]
    return [one for one in bounds if all(vector[one.branch] < one.clock for vector in vectors)]
