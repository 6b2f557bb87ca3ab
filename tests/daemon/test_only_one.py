"""Locks that say who holds them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hybrisfs.daemon.only_one import ProcessLock, answers, end_daemon, holder, only_one
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import DaemonError
from hybrisfs.home import Home
from hybrisfs.wire import bind_socket


def test_a_lock_names_its_holder_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder(path) is None
    with ProcessLock(path, SYSTEM) as lock:
        assert lock.acquire()
        assert holder(path) == os.getpid()
    assert path.exists()
    assert holder(path) is None


def test_waiting_for_a_lock_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with ProcessLock(path, SYSTEM) as first, ProcessLock(path, SYSTEM) as second:
        assert first.acquire()
        asked = iter([True, True, False])
        assert not second.acquire(lambda: next(asked))
        first.release()
        assert second.acquire(lambda: False)


def test_a_second_daemon_is_refused_at_once_when_the_first_answers(tmp_path: Path) -> None:
    path, socket = tmp_path / "lock", tmp_path / "socket"
    with only_one(path, socket, SYSTEM), bind_socket(socket):
        assert answers(socket)
        with pytest.raises(DaemonError, match=f"process {os.getpid()}"), only_one(path, socket, SYSTEM):
            pass


def test_a_second_daemon_waits_for_one_that_does_not_answer_any_more(tmp_path: Path) -> None:
    waits: list[float] = []
    patient = Environment(monotonic=lambda: sum(waits), sleep=waits.append)
    path, socket = tmp_path / "lock", tmp_path / "socket"
    with only_one(path, socket, SYSTEM), pytest.raises(DaemonError), only_one(path, socket, patient):
        pass
    assert sum(waits) == pytest.approx(20.0, abs=0.1)
    with contextlib.ExitStack() as first:
        first.enter_context(only_one(path, socket, SYSTEM))
        ending = Environment(sleep=lambda _: first.close())
        with only_one(path, socket, ending):
            pass


def test_a_daemon_of_an_earlier_version_is_ended_where_its_lock_was(tmp_path: Path) -> None:
    session = tmp_path / "session"
    (session / "hybrisfs").mkdir(parents=True)
    home = Home.from_environment({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(session)})
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hybrisfs.daemon.only_one import ProcessLock; from hybrisfs.environment import SYSTEM\n"
        "ProcessLock(Path(sys.argv[1]), SYSTEM).acquire(); print('held', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(session / "hybrisfs" / "daemon.lock")], stdout=subprocess.PIPE
    ) as former:
        assert former.stdout is not None
        assert former.stdout.readline() == b"held\n"
        assert end_daemon(home)
        assert former.wait(60) == -signal.SIGTERM
    assert not end_daemon(home)
