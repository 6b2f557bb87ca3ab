"""Frozen bytes of every format. When a test here fails, data written earlier can no longer be read.

To change a format on purpose, raise its version, keep reading the old one, and add a vector.
"""

from __future__ import annotations

from msgspec.structs import replace

from sync import OneKey
from sync.checkpoint import Root, Slice, Statement
from sync.codec import ZERO_HASH
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
from sync.identity import DeviceKey
from sync.log_tree import branch_id
from sync.segment import SegmentId, decode_segment, encode_segment, segment_name
from sync.update import Update, UpdateStamp, decode_signed, encode_signed, history_hash
from sync.vector import VersionVector
from tests.sync.support import as_update

DEVICE = DeviceKey.from_seed(bytes(range(32)))
OTHER = DeviceKey.from_seed(bytes(range(32, 64)))
VOLUME = bytes(range(100, 116))
BOX_KEY = OneKey(bytes(range(200, 232)))
NONCE = bytes(range(24))
TIME = 1_795_000_000_123_456_789

ENTRIES = VersionVector({DEVICE.device_id: 300, OTHER.device_id: 1 << 40})
"""As an update may depend on, with clocks of several bytes."""

DEVICE_ID = bytes.fromhex("176e02f68ebd77cc4ef534e6a2f21b2e")

BRANCH_ID = bytes.fromhex("09bb373dcafe3d298c18fbf9cf6071db")

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
    "808080802032333435363738393a3b3c3d3e3f40416937c06d5bacab8a7cca8fed4e815717f99957b40a5c38034c9816"
    "e2e62d90f618e91efd632f4d1503ef04d390bb853d1b7a473d9cf81e7a3894ef318afcd75796986e4af6d7d4e9f003a3"
    "65d6e6b23b62af3d607b4f06fc331a56c6fe559246ba089a739d82213cb23f02e281b0443dd02956ad69dd2d52c305c2"
    "4c51de55021df452ee85b52f398a9e07020200040005012c00000001012d676f6e65656d7074796b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
    "6b6b6b767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676767676"
    "767676767676767676767676767676"
)

LATER_HASH = bytes.fromhex("717849f78a35842fe88f46c507ee2034a66e31078c1aa8a0f0e12a83bca11694")

HEAD_BYTES = bytes.fromhex(
    "484648440003176e02f68ebd77cc4ef534e6a2f21b2e00000000000102030405060708090a0b0c0d0e0f101112131415"
    "1617fd1736e511650042b0cacd19eca932e7dbf8a059a8030fc8eae5098c0bca4282491ab742059b893a7df7c87efc2c"
    "c158c1fe1f10c17e167c735219ee2aca8fa56ae8c332725ff298cf886c7b2ac27d13ffe4018396353390a2195fcdee3e"
    "96116fa88374e834ee7847d11cdc3de32df644051744ae47098e3b76addbbda99ed7de3c0ee8f28342a678c8410212a6"
    "dad5f41eab612bf6420d717dda77d6ab5942697fc0ce0d1a76172ffaa7185fc484a506392ccf1a63f8add416b42a5f3a"
    "1f0ab7a9f2df6771afaf08cfdfe87fd439b7ba571e6b2cdf72668b2a9a4a864ce4ced0f3ed0f6cf77924996f32ed1de7"
    "5964e5a216a1e11c339a748ee4efcd58309ff2b7e55ef6387f2b6fd9a055261ed1739b5a727b50a6f58d3a7fd778e845"
    "56db06d0bf33a88adc9a6483187abb9fedb215e739c57c8d147ada38dfa1143a7dab9ddbdd65ebf9e590ac2937e797d9"
    "34248a20cf9691f08fe20b1f23f58183c20fc74058cfb2c8620de7b8d7dddb3a1e4efa953c22de1c9a1d3af98e32e51a"
    "eb3e2311bf5f4f6ae9ea85abd2eea71b588f8aec0834f1c3fd56c2b53a93848c83743d6c577050be92acc4b1795a556a"
    "895424070cd16bd4fb697720abe0492d97bb0c74153a4e0aee194cfab680d93df28a10d47ebb7ccbc98e373dc67977b9"
    "62672d451886d28d7639"
)

