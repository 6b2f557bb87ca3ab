"""What was seen of the devices is there again after a restart."""

from __future__ import annotations

from pathlib import Path

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import SYSTEM
from hybrisfs.state.database import Database
from hybrisfs.state.journal import Journal
from hybrisfs.state.state import State
from sync.beacons import Sighting
from tests.sync.support import KEYS

A, B = bytes(16), bytes([1]) * 16


def open_state(folder: Path) -> State:
    return State(
        Database(folder / "volume.db", SYSTEM),
        Journal(folder / "journal", budget=1 << 20, environment=SYSTEM),
        ChunkNamer(bytes(32)),
        KEYS[0],
    )


def test_the_newest_is_kept_of_each_device(tmp_path: Path) -> None:
    Database.create(tmp_path / "volume.db", bytes(16))
    state = open_state(tmp_path)
    with state.transaction() as tx:
        assert tx.sightings.load() == {}
        tx.sightings.store({A: Sighting(None, None), B: Sighting(b"head", 2**63 - 1)})
        tx.sightings.store({A: Sighting(b"later", 7)})
    state.close()
    state = open_state(tmp_path)
    with state.transaction() as tx:
        again = tx.sightings.load()
    assert again == {A: Sighting(b"later", 7), B: Sighting(b"head", 2**63 - 1)}
    state.close()
