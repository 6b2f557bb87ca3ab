"""A device whose folder every user of the machine may enter, at a short path."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.device import Device, is_mounted

__all__ = ["device_for_all", "mount_for_all"]


@contextmanager
def device_for_all() -> Iterator[Device]:
    """A mounted volume, not below pytest's own folders: those are root's alone, and too long for a socket."""
    root = Path(tempfile.mkdtemp(prefix="hybrisfs-all-", dir="/tmp"))
    root.chmod(0o755)
    device = Device(root)
    try:
        with device:
            device.create(3)
            device.mountpoint.mkdir()
            mount_for_all(device)
            device.mountpoint.chmod(0o777)
            yield device
    finally:
        if not is_mounted(device.mountpoint):
            shutil.rmtree(root, ignore_errors=True)


def mount_for_all(device: Device) -> None:
    device.run("mount", device.volume, str(device.mountpoint), "--allow-other")
    assert is_mounted(device.mountpoint), "mount returned 0 and mounted nothing"
