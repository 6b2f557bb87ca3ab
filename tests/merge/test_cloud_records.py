"""The registers of a volume's clouds: what is decoded, who wins, what a device makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hybrisfs.errors import UsageError
from hybrisfs.log import Registers, Written
from hybrisfs.merge.cloud_records import (
    REDUNDANCY_KEY,
    CloudRecord,
    CloudState,
    RedundancyRecord,
    cloud_key,
    entries_of,
    free_number,
    overruled,
    read_clouds,
    read_redundancy,
)
from hybrisfs.registers.values import Stamp
from sync import DecodeError, VersionVector
from tests.tree.rig import VOLUME, Rig

A, B = b"a" * 16, b"b" * 16
SOME = CloudRecord("nas", "webdavs://me@nas.example/folder")


@pytest.fixture
def registers() -> Iterator[Registers]:
    rig = Rig()
    yield Registers(rig.tx, rig.tx.chunks.condemned, rig.tx.versions, rig.tx.hearing)
    rig.discard()


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@given(texts, texts, st.sampled_from(CloudState))
def test_a_record_is_what_was_encoded_or_refused(name: str, url: str, state: CloudState) -> None:
    record = CloudRecord(name, url, state)
    if name and name.isprintable() and url.isprintable():
        assert CloudRecord.decode(record.encode()) == record
    else:
        with pytest.raises(DecodeError):
            CloudRecord.decode(record.encode())


@given(st.binary(max_size=80))
def test_hostile_values_are_refused(value: bytes) -> None:
    for kind in (CloudRecord, RedundancyRecord):
        with contextlib.suppress(DecodeError):
            assert kind.decode(value).encode() == value


@pytest.mark.parametrize(("f", "k"), [(0, 0), (32, 1), (1, 32), (255, 255)])
def test_impossible_redundancy_is_refused(f: int, k: int) -> None:
    with pytest.raises(DecodeError):
        RedundancyRecord.decode(RedundancyRecord(f, k).encode())


def test_an_unknown_state_and_an_endless_url_are_refused() -> None:
    with pytest.raises(DecodeError):
        CloudRecord.decode(SOME.encode()[:1] + b"\x04" + SOME.encode()[2:])
    with pytest.raises(DecodeError):
        CloudRecord.decode(replace(SOME, url="x" * 5000).encode())


def test_of_concurrent_values_the_last_stands(registers: Registers) -> None:
    nothing = VersionVector()
    other = CloudRecord("usb", "file:///usb")
    first = Written(Stamp(5, A), nothing, entries_of({7: SOME}, RedundancyRecord(1, 1)))
    second = Written(Stamp(6, B), nothing, entries_of({7: other, 8: SOME}, RedundancyRecord(1, 2)))
    third = Written(Stamp(9, A), nothing, [(cloud_key(7), b"nonsense"), (REDUNDANCY_KEY, b"")])
    registers.write([first])
    registers.write([second, third])
    assert read_clouds(registers) == {7: (other, Stamp(6, B)), 8: (SOME, Stamp(6, B))}
    assert read_redundancy(registers) == (RedundancyRecord(1, 2), Stamp(6, B))
    assert overruled(registers, [A]) == {7: SOME}
    assert overruled(registers, [B]) == {}


def test_numbers_follow_from_the_url_and_are_never_used_again() -> None:
    number = free_number(VOLUME, SOME.url, ())
    assert free_number(VOLUME, SOME.url, ()) == number
    assert free_number(VOLUME, SOME.url, {number}) == (number + 1) % 256
    assert len({free_number(VOLUME, f"file:///{one}", ()) for one in range(100)}) > 50
    with pytest.raises(UsageError):
        free_number(VOLUME, SOME.url, range(256))
