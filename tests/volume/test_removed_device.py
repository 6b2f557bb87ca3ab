"""What a device learns and changes after it was removed: nothing, through clouds and straight from it. One
that comes back without having heard of it does not let go of what the others rely on, either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.exchange.following import Following
from hybrisfs.members.epochs import epoch_key
from hybrisfs.settings.config import VolumeConfig
from tests.system.deadline import until
from tests.volume.device import ALONE, NAME, Device, Second
from tests.volume.recovery_rig import First, has, waits
from tests.volume.recovery_rig import Second as Another
from tests.volume.test_compaction import AT_ONCE, is_compacted, parts, rewrite
from tests.volume.test_hostile_members import grant_of, id_of, log_of, planted, sign


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device, Device]]:
    """One that stays, one that is to be removed, another one that stays."""
    honest = Device(tmp_path / "first")
    honest.close()
    replace(VolumeConfig.load(honest.home, NAME), links=ALONE).save(honest.home)
    honest.reopen()
    mallory, third = Second(tmp_path / "second", honest), Another(tmp_path / "third", honest, "third")
    honest.write("before", b"all read this")
    honest.sync()
    for device in (mallory, third):
        waits(device, lambda device=device: has(device, "before"))  # type: ignore[misc]
    yield honest, mallory, third
    third.close()
    mallory.close()
    honest.close()


def test_a_removed_device_learns_nothing_and_changes_nothing(
    devices: tuple[Device, Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, mallory, third = devices
    mine = planted(1 << 31, id_of(mallory))
    sign(mallory, [(epoch_key(mine.id), grant_of(mallory, [mine]))])
    mallory.write("while it belonged here", b"counts")
    mallory.sync()
    for device in (honest, third):
        waits(device, lambda device=device: has(device, "while it belonged here"))  # type: ignore[misc]
        assert device.volume.ring.find(mine.id) is not None
    honest.volume.remove_device("second")
    honest.write("after", b"nobody else reads this")
    honest.sync()
    waits(third, lambda: has(third, "after"))
    mallory.write("evil", b"does not count")
    with monkeypatch.context() as patch:
        patch.setattr(Following, "was_removed", False)  # it does not care
        mallory.sync()
    assert (honest.clouds[0] / "log" / id_of(mallory).hex()).exists()
    third.write("answer", b"of a member")
    third.sync()
    waits(honest, lambda: has(honest, "answer"))
    known = mallory.volume.ring
    for device in (honest, third):
        ring = device.volume.ring
        assert ring.is_fit and ring.newest.id != mine.id and known.find(ring.newest.id) is None
        assert ring.newest == honest.volume.ring.newest
        device.volume.sharing.receive(log_of(mallory))
        assert not has(device, "evil") and has(device, "while it belonged here")
    assert not has(mallory, "after") and not has(mallory, "answer")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[Device, Device, Device]]:
    """Devices whose checkpoints come at once, over four clouds; the second one is to be removed."""
    with ExitStack() as ending:
        first = ending.enter_context(closing(First(tmp_path / "first", clouds=4, limits=[AT_ONCE])))
        second = ending.enter_context(closing(Another(tmp_path / "second", first)))
        third = ending.enter_context(closing(Another(tmp_path / "third", first, "third")))
        yield first, second, third


def removed_without_hearing_of_it(first: Device, second: Device, third: Device) -> None:
    """Remove the second device while it is not there."""
    second.close()
    first.volume.remove_device("second")
    first.sync()
    waits(third, lambda: id_of(second) not in third.volume.sharing.current_members())


def comes_back(device: Device) -> None:
    """Open it again, and wait until it has looked at what the clouds have of the others."""
    device.reopen()
    device.volume.transfers.resume()
    waits(device, lambda: device.volume.following.was_removed and device.volume.following.has_looked())


def looks_at_its_clouds(device: Device) -> None:
    """Wait until it has done what is due on its clouds once from beginning to end."""
    cloud_set = device.volume.clouds._cloud_set
    for _ in range(2):
        cloud_set.changed()
        waits(device, lambda: not cloud_set._wanted)


def test_a_removed_device_that_comes_back_leaves_the_checkpoint_of_the_others(
    three: tuple[Device, Device, Device],
) -> None:
    first, second, third = three
    for round_ in range(3):
        rewrite(first, round_, second, third)
    checkpointer = second.volume.checkpoints.checkpointer

    def has_let_go() -> bool:
        for one in three:
            one.volume.signals.look_around()
        return is_compacted(checkpointer)

    until(has_let_go, "all to name the checkpoint")
    removed_without_hearing_of_it(first, second, third)
    for round_ in range(3, 6):
        rewrite(first, round_, third)
    before = [parts(cloud) for cloud in first.clouds]
    comes_back(second)
    volume = second.volume
    checkpointer = volume.checkpoints.checkpointer
    waits(second, lambda: checkpointer.machine._named is not None)  # its head is on the clouds
    wanted = checkpointer.machine.to_bring(checkpointer._view(), volume.checkpoints.heads(), float("inf"))
    assert wanted is None, "it lets go of what the others have replaced long ago"
    assert [parts(cloud) for cloud in first.clouds] == before


def test_a_removed_device_that_comes_back_empties_no_cloud_of_the_others(
    three: tuple[Device, Device, Device],
) -> None:
    first, second, third = three
    for device in (first, second, third):
        device.write(f"of {id_of(device).hex()}", b"x" * 1000)
        device.sync()
    second.volume.transfers.pause(None)
    cloud = second.volume.config.clouds[0]
    second.volume.clouds.drain(cloud.name)
    removed_without_hearing_of_it(first, second, third)
    comes_back(second)
    looks_at_its_clouds(second)
    cloud_set = second.volume.clouds._cloud_set
    waits(second, lambda: all(job.trouble for job in cloud_set.jobs()))
    assert [job.name for job in cloud_set.jobs()] == [cloud.name], "it has let the cloud go"
    assert first.fsck(clouds=True).problems == []


def objects(device: Device, folders: str) -> list[dict[Path, bytes]]:
    """What lies on each cloud in these folders, or under these names."""
    found = [[*cloud.glob(folders), *cloud.glob(f"{folders}/**/*")] for cloud in device.clouds]
    return [{path: path.read_bytes() for path in paths if path.is_file()} for paths in found]


@pytest.mark.parametrize("folders", ["signpost*", "kits", "recovery"])
def test_a_removed_device_that_comes_back_replaces_nothing_that_the_others_say(
    three: tuple[Device, Device, Device], tmp_path: Path, folders: str
) -> None:
    first, second, third = three
    assert isinstance(first, First)
    first.make_kit()
    first.volume.clouds.add((tmp_path / "cloud-4").as_uri(), None, make=True)
    first.sync()
    waits(second, lambda: bool(second.volume.recovery.all()) and len(second.volume.config.clouds) == 5)
    removed_without_hearing_of_it(first, second, third)
    fourth = Another(tmp_path / "fourth", first, "fourth")
    waits(fourth, lambda: bool(fourth.volume.recovery.all()))
    first.close()
    third.close()
    fourth.volume.clouds.add((tmp_path / "cloud-5").as_uri(), None, make=True)
    fourth.sync()
    looks_at_its_clouds(fourth)
    fourth.close()
    before = objects(first, folders)
    assert all(before)
    comes_back(second)
    looks_at_its_clouds(second)
    assert objects(first, folders) == before
