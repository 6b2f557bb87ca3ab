r"""The names of the objects of a register: the clouds run no code, so lists of names are all that they tell.

    name    atomic/STORE/CONTAINER/KEY/RECORD
            atomic/STORE/transactions/COMMITMENT/RECORD
            atomic/STORE/holds/CONTAINER/RECORD

STORE is the id of the store, CONTAINER and KEY are keyed hashes (16 bytes each) in hex. COMMITMENT, in hex,
is the one that all versions of a transaction have. RECORD is this, in the base 32 that keeps the order (RFC
4648, 7), in lower case and without padding:

    bytes   field
    6       2^48 - 1 less the number             \
    8       2^64 - 1 less the writer              > the time, inverted: the newest name comes first
    3       2^24 - 1 less the step               /
    1       kind
    a version (kinds 1, 2 and 6), a proof of writing (kinds 3 and 7), and a void one (kind 8):
    8       write: a random number that no other value of the store has
    1       k: how many clouds have to give their objects for the value; 0: the key was deleted
    4       size of each cloud's object in bytes
    16      verifier: keyed hash of the metadata in the objects, which have the hashes of the shares
    16      commitment: hash of a nonce that only the writer knows; a proof has the nonce itself
    a ballot (kind 4):
    4       round                                \ the ballot
    8       proposer                             /
    what was accepted (kind 5): a ballot, and then
    8       write of the version
    16      nonce of the version
    a hold (kind 9), see `holds`:
    8       a random number
    all end with
    16      keyed hash of what is before, and of the rest of the name

Versions of kind 1 count by the clouds that have them (PASIS). Those of kind 2 count when there is a proof of
writing (PoWerStore), kind 3: the nonce, which the writer reveals when a quorum of clouds has the objects.
Those of kind 6 are of a transaction (`transaction`), with proofs of kind 7; one that got its time, of a
transaction that does not take place, is void.

A name that is hashed with the key of the volume was given by a member. So a cloud can hide names, or show
them again when they were deleted; it cannot make any (validating timestamps, PASIS 4.2.3).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from blake3 import blake3
from msgspec import Struct, field

from sync.codec import Buffer

__all__ = [
    "NONCE_SIZE",
    "OBJECT_PREFIX",
    "VERIFIER_SIZE",
    "ZERO_TIME",
    "Accepted",
    "Ballot",
    "Kind",
    "Names",
    "RegisterNames",
    "Seen",
    "Time",
    "Version",
    "commitment_to",
]

OBJECT_PREFIX: Final = "atomic/"
NONCE_SIZE: Final = 16
VERIFIER_SIZE: Final = 16
_HASH_SIZE: Final = 16
_MOST_NUMBER: Final = (1 << 48) - 1
_MOST_WRITER: Final = (1 << 64) - 1
_MOST_STEP: Final = (1 << 24) - 1
_TIME: Final = struct.Struct(">HIQBH")
_VERSION: Final = struct.Struct(">QBI16s16s")
_BALLOT: Final = struct.Struct(">IQ")
_ACCEPTED: Final = struct.Struct(">IQQ16s")
_NUMBER: Final = struct.Struct(">Q")
_DIGITS: Final = re.compile(r"[0-9a-v]+")
_MOST_DIGITS: Final = 128
_PROOF: Final = 3
_PREPARED: Final = 4
_ACCEPTANCE: Final = 5
_JOINT_PROOF: Final = 7
_VOID: Final = 8
_HOLD: Final = 9


class Time(NamedTuple):
    """The logical time of a version; times order all versions of a register.

    A write that depends on no other takes a higher `number`, and tells itself from those of the same number
    by `writer`. A version that must follow another one, with nothing between them, takes its next `step`.
    """

    number: int
    writer: int
    step: int

    @property
    def version(self) -> int:
        """The number that people see: every write that knows of another one has a higher one than that."""
        return self.number + self.step

    def after(self) -> Time:
        """The time of what follows this directly."""
        return self._replace(step=self.step + 1)


ZERO_TIME: Final = Time(0, 0, 0)
"""That of a register that nobody has written."""


class Kind(IntEnum):
    """What makes a version complete; the kind of its record."""

    COUNTED = 1
    """The clouds that have it."""
    PROVEN = 2
    """A proof."""
    JOINT = 6
    """A proof, too: it is of a transaction, all versions of which have one commitment."""


class Version(NamedTuple):
    """What a name tells of a version."""

    time: Time
    write: int
    k: int
    size: int
    verifier: bytes
    commitment: bytes
    kind: Kind = Kind.PROVEN

    @property
    def live(self) -> bool:
        """Whether it is a value: the key was not deleted."""
        return self.k > 0

    @property
    def needed(self) -> int:
        """How many clouds have to give their objects."""
        return max(1, self.k)


class Ballot(NamedTuple):
    """An attempt to decide what follows a version (Disk Paxos). The higher one wins."""

    round: int
    proposer: int


class Accepted(NamedTuple):
    """What a proposer wants to follow a version: one with this `write`, the nonce of which it reveals."""

    ballot: Ballot
    write: int
    nonce: bytes


def commitment_to(nonce: bytes) -> bytes:
    """What binds a writer to its nonce, and does not reveal it."""
    return blake3(b"hybrisfs proof of writing" + nonce).digest(_HASH_SIZE)


class Seen(Struct):
    """What lists of one register have shown."""

    versions: set[Version] = field(default_factory=set)
    proofs: dict[Version, bytes] = field(default_factory=dict)
    """The nonces of the versions that are proven."""
    void: set[Version] = field(default_factory=set)
    """Of those that got their times, the ones that do not take place."""
    ballots: dict[Time, set[Ballot]] = field(default_factory=dict)
    """Those that were begun, by the time that they are about."""
    accepted: dict[Time, set[Accepted]] = field(default_factory=dict)
    holds: set[int] = field(default_factory=set)
    """The numbers of holds."""

    def latest_proven(self) -> Version | None:
        """The proven version with the highest time."""
        return max(self.proofs, key=lambda one: (one.time, one.write), default=None)

    def next_number(self) -> int:
        """A number that is higher than all versions."""
        known = (one.time.version for one in (*self.versions, *self.proofs))
        return min(max(known, default=0) + 1, _MOST_NUMBER)

    def merge(self, other: Seen) -> None:
        """Add what another list has shown."""
        self.versions |= other.versions
        self.proofs |= other.proofs
        self.void |= other.void
        for time, ballots in other.ballots.items():
            self.ballots.setdefault(time, set()).update(ballots)
        for time, accepted in other.accepted.items():
            self.accepted.setdefault(time, set()).update(accepted)
        self.holds |= other.holds


class Names:
    """The names in one store. Thread-safe."""

    def __init__(self, key: bytes, store: bytes) -> None:
        """*key*: 32 bytes that all devices of the volume have; *store*: the id of the store, 16 bytes."""
        self._hash_key = blake3(b"hybrisfs register keys", key=key).digest()
        self._record_key = blake3(b"hybrisfs register names", key=key).digest()
        self._verifier_key = blake3(b"hybrisfs register verifiers", key=key).digest()
        self._share_key = blake3(b"hybrisfs register shares", key=key).digest()
        self._prefix = f"{OBJECT_PREFIX}{store.hex()}/"

    def of_container(self, container: str) -> str:
        """What the names of all objects of a container begin with."""
        return f"{self._prefix}{self._hashed(container.encode())}/"

    def of_register(self, container: str, key: bytes) -> RegisterNames:
        """The names of the register of a key."""
        prefix = f"{self.of_container(container)}{self._hashed(container.encode() + b'/' + key)}/"
        return RegisterNames(prefix, self._record_key)

    def of_holds(self, container: str) -> RegisterNames:
        """The names of the holds of a container."""
        return RegisterNames(f"{self._prefix}holds/{self._hashed(container.encode())}/", self._record_key)

    def registers(self, container: str, names: Iterable[str]) -> dict[str, list[str]]:
        """Names in a container, by the prefixes of their registers."""
        start = len(self.of_container(container))
        found: dict[str, list[str]] = {}
        for name in names:
            register, separator, _ = name[start:].partition("/")
            if separator:
                found.setdefault(f"{name[:start]}{register}/", []).append(name)
        return found

    def at(self, prefix: str) -> RegisterNames:
        """The names that begin with the prefix of a register."""
        return RegisterNames(prefix, self._record_key)

    def verifier(self, metadata: Buffer) -> bytes:
        """The keyed hash of the metadata of a version, as they lie on the clouds."""
        return blake3(metadata, key=self._verifier_key).digest(VERIFIER_SIZE)

    def checksum(self, share: Buffer) -> bytes:
        """The keyed hash of a share."""
        return blake3(share, key=self._share_key).digest(VERIFIER_SIZE)

    def _hashed(self, text: bytes) -> str:
        return blake3(text, key=self._hash_key).hexdigest(_HASH_SIZE)


class RegisterNames:
    """The names of one register. Thread-safe."""

    def __init__(self, prefix: str, key: bytes) -> None:
        self.prefix: Final = prefix
        self._key = key

    def of_version(self, version: Version) -> str:
        """The name of a version's object, on each cloud."""
        return self._name(version.time, version.kind, _versioned(version, version.commitment))

    def of_proof(self, version: Version, nonce: bytes) -> str:
        """The name of the object that proves a version written."""
        kind = _JOINT_PROOF if version.kind is Kind.JOINT else _PROOF
        return self._name(version.time, kind, _versioned(version, nonce))

    def of_void(self, version: Version) -> str:
        """The name of the object that says that a version of a transaction does not take place."""
        return self._name(version.time, _VOID, _versioned(version, version.commitment))

    def of_ballot(self, time: Time, ballot: Ballot) -> str:
        """The name of the object that begins a ballot about what has this time."""
        return self._name(time, _PREPARED, _BALLOT.pack(*ballot))

    def of_accepted(self, time: Time, accepted: Accepted) -> str:
        """The name of the object that says what a proposer wants."""
        record = _ACCEPTED.pack(*accepted.ballot, accepted.write, accepted.nonce)
        return self._name(time, _ACCEPTANCE, record)

    def of_hold(self, number: int) -> str:
        """The name of the object that asks writers to wait."""
        return self._name(ZERO_TIME, _HOLD, _NUMBER.pack(number))

    def of_transaction(self, commitment: bytes) -> RegisterNames:
        """The names of the register that says what becomes of a transaction."""
        store = self.prefix[: self.prefix.index("/", len(OBJECT_PREFIX)) + 1]
        return RegisterNames(f"{store}transactions/{commitment.hex()}/", self._key)

    def time_of(self, name: str) -> Time | None:
        """The time of whatever object; None for a name that no member has given."""
        body = self._body(name)
        return None if body is None else _time(body)

    def read(self, names: Iterable[str]) -> Seen:
        """What names tell; those that no member has given are left out."""
        seen = Seen()
        for name in names:
            body = self._body(name)
            if body is not None:
                _read(body, seen)
        return seen

    def _name(self, time: Time, kind: int, record: bytes) -> str:
        number, writer = _MOST_NUMBER - time.number, _MOST_WRITER - time.writer
        step = _MOST_STEP - time.step
        inverted = _TIME.pack(number >> 32, number & 0xFFFFFFFF, writer, step >> 16, step & 0xFFFF)
        body = b"".join((inverted, bytes((kind,)), record))
        return self.prefix + _encode(body + self._proof(body))

    def _body(self, name: str) -> bytes | None:
        if not name.startswith(self.prefix):
            return None
        data = _decode(name[len(self.prefix) :])
        body, proof = data[:-_HASH_SIZE], data[-_HASH_SIZE:]
        return body if len(body) > _TIME.size and self._proof(body) == proof else None

    def _proof(self, body: bytes) -> bytes:
        return blake3(self.prefix.encode() + body, key=self._key).digest(_HASH_SIZE)


