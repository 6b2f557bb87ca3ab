"""Programs that act on what they saw before another device's update came: nothing is lost by it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from hybrisfs.tree.names import RENAME_EXCHANGE
from tests.merge.fleet import Device
from tests.mount.mounted_fleet import MountedFleet

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

_LIBC = ctypes.CDLL(None, use_errno=True)
OURS, THEIRS = b"what a program here writes", b"what has come from there"
Act: TypeAlias = Callable[[Path], None]
Change: TypeAlias = Callable[[Device], None]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[MountedFleet]:
    (tmp_path / "mnt").mkdir()
    both = MountedFleet(tmp_path / "mnt")
    try:
        yield both
    finally:
        both.close()


# -- what another device does to "file" ------------------------------------------------------------


def saved(device: Device) -> None:
    device.write("draft there", THEIRS)
    device.move("draft there", "file")


def edited(device: Device) -> None:
    device.write("file", THEIRS)


def removed_and_made(device: Device) -> None:
    device.remove("file")
    device.sign()
    device.write("file", THEIRS)


# -- what a program here does ----------------------------------------------------------------------


def save(root: Path) -> None:
    (root / "draft").write_bytes(OURS)
    (root / "draft").rename(root / "file")


def save_and_sync(root: Path) -> None:
    with (root / "draft").open("wb") as draft:
        draft.write(OURS)
        os.fsync(draft.fileno())
    (root / "draft").rename(root / "file")


def write_anew(root: Path) -> None:
    (root / "file").write_bytes(OURS)


def write_over(root: Path) -> None:
    descriptor = os.open(root / "file", os.O_WRONLY)
    os.pwrite(descriptor, OURS, 0)
    os.close(descriptor)


def cut_off(root: Path) -> None:
    os.truncate(root / "file", 3)


def remove(root: Path) -> None:
    (root / "file").unlink()


def save_with_backup(root: Path) -> None:
    """As vim does."""
    (root / "file").rename(root / "file~")
    descriptor = os.open(root / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, OURS)
    os.close(descriptor)
    (root / "file~").unlink()


def exchange(root: Path) -> None:
    """Save by an exchange of names, and remove what was there before."""
    (root / "draft").write_bytes(OURS)
    swap(root / "draft", root / "file")
    (root / "draft").unlink()


def swap(one: Path, two: Path) -> None:
    here = -100  # AT_FDCWD
    done = _LIBC.renameat2(here, bytes(one), here, bytes(two), RENAME_EXCHANGE)
    assert done == 0, os.strerror(ctypes.get_errno())


def begun(both: MountedFleet) -> None:
    """Both have the file, and a program here has read it."""
    both.there.write("file", b"first")
    both.tell(both.arrive())
    assert (both.root / "file").read_bytes() == b"first"


CHANGES = [saved, edited, removed_and_made]
ACTS = [save, save_and_sync, save_with_backup, exchange, write_anew, write_over, cut_off, remove]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("change", CHANGES)
def test_what_came_unseen_is_kept(both: MountedFleet, change: Change, act: Act, told: bool) -> None:
    begun(both)
    change(both.there)
    changes = both.arrive()
    if told:
        both.tell(changes)
    act(both.root)
    found = both.meet()
    assert THEIRS in found.values()
    if act not in (cut_off, remove):
        assert any(content.startswith(OURS) for content in found.values())
        assert len(found) == 2


@pytest.mark.parametrize("look", ["read", "stat"])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_program_has_seen_it_replaces(both: MountedFleet, change: Change, act: Act, look: str) -> None:
    begun(both)
    change(both.there)
    both.tell(both.arrive())
    if look == "read":
        assert (both.root / "file").read_bytes() == THEIRS
    else:
        assert (both.root / "file").stat().st_size == len(THEIRS)
    act(both.root)
    found = both.meet()
    assert THEIRS not in found.values()
    assert len(found) == (0 if act is remove else 1)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("act", [save, save_and_sync])
def test_a_file_that_came_unseen_under_a_free_name_is_kept(both: MountedFleet, act: Act, told: bool) -> None:
    assert not (both.root / "file").exists()
    both.there.write("file", THEIRS)
    changes = both.arrive()
    if told:
        both.tell(changes)
    act(both.root)
    assert sorted(both.meet().values()) == sorted([OURS, THEIRS])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have the kernel forget")
@pytest.mark.parametrize("within", ["folder", "folder/folder"])
def test_what_came_into_a_folder_that_the_kernel_had_forgotten_is_kept(
    both: MountedFleet, within: str
) -> None:
    """The program has looked into the folder, and does not know what the kernel remembers."""
    (both.root / within).mkdir(parents=True)
    both.meet()
    assert not (both.root / within / "file").exists()
    both.have_forgotten(within)
    both.there.write(f"{within}/file", THEIRS)
    both.tell(both.arrive())
    save(both.root / within)
    assert sorted(both.meet().values()) == sorted([OURS, THEIRS])


def test_a_file_is_made_only_where_none_has_come(both: MountedFleet) -> None:
    assert not (both.root / "file").exists()
    both.there.write("file", THEIRS)
    both.arrive()
    with pytest.raises(FileExistsError):
        os.open(both.root / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_who_would_make_a_file_that_has_come_opens_it(both: MountedFleet) -> None:
    """Its bytes stay: a program here did not know of any."""
    assert not (both.root / "file").exists()
    both.there.write("file", THEIRS)
    both.arrive()
    write_anew(both.root)
    assert (both.root / "file").read_bytes() == OURS
    assert sorted(both.meet().values()) == sorted([OURS, THEIRS])


def test_what_is_in_a_listing_can_be_removed(both: MountedFleet) -> None:
    (both.root / "folder").mkdir()
    assert list((both.root / "folder").iterdir()) == []
    both.meet()
    both.there.write("folder/file", THEIRS)
    both.tell(both.arrive())
    for file in (both.root / "folder").iterdir():
        file.unlink()
    (both.root / "folder").rmdir()
    assert both.meet() == {}


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("act", ACTS)
def test_another_folder_has_come_with_the_file(both: MountedFleet, act: Act, told: bool) -> None:
    """The program knows the file of the folder that had the name before."""
    (both.root / "folder" / "within").mkdir(parents=True)
    (both.root / "folder" / "within" / "file").write_bytes(b"first")
    both.meet()
    both.there.move("folder", "away")
    both.there.mkdir("folder")
    both.there.mkdir("folder/within")
    both.there.write("folder/within/file", THEIRS)
    changes = both.arrive()
    if told:
        both.tell(changes)
    act(both.root / "folder" / "within")
    assert THEIRS in both.meet().values()


@pytest.mark.parametrize("told", [False, True])
def test_two_make_a_folder_and_a_file_in_it(both: MountedFleet, told: bool) -> None:
    assert not (both.root / "folder").exists()
    both.there.mkdir("folder")
    both.there.write("folder/file", THEIRS)
    changes = both.arrive()
    if told:
        both.tell(changes)
    (both.root / "folder").mkdir(exist_ok=True)
    save(both.root / "folder")
    assert sorted(both.meet().values()) == sorted([OURS, THEIRS])


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_an_edit_and_a_save_are_there_after_a_removal(tmp_path: Path, behind: bool, told: bool) -> None:
    """Which of the two has the name follows from the clock of who saves; it is the one that is spared."""
    (tmp_path / "mnt").mkdir()
    three = MountedFleet(tmp_path / "mnt", 3)
    try:
        begun(three)
        three.fleet.meet()
        editor, saver = three.fleet[1], three.fleet[2]
        editor.write("file", b"edit")
        if behind:
            saver.rig.around.ahead_ns = -400 * 86400 * 10**9
        saved(saver)
        changes = three.arrive()
        if told:
            three.tell(changes)
        remove(three.root)
        assert sorted(three.meet().values()) == sorted([b"edit", THEIRS])
    finally:
        three.close()


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_who_lists_a_folder_can_remove_it(both: MountedFleet, change: Change, told: bool) -> None:
    """A program knows all that is in it by then, if not what is in the files."""
    begun(both)
    assert len(list(both.root.iterdir())) == 1
    change(both.there)
    changes = both.arrive()
    if told:
        both.tell(changes)
    for file in both.root.iterdir():
        file.unlink()
    assert both.meet() == {}


def test_a_name_that_was_spared_can_be_removed_thereafter(both: MountedFleet) -> None:
    begun(both)
    saved(both.there)
    both.arrive()
    remove(both.root)
    assert (both.root / "file").read_bytes() == THEIRS
    remove(both.root)
    assert both.meet() == {}


def test_what_a_program_adds_at_the_end_is_added(both: MountedFleet) -> None:
    begun(both)
    edited(both.there)
    both.tell(both.arrive())
    descriptor = os.open(both.root / "file", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, OURS)
    os.close(descriptor)
    assert list(both.meet().values()) == [THEIRS + OURS]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("theirs", [b"x", b"longer than what was there before"])
def test_nobody_reads_a_mixture(both: MountedFleet, change: Change, theirs: bytes) -> None:
    """A program that opens the file before the kernel has been told gets all of the new content."""
    begun(both)
    change(both.there)
    both.there.write("file", theirs)
    both.arrive()
    assert (both.root / "file").read_bytes() == theirs
