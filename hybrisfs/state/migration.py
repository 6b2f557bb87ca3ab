"""Bringing the database of an earlier program to the format of this one, step by step.

Each step leads from one format to the next. It is done in one transaction, or in several when it has to go
through many rows; `user_version` is raised in the last one. So a daemon that is killed, or a disk that is
full, leaves a database in one of the formats on the way, and the next start goes on from there. No step
leads back: a program refuses a database that is newer than itself (`Database`).

After a crash there may be records in the redo log, which are carried out after all steps. A step that
changes the tables `node`, `place`, `extent` or `pending` has to see to it that they still can be
(`hybrisfs.state.redo`).

======  =======================================================================================
format  what has changed
======  =======================================================================================
1 to 4  development versions of which no database is left; they are refused
5       the first that is migrated
6       compaction: index `log_whole`, column `checkpoint.former`, `meta` of what was dropped, and
        pages that can be given back to the disk
7       versions: tables `past` and `removal`, column `log.moment`, `meta` of history and ladder
8       `log.moment` has been filled in for what was accepted before
9       indices that find one of many names of a file, and what is in conflict in a large directory
10      `removal` tells of conflict copies, too
11      an index that finds the chunks of which no cloud is known to have the bytes
12      whether this device knows by itself where chunks are; table `said`
13      which device let a member in (columns of `member`), and which granted an epoch (table `epoch`)
14      table `moved_for`, which is filled when the volume opens; indices of conflict names in their
        order, of what stands elsewhere, and of past values by when they ended
15      tables `deletion` and `held`: what others have deleted and is shown here all the same
16      removals are votes: those of member registers, and proofs, are noted in `said`; table `charge`
17      column `spare.lost`: which packs the clouds have lost is no longer guessed
18      table `unsigned`: changes of labels
19      table `piece`: hashes of pieces of chunks, filled as chunks are made and read
20      column `file_chunk.skip`: files show parts of chunks
21      `meta` of the redo log
22      column `deletion.cause`: what is overwritten waits apart from what is gone
23      columns `pack.used` and `pack.reads`: what has rested may be archived
24      table `leaf`: hashes for the IDs of files, filled as they are asked for
======  =======================================================================================
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Final, NamedTuple

from hybrisfs.kinds import ANSWERS, CONTENT, EVIDENCE, MEMBER, PLACE, PROPOSAL, VOTE, sql_node
from hybrisfs.registers.tree import Content
from hybrisfs.state.moments import credible, latest
from hybrisfs.state.schema import (
    CHARGES,
    HISTORY,
    HOLDS,
    LEAVES,
    MINUTES,
    PIECES,
    SCHEMA_VERSION,
    UNSIGNED,
    add_redo,
    lay_out,
)
from sync import VersionVector
from sync.codec import DecodeError

__all__ = ["OLDEST", "migrate"]

log = logging.getLogger(__name__)

OLDEST: Final = 5
"""The first format that can be migrated."""


class _Given(NamedTuple):
    """What steps depend on besides the database."""

    now_ns: int
    rows: int


Step = Callable[[sqlite3.Connection, _Given], bool]


def migrate(connection: sqlite3.Connection, now_ns: int, rows: int) -> None:
    """Bring the database, of a format from `OLDEST` on, to that of this program. *now_ns*: the time. *rows*:
    how many are changed in one transaction, where that may be many.

    *connection* is in no transaction. Raises sqlite3.Error: then it is as the last step has left it.
    """
    _let_shrink(connection)
    while (version := connection.execute("PRAGMA user_version").fetchone()[0]) < SCHEMA_VERSION:
        log.warning("the database is brought from format %d to %d", version, version + 1)
        done = False
        while not done:
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = _STEPS[version](connection, _Given(now_ns, rows))
                if done:
                    connection.execute(f"PRAGMA user_version = {version + 1}")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise


def _let_shrink(connection: sqlite3.Connection) -> None:
    """Have free pages given back from now on. For that, the whole database is written once more."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        log.warning("the database can grow but not shrink, there is no room to write it again: %s", error)


def _add_compaction(connection: sqlite3.Connection, _: _Given) -> bool:
    connection.execute("ALTER TABLE checkpoint ADD COLUMN former BLOB")
    connection.execute("CREATE INDEX log_whole ON log (branch, clock) WHERE bytes IS NOT NULL")
    connection.execute("INSERT INTO meta VALUES ('dropped_updates', 0), ('dropped_bytes', 0)")
    return True


def _add_versions(connection: sqlite3.Connection, given: _Given) -> bool:
    lay_out(connection, HISTORY)
    connection.execute("ALTER TABLE log ADD COLUMN moment INTEGER NOT NULL DEFAULT 0")
    # What was superseded before is in the log only: versions are known from now on.
    connection.execute("INSERT INTO meta VALUES ('history', ?), ('ladder', 0)", (given.now_ns,))
    return True


