"""The SQLite database of a metadata store: its schema, one connection that writes, and a few that read.

A commit is durable when it returns (synchronous=FULL), and readers see it only then.

The SQL schema of a metadata store's database, and the only home of its sentinels and invariants.

One database per volume and device. Every object that may be on any cloud is named by a row: by that of its
key in `entry`, or by one in `garbage` or `owed_deletion`. A write puts its number into `garbage` before the
first byte goes up; the transaction that makes it the key's value takes it out, and puts in what it replaces.
So whatever a crash leaves on the clouds is known and deleted. What was deleted is in `repetition` for a day,
as a request to put it may take effect late.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.kv.errors import DAMAGE_ADVICE
from hybrisfs.kv.record import KeyMetadata
from sync.codec import DecodeError

__all__ = ["SCHEMA_VERSION", "MetadataDatabase"]

_READERS: Final = 4
_BUSY_SECONDS: Final = 30
_CLOSED: Final = "the key-value store is closed"
_CHECKPOINT_PAGES: Final = (
    4096  # of 4 KiB; pages that are written often go to the database once for many commits
)
_LOG_BYTES: Final = 64 << 20  # that the log keeps when a long list has made it grow
_SNAPSHOT_CACHE_KIB: Final = 256  # each page is read once


class MetadataDatabase:
    """An open database. `writer` is for one thread at a time, `reader` for any."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._time = environment.time
        self._closed = False
        self._readers: SimpleQueue[sqlite3.Connection | None] = SimpleQueue()
        for _ in range(_READERS):
            self._readers.put(None)
        with contextlib.ExitStack() as undo:
            try:
                self.writer = undo.enter_context(contextlib.closing(_connect(path)))
                self._check_format()
                self.writer.execute("PRAGMA journal_mode = WAL")
                self.writer.execute("PRAGMA synchronous = FULL")
                self.writer.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                self.writer.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                raise DamagedError(
                    f"{path} cannot be read as a database", str(error), DAMAGE_ADVICE
                ) from error
            undo.pop_all()

    @staticmethod
    def create(path: Path, store: bytes) -> None:
        """Make a new database at *path*; a half-made one in the way is replaced."""
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.unlink(missing_ok=True)
        with contextlib.closing(_connect(unfinished)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            create_schema(connection, store)
            connection.execute("COMMIT")
        unfinished.chmod(0o600)
        unfinished.rename(path)

    def _check_format(self) -> None:
        application = self.writer.execute("PRAGMA application_id").fetchone()[0]
        version = self.writer.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise DamagedError(f"{self.path} is not a key-value database", "", "Nothing was changed.")
        if version > SCHEMA_VERSION:
            raise NewerFormatError(
                f"{self.path} has format {version}",
                f"this program knows formats up to {SCHEMA_VERSION}",
                "Update HybrisFS; nothing was changed.",
            )
        if version < SCHEMA_VERSION:
            self.writer.execute("BEGIN IMMEDIATE")
            upgrade_schema(self.writer, int(self._time()))
            self.writer.execute("COMMIT")

    @contextlib.contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees what is committed; for one statement, fetched as a whole.

        Raises HybrisError after the end.
        """
        connection = self._readers.get()
        try:
            if self._closed:
                raise HybrisError(_CLOSED)
            if connection is None:
                connection = _connect(self.path)
            yield connection
        finally:
            if self._closed and connection is not None:
                connection.close()
                connection = None
            self._readers.put(connection)

    @contextlib.contextmanager
    def snapshot(self, query: str, parameters: Sequence[object], most: int) -> Iterator[Iterator[list[Any]]]:
        """The rows of a query as of the moment at which the context is entered, at most so many at a time.

        It has a connection of its own: others do not wait for a slow reader. But the log of the database
        grows until the end. Raises HybrisError, also between two parts, once the database is closed.
        """
        if self._closed:
            raise HybrisError(_CLOSED)
        with contextlib.closing(_connect(self.path)) as connection:
            connection.execute(f"PRAGMA cache_size = -{_SNAPSHOT_CACHE_KIB}")
            # A connection that is closed goes on reading until its statement ends.
            with contextlib.closing(connection.execute(query, parameters)) as cursor:
                yield self._parts(cursor, most)

    def _parts(self, cursor: sqlite3.Cursor, most: int) -> Iterator[list[Any]]:
        while not self._closed:
            rows = cursor.fetchmany(most)
            if not rows:
                return
            yield rows
        raise HybrisError(_CLOSED)

    def close(self) -> None:
        """Close all connections, those that are being read from when they are given back. The caller has
        stopped who writes."""
        self._closed = True
        idle = []
        with contextlib.suppress(Empty):
            while True:
                idle.append(self._readers.get_nowait())
        for connection in idle:
            if connection is not None:
                connection.close()
            self._readers.put(None)
        self.writer.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


# -- the SQL schema of a metadata store's database ------------------------------------------------------


APPLICATION_ID = 0x4879624B  # "HybK", shown by file(1)
SCHEMA_VERSION = 4

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

-- What a cloud has deleted `times` times and is to delete again when `due` (seconds since the epoch, by this
-- machine's clock). `writes`, of one batch, are packed as repetition.py describes.
CREATE TABLE repetition (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    cloud  INTEGER NOT NULL,
    due    INTEGER NOT NULL,
    times  INTEGER NOT NULL,
    writes BLOB NOT NULL
);
CREATE INDEX repetition_due ON repetition (cloud, due);
"""


def create_schema(connection: sqlite3.Connection, store: bytes) -> None:
    """Lay out an empty database for the store with id *store*, inside the caller's transaction."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [("store", store), ("write", 0)])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def upgrade_schema(connection: sqlite3.Connection, now: int) -> None:
    """Bring a database of an earlier format up to date, inside the caller's transaction: format 2 added the
    table `held`, format 3 `owing`, format 4 `repetition`."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < 2:
        _add_held(connection)
    if version < 3:
        _add_table(connection, "owing")
        connection.execute("INSERT INTO owing SELECT DISTINCT cloud, ? FROM owed_deletion", (now,))
    _add_table(connection, "repetition")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _add_table(connection: sqlite3.Connection, name: str) -> None:
    for statement in _TABLES.split(";\n"):
        if f"CREATE TABLE {name} " in statement or f" ON {name} " in statement:
            connection.execute(statement)


def _add_held(connection: sqlite3.Connection) -> None:
    _add_table(connection, "held")
    held = Counter[int]()
    for (record,) in connection.execute("SELECT record FROM entry"):
        try:
            held.update(KeyMetadata.decode(record).placement)
        except DecodeError:
            continue  # a read of the key reports it
    connection.executemany("INSERT INTO held VALUES (?, ?)", held.items())
