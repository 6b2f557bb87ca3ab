"""The SQLite database of a metadata store: one connection that writes, and a few that read.

A commit is durable when it returns (synchronous=FULL), and readers see it only then.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.kv.errors import DAMAGE_ADVICE
from hybrisfs.kv.schema import APPLICATION_ID, SCHEMA_VERSION, create_schema, upgrade_schema

__all__ = ["MetadataDatabase"]

_READERS: Final = 4
_BUSY_SECONDS: Final = 30
_CHECKPOINT_PAGES: Final = (
    4096  # of 4 KiB; pages that are written often go to the database once for many commits
)


class MetadataDatabase:
    """An open database. `writer` is for one thread at a time, `reader` for any."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
            upgrade_schema(self.writer)
            self.writer.execute("COMMIT")

    @contextlib.contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees what is committed; for one statement, fetched as a whole.

        Raises HybrisError after the end.
        """
        connection = self._readers.get()
        try:
            if self._closed:
                raise HybrisError("the key-value store is closed")
            if connection is None:
                connection = _connect(self.path)
            yield connection
        finally:
            if self._closed and connection is not None:
                connection.close()
                connection = None
            self._readers.put(connection)

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
