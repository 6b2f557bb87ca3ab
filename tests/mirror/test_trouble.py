"""Disks that are away, full or read-only; mass deletions; changes that nobody hears of. Needs root."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from watchdog.observers.inotify_c import InotifyFD

from hybrisfs.api.mirrors import Problem
from tests.capabilities import as_an_ordinary_user
from tests.mirror.rig import Mirrored, OneWorker, until

_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def mounted(mirrored: Mirrored, tmp_path: Path) -> Iterator[Mirrored]:
    """A mirror on a disk of its own, 4 MiB large."""
    _require_root()
    disk = tmp_path / "disk"
    disk.mkdir()
    with ExitStack() as stack:
        _mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk))
        stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        _mount("--bind", str(disk), str(mirrored.directory))
        stack.callback(subprocess.run, ["umount", "--lazy", str(mirrored.directory)], check=False)
        mirrored.add()
        yield mirrored


def _require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk and change the kernel's limits")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _paused(mirrored: Mirrored, why: str) -> None:
    def is_paused() -> bool:
        facts = mirrored.facts()
        return facts.state == "paused" and why in (facts.reason or "")

    until(is_paused, f"the mirror to be paused: {mirrored.facts()}")


def test_an_unmounted_disk_is_not_an_empty_one(mounted: Mirrored, tmp_path: Path) -> None:
    (mounted.directory / "file").write_bytes(b"1")
    mounted.settle()
    subprocess.run(["umount", str(mounted.directory)], check=True)
    mounted.put("new", b"2")
    _paused(mounted, "marker")
    assert mounted.names() == {"file", "new"}
    assert list(mounted.directory.iterdir()) == [], "nothing is written below the mount point"
    _mount("--bind", str(tmp_path / "disk"), str(mounted.directory))
    mounted.settle()
    assert mounted.here() == {"file", "new"}


def test_a_full_disk_pauses(mounted: Mirrored) -> None:
    mounted.put("large", os.urandom(6 << 20))
    _paused(mounted, "full")
    assert mounted.here() == set(), "no half file"
    mounted.put("large", b"small")
    mounted.settle()
    assert (mounted.directory / "large").read_bytes() == b"small"


def test_a_read_only_disk_pauses(mounted: Mirrored) -> None:
    mounted.settle()
    _mount("-o", "remount,bind,ro", str(mounted.directory))
    mounted.put("file", b"1")
    _paused(mounted, "read-only")
    _mount("-o", "remount,bind,rw", str(mounted.directory))
    mounted.settle()
    assert mounted.here() == {"file"}


def test_what_is_mounted_within_is_left_alone(mounted: Mirrored) -> None:
    inner = mounted.directory / "inner"
    inner.mkdir()
    (inner / "below").write_bytes(b"1")
    mounted.settle()
    _mount("-t", "tmpfs", "tmpfs", str(inner))
    try:
        (inner / "other").write_bytes(b"2")
        (mounted.directory / "after").write_bytes(b"3")
        until(lambda: mounted.find("after"), "the mirror to have looked")
        assert mounted.names("inner") == {"below"}
    finally:
        subprocess.run(["umount", str(inner)], check=True)
    mounted.settle()
    assert mounted.here("inner") == {"below"}


def test_a_folder_that_is_gone_or_another_is_not_compared(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"1")
    mirrored.add()
    mirrored.settle()
    mirrored.directory.rename(mirrored.directory.with_name("aside"))
    _paused(mirrored, "cannot be opened")
    mirrored.directory.mkdir()
    _paused(mirrored, "marker")
    assert mirrored.names() == {"file"}
    mirrored.directory.rmdir()
    mirrored.directory.with_name("aside").rename(mirrored.directory)
    mirrored.settle()


def test_a_folder_that_is_removed_while_it_is_looked_at_is_not_an_empty_one(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"1")
    one = OneWorker(mirrored)
    with one.running() as worker:
        until(lambda: mirrored.find("file"), "the file to arrive")
        one.before_looks = partial(shutil.rmtree, mirrored.directory, ignore_errors=True)
        (mirrored.directory / "other").write_bytes(b"2")
        until(lambda: "cannot be opened" in (worker.facts()["reason"] or ""), "the mirror to be paused")
    assert mirrored.names() >= {"file"}


def test_a_folder_of_the_volume_that_goes_while_it_is_looked_at(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"1")
    fs = mirrored.device.volume.fs

    def delete() -> None:
        if mirrored.find("") is not None:
            mirrored.delete("file")
            with fs.state.transaction() as tx:
                fs.rmdir(tx, 1, b"plain")

    one = OneWorker(mirrored)
    with one.running() as worker:
        until(lambda: mirrored.find("file"), "the file to arrive")
        one.before_looks = delete
        (mirrored.directory / "other").write_bytes(b"2")
        until(lambda: "was deleted" in (worker.facts()["reason"] or ""), "the mirror to be paused")
    assert mirrored.here() == {"file", "other"}


@pytest.mark.parametrize("accept", [True, False])
def test_a_mass_deletion_waits(mirrored: Mirrored, accept: bool) -> None:
    folder = mirrored.directory / "folder"
    folder.mkdir()
    for number in range(60):
        (folder / str(number)).write_bytes(b"%d" % number)
    mirrored.add()
    mirrored.settle()
    # At once: were it seen half done, less would be held back.
    folder.rename(mirrored.directory.parent / "away")
    (mirrored.directory / "new").write_bytes(b"goes on")
    until(lambda: mirrored.facts().held_back == {"volume": 61}, "the deletion to be held back")
    until(lambda: mirrored.find("new"), "the rest to go on")
    assert len(mirrored.names("folder")) == 60
    until(lambda: mirrored.facts().state == "waiting", "the mirror to wait")
    mirrored.device.volume.mirrors.decide(mirrored.directory, accept=accept)
    mirrored.settle()
    assert mirrored.here() == ({"new"} if accept else {"new", "folder"})
    assert accept or (folder / "7").read_bytes() == b"7"


def test_a_deleted_folder_of_the_volume_pauses(mirrored: Mirrored) -> None:
    mirrored.make("")
    mirrored.add()
    mirrored.settle()
    fs = mirrored.device.volume.fs
    with fs.state.transaction() as tx:
        fs.rmdir(tx, 1, b"plain")
    _paused(mirrored, "was deleted")


def test_more_events_than_the_queue_holds(mirrored: Mirrored) -> None:
    _require_root()
    folders = [mirrored.directory / f"folder-{number}" for number in range(40)]
    for folder in folders:
        folder.mkdir()
    before = _QUEUE.read_text()
    try:
        _QUEUE.write_text("16")
        mirrored.add()
        mirrored.settle()
    finally:
        _QUEUE.write_text(before)
    [one] = mirrored.device.volume.mirrors._workers.values()
    until(lambda: not one._noticed, "its own doings to be looked at")
    mirrored.settle()
    assert one._watcher is not None
    with one._watcher._lock:  # nobody takes events out of the queue meanwhile
        for folder in folders:
            (folder / "file").write_bytes(b"1")
    mirrored.settle()
    assert mirrored.names("folder-39") == {"file"}


def test_too_few_watches(mirrored: Mirrored) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    with mock.patch.object(InotifyFD, "add_callback", refuse):
        mirrored.add()
        mirrored.settle()
        assert "max_user_watches" in (mirrored.facts().watching or "")
        (mirrored.directory / "file").write_bytes(b"1")
        until(lambda: mirrored.find("file"), "the file to be found without watches")


def test_an_unreadable_folder_is_not_an_empty_one(mirrored: Mirrored) -> None:
    folder = mirrored.directory / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"1")
    with as_an_ordinary_user():
        mirrored.add()
    mirrored.settle()
    (folder / "other").write_bytes(b"2")
    folder.chmod(0)
    try:
        until(lambda: mirrored.facts().problems, "the folder to be named")
        assert mirrored.names("folder") == {"file"}
        assert mirrored.facts().problems == [Problem("folder", "Permission denied")]
    finally:
        folder.chmod(0o700)
