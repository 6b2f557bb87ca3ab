"""A daemon that was killed leaves a dead mount behind; it is cleared away with and without a new daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.device import Device, is_mounted


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    with Device(tmp_path) as device:
        yield device.create().mount()


@pytest.mark.parametrize("by_name", [True, False])
def test_umount_needs_no_daemon(device: Device, by_name: bool) -> None:
    device.kill()
    output = device.run("umount", device.volume if by_name else str(device.mountpoint))
    assert output == f"The daemon was dead; removed the mount that it left behind at {device.mountpoint}.\n"
    assert not is_mounted(device.mountpoint)
    assert device.daemon_pids() == []
    assert device.status()["mountpoint"] is None


def test_any_command_brings_the_mount_back(device: Device) -> None:
    (device.mountpoint / "file").write_bytes(b"data")
    device.kill()
    assert device.status()["mountpoint"] == str(device.mountpoint)
    assert is_mounted(device.mountpoint)


def test_a_dead_mount_that_the_daemon_does_not_know(device: Device) -> None:
    device.kill()
    (device.home / "state" / "mounts.json").unlink()
    assert device.status()["mountpoint"] is None
    output = device.run("umount", str(device.mountpoint))
    assert output == f"Removed the mount that a dead daemon left behind at {device.mountpoint}.\n"
    assert not is_mounted(device.mountpoint)