def _versioned(version: Version, last: bytes) -> bytes:
    return _VERSION.pack(version.write, version.k, version.size, version.verifier, last)


def _time(body: bytes) -> Time:
    high, low, writer, step_high, step_low = _TIME.unpack_from(body)
    return Time(
        _MOST_NUMBER - (high << 32 | low),
        _MOST_WRITER - writer,
        _MOST_STEP - (step_high << 16 | step_low),
    )


def _read(body: bytes, seen: Seen) -> None:
    time, kind, record = _time(body), body[_TIME.size], body[_TIME.size + 1 :]
    match kind:
        case Kind.COUNTED | Kind.PROVEN | Kind.JOINT if len(record) == _VERSION.size:
            write, k, size, verifier, last = _VERSION.unpack(record)
            seen.versions.add(Version(time, write, k, size, verifier, last, Kind(kind)))
        case _ if kind in (_PROOF, _JOINT_PROOF) and len(record) == _VERSION.size:
            write, k, size, verifier, last = _VERSION.unpack(record)
            proven = Kind.JOINT if kind == _JOINT_PROOF else Kind.PROVEN
            version = Version(time, write, k, size, verifier, commitment_to(last), proven)
            seen.proofs[version] = last
        case _ if kind == _VOID and len(record) == _VERSION.size:
            write, k, size, verifier, last = _VERSION.unpack(record)
            seen.void.add(Version(time, write, k, size, verifier, last, Kind.JOINT))
        case _ if kind == _PREPARED and len(record) == _BALLOT.size:
            seen.ballots.setdefault(time, set()).add(Ballot(*_BALLOT.unpack(record)))
        case _ if kind == _ACCEPTANCE and len(record) == _ACCEPTED.size:
            round_, proposer, write, nonce = _ACCEPTED.unpack(record)
            seen.accepted.setdefault(time, set()).add(Accepted(Ballot(round_, proposer), write, nonce))
        case _ if kind == _HOLD and len(record) == _NUMBER.size:
            seen.holds.update(_NUMBER.unpack(record))


def _encode(data: bytes) -> str:
    return base64.b32hexencode(data).decode().rstrip("=").lower()


def _decode(text: str) -> bytes:
    """Empty for what is not a record. Python reads numbers of base 32 with these very digits."""
    padding = len(text) * 5 % 8
    if len(text) > _MOST_DIGITS or _DIGITS.fullmatch(text) is None or padding > 4:
        return b""
    number = int(text, 32)
    if number & ((1 << padding) - 1):
        return b""
    return (number >> padding).to_bytes(len(text) * 5 // 8)
