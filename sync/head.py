"""Heads: a device's statement of where it stands, the one object per device that is overwritten.

The head is the device's beacon (Depot 5.3): "at this time I was alive, and had seen this". It is the
object `heads/<device id, hex>`. What a cloud sees: the device, the size, when it changes.

    header   magic "HFHD", version u16 = 3
             writer  16
    sealed   (`sync.seal`) record, then signature 64 over exactly the record bytes

    record   magic "HFHR", version u16 = 3, or 4 when it says what the writer made of its log, or 5 when it
             says what content the writer keeps
             volume     16
             writer     16
             serial     u64, higher than that of all heads of the writer before, as far as it knows of them,
                        and at least the time (`sync.beacons`)
             time       u64, ns since the epoch by the writer's clock
             offline    u8: 1 when the writer has ended in good order and nobody need wait for its next head,
                        else 0
             vector     version vector form: all that the writer has accepted, its own updates included
             own        varint, how many, at most MAX_OWN_TIPS; then for each the newest update of one of the
                        writer's own branches that no other branch grows from:
                        clock  varint
                        hash   32
                        first the one that its next update will follow; 0 of them when it has not written
             segments   varint, how many segments of its log are on the clouds; when not 0, then
                        first   varint, clock of the first update in the newest segment
                        last    varint, clock of the last update in it
                        prefix  8, beginning of the last update's hash
             relayed    varint, how many, at most MAX_RELAYED; then for each, in ascending order, a segment
                        that the author's own chain does not lead to: of another device that the writer has
                        put on the clouds for it, or of another branch of the writer itself:
                        author  16
                        first   varint, clock of the first update in it
                        prefix  8, beginning of its last update's hash
             stated     u8: 1 when the writer states a snapshot (`sync.checkpoint`), else 0; if 1
                        vector     version vector form: where its registers were that
                        snapshot   32
                        signature  64
             checkpoint u8: 1 when it knows an agreed checkpoint to be on the clouds, else 0; if 1
                        root       32, name of the newest one's root
                        snapshot   32
             told       in version 5 only, u8: 1 when `state` follows, else 0
             state      in version 4, and in 5 if told: what the writer made of all that it has accepted:
                        history    32, history hash at the tips of its log
                        state      32, hash of the state, as in a frontier (`sync.messages`)
             holdings   in version 5 only, what it keeps of the volume's content:
                        hoard      u8: 0 nothing for the sake of others, 1 what is asked for, 2 everything
                        room       u8: it has room for at least 2 ** (room - 1) bytes more, 0: for none
                        vector     version vector form: what of the log was looked at; it need not be all
                        nodes      varint, how many, at most MAX_HELD; then for each, in ascending order, a
                                   node that it keeps with all that is below:
                                   node   16
                                   whole  u8: 1 when every byte that the log up to `vector` gives it is
                                          there, 0 when some has yet to come

From the newest segment all others on the writer's own chain are found through their `previous`, and
`segments` tells how many there are. There is more than one own branch when the writer was restored from a
backup or copied. A relayed segment leads to what comes before it in the same way; it is named for as long as
the author's own chain on the clouds does not lead to it.

Time tells how stale a head is, no more, as clocks get set back. Of two heads of one writer the one with the
higher serial is the later one.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from sync.checkpoint import Statement
from sync.codec import HASH_SIZE, Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, device_id_of, verify
from sync.seal import SealKeys, open_sealed, seal
from sync.segment import SEGMENT_PREFIX_SIZE, SegmentId
from sync.update import VOLUME_ID_SIZE
from sync.vector import MAX_CLOCK, VersionVector

__all__ = [
    "CheckpointId",
    "StateClaim",
    "MAX_HELD",
    "MAX_OWN_TIPS",
    "MAX_RELAYED",
    "LogOnClouds",
    "Head",
    "Hoard",
    "Holding",
    "Holdings",
    "OwnTip",
    "Relayed",
    "decode_head",
    "encode_head",
    "head_name",
]

MAX_OWN_TIPS = 512
MAX_RELAYED = 64
MAX_HELD = 64

_MAGIC = b"HFHD"
_VERSION = 3
_RECORD_MAGIC = b"HFHR"
_RECORD_VERSION = 3
_STATED_VERSION = 4
_HOLDING_VERSION = 5
_VERSIONS = (_RECORD_VERSION, _STATED_VERSION, _HOLDING_VERSION)
_NODE_SIZE = 16
_MOST_ROOM = 64
_MAX_HEAD = 1 << 16


class OwnTip(NamedTuple):
    """The newest update of a branch of the writer."""

    clock: int
    hash: bytes


class Relayed(NamedTuple):
    """A segment on the clouds that its author's own chain does not lead to."""

    author: bytes
    segment: SegmentId


class CheckpointId(NamedTuple):
    """An agreed checkpoint: the name of its root, and the hash of its snapshot."""

    root: bytes
    snapshot: bytes


class StateClaim(NamedTuple):
    """What a device made of the log whose tips have this history hash."""

    history: bytes
    state: bytes


