"""A device whose volume is mounted by the process of the tests itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.volume.device import Device

__all__ = ["device", "root"]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    (tmp_path / "mnt").mkdir()
    try:
        device.volume.mount(tmp_path / "mnt")
        yield device
    finally:
        device.close()


@pytest.fixture
def root(device: Device, tmp_path: Path) -> Path:
    """Where it is mounted."""
    return tmp_path / "mnt"
