"""Which volumes are to be mounted where: what the daemon remounts after a crash or a restart.

STATE/mounts.json, written whenever that changes, replaced atomically and synced:
{"format": 1, "mounts": {NAME: {"directory": ABSOLUTE PATH, "allow_other": BOOLEAN}}}
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.files import replace_file

__all__ = ["WantedMount", "WantedMounts"]

log = logging.getLogger(__name__)

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class WantedMount:
    """One mount that is to be there whenever the daemon runs."""

    directory: Path
    allow_other: bool = False


class WantedMounts:
    """The record of wanted mounts in the folder `state`. Safe to use from several threads of one process."""

    def __init__(self, state: Path, environment: Environment = SYSTEM) -> None:
        self._environment = environment
        self._path = state / "mounts.json"
        self._lock = threading.Lock()

    def all(self) -> dict[str, WantedMount]:
        """The wanted mounts by volume. A damaged record counts as empty, and is logged."""
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.error("cannot use %s, no volume is remounted: %s", self._path, error)
            return {}

    def add(self, volume: str, mount: WantedMount) -> None:
        """Record a mount. Raises `OSError`."""
        with self._lock:
            self._write({**self.all(), volume: mount})

    def remove(self, volume: str) -> None:
        """Forget a mount; one that is not recorded is no error. Raises `OSError`."""
        with self._lock:
            mounts = self.all()
            if mounts.pop(volume, None):
                self._write(mounts)

    def _write(self, mounts: dict[str, WantedMount]) -> None:
        record = {
            "format": _FORMAT,
            "mounts": {
                name: {"directory": str(mount.directory), "allow_other": mount.allow_other}
                for name, mount in mounts.items()
            },
        }
        replace_file(self._path, json.dumps(record, indent=2).encode("ascii"), self._environment)


def _decode(data: bytes) -> dict[str, WantedMount]:
    record = json.loads(data)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError("not a record of mounts, or of a newer version")
    mounts = record.get("mounts")
    if not isinstance(mounts, dict):
        raise ValueError("no mounts in it")
    return {name: _decode_mount(name, entry) for name, entry in mounts.items()}


def _decode_mount(name: str, entry: object) -> WantedMount:
    if isinstance(entry, dict):
        directory, allow_other = entry.get("directory"), entry.get("allow_other")
        if isinstance(directory, str) and directory.startswith("/") and isinstance(allow_other, bool):
            return WantedMount(Path(directory), allow_other)
    raise ValueError(f"malformed entry for {name!r}")