class Hoard(IntEnum):
    """What a device keeps of a volume's content, beside what it uses."""

    NONE = 0
    """Nothing for the sake of others."""
    ASKED = 1
    """What is asked for, as far as there is room."""
    ALL = 2


class Holding(NamedTuple):
    """A node that a device keeps with all that is below, and whether all of it is there."""

    node: bytes
    whole: bool


class Holdings(Struct, frozen=True):
    """What a device keeps of the volume's content; the fields are those of the record above."""

    hoard: Hoard
    room: int
    vector: VersionVector
    nodes: tuple[Holding, ...] = ()
    """In ascending order."""

    def write_to(self, out: Writer) -> None:
        """Raises `LimitError` above MAX_HELD."""
        if len(self.nodes) > MAX_HELD:
            raise LimitError(f"a head names {len(self.nodes)} nodes, at most {MAX_HELD} are allowed")
        out.u8(self.hoard).u8(self.room)
        self.vector.write_to(out)
        out.varint(len(self.nodes))
        for node, whole in self.nodes:
            out.raw(node).u8(whole)

    @staticmethod
    def read_from(reader: Reader) -> Holdings:
        """Raises `DecodeError`."""
        hoard, room = reader.u8(), reader.u8()
        if hoard > Hoard.ALL or room > _MOST_ROOM:
            raise DecodeError("a machine keeps nothing, what is asked for, or everything")
        vector = VersionVector.read_from(reader)
        nodes = tuple(Holding(reader.raw(_NODE_SIZE), _flag(reader)) for _ in range(reader.varint(MAX_HELD)))
        if any(one.node >= other.node for one, other in pairwise(nodes)):
            raise DecodeError("nodes that a machine keeps are out of order")
        return Holdings(Hoard(hoard), room, vector, nodes)


class LogOnClouds(Struct, frozen=True):
    """A device's log on the clouds: how many segments, which is the newest, and that one's last clock."""

    segments: int
    newest: SegmentId
    last: int


class Head(Struct, frozen=True):
    """What a device states about itself; the fields are those of the record above."""

    volume: bytes
    writer: bytes
    serial: int
    time_ns: int
    vector: VersionVector
    own: tuple[OwnTip, ...]
    on_clouds: LogOnClouds | None
    """None while no segment is on the clouds."""
    offline: bool = False
    relayed: tuple[Relayed, ...] = ()
    """In ascending order."""
    stated: Statement | None = None
    checkpoint: CheckpointId | None = None
    state: StateClaim | None = None
    """None while the writer has not looked."""
    holdings: Holdings | None = None
    """None when nothing is asked for."""

    @property
    def newest(self) -> OwnTip | None:
        """The update that the writer's next one will follow, None when it has not written."""
        return self.own[0] if self.own else None


def head_name(writer: bytes) -> str:
    """The object name of the head of `writer`."""
    return f"heads/{writer.hex()}"


def encode_head(head: Head, device: DeviceKey, keys: SealKeys, nonce: bytes) -> bytes:
    """Sign a head with `device` and seal it with the newest of `keys` and `nonce` (24 random bytes).

    Raises ValueError when `device` is not the writer, `LimitError` above one of the bounds.
    """
    if head.writer != device.device_id:
        raise ValueError("a head is signed by its own machine only")
    version = _RECORD_VERSION if head.state is None else _STATED_VERSION
    out = Writer().format(_RECORD_MAGIC, version if head.holdings is None else _HOLDING_VERSION)
    out.raw(head.volume).raw(head.writer).u64(head.serial).u64(head.time_ns).u8(head.offline)
    head.vector.write_to(out)
    if len(head.own) > MAX_OWN_TIPS:
        raise LimitError(f"a head names {len(head.own)} branches, at most {MAX_OWN_TIPS} are allowed")
    out.varint(len(head.own))
    for tip in head.own:
        out.varint(tip.clock).raw(tip.hash)
    if head.on_clouds is None:
        out.varint(0)
    else:
        out.varint(head.on_clouds.segments)
        out.varint(head.on_clouds.newest.first).varint(head.on_clouds.last).raw(head.on_clouds.newest.prefix)
    if len(head.relayed) > MAX_RELAYED:
        raise LimitError(
            f"a head names {len(head.relayed)} relayed segments, at most {MAX_RELAYED} are allowed"
        )
    out.varint(len(head.relayed))
    for author, segment in head.relayed:
        out.raw(author).varint(segment.first).raw(segment.prefix)
    _write_checkpoints(out, head)
    if head.holdings is not None:
        out.u8(head.state is not None)
    if head.state is not None:
        out.raw(head.state.history).raw(head.state.state)
    if head.holdings is not None:
        head.holdings.write_to(out)
    record = out.getvalue()
    header = Writer().format(_MAGIC, _VERSION).raw(head.writer).getvalue()
    return seal(header, head.volume, record + device.sign(record), keys, nonce)


