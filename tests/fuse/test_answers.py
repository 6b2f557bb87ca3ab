"""Late, missing, double and failing answers: whatever a handler does, the caller gets exactly one answer."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fuse.server import OrderError, Server, names_in


def error_of(path: Path) -> int | None:
    with pytest.raises(OSError) as caught:
        path.lstat()
    return caught.value.errno


@pytest.mark.parametrize("name", ["explode", "exit", "nonsense", "errorless", "lost"])
def test_a_handler_that_fails_is_answered_eio(server: Server, name: str) -> None:
    assert error_of(server.mountpoint / name) == errno.EIO
    (server.mountpoint / "file").write_text("the mount lives on")


@pytest.mark.parametrize("name", ["refuse", "fail-later", "twice", "replied-then-exploded"])
def test_the_first_answer_counts(server: Server, name: str) -> None:
    assert error_of(server.mountpoint / name) == errno.EXDEV
    (server.mountpoint / "file").write_text("the mount lives on")


def test_what_goes_wrong_is_logged(server: Server) -> None:
    for name in ("explode", "exit", "lost", "twice"):
        error_of(server.mountpoint / name)
    names_in(server.mountpoint)  # the loop has come back from all that
    log = server.log()
    assert log.count("ERROR:hybrisfs.fuse.loop:an exception in the handler of lookup") == 3
    assert "ValueError: as asked" in log
    assert "SystemExit: as asked" in log
    assert "dropped without an answer" in log
    assert "answered before" in log


def test_reads_writes_and_listings_may_be_answered_late(server: Server) -> None:
    path = server.mountpoint / "file"
    path.touch()
    os.setxattr(path, "user.late", b"")
    os.setxattr(server.mountpoint, "user.late", b"")
    data = os.urandom(1 << 20) + b"odd"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert path.read_bytes() == data
    assert names_in(server.mountpoint) == ["file"]


def test_a_late_answer_holds_up_nobody_else(server: Server) -> None:
    other = server.mountpoint / "other"  # the kernel itself locks a directory during a lookup in it
    other.mkdir()
    errors: list[int | None] = []
    waiting = threading.Thread(target=lambda: errors.append(error_of(server.mountpoint / "hang")))
    waiting.start()
    server.wait_until(1, "hanging")
    (other / "file").write_text("meanwhile")
    assert (other / "file").read_text() == "meanwhile"
    server.order("fail_hanging", errno.EXDEV)
    waiting.join()
    assert errors == [errno.EXDEV]


def test_a_second_late_answer_is_refused(server: Server) -> None:
    waiting = threading.Thread(target=lambda: error_of(server.mountpoint / "hang"))
    waiting.start()
    server.wait_until(1, "hanging")
    with pytest.raises(OrderError, match="answered before"):
        server.order("fail_hanging_twice")
    waiting.join()


def test_the_buffer_of_a_write_cannot_be_used_afterwards(server: Server) -> None:
    (server.mountpoint / "file").write_bytes(b"data")
    with pytest.raises(OrderError, match="released memoryview"):
        server.order("use_kept")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_caller_is_let_go(server: Server, number: signal.Signals) -> None:
    caller = subprocess.Popen(["test", "-e", server.mountpoint / "hang-killable"])
    server.wait_until(1, "hanging")
    caller.send_signal(number)
    assert caller.wait(10) == -number
    server.order("fail_hanging", errno.EXDEV)  # comes to nothing


def test_a_caller_that_survives_its_signals_gets_the_answer(server: Server) -> None:
    path = server.mountpoint / "hang-killable"
    code = f"""
import os, signal
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
try:
    os.stat({os.fspath(path)!r})
except OSError as error:
    print(error.errno)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        server.wait_until(1, "hanging")
        caller.send_signal(signal.SIGTERM)
        names_in(server.mountpoint)  # comes after the interrupt
        server.order("fail_hanging", errno.EXDEV)
        assert caller.stdout.read() == f"{errno.EXDEV}\n"
