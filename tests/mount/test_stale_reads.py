"""A mounted volume whose other device is never heard of: what programs get when stale reads are blocked."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybrisfs.members.members import Member
from hybrisfs.read.freshness import FreshnessLimits
from hybrisfs.receive.pull import PullLimits
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from sync.follow import FollowLimits
from tests.system.deadline import until
from tests.volume.device import NAME, PATIENCE, Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")
LAPTOP = DeviceKey.from_seed(b"\x05" * 32)
HOUR = 3600 * 10**9


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with a file, mounted; the laptop is suspect as soon as it is a member."""
    one = Device(tmp_path, limits=[PullLimits(FollowLimits(stale=0.0, shortest_pause=0.1))])
    try:
        (tmp_path / "mnt").mkdir()
        one.volume.mount(tmp_path / "mnt")
        (tmp_path / "mnt" / "file").write_bytes(b"content")
        one.volume.sharing.membership.admit(Member(LAPTOP.public, "laptop"))
        wait_for(one.volume, suspect=True)
        yield one
    finally:
        one.close()


def wait_for(volume: Volume, *, suspect: bool) -> None:
    def is_so() -> bool:
        volume.signals.look_around()
        return any(one.suspect for one in volume.devices()) is suspect

    assert volume.signals.wait_until(is_so, time.monotonic() + PATIENCE)


def test_a_program_waits_for_a_silent_device_or_fails(device: Device, tmp_path: Path) -> None:
    volume, file = device.volume, tmp_path / "mnt" / "file"
    assert file.read_bytes() == b"content"  # it is only warned of
    volume.settings.edit({"stale_reads": "block"})
    assert VolumeConfig.load(device.home, NAME).stale_reads == "block"
    freshness = volume.following.freshness
    usual, freshness.limits = freshness.limits, FreshnessLimits(wait_seconds=0.0)
    with pytest.raises(OSError, match=os.strerror(errno.ETIMEDOUT)):
        file.read_bytes()
    assert any("laptop is seen again" in text for text in volume.status().warnings)
    file.write_bytes(b"written")
    (tmp_path / "mnt" / "new").write_bytes(b"new")
    assert file.stat().st_size == 7

    freshness.limits = usual
    looked = volume.following.puller
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(file.read_bytes)
        until(lambda: freshness._held, "the program to wait", PATIENCE)
        looked.heard(LAPTOP.device_id, time.time_ns() + HOUR)
        assert reading.result(PATIENCE) == b"written"  # it went on as soon as the laptop was heard of
    wait_for(volume, suspect=False)
    assert file.read_bytes() == b"written"
    assert not [text for text in volume.status().warnings if "heard of" in text]