def _write_checkpoints(out: Writer, head: Head) -> None:
    out.u8(head.stated is not None)
    if head.stated is not None:
        head.stated.vector.write_to(out)
        out.raw(head.stated.snapshot).raw(head.stated.signature)
    out.u8(head.checkpoint is not None)
    if head.checkpoint is not None:
        out.raw(head.checkpoint.root).raw(head.checkpoint.snapshot)


def read_head_header(reader: Reader, name: str) -> None:
    """Read what is in clear of the head that stands under `name`. Raises `DecodeError` when it is another
    device's."""
    reader.format(_MAGIC, _VERSION)
    if head_name(reader.raw(DEVICE_ID_SIZE)) != name:
        raise DecodeError(f"another machine's head stands under the name {name}")


def decode_head(data: Buffer, volume: bytes, public: bytes, keys: SealKeys) -> Head:
    """Open the head of the device whose public key is `public` and check its signature.

    Raises `DecodeError`, `UnknownEpochError`.
    """
    if len(data) > _MAX_HEAD:
        raise DecodeError(f"a head of {len(data)} bytes, at most {_MAX_HEAD} are allowed")
    writer = device_id_of(public)
    reader = Reader(data)
    read_head_header(reader, head_name(writer))
    header = bytes(memoryview(data)[: reader.position])
    payload = open_sealed(reader, header, volume, keys)
    record, signature = payload[:-SIGNATURE_SIZE], payload[-SIGNATURE_SIZE:]
    if not verify(public, record, signature):
        raise DecodeError(f"machine {writer.hex()} did not sign this head")
    head = _read_record(record)
    if (head.volume, head.writer) != (volume, writer):
        raise DecodeError("a head of another volume or machine")
    return head


def _read_record(record: bytes) -> Head:
    reader = Reader(record)
    version = next((one for one in _VERSIONS if record.startswith(_format(one))), _HOLDING_VERSION)
    reader.format(_RECORD_MAGIC, version)
    volume = reader.raw(VOLUME_ID_SIZE)
    writer = reader.raw(DEVICE_ID_SIZE)
    serial = reader.u64()
    time_ns = reader.u64()
    offline = _flag(reader)
    vector = VersionVector.read_from(reader)
    own = tuple(
        OwnTip(reader.varint(MAX_CLOCK), reader.raw(HASH_SIZE)) for _ in range(reader.varint(MAX_OWN_TIPS))
    )
    segments = reader.varint(MAX_CLOCK)
    on_clouds = None
    if segments:
        first, last = reader.varint(MAX_CLOCK), reader.varint(MAX_CLOCK)
        on_clouds = LogOnClouds(segments, SegmentId(first, reader.raw(SEGMENT_PREFIX_SIZE)), last)
    relayed = tuple(
        Relayed(
            reader.raw(DEVICE_ID_SIZE),
            SegmentId(reader.varint(MAX_CLOCK), reader.raw(SEGMENT_PREFIX_SIZE)),
        )
        for _ in range(reader.varint(MAX_RELAYED))
    )
    stated = (
        Statement(VersionVector.read_from(reader), reader.raw(HASH_SIZE), reader.raw(SIGNATURE_SIZE))
        if _flag(reader)
        else None
    )
    checkpoint = CheckpointId(reader.raw(HASH_SIZE), reader.raw(HASH_SIZE)) if _flag(reader) else None
    told = _flag(reader) if version == _HOLDING_VERSION else version == _STATED_VERSION
    state = StateClaim(reader.raw(HASH_SIZE), reader.raw(HASH_SIZE)) if told else None
    holdings = Holdings.read_from(reader) if version == _HOLDING_VERSION else None
    reader.end()
    if any(not 0 < tip.clock <= vector.highest for tip in own) or len(set(own)) != len(own):
        raise DecodeError("an own branch that the vector does not cover, or one named twice")
    if on_clouds and not _can_be_newest(on_clouds, own):
        raise DecodeError(f"segment {on_clouds.newest.first} to {on_clouds.last} cannot be the newest")
    if any(one.segment.first == 0 for one in relayed):
        raise DecodeError("a relayed segment that begins nowhere")
    if any(one >= other for one, other in pairwise(relayed)):
        raise DecodeError("relayed segments out of order")
    return Head(
        volume,
        writer,
        serial,
        time_ns,
        vector,
        own,
        on_clouds,
        offline,
        relayed,
        stated,
        checkpoint,
        state,
        holdings,
    )


def _format(version: int) -> bytes:
    return _RECORD_MAGIC + version.to_bytes(2, "big")


def _flag(reader: Reader) -> bool:
    flag = reader.u8()
    if flag > 1:
        raise DecodeError(f"a flag of a head is {flag}, not 0 or 1")
    return bool(flag)


def _can_be_newest(on_clouds: LogOnClouds, own: tuple[OwnTip, ...]) -> bool:
    if not own or not 0 < on_clouds.newest.first <= on_clouds.last <= own[0].clock:
        return False
    return on_clouds.last < own[0].clock or own[0].hash.startswith(on_clouds.newest.prefix)
