"""Containers on the clouds: what a cloud has missed comes there without a command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.clouds.maintenance import MaintenanceLimits
from hybrisfs.kv.cloud_store import CloudStore
from tests.volume.device import PATIENCE, Device

SOON = MaintenanceLimits(first_pause=0.1, fill_pause=0.1)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path, 4, limits=[SOON])
    device.volume.key_values.create_container("box", "clouds")
    yield device
    device.close()


def store(device: Device) -> CloudStore:
    found = device.volume.key_values.of("box")
    assert isinstance(found, CloudStore)
    return found


def write_without(cloud: Path, device: Device) -> Path:
    """Write values while a cloud is away; where it is now."""
    away = cloud.rename(cloud.with_suffix(".away"))
    store(device).put("box", "small", b"value")
    store(device).put("box", "large", bytes(100_000))
    return away


def is_whole(device: Device) -> bool:
    return not any(found.short or found.silent for found in store(device).surveys())


def becomes_whole(device: Device) -> bool:
    until = time.monotonic() + PATIENCE
    return device.volume.signals.wait_until(lambda: is_whole(device), until)


def test_it_comes_when_the_cloud_is_back(device: Device) -> None:
    assert becomes_whole(device)
    away = write_without(device.clouds[1], device)
    assert not is_whole(device)
    away.rename(device.clouds[1])
    device.volume.checkup.refresh(PATIENCE)
    assert becomes_whole(device)


def test_it_comes_when_the_cloud_is_back_after_a_restart(device: Device) -> None:
    away = write_without(device.clouds[1], device)
    device.close()
    away.rename(device.clouds[1])
    device.reopen(MaintenanceLimits(first_pause=0.1))
    assert becomes_whole(device)


def test_nothing_is_put_where_the_cloud_is_not(device: Device) -> None:
    """A disk that is not mounted is an empty folder, or one without the volume's marker."""
    away = write_without(device.clouds[1], device)
    device.clouds[1].mkdir()
    found = device.volume.maintenance.objects.values.fill(device.volume.maintenance.trusted, lambda: True)
    assert found == {device.volume.config.clouds[1].number}
    assert not any(path.is_file() and "atomic" in path.parts for path in device.clouds[1].rglob("*"))
    device.clouds[1].rmdir()
    away.rename(device.clouds[1])
