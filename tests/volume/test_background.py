"""Background work that fails is started again, and says so once."""

from __future__ import annotations

import errno
import logging
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from hybrisfs.pipeline.signals import Signals
from hybrisfs.store.journal import Journal
from hybrisfs.volume.background import LastError, start_threads

ROUNDS = 3


def _failing(errors: list[Exception], caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the log holds of work that fails with these errors, one after the other, and then ends well."""
    left = list(errors)

    def work() -> None:
        if left:
            raise left.pop(0)

    signals = cast("Signals", SimpleNamespace(pause=lambda seconds: True))
    journal = cast("Journal", SimpleNamespace(failure=None))
    threads: dict[str, threading.Thread] = start_threads("v", {"pull": work}, signals, journal, LastError())
    threads["pull"].join()
    return [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_full_disk_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    full: list[Exception] = [OSError(errno.ENOSPC, "no room") for _ in range(ROUNDS)]
    [record] = _failing(full, caplog)
    assert record.levelno == logging.WARNING and record.exc_info is None
    assert "no room" in record.getMessage()


def test_a_bug_is_told_with_all_details(caplog: pytest.LogCaptureFixture) -> None:
    [record] = _failing([FileNotFoundError(errno.ENOENT, "a bug")], caplog)
    assert record.levelno == logging.ERROR and record.exc_info is not None
