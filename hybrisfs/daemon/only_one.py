"""One daemon, one supervisor and one start at a time for each home: locks that name who holds them.

A lock is an flock on a file below the runtime folder, so it ends with its process. The file holds the
process id of its holder in decimal; it stays when the lock is released and then means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.errors import DaemonError
from hybrisfs.home import Home
from hybrisfs.polling import readable
from hybrisfs.wire import connect_socket

__all__ = ["ProcessLock", "answers", "end_daemon", "holder", "is_stopped", "only_one"]

_PREDECESSOR_ENDS_WITHIN: Final = 20.0  # seconds
_STOPPED_WITHIN: Final = 120.0  # seconds; it writes out what is pending locally, not to the clouds
_LOOK_EVERY: Final = 0.05  # seconds


class ProcessLock:
    """The lock at *path*, for one thread of one process; closed with `release` or at the process's end."""

    def __init__(self, path: Path, environment: Environment) -> None:
        """Raises `OSError`."""
        self._sleep = environment.sleep
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Wait for the lock, as long as *go_on*, asked every 50 ms, says so. False when it was given up."""
        while not self._try():
            if not go_on():
                return False
            self._sleep(_LOOK_EVERY)
        return True

    def release(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        return True

    def __enter__(self) -> ProcessLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def holder(path: Path) -> int | None:
    """The process that holds the lock at *path*; None when nobody does. Raises `OSError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0).strip()
        return int(written) if written.isdigit() else None
    finally:
        os.close(descriptor)


def is_stopped(pid: int) -> bool:
    """Whether the process stands still, because of SIGSTOP, a terminal (Ctrl-Z) or a debugger."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it has ended
        return False
    return text.rpartition(")")[2].split()[0] in ("T", "t")


@contextlib.contextmanager
def only_one(path: Path, socket: Path | None, environment: Environment) -> Iterator[None]:
    """Hold the lock that makes this the home's only daemon; waits for one that is just stopping.

    Raises `DaemonError` when another daemon answers on *socket*, or does not end in time. None: the socket
    tells nothing, since the service manager listens there.
    """
    deadline = environment.monotonic() + _PREDECESSOR_ENDS_WITHIN

    def ending() -> bool:
        return environment.monotonic() < deadline and not (socket is not None and answers(socket))

    with ProcessLock(path, environment) as lock:
        if not lock.acquire(ending):
            raise DaemonError(
                f"a daemon runs already, process {holder(path)}", "", "hybrisfs daemon --stop ends it"
            )
        yield


def end_daemon(home: Home) -> bool:
    """Have the running daemon, by whichever program it was started, unmount everything and end; return when
    it has.

    False when none runs. Raises `DaemonError` when it goes on running.
    """
    ended = [_end_daemon_of(place) for place in _places(home)]
    return any(ended)


def _places(home: Home) -> Iterator[Home]:
    """Where the locks of a daemon may be: those of earlier versions were in the session's runtime folder."""
    yield home
    former = home.session / "hybrisfs" if home.session is not None else None
    if former is not None and former.is_dir() and not former.is_symlink():
        yield replace(home, runtime=former)


def _end_daemon_of(home: Home) -> bool:
    supervisor = holder(home.supervisor_lock)
    for pid in (supervisor, holder(home.daemon_lock)):
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # if it stands still, it would not hear that it is to end
    if supervisor is not None:  # it would start another one; told to, it ends the daemon and then itself
        _end(supervisor, home)
    daemon = holder(home.daemon_lock)  # not who listens on the socket: that may be the service manager
    if daemon is not None:
        _end(daemon, home)
    return supervisor is not None or daemon is not None


def _end(pid: int, home: Home) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not readable([process], _STOPPED_WITHIN):
            raise DaemonError(f"the daemon (process {pid}) is still not done", "", f"See {home.log}.")
    except ProcessLookupError:
        return
    finally:
        os.close(process)


def answers(socket: Path) -> bool:
    """Whether a daemon listens on the control socket."""
    try:
        connect_socket(socket).close()
    except OSError:
        return False
    return True
