"""Pins: which inodes and chunks they cover, and where they go."""

from __future__ import annotations

import pytest

from hybrisfs.state.pins import PinTable
from hybrisfs.state.schema import ROOT_INO
from tests.tree.rig import Rig


@pytest.fixture
def pins(rig: Rig) -> PinTable:
    return rig.tx.pins


def test_a_pin_covers_all_below(rig: Rig, pins: PinTable) -> None:
    outer, other = rig.mkdir(b"outer"), rig.mkdir(b"other")
    inner = rig.mkdir(b"inner", outer)
    inode = rig.make(b"file", b"x", inner)
    rig.fs.flush(rig.tx)
    assert pins.nodes() == set() and pins.inodes() == [] and not pins.covers(inode.ino)
    pins.put(rig.find(b"outer").id, outer)
    assert pins.nodes() == {rig.find(b"outer").id} and pins.inodes() == [outer]
    assert pins.covers(inode.ino) and pins.covers(inner)
    assert not pins.covers(outer) and not pins.covers(other)
    assert pins.keeper(inode.ino) == outer and pins.keeper(other) is None
    pins.remove(rig.find(b"outer").id)
    assert not pins.covers(inode.ino)


def test_chunks_that_pinned_files_show_are_kept(rig: Rig, pins: PinTable) -> None:
    folder = rig.mkdir(b"folder")
    kept, own = rig.make(b"kept", b"of the folder", folder), rig.make(b"own", b"pinned itself")
    rig.make(b"neither", b"to be evicted")
    rig.publish()
    rig.fs.flush(rig.tx)
    ((segment,),) = rig.db.rows.execute("SELECT DISTINCT segment FROM chunk").fetchall()
    assert pins.kept_in(segment) == {}
    pins.put(rig.fs.get(rig.tx, folder).id, folder)
    pins.put(own.id, own.ino)
    numbers = {
        number
        for ino in (kept.ino, own.ino)
        for (number,) in rig.db.rows.execute("SELECT chunk FROM file_chunk WHERE ino = ?", (ino,))
    }
    found = pins.kept_in(segment)
    assert found.keys() == numbers and {one.length for one in found.values()} == {13}
    assert pins.kept_in(segment + 1) == {}


def test_pins_follow_their_nodes_and_say_what_has_replaced_them(rig: Rig, pins: PinTable) -> None:
    inode = rig.make(b"text", b"old")
    rig.fs.flush(rig.tx)
    pins.put(inode.id, inode.ino)
    rig.fs.rename(rig.tx, ROOT_INO, b"text", ROOT_INO, b"notes", 0)
    assert pins.follow() == {}
    fresh = rig.make(b"new", b"new")
    rig.fs.rename(rig.tx, ROOT_INO, b"new", ROOT_INO, b"notes", 0)
    rig.fs.flush(rig.tx)
    assert pins.follow() == {inode.id: fresh.ino} and pins.inodes() == []
    rig.fs.unlink(rig.tx, ROOT_INO, b"notes")
    rig.fs.flush(rig.tx)
    assert pins.follow() == {}
