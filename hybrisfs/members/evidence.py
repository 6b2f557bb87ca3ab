"""Proofs that a device misbehaved, as registers, so that all devices have them for good (Depot 5.6).

========  ==================================  ======================================================
register  key                                 value
========  ==================================  ======================================================
evidence  ``f`` device id (16), kind u8       version u8 = 1, the device's public key (32), then what
                                              it signed, by the kind:
                                              1, fork: two headers with signatures of updates that
                                              follow the same one (blobs <= 65,536), as
                                              `sync.outcome.ForkProof` has them
                                              2, offence: a whole update (blob <= 262,144) with a
                                              write that breaks its rule, or is half of what belongs
                                              together (`hybrisfs.merge.authority`)
========  ==================================  ======================================================

A proof convinces any device without the log: it holds the key, from which the id of the device follows, and
the updates that were signed with it. So a register that proves nothing breaks its rule, and no device can be
accused falsely. The first proof of a kind is enough. A fork alone proves no bad intent: a device that was
restored from a backup forks. It goes on from both branches once it has both (`UpdateLog.has_rejoined`).

As a file, for use outside the volume: magic "HFEV", version u16 = 1, volume (16), key (blob), value (blob).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from hybrisfs.kinds import EVIDENCE
from sync import (
    DecodeError,
    Members,
    Reader,
    SignedHeader,
    SignedUpdate,
    Writer,
    decode_signed,
    decode_signed_header,
    device_id_of,
)
from sync.outcome import ForkProof, verify_fork_proof

__all__ = [
    "MAX_EVIDENCE_FILE",
    "MAX_PROVEN_UPDATE",
    "Charge",
    "Misdeed",
    "decode_evidence",
    "decode_evidence_file",
    "encode_evidence_file",
    "evidence_key",
    "prove_fork",
    "prove_offence",
]

MAX_PROVEN_UPDATE: Final = 1 << 18
"""Bytes; an update that is larger is no proof."""

MAX_EVIDENCE_FILE: Final = 1 << 19
_MAX_HEADER: Final = 1 << 16
_KEY_SIZE: Final = 32
_VOLUME_SIZE: Final = 16
_VERSION: Final = 1
_MAGIC: Final = b"HFEV"
_FILE_VERSION: Final = 1

Breach = Callable[[SignedUpdate], str | None]
"""`hybrisfs.merge.authority.breach`."""


class Misdeed(IntEnum):
    """What can be proven against a device."""

    FORK = 1
    OFFENCE = 2


class Charge(NamedTuple):
    """What a proof says."""

    device: bytes
    misdeed: Misdeed
    words: str
    volume: bytes
    time_ns: int
    """When it was signed, by the device's own clock; of two updates the later one."""


def evidence_key(device: bytes, misdeed: Misdeed) -> bytes:
    """The register of the proof."""
    return EVIDENCE.key(device, bytes((misdeed,)))


def prove_fork(public: bytes, one: SignedHeader, other: SignedHeader) -> bytes:
    """The value of the register: *public* has signed two updates that follow the same one."""
    proof = ForkProof.of(one, other)
    return Writer().u8(_VERSION).raw(public).blob(proof.first).blob(proof.second).getvalue()


def prove_offence(public: bytes, update: bytes) -> bytes:
    """The value of the register: *public* has signed this update, which breaks a rule."""
    return Writer().u8(_VERSION).raw(public).blob(update).getvalue()


def decode_evidence(key: bytes, value: bytes, breach: Breach) -> Charge:
    """What the register proves; raises DecodeError when that is nothing."""
    _, (number,) = EVIDENCE.split(key)
    try:
        misdeed = Misdeed(number)
    except ValueError as error:
        raise DecodeError("evidence of nothing that is known") from error
    reader = Reader(value)
    if reader.u8() != _VERSION:
        raise DecodeError("evidence of another version")
    public = reader.raw(_KEY_SIZE)
    device = device_id_of(public)
    if key != evidence_key(device, misdeed):
        raise DecodeError("evidence against another machine")
    if misdeed is Misdeed.FORK:
        return _fork(reader, public)
    return _offence(reader, public, breach)


def _fork(reader: Reader, public: bytes) -> Charge:
    proof = ForkProof(reader.blob(_MAX_HEADER), reader.blob(_MAX_HEADER))
    reader.end()
    headers = decode_signed_header(proof.first), decode_signed_header(proof.second)
    volume = headers[0].volume
    device = verify_fork_proof(proof, volume, Members([public]))
    if device is None:
        raise DecodeError("two headers that prove no fork")
    clocks = " and ".join(str(one.clock) for one in headers)
    words = f"signed two histories: its updates {clocks} follow the same one"
    return Charge(device, Misdeed.FORK, words, volume, max(one.time_ns for one in headers))


def _offence(reader: Reader, public: bytes, breach: Breach) -> Charge:
    update = decode_signed(reader.blob(MAX_PROVEN_UPDATE))
    reader.end()
    header = update.header
    if header.writer != device_id_of(public) or not header.verify(public):
        raise DecodeError("an update that the machine did not sign")
    # Evidence within evidence would have to be looked into without end.
    words = breach(update._replace(writes=tuple(one for one in update.writes if one[0][0] != EVIDENCE)))
    if words is None:
        raise DecodeError("an update that breaks no rule")
    return Charge(
        header.writer, Misdeed.OFFENCE, f"signed what it may not: {words}", header.volume, header.time_ns
    )


def encode_evidence_file(volume: bytes, key: bytes, value: bytes) -> bytes:
    """The file above."""
    return Writer().format(_MAGIC, _FILE_VERSION).raw(volume).blob(key).blob(value).getvalue()


def decode_evidence_file(data: bytes, breach: Breach) -> Charge:
    """What a file proves. Raises DecodeError."""
    if len(data) > MAX_EVIDENCE_FILE:
        raise DecodeError(f"a proof of {len(data)} bytes")
    reader = Reader(data)
    reader.format(_MAGIC, _FILE_VERSION)
    volume, key = reader.raw(_VOLUME_SIZE), reader.blob(_KEY_SIZE)
    value = reader.blob(MAX_EVIDENCE_FILE)
    reader.end()
    charge = decode_evidence(key, value, breach)
    if charge.volume != volume:
        raise DecodeError("evidence about another volume")
    return charge
