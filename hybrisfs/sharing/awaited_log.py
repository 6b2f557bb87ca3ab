"""Waiting for the own log: a volume whose database was rebuilt signs nothing before it has its log back.

A second update with the same predecessor would make a fork (Depot 4.3): nothing is lost by that, but all
devices see this one as two from then on.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hybrisfs.environment import Environment, sync_directory
from sync import Head

__all__ = ["REBUILDING_FOLDER", "AwaitedLog"]

REBUILDING_FOLDER: Final = "rebuilding"
_PATIENCE: Final = 600.0  # seconds for what our own head names and no cloud returns


class AwaitedLog:
    """Whether the volume with this state folder waits for its own log; a folder in there says so."""

    def __init__(self, state: Path, environment: Environment) -> None:
        self._environment = environment
        self._folder = state / REBUILDING_FOLDER
        self.under_way = self._folder.exists()
        self._since: float | None = None
        self._lock = threading.Lock()

    def look(self, own: Head | None, holds: Callable[[bytes], bool]) -> bool:
        """All clouds but f were asked for *own*, this device's head, and what it leads to was taken in.
        *holds* tells whether the log has the update with that hash. True when there is nothing to wait for
        any more; that is durable then. Raises OSError."""
        now = self._environment.monotonic()
        self._since = now if self._since is None else self._since
        missing = own is not None and not all(holds(tip.hash) for tip in own.own)
        if missing and now - self._since < _PATIENCE:
            return False
        with self._lock:
            if self.under_way:
                shutil.rmtree(self._folder)
                sync_directory(self._folder.parent, self._environment)
                self.under_way = False
        return True
