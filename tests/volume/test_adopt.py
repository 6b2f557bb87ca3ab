"""A cloud that was emptied, its marker included, is taken into use again when a person says so."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.credentials import CredentialStore
from hybrisfs.clouds.maintenance import MaintenanceLimits
from hybrisfs.doctor.clouds import reachable
from hybrisfs.errors import UsageError
from hybrisfs.stores.own_places import marker
from tests.volume.device import PATIENCE, Device

FILES = {f"file{number}": os.urandom(6000 + number) for number in range(3)}


def write(device: Device) -> Path:
    """Write the files; a cloud that holds shares."""
    for name, content in FILES.items():
        device.write(name, content)
        device.sync()
    return max(device.clouds, key=lambda cloud: len(list(cloud.glob("packs/*/*"))))


def empty(cloud: Path) -> None:
    """All that is in the folder goes, what marks it as a cloud included."""
    shutil.rmtree(cloud)
    cloud.mkdir()


def remove(cloud: Path) -> None:
    shutil.rmtree(cloud)


def state(device: Device, cloud: Path) -> tuple[str, str]:
    device.volume.writing.look_at_clouds()
    return next((one.state, one.reason) for one in device.volume.engine.health() if one.name == cloud.name)


@pytest.mark.parametrize("harm", [empty, remove])
def test_nothing_is_written_there_until_a_person_says_so(
    device: Device, harm: Callable[[Path], None]
) -> None:
    cloud = write(device)
    harm(cloud)
    shown, reason = state(device, cloud)
    assert shown == "down"
    assert f"hybrisfs cloud adopt {cloud.name}" in reason
    (config,) = [one for one in device.volume.config.clouds if one.name == cloud.name]
    found = reachable(device.volume.config, config, CredentialStore(device.home.credentials))
    assert f"hybrisfs cloud adopt {cloud.name}" in str(found)
    device.volume.maintenance.repair(lambda stage, done, total: None)
    device.write("later", b"later")
    device.sync()
    assert not cloud.exists() or not list(cloud.iterdir())


@pytest.mark.parametrize("harm", [empty, remove])
def test_it_is_used_again_and_refilled(device: Device, harm: Callable[[Path], None]) -> None:
    cloud = write(device)
    harm(cloud)
    state(device, cloud)
    assert device.volume.clouds.adopt(cloud.name).cloud == cloud.name
    assert (cloud / "volume").read_bytes() == marker(device.volume.config.id)
    report = device.volume.maintenance.repair(lambda stage, done, total: None)
    assert report.facts().failed == 0
    device.sync()
    assert device.fsck(clouds=True).problems == []
    assert state(device, cloud) == ("ok", "")
    for other in device.clouds:
        if other != cloud:
            shutil.rmtree(other)
            break
    device.volume.drop_cache()
    for name, content in FILES.items():
        assert device.read(name) == content


def test_it_is_refilled_in_the_background(device: Device) -> None:
    cloud = write(device)
    empty(cloud)
    device.close()
    device.reopen(MaintenanceLimits(first_pause=0.1))
    device.volume.clouds.adopt(cloud.name)
    until = time.monotonic() + PATIENCE
    full = device.volume.signals.wait_until(lambda: device.fsck(clouds=True).problems == [], until, step=0.5)
    assert full, device.fsck(clouds=True).problems


def test_an_object_store_that_was_emptied_is_taken_back(device: Device) -> None:
    cloud = write(device)
    empty(cloud)
    (cloud / ".hybrisfs").mkdir()  # the place itself answers, as a bucket that was made anew does
    shown, _ = state(device, cloud)
    assert shown == "lying"
    (facts,) = [one for one in device.volume.clouds.all() if one.name == cloud.name]
    assert f"hybrisfs cloud adopt {cloud.name}" in str(facts.reason)
    assert f"hybrisfs cloud adopt {cloud.name}" in str(device.volume.status().clouds)
    device.volume.clouds.adopt(cloud.name)
    device.volume.maintenance.repair(lambda stage, done, total: None)
    assert device.fsck(clouds=True).problems == []
    assert state(device, cloud) == ("ok", "")


def test_a_place_of_another_volume_is_not_taken(device: Device, tmp_path: Path) -> None:
    other = Device(tmp_path / "other", clouds=1, f=0, k=1)
    other.close()
    cloud = write(device)
    shutil.rmtree(cloud)
    shutil.copytree(other.clouds[0], cloud)
    with pytest.raises(UsageError, match="another volume"):
        device.volume.clouds.adopt(cloud.name)
    assert (cloud / "volume").read_bytes() == (other.clouds[0] / "volume").read_bytes()


def test_a_place_that_is_another_cloud_of_the_volume_is_not_taken(device: Device) -> None:
    cloud = write(device)
    shutil.rmtree(cloud)
    cloud.symlink_to(next(one for one in device.clouds if one != cloud))
    with pytest.raises(UsageError, match="the same place"):
        device.volume.clouds.adopt(cloud.name)


def test_a_cloud_that_is_well_is_left_as_it_is(device: Device) -> None:
    cloud = write(device)
    before = sorted(path.name for path in cloud.rglob("*"))
    device.volume.clouds.adopt(cloud.name)
    assert set(before) <= {path.name for path in cloud.rglob("*")}
    assert state(device, cloud) == ("ok", "")


def test_one_that_is_being_removed_is_not_taken(tmp_path: Path) -> None:
    device = Device(tmp_path, clouds=4, f=1, k=1)
    cloud = write(device)
    empty(cloud)
    device.volume.clouds.remove(cloud.name)
    with pytest.raises(UsageError):
        device.volume.clouds.adopt(cloud.name)
    device.close()
