"""Background work that fails is started again, and says so once."""

from __future__ import annotations

import errno
import logging
import threading
from functools import partial

import pytest

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.stages import LastError, Pause, Signals, Stage, start_stages

ROUNDS = 3


AT_ONCE = Environment(wait=lambda condition, done, seconds: done())
"""Nobody waits."""


def _failing(errors: list[Exception], caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the log holds of work that fails with these errors, one after the other, and then ends well."""
    left = list(errors)

    def work() -> Pause:
        if left:
            raise left.pop(0)
        signals.stop()
        return Pause(0.0)

    signals = Signals(AT_ONCE)
    stage = Stage("pull", work, signals.waiting())
    start_stages("v", [stage], signals, lambda: False, lambda error: "", LastError())["pull"].join()
    return [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_full_disk_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    full: list[Exception] = [OSError(errno.ENOSPC, "no room") for _ in range(ROUNDS)]
    [record] = _failing(full, caplog)
    assert record.levelno == logging.WARNING and record.exc_info is None
    assert "no room" in record.getMessage()


def test_a_bug_is_told_with_all_details(caplog: pytest.LogCaptureFixture) -> None:
    [record] = _failing([FileNotFoundError(errno.ENOENT, "a bug")], caplog)
    assert record.levelno == logging.ERROR and record.exc_info is not None


def test_work_ends_when_nothing_can_be_recorded_but_the_stage_that_says_so_goes_on() -> None:
    signals, steps, finished = Signals(AT_ONCE), list[str](), list[str]()

    def broken(name: str) -> Pause:
        steps.append(name)
        if len(steps) > ROUNDS:
            signals.stop()
        raise OSError(errno.EIO, "the disk is gone")

    stages = [
        Stage(
            name,
            partial(broken, name),
            signals.waiting(),
            outlives=outlives,
            finish=partial(finished.append, name),
        )
        for name, outlives in (("pack", False), ("commit", True))
    ]
    for thread in start_stages("v", stages, signals, lambda: True, lambda error: "", LastError()).values():
        thread.join()
    assert steps.count("pack") == 1
    assert steps.count("commit") == ROUNDS
    assert sorted(finished) == ["commit", "pack"]


def test_no_step_begins_while_transfers_are_held() -> None:
    signals, held = Signals(SYSTEM), threading.Event()

    def step() -> Pause:
        assert held.is_set()
        signals.stop()
        return Pause(0.0)

    signals.pause_transfers(True)
    [thread] = start_stages(
        "v", [Stage("heal", step, signals.waiting(), moves=True)], signals, lambda: False, str, LastError()
    ).values()
    held.set()
    signals.pause_transfers(False)
    thread.join()
