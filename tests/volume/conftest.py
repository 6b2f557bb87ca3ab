from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hybrisfs.home import Home
from tests.volume.device import Device


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.below(tmp_path / "home")


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with an open volume on three folders that play clouds, f = k = 1."""
    with ExitStack() as stack:
        one = Device(tmp_path)
        stack.callback(one.close)
        yield one
