"""Conflicts are listed and settled on one device; then all devices agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.unseen import Change
from hybrisfs.volume.decisions import Conflicts
from tests.merge.fleet import Device, Fleet

Begin: TypeAlias = Callable[..., str]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def conflicts(device: Device) -> Conflicts:
    return Conflicts(device.rig.fs)


def tree(fleet: Fleet) -> dict[str, bytes]:
    """What all devices see after they have met."""
    fleet.meet()
    trees = [device.tree() for device in fleet.devices]
    assert trees[0] == trees[1]
    return {path: entry.content for path, entry in trees[0].items() if entry.content}


def settled(fleet: Fleet) -> dict[str, bytes]:
    found = tree(fleet)
    assert [conflicts(device).all() for device in fleet.devices] == [[], []]
    return found


def edited(fleet: Fleet, path: str = "notes.txt") -> str:
    """Let both devices edit one file at a time; the path of the version that is not the winner."""
    fleet[0].write(path, b"first")
    fleet.meet()
    fleet[0].write(path, b"ada's")
    fleet[1].write(path, b"bob's")
    fleet.meet()
    return str(conflicts(fleet[0]).all()[0].path)


def created(fleet: Fleet, path: str = "notes.txt") -> str:
    """Let both devices make a file of one name; the path of the one that has lost it."""
    fleet[0].write(path, b"ada's")
    fleet[1].write(path, b"bob's")
    fleet.meet()
    return str(conflicts(fleet[0]).all()[0].path)


def split(fleet: Fleet, path: str = "notes.txt") -> str:
    """Let a device hear of another's edit before it has signed its own; the path of its own."""
    fleet[0].write(path, b"first")
    fleet.meet()
    fleet[1].write(path, b"bob's")
    fleet[0].write(path, b"ada's")
    fleet.send(0, 1)
    fleet.meet()
    assert fleet[0].read(path) == b"ada's"
    return str(conflicts(fleet[0]).all()[0].path)


@pytest.mark.parametrize(("begin", "kind"), [(edited, "version"), (created, "name"), (split, "name")])
def test_conflicts_are_listed_by_their_paths(fleet: Fleet, begin: Begin, kind: str) -> None:
    fleet[0].mkdir("a")
    fleet[0].mkdir("a/b")
    fleet.meet()
    path = begin(fleet, "a/b/notes.txt")
    assert path.startswith("a/b/notes (conflict, ")
    for device in fleet.devices:
        [one] = conflicts(device).all()
        assert {name: getattr(one, name) for name in ("path", "of", "kind", "size")} == {
            "path": path,
            "of": "a/b/notes.txt",
            "kind": kind,
            "size": 5,
        }
        assert conflicts(device).count(device.rig.tx) == 1


@pytest.mark.parametrize("begin", [edited, created, split])
@pytest.mark.parametrize("by", [0, 1])
def test_keeping_the_winner_deletes_the_others(fleet: Fleet, begin: Begin, by: int) -> None:
    path = begin(fleet)
    winner = fleet[0].read("notes.txt")
    conflicts(fleet[by]).keep("notes.txt")
    assert path not in fleet[by].names()
    assert settled(fleet) == {"notes.txt": winner}


@pytest.mark.parametrize("begin", [edited, created, split])
@pytest.mark.parametrize("by", [0, 1])
def test_keeping_another_version_gives_it_the_name(fleet: Fleet, begin: Begin, by: int) -> None:
    path = begin(fleet)
    loser = fleet[0].read(path)
    conflicts(fleet[by]).keep(path)
    assert settled(fleet) == {"notes.txt": loser}


@pytest.mark.parametrize("begin", [edited, created, split])
@pytest.mark.parametrize("of_the_copy", [False, True])
def test_keeping_all_makes_files_of_their_own(fleet: Fleet, begin: Begin, of_the_copy: bool) -> None:
    path = begin(fleet)
    before = tree(fleet)
    conflicts(fleet[1]).keep_all(path if of_the_copy else "notes.txt")
    assert settled(fleet) == before
    assert before.keys() == {"notes.txt", path}


