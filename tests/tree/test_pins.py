"""Pins: what they cover, and that they stay with what was meant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.pins import Pinned
from tests.merge.fleet import Fleet
from tests.tree.rig import Rig


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    one = Fleet(2)
    yield one
    one.discard()


def standing(rig: Rig, name: bytes, parent: int = ROOT_INO) -> Pinned:
    return rig.fs.pins.standing(rig.tx, rig.find(name, parent))


def test_a_pin_covers_what_is_below(rig: Rig) -> None:
    music, other = rig.mkdir(b"music"), rig.mkdir(b"other")
    album = rig.mkdir(b"album", music)
    rig.make(b"song", b"la", album)
    rig.make(b"text", b"x", other)
    assert not rig.fs.pins
    assert standing(rig, b"song", album) is Pinned.NO
    rig.fs.pins.add(rig.tx, rig.find(b"music"))
    assert standing(rig, b"music") is Pinned.YES
    assert standing(rig, b"album", music) is Pinned.INHERITED
    assert standing(rig, b"song", album) is Pinned.INHERITED
    assert standing(rig, b"other") is Pinned.NO
    assert standing(rig, b"text", other) is Pinned.NO
    assert rig.fs.pins.standing(rig.tx, rig.fs.get(rig.tx, ROOT_INO)) is Pinned.NO
    keeper = rig.fs.pins.keeper(rig.tx, rig.find(b"song", album))
    assert keeper is not None and keeper.ino == music
    rig.fs.pins.remove(rig.tx, rig.find(b"music"))
    assert not rig.fs.pins
    assert standing(rig, b"song", album) is Pinned.NO


def test_the_root_covers_all(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    rig.make(b"file", b"x", folder)
    rig.fs.pins.add(rig.tx, rig.fs.get(rig.tx, ROOT_INO))
    assert rig.fs.pins.standing(rig.tx, rig.fs.get(rig.tx, ROOT_INO)) is Pinned.YES
    assert standing(rig, b"file", folder) is Pinned.INHERITED
    rig.fs.pins.follow(rig.tx)
    assert rig.fs.pins.roots(rig.tx) == [ROOT_INO]


def test_a_hard_link_in_a_pinned_folder_is_enough(rig: Rig) -> None:
    kept = rig.mkdir(b"kept")
    inode = rig.make(b"file", b"x")
    rig.fs.link(rig.tx, inode.ino, kept, b"second")
    rig.fs.pins.add(rig.tx, rig.find(b"kept"))
    assert standing(rig, b"file") is Pinned.INHERITED


def test_pins_survive_restarts_and_renames(rig: Rig) -> None:
    target = rig.mkdir(b"target")
    folder = rig.mkdir(b"folder")
    rig.make(b"file", b"x", folder)
    rig.fs.pins.add(rig.tx, rig.find(b"folder"))
    rig.fs.rename(rig.tx, ROOT_INO, b"folder", target, b"renamed", 0)
    rig = rig.reopen()
    assert standing(rig, b"renamed", target) is Pinned.YES
    assert standing(rig, b"file", folder) is Pinned.INHERITED
    rig.fs.rename(rig.tx, folder, b"file", ROOT_INO, b"out", 0)
    assert standing(rig, b"out") is Pinned.NO
    rig.discard()


def test_a_pin_goes_over_to_what_replaces_the_file(rig: Rig) -> None:
    """Editors write a new file and rename it over the old one."""
    rig.make(b"text", b"old")
    rig.fs.pins.add(rig.tx, rig.find(b"text"))
    rig.fs.rename(rig.tx, ROOT_INO, b"text", ROOT_INO, b"notes", 0)
    rig.fs.pins.follow(rig.tx)
    rig.make(b"text", b"another")
    rig.make(b".notes.new", b"new")
    rig.fs.rename(rig.tx, ROOT_INO, b".notes.new", ROOT_INO, b"notes", 0)
    rig.fs.pins.follow(rig.tx)
    assert standing(rig, b"notes") is Pinned.YES
    assert standing(rig, b"text") is Pinned.NO
    rig.fs.unlink(rig.tx, ROOT_INO, b"notes")
    rig.fs.pins.follow(rig.tx)
    assert rig.fs.pins.roots(rig.tx) == []


def test_folders_that_are_seen_as_one_are_pinned_together(fleet: Fleet) -> None:
    """Both devices make a folder of one name; whichever of the two nodes is shown, the pin holds."""
    for device in (fleet[0], fleet[1]):
        device.mkdir("same")
        device.write(f"same/{device.name}", b"x")
        device.rig.fs.pins.add(device.rig.tx, device.at("same"))
    fleet.meet()
    for device in (fleet[0], fleet[1]):
        pins = device.rig.fs.pins
        assert len(device.rig.db.rows.execute("SELECT * FROM joined").fetchall()) == 1
        assert pins.standing(device.rig.tx, device.at("same")) is Pinned.YES
        assert pins.standing(device.rig.tx, device.at("same/ada")) is Pinned.INHERITED
        pins.follow(device.rig.tx)
        pins.remove(device.rig.tx, device.at("same"))
        assert pins.standing(device.rig.tx, device.at("same")) is Pinned.NO
        assert not pins


def test_deep_trees(rig: Rig) -> None:
    parent = ROOT_INO
    for _ in range(1500):
        parent = rig.mkdir(b"d", parent)
    rig.make(b"file", b"x", parent)
    assert standing(rig, b"file", parent) is Pinned.NO
    rig.fs.pins.add(rig.tx, rig.find(b"d"))
    assert standing(rig, b"file", parent) is Pinned.INHERITED
