from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.mirror import rest, worker
from tests.mirror.rig import Mirrored
from tests.volume.conftest import quick_clouds
from tests.volume.device import Device

__all__ = ["mirrored", "quick_clouds"]


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    """Files are at rest sooner than in real life."""
    with (
        mock.patch.object(rest, "QUIET", 0.1),
        mock.patch.multiple(worker, _AGAIN=0.1, _SETTLE=0.05, _AWAY=0.2),
    ):
        yield


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[Mirrored]:
    """An empty folder that is no mirror yet."""
    with ExitStack() as stack:
        device = Device(tmp_path)
        stack.callback(device.close)
        directory = tmp_path / "plain"
        directory.mkdir()
        yield Mirrored(device, directory)