def _find_moments(connection: sqlite3.Connection, given: _Given) -> bool:
    """The next rows; True when these were the last."""
    rows = connection.execute(
        "SELECT number, branch, clock, time, vector FROM log WHERE moment = 0 ORDER BY number LIMIT ?",
        (given.rows,),
    ).fetchall()
    found: dict[tuple[bytes, int], int] = {}
    for number, branch, clock, time_ns, vector in rows:
        causes = []
        for entry in VersionVector.decode(vector).items():
            if entry not in found:
                row = connection.execute(
                    "SELECT moment FROM log WHERE branch = ? AND clock = ?", entry
                ).fetchone()
                found[entry] = row[0] if row else 0
            causes.append(found[entry])
        moment = credible(time_ns, latest(causes), given.now_ns)
        found[branch, clock] = moment
        connection.execute("UPDATE log SET moment = ? WHERE number = ?", (moment, number))
    if rows:
        (total,) = connection.execute("SELECT max(number) FROM log").fetchone()
        log.warning("%d of %d updates are dated", rows[-1][0], total)
    return len(rows) < given.rows


def _index_names(connection: sqlite3.Connection, _: _Given) -> bool:
    connection.execute("DROP INDEX place_in_conflict")
    connection.execute("CREATE INDEX place_in_conflict ON place (parent, wanted) WHERE wanted IS NOT NULL")
    connection.execute("DROP INDEX place_of_node")
    connection.execute("CREATE INDEX place_of_node ON place (ino, slot)")
    return True


def _note_conflict_copies(connection: sqlite3.Connection, _: _Given) -> bool:
    """Their places, which yield, ended in other bytes than those that were taken for a removal."""
    connection.execute(
        f"INSERT INTO removal (node, moment) SELECT {sql_node('r.key')}, max(l.moment) FROM register r "
        "JOIN writer w ON w.number = r.writer JOIN log l ON l.branch = w.branch AND l.clock = r.clock "
        f"WHERE {PLACE.sql_rows('r.key')} AND substr(r.value, -2) = x'0300' AND EXISTS "
        f"(SELECT 1 FROM register c WHERE c.key = {CONTENT.sql_key(sql_node('r.key'))}) GROUP BY 1 "
        "ON CONFLICT (node) DO UPDATE SET moment = max(moment, excluded.moment)"
    )
    return True


def _index_elsewhere(connection: sqlite3.Connection, _: _Given) -> bool:
    connection.execute("CREATE INDEX chunk_elsewhere ON chunk (number) WHERE pack = 0")
    return True


def _keep_minutes(connection: sqlite3.Connection, _: _Given) -> bool:
    """Present values are known, earlier ones are not. Nothing is proven: devices read chunks for that."""
    lay_out(connection, MINUTES)
    connection.execute(
        "INSERT INTO said (key, branch, clock, value, begins) SELECT r.key, w.branch, r.clock, "
        "ifnull(r.value, x''), 1 FROM register r JOIN writer w ON w.number = r.writer "
        f"WHERE {PROPOSAL.sql_rows('r.key')} OR {MEMBER.sql_rows('r.key')} OR {ANSWERS.sql_rows('r.key')}"
    )
    for table, column in (
        ("chunk", "proven"),
        ("pack", "proven"),
        ("pack", "doubted"),
        ("spare", "length"),
        ("spare", "proven"),
    ):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    return True


def _note_inviters(connection: sqlite3.Connection, _: _Given) -> bool:
    """As far as the registers say; epochs are noted when the volume is opened."""
    connection.execute(
        "CREATE TABLE epoch (id BLOB NOT NULL, device BLOB NOT NULL, clock INTEGER NOT NULL, "
        "PRIMARY KEY (id, device)) WITHOUT ROWID"
    )
    connection.execute("ALTER TABLE member ADD COLUMN inviter BLOB")
    connection.execute("ALTER TABLE member ADD COLUMN clock INTEGER")
    values = (
        "FROM register r JOIN writer w ON w.number = r.writer "
        "JOIN log l ON l.branch = w.branch AND l.clock = r.clock "
        f"WHERE r.key = {MEMBER.sql_key('member.device')}"
    )
    connection.execute(f"UPDATE member SET clock = (SELECT min(r.clock) {values})")
    connection.execute(
        f"UPDATE member SET (inviter, clock) = (SELECT l.device, r.clock {values} "
        "AND l.device <> member.device ORDER BY r.clock, w.branch LIMIT 1) "
        f"WHERE EXISTS (SELECT 1 {values} AND l.device <> member.device)"
    )
    return True


