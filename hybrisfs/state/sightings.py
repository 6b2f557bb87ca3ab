"""The last sighting of each device, kept in the database for the next start."""

from __future__ import annotations

from collections.abc import Mapping

from hybrisfs.state.database import RowWriter
from sync.beacons import Sighting

__all__ = ["SightingTable"]


class SightingTable:
    """The table `sighting`, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def load(self) -> dict[bytes, Sighting]:
        """The stored sightings, by device."""
        rows = self._db.execute("SELECT device, head, seen FROM sighting").fetchall()
        return {device: Sighting(head, seen) for device, head, seen in rows}

    def store(self, sightings: Mapping[bytes, Sighting]) -> None:
        """Store these instead of earlier ones of the same devices."""
        self._db.executemany(
            "INSERT INTO sighting (device, head, seen) VALUES (?, ?, ?) "
            "ON CONFLICT (device) DO UPDATE SET head = excluded.head, seen = excluded.seen",
            [(device, one.head, one.seen_ns) for device, one in sightings.items()],
        )
