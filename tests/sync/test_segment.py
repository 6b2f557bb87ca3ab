"""Segments: what was put on a cloud comes back, and nothing else does."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sync import OneKey, SealKeys
from sync import segment as module
from sync.codec import Writer
from sync.errors import DecodeError, LimitError, NewerFormatError
from sync.seal import seal
from sync.segment import SegmentId, decode_segment, encode_segment, parse_segment_name, segment_name
from sync.vector import MAX_CLOCK
from tests.sync.support import BOX_KEY, KEYS, NONCE, VOLUME, Device, chain, decodes, flip, writes

WRITER = KEYS[0].device_id
CHAIN = chain(6)
DATA = [update.data for update in CHAIN]
BEFORE = SegmentId.of(1, CHAIN[1].hash)
THIS = SegmentId.of(3, CHAIN[4].hash)
NAME = segment_name(WRITER, THIS)
SEALED = encode_segment(DATA[2:5], BEFORE, BOX_KEY, NONCE)


def opened(
    data: bytes, name: str = NAME, volume: bytes = VOLUME, keys: SealKeys = BOX_KEY
) -> module.LogSegment:
    return decode_segment(data, name, volume, keys)


def sealed(
    records: bytes, *, previous: int = 1, size: int | None = None, frame: bytes | None = None, last: int = 5
) -> bytes:
    """A segment as a faulty member could seal it."""
    payload = Writer().varint(previous)
    payload.varint(len(records) if size is None else size)
    payload.raw(zstandard.ZstdCompressor().compress(records) if frame is None else frame)
    header = Writer().format(b"HFSG", 2).raw(WRITER).u64(3).u64(last).raw(CHAIN[4].hash[:8]).getvalue()
    return seal(header, VOLUME, payload.getvalue(), BOX_KEY, NONCE)


def records(*updates: bytes) -> bytes:
    out = Writer()
    for update in updates:
        out.blob(update)
    return out.getvalue()


@given(st.lists(writes, min_size=1, max_size=4), st.binary(min_size=24, max_size=24))
def test_round_trip(transactions: list[list[tuple[bytes, bytes | None]]], nonce: bytes) -> None:
    device = Device(KEYS[0])
    updates = [device.write(*entries) for entries in transactions]
    data = encode_segment([update.data for update in updates], None, BOX_KEY, nonce)
    decoded = opened(data, segment_name(WRITER, SegmentId.of(1, updates[-1].hash)))
    assert (decoded.writer, decoded.previous, list(decoded.updates)) == (WRITER, None, updates)


def test_segments_chain() -> None:
    cloud: dict[str, bytes] = {}
    previous: SegmentId | None = None
    for part in (CHAIN[:2], CHAIN[2:5], CHAIN[5:]):
        data = encode_segment([update.data for update in part], previous, BOX_KEY, NONCE)
        previous = SegmentId.of(part[0].header.clock, part[-1].hash)
        cloud[segment_name(WRITER, previous)] = data
    found = []
    while previous:
        segment = opened(cloud[segment_name(WRITER, previous)], segment_name(WRITER, previous))
        found.append(segment.updates)
        previous = segment.previous
    assert [update.data for part in reversed(found) for update in part] == DATA


@given(st.integers(min_value=0))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    assert not decodes(opened, flip(SEALED, bit))


@given(st.integers(0, len(SEALED) - 1), st.binary(min_size=1, max_size=9))
def test_truncation_and_addition_are_refused(length: int, more: bytes) -> None:
    assert not decodes(opened, SEALED[:length])
    assert not decodes(opened, SEALED + more)
    assert not decodes(opened, SEALED[:length] + more)


def test_an_object_belongs_to_its_name_volume_and_key() -> None:
    assert len(opened(SEALED).updates) == 3
    for name in (
        segment_name(WRITER, THIS._replace(first=2)),
        segment_name(WRITER, THIS._replace(prefix=bytes(8))),
        segment_name(KEYS[1].device_id, THIS),
        "log/x",
        "",
    ):
        with pytest.raises(DecodeError, match="name"):
            opened(SEALED, name)
    with pytest.raises(DecodeError, match="another volume or key"):
        opened(SEALED, volume=bytes(16))
    with pytest.raises(DecodeError, match="another volume or key"):
        opened(SEALED, keys=OneKey(bytes(32)))


def test_a_cloud_sees_the_writer_and_the_clocks_only() -> None:
    clocks = bytes([0] * 7 + [3]), bytes([0] * 7 + [5])
    assert SEALED[:46] == b"HFSG\0\2" + WRITER + clocks[0] + clocks[1] + CHAIN[4].hash[:8]
    for secret in (VOLUME, b"key 2", b"value", CHAIN[4].hash):
        assert secret not in SEALED


def test_a_newer_format_says_so() -> None:
    with pytest.raises(NewerFormatError, match="HFSG record of format 3"):
        opened(SEALED[:5] + b"\x03" + SEALED[6:])


GOOD = records(*DATA[2:5])
FOREIGN = Device(KEYS[1])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sealed(b""), "at least one"),
        (sealed(records(DATA[2], DATA[4])), "does not follow"),
        (sealed(records(DATA[2], DATA[3])), "header states"),
        (sealed(records(*DATA[1:5])), "header states"),
        (sealed(records(*DATA[2:5]), last=4), "header states"),
        (sealed(records(FOREIGN.write().data), previous=0), "header states"),
        (sealed(GOOD, previous=3), "cannot come before"),
        (sealed(GOOD, size=len(GOOD) + 1), "zstd frame"),
        (sealed(GOOD, frame=b"not zstd at all"), "does not decompress"),
        (sealed(GOOD, frame=zstandard.ZstdCompressor().compress(GOOD) + b"\0"), "does not decompress"),
        (sealed(GOOD, frame=zstandard.ZstdCompressor(write_content_size=False).compress(GOOD)), "zstd frame"),
        (sealed(GOOD[:-1]), "record ends early"),
    ],
    ids=[
        "empty",
        "gap",
        "short",
        "long",
        "false last",
        "other writer",
        "own previous",
        "size",
        "no frame",
        "trailing",
        "no size",
        "cut",
    ],
)
def test_a_faulty_member_is_refused(data: bytes, reason: str) -> None:
    assert len(opened(sealed(GOOD)).updates) == 3
    with pytest.raises(DecodeError, match=reason):
        opened(data)


def test_a_decompression_bomb_is_not_decompressed() -> None:
    zeros = bytes(1 << 20)
    with pytest.raises(DecodeError, match="above its limit"):
        decode_segment(sealed(zeros), NAME, VOLUME, BOX_KEY, limit=(1 << 20) - 1)
    with pytest.raises(DecodeError, match="zstd frame"):
        decode_segment(sealed(zeros, size=1000), NAME, VOLUME, BOX_KEY, limit=1000)
    with pytest.raises(DecodeError, match="at most 1000"):
        decode_segment(bytes(2 << 20), NAME, VOLUME, BOX_KEY, limit=1000)
    assert decode_segment(SEALED, NAME, VOLUME, BOX_KEY, limit=len(GOOD)).writer == WRITER


def test_the_number_of_updates_and_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_SEGMENT_UPDATES", "MAX_WRITES", "MAX_SEGMENT"):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 2)
            with pytest.raises(LimitError):
                encode_segment(DATA[2:5], BEFORE, BOX_KEY, NONCE)
            if limit != "MAX_SEGMENT":
                with pytest.raises(DecodeError, match="more than"):
                    opened(SEALED)


def test_what_cannot_be_a_segment_is_not_encoded() -> None:
    for updates, previous in (
        ([], None),
        (DATA[::2], None),
        (DATA[:2], BEFORE),
        (DATA[2:5], BEFORE._replace(first=3)),
        (DATA[2:5], BEFORE._replace(first=0)),
        (DATA[2:5], SegmentId.of(1, CHAIN[0].hash)),
    ):
        with pytest.raises(ValueError):
            encode_segment(updates, previous, BOX_KEY, NONCE)
    with pytest.raises(ValueError):
        encode_segment(DATA[2:5], BEFORE, BOX_KEY, b"short")
    with pytest.raises(ValueError):
        OneKey(b"short")


@given(st.binary(min_size=16, max_size=16), st.integers(1, MAX_CLOCK), st.binary(min_size=8, max_size=8))
def test_names(writer: bytes, clock: int, prefix: bytes) -> None:
    identity = SegmentId(clock, prefix)
    name = segment_name(writer, identity)
    assert parse_segment_name(name) == (writer, identity)
    zero = segment_name(writer, SegmentId(0, prefix))
    for wrong in (name + "0", name[:-1], name.upper(), "/" + name, name + "\n", zero):
        assert not decodes(lambda _, wrong=wrong: parse_segment_name(wrong), b"")  # type: ignore[misc]
