"""Verifying what the database of a volume holds: pages, tree, log, and that each follows from the other."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hybrisfs.admit.damage import NONSENSE
from hybrisfs.kinds import KINDS, Trait
from hybrisfs.state.chunk_checks import CHUNKS_NOWHERE, PAGES_WITHOUT_CHUNK, PARTS_WITHOUT_CHUNK
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.verify.log_check import LogCheck, Vectors
from hybrisfs.verify.pack_check import PackCheck
from hybrisfs.verify.register_check import RegisterCheck
from hybrisfs.verify.report import FsckReport, Progress
from hybrisfs.verify.version_check import check_versions, count_without_bytes
from hybrisfs.verify.view_check import ViewCheck
from sync.codec import Buffer

__all__ = ["LocalVolume", "check_database", "run_steps"]


@dataclass(frozen=True, slots=True)
class LocalVolume:
    """What the rows are checked against: the ids of the volume and of this device, how chunks are named."""

    id: bytes
    device: bytes
    chunk_id: Callable[[Buffer], bytes]


def check_database(
    db: sqlite3.Connection, volume: LocalVolume, report: FsckReport, progress: Progress
) -> None:
    """Check all that the snapshot *db* holds; problems are in the report, never raised."""
    run_steps(
        report,
        (
            partial(_check_pages, db, report, progress),
            partial(_check_tree, db, report, progress),
            partial(_check_log, db, volume, report, progress),
            partial(_check_view, db, volume, report, progress),
            partial(_check_versions, db, report, progress),
        ),
    )


def run_steps(report: FsckReport, steps: Iterable[Callable[[], None]]) -> None:
    """Run each step; one that meets rows that make no sense ends with that as a problem."""
    for step in steps:
        try:
            step()
        except NONSENSE as error:
            report.add("database", f"rows make no sense: {error}")


def _check_pages(db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    progress("database", 0, 1)
    for (line,) in db.execute("PRAGMA integrity_check(20)"):
        if line != "ok":
            report.add("database", line)
    report.checked["database pages"] = db.execute("PRAGMA page_count").fetchone()[0]
    progress("database", 1, 1)


_DIRECT: Final = " OR ".join(kind.sql_rows("p.key") for kind in KINDS if Trait.DIRECT in kind.traits)
_TREE_CHECKS: Final = (
    (
        "SELECT p.parent, p.name FROM place p LEFT JOIN node n ON n.ino = p.ino WHERE n.ino IS NULL",
        "a name without a node",
    ),
    (
        "SELECT p.parent, p.name FROM place p LEFT JOIN node n ON n.ino = p.parent WHERE n.ino IS NULL",
        "a name in a folder that does not exist",
    ),
    (
        f"SELECT n.ino, n.id FROM node n WHERE n.ino <> {ROOT_INO} "
        "AND n.ino NOT IN (SELECT ino FROM place) AND n.ino NOT IN (SELECT ino FROM orphan)",
        "a node without a name",
    ),
    (
        "SELECT n.ino, n.id FROM node n WHERE (n.mode & 61440) <> 16384 AND n.nlink > 0 "
        "AND n.nlink <> (SELECT count(*) FROM place p WHERE p.ino = n.ino)",
        "a wrong link count",
    ),
    (
        "SELECT n.ino, n.id FROM node n WHERE (n.mode & 61440) = 16384 AND n.nlink > 0 AND n.nlink <> 2 + "
        "(SELECT count(*) FROM place p JOIN node c ON c.ino = p.ino "
        "WHERE p.parent = n.ino AND (c.mode & 61440) = 16384)",
        "a wrong link count of a folder",
    ),
    (
        "SELECT n.ino, n.id FROM node n WHERE n.xattrs <> (SELECT count(*) FROM xattr x WHERE x.ino = n.ino)",
        "a wrong count of extended attributes",
    ),
    (PARTS_WITHOUT_CHUNK, "a part of a file without its chunk"),
    (PAGES_WITHOUT_CHUNK, "a list of chunks without its chunk"),
    (
        "SELECT u.ino FROM unlisted u LEFT JOIN node n ON n.ino = u.ino WHERE n.ino IS NULL",
        "a list of chunks that is to be read for a file that does not exist",
    ),
    (
        "SELECT c.ino, c.id FROM copy c LEFT JOIN node n ON n.ino = c.ino WHERE n.ino IS NULL",
        "a version of a file that does not exist",
    ),
    (
        "SELECT j.ino, j.id FROM joined j LEFT JOIN node n ON n.ino = j.ino WHERE n.ino IS NULL",
        "a node that is seen as one with one that does not exist",
    ),
    (
        "SELECT j.ino, j.id FROM joined j JOIN node n ON n.id = j.id",
        "a node that is seen as one with another and by itself, too",
    ),
    (
        "SELECT ino, offset FROM (SELECT ino, offset, offset + length > "
        "lead(offset) OVER (PARTITION BY ino ORDER BY offset) AS bad FROM file_chunk) WHERE bad",
        "parts of a file that overlap",
    ),
    (
        "SELECT ino, start FROM (SELECT ino, start, start + length > "
        "lead(start) OVER (PARTITION BY ino ORDER BY start) AS bad FROM extent) WHERE bad OR start < 0",
        "staged parts of a file that overlap",
    ),
    (
        f"WITH RECURSIVE reached (ino) AS (SELECT {ROOT_INO} "
        "UNION SELECT p.ino FROM place p JOIN reached r ON p.parent = r.ino) "
        "SELECT ino, name FROM place WHERE ino NOT IN (SELECT ino FROM reached)",
        "a name that cannot be reached from the root",
    ),
    (
        "SELECT u.key FROM unsigned u LEFT JOIN pending p ON p.key = u.key AND p.clock IS NULL "
        "WHERE p.key IS NULL",
        "a change that no update is going to hold",
    ),
    (
        f"SELECT p.key FROM pending p WHERE p.clock IS NULL AND ({_DIRECT}) "
        "AND NOT EXISTS (SELECT 1 FROM unsigned u WHERE u.key = p.key)",
        "a change without a value",
    ),
    (CHUNKS_NOWHERE, "a chunk that is nowhere"),
)


def _check_tree(db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    total = len(_TREE_CHECKS) + 1
    for done, (query, what) in enumerate(_TREE_CHECKS):
        progress("tree", done, total)
        for row in db.execute(query):
            shown = ", ".join(one.hex() if isinstance(one, bytes) else str(one) for one in row)
            report.add("tree", f"{what} ({shown})")
    files, size = db.execute(
        "SELECT count(*), total(size) FROM node WHERE (mode & 61440) = ? AND nlink > 0", (stat.S_IFREG,)
    ).fetchone()
    recorded = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('files', 'bytes')"))
    orphans = db.execute("SELECT count(*) FROM orphan").fetchone()[0]
    if recorded["files"] != files or (recorded["bytes"] != int(size) and not orphans):
        report.add(
            "tree",
            f"{files} files of {int(size)} bytes, but {recorded['files']} of {recorded['bytes']} on record",
            "warning",
        )
    report.checked["files"] = files
    progress("tree", total, total)


def _check_log(db: sqlite3.Connection, volume: LocalVolume, report: FsckReport, progress: Progress) -> None:
    """The log, and what follows from it: registers, packs."""
    members: dict[bytes, bytes] = dict(db.execute("SELECT device, public FROM member"))
    check = LogCheck(db, volume.id, volume.device, members.get)
    registers, packs = RegisterCheck(db, Vectors(db)), PackCheck(db)
    total = db.execute("SELECT count(*) FROM log").fetchone()[0]
    done = 0
    for problem in check.branches():
        report.add("log", problem)
    for entry in check.updates(partial(report.add, "log")):
        if entry is not None:
            for problem in registers.compare(entry):
                report.add("registers", problem)
            packs.compare(entry)
        done += 1
        if done % 256 == 0:
            progress("log", done, total)
    for problem in registers.finish():
        report.add("registers", problem)
    for problem in packs.finish():
        report.add("packs", problem)
    ((bare, agreed),) = db.execute(
        "SELECT (SELECT count(*) FROM log WHERE bytes IS NULL), "
        "(SELECT count(*) FROM checkpoint WHERE root IS NOT NULL)"
    )
    if bare and not agreed:
        report.add(
            "log", f"{bare} updates are without what they wrote, and there is no checkpoint that has it"
        )
    report.checked["updates"] = done
    progress("log", total, total)


def _check_versions(db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    (total,) = db.execute("SELECT count(*) FROM past").fetchone()
    progress("versions", 0, total)
    for problem in check_versions(db):
        report.add("versions", problem)
    if total:
        report.checked["versions of registers"] = total
        report.checked["versions that cannot be read any more"] = count_without_bytes(db)
    progress("versions", total, total)


def _check_view(db: sqlite3.Connection, volume: LocalVolume, report: FsckReport, progress: Progress) -> None:
    check = ViewCheck(db, volume.chunk_id, Vectors(db))
    for problem in check.run(partial(progress, "names")):
        report.add("tree", problem)
