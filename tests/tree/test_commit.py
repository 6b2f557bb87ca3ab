"""The committer: everybody is answered, with the truth, in the right order."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.stages import Pause, Stage
from hybrisfs.tree.commit import CommitLimits
from tests.tree.rig import Rig

PATIENCE = 30.0


def stage_of(rig: Rig) -> Stage:
    return Stage("commit", rig.committer.step, rig.committer.wait)


@contextmanager
def running(rig: Rig) -> Iterator[None]:
    """The committer's thread."""
    with ThreadPoolExecutor(1) as pool:
        body = pool.submit(stage_of(rig).run, rig.signals, lambda error: False)
        try:
            yield
        finally:
            rig.committer.stop()
            body.result(PATIENCE)


def ask(rig: Rig) -> Future[OSError | None]:
    answer: Future[OSError | None] = Future()
    rig.committer.request(answer.set_result)
    return answer


def test_those_who_wait_are_answered_together(rig: Rig) -> None:
    rig.make(b"file", b"content")
    commits: list[int] = []
    rig.db.after_commit = lambda: commits.append(1)
    answers = [ask(rig) for _ in range(10)]
    with running(rig):
        assert [answer.result(PATIENCE) for answer in answers] == [None] * 10
    assert len(commits) == 1
    assert not rig.fs.is_uncommitted(rig.tx)


def test_the_answer_comes_last(rig: Rig) -> None:
    """Bytes before the commit that names them, the commit before the answer."""
    rig.make(b"file", b"content")
    events: list[str] = []

    def note_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)

    rig.around.fdatasync = rig.around.fsync = note_sync
    rig.db.before_commit = lambda: events.append("commit")
    rig.committer.request(lambda error: events.append("answer"))
    rig.committer._round()
    assert events[:5] == [".segment", "", "commit", ".db-wal", "answer"]
    assert events[5:] == [".db-redo", ""]  # for what comes next


def _broken(*_: object) -> None:
    raise OSError(errno.EIO, "broken disk")


def _fail_sync(rig: Rig) -> None:
    rig.around.fdatasync = _broken


def _fail_second_sync(rig: Rig) -> None:
    """Of the journal: what comes while the first one runs has to be synced, too."""
    fdatasync = rig.around.fdatasync

    def once(descriptor: int) -> None:
        fdatasync(descriptor)
        rig.around.fdatasync = _broken
        rig.make(b"another", b"content")

    rig.around.fdatasync = once


def _fail_full(rig: Rig) -> None:
    rig.journal.free = -1


def _fail_commit(rig: Rig) -> None:
    rig.db.before_commit = _broken


def _fail_flush(rig: Rig) -> None:
    rig.db.rows.execute("PRAGMA query_only = 1")


def _fail_durable(rig: Rig) -> None:
    """The log of the database cannot be synced."""
    fdatasync = rig.around.fdatasync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".db-wal":
            _broken()
        fdatasync(descriptor)

    rig.around.fdatasync = fail


@pytest.mark.parametrize(
    "failure", [_fail_sync, _fail_second_sync, _fail_full, _fail_commit, _fail_flush, _fail_durable]
)
def test_everybody_hears_of_a_failure(rig: Rig, failure: Callable[[Rig], None]) -> None:
    rig.committer.limits = CommitLimits(full=0.0)
    rig.make(b"file", b"content")
    answers = [ask(rig) for _ in range(3)]
    failure(rig)
    rig.committer._round()
    expected = errno.ENOSPC if failure is _fail_full else errno.EIO
    for answer in answers:
        error = answer.result(0)
        assert error is not None and error.errno == expected


def test_a_full_disk_is_an_error_until_there_is_room(rig: Rig) -> None:
    rig.committer.limits = CommitLimits(full=0.0)
    rig.make(b"file", b"content")
    rig.journal.free = -1
    refused = ask(rig)
    rig.committer._round()
    error = refused.result(0)
    assert error is not None and error.errno == errno.ENOSPC
    assert rig.fs.is_uncommitted(rig.tx)
    rig.journal.free = None
    answer = ask(rig)
    rig.committer._round()
    assert answer.result(0) is None
    rig = rig.crashed()
    assert rig.read(rig.find(b"file")) == b"content"
    rig.abandon()


