"""The committer: group commit, and the answer to fsync.

Bytes in the journal are made durable before the commit that names them, so that what a power cut leaves
is the volume as it was at one of its commits. Everything asked for while a commit was under way is answered
by the next one.

An fsync after a few small writes does not wait for a commit: a record in the redo log holds what was done
since the last one, and is as good as one after a power cut (`hybrisfs.state.redo`). For a program that is
alone, the thread that serves programs writes and syncs it itself.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from hybrisfs.stages import Pause, Signals
from hybrisfs.state.journal import JournalFullError
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["CommitLimits", "Committer"]

log = logging.getLogger(__name__)

_WEIGHT: Final = 1 / 8  # of the last one in an average

Answer = Callable[[OSError | None], None]


class CommitLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`. All are seconds."""

    interval: float = 1.0
    """Between two commits for which nothing waits."""
    full: float = 10.0
    """That fsync waits for room before it fails."""
    full_pause: float = 0.1
    checkpoint_interval: float = 5.0
    """Each checkpoint of the database costs syncs that programs that wait for fsync would feel."""
    longest_at_once: float = 0.002
    """That the sync of a record may hold up the thread which serves programs, on the average of the last
    ones. Where it takes longer, another thread waits for it, ..."""
    rest: float = 1.0
    """... and it is tried again after that time."""


class Committer:
    """A stage that commits once a second, and at once when a caller waits for it."""

    def __init__(self, fs: FileSystem, signals: Signals) -> None:
        self.limits = fs.environment.limits.of(CommitLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._signals = signals
        self._monotonic = fs.environment.monotonic
        self._wait = fs.environment.wait
        self._condition = threading.Condition()
        self._waiting: list[Answer] = []
        self._stopping = self._ended = False
        self._committed = self._checkpointed = self._rests_until = self._monotonic()
        self._usual = 0.0
        """Seconds that `at_once` has taken lately."""
        self._full_since: float | None = None

    def request(self, answer: Answer) -> None:
        """Call *answer* when everything done so far survives a power cut, or with what went wrong."""
        with self._condition:
            self._waiting.append(answer)
            self._condition.notify()

    def at_once(self) -> bool:
        """Make everything done so far survive a power cut in the caller's thread, which may be the one that
        serves programs; False when that is not quickly done, or others wait already: see `request`."""
        began = self._monotonic()
        if (
            self._waiting
            or began < self._rests_until
            or (self._signals.rest_wanted and not self._fs.restless)
        ):
            return False
        with self._fs.state.transaction() as tx:
            if not self._fs.record(tx):
                return False
        done = self._fs.state.sync_records()
        now = self._monotonic()
        self._usual += (now - began - self._usual) * _WEIGHT
        if self._usual > self.limits.longest_at_once:
            self._rests_until, self._usual = now + self.limits.rest, 0.0
        return done

    def wait(self, pause: Pause) -> bool:
        """Wait that long, or until a caller waits for a commit; False when the last one has been made."""
        with self._condition:
            if self._ended:
                return False
            self._wait(self._condition, lambda: bool(self._waiting) or self._stopping, pause.most)
            self._ended = self._stopping
        return True

    def step(self) -> Pause:
        """Commit, if there is something to commit, or a caller waits."""
        if self._waiting or self._is_due():
            self._round()
        return Pause(self.limits.interval)

    def _is_due(self) -> bool:
        with self._fs.state.transaction() as tx:
            return self._fs.journal.failure is None and self._fs.is_uncommitted(tx)

    def stop(self) -> None:
        """End the stage, once it has answered the callers that wait now."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def _round(self) -> None:
        answers: list[Answer] = []
        error: OSError | None = None
        try:
            answers, done = self._record()
            if not done:
                self._fs.journal.sync()
                with self._fs.state.transaction() as tx:
                    answers += self._take_waiting()
                    self._fs.commit(tx)
                self._fs.state.make_durable()
                self._full_since = None
                self._committed = self._monotonic()
        except JournalFullError as full:
            # Nothing is lost: the transaction stays open, and is tried again when there is room.
            if self._may_wait(answers):
                return
            log.warning("cannot commit: %s", full)
            error = full
        except (OSError, sqlite3.Error) as failure:
            log.error("committing failed, nothing more is accepted: %s", failure)
            error = failure if isinstance(failure, OSError) else OSError(errno.EIO, str(failure))
            self._fs.journal.fail(error)
        if error is not None:
            answers += self._take_waiting()
        elif answers and not self._fs.restless:
            self._signals.offer_rest()
        for answer in answers:
            answer(error)
        if answers and error is None:
            self._fs.state.prepare_records()
        if self._monotonic() - self._checkpointed >= self.limits.checkpoint_interval:
            self._fs.state.checkpoint()
            self._checkpointed = self._monotonic()

    def _record(self) -> tuple[list[Answer], bool]:
        """Do with a record instead of a commit, if one is possible and a commit is not due; those who have
        waited for it, and whether it is durable."""
        if not self._waiting or self._monotonic() - self._committed >= self.limits.interval:
            return [], False
        with self._fs.state.transaction() as tx:
            if not self._fs.record(tx):
                return [], False
            answers = self._take_waiting()
        return answers, self._fs.state.sync_records()

    def _may_wait(self, answers: list[Answer]) -> bool:
        """The disk is full. For a while the callers go on waiting: room is being made."""
        now = self._monotonic()
        if self._full_since is None:
            self._full_since = now
        with self._condition:
            if self._stopping or now - self._full_since >= self.limits.full:
                return False
            self._waiting = answers + self._waiting
            self._wait(self._condition, lambda: self._stopping, self.limits.full_pause)
        return True

    def _take_waiting(self) -> list[Answer]:
        with self._condition:
            answers, self._waiting = self._waiting, []
        return answers

    def commit_now(self) -> None:
        """Commit and make durable, in the caller's thread, which does not hold the volume's lock. Raises
        OSError when the disk is full or broken.
        """
        self._fs.journal.sync()
        with self._fs.state.transaction() as tx:
            self._fs.commit(tx)
        self._fs.state.make_durable()