def test_what_was_kept_can_be_changed_and_nothing_comes_back(fleet: Fleet) -> None:
    path = edited(fleet)
    conflicts(fleet[0]).keep_all(path)
    fleet.meet()
    fleet[0].write("notes.txt", b"more")
    fleet[1].remove(path)
    assert settled(fleet) == {"notes.txt": b"more"}


def test_keeping_all_overwrites_no_file(fleet: Fleet) -> None:
    path = created(fleet)
    fleet[0].write(f"{path}~", b"an editor's backup")
    conflicts(fleet[0]).keep_all(path)
    assert settled(fleet)[f"{path}~"] == b"an editor's backup"


def test_keeping_all_of_names_as_long_as_can_be(fleet: Fleet) -> None:
    path = created(fleet, "n" * 255)
    before = tree(fleet)
    conflicts(fleet[0]).keep_all(path)
    assert settled(fleet) == before


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_of_three_versions_is_kept(which: int) -> None:
    fleet = Fleet(3)
    try:
        fleet[0].write("notes.txt", b"first")
        fleet.meet()
        for device in fleet.devices:
            device.write("notes.txt", device.name.encode())
        fleet.meet()
        paths = sorted(fleet[0].names())
        assert len(paths) == 3
        kept = fleet[1].read(paths[which])
        conflicts(fleet[1]).keep(paths[which])
        fleet.meet()
        for device in fleet.devices:
            assert {path: one.content for path, one in device.tree().items()} == {"notes.txt": kept}
            assert conflicts(device).all() == []
    finally:
        fleet.discard()


def test_other_conflicts_of_the_folder_stay(fleet: Fleet) -> None:
    for device in fleet.devices:
        for name in ("one", "two"):
            device.write(name, f"{name} of {device.name}".encode())
    fleet.meet()
    conflicts(fleet[0]).keep("one")
    tree(fleet)
    assert [one.of for one in conflicts(fleet[1]).all()] == ["two"]


def a_folder_and_a_file(fleet: Fleet) -> str:
    """One device makes a folder, which has the name then, and the other a file; the path of that."""
    fleet[0].mkdir("notes")
    fleet[0].write("notes/inner", b"inner")
    fleet[1].write("notes", b"file")
    fleet.meet()
    [one] = conflicts(fleet[0]).all()
    assert fleet[0].at("notes").is_directory
    return str(one.path)


@pytest.mark.parametrize("by", [0, 1])
def test_keep_deletes_no_folder(fleet: Fleet, by: int) -> None:
    path = a_folder_and_a_file(fleet)
    before = tree(fleet)
    with pytest.raises(UsageError, match="folder"):
        conflicts(fleet[by]).keep(path)
    assert tree(fleet) == before
    conflicts(fleet[by]).keep("notes")
    assert settled(fleet) == {"notes/inner": b"inner"}


def test_keeping_both_a_folder_and_a_file(fleet: Fleet) -> None:
    path = a_folder_and_a_file(fleet)
    before = tree(fleet)
    conflicts(fleet[1]).keep_all(path)
    assert settled(fleet) == before


@pytest.mark.parametrize("path", ["plain", "none", "folder/none", "none/none", "plain/none", ""])
def test_where_there_is_no_conflict(fleet: Fleet, path: str) -> None:
    fleet[0].write("plain", b"plain")
    fleet[0].mkdir("folder")
    for settle in (conflicts(fleet[0]).keep, conflicts(fleet[0]).keep_all):
        with pytest.raises(UsageError):
            settle(path)
    assert tree(fleet) == {"plain": b"plain"}


def test_the_kernel_hears_of_all_names_that_changed(fleet: Fleet) -> None:
    path = edited(fleet)
    shown: list[Change] = []
    fleet[0].rig.fs.shown.listen(shown.extend)
    conflicts(fleet[0]).keep(path)
    assert {change.name for change in shown if change.ino == ROOT_INO} >= {path.encode(), b"notes.txt", None}
