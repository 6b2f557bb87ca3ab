"""A disk that is full, too small, read-only or away costs an error message, never data."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.clouds import away, objects
from tests.system.conftest import MakeDevice
from tests.system.device import Device
from tests.system.pairing import pair, same_trees
from tests.system.small_disks import memory_disk, needs_root
from tests.system.trees import fsync_tree, make_tree, snapshot

pytestmark = needs_root

_MIB = 1 << 20
_DISK_MIB = 160
_FILE_BYTES = 3 * _MIB


@pytest.fixture
def cramped(make_device: MakeDevice, tmp_path: Path) -> Iterator[Device]:
    """A mounted volume whose state and cache are on a small disk; its clouds have room."""
    with memory_disk(tmp_path / "disk", _DISK_MIB) as disk:
        device = make_device(home=disk / "home")
        try:
            yield device.create(3).mount()
        finally:
            device.close()


def _fill(folder: Path, kept: dict[str, bytes], most: int) -> OSError | None:
    """Write files until an error; `kept` gets those whose fsync succeeded."""
    for _ in range(most):
        name, content = f"file{len(kept):05}", os.urandom(_FILE_BYTES)
        try:
            with (folder / name).open("wb", buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except OSError as error:
            (folder / name).unlink(missing_ok=True)
            fsync_tree(folder)
            return error
        kept[name] = content
    return None


def _disk_bytes(path: Path) -> int:
    """The blocks of a file, none of one that has just been evicted. `st_blocks` counts those, too, in which
    ext4 keeps where many of them are."""
    total = at = 0
    with contextlib.suppress(OSError), path.open("rb") as file:  # ENXIO: no data from there on
        while True:
            start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            total += -(-at // 4096) * 4096 - start
    return total


def _read_back(folder: Path, kept: dict[str, bytes]) -> None:
    for name, content in kept.items():
        assert (folder / name).read_bytes() == content, name
    assert {path.name for path in folder.iterdir()} == set(kept)


def test_a_full_disk_gives_enospc_and_recovers(cramped: Device) -> None:
    kept: dict[str, bytes] = {}
    with away(*cramped.clouds):  # nothing can be evicted
        error = _fill(cramped.mountpoint, kept, most=2 * _DISK_MIB * _MIB // _FILE_BYTES)
        assert error is not None
        assert error.errno == errno.ENOSPC
        assert len(kept) > 5
        _read_back(cramped.mountpoint, kept)
        for name in list(kept)[::2]:
            (cramped.mountpoint / name).unlink()
            del kept[name]
        again: dict[str, bytes] = {}
        (cramped.mountpoint / "after").mkdir()
        _fill(cramped.mountpoint / "after", again, most=4)
        assert len(again) >= 2, "deleting makes room"
        _read_back(cramped.mountpoint / "after", again)
    cramped.sync()
    _read_back(cramped.mountpoint / "after", again)
    cramped.forget()
    _read_back(cramped.mountpoint / "after", again)
    for name, content in kept.items():
        assert (cramped.mountpoint / name).read_bytes() == content
    done = cramped.fsck()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_crash_on_a_full_disk_is_survived(cramped: Device) -> None:
    kept: dict[str, bytes] = {}
    with away(*cramped.clouds):
        assert _fill(cramped.mountpoint, kept, most=2 * _DISK_MIB * _MIB // _FILE_BYTES) is not None
        cramped.kill()
        cramped.mount()
        _read_back(cramped.mountpoint, kept)
    cramped.forget()
    _read_back(cramped.mountpoint, kept)


def test_invariant_13_more_than_the_disk_holds_goes_through_to_the_clouds(cramped: Device) -> None:
    """What is on the clouds makes room by itself, and the limit holds with open files too (rclone 4498)."""
    kept: dict[str, bytes] = {}
    with (cramped.mountpoint / "held open").open("w+b") as held:
        held.write(os.urandom(20 * _MIB))
        held.flush()
        error = _fill(cramped.mountpoint, kept, most=3 * _DISK_MIB * _MIB // _FILE_BYTES)
        assert error is None, f"{error} after {len(kept)} files"
        held.seek(0)
        kept["held open"] = held.read()
    cramped.sync()
    _read_back(cramped.mountpoint, kept)


def test_invariant_13_the_cache_keeps_to_its_budget(device: Device) -> None:
    """... while writing, while reading, and with a file open that is larger than the budget (rclone 4498)."""
    budget, kept = 64 * _MIB, {}
    device.stop()
    config = device.home / "config" / "volumes" / device.volume / "volume.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"cache_bytes": budget}))
    device.mount()

    def within() -> None:
        assert device.status()["cache"]["budget"] == budget
        used = sum(map(_disk_bytes, device.home.rglob("*.segment")))
        assert used <= budget, f"{used:,} bytes of segments"

    for number in range(6):
        kept[f"file{number}"] = os.urandom(20 * _MIB)
        (device.mountpoint / f"file{number}").write_bytes(kept[f"file{number}"])
        within()
    with (device.mountpoint / "large").open("w+b") as large:
        pieces = [os.urandom(10 * _MIB) for _ in range(10)]
        for piece in pieces:
            large.write(piece)
            within()
        large.seek(0)
        for piece in pieces:
            assert large.read(len(piece)) == piece
            within()
    device.sync()
    for name, content in kept.items():
        assert (device.mountpoint / name).read_bytes() == content
        within()


def test_invariant_13_the_error_comes_at_write(cramped: Device) -> None:
    """... or at fsync, and not at close, when the program has forgotten what it wrote (rclone 4498)."""
    with away(*cramped.clouds), pytest.raises(OSError) as caught:
        descriptor = os.open(cramped.mountpoint / "large", os.O_CREAT | os.O_WRONLY)
        try:
            for _ in range(2 * _DISK_MIB):
                os.write(descriptor, os.urandom(_MIB))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("part", ["state", "cache"])
@pytest.mark.parametrize("fate", ["missing", "empty"])
def test_invariant_5_a_lost_disk_is_not_a_deletion(device: Device, part: str, fate: str) -> None:
    """... of all files by the user (Nextcloud 1433, 2233, 3076): no cloud loses an object by it."""
    make_tree(device.mountpoint / "tree", seed=8, files=20)
    device.sync()
    before = snapshot(device.mountpoint / "tree")
    stored = {cloud: set(objects(cloud)) for cloud in device.clouds}
    device.stop()
    folder = device.home / part
    folder.rename(folder.with_name("elsewhere"))
    if fate == "empty":
        folder.mkdir(mode=0o700)
    device.attempt("mount", device.volume, str(device.mountpoint))
    device.attempt("sync", device.volume, "--wait", "--timeout", "5")
    for cloud, paths in stored.items():
        assert paths <= set(objects(cloud)), f"{cloud.name} lost objects"
    device.attempt("umount", device.volume)
    device.close()
    if folder.exists():
        folder.rename(folder.with_name("made meanwhile"))
    folder.with_name("elsewhere").rename(folder)
    device.mount()
    assert snapshot(device.mountpoint / "tree") == before
    device.forget()
    assert snapshot(device.mountpoint / "tree") == before


def test_a_full_disk_ends_no_link_as_a_bug(make_device: MakeDevice, tmp_path: Path) -> None:
    one = make_device("one")
    one.create(3).mount()
    with memory_disk(tmp_path / "disk", _DISK_MIB) as disk:
        other = make_device("other", home=disk / "home")
        pair(one, other, "other")
        other.mount()
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        for number in range(50):
            (one.mountpoint / f"file{number}").write_bytes(b"%d" % number)
        one.run("sync", "--wait")
        ballast.unlink()
        same_trees([one, other])
        for device in (one, other):
            [log] = device.home.rglob("daemon.log")
            text = log.read_text()
            assert "Traceback" not in text and "unexpected" not in text, text
        other.close()
