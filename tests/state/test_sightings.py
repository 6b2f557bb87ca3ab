"""What was seen of the devices is there again after a restart."""

from __future__ import annotations

import threading
from pathlib import Path

from hybrisfs.state.database import Database
from hybrisfs.state.sightings import SightingTable
from sync.beacons import Sighting

A, B = bytes(16), bytes([1]) * 16


def test_the_newest_is_kept_of_each_device(tmp_path: Path) -> None:
    Database.create(tmp_path / "volume.db", bytes(16))
    database = Database(tmp_path / "volume.db")
    table = SightingTable(database, threading.Lock())
    assert table.load() == {}
    table.store({A: Sighting(None, None), B: Sighting(b"head", 2**63 - 1)})
    table.store({A: Sighting(b"later", 7)})
    database.close()
    database = Database(tmp_path / "volume.db")
    again = SightingTable(database, threading.Lock()).load()
    assert again == {A: Sighting(b"later", 7), B: Sighting(b"head", 2**63 - 1)}
    database.close()
