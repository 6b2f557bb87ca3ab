"""Deferred chunks: small changes go to the clouds before large files that were written earlier."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest

from hybrisfs.kinds import PLACE
from hybrisfs.registers.tree import Place
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.names import RENAME_EXCHANGE
from hybrisfs.write.layout import ChunkLimits
from tests.surroundings import limited
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig
from tests.write.test_ship import Log

LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def rig() -> Rig:
    return Rig(environment=limited(ChunkLimits(4096, block=16, small=128, deferred=10_000)))


def deferred(rig: Rig) -> int:
    return len(rig.tx.chunks.deferred)


def names(log: Log) -> set[bytes]:
    """The names that the log on the clouds tells of."""
    writes = [write for segment in log.segments() for update in segment.updates for write in update.writes]
    return {Place.decode(value).name for key, value in writes if key[0] == PLACE and value is not None} - {
        b""
    }


def test_a_letter_is_on_the_clouds_before_a_film(rig: Rig) -> None:
    film = rig.make(b"film", LARGE)
    rig.publish()
    waiting = rig.unpacked()
    rig.make(b"letter", b"short")
    rig.publish()
    assert 0 < deferred(rig) <= waiting
    rig.pack(deferred=False)
    assert rig.unpacked() == deferred(rig) > 0
    log = Log(rig)
    log.ship()
    assert names(log) == {b"film", b"letter"}, "the film is not left out"
    assert rig.unpacked() == deferred(rig)
    rig.pack()
    assert (rig.unpacked(), deferred(rig)) == (0, 0)
    rig.room.drop_all()
    assert rig.read(film) == LARGE
    check_accounts(rig, [])


def test_sync_waits_for_all_bytes(rig: Rig) -> None:
    """Also for those that were in no chunk yet when it began."""
    rig.make(b"film", LARGE)
    log, rounds = Log(rig), 0

    def work(done: int, total: int) -> None:
        nonlocal rounds
        rounds += 1
        rig.publish()
        rig.pack(deferred=rounds > 10)
        log.ship()

    assert log.uploads.wait(60.0, work)
    assert rig.unpacked() == 0 and names(log) == {b"film"}


def sync(rig: Rig, inode: Inode) -> None:
    rig.fs.synced(rig.tx, inode.ino)


def replace(rig: Rig, _: Inode) -> None:
    rig.make(b"earlier", b"what was there")
    rig.fs.rename(rig.tx, ROOT_INO, b"file", ROOT_INO, b"earlier", 0)


def exchange(rig: Rig, _: Inode) -> None:
    rig.make(b"earlier", b"what was there")
    rig.fs.rename(rig.tx, ROOT_INO, b"earlier", ROOT_INO, b"file", RENAME_EXCHANGE)


@pytest.mark.parametrize("act", [sync, replace, exchange])
@pytest.mark.parametrize("published", [False, True])
def test_what_programs_may_rely_on_is_waited_for(
    rig: Rig, act: Callable[[Rig, Inode], None], published: bool
) -> None:
    """Synced, or put in the place of an earlier file; before it is cut into chunks, or after that."""
    inode = rig.make(b"file", LARGE)
    if published:
        rig.publish()
        rig.pack(deferred=False)
        assert deferred(rig)
    act(rig, inode)
    rig.publish()
    rig.make(b"letter", b"short")
    rig.publish()
    assert not deferred(rig)
    log = Log(rig)
    log.ship()
    assert b"letter" not in names(log)
    rig.pack(deferred=False)
    assert rig.unpacked() == 0
    log.ship()
    assert b"letter" in names(log)


def test_a_file_that_is_synced_while_it_is_cut_is_waited_for(rig: Rig) -> None:
    film = rig.make(b"film", LARGE)
    left = [2]

    def before_a_name() -> None:
        left[0] -= 1
        if not left[0]:
            sync(rig, film)

    rig.namer.before = before_a_name
    rig.publish()
    assert left[0] < 0 and not deferred(rig)
    rig.pack(deferred=False)
    assert rig.unpacked() == 0


def test_small_files_and_later_changes_are_not_deferred(rig: Rig) -> None:
    rig.make(b"small", LARGE[:9000])
    rig.publish()
    assert not deferred(rig)
    rig.pack()
    inode = rig.make(b"file", LARGE)
    rig.publish()
    rig.pack()
    sync(rig, inode)
    handle = rig.fs.open(rig.tx, inode.ino, os.O_RDWR)
    rig.fs.write(rig.tx, inode, 0, LARGE[::-1])
    rig.fs.release(rig.tx, handle)
    rig.publish()
    assert rig.unpacked() and not deferred(rig)


def test_a_chunk_of_both_is_waited_for(rig: Rig) -> None:
    rig.make(b"film", LARGE)
    rig.publish()
    rig.pack(deferred=False)
    copy = rig.make(b"copy", LARGE)
    sync(rig, copy)
    rig.publish()
    assert not deferred(rig)
    rig.pack(deferred=False)
    assert rig.unpacked() == 0


def test_after_a_start_what_no_cloud_has_heard_of_is_waited_for(rig: Rig) -> None:
    rig.make(b"film", LARGE)
    rig.publish()
    rig.make(b"letter", b"short")
    rig.publish()
    rig.commit()
    again = rig.reopen()
    assert not deferred(again)
    log = Log(again)
    log.ship()
    assert not log.puts
    again.pack(deferred=False)
    log.ship()
    assert names(log) == {b"film", b"letter"}


def test_after_a_start_what_the_clouds_have_heard_of_is_not_waited_for(rig: Rig) -> None:
    rig.make(b"film", LARGE)
    rig.publish()
    rig.pack(deferred=False)
    Log(rig).ship()
    before = deferred(rig)
    rig.make(b"letter", b"short")
    rig.publish()
    rig.commit()
    again = rig.reopen()
    assert deferred(again) == before > 0
    assert {*again.tx.chunks.deferred.values()} == {again.find(b"film").ino}
    again.pack(deferred=False)
    assert again.unpacked() == before
    log = Log(again)
    log.ship()
    assert b"letter" in names(log)
    again.pack()
    assert again.unpacked() == deferred(again) == 0


def test_a_file_that_is_synced_after_a_start_is_waited_for(rig: Rig) -> None:
    rig.make(b"film", LARGE)
    rig.publish()
    rig.pack(deferred=False)
    Log(rig).ship()
    rig.commit()
    again = rig.reopen()
    assert deferred(again)
    sync(again, again.find(b"film"))
    assert not deferred(again)
    again.pack(deferred=False)
    assert again.unpacked() == 0


@pytest.mark.parametrize("how", ["synced", "shown by another"])
def test_what_was_hurried_is_waited_for_after_a_start_too(rig: Rig, how: str) -> None:
    film = rig.make(b"film", LARGE)
    rig.publish()
    rig.pack(deferred=False)
    Log(rig).ship()
    assert deferred(rig)
    if how == "synced":
        sync(rig, film)
    else:
        sync(rig, rig.make(b"copy", LARGE))
    rig.make(b"letter", b"short")
    rig.publish()
    rig.commit()
    again = rig.reopen()
    assert not deferred(again)
    log = Log(again)
    log.ship()
    assert b"letter" not in names(log)


def test_a_change_waits_for_an_old_chunk_that_it_shows_after_a_start_too(rig: Rig) -> None:
    """The pack of the chunk was condemned, so it goes to the clouds again."""
    rig.make(b"early", b"old content")
    rig.publish()
    rig.pack()
    rig.make(b"later", b"something else")
    rig.publish()
    rig.pack()
    Log(rig).ship()
    rig.make(b"copy", b"old content")
    rig.publish()
    rig.db.rows.execute("UPDATE chunk SET pack = NULL WHERE number = 1")
    rig.commit()
    again = rig.reopen()
    assert not deferred(again)


def test_a_file_that_is_removed_is_forgotten(rig: Rig) -> None:
    rig.make(b"film", LARGE)
    rig.publish()
    rig.fs.unlink(rig.tx, ROOT_INO, b"film")
    rig.publish()
    rig.tx.chunks.drop_unwanted()
    assert not deferred(rig)
    check_accounts(rig, [])
