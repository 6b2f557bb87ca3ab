"""The database: foreign and newer files refused, commits that last, a log that stays short."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.state.database import Database, DatabaseLimits
from hybrisfs.state.schema import SCHEMA_VERSION
from tests.state.disk import ForgetfulDisk

PATIENCE = 20.0  # less than SQLite's own when it waits for a reader
VOLUME = bytes(range(16))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "state" / "volume.db"
    made.parent.mkdir()
    Database.create(made, VOLUME)
    return made


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, SYSTEM)
    yield opened
    opened.abandon()


def put(database: Database, *numbers: int, size: int = 1) -> None:
    rows = [(number, b"name", bytes(size)) for number in numbers]
    database.rows.executemany("INSERT OR REPLACE INTO xattr VALUES (?, ?, ?)", rows)


def numbers(source: Database | sqlite3.Connection) -> set[int]:
    reader = source.rows if isinstance(source, Database) else source
    return {row[0] for row in reader.execute("SELECT ino FROM xattr").fetchall()}


def test_a_new_database(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    database = Database(path, SYSTEM)
    assert database.rows.meta("volume") == VOLUME
    database.rows.set_meta("files", 7)
    database.close()
    again = Database(path, SYSTEM)
    assert again.rows.meta("files") == 7
    again.abandon()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 or not", bytes(4096)])
def test_what_is_no_database_of_ours_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "volume.db"
    path.write_bytes(content)
    with pytest.raises(DamagedError):
        Database(path, SYSTEM)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "volume.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE meta (key TEXT, value ANY)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(DamagedError, match="not a HybrisFS database"):
        Database(path, SYSTEM)
    assert path.read_bytes() == before


def test_a_missing_database_is_not_made_anew(tmp_path: Path) -> None:
    """A disk that is not mounted must not look like an empty volume."""
    with pytest.raises(DamagedError, match="missing"):
        Database(tmp_path / "volume.db", SYSTEM)
    assert not list(tmp_path.iterdir())


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NewerFormatError):
        Database(path, SYSTEM)
    assert path.read_bytes() == before


def test_a_database_of_an_earlier_development_version_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 1")
    other.close()
    before = path.read_bytes()
    with pytest.raises(HybrisError, match="earlier development version"):
        Database(path, SYSTEM)
    assert path.read_bytes() == before


def test_a_crash_takes_back_what_was_not_committed(path: Path) -> None:
    database = Database(path, SYSTEM)
    put(database, 1)
    database.commit()
    put(database, 2)
    database.abandon()
    again = Database(path, SYSTEM)
    assert numbers(again) == {1}
    again.abandon()


def test_a_power_cut_takes_back_what_was_not_durable(tmp_path: Path, path: Path) -> None:
    disk = ForgetfulDisk(path.parent)
    (tmp_path / "after").mkdir()
    database = Database(path, disk.environment)
    put(database, 1)
    database.commit()
    database.make_durable()
    put(database, 2)
    database.commit()
    disk.image(tmp_path / "after")
    database.abandon()
    after = Database(tmp_path / "after" / "volume.db", SYSTEM)
    assert numbers(after) == {1}
    after.abandon()


def test_snapshots_show_what_was_committed_when_they_began(database: Database) -> None:
    put(database, 1)
    database.commit()
    put(database, 2)
    with database.snapshot() as before:
        database.commit()
        with database.snapshot() as after:
            put(database, 3)
            assert (numbers(before), numbers(after)) == ({1}, {1, 2})
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            before.execute("DELETE FROM xattr")


def wal_size(database: Database) -> int:
    return Path(f"{database.path}-wal").stat().st_size


def test_the_log_stays_short(database: Database) -> None:
    database.limits = DatabaseLimits(log_bytes=200_000)
    for number in range(50):
        put(database, number, size=20_000)
        database.commit()
        assert wal_size(database) < 300_000
    assert len(numbers(database)) == 50


def test_checkpoints_leave_little_to_do_for_who_shortens_the_log(database: Database) -> None:
    put(database, *range(50), size=20_000)
    database.commit()
    database.checkpoint()
    assert database.path.stat().st_size < 1_000_000  # the log is still short
    database.limits = DatabaseLimits(checkpoint_bytes=100_000)
    database.checkpoint()
    assert database.path.stat().st_size > 1_000_000


def test_no_reader_holds_up_a_commit(database: Database) -> None:
    """A check that takes an hour must not keep programs waiting at each commit."""
    put(database, 1)
    database.commit()
    database.limits = DatabaseLimits(log_bytes=1000)
    with database.snapshot() as reader, ThreadPoolExecutor(1) as pool:
        assert numbers(reader) == {1}
        put(database, 2, size=20_000)
        pool.submit(database.commit).result(PATIENCE)
        assert numbers(reader) == {1}
        assert wal_size(database) > 1000
    database.commit()
    assert wal_size(database) == 0


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file can become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_log_that_cannot_be_shortened_costs_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The commit is in the log: a disk too full for the database file takes nothing away."""
    database = Database(path, SYSTEM)
    put(database, 1, size=20_000)
    database.limits = DatabaseLimits(log_bytes=1000, checkpoint_bytes=1000)
    with files_up_to(path.stat().st_size):
        database.commit()
        assert "cannot be shortened" in caplog.text
        caplog.clear()
        database.checkpoint()
        assert "cannot be shortened" in caplog.text
    assert wal_size(database) > 20_000
    put(database, 2)
    database.commit()
    database.close()
    again = Database(path, SYSTEM)
    assert numbers(again) == {1, 2}
    again.abandon()


def test_a_transaction_that_was_rolled_back_ends_it(database: Database) -> None:
    put(database, 1)
    database.rows.execute("ROLLBACK")
    with pytest.raises(OSError, match="open the volume again"):
        database.commit()
    with pytest.raises(sqlite3.ProgrammingError):
        put(database, 2)
    with pytest.raises(OSError):
        database.commit()


def test_statements_write_nothing_until_the_commit(database: Database) -> None:
    """So that a full disk is found out there, and not in the middle of an operation."""
    before = wal_size(database)
    for number in range(100):
        put(database, number, size=1_000_000)
    assert wal_size(database) == before
    database.commit()
    assert wal_size(database) > 100_000_000 or database.path.stat().st_size > 100_000_000
