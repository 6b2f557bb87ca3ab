"""The log in the database, and the state that must never be ahead of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from hybrisfs.store.database import Database
from hybrisfs.store.updates import UpdateLog
from sync import Accepted, Duplicate, LogState, Members, decode_signed
from tests.sync.support import KEYS, NOON, MemoryLog

VOLUME = bytes(range(16))
KEY = KEYS[0]
MEMBERS = Members([key.public for key in KEYS])
WRITES = [(b"key", b"value")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "volume.db"
    Database.create(path, VOLUME)
    opened = Database(path)
    yield opened
    opened.abandon()


def opened(database: Database) -> UpdateLog:
    return UpdateLog(database, MEMBERS, KEY)


def test_signed_updates_are_a_log_that_others_accept(database: Database) -> None:
    log = opened(database)
    for number in range(3):
        log.sign([(b"key %d" % number, None)], NOON, number)
    log = opened(database)
    log.sign(WRITES, NOON, 3)
    assert [row[:2] for row in log.own_after(0, 10)] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    memory = MemoryLog()
    other = LogState(VOLUME, MEMBERS, memory)
    for data in log.own_between(1, 4):
        outcome = other.accept(decode_signed(data))
        assert isinstance(outcome, Accepted)
        memory.add(outcome.update, outcome.dependencies)
    assert other.vector == log.state.vector
    assert isinstance(log.state.accept(decode_signed(log.own_between(2, 2)[0])), Duplicate)


def test_lists_of_own_updates(database: Database) -> None:
    log = opened(database)
    sizes = [len(log.sign([(b"key", bytes(10 * number))], NOON, 0).data) for number in range(5)]
    assert [row[2] for row in log.own_after(0, 10)] == sizes
    assert [row[0] for row in log.own_after(2, 2)] == [3, 4]
    assert log.own_after(5, 10) == []
    assert [len(data) for data in log.own_between(2, 3)] == sizes[1:3]


@pytest.mark.parametrize("step", ["insert", "state"])
def test_an_update_that_could_not_be_stored_was_never_signed(database: Database, step: str) -> None:
    """The next one would otherwise follow an update that does not exist."""
    log = opened(database)
    first = log.sign(WRITES, NOON, 0)
    real = database.execute
    refused = {"insert": "INSERT INTO log", "state": "UPDATE meta"}[step]

    def full(statement: str, *arguments: object) -> sqlite3.Cursor:
        if statement.startswith(refused):
            raise sqlite3.OperationalError("database or disk is full")
        return real(statement, *arguments)  # type: ignore[arg-type]

    database.execute("SAVEPOINT signing")
    with mock.patch.object(database, "execute", full), pytest.raises(sqlite3.OperationalError):
        log.sign(WRITES, NOON, 0)
    database.execute("ROLLBACK TO signing")
    second = log.sign(WRITES, NOON, 0)
    assert (second.header.clock, second.header.prev) == (2, first.hash)
    assert opened(database).state.vector == log.state.vector


def test_what_the_log_state_asks(database: Database) -> None:
    log = opened(database)
    first, second = (log.sign(WRITES, NOON, 0) for _ in range(2))
    me = KEY.device_id
    assert log.hash_of(me, 1) == first.hash
    assert log.hash_of(me, 3) is None
    assert log.vector_of(me, 2) is not None
    assert log.vector_of(KEYS[1].device_id, 1) is None
    assert log.successor_of(me, 1) == second.data
    assert log.successor_of(me, 2) is None
