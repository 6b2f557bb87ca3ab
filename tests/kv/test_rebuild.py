"""A damaged metadata database: what can be read of it becomes a new one."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.kv.rebuild import RebuiltMetadata, rebuild
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.repetition import pack_writes
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import new_store_id
from tests.kv.rig import CONTAINER, KEY, Rig

COUNT = 3000  # keys, on many pages


def filled(folder: Path) -> Rig:
    rig = Rig(folder)
    rig.put("one", b"first")
    rig.put("one", b"value")  # what it replaces is garbage
    rig.store.delete(CONTAINER, "two")
    return rig


def rebuilt(rig: Rig) -> RebuiltMetadata:
    """Rebuild the closed store's database, and open it."""
    fresh = rig.path.with_name("rebuilt")
    result = rebuild(rig.path, fresh, new_store_id(KEY), SYSTEM)
    fresh.rename(rig.path)
    rig.reopen()
    return result


def change(path: Path, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement, parameters)


def test_one_damaged_record_costs_its_key(tmp_path: Path) -> None:
    with filled(tmp_path) as rig:
        rig.put("bad", b"value")
        next_write = rig.store.metadata.new_write()
        rig.store.close()
        change(rig.path, "UPDATE entry SET record = x'ff' WHERE key = ?", b"bad")
        assert rebuilt(rig) == RebuiltMetadata(same_store=True, keys=1, damaged=1)
        assert [one.key for one in rig.store.list(CONTAINER)] == ["one"]
        assert rig.get("one") == b"value"
        assert rig.store.metadata.new_write() > next_write + (1 << 32)
        rig.store.collector.collect()
        assert rig.get("one") == b"value"
        assert sum(rig.store.metadata.held(cloud) for cloud in range(3)) == 2


def test_containers_without_names_get_some(tmp_path: Path) -> None:
    with filled(tmp_path) as rig:
        rig.store.create_container("recovered-1")
        rig.store.close()
        change(rig.path, "UPDATE container SET name = ? WHERE number = 1", b"\xff/")
        assert rebuilt(rig).keys == 1
        assert rig.store.containers() == ["recovered-1", "recovered-1-"]
        assert rig.store.get("recovered-1-", "one").value == b"value"


def test_what_waited_for_its_deletion_is_not_believed(tmp_path: Path) -> None:
    """A damaged number may be that of a value that is needed."""
    with filled(tmp_path) as rig:
        needed = rig.store.metadata.read((1, b"one"))
        assert needed is not None
        rig.store.close()
        change(rig.path, "INSERT INTO garbage VALUES (?, 1)", needed.objects)
        for cloud in needed.placement:
            writes = pack_writes([(needed.objects, 1)])
            change(rig.path, "INSERT INTO repetition VALUES (NULL, ?, 0, 1, ?)", cloud, writes)
        assert rebuilt(rig).keys == 1
        rig.store.collector.collect()
        assert rig.get("one") == b"value"


@pytest.mark.parametrize("damage", ["no id", "no database", "empty"])
def test_without_the_stores_id_a_new_one_begins(tmp_path: Path, damage: str) -> None:
    with filled(tmp_path) as rig:
        rig.store.close()
        if damage == "no id":
            change(rig.path, "UPDATE meta SET value = 'x' WHERE key = 'store'")
        else:
            rig.path.write_bytes(os.urandom(50_000) if damage == "no database" else b"")
        assert rebuilt(rig) == RebuiltMetadata(same_store=False, keys=0, damaged=0)
        rig.store.create_container("new")
        rig.store.put("new", "key", b"value")
        assert rig.store.get("new", "key").value == b"value"


@pytest.mark.parametrize("seed", range(8))
def test_rotten_pages_cost_what_is_on_them(tmp_path: Path, seed: int) -> None:
    """Whatever is overwritten, it ends with a sound database, and nothing in it was never written."""
    draw = random.Random(seed)
    with Rig(tmp_path) as rig:
        written = {
            b"key%05d" % n: KeyMetadata(1, n + 1, 9, 38, 1, (0, 1), (b"c" * 16,)) for n in range(COUNT)
        }
        rig.store.close()
        with closing(sqlite3.connect(rig.path, isolation_level=None)) as database:
            database.execute("BEGIN")
            rows = [(1, key, entry.encode()) for key, entry in written.items()]
            database.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
            database.execute("COMMIT")
        image = bytearray(rig.path.read_bytes())
        for _ in range(draw.randrange(1, 4)):
            page = draw.randrange(len(image) // 4096)
            image[page * 4096 : (page + 1) * 4096] = draw.randbytes(4096)
        rig.path.write_bytes(image)
        result = rebuilt(rig)
        metadata: DeviceMetadata = rig.store.metadata
        found = {one.place[1]: one.entry for one in metadata.values()}
        assert len(found) == result.keys
        assert found.items() <= written.items()
        assert metadata.problems() == []
