"""Values that no metadata name: told apart from those that are named, and deleted without hurting these."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.rebuild import Orphans
from hybrisfs.kv.rmds import DeviceMetadata, DeviceStore
from hybrisfs.kv.seal import is_own_store, new_store_id, parse_value_name
from tests.kv.rig import CONTAINER, KEY, Rig


def orphans(rig: Rig, store: DeviceStore | None = None) -> Orphans:
    engine = rig.cluster.engine
    return Orphans(store or rig.store, KEY, engine.upkeep, engine.numbers)


def restore(rig: Rig, backup: Path) -> None:
    """The store as of the backup."""
    rig.store.close()
    shutil.copy(backup, rig.path)
    rig.reopen()


def back_up(rig: Rig, folder: Path) -> Path:
    target = folder / "backup.db"
    with closing(sqlite3.connect(rig.path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    return target


def test_an_intact_store_leaves_nothing_unnamed(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        for number in range(4):
            rig.put(f"key{number}", b"first")
        rig.put("key0", b"second")  # what it replaces is garbage now
        rig.store.delete(CONTAINER, "key1")
        rig.cluster.behave("down", 2)
        rig.store.collector.collect()  # what the third cloud has is owed now
        rig.release()
        found = orphans(rig).look()
        assert (found.counts, found.of_others, found.unlisted) == ((0, 0), 0, {})


@pytest.mark.parametrize("k", [1, 2])
def test_what_was_written_after_the_backup_is_found_and_deleted(tmp_path: Path, k: int) -> None:
    with Rig(tmp_path, 1, k, 2 + k) as rig:
        rig.put("old", b"kept")
        backup = back_up(rig, tmp_path)
        rig.put("lost", os.urandom(9 << 17))
        before = rig.objects()
        restore(rig, backup)
        found = orphans(rig).look()
        unnamed = sum(len(names) for names in found.unnamed.values())
        assert unnamed == found.counts[0] > 0
        assert rig.objects() == before
        _, deleted, failed = orphans(rig).delete(former=False)
        assert (deleted, failed) == (unnamed, {})
        assert orphans(rig).look().counts == (0, 0)
        assert sum(map(len, rig.objects())) == sum(map(len, before)) - unnamed
        assert rig.get("old") == b"kept"


def test_what_is_written_while_orphans_are_deleted_is_kept(tmp_path: Path) -> None:
    """The restored store would give the new write the number, and the name, of the lost one."""
    with Rig(tmp_path) as rig:
        backup = back_up(rig, tmp_path)
        rig.put("lost", b"lost")
        restore(rig, backup)

        def racing() -> None:
            if not rig.store.list(CONTAINER):
                rig.put("new", b"new")

        for cloud in rig.cluster.stores:
            cloud.before_delete = racing
        assert orphans(rig).delete(former=False)[1] > 0
        assert rig.get("new") == b"new"
        assert rig.cluster.bad() == set()


def test_what_is_on_its_way_is_not_unnamed(tmp_path: Path) -> None:
    """Also a write that had its number before, and is recorded only after the listing."""
    with Rig(tmp_path) as rig:
        seen: list[tuple[int, int]] = []
        for cloud in rig.cluster.stores:
            cloud.after_put = lambda: seen.append(orphans(rig).look().counts)
        rig.put("key", b"value")
        assert len(seen) > 1 and set(seen) == {(0, 0)}


def test_values_of_lost_metadata_are_known_as_former_and_kept_unless_asked(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        count = sum(map(len, rig.objects()))
        rig.store.close()
        rig.path.unlink()
        MetadataDatabase.create(rig.path, new_store_id(KEY))
        rig.reopen()
        rig.store.create_container(CONTAINER)
        rig.put("other", b"value")
        assert orphans(rig).look().counts == (0, count)
        assert orphans(rig).delete(former=False)[1] == 0
        assert orphans(rig).delete(former=True)[1] == count
        assert rig.get("other") == b"value"


def test_values_of_other_devices_are_counted_and_never_deleted(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        foreign = f"kv/{new_store_id(b'o' * 32).hex()}/{'ab' * 16}"
        rig.cluster.stores[0].objects |= {foreign: b"x", f"{foreign}.1": b"x", "kv/odd": b"x"}
        assert orphans(rig).look().of_others == 2
        assert orphans(rig).delete(former=True)[1] == 0
        assert {foreign, f"{foreign}.1", "kv/odd"} <= rig.objects()[0]


def test_nothing_is_deleted_while_a_record_is_damaged(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.put("key", b"value")
        rig.store.close()
        with closing(sqlite3.connect(rig.path, isolation_level=None)) as database:
            database.execute("UPDATE entry SET record = x'ff'")
        rig.reopen()
        before = rig.objects()
        with pytest.raises(DamagedError, match="kv rebuild"):
            orphans(rig).delete(former=True)
        assert rig.objects() == before


def test_a_cloud_that_does_not_tell_is_named(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.cluster.behave("down", 1)
        assert list(orphans(rig).look().unlisted) == [1]
        assert list(orphans(rig).delete(former=False)[2]) == ["c1"]


def test_ids_of_stores_tell_whose_they_are() -> None:
    store = new_store_id(KEY)
    assert is_own_store(KEY, store) and not is_own_store(b"o" * 32, store)
    assert len({new_store_id(KEY) for _ in range(20)}) == 20
    name = f"kv/{store.hex()}/{'cd' * 16}"
    assert parse_value_name(name) == parse_value_name(f"{name}.12") == (store, b"\xcd" * 16)
    for other in (name[:-1], f"{name}.", f"{name}.x", f"x{name}", name.upper(), f"{name}\n"):
        assert parse_value_name(other) is None


def test_numbers_that_were_skipped_stay_so(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        before = rig.store.metadata.new_write()
        rig.store.metadata.skip_writes()
        after = rig.store.metadata.new_write()
        assert after > before + (1 << 32)
        rig.store.close()
        again = DeviceMetadata(rig.path, SYSTEM)
        try:
            assert again.new_write() >= after
        finally:
            again.close()
