"""The configuration of an open volume: what it is now, and changes to it, by commands or in an editor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from hybrisfs.api.volumes import VolumeSettings
from hybrisfs.errors import HybrisError, UnknownVolumeError
from hybrisfs.home import Home
from hybrisfs.settings.config import VolumeConfig, links_shown
from hybrisfs.topic import Topic

__all__ = ["Settings", "entries_of"]

log = logging.getLogger(__name__)

# What holds at any time, as soon as `changed` tells of it; everything else is read when the volume is opened.
_AT_ANY_TIME: Final = frozenset(
    {
        "cache_bytes",
        "deletion_share",
        "stale_reads",
        "transfers",
        "keep_versions",
        "notifications",
        "veto_hours",
        "evict_liars",
        "hoard",
        "check_days",
    }
)
_NAMES_IN_FILE: Final = {"deletion_share": "deletion_percent"}  # where they differ


class Settings:
    """Keeps every change in the file before it holds; notices what a person changes there. Thread-safe."""

    def __init__(self, home: Home, config: VolumeConfig) -> None:
        self._home = home
        self.changed = Topic[[VolumeConfig]]()
        """Settings that hold at any time are what they are in this configuration."""
        self._lock = threading.Lock()
        self.config = self._kept = config
        self._seen: tuple[int, int, int] | None = self._identity()  # the file that `_kept` was in
        self.doubts = _unknown(config)
        """What a person should know of an edited file, in sentences."""

    def change(self, change: Callable[[VolumeConfig], VolumeConfig]) -> tuple[VolumeConfig, VolumeConfig]:
        """Keep what *change* makes of the configuration; what it was, and what it is.

        What a person has changed in the file since stays there. Raises OSError, and HybrisError when the
        file cannot be understood as it is now.
        """
        self.look()
        with self._lock:
            before, after = self.config, change(self.config)
            if after != before:
                looked = self._identity() == self._seen
                change(self._read()).save(self._home)
                self._seen = self._identity() if looked else None
                self.config, self._kept = after, change(self._kept)
            return before, after

    def look(self) -> None:
        """Take what a person has changed in the file and can hold at any time; say what cannot."""
        with self._lock:
            identity = self._identity()
            if identity == self._seen:
                return
            self._seen = identity
            try:
                edited = self._read()
            except HybrisError as error:
                self.doubts = [
                    f"{error.what}: {error.why}. What it said before holds; mend it before the next restart"
                ]
                return
            different = [
                name
                for name in VolumeConfig.__struct_fields__
                if getattr(edited, name) != getattr(self._kept, name)
            ]
            taken = {name: getattr(edited, name) for name in different if name in _AT_ANY_TIME}
            self.config, self._kept = replace(self.config, **taken), replace(self._kept, **taken)
            config = self.config
            later = [name for name in different if name not in taken and name != "unknown"]
            self.doubts = _unknown(edited) + _later(later)
        if taken:
            log.info("%s: volume.json was changed: %s", config.name, ", ".join(map(_shown, taken)))
            self.changed(config)

    def _read(self) -> VolumeConfig:
        try:
            return VolumeConfig.load(self._home, self.config.name)
        except UnknownVolumeError:  # it was removed; what is known of it is written when something changes
            return self.config

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            status = (self._home.volume_config(self.config.name) / "volume.json").stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def set(self, **changes: Any) -> None:
        """Let fields of the configuration have these values. Raises OSError and HybrisError."""
        self.change(lambda config: replace(config, **changes))

    def edit(self, entries: Mapping[str, Any]) -> None:
        """Write these entries into the file, as a person does in an editor; see `VolumeConfig.edited`. Those
        that cannot hold at any time are among the `doubts` then. Raises UsageError, OSError, HybrisError."""
        with self._lock:
            self._read().edited(entries).save(self._home)
        self.look()

    def entries(self) -> VolumeSettings:
        """What the file says now. Raises HybrisError."""
        return entries_of(self._read(), self.doubts)


def entries_of(config: VolumeConfig, doubts: Sequence[str]) -> VolumeSettings:
    """The settings of a configuration, for people; *doubts* as in `Settings`."""
    return VolumeSettings(
        name=config.name,
        cache_bytes=config.cache_bytes,
        stale_reads=config.stale_reads,
        keep_versions=str(config.keep_versions),
        notifications=config.notifications,
        deletion_percent=round(config.deletion_share * 100),
        discard_hours=config.discard_hours,
        veto_hours=config.veto_hours,
        evict_liars=config.evict_liars,
        hoard=config.hoard,
        check_days=config.check_days,
        no_fetch_programs=list(config.no_fetch_programs),
        link_port=config.links.port,
        link_addresses=list(links_shown(config.links)),
        discover=config.links.discover,
        warnings=list(doubts),
    )


def _unknown(config: VolumeConfig) -> list[str]:
    names = ", ".join(config.strangers())
    return [f"volume.json has unknown entries, which do nothing: {names}"] if names else []


def _later(names: list[str]) -> list[str]:
    if not names:
        return []
    changed = ", ".join(map(_shown, names))
    return [
        f"volume.json was changed since the volume was opened ({changed}): that takes effect when the daemon "
        "is restarted, by hybrisfs daemon --stop and then hybrisfs status"
    ]


def _shown(name: str) -> str:
    return _NAMES_IN_FILE.get(name, name)
