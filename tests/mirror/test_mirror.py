"""Mirrors with a real folder, real inotify and a real volume."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.members.members import Member
from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.engine import Mirror, Outcome
from hybrisfs.mirror.file_access import Disk
from hybrisfs.mirror.ignore import MARKER
from hybrisfs.mirror.model import ChangedError, Glimpse
from hybrisfs.mirror.plan import plan
from hybrisfs.mirror.volume_side import VolumeSide
from sync import DeviceKey
from tests.mirror.rig import Mirrored, opened_folder, until


def test_changes_go_both_ways(mirrored: Mirrored) -> None:
    here = mirrored.directory
    mirrored.add()
    (here / "sub").mkdir()
    (here / "sub" / "file").write_bytes(b"from the disk")
    mirrored.put("from-volume", b"from the volume", 0o640)
    until(lambda: mirrored.find("sub/file"), "the file to come into the volume")
    until(lambda: "from-volume" in mirrored.here(), "the file to come to the disk")
    mirrored.settle()
    assert mirrored.content("sub/file") == b"from the disk"
    assert (here / "from-volume").stat().st_mode & 0o777 == 0o640
    assert (here / "from-volume").stat().st_mtime_ns == mirrored.node("from-volume").mtime

    before = mirrored.node("sub/file").id
    (here / "sub" / "file").write_bytes(b"from the disk, changed")
    mirrored.put("from-volume", b"from the volume, changed")
    (here / "sub" / "file").chmod(0o755)
    until(lambda: mirrored.content("sub/file").endswith(b"changed"), "the change to come into the volume")
    mirrored.settle()
    assert (here / "from-volume").read_bytes() == b"from the volume, changed"
    assert mirrored.node("sub/file").id == before, "a changed file stays the same file"

    shutil.rmtree(here / "sub")
    mirrored.delete("from-volume")
    until(lambda: not mirrored.names() and not mirrored.here(), "both to be empty")


def test_all_that_files_have_is_kept(mirrored: Mirrored) -> None:
    here = mirrored.directory
    name = os.fsdecode(b"not \xff UTF-8")
    (here / name).write_bytes(b"x")
    (here / "file").write_bytes(b"content")
    os.setxattr(here / "file", "user.colour", b"green")
    os.utime(here / "file", ns=(5, 1_234_567_890_123_456_789))
    (here / "file").chmod(0o4711)
    os.link(here / "file", here / "other-name")
    (here / "link").symlink_to("/nowhere at all")
    with (here / "sparse").open("wb") as sparse:
        sparse.seek(64 << 20)
        sparse.write(b"end")
    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(here / "socket"))
    mirrored.add()
    until(lambda: mirrored.find("sparse"), "the files to come into the volume")
    until(lambda: mirrored.facts().state == "watching", "the mirror to rest")
    file, fs = mirrored.node("file"), mirrored.device.volume.fs
    assert (file.mode & 0o7777, file.mtime, file.nlink) == (0o4711, 1_234_567_890_123_456_789, 2)
    assert mirrored.node("other-name") is file
    with fs.state.transaction() as tx:
        assert fs.attributes.get_xattr(tx, file, b"user.colour") == b"green"
    assert mirrored.node("link").target == b"/nowhere at all"
    assert mirrored.node("sparse").size == (64 << 20) + 3
    assert mirrored.node("sparse").blocks * 512 <= 1 << 20
    assert mirrored.content(name) == b"x"
    assert {one.path for one in mirrored.facts().problems} == {"pipe", "socket"}
    assert not {"pipe", "socket"} & mirrored.names()


def test_what_the_volume_has_is_kept(mirrored: Mirrored) -> None:
    fs, here = mirrored.device.volume.fs, mirrored.directory
    mirrored.make("")
    with fs.state.transaction() as tx:
        folder = mirrored.node("")
        inode = fs.make(tx, folder.ino, b"file", 0o100640, 0, 0)
        fs.attributes.set_xattr(tx, inode, b"user.colour", b"green", 0)
        fs.link(tx, inode.ino, folder.ino, b"other-name")
        fs.make(tx, folder.ino, b"link", 0o120777, 0, 0, target=b"../up")
        hole = fs.make(tx, folder.ino, b"sparse", 0o100644, 0, 0)
        fs.write(tx, hole, 64 << 20, b"end")
    mirrored.put("file", b"content")
    mirrored.add()
    mirrored.settle()
    assert os.getxattr(here / "file", "user.colour") == b"green"
    assert (here / "file").stat().st_ino == (here / "other-name").stat().st_ino
    assert (here / "link").readlink() == Path("../up")
    assert (here / "sparse").stat().st_size == (64 << 20) + 3
    assert (here / "sparse").stat().st_blocks * 512 <= 2 << 20
    mirrored.put("file", b"new content")
    mirrored.settle()
    assert (here / "other-name").read_bytes() == b"new content"
    assert (here / "file").stat().st_ino == (here / "other-name").stat().st_ino


def test_each_side_keeps_its_own_set_id_and_sticky_bits(mirrored: Mirrored) -> None:
    here = mirrored.directory
    mirrored.make("")
    mirrored.make("folder")
    mirrored.put("program", b"\x7fELF", 0o6755)
    change_mode(mirrored, "folder", 0o1777)
    mirrored.add()
    until(lambda: mode_of(here, "program") == 0o755, "the program")
    until(lambda: mode_of(here, "folder") == 0o777, "the folder")

    (here.parent / "mine").mkdir()
    (here.parent / "mine").chmod(0o2770)
    (here.parent / "mine").rename(here / "mine")
    until(lambda: mirrored.find("mine"), "the folder from here")
    assert mirrored.node("mine").mode == 0o042770
    change_mode(mirrored, "mine", 0o755)
    until(lambda: mode_of(here, "mine") == 0o2755, "the other's permissions")
    change_mode(mirrored, "program", 0o4711)
    until(lambda: mode_of(here, "program") == 0o711, "the other's permissions")
    (here / "program").chmod(0o2700)
    until(lambda: mirrored.node("program").mode == 0o104700, "the permissions from here")
    (here / "program").write_bytes(b"\x7fELF, the next version")
    until(lambda: mirrored.content("program") == b"\x7fELF, the next version", "the content from here")
    assert mirrored.node("program").mode == 0o104700


class Answered(Disk):
    """A disk on which a program sets the permissions of a file as soon as others arrive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: list[int] = []

    def set_mode(self, descriptor: int, mode: int) -> None:
        super().set_mode(descriptor, mode)
        if self.answers:
            self.path.chmod(self.answers.pop())


