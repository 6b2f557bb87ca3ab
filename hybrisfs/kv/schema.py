"""The SQL schema of a metadata store's database, and the only home of its sentinels and invariants.

One database per volume and device. Every object that may be on any cloud is named by a row: by that of its
key in `entry`, or by one in `garbage` or `owed_deletion`. A write puts its number into `garbage` before the
first byte goes up; the transaction that makes it the key's value takes it out, and puts in what it replaces.
So whatever a crash leaves on the clouds is known and deleted.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter

from hybrisfs.kv.record import KeyMetadata
from sync.codec import DecodeError

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "create_schema", "upgrade_schema"]

APPLICATION_ID = 0x4879624B  # "HybK", shown by file(1)
SCHEMA_VERSION = 3

_TABLES = """
-- 'store': 16 random bytes, part of the name of every object. 'write': the highest number of a write in use.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY NOT NULL
) WITHOUT ROWID;

-- A number is never used again, so that a write that began before its container was deleted cannot end in
-- another one of that name.
CREATE TABLE container (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name   TEXT NOT NULL UNIQUE
);

-- The keys, tombstones included; `record` is described in record.py.
CREATE TABLE entry (
    container INTEGER NOT NULL,
    key       BLOB NOT NULL,               -- UTF-8
    record    BLOB NOT NULL,
    PRIMARY KEY (container, key)
) WITHOUT ROWID;

-- Writes whose objects no key refers to, not yet or not any more: on any cloud, under `names` names
-- (1: copies of one object; more: one for each share).
CREATE TABLE garbage (
    write INTEGER PRIMARY KEY,
    names INTEGER NOT NULL
);

-- Of these all clouds but the ones that are listed here have deleted what they had.
CREATE TABLE owed_deletion (
    cloud INTEGER NOT NULL,
    write INTEGER NOT NULL,
    names INTEGER NOT NULL,
    PRIMARY KEY (cloud, write)
) WITHOUT ROWID;

-- How many records in `entry` name a cloud, so that it is known at once whether a cloud may go. Changed in
-- the transaction that changes the record; a cloud without a row has no value, nor has one whose count is 0.
CREATE TABLE held (
    cloud INTEGER PRIMARY KEY,
    count INTEGER NOT NULL
);

-- The clouds that `owed_deletion` names, and since when it has named them (seconds since the epoch, by this
-- machine's clock).
CREATE TABLE owing (
    cloud INTEGER PRIMARY KEY,
    since INTEGER NOT NULL
);
"""


def create_schema(connection: sqlite3.Connection, store: bytes) -> None:
    """Lay out an empty database for the store with id *store*, inside the caller's transaction."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [("store", store), ("write", 0)])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def upgrade_schema(connection: sqlite3.Connection) -> None:
    """Bring a database of an earlier format up to date, inside the caller's transaction: format 1 has neither
    the table `held` nor `owing`, format 2 has no `owing`."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < 2:
        _add_held(connection)
    connection.execute(_table("owing"))
    connection.execute("INSERT INTO owing SELECT DISTINCT cloud, ? FROM owed_deletion", (int(time.time()),))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _table(name: str) -> str:
    return next(one for one in _TABLES.split(";\n") if f"CREATE TABLE {name} " in one)


def _add_held(connection: sqlite3.Connection) -> None:
    connection.execute(_table("held"))
    held = Counter[int]()
    for (record,) in connection.execute("SELECT record FROM entry"):
        try:
            held.update(KeyMetadata.decode(record).placement)
        except DecodeError:
            continue  # a read of the key reports it
    connection.executemany("INSERT INTO held VALUES (?, ?)", held.items())
