"""Targets of the log: what clouds return of it, and what devices tell each other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from hybrisfs.checkpoint.snapshot import (
    LOG_INDEX,
    PACKS,
    REGISTERS,
    Header,
    decode_header,
    read_hints,
    read_snapshot,
)
from hybrisfs.peers.errors import FrameError
from hybrisfs.peers.frames import (
    Beacon,
    Bye,
    ChunkMissing,
    ChunkReply,
    ChunkRequest,
    ExchangePart,
    Frame,
    FrameDecoder,
    Hello,
    Parting,
    Ping,
    Pong,
    encode_frame,
)
from hybrisfs.peers.lines import TAG_SIZE, LineRequest, RequestDecoder, Role, encode_request
from sync.checkpoint import (
    Root,
    Slice,
    Statement,
    checkpoint_name,
    open_object,
    parse_checkpoint_name,
    seal_object,
)
from sync.codec import Reader, Writer, digest
from sync.errors import DecodeError
from sync.head import (
    CheckpointId,
    Head,
    Hoard,
    Holding,
    Holdings,
    LogOnClouds,
    OwnTip,
    Relayed,
    StateClaim,
    decode_head,
    encode_head,
)
from sync.log_index import IndexEntry, LogIndexReader, LogIndexWriter
from sync.messages import Answer, Compacted, Frontier, Probe, Taken, Updates, decode_message, encode_message
from sync.seal import open_sealed, seal
from sync.segment import SegmentId, decode_segment, encode_segment, parse_segment_name, segment_name
from sync.update import SignedUpdate, decode_signed, decode_signed_header, decode_writes, encode_writes
from sync.vector import VersionVector
from tests.fuzz.target import Target, decoder, text
from tests.sync.support import BOX_KEY, KEYS, MEMBERS, NONCE, NOON, VOLUME, Device

__all__ = ["TARGETS"]

_BODY_CONTEXT: Final = "hybrisfs.sync 2026-11 update body"
_SIGNATURE: Final = 64
_KEY: Final = KEYS[0]
_HASH: Final = b"h" * 32


def _history() -> list[SignedUpdate]:
    """Updates with and without causes, and with all kinds of writes."""
    one, other = Device(KEYS[0]), Device(KEYS[1])
    other.write((b"key", None))
    one.write((b"p" + bytes(16) + b"\0", b"value"), (b"key", None))
    one.receive_all(other.order)
    one.write()
    one.write(*((b"%d" % number, bytes(number)) for number in range(300)))
    return one.order


_UPDATES: Final = [update for update in _history() if update.header.writer == _KEY.device_id]
_VECTOR: Final = VersionVector({key.device_id: number for number, key in enumerate(KEYS, 1)})
_VECTORS: Final = (VersionVector(), _VECTOR, VersionVector({_KEY.device_id: 1 << 40}))


# -- updates -------------------------------------------------------------------------------------


def _update_header(data: bytes) -> object:
    header = decode_signed_header(data)
    assert decode_signed_header(header.data) == header
    return header


def _update_without_hash(update: SignedUpdate) -> bytes:
    """What `_with_hash` makes an update of: a header without sizes, hash and signature, and the body."""
    body = update.data[len(update.header.data) :]
    end = len(Writer().varint(len(body)).getvalue()) + 32 + _SIGNATURE
    header = update.header.data[:-end]
    return len(header).to_bytes(2, "big") + header + body


def _with_hash(data: bytes) -> bytes:
    """An update with the right hash of its body, so that what is in there is looked at."""
    end = 2 + int.from_bytes(data[:2], "big")
    header, body = data[2:end], data[end:]
    out = Writer().raw(header).varint(len(body)).raw(digest(_BODY_CONTEXT, body)).raw(bytes(_SIGNATURE))
    return out.raw(body).getvalue()


def _update_behind_the_hash(data: bytes) -> object:
    whole = _with_hash(data)
    update = decode_signed(whole)
    assert update.data == whole
    assert encode_writes(update.writes) == whole[len(update.header.data) :]
    return update


def _take_writes(data: bytes) -> object:
    reader = Reader(data)
    count = reader.varint(1 << 16)
    body = data[reader.position :]
    found = decode_writes(body, count)
    assert encode_writes(found) == body
    return found


def _writes_with_count(update: SignedUpdate) -> bytes:
    return Writer().varint(len(update.writes)).raw(encode_writes(update.writes)).getvalue()


# -- segments and heads --------------------------------------------------------------------------

_SEGMENT_ID: Final = SegmentId.of(_UPDATES[0].header.clock, _UPDATES[-1].hash)
_SEGMENT_NAME: Final = segment_name(_KEY.device_id, _SEGMENT_ID)
_SEGMENT: Final = encode_segment([one.data for one in _UPDATES], None, BOX_KEY, NONCE)
_SEGMENT_HEADER: Final = 4 + 2 + 16 + 8 + 8 + 8

_HEAD: Final = Head(
    VOLUME,
    _KEY.device_id,
    NOON + 5,
    NOON,
    VersionVector({_KEY.device_id: 9, KEYS[1].device_id: 4}),
    (OwnTip(9, _HASH), OwnTip(5, b"g" * 32)),
    LogOnClouds(3, SegmentId(7, b"h" * 8), 9),
    relayed=(Relayed(KEYS[1].device_id, SegmentId(2, b"relayed2")),),
)
_STATED: Final = Head(
    VOLUME,
    _KEY.device_id,
    NOON,
    NOON,
    _VECTOR,
    (),
    None,
    offline=True,
    stated=Statement.of(VOLUME, _VECTOR, _HASH, _KEY),
    checkpoint=CheckpointId(b"r" * 32, _HASH),
    state=StateClaim(_HASH, b"s" * 32),
)
_HOLDING: Final = replace(
    _STATED,
    state=None,
    holdings=Holdings(Hoard.ASKED, 30, _VECTOR, (Holding(b"n" * 16, True), Holding(b"o" * 16, False))),
)
_HEADS: Final = tuple(encode_head(head, _KEY, BOX_KEY, NONCE) for head in (_HEAD, _STATED, _HOLDING))
_HEAD_HEADER: Final = 4 + 2 + 16


def _behind(data: bytes, header: int) -> bytes:
    """The payload of a sealed object."""
    return open_sealed(Reader(data[header:]), data[:header], VOLUME, BOX_KEY)


def _segment(data: bytes) -> object:
    return decode_segment(data, _SEGMENT_NAME, VOLUME, BOX_KEY, 1 << 20)


def _segment_behind_the_seal(payload: bytes) -> object:
    return _segment(seal(_SEGMENT[:_SEGMENT_HEADER], VOLUME, payload, BOX_KEY, NONCE))


def _head(data: bytes) -> Head:
    return decode_head(data, VOLUME, _KEY.public, BOX_KEY)


def _head_behind_the_seal(record: bytes) -> object:
    """As its device might have signed it."""
    payload = record + _KEY.sign(record)
    head = _head(seal(_HEADS[0][:_HEAD_HEADER], VOLUME, payload, BOX_KEY, NONCE))
    assert _behind(encode_head(head, _KEY, BOX_KEY, NONCE), _HEAD_HEADER)[:-_SIGNATURE] == record
    return head


# -- checkpoints ---------------------------------------------------------------------------------

_ROOT: Final = Root(
    VOLUME,
    _HASH,
    _VECTOR,
    (Slice(b"1" * 32, 5), Slice(b"2" * 32, 1 << 20)),
    (Slice(b"3" * 32, 7),),
    {key.device_id: Statement.of(VOLUME, _VECTOR, _HASH, key).signature for key in KEYS[:2]},
)


def _root(data: bytes) -> object:
    root = Root.decode(data)
    assert root.encode() == data
    root.check(VOLUME, MEMBERS)
    return root


def _object(data: bytes) -> object:
    return open_object(
        data, digest("name", b"slice"), VOLUME, BOX_KEY, lambda one: digest("name", bytes(one))
    )


def _entries() -> list[IndexEntry]:
    found = [
        IndexEntry(b"a" * 16, 1, b"1" * 32, None, [], NOON),
        IndexEntry(b"b" * 16, 1, b"2" * 32, None, [], NOON),
    ]
    found.append(IndexEntry(b"a" * 16, 2, b"3" * 32, 0, [1], NOON + 1))
    return [*found, IndexEntry(b"b" * 16, 3, b"4" * 32, 1, [2], NOON + 2)]


def _log_index() -> bytes:
    writer = LogIndexWriter()
    return b"".join(writer.encode(entry) for entry in _entries())


def _take_log_index(data: bytes) -> object:
    reader, index, writer = Reader(data), LogIndexReader(), LogIndexWriter()
    while reader.remaining:
        begin = reader.position
        entry = index.read(reader)
        assert writer.encode(entry) == data[begin : reader.position]
    return writer


def _pieces(*pieces: bytes) -> bytes:
    out = Writer()
    for piece in pieces:
        out.blob(piece)
    return out.getvalue()


def _split(data: bytes) -> list[bytes]:
    reader, pieces = Reader(data), list[bytes]()
    while reader.remaining:
        pieces.append(reader.blob(1 << 16))
    return pieces


_VALUES: Final = (
    Writer().blob(b"key").varint(0).varint(0).blob(b"key").varint(2).varint(6).raw(b"value").getvalue()
)
_SNAPSHOT: Final = _pieces(
    Header(VOLUME, _VECTOR, 4).encode(), bytes([LOG_INDEX]) + _log_index(), bytes([REGISTERS]) + _VALUES
)
_HINTS: Final = (
    Writer().u8(PACKS).raw(b"1" * 32).u8(1).u8(2).raw(b"\0\1").varint(3).varint(2)
    .raw(b"c" * 32).varint(0).varint(40).varint(9).u8(1).raw(b"d" * 32).varint(40).varint(41).varint(9).u8(0)
    .raw(b"2" * 32).u8(0).u8(0).varint(1).varint(0)
    .getvalue()
)  # fmt: skip


# -- what devices tell each other ----------------------------------------------------------------

_TIPS: Final = tuple(sorted(update.stamp for update in _UPDATES[:2]))
_MESSAGES: Final = (
    Frontier(True, _TIPS, _HASH, b"s" * 32),
    Frontier(False, (), _HASH, bytes(32)),
    Updates(_TIPS, tuple(update.data for update in _UPDATES[:2])),
    Taken(300),
    Probe(tuple(update.hash[:16] for update in _UPDATES)),
    Answer.of([True, False] * 5),
    Compacted(_HASH),
)
_FRAMES: Final[tuple[Frame, ...]] = (
    Hello(b"instance", 4711),
    ExchangePart(True, b"part"),
    ChunkRequest(7, b"c" * 32),
    ChunkReply(7, b"chunk"),
    ChunkMissing(8),
    Beacon(b"head"),
    Ping(1),
    Pong(1),
    Bye(Parting.CLOSING),
)


def _stream(data: bytes) -> object:
    """Frames are the same in whatever pieces they come."""

    def read(pieces: list[bytes]) -> tuple[list[Frame], str]:
        decoder, found = FrameDecoder(), list[Frame]()
        try:
            for piece in pieces:
                found += decoder.feed(piece)
        except FrameError as error:
            return found, str(error)
        return found, ""

    random, pieces, at = Random(len(data)), list[bytes](), 0
    while at < len(data):
        end = at + random.choice((1, 2, 3, 7, 100))
        pieces.append(data[at:end])
        at = end
    frames, problem = read(pieces)
    one_by_one = FrameDecoder()
    again = [frame for whole in map(encode_frame, frames) for frame in one_by_one.feed(whole)]
    assert again == frames
    if problem:
        raise FrameError(problem)
    return frames


def _request(data: bytes) -> object:
    """What a relay is asked for a line, in whatever pieces it comes; a whole one has one form."""
    decoder, at, random = RequestDecoder(), 0, Random(len(data))
    while at < len(data):
        end = at + random.choice((1, 2, 3, 7, 100))
        found = decoder.feed(data[at:end])
        if found is not None:
            assert encode_request(found) == data[:end]
            return found
        at = end
    raise DecodeError("it does not end")


def _named(parse: Callable[[str], object], name: Callable[[object], str]) -> Callable[[str], object]:
    def take(found: str) -> object:
        value = parse(found)
        assert value is None or name(value) == found
        return value

    return take


def _segment_name_again(value: object) -> str:
    assert isinstance(value, tuple)
    return segment_name(*value)


def _checkpoint_name_again(value: object) -> str:
    assert isinstance(value, bytes)
    return checkpoint_name(value)


TARGETS: Final[dict[str, Target]] = {
    "update": decoder(decode_signed, [one.data for one in _UPDATES], lambda update: update.data),
    "update header": Target(_update_header, [one.data for one in _UPDATES]),
    "update behind the hash": Target(
        _update_behind_the_hash, [_update_without_hash(one) for one in _UPDATES]
    ),
    "writes": Target(_take_writes, [_writes_with_count(one) for one in _UPDATES]),
    "vector": decoder(VersionVector.decode, [one.encode() for one in _VECTORS], VersionVector.encode),
    "segment": Target(_segment, [_SEGMENT]),
    "segment behind the seal": Target(_segment_behind_the_seal, [_behind(_SEGMENT, _SEGMENT_HEADER)]),
    "head": Target(_head, _HEADS),
    "head behind the seal": Target(
        _head_behind_the_seal, [_behind(one, _HEAD_HEADER)[:-_SIGNATURE] for one in _HEADS]
    ),
    "checkpoint root": Target(_root, [_ROOT.encode()]),
    "checkpoint object": Target(
        _object, [seal_object(digest("name", b"slice"), b"slice", VOLUME, BOX_KEY, NONCE)]
    ),
    "checkpoint header": decoder(decode_header, [Header(VOLUME, _VECTOR, 4).encode()], Header.encode),
    "log index": Target(_take_log_index, [_log_index()]),
    "snapshot": Target(lambda data: list(read_snapshot(_split(data))), [_SNAPSHOT]),
    "hints": Target(lambda data: list(read_hints([data], 4)), [_HINTS]),
    "exchange message": decoder(decode_message, [encode_message(one) for one in _MESSAGES], encode_message),
    "request for a line": Target(
        _request, [encode_request(LineRequest(role, b"t" * TAG_SIZE, "home", "token")) for role in Role]
    ),
    "frames": Target(
        _stream,
        [
            b"".join(map(encode_frame, _FRAMES)),
            *(encode_frame(_FRAMES[0]) + encode_frame(one) for one in _FRAMES[1:]),
        ],
        (FrameError,),
    ),
    "segment name": text(_named(parse_segment_name, _segment_name_again), [_SEGMENT_NAME], (ValueError,)),
    "checkpoint name": text(
        _named(parse_checkpoint_name, _checkpoint_name_again), [checkpoint_name(_HASH)], ()
    ),
}