def test_permissions_set_while_the_others_arrive_are_taken(mirrored: Mirrored) -> None:
    here, agreed = mirrored.directory, AgreedTable.create(":memory:", Settings("0" * 32, Path("/"), "", b""))
    disk = Answered(here / "file")
    mirrored.make("")
    mirrored.put("file", b"content", 0o644)

    def equalise() -> None:
        with opened_folder(here, mirrored.device.volume.sealer, disk) as local:
            mirror = Mirror(local, mirrored.side(VolumeSide), agreed)
            trees, _ = mirror.look([b""], deep=True, tick=lambda: None)
            mirror.carry_out(plan(trees), lambda: None, Outcome())

    equalise()
    disk.answers.append(0o600)
    change_mode(mirrored, "file", 0o755)
    equalise()
    assert not disk.answers, "the other's permissions came"
    equalise()
    assert mirrored.node("file").mode == 0o100600, "the permissions from here are taken"
    equalise()
    assert mode_of(here, "file") == 0o600
    agreed.close()


@pytest.mark.parametrize("what", ["content", "permissions"])
def test_what_has_changed_in_the_volume_gets_no_further_name(mirrored: Mirrored, what: str) -> None:
    """It would count as what both sides have there, and never come to the disk."""
    mirrored.make("")
    mirrored.put("file", b"content")
    side = mirrored.side(VolumeSide)
    glimpse = (side.names(b"") or {})[b"file"]
    assert isinstance(glimpse, Glimpse)
    seen = side.examine(b"file", glimpse, content=True)
    if what == "content":
        mirrored.put("file", b"another")
    else:
        change_mode(mirrored, "file", 0o600)
    with pytest.raises(ChangedError):
        side.link(b"further", b"file", seen, None)
    assert mirrored.names() == {"file"}


def test_bits_that_are_not_mirrored_leave_both_sides_at_rest(mirrored: Mirrored) -> None:
    here = mirrored.directory
    mirrored.make("")
    mirrored.put("program", b"\x7fELF", 0o6755)
    mirrored.add()
    until(lambda: mode_of(here, "program") == 0o755, "the program")
    until(lambda: mirrored.facts().state == "watching", "the mirror to rest")

    def times() -> tuple[int, int]:
        return (here / "program").stat().st_ctime_ns, mirrored.node("program").ctime

    before = times()
    change_mode(mirrored, "program", 0o755)
    there = mirrored.node("program").ctime
    mirrored.device.reopen()  # everything is looked at again
    until(lambda: mirrored.facts().state == "watching", "the mirror to rest")
    assert times() == (before[0], there)
    assert mirrored.facts().problems == []


def mode_of(here: Path, name: str) -> int | None:
    return stat.S_IMODE((here / name).stat().st_mode) if (here / name).exists() else None


