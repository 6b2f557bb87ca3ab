"""What members sign changes nothing outside the mount, whatever stands in the way of who repeats it there."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from hybrisfs.fuse import mounting
from hybrisfs.mount.hand import Hand
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import (
    Attr,
    Content,
    Place,
    Run,
    attr_key,
    content_key,
    place_key,
)
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from sync import Write
from tests.fuse.server import Server
from tests.mount.mounted_fleet import MountedFleet
from tests.mount.outside import ORDERS, Order, device_of, private_folder, state
from tests.system.deadline import until
from tests.system.watching import Watch
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device, Second

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

NEW: Final = b"\x5a" * 16
FILE: Final = Attr(stat.S_IFREG | 0o666, 0, 0, 0, 0)
Attack: TypeAlias = Callable[[bytes, bytes], list[Write]]
"""What happens in a folder to the file in it, by their ids."""


def removed(folder: bytes, node: bytes) -> list[Write]:
    return [(place_key(node, 0), Place(folder, b"name", removed=True).encode())]


def renamed(folder: bytes, node: bytes) -> list[Write]:
    return [(place_key(node, 0), Place(folder, b"other").encode())]


def moved_up(folder: bytes, node: bytes) -> list[Write]:
    return [(place_key(node, 0), Place(ROOT_ID, b"other").encode())]


def made(folder: bytes, node: bytes) -> list[Write]:
    return [(place_key(NEW, 0), Place(folder, b"new").encode()), (attr_key(NEW), FILE.encode())]


def written(folder: bytes, node: bytes) -> list[Write]:
    return [(content_key(node), Content(1, 0, [Run(1, None)]).encode())]


def touched(folder: bytes, node: bytes) -> list[Write]:
    return [(attr_key(node), FILE._replace(mtime=5).encode())]


ATTACKS: Final = [removed, renamed, moved_up, made, written, touched]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[MountedFleet]:
    (tmp_path / "mnt").mkdir()
    both = MountedFleet(tmp_path / "mnt")
    try:
        yield both
    finally:
        both.close()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return private_folder(tmp_path / "outside")


def sign(both: MountedFleet, writes: list[Write]) -> None:
    """The other device signs anything, and the kernel hears of it here."""
    there, here = both.there.rig, both.here
    with there.fs.state.transaction():
        update = there.updates.sign(writes, 1, 0)
    del here.rig.shown[:]
    here.receive([*both.there.log(), update.data])
    both.tell(list(here.rig.shown))


def link_to(target: Path) -> bytes:
    return Attr(stat.S_IFLNK | 0o777, 0, 0, 0, 0, bytes(target)).encode()


@contextlib.contextmanager
def used(folder: Path, *, held: bool) -> Iterator[None]:
    """Programs have looked into the folder; one of them still is in it, when it is *held*."""
    list(folder.iterdir())
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    if not held:
        os.close(descriptor)
    try:
        yield
    finally:
        if held:
            os.close(descriptor)


@pytest.mark.parametrize("held", [True, False], ids=["held", "listed"])
@pytest.mark.parametrize("moves", [True, False], ids=["moves", "stays"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_folder_that_becomes_a_link(
    both: MountedFleet, outside: Path, attack: Attack, moves: bool, held: bool
) -> None:
    both.there.mkdir("D")
    both.there.write("D/name", b"shared")
    both.tell(both.arrive())
    folder, node = both.there.at("D").id, both.there.at("D/name").id
    before = state(outside)
    with used(both.root / "D", held=held):
        way = [(attr_key(folder), link_to(outside))]
        if moves:
            way.append((place_key(folder, 0), Place(ROOT_ID, b"D2").encode()))
        sign(both, [*way, *attack(folder, node)])
        assert state(outside) == before


@pytest.mark.parametrize("held", [True, False], ids=["held", "listed"])
def test_a_folder_in_one_that_becomes_a_link(both: MountedFleet, outside: Path, held: bool) -> None:
    both.there.mkdir("D")
    both.there.mkdir("D/empty")
    both.tell(both.arrive())
    folder, node = both.there.at("D").id, both.there.at("D/empty").id
    before = state(outside)
    with used(both.root / "D", held=held):
        sign(
            both,
            [
                (attr_key(folder), link_to(outside)),
                (place_key(folder, 0), Place(ROOT_ID, b"D2").encode()),
                (place_key(node, 0), Place(folder, b"empty", removed=True).encode()),
            ],
        )
        assert state(outside) == before


def test_a_file_that_becomes_a_link(both: MountedFleet, outside: Path) -> None:
    both.there.mkdir("D")
    both.there.write("D/name", b"shared")
    both.tell(both.arrive())
    folder, node = both.there.at("D").id, both.there.at("D/name").id
    before = state(outside)
    with used(both.root / "D", held=True):
        assert (both.root / "D" / "name").read_bytes() == b"shared"
        sign(both, [*written(folder, node), (attr_key(node), link_to(outside / "name"))])
        assert state(outside) == before


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_root_that_becomes_a_link(both: MountedFleet, outside: Path, attack: Attack) -> None:
    both.there.write("name", b"shared")
    both.tell(both.arrive())
    node = both.there.at("name").id
    before = state(outside)
    with used(both.root, held=True):
        sign(both, [(attr_key(ROOT_ID), link_to(outside)), *attack(ROOT_ID, node)])
        assert state(outside) == before


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_link_in_the_mount_where_a_folder_is_expected(
    both: MountedFleet, outside: Path, order: Order
) -> None:
    (both.root / "way").symlink_to(outside)
    (both.root / "file").touch()
    before = state(outside)
    with contextlib.closing(Hand(both.root, device_of(both.root), subprocess.Popen)) as hand:
        for way in (b"way", b"way/empty"):
            with pytest.raises(OSError, match=r"Not a directory|No such file"):
                order(hand, way)
    assert state(outside) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts something within a mount below /dev/shm")
@pytest.mark.parametrize("attack", ATTACKS)
def test_another_filesystem_within_the_mount_is_not_entered(both: MountedFleet, attack: Attack) -> None:
    both.there.mkdir("D")
    both.there.write("D/name", b"shared")
    both.tell(both.arrive())
    folder, node = both.there.at("D").id, both.there.at("D/name").id
    list((both.root / "D").iterdir())
    with Server(both.root / "D", ["again"]):
        for name in ("name", "new"):
            (both.root / "D" / name).write_bytes(b"another's")
        before = state(both.root / "D")
        sign(both, attack(folder, node))
        assert state(both.root / "D") == before


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_the_mount_covered_is_not_touched(both: MountedFleet, tmp_path: Path, attack: Attack) -> None:
    """Somebody unmounts it while updates come."""
    both.there.mkdir("D")
    both.there.write("D/name", b"shared")
    both.tell(both.arrive())
    folder, node = both.there.at("D").id, both.there.at("D/name").id
    with used(both.root / "D", held=True):
        mounting.unmount(both.root, lazy=True)
        private_folder(both.root / "D")
        before = state(both.root)
        sign(both, attack(folder, node))
        assert state(both.root) == before


def test_what_comes_through_the_clouds(device: Device, root: Path, outside: Path, tmp_path: Path) -> None:
    """The same between whole devices: one signs with its own key whatever it likes. Many times over, for it
    depends on the nodes' ids which of the changes is shown first."""
    folders = [f"D{number}" for number in range(16)]
    for folder in folders:
        (root / folder).mkdir()
        (root / folder / "name").write_bytes(b"shared")
    device.sync()
    writes: list[Write] = []
    for folder in folders:
        at, node = find(device, folder), find(device, folder, "name")
        assert at is not None and node is not None
        place = Place(ROOT_ID, f"{folder} moved".encode()).encode()
        writes += [(attr_key(at), link_to(outside)), (place_key(at, 0), place), *removed(at, node)]
    before = state(outside)
    with contextlib.ExitStack() as stack:
        second = stack.enter_context(contextlib.closing(Second(tmp_path / "second", device)))
        for folder in folders:
            stack.enter_context(used(root / folder, held=True))
        watch = stack.enter_context(Watch(root, "moved to"))
        until(lambda: all(find(second, folder, "name") for folder in folders), "the folders to arrive")
        with second.volume.fs.state.transaction():
            unlocked(second.volume.fs).updates.sign(writes, 1, 0)
        second.write("done", b"")
        watch.wait_for("moved to", "done", PATIENCE)
        mount = device.volume._mounting._mount
        assert mount is not None
        with mount._notifier.at_rest():
            assert state(outside) == before


def find(device: Device, *names: str) -> bytes | None:
    """The id of the node at a path."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        inode: Inode | None = fs.get(tx, ROOT_INO)
        for name in names:
            inode = fs.lookup(tx, inode.ino, os.fsencode(name)) if inode is not None else None
        return None if inode is None else inode.id
