"""Measuring subtrees in a snapshot."""

from __future__ import annotations

from hybrisfs.state.pins import Measure, Subtree
from hybrisfs.state.schema import ROOT_INO
from tests.merge.fleet import Fleet
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, Rig, small_chunks


def measure(rig: Rig, *roots: int) -> Measure:
    rig.commit()
    with rig.db.snapshot() as snapshot:
        return Subtree(snapshot, roots).measure()


def test_files_and_bytes(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    inner = rig.mkdir(b"inner", folder)
    rig.make(b"one", b"1" * 1000, folder)
    two = rig.make(b"two", b"2" * 2000, inner)
    rig.fs.link(rig.tx, two.ino, folder, b"linked")
    rig.make(b"same as two", b"2" * 2000, inner)
    rig.make(b"outside", b"3" * 500)
    assert measure(rig, folder) == Measure(3, 5000, 0)  # not yet known to be the same
    rig.publish()
    rig.pack()
    assert measure(rig, folder) == Measure(3, 3000, 0)
    assert measure(rig, inner, folder, inner) == Measure(3, 3000, 0)
    assert measure(rig, ROOT_INO) == Measure(4, 3500, 0)
    assert measure(rig, two.ino) == Measure(1, 2000, 0)
    assert measure(rig) == Measure(0, 0, 0)
    rig.room.drop_all()
    assert measure(rig, folder) == Measure(3, 3000, 3000)


def test_what_is_missing_or_may_go(rig: Rig) -> None:
    folder, kept = rig.mkdir(b"folder"), rig.mkdir(b"kept")
    rig.make(b"safe", b"s" * 1000, folder)
    rig.make(b"shared", b"k" * 2000, folder)
    rig.make(b"shared", b"k" * 2000, kept)
    rig.publish()
    rig.pack()
    rig.make(b"pending", b"p" * 3000, folder)
    rig.publish()
    rig.make(b"staged", b"x" * 500, folder)
    rig.commit()
    with rig.db.snapshot() as snapshot:
        tree, pins = Subtree(snapshot, [folder]), Subtree(snapshot, [kept], "kept")
        lengths = dict(rig.db.rows.execute("SELECT number, length FROM chunk").fetchall())
        assert [lengths[number] for number in tree.evictable(pins)] == [1000]
        assert tree.shared_with(pins) == 2000
        assert tree.staged() == 3500
        assert list(tree.missing()) == []
    rig.room.drop_all()
    rig.commit()
    with rig.db.snapshot() as snapshot:
        assert sorted(lengths[number] for number in Subtree(snapshot, [folder]).missing()) == [1000, 2000]


def test_files_whose_chunks_are_listed_elsewhere() -> None:
    fleet = Fleet(2, environment=lambda _: limited(small_chunks(512), SMALL_BLOCKS))
    fleet[0].write("long", bytes(range(256)) * 40)
    fleet.send(0, 1)
    rig, inode = fleet[1].rig, fleet[1].at("long")
    assert measure(rig, ROOT_INO) == Measure(1, 10240, 10240)
    with rig.db.snapshot() as snapshot:
        assert Subtree(snapshot, [ROOT_INO]).unlisted() == [inode.ino]
    fleet.discard()
