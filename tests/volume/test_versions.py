"""Versions of a real volume, without a mount: listed, read, restored; what fsck says of them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hybrisfs.api.status import VersionRoom
from hybrisfs.api.versions import Version
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.versions.tree import VersionTree, format_moment, parse_moment
from hybrisfs.volume.versions import Restorer, What
from hybrisfs.write.layout import ChunkLimits
from hybrisfs.write.relayer import Uploads
from tests.tree.unlocked import unlocked
from tests.volume.device import NAME, PATIENCE, Device

SECOND = 10**9


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    yield device
    device.close()


def sign(device: Device) -> str:
    """What is there is a version now; a moment at which it is what is there, in whole seconds."""
    assert device.volume.uploads.wait_signed(PATIENCE)
    device.volume.committer.commit_now()
    moment = (
        unlocked(device.volume.fs).execute("SELECT max(moment) FROM log").fetchone()[0] // SECOND + 1
    ) * SECOND
    while time.time_ns() < moment + SECOND // 10:
        time.sleep(0.02)  # the next version begins later
    return format_moment(moment)


def versions(device: Device, path: str) -> list[Version]:
    return device.volume.versions.all(path).versions


def read(device: Device, path: str, at: str | None = None, number: int | None = None) -> bytes:
    reader = device.volume.versions.reader(path, at, number)
    return reader.read(0, reader.size)


def remove(device: Device, name: str) -> None:
    with device.volume.fs.state.transaction() as tx:
        device.volume.fs.unlink(tx, ROOT_INO, name.encode())


def rename(device: Device, name: str, to: str) -> None:
    with device.volume.fs.state.transaction() as tx:
        device.volume.fs.rename(tx, ROOT_INO, name.encode(), ROOT_INO, to.encode(), 0)


def test_a_file_that_is_saved_by_putting_another_in_its_place(device: Device) -> None:
    """Its versions are those of all files that had the name."""
    device.write("notes", b"one")
    first = sign(device)
    device.write("notes", b"two")
    sign(device)
    device.write("notes.tmp", b"three")
    rename(device, "notes.tmp", "notes")
    sign(device)
    listed = versions(device, "notes")
    assert [one.size for one in listed] == [5, 3, 3]
    assert listed[0].kept_until is None
    assert all((one.kept_until or 0) > time.time() for one in listed[1:])
    assert {one.device for one in listed} == {device.volume.sharing.membership.own_name}
    assert read(device, "notes") == b"two"
    assert read(device, "notes", number=2) == b"one"
    assert read(device, "notes", at=first) == b"one"
    assert device.fsck(clouds=True).problems == []


def test_who_changed_what_when(device: Device) -> None:
    device.write("draft", b"one")
    sign(device)
    rename(device, "draft", "letter")
    sign(device)
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        inode = fs.locate(tx, [b"letter"])
        assert inode is not None
        fs.attributes.change(tx, inode, mode=0o600)
    sign(device)
    remove(device, "letter")
    sign(device)
    found = device.volume.versions.log("letter", 10).changes
    assert [one.what for one in found] == [
        ["removed: letter"],
        ["mode: 0644 -> 0600"],
        ["named: letter"],
    ]
    assert {one.device for one in found} == {device.volume.sharing.membership.own_name}
    draft = device.volume.versions.log("draft", 10).changes
    assert draft[-1].what == ["made: draft", "content: 3 bytes"]
    with pytest.raises(HybrisError, match="none is known") as missing:
        device.volume.versions.log("nothing", 10)
    assert missing.value.exit_code == 1, "what is not there is no wrong usage"


def test_restoring_is_a_new_version_and_uploads_nothing(device: Device) -> None:
    old = random.Random(1).randbytes(3 << 20)
    device.write("big", old)
    device.sync()
    device.write("big", b"new")
    device.sync()
    device.volume.drop_cache()
    stored = sum(path.stat().st_size for path in device.clouds[0].rglob("packs/*/*"))
    assert device.volume.versions.restore("big", None, None, None).files == 1
    device.sync()
    assert sum(path.stat().st_size for path in device.clouds[0].rglob("packs/*/*")) == stored
    assert device.read("big") == old
    assert [one.size for one in versions(device, "big")] == [3 << 20, 3, 3 << 20]
    assert read(device, "big") == b"new"
    device.volume.versions.restore("big", None, 1, "copies/big")
    folder = device.volume.fs.lookup(unlocked(device.volume.fs), ROOT_INO, b"copies")
    assert folder is not None
    assert device.volume.fs.lookup(unlocked(device.volume.fs), folder.ino, b"big") is not None
    assert device.fsck().problems == []


def test_what_is_not_signed_yet_when_it_is_overwritten_by_restoring_is_kept(device: Device) -> None:
    device.write("file", b"old")
    sign(device)
    device.write("file", b"new")
    sign(device)
    device.write("file", b"just written")
    device.volume.versions.restore("file", None, 1, None)
    sign(device)
    assert device.read("file") == b"new"
    assert read(device, "file") == b"just written"


def test_what_programs_write_while_a_folder_is_restored_is_kept(device: Device) -> None:
    for name in ("a", "b"):
        device.write(name, b"old")
    then = sign(device)
    for name in ("a", "b"):
        device.write(name, b"new")
    sign(device)
    programs = iter([lambda: device.write("b", b"just written")])
    device.volume.fs.shown.listen(lambda changes: next(programs, lambda: None)())
    assert device.volume.versions.restore("", then, None, None).files == 2
    sign(device)
    assert (device.read("a"), device.read("b")) == (b"old", b"old")
    assert read(device, "b") == b"just written"


@pytest.mark.parametrize("cached", [True, False])
def test_a_program_goes_on_with_a_large_file_that_is_restored_while_it_is_open(
    tmp_path: Path, cached: bool
) -> None:
    device = Device(tmp_path, limits=[ChunkLimits(1 << 14, small=0, direct_runs=2, runs_per_page=4)])
    try:
        old = random.Random(1).randbytes(1 << 18)
        device.write("file", old)
        then = sign(device)
        device.write("file", b"new")
        device.sync()
        if not cached:
            device.volume.drop_cache()
        fs = device.volume.fs
        with fs.state.transaction() as tx:
            inode = fs.lookup(tx, ROOT_INO, b"file")
            assert inode is not None
            handle = fs.open(tx, inode.ino, os.O_RDWR)
        device.volume.versions.restore("file", then, None, None)
        assert device.read("file") == old
        device.write_at(handle, 100, b"by the program")
        with fs.state.transaction() as tx:
            fs.release(tx, handle)
        device.sync()
        assert device.fsck().problems == []
        assert read(device, "file", number=0) == old[:100] + b"by the program" + old[114:]
    finally:
        device.close()


def test_a_file_that_is_written_all_the_time_is_not_restored(device: Device) -> None:
    device.write("file", b"old")
    then = sign(device)
    device.write("file", b"new")
    sign(device)
    with device.volume.fs.state.snapshot() as db:
        node = VersionTree(db, parse_moment(then) or 0).find([b"file"])
    assert node is not None

    class WrittenAgain(Uploads):
        """A program writes as soon as all is signed."""

        def __init__(self) -> None:
            pass

        def wait_signed(self, timeout: float) -> bool:
            device.write("file", b"newest")
            return True

    device.write("file", b"newest")
    restorer = Restorer(device.volume.fs, device.volume.fetcher, WrittenAgain())
    outcome = restorer.put([b"file"], node.attr, node.content)
    assert outcome.what is What.LEFT and "is writing" in str(outcome.error)
    assert device.read("file") == b"newest"


def test_removed_files_and_folders_come_back(device: Device) -> None:
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        folder = fs.make(tx, ROOT_INO, b"folder", 0o40750, 1, 1)
        inner = fs.make(tx, folder.ino, b"inner", 0o40755, 1, 1)
        for name, content in ((b"file", b"content"), (b"other", b"")):
            inode, handle = fs.create(tx, inner.ino, name, 0o600, 1, 1, os.O_WRONLY)
            fs.write(tx, inode, 0, content)
            fs.release(tx, handle)
        fs.make(tx, folder.ino, b"link", 0o120777, 1, 1, target=b"inner/file")
        fs.set_xattr(tx, folder, b"user.key", b"value", 0)
        fs.labels.add(tx, folder, ["kept", "here"])
    device.write("lonely", b"one of a kind")
    then = sign(device)
    with fs.state.transaction() as tx:
        for name in (b"file", b"other"):
            fs.unlink(tx, inner.ino, name)
        fs.rmdir(tx, folder.ino, b"inner")
        fs.unlink(tx, folder.ino, b"link")
        fs.rmdir(tx, ROOT_INO, b"folder")
        fs.unlink(tx, ROOT_INO, b"lonely")
    sign(device)
    removed = device.volume.versions.removed("").removed
    assert {(one.path, one.kind, one.size) for one in removed} == {
        ("folder", "folder", 0),
        ("lonely", "file", 13),
    }
    inside = device.volume.versions.removed("folder/inner").removed
    assert {one.path for one in inside} == {"folder/inner/file", "folder/inner/other"}
    assert read(device, "folder/inner/file") == b"content"
    device.volume.versions.restore("lonely", None, None, None)
    assert device.read("lonely") == b"one of a kind"
    assert device.volume.versions.restore("folder", then, None, None).files == 3
    with fs.state.transaction() as tx:
        folder_again = fs.lookup(tx, ROOT_INO, b"folder")
        assert folder_again is not None
        assert folder_again.mode == 0o40750
        assert fs.attributes.get_xattr(tx, folder_again, b"user.key") == b"value"
        assert fs.labels.of(tx, folder_again) == ["here", "kept"]
        link = fs.lookup(tx, folder_again.ino, b"link")
        assert link is not None
        assert link.target == b"inner/file"
    assert device.volume.versions.restore("", then, None, "all of it").files == 4
    sign(device)
    assert device.volume.versions.removed("").removed == []
    assert device.fsck().problems == []


def make_folder(device: Device, name: str, files: Mapping[str, bytes]) -> None:
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        folder = fs.make(tx, ROOT_INO, name.encode(), 0o40755, 1, 1)
        for each, content in files.items():
            inode, handle = fs.create(tx, folder.ino, each.encode(), 0o600, 1, 1, os.O_WRONLY)
            fs.write(tx, inode, 0, content)
            fs.release(tx, handle)


def test_the_whole_volume_is_restored_as_the_preview_says(device: Device) -> None:
    device.write("same", b"same")
    device.write("changed", b"before")
    device.write("unsigned", b"before")
    make_folder(device, "folder", {"gone": b"gone", "stays": b"stays"})
    then = sign(device)
    device.write("changed", b"after it")
    device.write("new", b"new")
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        folder = fs.lookup(tx, ROOT_INO, b"folder")
        assert folder is not None
        fs.unlink(tx, folder.ino, b"gone")
    sign(device)
    device.write("unsigned", b"just written")
    written = {name: len(versions(device, name)) for name in ("same", "folder/stays", "new")}

    preview = device.volume.versions.preview("", then, None, 100)
    assert [(one.path, one.what, one.kind, one.size) for one in preview.changes] == [
        ("changed", "changed", "file", 6),
        ("folder/gone", "made", "file", 4),
        ("unsigned", "changed", "file", 6),
    ]
    assert (preview.made, preview.changed, preview.left, preview.same) == (1, 2, 0, 2)
    assert device.read("changed") == b"after it", "a preview changes nothing"
    assert len(device.volume.versions.preview("", then, None, 1).changes) == 1

    restored = device.volume.versions.restore("", then, None, None)
    assert (restored.files, restored.left) == (3, [])
    sign(device)
    assert (device.read("changed"), device.read("unsigned")) == (b"before", b"before")
    assert read(device, "folder/gone", number=0) == b"gone"
    assert device.read("new") == b"new"
    assert read(device, "unsigned", number=1) == b"just written"
    # What was as it was then is left alone.
    assert {name: len(versions(device, name)) for name in written} == written
    after = device.volume.versions.preview("", then, None, 100)
    assert (after.changes, after.same) == ([], 5)
    assert device.fsck().problems == []


def test_what_of_a_folder_cannot_be_restored_is_told_and_the_rest_is_restored(device: Device) -> None:
    for name in ("a-lost", "b-blocked", "c-fine"):
        device.write(name, f"{name} before".encode())
    then = sign(device)
    for name in ("a-lost", "c-fine"):
        device.write(name, b"after")
    remove(device, "b-blocked")
    make_folder(device, "b-blocked", {})
    sign(device)
    with device.volume.fs.state.transaction() as tx:
        tx.execute("DELETE FROM chunk WHERE length = 13 AND number = (SELECT min(number) FROM chunk)")
    preview = device.volume.versions.preview("", then, None, 100)
    told = {one.path: (one.what, one.why) for one in preview.changes}
    lost = "that version of a-lost cannot be restored: no cloud has its bytes"
    blocked = "b-blocked cannot be restored: something else has that name now"
    assert told == {"a-lost": ("left", lost), "b-blocked": ("left", blocked), "c-fine": ("changed", "")}
    restored = device.volume.versions.restore("", then, None, None)
    assert [(one.path, one.why) for one in restored.left] == [("a-lost", lost), ("b-blocked", blocked)]
    assert (restored.files, restored.left_files) == (1, 2)
    assert (device.read("a-lost"), device.read("c-fine")) == (b"after", b"c-fine before")


def test_a_folder_is_listed_as_it_was(device: Device) -> None:
    make_folder(device, "folder", {"one": b"1", "three": b"333", "two": b"22"})
    then = sign(device)
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        folder = fs.lookup(tx, ROOT_INO, b"folder")
        assert folder is not None
        for name in (b"one", b"two"):
            fs.unlink(tx, folder.ino, name)
    now = sign(device)
    ask = device.volume.versions
    first = ask.folder("folder", then, "", 2)
    assert [(one.name, one.kind, one.size) for one in first.entries] == [
        ("one", "file", 1),
        ("three", "file", 3),
    ]
    assert first.more
    last = ask.folder("folder", then, "three", 2)
    assert ([one.name for one in last.entries], last.more) == (["two"], False)
    assert [one.name for one in ask.folder("folder", now, "", 10).entries] == ["three"]
    assert [one.kind for one in ask.folder("", now, "", 10).entries] == ["folder"]
    for path, match, code in (
        ("folder/three", "was not a folder then", 2),
        ("folder/one", "as far as this machine knows", 1),
    ):
        with pytest.raises(HybrisError, match=match) as refused:
            ask.folder(path, now, "", 10)
        assert refused.value.exit_code == code


@pytest.mark.parametrize("folder", ["there", "."])
def test_of_a_folder_without_a_moment_it_is_said_what_to_ask(device: Device, folder: str) -> None:
    device.volume.fs.make(unlocked(device.volume.fs), ROOT_INO, b"there", 0o40755, 1, 1)
    device.write("file", b"content")
    sign(device)
    with pytest.raises(UsageError, match=r"is a folder, and has no versions of its own\n.*--at"):
        versions(device, folder)
    with pytest.raises(UsageError, match="is a folder"):
        read(device, folder)
    with pytest.raises(UsageError, match="is a folder"):
        device.volume.versions.restore(folder, None, None, None)


def test_what_cannot_be_asked_for(device: Device) -> None:
    device.write("file", b"content")
    then = sign(device)
    ask = device.volume.versions
    for path in ("nothing", "file/inside"):
        with pytest.raises(HybrisError) as missing:
            ask.all(path)
        assert missing.value.exit_code == 1
    with pytest.raises(HybrisError, match="no version 7") as missing:
        ask.reader("file", None, 7)
    assert missing.value.exit_code == 1
    with pytest.raises(HybrisError, match="no version of file is kept but what is there now"):
        ask.reader("file", None, None)
    with pytest.raises(UsageError, match="not a moment"):
        ask.reader("file", "yesterday", None)
    with pytest.raises(HybrisError, match="as far as this machine knows") as missing:
        ask.restore("file", "2001-01-01", None, None)
    assert missing.value.exit_code == 1
    with pytest.raises(UsageError, match="it is the past"):
        ask.restore("file", then, None, ".hybrisfs/file")
    device.volume.fs.make(unlocked(device.volume.fs), ROOT_INO, b"folder", 0o40755, 1, 1)
    with pytest.raises(UsageError, match="something else has that name"):
        ask.restore("file", then, None, "folder")
    with pytest.raises(UsageError, match="something else has that name"):
        ask.restore("file", then, None, "file/below")


def test_a_version_whose_bytes_are_nowhere_is_counted_and_not_restored(device: Device) -> None:
    device.write("file", b"old")
    device.sync()
    device.write("file", b"new")
    device.sync()
    with device.volume.fs.state.transaction() as tx:
        tx.execute("DELETE FROM chunk WHERE length = 3 AND number = (SELECT min(number) FROM chunk)")
    with pytest.raises(HybrisError, match="no cloud has its bytes"):
        device.volume.versions.restore("file", None, 1, None)
    assert device.fsck().checked["versions that cannot be read any more"] == 1


def test_a_version_that_is_not_what_its_update_wrote_is_found(device: Device) -> None:
    device.write("file", b"old")
    sign(device)
    device.write("file", b"new")
    sign(device)
    assert device.fsck().problems == []
    with device.volume.fs.state.transaction() as tx:
        tx.execute("UPDATE past SET value = x'00' WHERE key >= x'63' AND key < x'64'")
    assert ["is not what that wrote" in one.what for one in device.fsck().problems] == [True]


def test_the_rule_is_kept(device: Device) -> None:
    device.volume.settings.edit({"keep_versions": "all:2d,room:1G"})
    kept = "all:2d,daily:7d,weekly:31d,monthly:366d,room:1G"
    assert device.volume.settings.entries().keep_versions == kept
    device.reopen()
    assert VolumeConfig.load(device.home, NAME).keep_versions.room == 1 << 30
    assert str(device.volume.versions.rule).startswith("all:2d")
    device.volume.settings.edit({"keep_versions": "off"})
    device.write("file", b"old")
    sign(device)
    device.write("file", b"new")
    sign(device)
    assert len(versions(device, "file")) == 1
    assert device.volume.status().versions == VersionRoom("off", 0, 0)
