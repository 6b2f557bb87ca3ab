"""Fixtures for real mounts. Whatever a test does, its daemon and its mount are gone afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.system.device import Device, is_mounted
from tests.system.everybody import device_for_all
from tests.system.group import Group, make_group
from tests.system.pairing import all_sound

MakeDevice = Callable[..., Device]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "readme: runs the commands of README.md in a clean clone; slow")


@pytest.fixture(autouse=True, scope="session")
def _fuse() -> None:
    if not os.path.exists("/dev/fuse"):  # noqa: PTH110
        pytest.skip("this kernel has no FUSE")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where the randomness of a test comes from: HYBRISFS_TEST_SEED repeats a run whose seed was printed."""
    chosen = int(os.environ.get("HYBRISFS_TEST_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"\n{request.node.name}: HYBRISFS_TEST_SEED={chosen}")  # pytest shows it when the test fails
    return chosen


def _device_in(root: Path, stack: ExitStack, options: dict[str, Any]) -> Device:
    root.mkdir(exist_ok=True)
    device = Device(root, **options)

    def remove() -> None:
        device.close()
        if not is_mounted(device.mountpoint):
            shutil.rmtree(root, ignore_errors=True)

    stack.callback(remove)
    return device


@pytest.fixture
def make_device(tmp_path: Path) -> Iterator[MakeDevice]:
    """`make_device(name, **options)`: further devices of one test, each with nothing created yet."""
    with ExitStack() as stack:
        yield lambda name="device", **options: _device_in(tmp_path / name, stack, options)


@pytest.fixture
def device(make_device: MakeDevice) -> Device:
    """A mounted volume on three clouds, one of which may fail."""
    return make_device().create(3, f=1, k=1).mount()


@pytest.fixture(scope="module")
def shared_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """One mounted volume for all tests of a module that leave it in order."""
    with ExitStack() as stack:
        yield _device_in(tmp_path_factory.mktemp("shared"), stack, {}).create(3, f=1, k=1).mount()


@pytest.fixture(scope="module")
def everybodys() -> Iterator[Device]:
    """Likewise, one that all users of the machine may enter. Needs root."""
    with device_for_all() as device:
        yield device


@pytest.fixture
def folder(shared_device: Device, request: pytest.FixtureRequest) -> Path:
    """An empty folder of the test's own in the shared volume."""
    own = shared_device.mountpoint / str(request.node.name)
    own.mkdir()
    return own


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Three devices of one volume for all tests of a module, each with a network of its own."""
    with ExitStack() as stack:
        made = make_group(tmp_path_factory, stack)
        yield made
        all_sound(made.devices)
