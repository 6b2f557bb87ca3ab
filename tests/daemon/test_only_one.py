"""Locks that say who holds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybrisfs.daemon import only_one as module
from hybrisfs.daemon.only_one import ProcessLock, answers, holder, only_one
from hybrisfs.errors import DaemonError
from hybrisfs.wire import bind_socket


def test_a_lock_names_its_holder_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder(path) is None
    with ProcessLock(path) as lock:
        assert lock.acquire()
        assert holder(path) == os.getpid()
    assert path.exists()
    assert holder(path) is None


def test_waiting_for_a_lock_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with ProcessLock(path) as first, ProcessLock(path) as second:
        assert first.acquire()
        asked = iter([True, True, False])
        assert not second.acquire(lambda: next(asked))
        first.release()
        assert second.acquire(lambda: False)


def test_a_second_daemon_is_refused_at_once_when_the_first_answers(tmp_path: Path) -> None:
    path, socket = tmp_path / "lock", tmp_path / "socket"
    with only_one(path, socket), bind_socket(socket):
        assert answers(socket)
        with pytest.raises(DaemonError, match=f"process {os.getpid()}"), only_one(path, socket):
            pass


def test_a_second_daemon_waits_for_one_that_does_not_answer_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PREDECESSOR_ENDS_WITHIN", 0.1)
    path, socket = tmp_path / "lock", tmp_path / "socket"
    with only_one(path, socket), pytest.raises(DaemonError), only_one(path, socket):
        pass
    with only_one(path, socket):
        pass