def change_mode(mirrored: Mirrored, path: str, mode: int) -> None:
    fs = mirrored.device.volume.fs
    with fs.state.transaction() as tx:
        fs.attributes.change(tx, mirrored.node(path), mode=mode)


def test_two_full_sides_are_merged(mirrored: Mirrored) -> None:
    here = mirrored.directory
    big = os.urandom((2 << 20) + 7)
    mirrored.make("")
    for name, content in {"same": big, "differs": b"there", "only-there": b"1"}.items():
        mirrored.put(name, content)
    for name, content in {"same": big, "differs": b"here", "only-here": b"2"}.items():
        (here / name).write_bytes(content)
    mirrored.evict()
    mirrored.add()
    until(lambda: mirrored.names() == mirrored.here() != set(), "the names to be equal")
    until(lambda: mirrored.facts().state == "watching", "the mirror to rest")
    assert not mirrored.is_here("same"), "what is equal need not be fetched to see that it is"
    mirrored.settle()
    [aside] = {name for name in mirrored.here() if "conflict" in name}
    assert mirrored.here() == {"same", "differs", "only-there", "only-here", aside}
    assert (here / "differs").read_bytes() == b"there"
    assert (here / aside).read_bytes() == b"here"
    assert aside.startswith("differs (conflict, ")


def test_a_renamed_tree_is_renamed_and_not_copied(mirrored: Mirrored) -> None:
    here = mirrored.directory
    for number in range(200):
        path = here / "old" / f"folder-{number % 10}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(2000))
    mirrored.add()
    mirrored.settle()
    mirrored.device.sync()
    fs = mirrored.device.volume.fs

    def chunks() -> int:
        with fs.state.transaction() as tx:
            return int(tx.execute("SELECT max(number) FROM chunk").fetchone()[0])

    nodes, before = {path: mirrored.node(path).id for path in ("old", "old/folder-3/file-33")}, chunks()
    (here / "new" / "deep").mkdir(parents=True)
    (here / "old").rename(here / "new" / "deep" / "tree")
    until(lambda: mirrored.find("new/deep/tree/folder-3/file-33"), "the rename")
    mirrored.settle()
    assert mirrored.node("new/deep/tree").id == nodes["old"]
    assert mirrored.node("new/deep/tree/folder-3/file-33").id == nodes["old/folder-3/file-33"]
    mirrored.device.sync()
    assert chunks() == before, "nothing is uploaded again"

    inode = (here / "new" / "deep" / "tree" / "folder-3" / "file-33").stat().st_ino
    with fs.state.transaction() as tx:
        fs.rename(tx, mirrored.node("new/deep").ino, b"tree", mirrored.node("").ino, b"back", 0)
    until(lambda: (here / "back").exists(), "the rename to come to the disk")
    mirrored.settle()
    assert (here / "back" / "folder-3" / "file-33").stat().st_ino == inode


@pytest.mark.parametrize("renamed", ["here", "in the volume"])
def test_what_waits_in_a_folder_goes_on_once_that_was_renamed(mirrored: Mirrored, renamed: str) -> None:
    """The file is open, so it waits at first."""
    here, fs = mirrored.directory, mirrored.device.volume.fs
    (here / "old" / "deep").mkdir(parents=True)
    (here / "old" / "deep" / "file").write_bytes(b"1")
    mirrored.add()
    mirrored.settle()
    with fs.state.transaction() as tx:
        handle = fs.open(tx, mirrored.node("old/deep/file").ino, os.O_WRONLY)
        fs.write(tx, mirrored.node("old/deep/file"), 0, b"2")
    until(lambda: mirrored.facts().state == "working", "the file to be waited for")
    if renamed == "here":
        (here / "old").rename(here / "new")
        until(lambda: mirrored.find("new"), "the rename to come to the volume")
    else:
        with fs.state.transaction() as tx:
            fs.rename(tx, mirrored.node("").ino, b"old", mirrored.node("").ino, b"new", 0)
        until(lambda: (here / "new").exists(), "the rename to come to the disk")
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    until(lambda: (here / "new" / "deep" / "file").read_bytes() == b"2", "the change to come to the disk")


@pytest.mark.parametrize("done", ["removed", "saved", "a folder"])
def test_what_a_program_of_the_volume_has_open_for_writing_stays(mirrored: Mirrored, done: str) -> None:
    here, fs = mirrored.directory, mirrored.device.volume.fs
    (here / "log").write_bytes(b"1\n")
    mirrored.add()
    mirrored.settle()
    with fs.state.transaction() as tx:
        handle = fs.open(tx, (inode := mirrored.node("log")).ino, os.O_WRONLY)
    (here / "log").unlink()
    if done == "saved":
        (here / "log").write_bytes(b"saved here")
    elif done == "a folder":
        (here / "log").mkdir()
    until(lambda: mirrored.facts().problems, "the mirror to find the program")
    assert mirrored.facts().problems[0].why == "a program has it open for writing"
    with fs.state.transaction() as tx:
        fs.write(tx, fs.handle(handle), 2, b"2\n")
        fs.release(tx, handle)
    until(lambda: (here / "log").is_file() and (here / "log").read_bytes() == b"1\n2\n", "what it wrote")
    mirrored.settle()
    assert mirrored.node("log").id == inode.id
    assert len(mirrored.here()) == (1 if done == "removed" else 2)


