"""Frozen bytes of every format. When a test here fails, data written earlier can no longer be read.

To change a format on purpose, raise its version, keep reading the old one, and add a vector.
"""

from __future__ import annotations

from sync.hashing import ZERO_HASH
from sync.head import Extent, Head, decode_head, encode_head
from sync.history import history_hash
from sync.identity import DeviceKey, Members
from sync.log import Accepted, LogState
from sync.segment import decode_segment, encode_segment, segment_name
from sync.update import Update, decode_signed, encode_signed
from sync.vector import VersionVector
from tests.sync.support import MemoryLog, as_update

DEVICE = DeviceKey.from_seed(bytes(range(32)))
OTHER = DeviceKey.from_seed(bytes(range(32, 64)))
VOLUME = bytes(range(100, 116))
BOX_KEY = bytes(range(200, 232))
NONCE = bytes(range(24))
TIME = 1_795_000_000_123_456_789

ENTRIES = VersionVector({DEVICE.device_id: 300, OTHER.device_id: 1 << 40})
"""As an update may depend on, with clocks of several bytes."""

DEVICE_ID = bytes.fromhex("176e02f68ebd77cc4ef534e6a2f21b2e")

ENTRIES_BYTES = bytes.fromhex(
    "02176e02f68ebd77cc4ef534e6a2f21b2eac02354f55f9738064102fa993af632efdce808080808020"
)

EMPTY_HISTORY = bytes.fromhex("ae99ea8c7b71bdd9068b55c57d764e73aedd2115272eb63de9e11b11e1f8696d")

ENTRIES_HISTORY = bytes.fromhex("6937c06d5bacab8a7cca8fed4e815717f99957b40a5c38034c9816e2e62d90f6")

FIRST_BYTES = bytes.fromhex(
    "4846555000016465666768696a6b6c6d6e6f70717273176e02f68ebd77cc4ef534e6a2f21b2e01000000000000000000"
    "00000000000000000000000000000000000000000000000000ae99ea8c7b71bdd9068b55c57d764e73aedd2115272eb6"
    "3de9e11b11e1f8696d18e91efd632f4d1501064a2e097cb1e28ac146ff34f6c133016ce224d7b25e8c72e43035901d5d"
    "648e7b9fa5a9b3eb1a4537021eeefaeb3a8948ac87c30b535535799578e2959dada1c61c1dc54b20ac166cd9e0c3bc1f"
    "4279a144d22430fe7dc38394a8fbd7c29c7b01010101026b76"
)

FIRST_HASH = bytes.fromhex("5fedf065d9bb46e5f7f69240225a1ec55b52b28d3fac73a8363e7653daa9cb8c")

LATER_BYTES = bytes.fromhex(
    "4846555000016465666768696a6b6c6d6e6f70717273176e02f68ebd77cc4ef534e6a2f21b2e818080808020ac020001"
    "02030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f01354f55f9738064102fa993af632efdce80"
    "80808080206937c06d5bacab8a7cca8fed4e815717f99957b40a5c38034c9816e2e62d90f618e91efd632f4d1503ef04"
    "d390bb853d1b7a473d9cf81e7a3894ef318afcd75796986e4af6d7d4e9f003a3cadb2233ed4bc3e3411f0384c7e0fd06"
    "2ea4bed97ce3fa3ff00da8c5542a8be93e12b1ecb1e4aef8d075f4796383f2bb4aaafc5ec288d679e8bca983fdda3008"
    "020200040005012c00000001012d676f6e65656d7074796b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b76767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "7676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
)

LATER_HASH = bytes.fromhex("3df10d63b8933f44b15db257cdc3e33f97075ee54a072aad07abe04229f8ca09")

STATE_BYTES = bytes.fromhex(
    "48464c5300016465666768696a6b6c6d6e6f7071727301176e02f68ebd77cc4ef534e6a2f21b2e015fedf065d9bb46e5"
    "f7f69240225a1ec55b52b28d3fac73a8363e7653daa9cb8c00"
)

