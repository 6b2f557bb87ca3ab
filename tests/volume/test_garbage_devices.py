"""Two devices over folders that play clouds: what one deletes leaves the clouds when the other agrees."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.gc.limits import GcLimits
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.versions.retention import DEFAULT_RETENTION, parse_retention
from hybrisfs.volume.status import notices_of
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from tests.system.deadline import until
from tests.volume.device import NAME, Device
from tests.volume.test_garbage import ONE_CHUNK, collect, noise, packs, remove


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Device, Home]]:
    """A device that deletes at once what nobody needs, and the home of another, which is off."""
    with ExitStack() as stack:
        first = Device(tmp_path, limits=[GcLimits(step_seconds=0.05)])
        stack.callback(first.close)
        first.close()
        config = VolumeConfig.load(first.home, NAME)
        structs.replace(config, discard_hours=0, keep_versions=parse_retention("off")).save(first.home)
        first.reopen()
        volume, home, key = first.volume, Home.below(tmp_path / "other"), DeviceKey.generate()
        grant = make_grant(volume.config, volume.ring.keys, volume.sharing.current_members(), None)
        volume.sharing.membership.admit(Member(key.public, "other"))
        join_volume(home, None, key, "other", Joined(grant, Peer(volume.ring.keys.device.public, "first")))
        yield first, home


def leaves_garbage(device: Device) -> dict[str, int]:
    """Keep one pack, and remove the only file of another; returns the shares of the first."""
    device.write("kept", noise(1, ONE_CHUNK))
    device.sync()
    kept = packs(device)
    device.write("gone", noise(2, ONE_CHUNK))
    device.sync()
    remove(device, "gone")
    device.sync()
    return kept


def test_a_member_that_never_came_is_named_and_can_be_removed(pair: tuple[Device, Home]) -> None:
    first, _ = pair
    kept = leaves_garbage(first)
    begun = time.time()
    [awaited] = collect(first).waiting
    assert (awaited["device"], awaited["last_seen"]) == ("other", None)
    assert begun - 1 < awaited["since"] < time.time()
    devices = {str(one.name): one for one in first.volume.devices()}
    assert devices["other"].unanswered_since == awaited["since"]
    assert [name for name, one in devices.items() if one.unanswered_since] == ["other"]
    assert notices_of(devices.values(), time.time()) == []
    [notice] = notices_of(devices.values(), time.time() + 8 * 86_400)
    assert "hybrisfs device remove other" in notice
    first.volume.remove_device("other")
    until(lambda: packs(first) == kept, "the pack to be gone")
    assert collect(first).waiting == []


def test_nothing_goes_before_the_other_device_agrees(pair: tuple[Device, Home]) -> None:
    first, home = pair
    kept = leaves_garbage(first)
    before = packs(first)
    done = collect(first)
    assert (done.proposed, done.deleted_packs) == (1, 0)
    assert [one["device"] for one in done.waiting] == ["other"]
    assert collect(first).deleted_packs == 0
    assert packs(first) == before
    second = Volume.open(home, NAME, first.around.environment)
    assert second.config.keep_versions == DEFAULT_RETENTION
    try:
        until(lambda: second.versions.removed("").removed, "the other device to hear of the removal")
        second.settings.edit({"keep_versions": "off"})
        second.thinner.thin(time.time_ns())

        def is_gone() -> bool:
            for one in (first.volume, second):
                one.signals.look_around()  # at what the other has signed: that is put off while all is quiet
            return packs(first) == kept

        until(is_gone, "the pack to be gone")
        with second.fs.state.transaction() as tx:
            inode = second.fs.lookup(tx, ROOT_INO, b"kept")
        assert inode is not None
        for volume in (first.volume, second):
            report = volume.fsck(clouds=True, progress=lambda stage, done, total: None)
            assert report.problems == []
    finally:
        second.close()
    assert collect(first).waiting == []
