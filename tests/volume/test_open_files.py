"""Files that programs hold open while another device removes the folders in which they stand."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device, Second

FOLDERS = ("a", "b", "c")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    """Both know /a/b/c/file."""
    with ExitStack() as stack:
        ada = Device(tmp_path / "ada")
        stack.callback(ada.close)
        with ada.volume.fs.state.transaction() as tx:
            at = ROOT_INO
            for name in FOLDERS:
                at = ada.volume.fs.make(tx, at, name.encode(), stat.S_IFDIR | 0o750, 1, 1).ino
            _, handle = ada.volume.fs.create(tx, at, b"file", 0o644, 1, 1, os.O_WRONLY)
        ada.write_at(handle, 0, b"before")
        with ada.volume.fs.state.transaction() as tx:
            ada.volume.fs.release(tx, handle)
        bob = Second(tmp_path / "bob", ada)
        stack.callback(bob.close)
        ada.sync()
        wait_for(bob, {"a", "a/b", "a/b/c", "a/b/c/file"})
        yield ada, bob


def paths(device: Device) -> set[str]:
    found, waiting = set[str](), [("", ROOT_INO)]
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        while waiting:
            above, ino = waiting.pop()
            for _, name, inode in fs.names.list(tx, ino, 0, 100):
                path = f"{above}/{name.decode()}".lstrip("/")
                found.add(path)
                if inode.is_directory:
                    waiting.append((path, inode.ino))
    return found


def wait_for(device: Device, wanted: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := paths(device)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def number_of(device: Device, path: str) -> int:
    at = ROOT_INO
    for name in path.split("/"):
        inode = device.volume.fs.lookup(unlocked(device.volume.fs), at, name.encode())
        assert inode is not None
        at = inode.ino
    return at


def remove_folders(device: Device) -> None:
    """`rm -r a/b`."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        fs.unlink(tx, number_of(device, "a/b/c"), b"file")
        fs.rmdir(tx, number_of(device, "a/b"), b"c")
        fs.rmdir(tx, number_of(device, "a"), b"b")


def make_folders_anew(device: Device) -> None:
    """`rm -r a/b; mkdir -p a/b/c`."""
    remove_folders(device)
    with device.volume.fs.state.transaction() as tx:
        at = number_of(device, "a")
        for name in FOLDERS[1:]:
            at = device.volume.fs.make(tx, at, name.encode(), stat.S_IFDIR | 0o700, 1, 1).ino


def test_what_is_written_stays_in_its_folders(devices: tuple[Device, Device]) -> None:
    ada, bob = devices
    fs = ada.volume.fs
    with fs.state.transaction() as tx:
        handle = fs.open(tx, number_of(ada, "a/b/c/file"), os.O_WRONLY)
    remove_folders(bob)
    bob.sync()
    wait_for(ada, {"a"})
    ada.write_at(handle, 6, b" and after")
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    ada.sync()
    everything = {"a", "a/b", "a/b/c", "a/b/c/file"}
    for device in devices:
        wait_for(device, everything)
        with device.volume.fs.state.transaction() as tx:
            folder = device.volume.fs.get(tx, number_of(device, "a/b"))
            assert stat.S_IMODE(folder.mode) == 0o750
            assert device.volume.fs.get(tx, number_of(device, "a/b/c/file")).size == len(b"before and after")
        assert not device.fsck().problems
    ada.reopen()
    assert paths(ada) == everything


def test_what_is_written_stays_in_folders_that_were_made_anew(devices: tuple[Device, Device]) -> None:
    ada, bob = devices
    fs = ada.volume.fs
    with fs.state.transaction() as tx:
        handle = fs.open(tx, number_of(ada, "a/b/c/file"), os.O_WRONLY)
    make_folders_anew(bob)
    bob.sync()
    wait_for(ada, {"a", "a/b", "a/b/c"})
    ada.write_at(handle, 6, b" and after")
    with fs.state.transaction() as tx:
        fs.commit(tx)
    assert not ada.fsck().problems
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    ada.sync()
    for device in devices:
        wait_for(device, {"a", "a/b", "a/b/c", "a/b/c/file"})
        assert not device.fsck().problems
