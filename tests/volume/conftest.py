from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.home import Home
from hybrisfs.volume.volume import Volume
from tests.volume.device import Device


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.below(tmp_path / "home")


@pytest.fixture(autouse=True)
def _no_volume_stays_open() -> Iterator[None]:
    """Close what a failed test has left open: threads of an open volume would keep the run from ending."""
    opened: list[Volume] = []
    start = Volume._start_pipeline

    def note(volume: Volume) -> None:
        opened.append(volume)
        start(volume)

    with mock.patch.object(Volume, "_start_pipeline", note):
        yield
    for volume in opened:
        if any(thread.is_alive() for thread in volume._threads.values()):
            volume.close()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with an open volume on three folders that play clouds, f = k = 1."""
    with ExitStack() as stack:
        one = Device(tmp_path)
        stack.callback(one.close)
        yield one
