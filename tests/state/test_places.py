"""Names: each means one inode, and keeps its number."""

from __future__ import annotations

import sqlite3

import pytest

from hybrisfs.state.schema import ROOT_INO
from tests.tree.rig import Rig


def test_a_name_is_found_until_it_is_removed(rig: Rig) -> None:
    places = rig.fs.places
    assert places.find(ROOT_INO, b"one") is None and places.is_empty(ROOT_INO)
    places.insert(ROOT_INO, b"one", 7, 3, 0)
    assert places.find(ROOT_INO, b"one") == (7, 3, 0) and not places.is_empty(ROOT_INO)
    with pytest.raises(sqlite3.IntegrityError):
        places.insert(ROOT_INO, b"one", 8, 0, 0)
    places.set_stamp(12, [(7, 3), (7, 4)])
    assert places.find(ROOT_INO, b"one") == (7, 3, 12)
    places.remove_name(ROOT_INO, b"one")
    assert places.find(ROOT_INO, b"one") is None and places.is_empty(ROOT_INO)


def test_a_name_keeps_its_number_unless_another_has_taken_it(rig: Rig) -> None:
    places = rig.fs.places
    for number, name in enumerate((b"one", b"two", b"three"), 7):
        places.insert(ROOT_INO, name, number, 0, 0)
    number = places.remove_name(ROOT_INO, b"two")
    places.insert(ROOT_INO, b"two", 20, 0, 0, number)
    assert [row[:3] for row in places.listing(ROOT_INO, 0, 9)] == [
        (number - 1, b"one", 7), (number, b"two", 20), (number + 1, b"three", 9),
    ]  # fmt: skip
    assert [row[1] for row in places.listing(ROOT_INO, number - 1, 1)] == [b"two"]
    places.remove_name(ROOT_INO, b"two")
    places.insert(ROOT_INO, b"four", 21, 0, 0, number)
    places.insert(ROOT_INO, b"two", 20, 0, 0, number)
    assert places.remove_name(ROOT_INO, b"two") == number + 2


def test_a_listing_says_what_is_known_of_the_nodes(rig: Rig) -> None:
    inode = rig.make(b"file", b"x")
    assert rig.fs.places.listing(ROOT_INO, 0, 1)[0][3] is None
    rig.fs.flush()
    assert rig.fs.places.listing(ROOT_INO, 0, 1)[0][3:] == inode.row()


def test_the_directories_above(rig: Rig) -> None:
    outer = rig.mkdir(b"outer")
    inner = rig.mkdir(b"inner", outer)
    inode = rig.make(b"file", b"x", inner)
    rig.fs.link(inode.ino, outer, b"second")
    places = rig.fs.places
    assert list(places.above(inner)) == [outer, ROOT_INO] and not list(places.above(ROOT_INO))
    assert sorted(places.parents_of(inode.ino)) == [outer, inner] and places.parents_of(ROOT_INO) == []
    assert places.parent_of(inner) == outer and places.parent_of(ROOT_INO) == ROOT_INO
    assert places.parent_of(99) == ROOT_INO
