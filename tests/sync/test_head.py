"""Heads: signed by the device, sealed from the clouds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sync import OneKey
from sync.codec import Reader, Writer
from sync.errors import DecodeError, LimitError, NewerFormatError
from sync.head import (
    MAX_HELD,
    MAX_OWN_TIPS,
    MAX_RELAYED,
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
    head_name,
)
from sync.seal import open_sealed, seal
from sync.segment import SegmentId
from sync.vector import MAX_CLOCK, MAX_WRITERS, VersionVector
from tests.sync.support import BOX_KEY, KEYS, NONCE, NOON, STRANGER, VOLUME, decodes, flip, vectors

KEY = KEYS[0]
HEAD = Head(
    VOLUME,
    KEY.device_id,
    NOON + 5,
    NOON,
    VersionVector({KEY.device_id: 9, KEYS[1].device_id: 4}),
    (OwnTip(9, b"h" * 32), OwnTip(5, b"g" * 32)),
    LogOnClouds(3, SegmentId(7, b"h" * 8), 9),
    relayed=(Relayed(KEYS[1].device_id, SegmentId(2, b"relayed2")),),
)
SEALED = encode_head(HEAD, KEY, BOX_KEY, NONCE)
_u64 = st.integers(0, (1 << 64) - 1)


def opened(data: bytes) -> Head:
    return decode_head(data, VOLUME, KEY.public, BOX_KEY)


def forged(head: Head) -> bytes:
    """A head in the place of that of KEY, but signed by whoever `head.writer` is."""
    key = next(key for key in (*KEYS, STRANGER) if key.device_id == head.writer)
    theirs = encode_head(head, key, BOX_KEY, NONCE)
    payload = open_sealed(Reader(theirs[22:]), theirs[:22], head.volume, BOX_KEY)
    return seal(Writer().format(b"HFHD", 3).raw(KEY.device_id).getvalue(), VOLUME, payload, BOX_KEY, NONCE)


@given(vectors, _u64, _u64, st.integers(1, 1 << 40), st.data())
def test_round_trip(
    vector: VersionVector, serial: int, time_ns: int, clock: int, data: st.DataObject
) -> None:
    last = data.draw(st.integers(1, clock))
    prefixes = st.binary(min_size=8, max_size=8)
    newest = st.builds(SegmentId, st.integers(1, last), st.just(b"h" * 8) if last == clock else prefixes)
    on_clouds = data.draw(st.none() | st.builds(LogOnClouds, st.integers(1, 1 << 30), newest, st.just(last)))
    segments = st.builds(SegmentId, st.integers(1, MAX_CLOCK), prefixes)
    relayed = st.builds(Relayed, st.just(KEY.device_id) | st.binary(min_size=16, max_size=16), segments)
    tips = st.builds(OwnTip, st.integers(1, clock), st.binary(min_size=32, max_size=32))
    own = (OwnTip(clock, b"h" * 32), *data.draw(st.lists(tips, max_size=3, unique=True)))
    vector = vector.with_entries([(KEY.device_id, clock)])
    others = tuple(sorted(data.draw(st.sets(relayed, max_size=3))))
    nodes = st.dictionaries(st.binary(min_size=16, max_size=16), st.booleans(), max_size=3)
    held = nodes.map(lambda found: tuple(Holding(*one) for one in sorted(found.items())))
    holdings = st.builds(Holdings, st.sampled_from(Hoard), st.integers(0, 64), vectors, held)
    head = Head(
        VOLUME,
        KEY.device_id,
        serial,
        time_ns,
        vector,
        own,
        on_clouds,
        data.draw(st.booleans()),
        others,
        state=data.draw(st.none() | st.just(StateClaim(b"h" * 32, b"s" * 32))),
        holdings=data.draw(st.none() | holdings),
    )
    assert opened(encode_head(head, KEY, BOX_KEY, NONCE)) == head


def test_the_head_of_a_device_that_wrote_nothing() -> None:
    head = replace(HEAD, vector=VersionVector({KEYS[1].device_id: 4}), own=(), on_clouds=None)
    assert head.newest is None
    assert opened(encode_head(head, KEY, BOX_KEY, NONCE)) == head


@given(st.integers(min_value=0), st.integers(0, len(SEALED) - 1))
def test_alteration_and_truncation_are_refused(bit: int, length: int) -> None:
    assert not decodes(opened, flip(SEALED, bit))
    assert not decodes(opened, SEALED[:length])


def test_addition_and_oversize_are_refused() -> None:
    assert opened(SEALED) == HEAD
    assert not decodes(opened, SEALED + b"\0")
    with pytest.raises(DecodeError, match="at most"):
        opened(bytes(1 << 20))


def test_a_head_belongs_to_its_device_volume_and_key() -> None:
    other = replace(HEAD, writer=KEYS[1].device_id)
    with pytest.raises(DecodeError, match="another machine's head"):
        opened(encode_head(other, KEYS[1], BOX_KEY, NONCE))
    with pytest.raises(DecodeError, match="did not sign"):
        opened(forged(other))
    with pytest.raises(DecodeError, match="another volume or machine"):
        opened(forged(replace(HEAD, volume=bytes(16))))
    with pytest.raises(DecodeError, match="another volume or key"):
        decode_head(SEALED, bytes(16), KEY.public, BOX_KEY)
    with pytest.raises(DecodeError, match="another volume or key"):
        decode_head(SEALED, VOLUME, KEY.public, OneKey(bytes(32)))
    with pytest.raises(ValueError, match="its own machine only"):
        encode_head(HEAD, STRANGER, BOX_KEY, NONCE)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (replace(HEAD, own=()), "cannot be the newest"),
        (replace(HEAD, vector=VersionVector()), "does not cover"),
        (replace(HEAD, own=(OwnTip(10, b"h" * 32),)), "does not cover"),
        (replace(HEAD, own=(HEAD.own[0], OwnTip(0, b"h" * 32))), "does not cover"),
        (replace(HEAD, own=HEAD.own * 2), "named twice"),
        (replace(HEAD, on_clouds=LogOnClouds(1, SegmentId(0, bytes(8)), 9)), "cannot be the newest"),
        (replace(HEAD, on_clouds=LogOnClouds(1, SegmentId(8, bytes(8)), 7)), "cannot be the newest"),
        (replace(HEAD, on_clouds=LogOnClouds(1, SegmentId(8, bytes(8)), 10)), "cannot be the newest"),
        (replace(HEAD, on_clouds=LogOnClouds(1, SegmentId(8, b"another!"), 9)), "cannot be the newest"),
        (replace(HEAD, relayed=(Relayed(bytes(16), SegmentId(0, bytes(8))),)), "begins nowhere"),
        (replace(HEAD, relayed=HEAD.relayed * 2), "out of order"),
    ],
)
def test_contradictions_are_refused(head: Head, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        opened(encode_head(head, KEY, BOX_KEY, NONCE))


def test_the_largest_head_can_be_read() -> None:
    clocks = {n.to_bytes(16, "big"): MAX_CLOCK - n for n in range(MAX_WRITERS)}
    tips = tuple(OwnTip(MAX_CLOCK - 2000 - n, n.to_bytes(32, "big")) for n in range(MAX_OWN_TIPS))
    on_clouds = LogOnClouds(MAX_CLOCK, SegmentId(1, bytes(8)), tips[0].clock)
    relayed = tuple(
        Relayed(bytes(15) + bytes([n]), SegmentId(MAX_CLOCK, bytes(8))) for n in range(MAX_RELAYED)
    )
    vector = VersionVector(clocks)
    head = replace(HEAD, vector=vector, own=tips, on_clouds=on_clouds, offline=True, relayed=relayed)
    assert opened(encode_head(head, KEY, BOX_KEY, NONCE)) == head
    with pytest.raises(LimitError):
        encode_head(replace(head, own=(*tips, OwnTip(1, bytes(32)))), KEY, BOX_KEY, NONCE)
    with pytest.raises(LimitError):
        encode_head(replace(head, relayed=(*relayed, *HEAD.relayed)), KEY, BOX_KEY, NONCE)


def test_what_a_device_keeps_has_bounds_and_an_order() -> None:
    nodes = tuple(Holding(n.to_bytes(16, "big"), True) for n in range(MAX_HELD))
    head = replace(HEAD, holdings=Holdings(Hoard.ASKED, 64, HEAD.vector, nodes))
    assert opened(encode_head(head, KEY, BOX_KEY, NONCE)) == head
    more = Holdings(Hoard.ASKED, 64, HEAD.vector, (*nodes, Holding(b"n" * 16, False)))
    with pytest.raises(LimitError):
        encode_head(replace(head, holdings=more), KEY, BOX_KEY, NONCE)
    for wrong in (
        replace(head.holdings, nodes=nodes[1::-1]),  # type: ignore[type-var]
        replace(head.holdings, nodes=nodes[:1] * 2),  # type: ignore[type-var]
        replace(head.holdings, room=65),  # type: ignore[type-var]
    ):
        with pytest.raises(DecodeError, match="keeps"):
            opened(encode_head(replace(head, holdings=wrong), KEY, BOX_KEY, NONCE))


def test_offline_is_yes_or_no() -> None:
    payload = open_sealed(Reader(SEALED[22:]), SEALED[:22], VOLUME, BOX_KEY)
    record = payload[:54] + b"\2" + payload[55:-64]
    with pytest.raises(DecodeError, match="flag"):
        opened(seal(SEALED[:22], VOLUME, record + KEY.sign(record), BOX_KEY, NONCE))


def test_nothing_may_follow_the_record() -> None:
    payload = open_sealed(Reader(SEALED[22:]), SEALED[:22], VOLUME, BOX_KEY)
    longer = payload[:-64] + b"\0"
    with pytest.raises(DecodeError, match="after the end"):
        opened(seal(SEALED[:22], VOLUME, longer + KEY.sign(longer), BOX_KEY, NONCE))


def test_a_newer_format_says_so() -> None:
    with pytest.raises(NewerFormatError, match="HFHD record of format 4"):
        opened(SEALED[:5] + b"\x04" + SEALED[6:])


def test_a_cloud_sees_the_device_only() -> None:
    assert SEALED[:22] == b"HFHD\0\3" + KEY.device_id
    for secret in (VOLUME, KEYS[1].device_id, HEAD.own[0].hash):
        assert secret not in SEALED
    assert head_name(KEY.device_id) == f"heads/{KEY.device_id.hex()}"