def test_a_failed_sync_is_not_forgotten(rig: Rig) -> None:
    """The kernel reports lost pages once: a second fsync that succeeds proves nothing."""
    rig.make(b"file", b"content")
    rig.around.fdatasync = mock.Mock(side_effect=[OSError(errno.EIO, "broken disk"), *[None] * 9])
    for _ in range(2):
        answer = ask(rig)
        rig.committer._round()
        assert answer.result(0) is not None
    with pytest.raises(OSError, match="broken disk"):
        rig.commit()


@pytest.mark.parametrize("failure", [_fail_sync, _fail_commit, _fail_flush, _fail_durable])
def test_nothing_is_accepted_that_cannot_be_committed(rig: Rig, failure: Callable[[Rig], None]) -> None:
    """A program that never syncs would write for hours what the next restart forgets."""
    inode = rig.make(b"file", b"content")
    failure(rig)
    rig.committer._round()
    for offset in (0, 100):  # in place, and appended
        with pytest.raises(OSError) as caught:
            rig.fs.write(rig.tx, inode, offset, b"more")
        assert caught.value.errno == errno.EIO
    assert rig.read(inode) == b"content"


def test_a_failed_sync_of_the_database_is_not_forgotten(rig: Rig) -> None:
    rig.make(b"file", b"content")
    rig.journal.sync()
    fdatasync = rig.around.fdatasync
    _fail_sync(rig)
    with pytest.raises(OSError):
        rig.commit()
    rig.around.fdatasync = fdatasync
    answer = ask(rig)
    rig.committer._round()
    assert answer.result(0) is not None


def test_a_commit_that_was_rolled_back_ends_the_volume(rig: Rig) -> None:
    """What is in memory no longer matches what is stored: going on would mix the two."""
    rig.make(b"file", b"content")
    rig.commit()
    rig.make(b"lost", b"content")
    rig.fs.flush(rig.tx)
    rig.db.rows.execute("ROLLBACK")
    for _ in range(2):
        answer = ask(rig)
        rig.committer._round()
        assert answer.result(0) is not None
    with pytest.raises(sqlite3.ProgrammingError):
        rig.make(b"another", b"content")
    rig = rig.crashed()
    assert rig.read(rig.find(b"file")) == b"content"
    assert rig.fs.lookup(rig.tx, 1, b"lost") is None
    rig.abandon()


def test_after_a_failure_nothing_is_asked_of_the_closed_database(rig: Rig) -> None:
    rig.make(b"file", b"content")
    rig.tx.execute("ROLLBACK")
    rig.committer._round()
    assert rig.journal.failure is not None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        rig.tx.total_changes()
    assert rig.committer.step() == Pause(rig.committer.limits.interval)


def test_who_waits_when_it_stops_is_answered(rig: Rig) -> None:
    rig.make(b"file", b"content")
    rig.committer.stop()
    answer = ask(rig)
    stage_of(rig).run(rig.signals, lambda error: False)
    assert answer.result(0) is None
    assert not rig.fs.is_uncommitted(rig.tx)


def test_changes_are_committed_though_nobody_asks(rig: Rig) -> None:
    rig.make(b"file", b"content")
    rig.committer.limits = CommitLimits(interval=0.001)
    with running(rig):
        while rig.fs.is_uncommitted(rig.tx):
            os.sched_yield()


def test_fsync_waits_for_room_that_is_being_made(rig: Rig) -> None:
    rig.committer.limits = CommitLimits(full_pause=0.0)
    rig.make(b"file", b"content")
    answer = ask(rig)
    rig.journal.free = -1
    rig.committer._round()
    assert not answer.done()
    rig.journal.free = None
    rig.committer._round()
    assert answer.result(0) is None
    assert not rig.fs.is_uncommitted(rig.tx)
