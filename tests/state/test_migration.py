"""A database of an earlier program is brought to the format of this one, whatever happens meanwhile.

`databases/format-5.db.gz` was made by `old_database.py`.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import NewerFormatError
from hybrisfs.registers.tree import Place, content_key, place_key
from hybrisfs.state.database import Database, DatabaseLimits
from hybrisfs.state.decisions import Cause
from hybrisfs.state.migration import migrate
from hybrisfs.state.schema import SCHEMA_VERSION
from hybrisfs.write.layout import ChunkLimits
from sync import DeviceKey, VersionVector
from tests.surroundings import limited
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig

OLD = Path(__file__).parent / "databases" / "format-5.db.gz"
LATER = [
    ("chunk", "proven"),
    ("pack", "proven"),
    ("pack", "doubted"),
    ("spare", "length"),
    ("spare", "proven"),
]  # columns of format 12
KEY = DeviceKey.from_seed(bytes([1]) * 32)  # of the device that had it


class KilledError(BaseException):
    """The daemon dies."""


class _Killed(sqlite3.Connection):
    """The daemon dies before one of its transactions has ended."""

    left = 0
    """So many end before."""

    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if statement == "COMMIT":
            if not self.left:
                raise KilledError
            self.left -= 1
        return super().execute(statement, parameters)


def take_back_newest(db: sqlite3.Connection) -> None:
    """What formats 17, 19 to 21 and 24 have brought."""
    db.execute("DROP TRIGGER leaf_of_dropped")
    db.execute("DROP TABLE leaf")
    db.execute("DELETE FROM meta WHERE key = 'redo'")
    db.execute("ALTER TABLE spare DROP COLUMN lost")
    db.execute("DROP TRIGGER piece_of_absent")
    db.execute("DROP TRIGGER piece_of_dropped")
    db.execute("DROP TABLE piece")
    db.execute("ALTER TABLE file_chunk DROP COLUMN skip")


def take_back(db: sqlite3.Connection) -> None:
    """What formats 12 and later have brought."""
    db.execute("DROP TABLE said")
    for table, column in LATER:
        db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    db.execute("DROP TABLE epoch")
    for column in ("inviter", "clock"):
        db.execute(f"ALTER TABLE member DROP COLUMN {column}")
    db.execute("DROP TABLE deletion")
    db.execute("DROP TABLE held")
    take_back_newest(db)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "volume.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def schema(path: Path) -> set[tuple[object, ...]]:
    """Tables and indices with their columns, and triggers, but for the text that made them."""
    with closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [
            (table, *row[1:4]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")
        ]
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")]
        triggers = db.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        indices = [
            (index, position, column)
            for index in names
            for position, _, column in db.execute(f"PRAGMA index_info({index})")
        ]
        meta = [("meta", key) for (key,) in db.execute("SELECT key FROM meta")]
    return {*columns, *indices, *triggers, *meta}


def check_moments(path: Path) -> None:
    """Each update has one, which is not before those of its causes."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        moments = {
            (branch, clock): (moment, time, VersionVector.decode(vector))
            for branch, clock, moment, time, vector in db.execute(
                "SELECT branch, clock, moment, time, vector FROM log"
            )
        }
        assert len(moments) == 8
        for moment, time, vector in moments.values():
            causes = [moments[cause][0] for cause in vector.items()]
            assert moment == max(time, *causes) if causes else time


def test_it_becomes_what_a_new_one_is(path: Path, tmp_path: Path) -> None:
    Database(path, SYSTEM).close()
    Database.create(tmp_path / "new.db", bytes(16))
    assert schema(path) == schema(tmp_path / "new.db")
    check_moments(path)
    Database(path, SYSTEM).close()  # and it is opened like any other


