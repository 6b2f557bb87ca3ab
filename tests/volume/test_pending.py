"""Which files wait for the clouds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

import pytest

from hybrisfs.api.status import PendingFile, PendingFiles
from hybrisfs.errors import HybrisError
from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device

ROOT = PurePath()


@pytest.fixture
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    device = Device(tmp_path_factory.mktemp("device"))
    device.write("old", os.urandom(1000))
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        fs.make(tx, ROOT_INO, b"folder", stat.S_IFDIR | 0o755, 1, 1)
    write(device, "folder/gone", 1000)
    device.sync()
    yield device
    device.close()


def write(device: Device, path: str, size: int) -> None:
    """Write a file of random bytes, in the root or in a folder of it."""
    *above, name = path.split("/")
    device.write(name, os.urandom(size))
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        if above:
            folder = fs.locate(tx, [above[0].encode()])
            assert folder is not None
            fs.rename(tx, ROOT_INO, name.encode(), folder.ino, name.encode(), 0)


@contextmanager
def away(device: Device) -> Iterator[None]:
    """All clouds are."""
    moved = [cloud.rename(cloud.with_name(f"{cloud.name}.away")) for cloud in device.clouds]
    try:
        yield
    finally:
        for cloud, old in zip(device.clouds, moved, strict=True):
            old.rename(cloud)


def pending(device: Device, path: PurePath = ROOT, limit: int = 100) -> PendingFiles:
    return device.volume.pending(path, limit)


def by_path(found: PendingFiles) -> dict[str | None, PendingFile]:
    return {one.path: one for one in found.files}


def test_nothing_waits_once_the_clouds_have_it(device: Device) -> None:
    assert pending(device).total == 0
    with away(device):
        write(device, "new", 5000)
        assert pending(device).total > 0
    device.sync()
    found = pending(device)
    assert (found.total, found.bytes, found.files) == (0, 0, [])


def test_what_waits_is_named_with_its_size_and_time(device: Device) -> None:
    with away(device):
        before = device.volume.environment.time()
        write(device, "folder/new", 5000)
        fs = device.volume.fs
        with fs.state.transaction() as tx:
            fs.rename(tx, ROOT_INO, b"old", ROOT_INO, b"renamed", 0)
            folder = fs.locate(tx, [b"folder"])
            assert folder is not None
            fs.unlink(tx, folder.ino, b"gone")
        found = by_path(pending(device))
        assert found["folder/new"].bytes == 5000
        assert found["renamed"].bytes == 0
        assert None in found or "folder" in found, "something was removed"
        since = found["folder/new"].since
        assert since is not None and before - 1 <= since <= device.volume.environment.time() + 1
        assert not found["folder/new"].is_open


def test_below_a_path_and_up_to_a_limit(device: Device) -> None:
    with away(device):
        for number in range(5):
            write(device, f"folder/{number}", 1000)
        write(device, "folder-2", 1000)
        below = pending(device, PurePath("folder"))
        assert {one.path for one in below.files} >= {f"folder/{number}" for number in range(5)}
        assert "folder-2" not in by_path(below)
        assert below.bytes == 5000
        few = pending(device, limit=2)
        assert (len(few.files), few.bytes) == (2, 6000)
        assert few.total >= 6
        [one] = pending(device, PurePath("folder/3")).files
        assert one.path == "folder/3"
        with pytest.raises(HybrisError, match="there is no folder/none"):
            pending(device, PurePath("folder/none"))


def test_those_that_have_waited_longest_come_first(device: Device) -> None:
    with away(device):
        for name in "cab":
            write(device, name, 1000)
        named = [one.path for one in pending(device).files if one.path in ("a", "b", "c")]
        assert named == ["c", "a", "b"]
