"""Folders and files are looked at without a mount."""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

import pytest

from hybrisfs.api.files import Entry
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device

ROOT = PurePath()


def names(page: tuple[list[Entry], bool]) -> list[str]:
    return [one.name for one in page[0]]


def test_a_folder_page_by_page(device: Device) -> None:
    for number in range(5):
        device.write(f"file-{number}", b"x")
    browsing = device.volume.browsing
    first = browsing.folder(ROOT, "", 2)
    assert (names(first), first[1]) == (["file-0", "file-1"], True)
    second = browsing.folder(ROOT, "file-1", 3)
    assert (names(second), second[1]) == (["file-2", "file-3", "file-4"], False)
    assert names(browsing.folder(ROOT, "file-4", 3)) == []


def test_what_is_said_of_each_name(device: Device) -> None:
    fs = device.volume.fs
    odd = os.fsdecode(b"\xff<script>")
    with fs.state.transaction() as tx:
        folder = fs.make(tx, ROOT_INO, b"music", stat.S_IFDIR | 0o755, 1, 1)
        fs.make(tx, ROOT_INO, b"link", stat.S_IFLNK | 0o777, 1, 1, target=b"music")
        fs.labels.add(tx, fs.make(tx, folder.ino, os.fsencode(odd), stat.S_IFREG | 0o644, 1, 1), ["b", "a"])
    device.write("song", b"la" * 1000)
    device.sync()
    device.volume.content.pin(PurePath("music"))
    root, _ = device.volume.browsing.folder(ROOT, "", 10)
    entries = {one.name: one for one in root}
    assert {name: (one.kind, one.state, one.pinned) for name, one in entries.items()} == {
        "link": ("link", None, "no"),
        "music": ("folder", None, "yes"),
        "song": ("file", "durable", "no"),
    }
    assert entries["song"].size == 2000
    [inside], _ = device.volume.browsing.folder(PurePath("music"), "", 10)
    assert (inside.name, inside.pinned, inside.conflict) == (odd, "inherited", None)
    assert inside.labels == ["a", "b"]


def test_a_part_of_a_file_that_only_the_clouds_have(device: Device) -> None:
    data = os.urandom(3 << 20)
    device.write("song", data)
    device.sync()
    device.volume.drop_cache()
    part = device.volume.browsing.read(PurePath("song"), (1 << 20) - 5, 10)
    assert part == (len(data), data[(1 << 20) - 5 :][:10])
    assert device.volume.browsing.read(PurePath("song"), len(data), 10) == (len(data), b"")


@pytest.mark.parametrize("path", ["missing", "song/inside"])
def test_what_is_not_there(device: Device, path: str) -> None:
    device.write("song", b"la")
    with pytest.raises(HybrisError, match="No such file"):
        device.volume.browsing.folder(PurePath(path), "", 10)
    with pytest.raises(HybrisError, match="No such file"):
        device.volume.browsing.read(PurePath(path), 0, 10)


def test_a_folder_is_not_read_and_a_file_not_listed(device: Device) -> None:
    device.write("song", b"la")
    with pytest.raises(UsageError, match="not a folder"):
        device.volume.browsing.folder(PurePath("song"), "", 10)
    with pytest.raises(UsageError, match="not a regular file"):
        device.volume.browsing.read(ROOT, 0, 10)
