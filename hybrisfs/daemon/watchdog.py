"""Telling systemd that the service works, as long as it does: clients are greeted, and every mount answers.

A daemon that hangs is then killed and started again. The mounts are asked by a process of its own, for a
thread of the daemon that waits for its own mount could never be killed (see `hybrisfs.mount.hand`).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hybrisfs.systemd import notify
from hybrisfs.wire import Channel, ChannelError, connect_socket

__all__ = ["Watchdog"]

log = logging.getLogger(__name__)

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
