from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mirror.rig import QUICK, Mirrored
from tests.volume.device import Device

__all__ = ["mirrored"]


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[Mirrored]:
    """An empty folder that is not a mirror yet."""
    with ExitStack() as stack:
        device = Device(tmp_path, limits=[QUICK])
        stack.callback(device.close)
        directory = tmp_path / "plain"
        directory.mkdir()
        yield Mirrored(device, directory)