STATED_HEAD_BYTES = bytes.fromhex(
    "484648440003176e02f68ebd77cc4ef534e6a2f21b2e00000000000102030405060708090a0b0c0d0e0f101112131415"
    "1617fd1736e511620042b0cacd19eca932e7dbf8a059a8030fc8eae5098c0bca4282491ab742059b893a7df7c87efc2c"
    "c158c1fe1f10c17e167c735219ee2aca8fa56ae8c332725ff298cf886c7b2ac27d13ffe4018396353390a2195fcdee3e"
    "96116fa88374e834ee7847d11cdc3de32df644051744ae47098e3b76addbbda99ed7de3c0ee8f28342a678c8410212a6"
    "dad5f41eab612bf6420d717dda77d6ab5942697fc0ce0d1a76172ffaa7185fc484a506392ccf1a63f8add416b42a5f3a"
    "1f0ab7a9f2df6771afaf08cfdfe87fd439b7ba571e6b2cdf72668b2a9a4a864ce4ced0f3ed0f6cf77924996f32ed1de7"
    "5964e5a216a1e11c339a748ee4efcd58309ff2b7e55ef6387f2b6fd9a055261ed1739b5a727b50a6f58d3a7fd778e845"
    "56db06d0bf33a88adc9a6483187abb9fedb215e739c57c8d147ada38dfa1143a7dab9ddbdd65ebf9e590ac2937e797d9"
    "34248a20cf9691f08fe20b1f23f58183c20fc74058cfb2c8620de7b8d7dddb3a1e4efa953c22de1c9a1d3af98e32e51a"
    "eb3e2311bf5f4f6ae9ea85abd2eea71b588f8aec0834f1c3fd56f8ba0a70524bf54961f22e45198932815c3416f3ee52"
    "6b765a789562881900c3dc3ccc93e5c150883fdc6645255f69a935b5bfcfda34f390c1a390ccde795850da86e2ae57f8"
    "754aa2e39a2523738657397acd8e99d942565fc0b225c8f5fa5659bbd98afc18abf8349fc4eed819c6211cd64727c2fe"
    "6b39180e0d66bc84bf7374fb4fb48c474878b8b0db4a03754e2b"
)
HOLDING_HEAD_BYTES = bytes.fromhex(
    "484648440003176e02f68ebd77cc4ef534e6a2f21b2e00000000000102030405060708090a0b0c0d0e0f101112131415"
    "1617fd1736e511630042b0cacd19eca932e7dbf8a059a8030fc8eae5098c0bca4282491ab742059b893a7df7c87efc2c"
    "c158c1fe1f10c17e167c735219ee2aca8fa56ae8c332725ff298cf886c7b2ac27d13ffe4018396353390a2195fcdee3e"
    "96116fa88374e834ee7847d11cdc3de32df644051744ae47098e3b76addbbda99ed7de3c0ee8f28342a678c8410212a6"
    "dad5f41eab612bf6420d717dda77d6ab5942697fc0ce0d1a76172ffaa7185fc484a506392ccf1a63f8add416b42a5f3a"
    "1f0ab7a9f2df6771afaf08cfdfe87fd439b7ba571e6b2cdf72668b2a9a4a864ce4ced0f3ed0f6cf77924996f32ed1de7"
    "5964e5a216a1e11c339a748ee4efcd58309ff2b7e55ef6387f2b6fd9a055261ed1739b5a727b50a6f58d3a7fd778e845"
    "56db06d0bf33a88adc9a6483187abb9fedb215e739c57c8d147ada38dfa1143a7dab9ddbdd65ebf9e590ac2937e797d9"
    "34248a20cf9691f08fe20b1f23f58183c20fc74058cfb2c8620de7b8d7dddb3a1e4efa953c22de1c9a1d3af98e32e51a"
    "eb3e2311bf5f4f6ae9ea85abd2eea71b588f8aec0834f1c3fd5659bb0971554af6486ef32d441e883180433515f2e953"
    "6877557996638f1803c2a33dcf92e2c0538930dd6544225e6aa82ab4bccedd35f091cea293cdd9785b513447b3c331ab"
    "927fea2b6c156ad75ed9845b35f02fccefdefd1c78252f2581e581fa44744030d4775a6b6b3276e8bb9fa0c0d504a2da"
    "35a3c1e5481857679573a926db1b797fc2bc272509bf7b80092172f6b342aec703de77c8c8cb5363071a227839df0d12"
    "301ed6babc59770f52792de45aecefa92ee89f880816fabab2dc6663e2cf02adfa1ba7a37117b28da62ea9f0f24d3649"
    "e3cb9f013015ad2713"
)

ROOT_BYTES = bytes.fromhex(
    "4846435200016465666768696a6b6c6d6e6f70717273404142434445464748494a4b4c4d4e4f50515253545556575859"
    "5a5b5c5d5e5f02176e02f68ebd77cc4ef534e6a2f21b2eac02354f55f9738064102fa993af632efdce80808080802002"
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f8080400102030405060708090a0b0c0d"
    "0e0f101112131415161718191a1b1c1d1e1f20ac020102030405060708090a0b0c0d0e0f101112131415161718191a1b"
    "1c1d1e1f20210901176e02f68ebd77cc4ef534e6a2f21b2ea35d71b60e04ee4a84beb2efe5529674be482c711aa62041"
    "42d62aaee5c0ee72219d897a97b4e3374218bc257f2de5c5e6e505e703ad6cdc45fa93c01d91100d"
)

SEGMENT_BYTES = bytes.fromhex(
    "484653470002176e02f68ebd77cc4ef534e6a2f21b2e000000000000000100000000000000015fedf065d9bb46e50000"
    "0000000102030405060708090a0b0c0d0e0f1011121314151617b58a7f9fa44999070da0a37022c9878bfdd18578da71"
    "7cc38e74ef58166d601a139365c16cc686bd61fc25ecc6f69744ebe5decd9745177ecaa5f194df0645b02296a211addb"
    "a7c5cd5778215815b8ae7215353be46239d3473ec1b00d915b246c02cb5ae04a5c9ec8165d2b001fe7c94867fa7068e7"
    "44165c848af634aed8af4d598e855a10889e1edb663adb7418c5567a2ac8c7cd206a77307a390306fdd5f385e1edf753"
    "d7ba95947ef99e7b9fe2799f69287106ffa397f130ad0d7e72f5e2553d72647bcdd302c3c8a7693da05283b2e8dcddf7"
    "4343f66b5a4912"
)


