"""Importing folders: whole, verified, resumable."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any
from unittest import mock

import pytest

from hybrisfs.api.mirrors import Imported
from hybrisfs.mirror.model import Seen
from hybrisfs.mirror.volume_side import VolumeSide
from tests.mirror.rig import Mirrored
from tests.volume.device import PATIENCE


def bring_in(mirrored: Mirrored, *, dry_run: bool = False, replace: bool = False) -> Imported:
    steps: list[tuple[str, int, int]] = []
    report = mirrored.device.volume.mirrors.bring_in(
        mirrored.directory,
        PurePath("plain"),
        lambda *step: steps.append(step),
        dry_run=dry_run,
        replace=replace,
    )
    copied = [step for step in steps if step[0] == "copying"]
    assert all(done <= total for _, done, total in copied)
    return report


@pytest.fixture
def source(mirrored: Mirrored) -> Path:
    here = mirrored.directory
    (here / "folder").mkdir()
    (here / "folder" / "file").write_bytes(os.urandom((1 << 20) + 5))
    os.setxattr(here / "folder" / "file", "user.colour", b"green")
    os.link(here / "folder" / "file", here / "again")
    (here / "link").symlink_to("folder/file")
    with (here / "sparse").open("wb") as sparse:
        sparse.seek(40 << 20)
        sparse.write(b"end")
    (here / os.fsdecode(b"\xff")).write_bytes(b"x")
    os.utime(here / "again", ns=(5, 1_234_567_890_123_456_789))
    (here / "again").chmod(0o640)
    return here


def test_all_of_a_folder_comes(mirrored: Mirrored, source: Path) -> None:
    report = bring_in(mirrored)
    assert report.problems == []
    assert (report.folders, report.files, report.present) == (1, 5, 0)
    assert mirrored.tree() == mirrored.volume_tree()
    file, fs = mirrored.node("folder/file"), mirrored.device.volume.fs
    assert (file.mode & 0o777, file.mtime) == (0o640, 1_234_567_890_123_456_789)
    assert mirrored.node("again") is file
    assert file.nlink == 2
    assert mirrored.node("sparse").blocks * 512 <= 1 << 20
    with fs.lock:
        assert fs.attributes.get_xattr(file, b"user.colour") == b"green"


def test_what_is_there_is_not_copied_again(mirrored: Mirrored, source: Path) -> None:
    bring_in(mirrored)
    (source / "new").write_bytes(b"new")
    node = mirrored.node("folder/file").id
    with mock.patch.object(VolumeSide, "write", autospec=True, side_effect=VolumeSide.write) as write:
        report = bring_in(mirrored)
    assert [call.args[1] for call in write.call_args_list] == [b"new"]
    assert (report.files, report.present, report.problems) == (1, 6, [])
    assert mirrored.node("folder/file").id == node
    (source / "again").chmod(0o600)
    bring_in(mirrored)
    assert mirrored.node("folder/file").mode & 0o777 == 0o600


def test_a_dry_run_changes_nothing(mirrored: Mirrored, source: Path) -> None:
    report = bring_in(mirrored, dry_run=True)
    assert (report.folders, report.files) == (1, 5)
    assert mirrored.find("") is None


def test_what_differs_is_named_and_replaced_only_when_asked_for(mirrored: Mirrored, source: Path) -> None:
    bring_in(mirrored)
    (source / "sparse").write_bytes(b"another")
    mirrored.put("link-to-be", b"1")
    (source / "link-to-be").symlink_to("x")
    report = bring_in(mirrored)
    assert {one.path for one in report.problems} == {"sparse", "link-to-be"}
    assert mirrored.content("link-to-be") == b"1"
    report = bring_in(mirrored, replace=True)
    assert (report.replaced, report.problems) == (2, [])
    assert mirrored.content("sparse") == b"another"
    assert mirrored.node("link-to-be").target == b"x"


def test_what_cannot_be_copied_is_gathered(mirrored: Mirrored, source: Path) -> None:
    os.mkfifo(source / "pipe")
    (source / "file-that-fails").write_bytes(b"x")
    write = VolumeSide.write

    def fail(side: VolumeSide, path: bytes, *rest: Any) -> Any:
        if path == b"file-that-fails":
            raise OSError(5, "Input/output error")
        return write(side, path, *rest)

    with mock.patch.object(VolumeSide, "write", fail):
        report = bring_in(mirrored)
    assert {one.path: one.why for one in report.problems} == {
        "pipe": "is a device, a socket or a pipe: these are not mirrored",
        "file-that-fails": "Input/output error",
    }
    assert mirrored.find("file-that-fails") is None
    assert mirrored.find("sparse") is not None


def test_what_was_stored_is_compared_with_what_was_read(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"good")
    write = VolumeSide._write

    def damage(side: VolumeSide, handle: int, offset: int, data: bytes) -> None:
        write(side, handle, offset, data.replace(b"good", b"evil"))

    with mock.patch.object(VolumeSide, "_write", damage):
        report = bring_in(mirrored)
    [problem] = report.problems
    assert problem.path == "file"
    assert "not what was read" in problem.why


def test_it_is_compared_though_the_volume_has_signed_it_meanwhile(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"good")
    write, store = VolumeSide._write, VolumeSide.write

    def damage(side: VolumeSide, handle: int, offset: int, data: bytes) -> None:
        write(side, handle, offset, data.replace(b"good", b"evil"))

    def store_and_sign(side: VolumeSide, *rest: Any) -> Seen:
        stored = store(side, *rest)
        assert mirrored.device.volume.uploads.wait_signed(PATIENCE)
        return stored

    with mock.patch.multiple(VolumeSide, _write=damage, write=store_and_sign):
        report = bring_in(mirrored)
    [problem] = report.problems
    assert "not what was read" in problem.why


def test_what_a_program_has_changed_meanwhile_is_not_compared(mirrored: Mirrored) -> None:
    (mirrored.directory / "file").write_bytes(b"good")
    store = VolumeSide.write

    def store_and_change(side: VolumeSide, *rest: Any) -> Seen:
        stored = store(side, *rest)
        mirrored.put("file", b"better")
        return stored

    with mock.patch.object(VolumeSide, "write", store_and_change):
        report = bring_in(mirrored)
    assert report.problems == []
    assert mirrored.content("file") == b"better"


def test_a_file_that_changes_while_it_is_read_does_not_come_in_half(mirrored: Mirrored) -> None:
    path = mirrored.directory / "file"
    path.write_bytes(bytes(range(256)) * 8192)
    write = VolumeSide._write

    def disturb(side: VolumeSide, *rest: Any) -> None:
        path.write_bytes(b"short")
        write(side, *rest)

    with mock.patch.object(VolumeSide, "_write", disturb):
        report = bring_in(mirrored)
    assert [one.path for one in report.problems] == ["file"]
    assert mirrored.find("file") is None
    assert bring_in(mirrored).problems == []
    assert mirrored.content("file") == b"short"
