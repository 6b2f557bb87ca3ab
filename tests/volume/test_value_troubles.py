"""What scrub, repair and status tell of values: over clouds that lie, lose everything, or stay away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.api.maintenance import Scrub
from hybrisfs.api.status import Values, VolumeStatus
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.store import KeyValueLimits
from tests.adversary import READS, Fault, Kind
from tests.volume.device import Device
from tests.volume.middlemen import faulty
from tests.volume.test_cloud_values import objects
from tests.volume.test_repair import counts, repair, scrub

BOX = "box"
KEYS = [f"key{number}" for number in range(6)]
LIES: list[tuple[Kind, str]] = [
    ("lose", "missing"),
    ("corrupt", "corrupt"),
    ("truncate", "corrupt"),
    ("pad", "corrupt"),
    ("swap", "corrupt"),
    ("inflate", "corrupt"),
]


def store(device: Device) -> DeviceStore:
    return device.volume.key_values.open()


def fill(device: Device) -> Device:
    store(device).create_container(BOX)
    for key in KEYS:
        store(device).put(BOX, key, key.encode() * 100)
    return device


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = fill(Device(tmp_path, 4, 1, 1))
    yield device
    device.close()


def status(device: Device) -> VolumeStatus:
    return device.volume.status()


def named(facts: Scrub) -> set[tuple[str, str | None]]:
    return {(one.cloud, one.key) for one in facts.problems}


def on_record(device: Device, number: int) -> set[str]:
    """The keys whose values have a share on a cloud."""
    return {
        one.place[1].decode()
        for one in store(device).metadata.values()
        if one.entry is not None and number in one.entry.placement
    }


@pytest.mark.parametrize(("lie", "kind"), LIES, ids=[lie for lie, _ in LIES])
def test_keys_are_named_whose_values_a_cloud_lies_about_and_their_values_leave_it(
    tmp_path: Path, lie: Kind, kind: str
) -> None:
    device = fill(Device(tmp_path, 4, 1, 1))
    try:
        liar = next(one for one in device.volume.config.clouds if on_record(device, one.number))
        expected = on_record(device, liar.number)
        store_of_liar = faulty(device, tmp_path / liar.name)
        store_of_liar.faults = [Fault(lie, operations=READS, prefix="kv/")]
        facts = scrub(device)
        assert named(facts) == {(liar.name, f"{BOX}/{key}") for key in expected}
        assert counts(facts, kind) == {liar.name: len(expected)}
        assert all(f"the value of {one.key}: kv/" in one.what for one in facts.problems)
        assert status(device).values.unreadable == 0  # the others have them
        done = repair(device)
        assert (done.repaired, done.failed) == (len(expected), 0)
        assert on_record(device, liar.number) == set()
        assert scrub(device).problems == []
        store(device)._cache._copies.clear()
        assert [store(device).get(BOX, key).value for key in KEYS] == [key.encode() * 100 for key in KEYS]
    finally:
        device.close()


def test_values_that_nobody_has_any_more_are_named_until_they_are_written_anew(device: Device) -> None:
    assert status(device).values == Values(0, [])
    for cloud in device.clouds:
        for path in objects(cloud):
            path.unlink()
    assert {key for _, key in named(scrub(device))} == {f"{BOX}/{key}" for key in KEYS}
    facts = repair(device)
    assert {one.key for one in facts.problems} == {f"{BOX}/{key}" for key in KEYS}
    assert "too little of the value of box/key" in facts.problems[0].why
    assert status(device).values.unreadable == len(KEYS)
    [warning] = status(device).warnings
    assert "cannot be read" in warning and "hybrisfs scrub" in warning
    store(device).delete(BOX, "key0")
    for key in KEYS[1:]:
        store(device).put(BOX, key, b"again")
    assert status(device).values.unreadable == 0
    assert status(device).warnings == []


def test_a_read_that_fails_is_told_by_status(device: Device) -> None:
    for cloud in device.clouds:
        for path in objects(cloud):
            path.write_bytes(b"x" * path.stat().st_size)
    device.reopen(KeyValueLimits(get_seconds=0.5))
    with pytest.raises(CloudsUnavailable, match=f"the value of {BOX}/key1"):
        store(device).get(BOX, "key1")
    assert status(device).values.unreadable == 1


def test_values_on_clouds_that_are_away_cannot_be_read_until_these_are_back(device: Device) -> None:
    away = [cloud.rename(cloud.with_suffix(".away")) for cloud in device.clouds]
    scrub(device)
    assert status(device).values.unreadable == len(KEYS)
    for cloud in away:
        cloud.rename(cloud.with_suffix(""))
    assert scrub(device).problems == []
    assert status(device).values.unreadable == 0


def test_a_cloud_that_has_had_values_to_delete_for_long_is_told(device: Device) -> None:
    cloud = next(cloud for cloud in device.clouds if objects(cloud))
    store(device).collector.collect()
    away = cloud.rename(cloud.with_suffix(".away"))
    device.volume.writing.look_at_clouds()
    for key in KEYS:
        store(device).delete(BOX, key)
    store(device).collector.collect()
    [owing] = status(device).values.owing
    assert owing.cloud == cloud.name
    assert not any("deleted or replaced" in one for one in status(device).warnings)
    device.around.ahead_ns = 2 * 86_400 * 10**9
    assert any("deleted or replaced" in one and cloud.name in one for one in status(device).warnings)
    away.rename(cloud)
    device.volume.writing.look_at_clouds()
    store(device).collector.collect()
    assert status(device).values.owing == []
    assert status(device).warnings == []
    assert objects(cloud) == []