FIRST = Update(VOLUME, DEVICE.device_id, 1, 0, ZERO_HASH, (), EMPTY_HISTORY, TIME, ((b"k", b"v"),))
"""The first update of a volume."""

LATER = Update(
    VOLUME,
    DEVICE.device_id,
    (1 << 40) + 1,
    300,
    bytes(range(32)),
    (UpdateStamp(OTHER.device_id, 1 << 40, bytes(range(50, 66))),),
    ENTRIES_HISTORY,
    TIME,
    ((b"gone", None), (b"empty", b""), (b"k" * 300, b"v" * 300)),
)
"""Tombstone, empty value, sizes of two bytes, a dependency."""

HEAD = Head(
    VOLUME,
    DEVICE.device_id,
    TIME + 1,
    TIME,
    ENTRIES,
    (OwnTip(300, bytes(range(32))), OwnTip(200, bytes(range(32, 64)))),
    LogOnClouds(2, SegmentId(129, bytes(range(8))), 300),
    relayed=(Relayed(OTHER.device_id, SegmentId(300, bytes(range(8, 16)))),),
    stated=Statement.of(VOLUME, ENTRIES, bytes(range(64, 96)), DEVICE),
    checkpoint=CheckpointId(bytes(range(96, 128)), bytes(range(128, 160))),
)

STATED_HEAD = replace(HEAD, state=StateClaim(bytes(range(160, 192)), bytes(range(192, 224))))
"""Of a later version."""

HOLDING_HEAD = replace(
    STATED_HEAD,
    holdings=Holdings(
        Hoard.ALL, 41, ENTRIES, (Holding(bytes(range(16)), True), Holding(bytes(range(1, 17)), False))
    ),
)
"""Of the latest version."""

ROOT = Root(
    VOLUME,
    bytes(range(64, 96)),
    ENTRIES,
    (Slice(bytes(range(32)), 1 << 20), Slice(bytes(range(1, 33)), 300)),
    (Slice(bytes(range(2, 34)), 9),),
    {DEVICE.device_id: Statement.of(VOLUME, ENTRIES, bytes(range(64, 96)), DEVICE).signature},
)


def test_device_id() -> None:
    assert DEVICE.device_id == DEVICE_ID


def test_version_vector() -> None:
    assert ENTRIES.encode() == ENTRIES_BYTES
    assert VersionVector.decode(ENTRIES_BYTES) == ENTRIES


def test_history_hash() -> None:
    assert history_hash(()) == EMPTY_HISTORY
    assert history_hash((writer, clock, writer * 2) for writer, clock in ENTRIES.items()) == ENTRIES_HISTORY


def test_branch_id() -> None:
    assert branch_id(DEVICE_ID, FIRST_HASH) == BRANCH_ID


def test_updates() -> None:
    for update, data, name in ((FIRST, FIRST_BYTES, FIRST_HASH), (LATER, LATER_BYTES, LATER_HASH)):
        assert encode_signed(update, DEVICE) == data
        assert as_update(decode_signed(data)) == update
        assert decode_signed(data).hash == name
        assert decode_signed(data).header.verify(DEVICE.public)


def test_head() -> None:
    assert encode_head(HEAD, DEVICE, BOX_KEY, NONCE) == HEAD_BYTES
    assert decode_head(HEAD_BYTES, VOLUME, DEVICE.public, BOX_KEY) == HEAD


def test_head_that_tells_the_state() -> None:
    assert encode_head(STATED_HEAD, DEVICE, BOX_KEY, NONCE) == STATED_HEAD_BYTES
    assert decode_head(STATED_HEAD_BYTES, VOLUME, DEVICE.public, BOX_KEY) == STATED_HEAD


def test_head_that_tells_what_the_device_keeps() -> None:
    assert encode_head(HOLDING_HEAD, DEVICE, BOX_KEY, NONCE) == HOLDING_HEAD_BYTES
    assert decode_head(HOLDING_HEAD_BYTES, VOLUME, DEVICE.public, BOX_KEY) == HOLDING_HEAD


def test_segment() -> None:
    # Only what is read is frozen: another zstd may compress the same records to other bytes.
    name = segment_name(DEVICE_ID, SegmentId(1, FIRST_HASH[:8]))
    segment = decode_segment(SEGMENT_BYTES, name, VOLUME, BOX_KEY)
    assert [update.data for update in segment.updates] == [FIRST_BYTES]
    assert (
        decode_segment(encode_segment([FIRST_BYTES], None, BOX_KEY, NONCE), name, VOLUME, BOX_KEY) == segment
    )


def test_root() -> None:
    assert ROOT.encode() == ROOT_BYTES
    assert Root.decode(ROOT_BYTES) == ROOT
