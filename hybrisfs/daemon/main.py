"""The daemon's process: one per user, from its start to SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import fcntl
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from hybrisfs import VERSION
from hybrisfs.daemon.background import Readiness, detach
from hybrisfs.daemon.notify import notify
from hybrisfs.errors import DaemonError, HybrisError
from hybrisfs.home import Home

__all__ = ["main"]

log = logging.getLogger(__name__)

_PREDECESSOR_ENDS_WITHIN: Final = 20.0  # seconds
_LOG_SIZE: Final = 2 << 20  # bytes
_LOGS_KEPT: Final = 3
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; a second one ends the process at once. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hybrisfs.daemon", description="The HybrisFS daemon; use `hybrisfs daemon`."
    )
    parser.add_argument("--background", action="store_true", help="return when it is ready; log to a file")
    background: bool = parser.parse_args(argv).background
    home = Home.from_environment()
    try:
        home.prepare()
    except HybrisError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    ready = detach(home.log) if background else _tell_terminal
    _log_to(home.log if background else None)
    try:
        with _only_one(home.runtime / "daemon.lock"):
            _run(home, ready)
    except (HybrisError, OSError) as error:
        log.critical("cannot run: %s", error)
        ready(str(error))
        return error.exit_code if isinstance(error, HybrisError) else 1
    return 0


def _run(home: Home, ready: Readiness) -> None:
    from hybrisfs.daemon.control import ControlServer
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.daemon.service import Daemon
    from hybrisfs.daemon.tuning import tune_process

    tune_process()
    # Blocked in all threads and awaited in this one: a handler would only run when this thread wakes,
    # and the kernel may give the signal to another.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.chdir("/")  # a daemon keeps no file system busy
    daemon = Daemon(home, LocalVolumes())
    server = ControlServer(home.socket, daemon.handle)
    log.info("HybrisFS %s starts, process %d", VERSION, os.getpid())
    try:
        daemon.start()
        server.start()
        notify("READY=1")
        ready("")
        received = signal.sigwait(_SIGNALS)
        log.info("stopping: %s", signal.Signals(received).name)
        notify("STOPPING=1")
    finally:
        _let_signals_kill()
        server.stop()
        daemon.stop()
    log.info("stopped")


def _let_signals_kill() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _tell_terminal(reason: str) -> None:
    if reason:
        print(f"hybrisfs: {reason}", file=sys.stderr)


def _log_to(path: Path | None) -> None:
    """Log to a rotated file, or to standard error, where systemd's journal or a terminal listens."""
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        handler = RotatingFileHandler(
            path, maxBytes=_LOG_SIZE, backupCount=_LOGS_KEPT, errors="backslashreplace"
        )
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # all stacks, to standard error: what does it hang on?
    threading.excepthook = _log_thread_death


def _log_thread_death(death: threading.ExceptHookArgs) -> None:
    name = death.thread.name if death.thread else "?"
    error = death.exc_value or death.exc_type()
    log.critical("the thread %s died", name, exc_info=(death.exc_type, error, death.exc_traceback))


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold the lock that makes this the user's only daemon; waits for one that is just stopping."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _PREDECESSOR_ENDS_WITHIN
        while not _try_lock(descriptor):
            if time.monotonic() > deadline or _answers(path.parent / "daemon.sock"):
                pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                raise DaemonError(
                    f"a daemon runs already, process {pid}", "", "hybrisfs daemon --stop ends it"
                )
            time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answers(path: Path) -> bool:
    from hybrisfs.wire import connect_socket

    try:
        connect_socket(path).close()
    except OSError:
        return False
    return True
