"""Room that runs out, wherever it does: an error of the call that exceeds it, and never a loss."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.commit import CommitLimits
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from tests.crash.workload import Shown, shown_tree
from tests.system.shell import run
from tests.system.small_disks import memory_disk, needs_root
from tests.tree.unlocked import unlocked
from tests.volume.device import NAME, Device

_MIB = 1 << 20
_DISK_MIB = 96


@contextmanager
def _away(*clouds: Path) -> Iterator[None]:
    hidden = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in clouds]
    try:
        yield
    finally:
        for cloud, folder in zip(clouds, hidden, strict=True):
            folder.rename(cloud)


def _clouds(where: Path) -> list[Path]:
    return [where / f"cloud-{number}" for number in range(3)]


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Device]:
    """A device whose state is on a small disk; its clouds are elsewhere."""
    with ExitStack() as stack:
        stack.enter_context(memory_disk(tmp_path / "disk", _DISK_MIB))
        device = Device(tmp_path / "disk", cloud_folders=_clouds(tmp_path))
        stack.callback(device.close)
        yield device


@contextmanager
def _ballast(device: Device, leave: int) -> Iterator[None]:
    """Somebody else fills the disk but for so many bytes."""
    path = device.home.state / "ballast"
    free = os.statvfs(device.state)
    size = free.f_bavail * free.f_frsize - leave
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    try:
        yield
    finally:
        path.unlink()


def _fsynced(device: Device) -> Shown:
    device.volume.committer.commit_now()
    return shown_tree(device.volume)


def _killed(device: Device) -> Shown:
    """What is there after a kill: what was not committed has gone."""
    volume = device.volume
    with volume.fs.state.transaction():
        image = _home(device).with_name("image")
        run("cp", "-a", _home(device), image)
    twin = Device.found(image, device.clouds)
    shown = shown_tree(twin.volume)
    twin.close()
    run("rm", "-rf", image)
    return shown


def _home(device: Device) -> Path:
    return device.clouds[0].parent / "disk" / "home"


def _about_room(device: Device) -> list[str]:
    return [one for one in device.volume.status(look=False).warnings if " is full" in one]


def _file(fs: FileSystem) -> Inode:
    found = fs.lookup(unlocked(fs), ROOT_INO, b"file")
    assert found is not None
    return found


_CALLS: dict[str, Callable[[FileSystem, int], object]] = {
    "create": lambda fs, n: fs.release(
        unlocked(fs), fs.create(unlocked(fs), ROOT_INO, b"c%d" % n, 0o644, 1, 1, os.O_RDWR)[1]
    ),
    "mkdir": lambda fs, n: fs.make(unlocked(fs), ROOT_INO, b"d%d" % n, stat.S_IFDIR | 0o755, 1, 1),
    "symlink": lambda fs, n: fs.make(
        unlocked(fs), ROOT_INO, b"s%d" % n, stat.S_IFLNK | 0o777, 1, 1, target=b"t" * 4000
    ),
    "link": lambda fs, n: fs.link(unlocked(fs), _file(fs).ino, ROOT_INO, b"l%d" % n),
    "rename": lambda fs, n: fs.rename(
        unlocked(fs), ROOT_INO, b"name%d" % n, ROOT_INO, b"name%d" % (n + 1), 0
    ),
    "setxattr": lambda fs, n: fs.set_xattr(unlocked(fs), _file(fs), b"user.x%d" % (n % 9), b"v" * 5000, 0),
    "write": lambda fs, n: fs.write(unlocked(fs), _file(fs), n * 5000, b"w" * 5000),
}


@needs_root
@pytest.mark.parametrize("call", _CALLS)
def test_a_full_disk_is_an_error_of_the_call_and_nothing_that_was_accepted_is_lost(
    cramped: Device, call: str
) -> None:
    cramped.write("file", b"content")
    cramped.write("name0", b"renamed")
    _fsynced(cramped)
    fs, done = cramped.volume.fs, 0
    with _away(*cramped.clouds), _ballast(cramped, 2 * _MIB):
        with pytest.raises(OSError) as caught:
            while done < 1000:
                with fs.state.transaction():
                    _CALLS[call](fs, done)
                done += 1
        assert caught.value.errno == errno.ENOSPC
        assert done <= 256, "found out soon"
        assert any("is full: nothing can be written" in one for one in _about_room(cramped))
        before = shown_tree(cramped.volume)
        with fs.state.transaction() as tx:
            fs.unlink(tx, ROOT_INO, b"file")  # deleting goes on
        del before["/file"]
    assert not _about_room(cramped)
    assert _fsynced(cramped) == {path: node for path, node in before.items() if path != "/file"}
    assert _killed(cramped) == before
    with fs.state.transaction() as tx:
        fs.make(tx, ROOT_INO, b"after", stat.S_IFDIR | 0o755, 1, 1)
    cramped.sync()
    assert not cramped.fsck(clouds=True).problems


@needs_root
def test_a_commit_that_has_no_room_is_made_later_and_nothing_is_lost(cramped: Device) -> None:
    """Somebody else takes the reserve, too: fsync says so, and what was written stays until there is room."""
    _fsynced(cramped)
    cramped.volume.committer.limits = CommitLimits(full=0.3)
    with _away(*cramped.clouds):
        fs = cramped.volume.fs
        with fs.state.transaction() as tx:  # so that nobody commits meanwhile
            fs.make(tx, ROOT_INO, b"made", stat.S_IFDIR | 0o755, 1, 1)
            with _ballast(cramped, 1 << 16):
                with pytest.raises(JournalFullError):
                    cramped.volume.committer.commit_now()
                assert fs.journal.failure is None
        before = _fsynced(cramped)
        assert "/made" in before
        assert _killed(cramped) == before


@needs_root
def test_a_disk_without_inodes_is_full(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(memory_disk(tmp_path / "disk", 256))
        device = Device(disk, cloud_folders=_clouds(tmp_path))
        stack.callback(device.close)
        device.write("file", b"content")
        before = _fsynced(device)
        used = int(run("df", "--output=iused", disk).split()[-1])
        run("mount", "-o", f"remount,nr_inodes={used}", disk)
        with _away(*device.clouds):
            device.volume.fs.journal.seal_active()
            with pytest.raises(OSError) as caught:
                device.write("other", b"content of it")
            assert caught.value.errno == errno.ENOSPC
            run("mount", "-o", f"remount,nr_inodes={used + 100}", disk)
            device.write("other", b"content of it")
        after = _fsynced(device)
        assert after["/other"].content == b"content of it"
        assert after["/file"] == before["/file"]
        device.sync()


def test_a_cache_full_of_what_no_cloud_has_is_an_error_of_the_write(tmp_path: Path) -> None:
    device = Device(tmp_path)
    device.close()
    replace(VolumeConfig.load(device.home, NAME), cache_bytes=64 * _MIB).save(device.home)
    device.reopen()
    written: dict[str, bytes] = {}
    with _away(*device.clouds):
        with pytest.raises(OSError) as caught:
            for number in range(80):
                content = os.urandom(_MIB)
                device.write(f"file {number}", content)
                written[f"file {number}"] = content
        assert caught.value.errno == errno.ENOSPC
        assert len(written) >= 48
        [warning] = _about_room(device)
        assert warning.startswith("the cache is full of changes that no cloud has yet")
        assert {name: device.read(name) for name in written} == written
        device.reopen()
        assert {name: device.read(name) for name in written} == written
    device.sync()
    assert device.volume.status(look=False).warnings == []
    device.write("after", b"room again")
    device.sync()
    device.volume.drop_cache()
    assert {name: device.read(name) for name in written} == written
    device.close()


@needs_root
@pytest.mark.parametrize("full", [1, 2])
def test_a_cloud_over_its_quota_loses_nothing(tmp_path: Path, full: int) -> None:
    """One of three is done without; two keep what is new waiting here until they have room."""
    with ExitStack() as stack:
        small = [stack.enter_context(memory_disk(tmp_path / f"quota-{number}", 4)) for number in range(full)]
        clouds = [*(disk / "cloud" for disk in small), *(tmp_path / f"cloud-{n}" for n in range(full, 3))]
        device = Device(tmp_path, cloud_folders=clouds)
        stack.callback(device.close)
        contents = {f"file {number}": os.urandom(_MIB) for number in range(8)}
        for name, content in contents.items():
            device.write(name, content)
        if full == 1:
            device.sync()
        else:
            assert not device.volume.sync(5.0, lambda done, total: None)
            states = [one.state for one in device.volume.status().clouds]
            assert states.count("full") == 2
            device.reopen()
            for disk in small:
                run("mount", "-o", "remount,size=64m", disk)
            device.sync()
        device.volume.drop_cache()
        assert {name: device.read(name) for name in contents} == contents
