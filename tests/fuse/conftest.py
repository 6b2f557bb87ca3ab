from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuse.server import Server


@pytest.fixture
def mountpoint(tmp_path: Path) -> Path:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not usable here")
    directory = tmp_path / "mount"
    directory.mkdir()
    return directory


@pytest.fixture
def server(mountpoint: Path) -> Iterator[Server]:
    with Server(mountpoint) as running:
        yield running
