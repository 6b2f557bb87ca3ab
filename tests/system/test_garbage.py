"""What a user deletes is deleted from the clouds, too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.system.clouds import objects
from tests.system.conftest import MakeDevice
from tests.system.device import Device

_SIZE = 3 << 20


def stored(device: Device) -> int:
    """Bytes of packs on all clouds."""
    return sum(path.stat().st_size for cloud in device.clouds for path in objects(cloud / "packs"))


def gc(device: Device, *arguments: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(device.run("gc", device.volume, "--json", *arguments))
    return facts


def configure(device: Device, hours: int) -> None:
    """Edit the volume's configuration by hand, while nobody uses it."""
    [path] = Path(device.home).rglob("volume.json")
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "discard_hours": hours, "keep_versions": "off"})
    )


def test_deleted_files_leave_the_clouds(make_device: MakeDevice) -> None:
    device = make_device().create(3)
    device.stop()
    configure(device, 72)
    device.mount()
    (device.mountpoint / "kept").write_bytes(os.urandom(_SIZE))
    device.sync()
    kept = stored(device)
    (device.mountpoint / "gone").write_bytes(os.urandom(_SIZE))
    device.sync()
    (device.mountpoint / "gone").unlink()
    device.sync()
    assert gc(device)["young"]["packs"] >= 1
    assert stored(device) > kept + _SIZE
    device.stop()
    configure(device, 0)
    device.mount()
    looked = gc(device, "--dry-run")
    assert looked["empty"]["bytes"] >= _SIZE
    assert stored(device) > kept + _SIZE
    done = device.run("gc", device.volume)
    assert "deleted." in done
    assert stored(device) == kept
    device.cache_drop()
    assert len((device.mountpoint / "kept").read_bytes()) == _SIZE
    assert device.fsck(clouds=True).returncode == 0