def _order_conflicts(connection: sqlite3.Connection, _: _Given) -> bool:
    connection.execute("DROP INDEX place_in_conflict")
    connection.execute(
        "CREATE INDEX place_in_conflict ON place (parent, wanted, name) WHERE wanted IS NOT NULL"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS moved_for "
        "(cause BLOB NOT NULL, id BLOB NOT NULL, PRIMARY KEY (cause, id)) WITHOUT ROWID"
    )
    connection.execute("CREATE INDEX IF NOT EXISTS past_until ON past (key, until)")
    connection.execute("CREATE INDEX IF NOT EXISTS moved_to ON moved (parent)")
    connection.execute("CREATE INDEX IF NOT EXISTS moved_for_sake ON moved_for (id)")
    return True


def _add_holds(connection: sqlite3.Connection, _: _Given) -> bool:
    lay_out(connection, HOLDS)
    return True


def _note_votes(connection: sqlite3.Connection, _: _Given) -> bool:
    """A member register that ends in the byte 1 says that its device was removed."""
    said = f"substr(s.key, 2) || b.device || {MEMBER.sql_prefix}"
    connection.execute(
        "INSERT OR IGNORE INTO said (key, branch, clock, value, begins) "
        f"SELECT {VOTE.sql_key(said)}, s.branch, min(s.clock), x'02', "
        "s.begins FROM said s JOIN log_branch b ON b.id = s.branch "
        f"WHERE {MEMBER.sql_rows('s.key')} AND substr(s.value, -1) = x'01' GROUP BY s.key, s.branch"
    )
    connection.execute(
        "INSERT OR IGNORE INTO said (key, branch, clock, value, begins) "
        "SELECT r.key, w.branch, r.clock, x'', 1 FROM register r JOIN writer w ON w.number = r.writer "
        f"WHERE {EVIDENCE.sql_rows('r.key')}"
    )
    lay_out(connection, CHARGES)
    return True


def _mark_lost(connection: sqlite3.Connection, _: _Given) -> bool:
    """Of all that the clouds may have lost, for that is looked at again."""
    connection.execute("ALTER TABLE spare ADD COLUMN lost INTEGER NOT NULL DEFAULT 0")
    connection.execute("UPDATE spare SET lost = 1 WHERE chunk IN (SELECT number FROM chunk WHERE pack = 0)")
    return True


def _add_unsigned(connection: sqlite3.Connection, _: _Given) -> bool:
    lay_out(connection, UNSIGNED)
    return True


def _add_pieces(connection: sqlite3.Connection, _: _Given) -> bool:
    lay_out(connection, PIECES)
    return True


def _add_skips(connection: sqlite3.Connection, _: _Given) -> bool:
    """To the program before, a content with parts was none: the file was empty."""
    connection.execute("ALTER TABLE file_chunk ADD COLUMN skip INTEGER NOT NULL DEFAULT 0")
    rows = connection.execute(
        f"SELECT n.ino, r.value FROM node n JOIN register r ON r.key = {CONTENT.sql_key('n.id')} "
        "AND n.content_stamp = (r.clock << 16 | r.writer) "
        "WHERE n.size = 0 AND r.value IS NOT NULL AND substr(r.value, 1, 1) <> x'00' "
        "AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.key = r.key AND p.clock IS NULL) "
        "AND NOT EXISTS (SELECT 1 FROM unlisted u WHERE u.ino = n.ino)"
    ).fetchall()
    for ino, value in rows:
        try:
            size = Content.decode(value).size
        except DecodeError:
            continue  # no correct device wrote it
        connection.execute("UPDATE node SET size = ?1, stored = ?1 WHERE ino = ?2", (size, ino))
        connection.execute("UPDATE meta SET value = value + ? WHERE key = 'bytes'", (size,))
        connection.execute("INSERT INTO unlisted VALUES (?, ?)", (ino, value))
    return True


def _add_redo(connection: sqlite3.Connection, _: _Given) -> bool:
    add_redo(connection)
    return True


def _add_causes(connection: sqlite3.Connection, _: _Given) -> bool:
    _add_number(connection, "deletion", "cause")
    return True


def _add_use(connection: sqlite3.Connection, _: _Given) -> bool:
    for column in ("used", "reads"):
        _add_number(connection, "pack", column)
    return True


def _add_leaves(connection: sqlite3.Connection, _: _Given) -> bool:
    lay_out(connection, LEAVES)
    return True


def _add_number(connection: sqlite3.Connection, table: str, column: str) -> None:
    """Add a column of numbers, 0 in all rows; a table that is laid out as it is now has it already."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    if column not in (one[1] for one in columns):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")


_STEPS: Final[dict[int, Step]] = {
    5: _add_compaction,
    6: _add_versions,
    7: _find_moments,
    8: _index_names,
    9: _note_conflict_copies,
    10: _index_elsewhere,
    11: _keep_minutes,
    12: _note_inviters,
    13: _order_conflicts,
    14: _add_holds,
    15: _note_votes,
    16: _mark_lost,
    17: _add_unsigned,
    18: _add_pieces,
    19: _add_skips,
    20: _add_redo,
    21: _add_causes,
    22: _add_use,
    23: _add_leaves,
}
