"""Starting the daemon in the background, once, however many clients want it at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hybrisfs import service_manager
from hybrisfs.daemon.only_one import ProcessLock
from hybrisfs.errors import DaemonError
from hybrisfs.home import Home

__all__ = ["log_tail", "start_daemon"]

_READY_WITHIN: Final = 60.0  # seconds
_TAIL: Final = 2048  # bytes of the log that are shown when the daemon dies at its start
_PACKAGES: Final = Path(__file__).resolve().parents[1]


def start_daemon(home: Home, runs: Callable[[], bool]) -> None:
    """Start the daemon, or have systemd do it, unless `runs` says that it runs; return when it answers.

    Raises `HybrisError` when the folders cannot be made, `DaemonError` with the end of the log when
    the daemon dies or is not ready in time.
    """
    home.prepare()
    with ProcessLock(home.start_lock) as starting:
        starting.acquire()
        if runs() or service_manager.start(home):
            return
        # Python looks for modules in the working directory first: it must not be the user's.
        logged = home.log.stat().st_size if home.log.exists() else 0
        try:
            done = subprocess.run(
                [sys.executable, "-m", "hybrisfs.daemon", "--background"],
                cwd=_PACKAGES,
                env=home.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_READY_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            why = f"it was not ready within {_READY_WITHIN:.0f} seconds"
            raise _start_error(home, why, logged) from error
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip() or f"it ended with status {done.returncode}"
            raise _start_error(home, why, logged)


def log_tail(home: Home, start: int = 0) -> str:
    """The last lines of the daemon's log after byte `start`; "" when there are none."""
    try:
        with home.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start if start <= size else 0, size - _TAIL))
            return log.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _start_error(home: Home, why: str, logged: int) -> DaemonError:
    tail = log_tail(home, logged)
    shown = f"The end of its log, {home.log}:\n{tail}" if tail else f"Its log is {home.log}."
    return DaemonError("cannot start the daemon", why, shown)
