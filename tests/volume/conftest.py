from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hybrisfs.home import Home
from hybrisfs.volume.volume import Volume
from tests.volume.device import Device
from tests.volume.recovery_rig import First, Second, has, waits


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.below(tmp_path / "home")


@pytest.fixture(autouse=True)
def _no_volume_stays_open() -> Iterator[None]:
    """Close what a failed test has left open: threads of an open volume would keep the run from ending."""
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if not thread.daemon} - before
    for one in gc.get_objects() if left else ():
        if type(one) is Volume and not left.isdisjoint(one._threads.values()):
            one.close()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A device with an open volume on three folders that play clouds, f = k = 1."""
    with ExitStack() as stack:
        one = Device(tmp_path)
        stack.callback(one.close)
        yield one


@pytest.fixture
def first(tmp_path: Path) -> Iterator[First]:
    device = First(tmp_path / "first")
    yield device
    device.close()


@pytest.fixture
def second(tmp_path: Path, first: First) -> Iterator[Second]:
    device = Second(tmp_path / "second", first)
    first.write("known to both", b"x")
    first.sync()
    waits(device, lambda: has(device, "known to both"))
    yield device
    device.close()
