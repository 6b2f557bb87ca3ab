"""Conflict copies have versions like any other file, under the names that they are shown by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hybrisfs.versions.catalog import Catalog
from hybrisfs.versions.retention import DEFAULT_RETENTION
from tests.merge.fleet import Device, Fleet
from tests.versions.support import Clock


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    fleet = clock.fleet(2)
    yield fleet
    fleet.discard()


@contextmanager
def catalog(device: Device) -> Iterator[Catalog]:
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        yield Catalog(db, DEFAULT_RETENTION)


def sizes(device: Device, name: str) -> list[int]:
    with catalog(device) as found:
        return [one.size for one in found.versions([b"folder", name.encode()])]


def edit_at_once(fleet: Fleet, clock: Clock) -> None:
    """Both change a file that both have."""
    one, two = fleet[0], fleet[1]
    one.mkdir("folder")
    one.write("folder/file", b"1")
    fleet.meet()
    clock.tick()
    one.write("folder/file", b"22")
    two.write("folder/file", b"333")


def copy_of_an_edit(fleet: Fleet, clock: Clock) -> str:
    """The name that the later of two edits has got."""
    one, two = fleet[0], fleet[1]
    edit_at_once(fleet, clock)
    one.sign()
    two.receive(one.log())  # what is not signed here goes on beside it
    fleet.meet()
    (copy,) = {path for path in two.tree() if path.startswith("folder/file (")}
    clock.tick()
    return copy.removeprefix("folder/")


def test_a_copy_has_its_versions_by_its_own_name(fleet: Fleet, clock: Clock) -> None:
    copy = copy_of_an_edit(fleet, clock)
    for device in fleet.devices:
        with catalog(device) as found:
            assert set(found.names([b"folder"])) == {b"file", copy.encode()}
    fleet[0].write(f"folder/{copy}", b"4444")
    fleet.meet()
    for device in fleet.devices:
        assert sizes(device, copy) == [4, 3]
        assert sizes(device, "file") == [2, 1]


def test_a_copy_that_is_removed_is_among_what_is_removed(fleet: Fleet, clock: Clock) -> None:
    copy = copy_of_an_edit(fleet, clock)
    fleet[0].remove(f"folder/{copy}")
    fleet.meet()
    for device in fleet.devices:
        with catalog(device) as found:
            assert [(one.path, one.size) for one in found.removed([b"folder"])] == [(f"folder/{copy}", 3)]
        assert sizes(device, copy) == [3]


def test_concurrent_versions_of_one_file_each_have_the_versions_before(fleet: Fleet, clock: Clock) -> None:
    edit_at_once(fleet, clock)
    fleet.sign()  # before either hears of the other
    fleet.meet()
    content = {path: len(entry.content) for path, entry in fleet[0].tree().items() if entry.content}
    assert sorted(content.values()) == [2, 3]
    for device in fleet.devices:
        for path, size in content.items():
            assert sizes(device, path.removeprefix("folder/")) == [size, 1]
        with catalog(device) as found:
            assert len(found.names([b"folder"])) == 2


def test_of_two_new_files_that_lost_the_name_each_comes_back_by_its_own(fleet: Fleet, clock: Clock) -> None:
    one, two = fleet[0], fleet[1]
    one.mkdir("folder")
    fleet.meet()
    for device in fleet.devices:
        device.write("folder/file", b"x" * (1 + fleet.devices.index(device)))
    fleet.meet()
    (copy,) = {path for path in two.tree() if path.startswith("folder/file (")}
    clock.tick()
    one.remove(copy)
    fleet.meet()
    with catalog(two) as found:
        (removed,) = found.removed([b"folder"])
    assert removed.path == copy
    assert sizes(two, copy.removeprefix("folder/")) == [removed.size]


def test_equal_files_that_are_seen_as_one_have_the_versions_of_both(fleet: Fleet, clock: Clock) -> None:
    one, two = fleet[0], fleet[1]
    one.mkdir("folder")
    fleet.meet()
    for content in ("1", "same"):
        one.write("folder/file", content.encode())
        two.write("folder/file", content.replace("1", "22").encode())
        fleet.sign()  # before either hears of the other
        clock.tick()
    fleet.meet()
    assert [path for path in one.tree() if path.startswith("folder/file")] == ["folder/file"]
    for device in fleet.devices:
        assert set(sizes(device, "file")) == {4, 1, 2}


def test_a_file_that_another_one_replaced_is_not_called_removed(fleet: Fleet, clock: Clock) -> None:
    one = fleet[0]
    one.mkdir("folder")
    one.write("folder/file", b"1")
    one.sign()
    clock.tick()
    one.write("folder/new", b"22")
    one.move("folder/new", "folder/file")
    one.sign()
    clock.tick()
    one.remove("folder/file")
    one.write("folder/file", b"333")
    one.sign()
    with catalog(one) as found:
        assert found.removed([b"folder"]) == []


def test_a_conflict_name_that_nothing_ever_had(fleet: Fleet, clock: Clock) -> None:
    copy = copy_of_an_edit(fleet, clock)
    assert sizes(fleet[0], copy.replace("conflict, bob", "conflict, eve")) == []
