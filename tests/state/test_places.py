"""Names: each means one inode, and keeps its number."""

from __future__ import annotations

import sqlite3

import pytest

from hybrisfs.state.nodes import ShownPlace
from hybrisfs.state.schema import ROOT_INO
from tests.tree.rig import Rig


def test_a_name_is_found_until_it_is_removed(rig: Rig) -> None:
    places = rig.tx.places
    assert places.find(ROOT_INO, b"one") is None and places.is_empty(ROOT_INO)
    places.insert(ROOT_INO, b"one", 7, 3, 0)
    found = places.find(ROOT_INO, b"one")
    assert found is not None and found[:3] == (7, 3, 0) and not places.is_empty(ROOT_INO)
    with pytest.raises(sqlite3.IntegrityError):
        places.insert(ROOT_INO, b"one", 8, 0, 0)
    places.set_stamp(12, [(7, 3), (7, 4)])
    assert places.find(ROOT_INO, b"one") == (7, 3, 12, found[3])
    places.remove(found[3])
    assert places.find(ROOT_INO, b"one") is None and places.is_empty(ROOT_INO)


def test_a_name_keeps_its_number_unless_another_has_taken_it(rig: Rig) -> None:
    places = rig.tx.places
    for number, name in enumerate((b"one", b"two", b"three"), 7):
        places.insert(ROOT_INO, name, number, 0, 0)
    number = _number(rig, b"two")
    places.remove(number)
    places.insert(ROOT_INO, b"two", 20, 0, 0, number)
    assert [row[:3] for row in places.listing(ROOT_INO, 0, 9)] == [
        (number - 1, b"one", 7), (number, b"two", 20), (number + 1, b"three", 9),
    ]  # fmt: skip
    assert [row[1] for row in places.listing(ROOT_INO, number - 1, 1)] == [b"two"]
    places.remove(number)
    places.insert(ROOT_INO, b"four", 21, 0, 0, number)
    places.insert(ROOT_INO, b"two", 20, 0, 0, number)
    assert _number(rig, b"two") == number + 2


def _number(rig: Rig, name: bytes) -> int:
    found = rig.tx.places.find(ROOT_INO, name)
    assert found is not None
    return found[3]


def test_a_listing_says_what_is_known_of_the_nodes(rig: Rig) -> None:
    inode = rig.make(b"file", b"x")
    assert rig.tx.places.listing(ROOT_INO, 0, 1)[0][3] is None
    rig.fs.flush(rig.tx)
    assert rig.tx.places.listing(ROOT_INO, 0, 1)[0][3:] == inode.row()


def test_the_directories_above(rig: Rig) -> None:
    outer = rig.mkdir(b"outer")
    inner = rig.mkdir(b"inner", outer)
    inode = rig.make(b"file", b"x", inner)
    rig.fs.link(rig.tx, inode.ino, outer, b"second")
    places = rig.tx.places
    assert list(places.above(inner)) == [outer, ROOT_INO] and not list(places.above(ROOT_INO))
    assert sorted(places.parents_of(inode.ino)) == [outer, inner] and places.parents_of(ROOT_INO) == []
    assert places.parent_of(inner) == outer and places.parent_of(ROOT_INO) == ROOT_INO
    assert places.parent_of(99) == ROOT_INO


def test_an_inode_is_shown_by_its_slots(rig: Rig) -> None:
    places = rig.tx.places
    assert not places.is_shown(7) and places.first(7) is None and places.at(7, 0) is None
    places.insert(ROOT_INO, b"two", 7, 5, 0)
    places.insert(ROOT_INO, b"one (conflict)", 7, 2, 9, wanted=b"one")
    one, two = ShownPlace(ROOT_INO, b"one (conflict)", b"one"), ShownPlace(ROOT_INO, b"two", None)
    assert (one.plain, two.plain) == (b"one", b"two")
    assert places.is_shown(7) and places.first(7) == one and sorted(places.slots(7)) == [2, 5]
    assert list(places.of(7).items()) == [(2, one), (5, two)] and places.of(7, [5, 6]) == {5: two}
    assert places.within(ROOT_INO) == [(7, 5), (7, 2)]
    places.told(7, 5, 1)
    places.told(7, 2, 1)
    assert [places.find(ROOT_INO, name) for name in (b"two", one.name)] == [(7, 5, 1, 1), (7, 2, 9, 2)]
    places.move_to(7, 8)
    found = places.withdraw(8, 5)
    assert found is not None and found[0] == two and places.withdraw(8, 5) is None
    places.insert(ROOT_INO, b"two", 9, 0, 0, found[1])
    assert places.within(ROOT_INO) == [(9, 0), (8, 2)]


def test_nodes_that_want_one_name_are_shown_beside_it(rig: Rig) -> None:
    places = rig.tx.places
    places.insert_new([(ROOT_INO, b"name", 7), (ROOT_INO, b"other", 8)])
    assert places.is_taken(ROOT_INO, b"name") and not places.contested()
    assert places.taken([(ROOT_INO, b"name"), (ROOT_INO, b"free"), (9, b"name")]) == {(ROOT_INO, b"name")}
    places.put_beside(ROOT_INO, b"name", b"name 1")
    places.put_beside(ROOT_INO, b"name 1", b"name 2")
    assert places.holder(ROOT_INO, b"name") is None
    assert places.holder(ROOT_INO, b"name 2") == (7, 0, (ROOT_INO, b"name 2", b"name"))
    places.insert(ROOT_INO, b"name", 9, 0, 0)
    assert places.contested() == [(ROOT_INO, b"name")]
    assert list(places.wanting(ROOT_INO, b"name", 9)) == [(9, 0), (7, 0)]
    assert list(places.wanting(ROOT_INO, b"name", 1)) == [(9, 0)]
    assert places.are_beside(ROOT_INO, b"name", 1) and not places.are_beside(ROOT_INO, b"name", 2)
    places.keep_name(7)
    assert places.holder(ROOT_INO, b"name 2") == (7, 0, (ROOT_INO, b"name 2", None))
    assert places.find(ROOT_INO, b"name 2") == (7, 0, 0, 1) and not places.contested()


def test_the_nodes_in_a_directory(rig: Rig) -> None:
    inode, folder = rig.make(b"file", b"x"), rig.mkdir(b"folder")
    rig.fs.link(rig.tx, inode.ino, folder, b"second")
    rig.fs.flush(rig.tx)
    [child] = rig.tx.places.children(folder)
    assert (child.plain, child.node) == (b"second", inode.id)
    assert rig.tx.places.at(inode.ino, child.slot) == (folder, b"second", None)
