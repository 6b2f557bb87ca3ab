"""What becomes of an update that is offered to the log, and where it waits until its causes come."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from sync.errors import DecodeError
from sync.identity import Members
from sync.update import PREFIX_SIZE, SignedHeader, SignedUpdate, UpdateStamp, decode_signed_header
from sync.vector import Rename, VersionVector

__all__ = ["Accepted", "Duplicate", "ForkProof", "Inbox", "Outcome", "Reason", "Refused", "verify_fork_proof"]

# -- proofs that a writer forked its history (Depot 4.2, 5.6) -------------------------------------------
# A correct writer chains its updates: no two of them have the same `prev`. Two signed headers that do
# convince anybody who knows the writer's key, without the log and without the writes.


class ForkProof(Struct, frozen=True):
    """Two updates with one `prev`: each the header and signature bytes, ascending by update hash."""

    first: bytes
    second: bytes

    @classmethod
    def of(cls, one: SignedHeader, other: SignedHeader) -> ForkProof:
        """The proof made of two headers, the same in whichever order they come."""
        first, second = sorted((one, other), key=lambda header: header.hash)
        return cls(first.data, second.data)


def verify_fork_proof(proof: ForkProof, volume: bytes, members: Members) -> bytes | None:
    """The id of the member that the proof convicts of forking `volume`, or None if it proves nothing."""
    try:
        first, second = decode_signed_header(proof.first), decode_signed_header(proof.second)
    except DecodeError:
        return None
    if (first.data, second.data) != (proof.first, proof.second):
        return None
    if first.volume != volume or (first.volume, first.writer, first.prev) != (
        second.volume,
        second.writer,
        second.prev,
    ):
        return None
    public = members.public_key(first.writer)
    if public is None or first.hash >= second.hash:
        return None
    return first.writer if first.verify(public) and second.verify(public) else None


# -- what becomes of an update that is offered to the log -----------------------------------------------


class Reason(Enum):
    """Why an update was refused."""

    MALFORMED = "malformed"
    FOREIGN_VOLUME = "foreign volume"
    NOT_A_MEMBER = "not a member"
    NOT_VOUCHED = "by a machine that was removed, has forked too often, or pretends not to know what binds it"
    BAD_SIGNATURE = "bad signature"
    MISSING_PREVIOUS = "missing previous update"
    MISSING_DEPENDENCY = "missing dependency"
    FALSE_NAME = "false name"
    STALE_DEPENDENCY = "stale dependency"
    OMITTED_DEPENDENCY = "omitted dependency"
    WRONG_CLOCK = "wrong clock"
    WRONG_HISTORY = "wrong history"
    TOO_MANY_BRANCHES = "too many branches"


class Accepted(NamedTuple):
    """The update is now part of the log. Carry out the renames first, then store it."""

    update: SignedUpdate
    branch: bytes
    """The branch that it is on, see `sync.log_tree`."""
    dependencies: VersionVector
    """Its full dependency vector: a register value stamped (branch, clock) is superseded by this
    update's write to the same key exactly if `dependencies[branch] >= clock`."""
    renames: tuple[Rename, ...] = ()
    """Updates accepted earlier that have other branches now, and so have other stamps and vectors."""
    proof: ForkProof | None = None
    """Set when the update and one accepted earlier have the same `prev`, unless a checkpoint has taken that
    one's place."""
    forks: bool = False
    """Whether there is an update with the same `prev`."""


class Duplicate(Struct, frozen=True):
    """The update was accepted before."""


class Refused(Struct, frozen=True):
    """The update was not accepted, and nothing changed."""

    reason: Reason
    message: str
    missing: UpdateStamp | None = None
    """An update that must be accepted first; of one that nobody vouches for, that may show it to be good."""

    @property
    def retryable(self) -> bool:
        """True when the update may be acceptable once `missing` is accepted."""
        return self.missing is not None and self.reason is not Reason.NOT_VOUCHED


Outcome: TypeAlias = Accepted | Duplicate | Refused


# -- the inbox: updates that came before their causes wait here, within bounds --------------------------
# Updates arrive over several ways at once, so an update may come before another one that it depends on. When
# the bounds are exceeded, those farthest in the future (of the highest clock) are dropped; the sender still
# has them, and they are asked for again.
#
# Updates of a device that was removed, or has forked too often, or pretends not to know what binds it, wait
# for an update that vouches for them. Whether one of the last kind does pretend may depend on the update
# before it, so it comes up again when that is accepted.


_BYTES = 64 << 20
_COUNT = 20_000


class _Unvouched(Struct, frozen=True):
    data: bytes
    missing: bytes  # what may show that nobody need vouch for it: the beginning of a hash, or nothing


class _Waiting(Struct, frozen=True):
    data: bytes
    clock: int
    missing: UpdateStamp


