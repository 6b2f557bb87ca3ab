"""The configuration of an open volume: what it is now, and changes to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybrisfs.home import Home
from hybrisfs.versions.ladder import parse_ladder
from hybrisfs.volume.config import VolumeConfig

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["Settings"]


class Settings:
    """Keeps every change in the file before it holds. Thread-safe."""

    def __init__(self, volume: Volume, home: Home, config: VolumeConfig) -> None:
        self._volume = volume
        self._home = home
        self._lock = threading.Lock()
        self.config = config

    def change(self, change: Callable[[VolumeConfig], VolumeConfig]) -> tuple[VolumeConfig, VolumeConfig]:
        """Keep what *change* makes of the configuration; what it was, and what it is. Raises OSError."""
        with self._lock:
            before, after = self.config, change(self.config)
            if after != before:
                after.save(self._home)
                self.config = after
            return before, after

    def set(self, **changes: Any) -> None:
        """Let fields of the configuration have these values. Raises OSError."""
        self.change(lambda config: replace(config, **changes))

    def set_stale_reads(self, how: str) -> None:
        """See `VolumeConfig`; from now on."""
        self.set(stale_reads=how)
        self._volume.sharing.freshness.blocks = how == "block"

    def set_notifications(self, wanted: bool) -> None:
        """See `VolumeConfig`; from now on."""
        self.set(notifications=wanted)

    def set_keep_versions(self, rule: str) -> str:
        """See `Ladder`; from now on. The rule as it is kept. Raises UsageError."""
        self._volume.versions.keep(ladder := parse_ladder(rule))
        self.set(keep_versions=ladder)
        return str(ladder)
