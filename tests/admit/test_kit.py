"""Recovery kits: what opens them, and what no cloud and no stranger can make of them."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hybrisfs.admit.kit import MAX_KIT, KitCopy, Sources, decode_kit, kit_name
from hybrisfs.recovery.record import KitRecord, SignedKit, kit_key, signed_kit_key
from hybrisfs.recovery.sealed_key import KitSecret, seal_key
from sync import DecodeError, DeviceKey, NewerFormatError
from tests.recovery.support import (
    ADA,
    BOB,
    CHEAP,
    PASSPHRASE,
    RECORD,
    SECRET,
    STRANGER,
    URLS,
    VOLUME,
    kit,
    sources,
)

NAME = kit_name(SECRET.kit)
DATA = kit()


def copy_of(data: bytes) -> KitCopy:
    return decode_kit(data, NAME)


def test_it_comes_back_with_the_passphrase_alone() -> None:
    copy = copy_of(DATA)
    secret = copy.key.open(PASSPHRASE, copy.kit)
    assert secret is not None
    grant = copy.open(secret)
    assert grant == sources().grant
    assert copy.writer == ADA.device_id and copy.is_signed_by(ADA.public)
    assert copy.rank == sources().rank(SECRET.voucher)


def test_nothing_secret_is_in_it() -> None:
    grant = sources().grant
    hidden = [SECRET.reserve.seed, SECRET.voucher, SECRET.reserve.public, VOLUME, grant.keys.dedup]
    hidden += [
        grant.keys.epochs[0].data,
        grant.keys.epochs[0].metadata,
        *(url.encode() for url in URLS),
        b"photos",
    ]
    assert [one for one in hidden if one in DATA] == []


def test_two_of_equal_contents_rank_alike_and_a_later_one_higher() -> None:
    other = kit(device=BOB, made_of=sources(members=(ADA, BOB)))
    again = kit(device=ADA, made_of=sources(members=(ADA, BOB)))
    assert other != again and copy_of(other).rank == copy_of(again).rank
    assert copy_of(other).digest != copy_of(DATA).digest
    assert copy_of(kit(sources(6))).rank > max(copy_of(DATA).rank, copy_of(other).rank)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_whatever_a_cloud_alters_it_does_not_open(at: int, by: int) -> None:
    data = bytearray(DATA)
    data[at] ^= by
    with pytest.raises(DecodeError):
        copy_of(bytes(data)).open(SECRET)


@given(st.integers(0, len(DATA) - 1), st.binary(max_size=40))
def test_neither_cut_nor_followed_by_anything(end: int, more: bytes) -> None:
    for data in (DATA[:end], DATA + more + b"x"):
        with pytest.raises(DecodeError):
            copy_of(data).open(SECRET)


@given(st.binary(max_size=600))
def test_no_bytes_do_worse_than_being_refused(data: bytes) -> None:
    for hostile in (data, DATA[:6] + data, DATA[: -len(data) or None] + data):
        if hostile != DATA:
            with pytest.raises(DecodeError):
                copy_of(hostile).open(SECRET)


def test_a_newer_format_is_told_from_nonsense_and_size_is_bounded() -> None:
    with pytest.raises(NewerFormatError):
        copy_of(DATA[:4] + b"\0\2" + DATA[6:])
    with pytest.raises(DecodeError, match="bytes"):
        copy_of(DATA + bytes(MAX_KIT))


def test_parts_of_two_kits_cannot_be_mixed() -> None:
    secret = KitSecret(DeviceKey.from_seed(b"q" * 32), b"x" * 32, VOLUME)
    other = replace(RECORD, voucher=secret.voucher, key=seal_key(secret, PASSPHRASE, CHEAP))
    with pytest.raises(DecodeError):
        copy_of(kit(record=replace(other, voucher=SECRET.voucher))).open(secret)
    mixed = kit(record=replace(RECORD, key=other.key))  # as if a member had mixed them
    assert copy_of(mixed).key.open(PASSPHRASE, SECRET.kit) is None
    with pytest.raises(DecodeError, match="under the name"):
        decode_kit(DATA, kit_name(secret.kit))


def test_who_does_not_know_the_voucher_or_is_no_member_cannot_make_one() -> None:
    with pytest.raises(DecodeError, match="no machine of the volume"):
        copy_of(kit(record=replace(RECORD, voucher=b"?" * 32))).open(SECRET)
    with pytest.raises(DecodeError, match="no member signed"):
        copy_of(kit(device=STRANGER)).open(SECRET)
    forged = copy_of(kit(device=STRANGER))
    assert not forged.is_signed_by(ADA.public)


def test_the_contents_of_another_volume_are_refused() -> None:
    foreign = Sources(structs.replace(sources().grant, volume=b"o" * 16), 5)
    with pytest.raises(DecodeError):
        copy_of(kit(foreign)).open(SECRET)


def test_the_record_for_the_devices_comes_back() -> None:
    assert KitRecord.decode(RECORD.encode()) == RECORD
    assert kit_key(SECRET.kit) == b"y" + SECRET.kit
    data = RECORD.encode()
    for wrong in (data[:-1], data + b"\0", b"\2" + data[1:], data.replace(b"photos", b"ph/tos"), b""):
        with pytest.raises(DecodeError):
            KitRecord.decode(wrong)
    assert str(SECRET.voucher) not in repr(RECORD)


def test_the_signed_record_comes_back_and_nobody_else_can_make_it() -> None:
    key, signed = signed_kit_key(SECRET.kit), SignedKit(RECORD, SECRET.reserve.public)
    value = signed.encode(SECRET.reserve)
    assert SignedKit.decode(key, value) == signed
    foreign = KitRecord("photos", 1, bytes(32), RECORD.key)
    by_another = SignedKit(foreign, SECRET.reserve.public).encode(STRANGER)
    of_another = SignedKit(foreign, STRANGER.public).encode(STRANGER)
    altered = value.replace(b"photos", b"phones")
    for wrong in (value[:-1], value + b"\0", b"\2" + value[1:], altered, by_another, of_another, b""):
        with pytest.raises(DecodeError):
            SignedKit.decode(key, wrong)


@pytest.mark.parametrize("created", [(1 << 64) - 1, 1 << 63, 1 << 40, 253_402_300_800, 95_617_584_000])
def test_a_kit_was_made_at_a_time_that_can_be_shown(created: int) -> None:
    last = replace(RECORD, created=95_617_583_999)
    assert KitRecord.decode(last.encode()) == last
    datetime.datetime.fromtimestamp(last.created)
    with pytest.raises(DecodeError, match="no time"):
        KitRecord.decode(replace(RECORD, created=created).encode())
