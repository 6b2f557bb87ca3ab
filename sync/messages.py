"""The messages of log exchange (`sync.exchange`) as they travel, one per frame of an ordered channel.

All begin with the format version (u8 = 1) and a kind (u8). A *stamp* is device (16) + clock (varint) + the
first 16 bytes of the update's hash. *Stamps* are a varint count, at most MAX_WRITERS, and as many stamps in
ascending order.

    1 frontier   request u8: 1 = "send what I lack", 0 = "you now have what I have"
                 tips    stamps: the newest update of each branch that no other branch grows from
                 history 32, history hash at these tips
                 state   32, hash of the state that the sender made of all this, zeros when it does not say
    2 updates    ends    stamps: updates in this message that, with their causes, are all of it
                 then varint length + signed update, repeated: at least one, each after its causes
    3 taken      varint, how many bytes of updates the receiver has dealt with
    4 probe      varint count, 1 .. MAX_PROBES, then the first 16 bytes of as many update hashes
    5 answer     for each hash of the probe a bit, 1 = accepted here; lowest bit first, filled up with 0
    6 compacted  root 32: some of what you lack is known to the sender through a checkpoint only; this is the
                 name of its root (`sync.checkpoint`), zeros when it has none to offer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from sync.codec import HASH_SIZE, Buffer, Reader, Writer
from sync.errors import DecodeError, NewerFormatError
from sync.identity import DEVICE_ID_SIZE
from sync.update import MAX_UPDATE, PREFIX_SIZE, UpdateStamp
from sync.vector import MAX_CLOCK, MAX_WRITERS

__all__ = [
    "MAX_MESSAGE",
    "MAX_PROBES",
    "Answer",
    "Compacted",
    "Frontier",
    "Message",
    "Probe",
    "Taken",
    "Updates",
    "decode_message",
    "encode_message",
]

MAX_PROBES = 1024
MAX_MESSAGE = MAX_UPDATE + (1 << 17)
"""Most bytes of a message: the largest update fits, and the stamps."""

_VERSION = 1
_FRONTIER, _UPDATES, _TAKEN, _PROBE, _ANSWER, _COMPACTED = range(1, 7)


class Frontier(Struct, frozen=True):
    """Where the sender's log ends."""

    request: bool
    tips: tuple[UpdateStamp, ...]
    history: bytes
    state: bytes


class Updates(Struct, frozen=True):
    """A batch of updates."""

    ends: tuple[UpdateStamp, ...]
    updates: tuple[bytes, ...]


class Taken(Struct, frozen=True):
    """So many bytes of updates need no longer be kept back for."""

    size: int


class Probe(Struct, frozen=True):
    """Which of these updates do you have?"""

    prefixes: tuple[bytes, ...]


class Answer(Struct, frozen=True):
    """Bit i of `bits`: the i-th update of the probe is accepted here."""

    bits: bytes

    @classmethod
    def of(cls, known: Sequence[bool]) -> Answer:
        number = sum(1 << index for index, one in enumerate(known) if one)
        return cls(number.to_bytes((len(known) + 7) // 8, "little"))

    def flags(self, count: int) -> list[bool]:
        """The answers to a probe of `count` hashes. Raises `DecodeError` when they are not as many."""
        number = int.from_bytes(self.bits, "little")
        if len(self.bits) != (count + 7) // 8 or number >> count:
            raise DecodeError(f"an answer of {len(self.bits)} bytes to a probe of {count} hashes")
        return [bool(number >> index & 1) for index in range(count)]


class Compacted(Struct, frozen=True):
    """What you lack begins with updates that the checkpoint with this root stands for; zeros: with none that
    can be had here."""

    root: bytes


Message: TypeAlias = Frontier | Updates | Taken | Probe | Answer | Compacted


def encode_message(message: Message) -> bytes:
    """The bytes that travel."""
    out = Writer().u8(_VERSION)
    match message:
        case Frontier():
            out.u8(_FRONTIER).u8(message.request)
            _write_stamps(out, message.tips)
            out.raw(message.history).raw(message.state)
        case Updates():
            _write_stamps(out.u8(_UPDATES), message.ends)
            for data in message.updates:
                out.blob(data)
        case Taken():
            out.u8(_TAKEN).varint(message.size)
        case Probe():
            out.u8(_PROBE).varint(len(message.prefixes)).raw(b"".join(message.prefixes))
        case Answer():
            out.u8(_ANSWER).raw(message.bits)
        case Compacted():
            out.u8(_COMPACTED).raw(message.root)
    return out.getvalue()


def decode_message(data: Buffer) -> Message:
    """What `encode_message` encoded. Raises `DecodeError`."""
    if len(data) > MAX_MESSAGE:
        raise DecodeError(f"a message of {len(data)} bytes, at most {MAX_MESSAGE} are allowed")
    reader = Reader(data)
    version = reader.u8()
    if version > _VERSION:
        raise NewerFormatError(f"log exchange of format {version}, this program reads {_VERSION}: upgrade it")
    if version != _VERSION:
        raise DecodeError(f"log exchange of unknown format {version}")
    kind = reader.u8()
    if kind not in _READERS:
        raise DecodeError(f"a message of unknown kind {kind}")
    message = _READERS[kind](reader)
    reader.end()
    return message


def _read_frontier(reader: Reader) -> Frontier:
    request = reader.u8()
    if request > 1:
        raise DecodeError(f"a frontier with request {request}")
    return Frontier(bool(request), _read_stamps(reader), reader.raw(HASH_SIZE), reader.raw(HASH_SIZE))


def _read_updates(reader: Reader) -> Updates:
    ends = _read_stamps(reader)
    updates = [reader.blob(MAX_UPDATE)]
    while reader.remaining:
        updates.append(reader.blob(MAX_UPDATE))
    return Updates(ends, tuple(updates))


def _read_taken(reader: Reader) -> Taken:
    return Taken(reader.varint())


def _read_probe(reader: Reader) -> Probe:
    count = reader.varint(MAX_PROBES)
    if not count:
        raise DecodeError("an empty probe")
    return Probe(tuple(reader.raw(PREFIX_SIZE) for _ in range(count)))


def _read_answer(reader: Reader) -> Answer:
    if reader.remaining > MAX_PROBES // 8:
        raise DecodeError("an answer to more than a probe can ask")
    return Answer(reader.raw(reader.remaining))


def _read_compacted(reader: Reader) -> Compacted:
    return Compacted(reader.raw(HASH_SIZE))


_READERS: dict[int, Callable[[Reader], Message]] = {
    _FRONTIER: _read_frontier,
    _UPDATES: _read_updates,
    _TAKEN: _read_taken,
    _PROBE: _read_probe,
    _ANSWER: _read_answer,
    _COMPACTED: _read_compacted,
}


def _write_stamps(out: Writer, stamps: Iterable[UpdateStamp]) -> None:
    ascending = sorted(stamps)
    out.varint(len(ascending))
    for device, clock, prefix in ascending:
        out.raw(device).varint(clock).raw(prefix)


def _read_stamps(reader: Reader) -> tuple[UpdateStamp, ...]:
    stamps: list[UpdateStamp] = []
    for _ in range(reader.varint(MAX_WRITERS)):
        stamp = UpdateStamp(reader.raw(DEVICE_ID_SIZE), reader.varint(MAX_CLOCK), reader.raw(PREFIX_SIZE))
        if stamp.clock == 0 or (stamps and stamp <= stamps[-1]):
            raise DecodeError("stamps with clock 0 or not in ascending order")
        stamps.append(stamp)
    return tuple(stamps)
