"""A folder that one device mirrors, and another one uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mirror.rig import Mirrored, until
from tests.volume.device import Device, Second


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Mirrored, Mirrored]]:
    """The volume on another device, and a folder that mirrors it here."""
    with ExitStack() as stack:
        (tmp_path / "there").mkdir()
        (tmp_path / "here").mkdir()
        first = Device(tmp_path / "there")
        stack.callback(first.close)
        second = Second(tmp_path / "here", first)
        stack.callback(second.close)
        directory = tmp_path / "here" / "plain"
        directory.mkdir()
        other = Mirrored(first, directory)
        other.make("")
        here = Mirrored(second, directory)
        until(lambda: here.find(""), "the folder to come")
        here.add()
        yield other, here


def test_what_the_other_does_comes_here_and_back(two: tuple[Mirrored, Mirrored]) -> None:
    there, here = two
    there.put("from-there", b"1")
    until(lambda: "from-there" in here.here(), "the other's file")
    assert (here.directory / "from-there").read_bytes() == b"1"
    (here.directory / "from-here").write_bytes(b"2")
    until(lambda: there.find("from-here"), "the file from here")
    assert there.content("from-here") == b"2"
    there.put("from-there", b"changed")
    until(lambda: (here.directory / "from-there").read_bytes() == b"changed", "the change")
    there.delete("from-here")
    until(lambda: here.here() == {"from-there"}, "the deletion")


def test_what_no_program_can_have_made_stops_nothing(two: tuple[Mirrored, Mirrored]) -> None:
    """A member signs it all the same: it counts for nobody."""
    there, here = two
    fs = there.device.volume.fs
    with fs.state.transaction() as tx:
        folder = there.node("")
        fs.make(tx, folder.ino, b"link", 0o120777, 0, 0, target=b"to\0nowhere")
        fs.make(tx, folder.ino, b"to-nothing", 0o120777, 0, 0, target=b"")
        odd = fs.make(tx, folder.ino, b"odd", 0o100644, 0, 0)
        fs.attributes.set_xattr(tx, odd, b"user.odd\0name", b"value", 0)
        file = fs.make(tx, folder.ino, b"file", 0o100644, 0, 0)
        fs.attributes.set_xattr(tx, file, b"user.colour", b"green", 0)
    until(lambda: here.here() == {"file"}, "the file")
    assert os.getxattr(here.directory / "file", "user.colour") == b"green"
    assert here.facts().problems == []
    there.put("later", b"later")
    until(lambda: here.here() == {"file", "later"}, "the next file")


def test_what_both_change_at_once_is_kept_twice(two: tuple[Mirrored, Mirrored]) -> None:
    there, here = two
    there.put("file.txt", b"first")
    until(lambda: here.here() == {"file.txt"}, "the file")
    until(lambda: here.facts().state == "watching", "the mirror to rest")
    content = os.urandom(1000)
    (here.directory / "file.txt").write_bytes(content)
    there.put("file.txt", b"theirs")

    def both() -> bool:
        contents = {path.read_bytes() for path in here.directory.glob("file*")}
        return contents == {content, b"theirs"} == {there.content(name) for name in there.names()}

    until(both, "both versions on both sides")
    assert {name for name in there.names() if "conflict" not in name} == {"file.txt"}