@pytest.mark.parametrize("survived", range(22))
def test_killed_within_a_step(path: Path, survived: int) -> None:
    """What a step had done is undone, and what earlier transactions had done is there."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=_Killed)) as db:
        db.left = survived
        db.execute("PRAGMA journal_mode = WAL")
        if survived < 21:
            with pytest.raises(KilledError):
                migrate(db, time.time_ns(), rows=3)
            assert db.execute("PRAGMA user_version").fetchone()[0] < SCHEMA_VERSION
        else:
            migrate(db, time.time_ns(), rows=3)
    Database(path, limited(DatabaseLimits(migrated_rows=3))).close()
    check_moments(path)


def test_what_was_held_before_causes_were_told_apart_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "volume.db"
    Database.create(path, bytes(16))
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE deletion DROP COLUMN cause")
        db.execute("INSERT INTO deletion VALUES (1, x'11', x'22', 3, 4)")
        db.execute("PRAGMA user_version = 21")
        db.commit()
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT total, cause FROM deletion").fetchall() == [(4, Cause.REMOVED)]


def test_an_earlier_program_refuses_it(path: Path) -> None:
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(NewerFormatError, match="Update HybrisFS; nothing was changed"):
        Database(path, SYSTEM)
    assert path.read_bytes() == before


def test_conflict_copies_that_were_removed_before_are_known_from_then_on(tmp_path: Path) -> None:
    path, branch = tmp_path / "volume.db", b"b" * 16
    places = {
        b"1" * 16: Place(bytes(16), b"copy", removed=True, yields=True),
        b"2" * 16: Place(bytes(16), b"copy 2", yields=True),
        b"3" * 16: Place(bytes(16), b"folder", former=b"x" * 14 + b"\3\0"),
        b"4" * 16: Place(bytes(16), b"file"),
    }
    Database.create(path, bytes(16))
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO writer (number, branch) VALUES (1, ?)", (branch,))
        db.execute(
            "INSERT INTO log (branch, clock, device, hash, vector, time, moment) "
            "VALUES (?, 7, ?, '', '', 5, 6)",
            (branch, branch),
        )
        db.executemany(
            "INSERT INTO register (key, clock, writer, value) VALUES (?, 7, 1, ?)",
            [(place_key(node, 0), place.encode()) for node, place in places.items()]
            + [(content_key(node), b"") for node in places if not places[node].former],
        )
        db.execute("PRAGMA user_version = 9")
        db.execute("DROP INDEX chunk_elsewhere")
        take_back(db)
        db.commit()
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT node, moment FROM removal").fetchall() == [(b"1" * 16, 6)]


def test_the_volume_goes_on_and_knows_its_versions_from_then_on(path: Path) -> None:
    rig = Rig(path.parent, device=KEY)
    try:
        folder = rig.find(b"renamed")
        assert rig.find(b"file", folder.ino).size == len(b"second")
        assert rig.db.rows.meta("history") > 0
        assert rig.db.rows.execute("SELECT count(*) FROM past").fetchone() == (0,)
        rig.fs.unlink(rig.tx, folder.ino, b"file")
        assert rig.publish(everything=True)
        places = "SELECT count(*) FROM past WHERE key >= x'70' AND key < x'71'"
        assert rig.db.rows.execute(places).fetchone() == (1,)
        assert rig.db.rows.execute("SELECT count(*) FROM removal").fetchone() == (1,)
    finally:
        rig.abandon()


def test_what_was_said_about_packs_is_known_from_then_on(tmp_path: Path) -> None:
    path, branch, device = tmp_path / "volume.db", b"b" * 16, b"d" * 16
    Database.create(path, bytes(16))
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO writer (number, branch) VALUES (1, ?)", (branch,))
        db.executemany(
            "INSERT INTO register (key, clock, writer, value) VALUES (?, 7, 1, ?)",
            [(kind + device, kind) for kind in (b"d", b"v", b"m", b"e", b"c")],
        )
        db.execute("INSERT INTO pack (id, k, n, placement) VALUES (?, 1, 2, x'0001')", (bytes(32),))
        take_back(db)
        db.execute("PRAGMA user_version = 11")
        db.commit()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, 0, rows=1)
        rows = db.execute("SELECT key, branch, clock, value, begins FROM said ORDER BY key").fetchall()
        assert rows == [(kind + device, branch, 7, kind, 1) for kind in (b"d", b"m", b"v")]
        assert db.execute("SELECT proven, doubted FROM pack").fetchall() == [(0, 0)]


def test_who_let_a_member_in_is_known_as_far_as_registers_tell(tmp_path: Path) -> None:
    path = tmp_path / "volume.db"
    founder, laptop, told = b"f" * 16, b"l" * 16, b"t" * 16
    Database.create(path, bytes(16))
    with closing(sqlite3.connect(path)) as db:
        for number, device in enumerate((founder, laptop), 1):
            db.execute("INSERT INTO writer (number, branch) VALUES (?, ?)", (number, device))
        db.executemany(
            "INSERT INTO log (branch, clock, device, hash, vector, time, moment) "
            "VALUES (?1, ?2, ?1, ?3, '', 5, 6)",
            [(founder, 7, b"1"), (laptop, 9, b"2")],
        )
        db.executemany(
            "INSERT INTO register (key, clock, writer, value) VALUES (?, ?, ?, x'00')",
            [(b"m" + founder, 7, 1), (b"m" + laptop, 7, 1), (b"m" + laptop, 9, 2)],
        )
        db.execute("DROP TABLE epoch")
        for column in ("inviter", "clock"):
            db.execute(f"ALTER TABLE member DROP COLUMN {column}")
        db.executemany(
            "INSERT INTO member (device, public, name, state) VALUES (?1, ?1, '', 0)",
            [(device,) for device in (founder, laptop, told)],
        )
        db.execute("DROP TABLE deletion")
        db.execute("DROP TABLE held")
        take_back_newest(db)
        db.execute("PRAGMA user_version = 12")
        db.commit()
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT device, inviter, clock FROM member ORDER BY device").fetchall()
    assert rows == [(founder, None, 7), (laptop, founder, 7), (told, None, None)]


def test_removals_and_proofs_of_before_are_noted(path: Path) -> None:
    Database(path, SYSTEM).close()
    founder, laptop = b"f" * 16, b"l" * 16
    with closing(sqlite3.connect(path)) as db:
        for table in ("writer", "register", "log", "log_branch", "said", "charge"):
            db.execute(f"DELETE FROM {table}")
        db.execute("INSERT INTO log_branch VALUES (?1, ?1, NULL, 0)", (founder,))
        db.execute("INSERT INTO writer VALUES (1, ?)", (founder,))
        db.executemany(
            "INSERT INTO said VALUES (?, ?, ?, ?, 0)",
            [(b"m" + laptop, founder, 2, b"member\0"), (b"m" + laptop, founder, 7, b"member\1")],
        )
        db.execute("INSERT INTO register VALUES (?, 9, 1, x'01')", (b"f" + laptop + b"\2",))
        take_back_newest(db)
        db.execute("PRAGMA user_version = 15")
        db.commit()
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT * FROM said WHERE key < x'6d' OR key >= x'6e' ORDER BY key").fetchall()
    assert rows == [
        (b"f" + laptop + b"\2", founder, 9, b"", 1),
        (b"x" + laptop + founder + b"m", founder, 7, b"\2", 0),
    ]


def test_what_the_clouds_may_have_lost_is_still_put_there_again(path: Path) -> None:
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM chunk")
        db.executemany(
            "INSERT INTO chunk (number, id, length, pack) VALUES (?1, ?1, 9, ?2)", [(1, 0), (2, 7), (3, None)]
        )
        take_back_newest(db)
        db.executemany(
            "INSERT INTO spare (pack, chunk, offset, sealed) VALUES (8, ?, 0, 9)", [(1,), (2,), (3,)]
        )
        db.execute("PRAGMA user_version = 16")
        db.commit()
    Database(path, SYSTEM).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT chunk, lost FROM spare ORDER BY chunk").fetchall() == [
            (1, 1),
            (2, 0),
            (3, 0),
        ]


def test_a_content_with_parts_is_shown_after_the_update(tmp_path: Path) -> None:
    """The program before took it for none. A file that is empty, or was emptied here since, stays so."""
    rig = Rig(tmp_path, environment=limited(ChunkLimits(small=0)))
    contents = {b"file": os.urandom(40_000), b"empty": b"", b"emptied": os.urandom(50_000)}
    for name, content in contents.items():
        inode = rig.make(name, content)
        rig.publish()
        if content:
            contents[name] = content[:20_000] + b"!" + content[20_001:]
            handle = rig.fs.open(rig.tx, inode.ino, os.O_RDWR)
            rig.fs.write(rig.tx, inode, 20_000, b"!")
            rig.fs.release(rig.tx, handle)
            rig.publish()
    size = rig.find(b"file").size
    with rig.fs.state.transaction() as tx:
        rig.fs.content.truncate(tx, rig.find(b"emptied"), 0)
    rig.commit()
    rig.close()
    path = tmp_path / "volume.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE meta SET value = value - ? WHERE key = 'bytes'", (size,))
        db.execute("UPDATE node SET size = 0, stored = 0")
        db.execute("DELETE FROM file_chunk")
        db.execute("ALTER TABLE file_chunk DROP COLUMN skip")
        db.execute("DELETE FROM meta WHERE key = 'redo'")
        db.execute("PRAGMA user_version = 19")
        db.commit()
    rig = Rig(tmp_path)
    contents[b"emptied"] = b""
    assert {name: rig.find(name).size for name in contents} == {
        name: len(content) for name, content in contents.items()
    }
    for name, content in contents.items():
        with rig.fs.state.transaction() as tx:
            assert rig.fs.received.lacking(tx, rig.find(name)) is None
        assert rig.read(rig.find(name)) == content
    check_accounts(rig, [])
