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
