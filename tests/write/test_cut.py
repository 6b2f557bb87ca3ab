"""What is cut together keeps the order in which programs wrote, also while files are open."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hybrisfs.environment import Environment
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import LEAST_PATIENCE, InodeTable
from hybrisfs.write.cut import CutLimits
from hybrisfs.write.layout import ChunkLimits
from tests.merge.test_many_links import calls
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig
from tests.write.others import Others
from tests.write.test_publish import before_chunking, opened, others, write

__all__ = ["others"]


@pytest.fixture
def now() -> list[float]:
    """The monotonic clock of the rig, to be set."""
    return [1000.0]


@pytest.fixture
def rig(now: list[float]) -> Iterator[Rig]:
    rig = Rig(environment=Environment(monotonic=lambda: now[0]))
    yield rig
    rig.abandon()


def test_what_was_changed_after_an_open_file_waits_for_it(rig: Rig, others: Others, now: list[float]) -> None:
    """Two files written in turn: the second is never newer than the first."""
    for name in (b"p", b"q"):
        rig.make(name, b"1")
    rig.publish()
    handle = rig.fs.open(rig.tx, rig.find(b"p").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.find(b"p"), 0, b"2")
    write(rig, b"q", b"2")
    rig.publish()
    assert others() == {b"p": b"1", b"q": b"1"}
    now[0] += LEAST_PATIENCE
    rig.publish()
    assert others() == {b"p": b"2", b"q": b"2"}
    rig.fs.release(rig.tx, handle)


def test_a_removal_waits_for_the_write_before_it(rig: Rig, others: Others, now: list[float]) -> None:
    """A database has taken over what its log held; the log goes, the database stays open."""
    rig.make(b"db", b"old")
    rig.make(b"db-wal", b"new")
    rig.publish()
    handle = rig.fs.open(rig.tx, rig.find(b"db").ino, os.O_RDWR)
    rig.fs.write(rig.tx, rig.find(b"db"), 0, b"new")
    rig.fs.unlink(rig.tx, ROOT_INO, b"db-wal")
    rig.publish()
    assert others() == {b"db": b"old", b"db-wal": b"new"}
    now[0] += LEAST_PATIENCE
    rig.publish()
    assert others() == {b"db": b"new"}
    rig.fs.release(rig.tx, handle)


def test_what_was_changed_before_an_open_file_does_not_wait(rig: Rig, others: Others) -> None:
    folder = rig.mkdir(b"folder")
    rig.publish()
    rig.make(b"earlier", b"content")
    rig.fs.create(rig.tx, folder, b"download", 0o644, 1, 1, os.O_RDWR)
    rig.publish()
    assert others()[b"earlier"] == b"content"


def test_a_journal_that_is_gone_when_it_is_cut_still_comes_with_its_database(
    rig: Rig, others: Others
) -> None:
    """A transaction ends while the cut from its midst is published: the half-written database is worth
    nothing without the journal."""
    rig.make(b"db", b"whole")
    rig.publish()
    rig.make(b"db-journal", b"how it was")
    write(rig, b"db", b"HALF")
    before_chunking(rig, b"db", lambda: rig.fs.unlink(rig.tx, ROOT_INO, b"db-journal"))
    rig.publish()
    assert others() == {b"db": b"HALFe", b"db-journal": b"how it was"}
    rig.publish()
    assert others() == {b"db": b"HALFe"}
    check_accounts(rig, [])


def test_open_files_that_take_turns_leave_nothing_out_for_ever(
    rig: Rig, others: Others, now: list[float]
) -> None:
    """There is never a moment at which none of them is young."""
    inodes = []
    for number in range(20):
        inodes.append(opened(rig, b"%d" % number, b"content")[0])
        now[0] += 2.0
        rig.publish()
        for inode in inodes:
            rig.fs.write(rig.tx, inode, 0, b"again %d" % number)
    assert len(others()) >= 12


def test_a_file_that_is_costly_to_take_holds_up_others_for_longer(
    rig: Rig, others: Others, now: list[float]
) -> None:
    """A byte here and there in a small file means that all of it is cut and uploaded again."""
    inode = rig.make(b"image", b"x" * 1000)
    rig.publish()
    rig.publisher.limits = CutLimits(recut_rate=100)
    rig.chunker.limits = ChunkLimits(small=1000)
    handle = rig.fs.open(rig.tx, inode.ino, os.O_RDWR)
    for round_number, patience in enumerate((LEAST_PATIENCE, 9.8)):
        for offset in range(0, 1000, 64):
            rig.fs.write(rig.tx, inode, offset, b"%d" % round_number)
        rig.make(b"letter %d" % round_number, b"content")
        now[0] += patience - 0.1
        assert not rig.publish()
        now[0] += 0.6
        rig.publish()
        assert b"letter %d" % round_number in others()
    rig.fs.release(rig.tx, handle)


def test_a_cut_that_is_due_waits_until_a_program_has_synced(
    rig: Rig, others: Others, now: list[float]
) -> None:
    """So that others see what is between two transactions, even of a database that no journal protects."""
    inode, handle = opened(rig, b"db", b"0000")
    rig.fs.synced(rig.tx, inode.ino)
    rig.publish(everything=True)
    rig.fs.write(rig.tx, inode, 0, b"11")
    rig.make(b"letter", b"content")
    now[0] += LEAST_PATIENCE
    rig.publish()
    assert others() == {b"db": b"0000"}
    rig.fs.write(rig.tx, inode, 2, b"11")
    rig.fs.synced(rig.tx, inode.ino)
    rig.publish()
    assert others() == {b"db": b"1111", b"letter": b"content"}
    rig.fs.write(rig.tx, inode, 0, b"22")
    rig.make(b"another letter", b"content")
    now[0] += LEAST_PATIENCE + CutLimits().rest_seconds
    rig.publish()
    assert others() == {b"db": b"2211", b"letter": b"content", b"another letter": b"content"}
    rig.fs.release(rig.tx, handle)
    assert not rig.fs.restless
    assert not rig.fs.syncing


def test_a_cut_does_not_look_at_all_that_waits(rig: Rig, others: Others, now: list[float]) -> None:
    """Programs wait while a cut is taken, however much there is to be signed."""
    folders = [rig.mkdir(b"folder %d" % number) for number in range(10)]
    for number in range(400):
        rig.make(b"%d" % number, b"content", folders[number // 40])
    waiting = len(rig.fs.changes.unsigned)
    now[0] += 100
    rig.publisher.limits = CutLimits(most_registers=30)
    rounds = 0
    while rig.fs.changes.unsigned:
        looks = calls(rig.publish, InodeTable.cached.__code__)
        assert 0 < looks < 200, f"{looks} of {waiting} registers were looked at"
        rounds += 1
    assert rounds > waiting / 80
    for number in range(400):
        assert rig.find(b"%d" % number, folders[number // 40])
    assert rig.fs.changes.unsigned == {}
