"""A key-value store whose metadata are damaged, lost or restored, in a volume."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.kv.rmds import DeviceStore
from tests.system.deadline import until
from tests.volume.device import Device
from tests.volume.test_clouds import assert_sound, fill, gone

BOX = "box"
KEYS = 5


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path, 4, 1, 1)
    fill(device, 1)
    store(device).create_container(BOX)
    for number in range(KEYS):
        store(device).put(BOX, f"key{number}", b"value")
    yield device
    device.close()


def store(device: Device) -> DeviceStore:
    return device.volume.key_values.open()


def database(device: Device) -> Path:
    return device.state / "kv.db"


def values(device: Device) -> int:
    """How many objects of values the clouds have."""
    return sum(path.is_file() for cloud in device.clouds for path in cloud.rglob("kv/*/*"))


def warnings(device: Device) -> list[str]:
    found = device.volume.status().warnings
    assert isinstance(found, list)
    return found


def clean(device: Device, *, former: bool = False) -> int:
    key_values, maintenance = device.volume.key_values, device.volume.maintenance
    return key_values.orphans(maintenance.trusted()).delete(former=former)[1]


def test_a_cloud_goes_after_damaged_metadata_were_rebuilt(device: Device) -> None:
    path = database(device)
    device.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE entry SET record = x'ff' WHERE key = ?", (b"key0",))
        connection.execute("UPDATE meta SET value = 'x' WHERE key = 'write'")  # so that it cannot be opened
    device.reopen()
    [warning] = warnings(device)
    assert "key-value store" in warning and "kv rebuild" in warning
    leaving = device.clouds[0].name
    device.volume.clouds.drain(leaving)
    clouds = device.volume.clouds
    until(lambda: any("kv rebuild" in job for job in clouds.jobs()), "the cloud cannot go")
    aside, rebuilt = device.volume.key_values.rebuild()
    assert (rebuilt.keys, rebuilt.damaged) == (KEYS - 1, 1)
    assert (aside / "kv.db").is_file()
    assert store(device).metadata.problems() == []
    assert warnings(device) == []
    assert gone(device, leaving) == (True, "")
    assert [one.key for one in store(device).list(BOX)] == [f"key{number}" for number in range(1, KEYS)]
    assert store(device).get(BOX, "key1").value == b"value"
    with pytest.raises(UsageError, match="not damaged"):
        device.volume.key_values.rebuild()
    assert clean(device) > 0  # the value of the key that was lost
    device.reopen()
    assert store(device).get(BOX, "key1").value == b"value"
    assert_sound(device)


def test_what_a_restored_backup_does_not_name_is_deleted_when_somebody_asks(
    device: Device, tmp_path: Path
) -> None:
    path, backup = database(device), tmp_path / "backup.db"
    device.close()
    shutil.copy(path, backup)
    device.reopen()
    before = values(device)
    store(device).put(BOX, "later", b"value")
    more = values(device) - before
    device.close()
    shutil.copy(backup, path)
    device.reopen()
    assert device.fsck(clouds=True).checked["values that nothing names"] == more > 0
    assert clean(device) == more
    assert values(device) == before
    assert_sound(device)


def test_values_of_lost_metadata_are_deleted_when_somebody_asks(device: Device) -> None:
    path, count = database(device), values(device)
    device.close()
    path.unlink()
    device.reopen()
    assert not device.volume.key_values.exists
    assert clean(device) == 0
    assert clean(device, former=True) == count
    assert values(device) == 0
    assert not device.volume.key_values.exists
