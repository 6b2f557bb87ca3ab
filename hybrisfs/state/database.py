"""The volume's SQLite connection: opening, group commit, and the bound on the write-ahead log.

All writes of a second or so share one transaction, which `commit` ends. SQLite runs with
synchronous=NORMAL, so that a commit only writes; `make_durable` then syncs the write-ahead log
without holding any lock. A commit that has been made durable survives a power cut.

The caller serialises all calls but `make_durable` and `checkpoint` (the volume's lock).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from hybrisfs.environment import Environment, sync_directory
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.state.migration import OLDEST, migrate
from hybrisfs.state.redo import NONCE_SIZE, Record, RedoLog
from hybrisfs.state.schema import APPLICATION_ID, SCHEMA_VERSION, create_schema

__all__ = ["Database", "DatabaseLimits", "Reader", "RowWriter", "Snapshot", "committed", "lock_exclusively"]

log = logging.getLogger(__name__)

_PAGE_CACHE_KIB = 48 * 1024
_WAL_SHARE = 32  # of a small disk the log takes no more than this part, less than the journal's reserve
_BUSY_SECONDS = 30
_MOST_PLACES = 64  # that a record may have

# SQLite takes bytes as they are. Without this, each one is first searched for methods that would adapt it.
sqlite3.register_adapter(bytes, bytes)


class DatabaseLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    checkpoint_bytes: int = 8 << 20
    """Of the write-ahead log that has pages copied into the database file in the background."""
    log_bytes: int = 64 << 20
    """Of the write-ahead log that has it emptied with the next commit."""
    spare_pages: int = 256
    """Free pages that stay in the file, as a busy volume will use them again soon."""
    migrated_rows: int = 20_000
    """Rows that are brought to a newer format in one transaction."""
    redo_bytes: int = 16 << 20
    """Of the redo log: what many small writes with an fsync after each come to in a second."""


class RowWriter:
    """What reads and changes rows: the open transaction, of the thread that holds the volume's lock.

    `execute` and `executemany` go straight to SQLite.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.unrecorded_places: list[tuple[Any, ...]] = []
        """Rows of `place` that have come since the last record or commit, unless they are many."""
        self.membership = 0
        """Rises with each change of what tells who is a member: rows of `member`, `said` and `log_branch`,
        and registers of kinds with `Trait.MEMBERS`."""

    def note_place(self, row: tuple[Any, ...]) -> None:
        """This row has come into the table `place`, which was one change."""
        if len(self.unrecorded_places) < _MOST_PLACES:
            self.unrecorded_places.append(row)

    def meta(self, key: str) -> Any:
        return self.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]

    def shipped_clock(self) -> int:
        """The newest own clock that the clouds hold."""
        return int(self.meta("published"))

    def find_meta(self, key: str) -> Any:
        """The value of a key that a new database does not have; None when there is none."""
        row = self.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, key: str, value: int | bytes) -> None:
        self.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))

    def add_meta(self, key: str, value: int | bytes | str) -> None:
        """Note what a new database does not have, or note it again."""
        self.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def remove_meta(self, key: str) -> None:
        """Note nothing more under a key that a new database does not have."""
        self.execute("DELETE FROM meta WHERE key = ?", (key,))

    def total_changes(self) -> int:
        """Rows changed since the database was opened."""
        return self._connection.total_changes


