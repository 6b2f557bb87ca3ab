"""The daemon's process: one per user, from its start to SIGTERM."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from typing import Final

from hybrisfs import VERSION
from hybrisfs.core_dumps import forbid_core_dumps
from hybrisfs.daemon import supervisor
from hybrisfs.daemon.only_one import end_daemon, only_one
from hybrisfs.daemon.supervisor import Readiness, clear_mounts, detach, open_folders, supervise, word_to
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home, logs_to_journal, watchdog_seconds
from hybrisfs.polling import readable
from hybrisfs.service_manager import JournalFormatter, inherited_listener, notify
from hybrisfs.wire import Channel, ChannelError, connect_socket

__all__ = ["Watchdog", "main"]

log = logging.getLogger(__name__)

_LOG_SIZE: Final = 2 << 20  # bytes
_LOGS_KEPT: Final = 3
_SECOND_SIGNAL_AFTER: Final = 2.0  # seconds
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; one more, seconds later, ends the process at once.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hybrisfs.daemon", description="The HybrisFS daemon; use `hybrisfs daemon`."
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--background", action="store_true", help="return when it is ready; log to a file")
    how.add_argument("--clear", action="store_true", help="remove the mounts that a dead daemon left")
    how.add_argument("--open-folders", action="store_true", help="unlock where volumes are to be mounted")
    how.add_argument("--supervised", type=int, metavar="FD", help="say there when it is ready; log to a file")
    options = parser.parse_args(argv)
    forbid_core_dumps()
    home = Home.from_environment()
    try:
        home.prepare()
    except HybrisError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.clear:
        _log_to(logging.StreamHandler())
        clear_mounts(home)
        return 0
    if options.open_folders:
        _log_to(logging.StreamHandler())
        return open_folders(home)
    supervised: int | None = options.supervised
    ready = _tell_terminal if supervised is None else word_to(supervised)
    if options.background:
        ready = detach(home.log)
        _log_to(WatchedFileHandler(home.log))
    else:
        _log_to(logging.StreamHandler() if supervised is None else _rotated(home.log))
    try:
        if options.background:
            return supervise(home, ready)
        listener = inherited_listener(home.socket)
        if listener is not None and end_daemon(home):
            log.info("took over from the daemon that a command had started")
        with only_one(home.daemon_lock, home.socket if listener is None else None, SYSTEM):
            last, pause = supervisor.begin(home, time.time())
            if listener is not None:  # else the supervisor has waited
                _pause(pause, listener)
            _run(home, ready, listener, last)
            supervisor.end(home)
    except (HybrisError, OSError) as error:
        log.critical("cannot run: %s", error)
        ready(str(error))
        return error.exit_code if isinstance(error, HybrisError) else 1
    return 0


def _pause(seconds: float, listener: socket.socket) -> None:
    """Wait after some quick deaths, but not while a command waits for the daemon."""
    if seconds:
        log.warning("the last daemons died soon after their start: waiting %.0f seconds", seconds)
        readable([listener], seconds)


def _run(home: Home, ready: Readiness, listener: socket.socket | None, last: supervisor.Life | None) -> None:
    from hybrisfs.process import tune_process

    tune_process()  # first: else Python collects garbage again and again while it loads these modules
    from hybrisfs.api.key_value import WAIT_FOR_CLOUDS
    from hybrisfs.daemon.control import ControlLimits, ControlServer
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.daemon.service import Daemon

    # Blocked in all threads and awaited in this one: a handler would only run when this thread wakes,
    # and the kernel may give the signal to another.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir("/")  # a daemon keeps no file system busy
    daemon = Daemon(home, LocalVolumes(), SYSTEM)
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = ControlServer(
        home.socket, daemon.handle, listener, ControlLimits.within(descriptors), WAIT_FOR_CLOUDS
    )
    patience = watchdog_seconds()
    watchdog = Watchdog(home.socket, daemon.mountpoints, patience) if patience else None
    log.info("HybrisFS %s starts, process %d", VERSION, os.getpid())
    try:
        daemon.start(last)
        server.start()
        notify("READY=1")
        if watchdog is not None:
            watchdog.start()
        ready("")
        received = signal.sigwait(_SIGNALS)
        log.info("stopping: %s", signal.Signals(received).name)
        notify("STOPPING=1")
    finally:
        if watchdog is not None:
            watchdog.stop()
        threading.Thread(target=_let_signals_kill, name="signals", daemon=True).start()
        server.stop()
        daemon.stop()
    log.info("stopped")


def _let_signals_kill() -> None:
    """After a moment: at a shutdown the daemon and its parent both get the signal, and the parent passes it
    on."""
    time.sleep(_SECOND_SIGNAL_AFTER)
    while signal.sigtimedwait(_SIGNALS, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Event().wait()


def _tell_terminal(reason: str) -> None:
    if reason:
        print(f"hybrisfs: {reason}", file=sys.stderr)


def _rotated(path: Path) -> logging.Handler:
    return RotatingFileHandler(path, maxBytes=_LOG_SIZE, backupCount=_LOGS_KEPT, errors="backslashreplace")


def _log_to(handler: logging.Handler) -> None:
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if type(handler) is logging.StreamHandler and logs_to_journal():
        handler.setFormatter(JournalFormatter())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # all stacks, to standard error: what does it hang on?
    threading.excepthook = _log_thread_death


def _log_thread_death(death: threading.ExceptHookArgs) -> None:
    name = death.thread.name if death.thread else "?"
    error = death.exc_value or death.exc_type()
    log.critical("the thread %s died", name, exc_info=(death.exc_type, error, death.exc_traceback))


# -- telling systemd that the service works, as long as it does -----------------------------------------
# A daemon that hangs is then killed and started again. The mounts are asked by a process of its own, for a
# thread of the daemon that waits for its own mount could never be killed (see `hybrisfs.mount.hand`).


_ASK: Final = "import os, sys\nfor place in sys.argv[1:]: os.statvfs(os.fsencode(place))"
_STOPPED_WITHIN: Final = 1.0  # seconds; a look that hangs is left alone


class Watchdog:
    """A thread that looks three times within *patience* seconds, from `start` to `stop`."""

    def __init__(self, control: Path, mountpoints: Callable[[], Sequence[Path]], patience: float) -> None:
        self._control = control
        self._mountpoints = mountpoints
        self._patience = patience
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Idempotent; also when it was never started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOPPED_WITHIN)

    def _run(self) -> None:
        while not self._stopping.wait(self._patience / 3):
            try:
                self.look()
            except (OSError, ChannelError) as error:
                if not self._stopping.is_set():
                    log.error("the service does not work as it should: %s", error)
            else:
                notify("WATCHDOG=1")

    def look(self) -> None:
        """Raises `OSError` or `ChannelError`, or hangs, when something does not answer."""
        with connect_socket(self._control) as connection:
            connection.settimeout(self._patience)
            if Channel(connection).receive() is None:
                raise ChannelError("the control socket greets nobody")
        places = [os.fspath(place) for place in self._mountpoints()]
        if places:
            asked = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _ASK, *places], stderr=subprocess.PIPE, check=False
            )
            if asked.returncode:
                raise ChannelError(asked.stderr.decode(errors="replace").strip().rpartition("\n")[2])
