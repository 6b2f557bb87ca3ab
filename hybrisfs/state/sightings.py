"""The last sighting of each device, kept in the database for the next start."""

from __future__ import annotations

from collections.abc import Mapping

from hybrisfs.state.state import State
from sync.beacons import Sighting

__all__ = ["SightingTable"]


class SightingTable:
    """The table `sighting`, under the volume's lock, which its methods take."""

    def __init__(self, state: State) -> None:
        self._state = state

    def load(self) -> dict[bytes, Sighting]:
        """The stored sightings, by device."""
        with self._state.transaction() as tx:
            rows = tx.execute("SELECT device, head, seen FROM sighting").fetchall()
        return {device: Sighting(head, seen) for device, head, seen in rows}

    def store(self, sightings: Mapping[bytes, Sighting]) -> None:
        """Store these instead of earlier ones of the same devices."""
        with self._state.transaction() as tx:
            tx.executemany(
                "INSERT INTO sighting (device, head, seen) VALUES (?, ?, ?) "
                "ON CONFLICT (device) DO UPDATE SET head = excluded.head, seen = excluded.seen",
                [(device, one.head, one.seen_ns) for device, one in sightings.items()],
            )