def test_what_is_moved_across_the_border_of_a_contributors_folder_is_copied(mirrored: Mirrored) -> None:
    here, volume = mirrored.directory, mirrored.device.volume
    for folder in ("shared", "private"):
        (here / folder).mkdir()
        (here / folder / "file").write_bytes(folder.encode())
    mirrored.add()
    mirrored.settle()
    volume.sharing.membership.admit(Member(DeviceKey.generate().public, "tablet"))
    volume.set_role("tablet", folders=["plain/shared"])
    before = mirrored.node("shared/file").id
    (here / "shared" / "file").rename(here / "private" / "moved")
    until(lambda: mirrored.find("private/moved") and not mirrored.find("shared/file"), "the move")
    mirrored.settle()
    assert mirrored.node("private/moved").id != before
    assert (here / "private" / "moved").read_bytes() == b"shared"
    assert mirrored.facts().problems == []


def test_what_editors_leave_behind_stays_here(mirrored: Mirrored) -> None:
    here = mirrored.directory
    passing = {".file.swp", "file~", "4913", ".goutputstream-X", "~$file.docx", ".~lock.file.odt#", "#file#"}
    mirrored.add("*.o", "build/", "!keep.o")
    (here / "build").mkdir()
    for name in (*passing, "object.o", "build/x", "keep.o", "file"):
        (here / name).write_bytes(b"x")
    (here / "new").write_bytes(b"saved as editors do")
    (here / "new").rename(here / "file")
    until(lambda: mirrored.names() >= {"file", "keep.o"}, "the files to come")
    until(lambda: mirrored.facts().state == "watching", "the mirror to rest")
    assert mirrored.names() == {"file", "keep.o"}
    assert mirrored.content("file") == b"saved as editors do"


def test_it_goes_on_after_a_restart(mirrored: Mirrored) -> None:
    here = mirrored.directory
    (here / "removed").write_bytes(b"1")
    (here / "edited").write_bytes(b"1")
    mirrored.add()
    mirrored.settle()
    mirrored.device.close()
    (here / "removed").unlink()
    (here / "edited").write_bytes(b"2")
    (here / "new").write_bytes(b"3")
    mirrored.device.reopen()
    until(lambda: mirrored.find("new"), "what was made meanwhile")
    mirrored.settle()
    assert mirrored.names() == {"edited", "new"}
    assert mirrored.content("edited") == b"2"


def test_a_volume_older_than_the_record_of_it_removes_nothing(mirrored: Mirrored, tmp_path: Path) -> None:
    here = mirrored.directory
    (here / "first").write_bytes(b"1")
    mirrored.add()
    mirrored.settle()
    mirrored.device.close()
    shutil.copy(mirrored.device.state / "volume.db", tmp_path / "backup.db")
    mirrored.device.reopen()
    (here / "second").write_bytes(b"2")
    mirrored.settle()
    mirrored.device.close()
    for path in mirrored.device.state.glob("volume.db*"):
        path.unlink()
    shutil.copy(tmp_path / "backup.db", mirrored.device.state / "volume.db")
    mirrored.device.reopen()
    until(lambda: mirrored.find("second"), "what the backup lacks to come back")
    mirrored.settle()
    assert mirrored.here() == {"first", "second"}


def test_removing_a_mirror_leaves_both_sides(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"1")
    mirrored.add()
    mirrored.settle()
    mirrored.device.volume.mirrors.remove(mirrored.directory)
    assert mirrored.device.volume.mirrors.all() == []
    assert mirrored.names() == mirrored.here() == {"file"}
    assert not (mirrored.directory / os.fsdecode(MARKER)).exists()
    with pytest.raises(UsageError, match="not mirrored"):
        mirrored.device.volume.mirrors.remove(mirrored.directory)
    mirrored.device.reopen()
    assert mirrored.device.volume.mirrors.all() == []


def test_mirrors_of_one_folder_of_the_volume_do_not_overlap(mirrored: Mirrored, tmp_path: Path) -> None:
    mirrored.add()
    with pytest.raises(UsageError, match="overlaps"):
        Mirrored(mirrored.device, tmp_path).add()
