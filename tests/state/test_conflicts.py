"""What the view shows otherwise than each node where it says that it stands."""

from __future__ import annotations

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import ino_shown_for, inos_showing, known_nodes, nodes_shown_as
from tests.tree.rig import Rig

ONE, TWO, THREE = (bytes((number,)) * 16 for number in (1, 2, 3))


def test_nodes_are_joined_with_an_inode_until_they_part(rig: Rig) -> None:
    conflicts = rig.tx.conflicts
    first, second = rig.mkdir(b"first"), rig.mkdir(b"second")
    own = rig.fs.get(rig.tx, first).id
    rig.fs.flush(rig.tx)
    assert not conflicts.are_any() and not conflicts.is_merged(first) and conflicts.merged_into(ONE) is None
    for node in (ONE, TWO):
        conflicts.merge(node, first)
    assert conflicts.are_any() and conflicts.is_conflict(first, own) and conflicts.merged_into(ONE) == first
    assert conflicts.merged_with(first) == [ONE, TWO] and nodes_shown_as(rig.db.rows, first) == [
        own,
        ONE,
        TWO,
    ]
    assert ino_shown_for(rig.db.rows, TWO) == first and inos_showing(rig.db.rows, TWO) == [first]
    assert known_nodes(rig.db.rows, [own, ONE, THREE]) == {own, ONE}
    assert conflicts.part(ONE) == first and conflicts.part(ONE) is None
    conflicts.merge_instead(first, second)
    assert conflicts.merged_with(first) == [] and conflicts.merged_with(second) == [TWO]
    conflicts.forget(second)
    assert not conflicts.are_any()


def test_a_node_that_is_joined_is_shown_by_the_other_inode(rig: Rig) -> None:
    """Its own may still be there, for a moment, and have a lower number."""
    former, inode = rig.mkdir(b"former"), rig.mkdir(b"inode")
    node = rig.fs.get(rig.tx, former).id
    rig.fs.flush(rig.tx)
    rig.tx.conflicts.merge(node, inode)
    assert former < inode and ino_shown_for(rig.db.rows, node) == inode


def test_copies_have_an_original(rig: Rig) -> None:
    conflicts = rig.tx.conflicts
    copy = rig.make(b"copy", b"x")
    rig.fs.flush(rig.tx)
    conflicts.copy(copy.ino, ONE)
    assert conflicts.original(copy.ino) == ONE and conflicts.copies_of(ONE) == [copy.ino]
    assert conflicts.is_conflict(99, ONE) and not conflicts.is_conflict(99, TWO)
    assert conflicts.originals_beside(ROOT_INO, b"name") == []
    rig.db.rows.execute("UPDATE place SET wanted = x'6e616d65' WHERE ino = ?", (copy.ino,))
    assert conflicts.originals_beside(ROOT_INO, b"name") == [ONE]
    conflicts.end_copy(copy.ino)
    assert conflicts.original(copy.ino) is None and conflicts.copies_of(ONE) == []


def test_nodes_stand_elsewhere_for_the_sake_of_directories(rig: Rig) -> None:
    conflicts = rig.tx.conflicts
    conflicts.move(ONE, TWO, [TWO, THREE])
    assert conflicts.is_moved(ONE) and conflicts.moved_to(TWO) == [ONE] and conflicts.are_any()
    assert conflicts.moved_for(THREE) == [ONE] and sorted(conflicts.causes(ONE)) == [TWO, THREE]
    assert known_nodes(rig.db.rows, [ONE, TWO, THREE]) == {TWO, THREE}
    assert conflicts.moved_for_nobody() == []
    conflicts.move_back(ONE)
    assert not conflicts.is_moved(ONE) and conflicts.causes(ONE) == [] and not conflicts.are_any()
    conflicts.move(ONE, TWO, [])
    assert conflicts.moved_for_nobody() == [ONE]
