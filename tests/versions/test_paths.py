"""Which paths the folder of versions shows: those that there were, and no others."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.registers.tree import Attr
from hybrisfs.versions.browser import Child, VersionsByPath
from hybrisfs.versions.catalog import Catalog
from hybrisfs.versions.retention import DEFAULT_RETENTION
from hybrisfs.versions.tree import VersionNode
from tests.merge.fleet import Device
from tests.versions.support import Clock, UsualRetention

TOP = VersionNode((b"",), Attr(0o40555, 0, 0, 0, 0), None, 1)
LEVELS, RENAMES = 5, 4


class Walk:
    """All that is below the folder of versions, as `find` would list it."""

    def __init__(self, device: Device) -> None:
        self.folders: set[str] = set()
        self.versions: list[str] = []
        self.queries = 0
        device.rig.commit()
        with device.rig.db.snapshot() as db:
            db.set_trace_callback(self._count)
            self._walk(db, "", Child(b"", 0, TOP, VersionsByPath((), UsualRetention(), SYSTEM)))

    def _count(self, query: str) -> None:
        self.queries += 1

    def _walk(self, db: sqlite3.Connection, path: str, folder: Child) -> None:
        for one in folder.source.children(db, folder.node):
            if stat.S_ISDIR(one.node.attr.mode):
                where = f"{path}/{one.name.decode()}".lstrip("/")
                self.folders.add(where)
                self._walk(db, where, one)
            else:
                self.versions.append(path)


@pytest.fixture
def device(clock: Clock) -> Iterator[Device]:
    fleet = clock.fleet(1)
    yield fleet[0]
    fleet.discard()


def _sign(device: Device, clock: Clock) -> None:
    device.sign()
    clock.tick()


def test_folders_that_were_renamed_have_the_paths_that_they_had(device: Device, clock: Clock) -> None:
    names = [f"level{level}" for level in range(LEVELS)]
    for level in range(LEVELS):
        device.mkdir("/".join(names[: level + 1]))
    device.write("/".join([*names, "file"]), b"content")
    _sign(device, clock)
    had = {"/".join(names)}
    for number in range(RENAMES):
        for level in range(LEVELS):
            before = "/".join(names[: level + 1])
            names[level] = f"level{level}.{number}"
            device.move(before, "/".join(names[: level + 1]))
            _sign(device, clock)
            had.add("/".join(names))
    walk = Walk(device)
    assert len(had) == LEVELS * RENAMES + 1
    assert {path.removesuffix("/file") for path in walk.folders if path.endswith("/file")} == had
    assert sorted(walk.versions) == sorted(f"{path}/file" for path in had), "at each path its content"
    parts = {"/".join(path.split("/")[:deep]) for path in had for deep in range(1, LEVELS + 1)}
    assert walk.folders == parts | {f"{path}/file" for path in had}
    assert walk.queries < 50 * (len(walk.folders) + len(walk.versions))


def test_a_former_path_shows_what_was_there_then(device: Device, clock: Clock) -> None:
    device.mkdir("old")
    device.write("old/early", b"1")
    _sign(device, clock)
    device.write("old/gone", b"x")
    _sign(device, clock)
    device.remove("old/gone")
    _sign(device, clock)
    device.move("old", "new")
    _sign(device, clock)
    device.write("new/early", b"2")
    device.write("new/late", b"3")
    _sign(device, clock)
    walk = Walk(device)
    assert walk.folders == {"old", "old/early", "old/gone", "new", "new/early", "new/late"}
    # What is there now has all its versions under the path that it has now.
    assert sorted(walk.versions) == ["new/early", "new/early", "new/late", "old/early", "old/gone"]
    device.move("new", "old")
    _sign(device, clock)
    walk = Walk(device)
    assert walk.folders == {"old", "old/early", "old/gone", "old/late", "new", "new/early", "new/late"}


def test_what_is_put_into_a_folder_that_another_device_removes_has_its_versions(clock: Clock) -> None:
    fleet = clock.fleet(2)
    try:
        fleet[0].mkdir("folder")
        fleet[0].sign()
        fleet.meet()
        clock.tick()
        fleet[0].remove("folder")
        _sign(fleet[0], clock)
        fleet[1].write("folder/file", b"content")
        _sign(fleet[1], clock)
        fleet.meet()
        for device in (fleet[0], fleet[1]):
            assert "folder/file" in device.names()
            assert Walk(device).versions == ["folder/file"]
            with device.rig.db.snapshot() as db:
                assert len(Catalog(db, DEFAULT_RETENTION).versions([b"folder", b"file"])) == 1
    finally:
        fleet.discard()
