"""Clouds that nobody agreed on: what a device that was removed plants on a cloud that it still reaches."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.clouds.signpost import SIGNPOST_NAME, encode_signpost
from hybrisfs.merge.cloud_records import CloudRecord, RedundancyRecord, entries_of
from hybrisfs.settings.config import VolumeConfig
from sync import DeviceKey, SealKeys
from sync.seal import NONCE_SIZE
from tests.volume.device import ALONE, NAME, Device, Second
from tests.volume.recovery_rig import Second as Another

FIRST_PLANTED = 200


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    first = Device(tmp_path / "first", clouds=4)
    first.close()
    replace(VolumeConfig.load(first.home, NAME), links=ALONE).save(first.home)
    first.reopen()
    second, third = Second(tmp_path / "second", first), Another(tmp_path / "third", first, "third")
    first.write("file", b"content")
    first.sync()
    yield first, second
    third.close()
    second.close()
    first.close()


def plant(device: Device, keys: SealKeys, signer: DeviceKey, folder: Path, clouds: int) -> dict[int, Path]:
    """A signpost by *signer* on so many clouds, to folders that carry the marker of the volume."""
    planted = {FIRST_PLANTED + number: folder / f"evil-{number}" for number in range(4)}
    for path in planted.values():
        path.mkdir()
        shutil.copy(device.clouds[0] / "volume", path / "volume")
    told = {number: CloudRecord(path.name, path.as_uri()) for number, path in planted.items()}
    config = device.volume.config
    data = encode_signpost(
        entries_of(told, RedundancyRecord(config.f, config.k)), config.id, keys, signer, bytes(NONCE_SIZE)
    )
    for cloud in device.clouds[:clouds]:
        (cloud / SIGNPOST_NAME).write_bytes(data)
    return planted


def go_round(device: Device) -> None:
    """What the thread that looks after the clouds does."""
    device.volume._cloud_set._round(closely=True)


def configured(device: Device) -> set[int]:
    return {one.number for one in VolumeConfig.load(device.home, NAME).clouds}


def written(planted: dict[int, Path]) -> list[str]:
    return [one.name for path in planted.values() for one in path.iterdir() if one.name != "volume"]


@pytest.mark.parametrize("clouds", [1, 4])
def test_what_a_removed_device_plants_is_not_looked_at(
    devices: tuple[Device, Device], tmp_path: Path, clouds: int
) -> None:
    first, second = devices
    old, key = second.volume.ring.segments, second.volume.ring.keys.device
    first.volume.remove_device("second")
    planted = plant(first, old, key, tmp_path, clouds)
    go_round(first)
    first.write("more", b"x" * 100_000)
    first.sync()
    assert configured(first).isdisjoint(planted) and not first.volume.engine.heard
    assert not written(planted)


def test_what_a_reader_plants_is_not_looked_at(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, second = devices
    first.volume.set_role("second", reader=True)
    ring = second.volume.ring
    planted = plant(first, ring.segments, ring.keys.device, tmp_path, clouds=4)
    go_round(first)
    assert not first.volume.engine.heard and configured(first).isdisjoint(planted)
    assert not written(planted)


def test_what_one_cloud_says_is_not_believed(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, second = devices
    ring = second.volume.ring
    planted = plant(first, ring.segments, ring.keys.device, tmp_path, clouds=1)
    go_round(first)
    assert not first.volume.engine.heard and configured(first).isdisjoint(planted)


def test_to_clouds_that_no_register_names_nothing_is_written(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    """A member that lies and enough clouds that help it: what they name is read, no more."""
    first, second = devices
    ring = second.volume.ring
    planted = plant(first, ring.segments, ring.keys.device, tmp_path, clouds=2)
    go_round(first)
    assert first.volume.engine.heard == set(planted), "they may be where the others went"
    first.write("more", b"x" * 100_000)
    first.sync()
    go_round(first)
    assert configured(first).isdisjoint(planted) and not written(planted)
    assert first.volume.engine.numbers == tuple(sorted(configured(first)))
    for cloud in first.clouds:
        (cloud / SIGNPOST_NAME).unlink(missing_ok=True)
    go_round(first)
    assert not first.volume.engine.heard
