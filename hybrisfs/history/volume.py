"""What is remembered of all clouds of a volume, and the file that keeps it over a restart.

STATE/volumes/NAME/history.json, replaced atomically: {"version": 1, "clouds": {NUMBER: {"name": ...,
"months": [{"name": "2026-11", "put": ..., "get": ..., "list": ..., "delete": ..., "up": ..., "down": ...}],
"rings": {"hour": [[NUMBER OF THE INTERVAL, the columns of `ring.Row`...]], "day": [...]}}}}.
Nothing depends on it: one that is damaged is begun again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hybrisfs.dispersal.traffic import Counters
from hybrisfs.files import replace_file
from hybrisfs.history.cloud import CloudHistory

__all__ = ["FILE", "HealthRecord"]

FILE: Final = "history.json"
_VERSION: Final = 1
_MAX_FILE: Final = 64 << 20  # bytes
_MAX_CLOUDS: Final = 256


class HealthRecord:
    """One volume. Not thread-safe."""

    def __init__(self) -> None:
        self.clouds: dict[int, CloudHistory] = {}

    def count(self, now: float, number: int, name: str, counters: Counters, state: str) -> None:
        """See `CloudHistory.count`."""
        history = self.clouds.setdefault(number, CloudHistory(name))
        history.name = name
        history.count(now, counters, state)

    def keep_only(self, numbers: Mapping[int, object]) -> None:
        """Forget the clouds that the volume does not have any more."""
        for number in [one for one in self.clouds if one not in numbers]:
            del self.clouds[number]

    def save(self, path: Path) -> None:
        """Raises OSError."""
        clouds = {str(number): one.record() for number, one in self.clouds.items()}
        replace_file(path, json.dumps({"version": _VERSION, "clouds": clouds}).encode("ascii"))

    @staticmethod
    def load(path: Path) -> HealthRecord:
        """An empty one when there is no file. Raises OSError, and ValueError for a malformed one."""
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE + 1)
        except FileNotFoundError:
            return HealthRecord()
        if len(data) > _MAX_FILE:
            raise ValueError("it is too long")
        try:
            record = json.loads(data)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            raise ValueError("it is no history, or of another version")
        clouds = record.get("clouds")
        if not isinstance(clouds, dict) or len(clouds) > _MAX_CLOUDS:
            raise ValueError("it names no clouds, or too many")
        history = HealthRecord()
        history.clouds = {int(number): CloudHistory.from_record(one) for number, one in clouds.items()}
        return history