class Database:
    """One open volume database."""

    def __init__(self, path: Path, environment: Environment) -> None:
        if not path.is_file():
            raise DamagedError(f"the database {path} is missing")
        self.path = path
        self.environment: Final = environment
        self._fdatasync = environment.fdatasync
        self.limits = environment.limits.of(DatabaseLimits)
        """They may be others at any moment."""
        self._failure: OSError | None = None
        self._commits = 1  # the last one before may not be durable
        self._durable_commits = 0
        self.redo: Final = RedoLog(path.with_name(f"{path.name}-redo"), environment, self.limits.redo_bytes)
        try:
            self._open(path)
        except sqlite3.OperationalError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the message itself may be damaged
            raise DamagedError(f"{path} cannot be read as a database", str(error)) from error

    def _open(self, path: Path) -> None:
        with contextlib.ExitStack() as undo:
            self.connection = undo.enter_context(contextlib.closing(_connect(path)))
            self.rows = RowWriter(self.connection)
            self._check_format()
            self.connection.execute("PRAGMA journal_mode = WAL")
            self._begin()
            self._checkpointer = undo.enter_context(contextlib.closing(_connect(path)))
            self._wal = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            self._close_wal = weakref.finalize(self, os.close, self._wal)
            facts = self.environment.statvfs(path)
            self._wal_share = facts.f_frsize * facts.f_blocks // _WAL_SHARE
            undo.callback(self._close_wal)
            sync_directory(path.parent, self.environment)
            undo.pop_all()

    @staticmethod
    def create(path: Path, volume: bytes) -> None:
        """Make a new database at *path*, which must not exist."""
        with contextlib.closing(_connect(path)) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # cannot be had later
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            create_schema(connection, volume)
            connection.execute("COMMIT")
        path.chmod(0o600)

    def _check_format(self) -> None:
        application = self.connection.execute("PRAGMA application_id").fetchone()[0]
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise DamagedError(f"{self.path} is not a HybrisFS database")
        if version < OLDEST:
            raise HybrisError(
                f"{self.path} was made by an earlier development version (format {version})",
                f"this program reads formats from {OLDEST} on",
                "Copy the files out with that version, and create the volume again. Nothing was changed.",
            )
        if version > SCHEMA_VERSION:
            raise NewerFormatError(
                f"{self.path} has format {version}",
                f"this program knows formats up to {SCHEMA_VERSION}",
                "Update HybrisFS; nothing was changed.",
            )
        if version < SCHEMA_VERSION:
            self.connection.execute("PRAGMA journal_mode = WAL")
            migrate(self.connection, self.environment.time_ns(), self.limits.migrated_rows)

    def commit(self) -> None:
        """End the transaction and begin the next. Not yet safe from a power cut: see `make_durable`.

        Raises OSError (EIO) when SQLite cannot. What the transaction held is lost then and what is in memory
        no longer matches, so the database closes: nothing works until the volume is opened again.
        """
        try:
            if not self.connection.in_transaction:
                raise sqlite3.OperationalError("the transaction was rolled back")
            self._end()
            self._bound_wal()
            self._begin()
        except sqlite3.Error as error:
            self.connection.close()
            raise OSError(
                errno.EIO, f"{self.path} cannot be written ({error}); open the volume again"
            ) from error

    def _end(self) -> None:
        nonce = self.environment.random_bytes(NONCE_SIZE)
        self.rows.set_meta("redo", nonce)
        self.connection.execute("COMMIT")
        self._commits += 1
        self.redo.begin(nonce)

    def _begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self._committed = self.connection.total_changes
        self._end_record()

    def _end_record(self) -> None:
        self._recorded = self.connection.total_changes
        self.rows.unrecorded_places.clear()

    def is_changed(self) -> bool:
        """Whether rows have changed since the last commit."""
        return self.connection.total_changes != self._committed

    # -- what the redo log makes durable before the next commit ----------------------------------

    def may_record(self) -> bool:
        """Whether all changes of rows since the last commit are in records, or can be in the next one: they
        are new rows of `place`."""
        return (
            self.connection.total_changes - len(self.rows.unrecorded_places) == self._recorded
            and self._durable_commits == self._commits
            and self.redo.is_ready
        )

    def record(self, record: Record) -> bool:
        """Write the changes since the last record to the redo log; False when it has no room."""
        if not self.redo.append(record):
            return False
        self._end_record()
        return True

    def replay(self) -> Iterator[Record]:
        """What the redo log has on top of the last commit. The caller carries it out, in this order."""
        yield from self.redo.replay(self.rows.meta("redo"))
        self._end_record()

    # -- the log of SQLite -----------------------------------------------------------------------

    def _bound_wal(self) -> None:
        """Empty a write-ahead log that has grown too long; later, when a `snapshot` still needs it."""
        if os.fstat(self._wal).st_size <= min(self.limits.log_bytes, self._wal_share):
            return
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            # What has been committed is in the log and stays there.
            log.warning("the log of %s cannot be shortened now: %s", self.path, error)
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")

    def shrink(self, pages: int) -> bool:
        """Give up to so many free pages back to the file system with the next commit; whether there are more
        free ones than a busy volume will use again soon."""
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        spare = self.limits.spare_pages
        if free > spare:
            self.connection.execute(f"PRAGMA incremental_vacuum({min(pages, free - spare)})").fetchall()
        return bool(free > spare + pages)

    def make_durable(self) -> None:
        """Sync what has been committed. May be called from any thread, without the volume's lock.

        Raises OSError, and ever after: what a failed sync has lost, a later one does not bring back.
        """
        if self._failure is not None:
            raise self._failure
        commits = self._commits
        try:
            self._fdatasync(self._wal)
        except OSError as error:
            self._failure = error
            raise
        self._durable_commits = max(self._durable_commits, commits)

    def checkpoint(self) -> None:
        """Copy committed pages into the database file when the log has grown; from one thread only."""
        if os.fstat(self._wal).st_size > self.limits.checkpoint_bytes:
            try:
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error as error:
                log.warning("the log of %s cannot be shortened now: %s", self.path, error)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read-only view of what is committed now, for long checks that must not hold up programs."""
        with committed(self.path) as reader:
            yield reader

    def close(self) -> None:
        """Commit and close. The caller has stopped all other users."""
        try:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed by a commit that failed
                self._end()
            self.make_durable()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a commit: the open transaction comes to nothing, as if the process had been
        killed."""
        self._checkpointer.close()
        self.connection.close()
        self.redo.close()
        self._close_wal()


Snapshot: TypeAlias = sqlite3.Connection
"""What was committed at one moment, for reading."""

Reader: TypeAlias = RowWriter | Snapshot
"""What a query reads: the open transaction, with the volume's lock held, or a snapshot, without it."""


@contextlib.contextmanager
def committed(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only view of what is committed now in the database there, which another process may have open.
    Raises sqlite3.Error."""
    reader = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    with contextlib.closing(reader):
        reader.execute("PRAGMA temp_store = MEMORY")
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM meta").fetchone()  # the view begins with the first read
        yield reader


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=_BUSY_SECONDS
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    # A transaction reaches the disk when it commits and not before: a full disk is found out at one place.
    connection.execute("PRAGMA cache_spill = OFF")
    return connection


# -- one process per volume -----------------------------------------------------------------------------


_UNKNOWN: Final = "hybrisfs daemon --stop ends it, if it is a daemon."


def lock_exclusively(state: Path) -> int:
    """Let no other process open the volume with this state folder while the descriptor returned is open.

    The file holds the process id in decimal. Raises HybrisError, which names the process that has it.
    """
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HybrisError(f"cannot use {state}", error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0).strip()
        os.close(descriptor)
        known = written.isdigit()
        other = f"process {written.decode()}" if known else "another process"
        advice = f"kill {written.decode()} ends it; nothing is lost by that." if known else _UNKNOWN
        raise HybrisError(f"the volume in {state} is in use by {other}", "", advice) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
