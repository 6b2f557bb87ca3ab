"""The versions of signposts: posted, put back, superseded, and what a device that was away makes of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.clouds.signpost import (
    SIGNPOST_NAME,
    clock_entry,
    decode_signpost,
    encode_signpost,
    signpost_names,
    version_of_signpost,
)
from hybrisfs.merge.cloud_records import CloudRecord, RedundancyRecord, entries_of
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.settings.config import VolumeConfig
from sync import Members
from sync.seal import NONCE_SIZE
from tests.volume.device import ALONE, NAME, PATIENCE, Device, Second

FIRST_PLANTED = 200


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    first = Device(tmp_path / "first", clouds=4)
    first.close()
    replace(VolumeConfig.load(first.home, NAME), links=ALONE).save(first.home)
    first.reopen()
    second = Second(tmp_path / "second", first)
    first.write("file", b"content")
    first.sync()
    yield first, second
    second.close()
    first.close()


def versions(cloud: Path) -> dict[str, bytes]:
    folder = cloud / "signposts"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def go_round(device: Device) -> None:
    """What the thread that looks after the clouds does."""
    device.volume._cloud_set._round(closely=True)


def place(number: int, folder: Path) -> CloudRecord:
    return CloudRecord(f"cloud-{number}", (folder / f"planted-{number}").as_uri())


def sign(device: Device, told: dict[int, CloudRecord], clock: int | None) -> tuple[str, bytes]:
    """A signpost by a device, and the name of it; without a clock: as programs before this one make it."""
    config, ring = device.volume.config, device.volume.ring
    entries = entries_of(told, RedundancyRecord(config.f, config.k))
    entries += [] if clock is None else [clock_entry(clock)]
    data = encode_signpost(entries, config.id, ring.segments, ring.keys.device, bytes(NONCE_SIZE))
    said = decode_signpost(data, config.id, ring.segments, Members([ring.keys.device.public]))
    key = ring.keys.first.metadata
    return signpost_names(key).of_version(version_of_signpost(data, said, key)), data


def plant(clouds: Iterable[Path], name: str, data: bytes) -> None:
    for cloud in clouds:
        (cloud / name).parent.mkdir(exist_ok=True)
        (cloud / name).write_bytes(data)


def heard(device: Device) -> frozenset[int]:
    go_round(device)
    return device.volume.engine.heard


def alone(devices: tuple[Device, Device]) -> Device:
    """The first one, without the other one beside it."""
    devices[1].close()
    return devices[0]


def until(device: Device, what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(what, deadline, step=0.1)


def add_cloud(device: Device, name: str) -> None:
    """Add a cloud, and wait until all clouds have a version more that tells of it."""
    before = len(versions(device.clouds[0]))
    device.clouds.append(cloud := device.clouds[0].with_name(name))
    device.volume.clouds.add(cloud.as_uri(), None)
    *others, new = device.clouds
    until(device, lambda: [len(versions(one)) for one in (*others, new)] == [before + 1] * len(others) + [1])


def test_each_cloud_has_the_version_and_the_same_under_the_former_name(
    devices: tuple[Device, Device],
) -> None:
    first = alone(devices)
    add_cloud(first, "more")
    [(name, data)] = versions(first.clouds[0]).items()
    assert [versions(cloud) for cloud in first.clouds] == [{name: data}] * 5
    assert [(cloud / SIGNPOST_NAME).read_bytes() for cloud in first.clouds] == [data] * 5


def test_two_devices_that_say_the_same_leave_one_version(devices: tuple[Device, Device]) -> None:
    first, second = alone(devices), devices[1]
    add_cloud(first, "more")
    before = [versions(cloud) for cloud in first.clouds]
    first.sync()
    second.reopen()
    signposts = second.volume._cloud_set._signposts
    until(second, lambda: signposts._posted is not None and len(second.volume.config.clouds) == 5)
    assert [versions(cloud) for cloud in first.clouds] == before


def test_a_version_that_was_lost_is_put_back(devices: tuple[Device, Device]) -> None:
    first = alone(devices)
    add_cloud(first, "more")
    expected = versions(first.clouds[1])
    shutil.rmtree(first.clouds[0] / "signposts")
    [name] = versions(first.clouds[2])
    (first.clouds[2] / "signposts" / name).write_bytes(b"something else")
    go_round(first)
    assert [versions(cloud) for cloud in first.clouds] == [expected] * 5


def test_without_news_a_change_of_the_former_name_is_noticed(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    """Whoever puts a version overwrites that, too. Of the clouds f+1 are asked, in turns."""
    first, second = devices
    assert not heard(first)
    name, data = sign(second, {FIRST_PLANTED: place(0, tmp_path)}, 1000)
    plant(first.clouds[:3], name, data)
    first.volume._cloud_set._round(closely=False)
    assert not first.volume.engine.heard, "nothing tells of it"
    plant(first.clouds[:3], SIGNPOST_NAME, data)
    first.volume._cloud_set._round(closely=False)
    assert first.volume.engine.heard == {FIRST_PLANTED}
    first.volume._cloud_set._round(closely=False)
    assert first.volume.engine.heard == {FIRST_PLANTED}, "it is still there"


def test_an_earlier_version_goes_when_the_later_one_has_been_complete_for_long(
    devices: tuple[Device, Device],
) -> None:
    first = alone(devices)
    add_cloud(first, "more")
    before = versions(first.clouds[0])
    add_cloud(first, "still more")
    go_round(first)
    assert len(versions(first.clouds[0])) == 2
    first.around.passed += KEPT_SECONDS  # which may look like a request that hangs

    def has_gone() -> bool:
        go_round(first)
        return {len(versions(cloud)) for cloud in first.clouds} == {1}

    until(first, has_gone)
    after = versions(first.clouds[0])
    assert after.keys().isdisjoint(before)
    assert [versions(cloud) for cloud in first.clouds] == [after] * 6


@pytest.mark.parametrize("former", [False, True])
def test_either_name_leads_a_device_to_the_clouds(
    devices: tuple[Device, Device], tmp_path: Path, former: bool
) -> None:
    first, second = devices
    name, data = sign(second, {FIRST_PLANTED: place(0, tmp_path)}, None if former else 1000)
    plant(first.clouds[:1], SIGNPOST_NAME if former else name, data)
    assert not heard(first), "one cloud may lie"
    plant(first.clouds[1:2], SIGNPOST_NAME if former else name, data)
    assert heard(first) == {FIRST_PLANTED}


def test_both_names_on_one_cloud_are_one_cloud(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, second = devices
    told = {FIRST_PLANTED: place(0, tmp_path)}
    plant(first.clouds[:1], SIGNPOST_NAME, sign(second, told, None)[1])
    for clock in (1000, 1001):
        plant(first.clouds[:1], *sign(second, told, clock))
    assert not heard(first)


def test_clouds_that_have_different_versions_agree_on_what_both_tell(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    first, second = devices
    both, later = place(0, tmp_path), place(1, tmp_path)
    plant(first.clouds[:1], *sign(second, {FIRST_PLANTED: both}, 1000))
    plant(first.clouds[1:2], *sign(second, {FIRST_PLANTED: both, FIRST_PLANTED + 1: later}, 1001))
    assert heard(first) == {FIRST_PLANTED}


def test_of_two_places_of_one_cloud_the_later_version_tells(
    devices: tuple[Device, Device], tmp_path: Path
) -> None:
    first, second = devices
    for clock, number in ((1001, 1), (1000, 0)):
        plant(first.clouds[:3], *sign(second, {FIRST_PLANTED: place(number, tmp_path)}, clock))
    assert heard(first) == {FIRST_PLANTED}
    found = first.volume._cloud_set._signposts.read(closely=True)
    assert found[FIRST_PLANTED] == place(1, tmp_path)


@pytest.mark.parametrize("clouds", [1, 4])
def test_versions_of_a_removed_device_are_not_looked_at_and_go(
    devices: tuple[Device, Device], tmp_path: Path, clouds: int
) -> None:
    first, second = alone(devices), devices[1]
    add_cloud(first, "more")
    expected = versions(first.clouds[0])
    signed: Sequence[tuple[str, bytes]] = [
        sign(second, {FIRST_PLANTED: place(0, tmp_path)}, clock) for clock in (1 << 40, 1 << 41)
    ]
    first.volume.remove_device("second")
    for one in signed:
        plant(first.clouds[:clouds], *one)
    assert not heard(first)
    first.volume._cloud_set._signposts._posted = None  # as when it posts the next one
    go_round(first)
    assert [versions(cloud) for cloud in first.clouds] == [expected] * 5