HEAD_BYTES = bytes.fromhex(
    "484648440001176e02f68ebd77cc4ef534e6a2f21b2e000102030405060708090a0b0c0d0e0f1011121314151617fd17"
    "36e511670042b0cacd19eca932e7dbf8a059a8030fc8eae5098c0bca4282491ab742059b893a7df7c87efc2fdba6b101"
    "8ab1311cda309108fdba566cd6c52628b88129de69d273a5f0a7d058206e5574aeaa851a70be5ed5dc496bb81139640e"
    "8a78e438e26c53c508c021ff31e250110348a24b0598af6116c1371e29c5008f262039697ee0fd281927a9ff384f6b6c"
    "06124dd376f5b08e939f00e16d8793b5ac35024fff2603b97631df30d4804d57a865ff71350cca867f00ed6c19f99e35"
    "a52a5673b3011750aafd"
)

SEGMENT_BYTES = bytes.fromhex(
    "484653470001176e02f68ebd77cc4ef534e6a2f21b2e0000000000000001000000000000000100010203040506070809"
    "0a0b0c0d0e0f1011121314151617b58a7f9fa44999070da0a37022c9878bfdd18578da717cc38e74ef58166d601a1393"
    "65c16cc686bd61fc25ecc6f69744ebe5decd9745177ecaa5f194df0645b02296a211addba7c5cd5778215815b8ae7215"
    "353be46239d3473ec1b00d915b246c02cb5ae04a5c9ec8165d2b001fe7c94867fa7068e744165c848af634aed8af4d59"
    "8e855a10889e1edb663adb7418c5567a2ac8c7cd206a77307a390306fdd5f385e1edf753d7ba95947ef99e7b9fe2799f"
    "69287106ffa397f130ad0d7e72f5e2553d72647bcdd302c3c8a7690cf0135862e1eccbed8840b4275f9e60"
)


FIRST = Update(VOLUME, DEVICE.device_id, 1, 0, ZERO_HASH, (), EMPTY_HISTORY, TIME, ((b"k", b"v"),))
"""The first update of a volume."""

LATER = Update(
    VOLUME,
    DEVICE.device_id,
    (1 << 40) + 1,
    300,
    bytes(range(32)),
    ((OTHER.device_id, 1 << 40),),
    ENTRIES_HISTORY,
    TIME,
    ((b"gone", None), (b"empty", b""), (b"k" * 300, b"v" * 300)),
)
"""Tombstone, empty value, sizes of two bytes, a dependency."""

HEAD = Head(VOLUME, DEVICE.device_id, TIME, ENTRIES, bytes(range(32)), Extent(2, 129, 300))


def test_device_id() -> None:
    assert DEVICE.device_id == DEVICE_ID


def test_version_vector() -> None:
    assert ENTRIES.encode() == ENTRIES_BYTES
    assert VersionVector.decode(ENTRIES_BYTES) == ENTRIES


def test_history_hash() -> None:
    assert history_hash(VersionVector(), lambda writer, clock: b"") == EMPTY_HISTORY
    assert history_hash(ENTRIES, lambda writer, clock: writer * 2) == ENTRIES_HISTORY


def test_updates() -> None:
    for update, data, name in ((FIRST, FIRST_BYTES, FIRST_HASH), (LATER, LATER_BYTES, LATER_HASH)):
        assert encode_signed(update, DEVICE) == data
        assert as_update(decode_signed(data)) == update
        assert decode_signed(data).hash == name
        assert decode_signed(data).header.verify(DEVICE.public)


def test_log_state() -> None:
    members = Members([DEVICE.public])
    state = LogState(VOLUME, members, MemoryLog())
    assert isinstance(state.accept(decode_signed(FIRST_BYTES)), Accepted)
    assert state.encode() == STATE_BYTES
    assert LogState.decode(STATE_BYTES, members, MemoryLog()).vector == VersionVector({DEVICE_ID: 1})


def test_head() -> None:
    assert encode_head(HEAD, DEVICE, BOX_KEY, NONCE) == HEAD_BYTES
    assert decode_head(HEAD_BYTES, VOLUME, DEVICE.public, BOX_KEY) == HEAD


def test_segment() -> None:
    # Only what is read is frozen: another zstd may compress the same records to other bytes.
    name = segment_name(DEVICE_ID, 1)
    segment = decode_segment(SEGMENT_BYTES, name, VOLUME, BOX_KEY)
    assert [update.data for update in segment.updates] == [FIRST_BYTES]
    assert decode_segment(encode_segment([FIRST_BYTES], 0, BOX_KEY, NONCE), name, VOLUME, BOX_KEY) == segment