class Inbox:
    """Waiting updates, at most `most_bytes` (less than one update may be kept above it) and `most_count`."""

    def __init__(self, most_bytes: int = _BYTES, most_count: int = _COUNT) -> None:
        self._most_bytes = most_bytes
        self._most_count = most_count
        self._waiting: dict[bytes, _Waiting] = {}  # by update hash
        self._by_missing: dict[bytes, dict[bytes, None]] = {}  # hashes, by the prefix that they wait for
        self._bytes = 0
        self._unvouched: dict[bytes, _Unvouched] = {}  # by the beginning of its hash; the newest last
        self._following: dict[bytes, dict[bytes, None]] = {}  # of that what may be good after an update
        self._unvouched_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def missing(self) -> set[UpdateStamp]:
        """What is waited for and does not wait here itself."""
        here = {identity[:PREFIX_SIZE] for identity in self._waiting}
        return {one.missing for one in self._waiting.values() if one.missing.prefix not in here}

    def add(self, data: bytes, accept: Callable[[bytes], Outcome]) -> list[Outcome]:
        """Offer an update to `accept`, and after it whatever waited for it: the outcomes, in order.

        `accept` also stores and applies what it accepts. An update that lacks a cause is kept, and its
        outcome is among those returned; when it comes up again, only what changed is.
        """
        outcomes: list[Outcome] = []
        offered = [data]
        taken: set[bytes] = set()  # so that updates which wait for each other come to an end
        for data in offered:  # it grows in the loop
            outcome = accept(data)
            outcomes.append(outcome)
            if self._waiting or self._unvouched or not isinstance(outcome, Accepted):
                offered += self._due(data, outcome, taken)
        return outcomes

    def _due(self, data: bytes, outcome: Outcome, taken: set[bytes]) -> list[bytes]:
        """What is to be offered again after *data*, with which that became of it. *taken*: of what has been
        refused, the beginnings of hashes whose followers were offered again."""
        if isinstance(outcome, Accepted):
            prefix = outcome.update.hash[:PREFIX_SIZE]
            due = self._take(prefix)
            for follower in list(self._following.get(prefix, ())):
                due += self._take_unvouched(follower)
            return due
        if not isinstance(outcome, Refused):
            return []
        if outcome.reason is Reason.NOT_VOUCHED:
            prefix = self._keep_unvouched(data, outcome.missing)
            if prefix in taken:
                return []
            taken.add(prefix)
            return self._take(prefix)
        if outcome.missing:
            self._keep(data, outcome.missing)
            return self._take_unvouched(outcome.missing.prefix)
        return []

    def release_unvouched(self) -> list[bytes]:
        """What nobody had vouched for, the newest last: others are members now. It is kept no longer."""
        found = [one.data for one in self._unvouched.values()]
        self._unvouched.clear()
        self._following.clear()
        self._unvouched_bytes = 0
        return found

    def _take(self, prefix: bytes) -> list[bytes]:
        if prefix not in self._by_missing:
            return []
        found = [self._waiting.pop(identity) for identity in self._by_missing.pop(prefix, ())]
        self._bytes -= sum(len(one.data) for one in found)
        return [one.data for one in found]

    def _take_unvouched(self, prefix: bytes) -> list[bytes]:
        one = self._unvouched.pop(prefix, None)
        if one is None:
            return []
        self._unvouched_bytes -= len(one.data)
        if one.missing:
            siblings = self._following[one.missing]
            del siblings[prefix]
            if not siblings:
                del self._following[one.missing]
        return [one.data]

    def _keep_unvouched(self, data: bytes, missing: UpdateStamp | None) -> bytes:
        """What its hash begins with. What waits for it is to be vouched for, too."""
        prefix = decode_signed_header(data).hash[:PREFIX_SIZE]
        if prefix in self._unvouched:
            return prefix
        self._unvouched[prefix] = _Unvouched(data, missing.prefix if missing else b"")
        if missing:
            self._following.setdefault(missing.prefix, {})[prefix] = None
        self._unvouched_bytes += len(data)
        while self._unvouched_bytes > self._most_bytes // 4 or len(self._unvouched) > self._most_count:
            self._take_unvouched(next(iter(self._unvouched)))
        return prefix

    def _keep(self, data: bytes, missing: UpdateStamp) -> None:
        header = decode_signed_header(data)
        if header.hash in self._waiting:
            return
        self._waiting[header.hash] = _Waiting(data, header.clock, missing)
        self._by_missing.setdefault(missing.prefix, {})[header.hash] = None
        self._bytes += len(data)
        if self._bytes > self._most_bytes or len(self._waiting) > self._most_count:
            self._shrink()

    def _shrink(self) -> None:
        """Drop the farthest quarter or more, so that this is not done for every update."""
        for identity in sorted(self._waiting, key=lambda one: self._waiting[one].clock, reverse=True):
            if self._bytes <= self._most_bytes * 3 // 4 and len(self._waiting) <= self._most_count * 3 // 4:
                return
            one = self._waiting.pop(identity)
            self._bytes -= len(one.data)
            siblings = self._by_missing[one.missing.prefix]
            del siblings[identity]
            if not siblings:
                del self._by_missing[one.missing.prefix]
