"""Names that the operator of a service does not see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.kv import sealed_names
from hybrisfs.kv.metadata import Change, Garbage
from hybrisfs.kv.record import KeyMetadata, leaving
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.sealed_names import NameSealer, SealedService
from hybrisfs.kv.service import KeyValue, Put, after_prefix
from hybrisfs.kv.service_metadata import ServiceMetadata, store_id_in
from sync import EPOCH_SIZE, EpochKey, OneKey
from tests.kv.rig import new_database
from tests.kv.service_model import ModelClient, ServiceModel
from tests.kv.services import sealer_of
from tests.kv.test_seal import Epochs

NAMES, STORE = b"n" * 32, b"s" * 16
SEALER = NameSealer(NAMES, STORE, OneKey(b"e" * 32))
KEY = b"k/%016x/" % 7
FIRST, SECOND = EpochKey(b"1st.", b"1" * 32), EpochKey(b"2nd.", b"2" * 32)


@given(name=st.binary(max_size=1100), value=st.binary(max_size=5000))
def test_what_is_sealed_is_opened(name: bytes, value: bytes) -> None:
    key = SEALER.hidden(KEY, name)
    sealed = SEALER.seal(key, name, value)
    assert SEALER.open(key, sealed) == (name, value)
    assert len(sealed) % 128 == (1 + EPOCH_SIZE + 12 + 16) % 128, "padded"


@given(place=st.integers(0), bit=st.integers(0, 7))
def test_nothing_altered_is_opened(place: int, bit: int) -> None:
    sealed = bytearray(SEALER.seal(KEY, b"name", b"value"))
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(HybrisError):
        SEALER.open(KEY, bytes(sealed))


@pytest.mark.parametrize("length", [0, 1, 20, 32, 33])
def test_nor_what_is_too_short(length: int) -> None:
    with pytest.raises(DamagedError):
        SEALER.open(KEY, SEALER.seal(KEY, b"name", b"value")[:length])


def test_nor_of_another_store_key_or_format() -> None:
    sealed = SEALER.seal(KEY, b"name", b"value")
    other = NameSealer(NAMES, b"t" * 16, OneKey(b"e" * 32))
    with pytest.raises(DamagedError):
        other.open(KEY, sealed)
    with pytest.raises(DamagedError):
        SEALER.open(KEY + b"x", sealed)
    with pytest.raises(NewerFormatError):
        SEALER.open(KEY, b"\2" + sealed[1:])
    assert len({SEALER.hidden(KEY, b"a"), SEALER.hidden(b"c/", b"a"), other.hidden(KEY, b"a")}) == 3


class Service:
    """A service in memory, and a store with sealed names in it."""

    def __init__(self, folder: Path) -> None:
        self.model = ServiceModel(lambda before, after: None)
        self.client = ModelClient(self.model, [], lambda: None)
        self._folder = folder
        self._opened: list[ServiceMetadata] = []

    def open(self, *epochs: EpochKey) -> ServiceMetadata:
        sealer = sealer_of(self.client)
        if epochs:
            sealer = NameSealer(NAMES, store_id_in(self.client), Epochs(*epochs))
        folder = self._folder / uuid4().hex
        folder.mkdir()
        debts = DeviceMetadata(new_database(folder), SYSTEM)
        client = SealedService(self.client, sealer, SYSTEM)
        self._opened.append(ServiceMetadata(client, debts, bytes([len(self._opened)]) * 16, SYSTEM))
        return self._opened[-1]

    def close(self) -> None:
        for one in self._opened:
            one.close()

    def entries(self) -> list[KeyValue]:
        """As the operator sees them."""
        return list(self.client.scan(b"k/", after_prefix(b"k/")))

    def replace(self, key: bytes, value: bytes) -> None:
        assert self.client.transact([], [Put(key, value)]).succeeded


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.close()


def put(metadata: ServiceMetadata, box: int, key: bytes, attributes: bytes = b"") -> KeyMetadata:
    write = metadata.new_write()
    metadata.intend([Garbage(write, 1)])
    new = KeyMetadata(0, write, 7_654_321, 7_654_350, 1, (0, 1), (b"c" * 16,), attributes=attributes)
    made = metadata.update([Change((box, key), new._replace(written=1_700_000_000_123))])
    assert made is not None
    return made[0]


def listed(metadata: ServiceMetadata, box: int, after: bytes | None = None) -> list[bytes]:
    with metadata.listing(box, b"", after, 2) as pages:
        return [one.key for one in chain.from_iterable(pages)]


def test_the_operator_finds_no_name_and_no_attribute(service: Service) -> None:
    metadata = service.open()
    metadata.create_container("treasure")
    box = metadata.container("treasure")
    made = [put(metadata, box, b"secret name %d" % number, b"attribute") for number in range(3)]
    put(metadata, box, b"secret name 0", b"attribute")
    metadata.update([Change((box, b"secret name 1"), KeyMetadata(0, metadata.new_write()))])
    metadata.rename_container("treasure", leaving("treasure", "mark"))
    metadata.create_container("chest")

    seen = [one for keys in service.model.moments for one in keys.values()]
    text = b"\n".join(part for one in seen for part in one[:2])
    for word in (b"treasure", b"chest", b"leaving", b"mark", b"secret", b"name", b"attribute"):
        assert word not in text
    for one in made:
        record = one.encode()
        assert record not in text
        assert record[4:12] not in text, "when it was written, and its size"
    assert {len(one.value) for one in seen if one.key[:2] in (b"c/", b"k/")} == {128 + 33}
    names = [one.key[2:] for one in service.model.keys.values() if one.key.startswith(b"c/")]
    assert all(len(name) == 32 for name in names)


def test_equal_names_in_two_containers_are_not_seen_to_be_equal(service: Service) -> None:
    metadata = service.open()
    for name in ("a", "b"):
        metadata.create_container(name)
        put(metadata, metadata.container(name), b"key")
    assert len({one.key.rpartition(b"/")[2] for one in service.entries()}) == 2


def test_a_record_under_another_key_is_damaged(service: Service) -> None:
    metadata = service.open()
    metadata.create_container("box")
    box = metadata.container("box")
    for key in (b"a", b"b", b"c"):
        put(metadata, box, key)
    one, other, _ = service.entries()
    service.replace(one.key, other.value)
    service.replace(other.key, one.value)
    other_machine = service.open()
    assert other_machine.container("box") == box
    read = list[bytes]()
    for key in (b"a", b"b", b"c"):
        for machine in (metadata, other_machine):
            try:
                machine.read((box, key))
            except DamagedError as error:
                assert "belongs to another key" in error.why
            else:
                read.append(key)
    assert len(read) == 2
    assert sorted(found.entry is None for found in metadata.values()) == [False, True, True]
    with pytest.raises(DamagedError):
        listed(metadata, box)


def test_containers_that_were_swapped_are_damaged(service: Service) -> None:
    metadata = service.open()
    for name in ("one", "other"):
        metadata.create_container(name)
    one, other = service.client.scan(b"c/", b"c0")
    service.replace(one.key, other.value)
    service.replace(other.key, one.value)
    for name in ("one", "other"):
        with pytest.raises(DamagedError):
            service.open().container(name)
    assert len(metadata.containers()) == 2


def test_what_is_sealed_with_a_key_that_has_not_come_is_not_said_to_be_damaged(service: Service) -> None:
    """Another machine has removed a member, and this one has not heard of it."""
    before, after = service.open(FIRST), service.open(FIRST, SECOND)
    before.create_container("box")
    box = before.container("box")
    put(before, box, b"old")
    put(after, box, b"new")
    assert after.read((box, b"old")) is not None
    assert before.read((box, b"old")) is not None
    for look in (
        lambda: before.read((box, b"new")),
        lambda: listed(before, box),
        lambda: list(before.values()),  # a cloud must not go before all of it has left
    ):
        with pytest.raises(HybrisError, match="has not come here") as caught:
            look()
        assert not isinstance(caught.value, DamagedError)
    after.create_container("newer")
    with pytest.raises(HybrisError, match="has not come here"):
        before.containers()


def test_lists_of_more_keys_than_are_sorted_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = service.open()
    metadata.create_container("box")
    box = metadata.container("box")
    keys = [b"1" * number for number in range(1, 13)]
    for key in keys:
        put(metadata, box, key)
    for at_once in (1, 4, 5, 11, 12, 13):
        monkeypatch.setattr(sealed_names, "_SORTED_AT_ONCE", at_once)
        assert listed(metadata, box) == keys
        assert listed(metadata, box, keys[4]) == keys[5:]
