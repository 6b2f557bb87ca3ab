"""The log of accepted updates: which update comes next, and which may be accepted (Depot 4.1, 4.2).

`LogState` holds what every decision needs in memory, one `Tip` per writer. The updates themselves are
the caller's to store; `AcceptedLog` is what the state asks of that store. It must show each accepted
update before the next call of `accept` or `next_update`.

The rule. An update is accepted when
 1. it belongs to our volume, and a member signed it;
 2. it extends the newest update that we accepted from its writer (`prev`);
 3. every update named in `deps` is accepted, is newer than what the writer's previous update depended
    on, and depends on nothing that the update's full dependency vector leaves out;
 4. its clock is one more than the highest clock among its causes. A correct writer depends on all
    that it has seen, so its clock *is* that; and nobody can exhaust the clock space with a jump;
 5. its history hash is the one that we compute over its full dependency vector from our own log.

The *full dependency vector* of an update is that of the writer's previous update, plus that update
itself, overlaid with `deps`. By 3 it is causally closed: u depends on v exactly if u's vector covers
v's stamp. The rule looks at accepted updates only, never at wall clocks or at the order of arrival,
so all correct devices decide alike.

A crash must never let a device sign two updates with one `prev`, for it would then fork itself: store
an own update and the state in one transaction before a byte of it leaves the device. If that
transaction fails, drop this object and load the state again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError, LogStoreError, NotAMemberError
from sync.fork import ForkProof
from sync.hashing import HASH_SIZE, ZERO_HASH
from sync.history import history_hash
from sync.identity import DEVICE_ID_SIZE, DeviceKey, Members
from sync.update import (
    VOLUME_ID_SIZE,
    SignedHeader,
    SignedUpdate,
    Update,
    decode_signed_header,
    encode_signed,
)
from sync.vector import MAX_CLOCK, MAX_WRITERS, VersionVector
from sync.writes import Write

__all__ = [
    "Accepted",
    "AcceptedLog",
    "Duplicate",
    "Forked",
    "LogState",
    "Outcome",
    "Reason",
    "Refused",
    "Tip",
]

_MAGIC = b"HFLS"
_VERSION = 1


class AcceptedLog(Protocol):
    """Lookups in the caller's store of accepted updates."""

    def hash_of(self, writer: bytes, clock: int) -> bytes | None:
        """The hash of the accepted update with this stamp, or None when there is none."""

    def vector_of(self, writer: bytes, clock: int) -> VersionVector | None:
        """The full dependency vector of that update (`Accepted.dependencies`), or None likewise."""

    def successor_of(self, writer: bytes, clock: int) -> bytes | None:
        """The bytes of the writer's first accepted update above `clock`, or None when there is none.

        Its header and signature are enough; what follows them is not read.
        """


@dataclass(frozen=True, slots=True)
class Tip:
    """A writer's newest accepted update: its stamp, its hash and its full dependency vector."""

    clock: int
    hash: bytes
    dependencies: VersionVector


class Reason(Enum):
    """Why an update was refused."""

    FOREIGN_VOLUME = "foreign volume"
    NOT_A_MEMBER = "not a member"
    BAD_SIGNATURE = "bad signature"
    MISSING_PREVIOUS = "missing previous update"
    MISSING_DEPENDENCY = "missing dependency"
    STALE_DEPENDENCY = "stale dependency"
    OMITTED_DEPENDENCY = "omitted dependency"
    WRONG_CLOCK = "wrong clock"
    WRONG_HISTORY = "wrong history"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The update is now part of the log."""

    update: SignedUpdate
    dependencies: VersionVector
    """Its full dependency vector: a register value stamped (writer, clock) is superseded by this
    update's write to the same key exactly if `dependencies[writer] >= clock`."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The update was accepted before."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The update was not accepted, and nothing changed."""

    reason: Reason
    message: str
    missing: tuple[bytes, int] | None = None
    """The stamp (writer, clock) of an update that must be accepted first."""

    @property
    def retryable(self) -> bool:
        """True when the update may be acceptable once `missing` is accepted."""
        return self.missing is not None


@dataclass(frozen=True, slots=True)
class Forked:
    """The update and one accepted earlier have the same `prev`. It was not accepted."""

    proof: ForkProof


