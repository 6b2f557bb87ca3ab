"""Importing folders: whole, verified, resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import pytest

from hybrisfs.api.mirrors import Imported
from hybrisfs.mirror.engine import Original
from hybrisfs.mirror.importer import Importer, ImportReport
from hybrisfs.mirror.model import Seen
from hybrisfs.mirror.volume_side import VolumeSide
from tests.mirror.rig import Mirrored, opened_folder
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


class Wrapped:
    """An original whose blocks pass through a function."""

    def __init__(self, original: Original, through: Callable[[bytes], bytes]) -> None:
        self._original = original
        self._through = through

    @property
    def seen(self) -> Seen:
        return self._original.seen

    @property
    def own_bits(self) -> int:
        return self._original.own_bits

    @property
    def xattrs(self) -> Mapping[bytes, bytes]:
        return self._original.xattrs

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        return ((offset, self._through(data)) for offset, data in self._original.blocks())


class Target(VolumeSide):
    """A folder of the volume of which a test knows what is written to it, and meddles with that."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.written: list[bytes] = []
        self.through: Callable[[bytes], bytes] = bytes
        self.afterwards: Callable[[], object] = lambda: None

    def write(self, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        self.written.append(path)
        stored = super().write(path, Wrapped(original, self.through), replaces)
        self.afterwards()
        return stored


@pytest.fixture
def target(mirrored: Mirrored) -> Target:
    mirrored.make("")
    return mirrored.side(Target)


def bring_in_to(mirrored: Mirrored, target: Target) -> ImportReport:
    """As `bring_in` does, but to that target."""
    volume = mirrored.device.volume
    with opened_folder(mirrored.directory, volume.sealer, tidies=False) as folder:
        return Importer(folder, target, volume.committer, lambda *_: None, dry_run=False, replace=False).run()


def evil(data: bytes) -> bytes:
    return data.replace(b"good", b"evil")


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
    with fs.state.transaction() as tx:
        assert fs.attributes.get_xattr(tx, file, b"user.colour") == b"green"


def test_what_is_there_is_not_copied_again(mirrored: Mirrored, source: Path, target: Target) -> None:
    bring_in(mirrored)
    (source / "new").write_bytes(b"new")
    node = mirrored.node("folder/file").id
    report = bring_in_to(mirrored, target)
    assert target.written == [b"new"]
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


def test_what_cannot_be_copied_is_gathered(mirrored: Mirrored, source: Path, target: Target) -> None:
    os.mkfifo(source / "pipe")
    (source / "file-that-fails").write_bytes(b"fails")

    def fail(data: bytes) -> bytes:
        if data == b"fails":
            raise OSError(5, "Input/output error")
        return data

    target.through = fail
    report = bring_in_to(mirrored, target)
    assert dict(report.problems) == {
        b"pipe": "is a device, a socket or a pipe: these are not mirrored",
        b"file-that-fails": "Input/output error",
    }
    assert mirrored.find("file-that-fails") is None
    assert mirrored.find("sparse") is not None


def test_what_was_stored_is_compared_with_what_was_read(mirrored: Mirrored, target: Target) -> None:
    (mirrored.directory / "file").write_bytes(b"good")
    target.through = evil
    [(path, why)] = bring_in_to(mirrored, target).problems
    assert path == b"file"
    assert "not what was read" in why


def test_it_is_compared_though_the_volume_has_signed_it_in_between(
    mirrored: Mirrored, target: Target
) -> None:
    (mirrored.directory / "file").write_bytes(b"good")

    def sign() -> None:
        assert mirrored.device.volume.uploads.wait_signed(PATIENCE)

    target.through, target.afterwards = evil, sign
    [(_, why)] = bring_in_to(mirrored, target).problems
    assert "not what was read" in why


def test_what_a_program_has_changed_in_between_is_not_compared(mirrored: Mirrored, target: Target) -> None:
    (mirrored.directory / "file").write_bytes(b"good")
    target.through, target.afterwards = evil, lambda: mirrored.put("file", b"better")
    assert bring_in_to(mirrored, target).problems == []
    assert mirrored.content("file") == b"better"


def test_a_file_that_changes_while_it_is_read_does_not_come_in_half(
    mirrored: Mirrored, target: Target
) -> None:
    path = mirrored.directory / "file"
    path.write_bytes(bytes(range(256)) * 8192)

    def disturb(data: bytes) -> bytes:
        path.write_bytes(b"short")
        return data

    target.through = disturb
    report = bring_in_to(mirrored, target)
    assert [one for one, _ in report.problems] == [b"file"]
    assert mirrored.find("file") is None
    assert bring_in(mirrored).problems == []
    assert mirrored.content("file") == b"short"


@pytest.mark.parametrize("when", ["while it is read", "before it is stored"])
def test_a_file_that_grows_is_named(mirrored: Mirrored, target: Target, when: str) -> None:
    """Who removes what was imported would lose the rest."""
    path = mirrored.directory / "log"
    path.write_bytes(b"1\n")

    def grow() -> None:
        with path.open("ab") as file:
            file.write(b"2\n")

    def disturb(data: bytes) -> bytes:
        grow()
        return data

    if when == "while it is read":
        target.through = disturb
    else:
        target.afterwards = grow
    [(name, why)] = bring_in_to(mirrored, target).problems
    assert (name, "--replace" in why) == (b"log", True)
    target.through, target.afterwards = bytes, lambda: None
    assert bring_in(mirrored, replace=True).problems == []
    assert mirrored.content("log") == path.read_bytes()
