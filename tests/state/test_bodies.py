"""Dropping bodies: which, what stays, and the room that it gives back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.state.database import Database
from hybrisfs.state.stored_log import BodyStore
from hybrisfs.state.updates import LogRows, UpdateLog
from sync import Members, VersionVector
from tests.sync.support import KEYS, NOON

VOLUME = bytes(range(16))
KEY = KEYS[0]
NOBODY = bytes(16)
ALL = 1 << 20


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    Database.create(tmp_path / "volume.db", VOLUME)
    opened = Database(tmp_path / "volume.db", SYSTEM)
    yield opened
    opened.abandon()


def filled(database: Database, count: int, size: int = 100) -> UpdateLog:
    log = UpdateLog(LogRows(database.rows), database.environment, Members([KEY.public]), KEY)
    for number in range(count):
        log.sign([(b"key %d" % number, os.urandom(size))], NOON, number)
    return log


def rows(database: Database) -> list[tuple[object, ...]]:
    query = "SELECT number, branch, clock, device, hash, chunk_high, vector, time FROM log ORDER BY number"
    return database.rows.execute(query).fetchall()


def bare(database: Database) -> list[int]:
    return [
        clock
        for (clock,) in database.rows.execute("SELECT clock FROM log WHERE bytes IS NULL ORDER BY clock")
    ]


def test_what_is_covered_loses_its_body_and_nothing_else(database: Database) -> None:
    log, bodies = filled(database, 6), BodyStore(database.rows)
    before = rows(database)
    size = sum(len(data) for data in log.own_between(1, 4))
    assert bodies.drop(VersionVector({KEY.device_id: 4}), NOBODY, 1, most=3) == 3
    assert bodies.drop(VersionVector({KEY.device_id: 4}), NOBODY, 1, most=3) == 1
    assert bodies.drop(VersionVector({KEY.device_id: 4}), NOBODY, 1, most=3) == 0
    assert bare(database) == [1, 2, 3, 4]
    assert rows(database) == before
    assert (bodies.dropped().updates, bodies.dropped().bytes, bodies.left()) == (4, size, 2)
    after = UpdateLog(LogRows(database.rows), database.environment, Members([KEY.public]), KEY)
    assert after.state.history() == log.state.history()
    after.sign([(b"next", None)], NOON, 7)
    assert [row[0] for row in after.own_after(0, 10)] == [5, 6, 7]


def test_own_updates_that_may_be_needed_again_keep_theirs(database: Database) -> None:
    filled(database, 6)
    BodyStore(database.rows).drop(VersionVector({KEY.device_id: 6}), KEY.device_id, 3, ALL)
    assert bare(database) == [1, 2]


def test_of_another_branch_nothing_is_dropped(database: Database) -> None:
    filled(database, 3)
    assert not BodyStore(database.rows).drop(VersionVector({b"another branch..": 3}), NOBODY, 1, ALL)
    assert bare(database) == []


def test_the_room_goes_back_to_the_file_system(database: Database) -> None:
    filled(database, 4000, 1000)
    database.commit()
    while BodyStore(database.rows).drop(VersionVector({KEY.device_id: 4000}), NOBODY, 1, 256):
        pass
    (before,) = database.rows.execute("PRAGMA page_count").fetchone()
    while database.shrink(100):
        database.commit()
    (after,) = database.rows.execute("PRAGMA page_count").fetchone()
    assert after < before // 2
    assert database.rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)