Outcome: TypeAlias = Accepted | Duplicate | Refused | Forked


def _stamp(writer: bytes, clock: int) -> str:
    return f"{clock}@{writer.hex()}"


class LogState:
    """What has been accepted into the log of one volume on one device.

    `accept` and `next_update` change the state; nothing else does.
    """

    def __init__(
        self, volume: bytes, members: Members, log: AcceptedLog, tips: Mapping[bytes, Tip] | None = None
    ) -> None:
        if len(members) > MAX_WRITERS:
            raise LimitError(f"{len(members)} members, a version vector holds {MAX_WRITERS}")
        self._volume = volume
        self._members = members
        self._log = log
        self._tips: dict[bytes, Tip] = dict(tips or {})
        self._vector = VersionVector({writer: tip.clock for writer, tip in self._tips.items()})

    @property
    def volume(self) -> bytes:
        return self._volume

    @property
    def vector(self) -> VersionVector:
        """For each writer, the clock of its newest accepted update."""
        return self._vector

    def tip(self, writer: bytes) -> Tip | None:
        """The newest accepted update of `writer`, None when there is none."""
        return self._tips.get(writer)

    def history(self) -> bytes:
        """The history hash at our vector: equal vectors and hashes mean equal logs."""
        return history_hash(self._vector, self._hash_of)

    def next_update(self, writes: Sequence[Write], time_ns: int, key: DeviceKey) -> SignedUpdate:
        """Sign `writes` as our next update, which depends on all that is accepted, and accept it.

        `time_ns` is the time of day in ns since the epoch. Raises `NotAMemberError`, `LimitError`,
        ValueError (see `encode_signed`).
        """
        writer = key.device_id
        if writer not in self._members:
            raise NotAMemberError(f"device {writer.hex()} is no member of volume {self._volume.hex()}")
        tip = self._tips.get(writer)
        known = tip.dependencies if tip else VersionVector()
        update = Update(
            volume=self._volume,
            writer=writer,
            clock=self._vector.highest + 1,
            prev_clock=tip.clock if tip else 0,
            prev=tip.hash if tip else ZERO_HASH,
            deps=tuple(
                (other, clock)
                for other, clock in self._vector.items()
                if other != writer and clock != known[other]
            ),
            history=self.history(),
            time_ns=time_ns,
            writes=writes,
        )
        data = encode_signed(update, key)
        signed = SignedUpdate(data, decode_signed_header(data), tuple(writes))
        self._advance(signed.header, self._vector)
        return signed

    def accept(self, signed: SignedUpdate) -> Outcome:
        """Accept an update that came from anywhere, or say why not."""
        header = signed.header
        if self._log.hash_of(header.writer, header.clock) == header.hash:
            return Duplicate()
        refused = self._check_author(header)
        if refused:
            return refused
        tip = self._tips.get(header.writer)
        if header.prev != (tip.hash if tip else ZERO_HASH):
            return self._check_chain(header)
        dependencies = self._dependencies_of(header, tip)
        if isinstance(dependencies, Refused):
            return dependencies
        refused = self._check_history(header, dependencies)
        if refused:
            return refused
        self._advance(header, dependencies)
        return Accepted(signed, dependencies)

    def _check_author(self, header: SignedHeader) -> Refused | None:
        if header.volume != self._volume:
            return Refused(Reason.FOREIGN_VOLUME, f"the update belongs to volume {header.volume.hex()}")
        public = self._members.public_key(header.writer)
        if public is None:
            return Refused(Reason.NOT_A_MEMBER, f"its writer {header.writer.hex()} is no member")
        if not header.verify(public):
            return Refused(Reason.BAD_SIGNATURE, f"{header.writer.hex()} did not sign this")
        return None

    def _check_chain(self, header: SignedHeader) -> Refused | Forked:
        """The update does not extend its writer's tip: does it come too early, or is it a fork?"""
        writer, prev_clock = header.writer, header.prev_clock
        if header.prev != ZERO_HASH and self._log.hash_of(writer, prev_clock) != header.prev:
            return Refused(
                Reason.MISSING_PREVIOUS,
                f"it follows update {_stamp(writer, prev_clock)} with a hash that is not accepted here",
                missing=(writer, prev_clock),
            )
        successor = self._log.successor_of(writer, prev_clock)
        if successor is None:
            raise LogStoreError(f"the log store lost what follows update {_stamp(writer, prev_clock)}")
        return Forked(ForkProof.of(decode_signed_header(successor), header))

    def _dependencies_of(self, header: SignedHeader, tip: Tip | None) -> VersionVector | Refused:
        """The update's full dependency vector, if all of it is accepted and nothing is left out."""
        writer = header.writer
        if header.prev_clock != (tip.clock if tip else 0):
            return Refused(Reason.WRONG_CLOCK, f"its prev has another clock than {header.prev_clock}")
        known = tip.dependencies.with_entries([(writer, tip.clock)]) if tip else VersionVector()
        for other, clock in header.deps:
            if clock <= known[other]:
                return Refused(
                    Reason.STALE_DEPENDENCY, f"its writer already depended on {_stamp(other, known[other])}"
                )
            if self._log.hash_of(other, clock) is None:
                return Refused(
                    Reason.MISSING_DEPENDENCY,
                    f"it depends on update {_stamp(other, clock)}, which is not accepted here",
                    missing=(other, clock),
                )
        full = known.with_entries(header.deps)
        for other, clock in header.deps:
            if not full.covers(self._vector_of(other, clock)):
                return Refused(
                    Reason.OMITTED_DEPENDENCY,
                    f"it depends on update {_stamp(other, clock)} but omits what that one depends on",
                )
        return full

    def _check_history(self, header: SignedHeader, dependencies: VersionVector) -> Refused | None:
        due = dependencies.highest + 1
        if header.clock != due:
            return Refused(Reason.WRONG_CLOCK, f"its clock is {header.clock}, its causes make it {due}")
        if header.history != history_hash(dependencies, self._hash_of):
            return Refused(Reason.WRONG_HISTORY, "its writer saw another history than the one accepted here")
        return None

    def _advance(self, header: SignedHeader, dependencies: VersionVector) -> None:
        self._tips[header.writer] = Tip(header.clock, header.hash, dependencies)
        self._vector = self._vector.with_entries([(header.writer, header.clock)])

    def _hash_of(self, writer: bytes, clock: int) -> bytes:
        tip = self._tips.get(writer)
        found = tip.hash if tip and tip.clock == clock else self._log.hash_of(writer, clock)
        if found is None:
            raise LogStoreError(f"the log store lost update {_stamp(writer, clock)}")
        return found

    def _vector_of(self, writer: bytes, clock: int) -> VersionVector:
        tip = self._tips.get(writer)
        found = tip.dependencies if tip and tip.clock == clock else self._log.vector_of(writer, clock)
        if found is None:
            raise LogStoreError(f"the log store lost the vector of update {_stamp(writer, clock)}")
        return found

    def encode(self) -> bytes:
        """The state as a record to store beside the log:

        magic "HFLS", version u16 = 1, volume (16), count varint, then per writer, ascending:
        writer (16), clock (varint), hash (32), full dependency vector (version vector form).
        """
        out = Writer().format(_MAGIC, _VERSION).raw(self._volume).varint(len(self._tips))
        for writer, tip in sorted(self._tips.items()):
            out.raw(writer).varint(tip.clock).raw(tip.hash)
            tip.dependencies.write_to(out)
        return out.getvalue()

    @classmethod
    def decode(cls, data: Buffer, members: Members, log: AcceptedLog) -> LogState:
        """The state that `encode` stored. Raises `DecodeError`."""
        reader = Reader(data)
        reader.format(_MAGIC, _VERSION)
        volume = reader.raw(VOLUME_ID_SIZE)
        tips: dict[bytes, Tip] = {}
        previous = b""
        for _ in range(reader.varint(MAX_WRITERS)):
            writer = reader.raw(DEVICE_ID_SIZE)
            if writer <= previous:
                raise DecodeError("log state: writers are not in ascending order")
            tip = Tip(reader.varint(MAX_CLOCK), reader.raw(HASH_SIZE), VersionVector.read_from(reader))
            if tip.clock != tip.dependencies.highest + 1:
                raise DecodeError(f"log state: clock {tip.clock} does not follow from its causes")
            tips[writer] = tip
            previous = writer
        reader.end()
        return cls(volume, members, log, tips)
