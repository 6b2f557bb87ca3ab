"""Verifying a volume: database, tree, log, cache and, when asked, every share on every cloud.

Nothing is changed. The database is read from a snapshot, so that programs go on meanwhile.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from hybrisfs.filesystem.chunks import ELSEWHERE
from hybrisfs.store.journal import Journal
from hybrisfs.store.schema import ROOT_INO
from hybrisfs.volume.cloud_check import ObjectCheck, object_checks, run_checks
from hybrisfs.volume.log_check import LogCheck, Vectors
from hybrisfs.volume.pack_check import PackCheck
from hybrisfs.volume.register_check import RegisterCheck
from hybrisfs.volume.view_check import ViewCheck

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["FsckReport", "Problem", "check_volume"]

Progress = Callable[[str, int, int], None]
_MOST_PROBLEMS: Final = 1000
# What becomes of rows whose bytes were altered.
_NONSENSE: Final = (sqlite3.DatabaseError, ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong where. An *error* has cost bytes or may; a *warning* has not."""

    where: str
    what: str
    severity: Literal["error", "warning"] = "error"


@dataclass(slots=True)
class FsckReport:
    """What was checked, and what is wrong."""

    problems: list[Problem] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def add(self, where: str, what: str, severity: Literal["error", "warning"] = "error") -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(where, what, severity))

    def as_dict(self) -> dict[str, object]:
        return {"problems": [asdict(one) for one in self.problems], "checked": dict(self.checked)}


def check_volume(volume: Volume, *, clouds: bool, progress: Progress) -> FsckReport:
    """Check everything; problems are in the report, never raised."""
    report = FsckReport()
    checks: list[ObjectCheck] = []
    with volume.fs.db.snapshot() as db:
        steps: tuple[Callable[[], None], ...] = (
            partial(_check_database, db, report, progress),
            partial(_check_tree, db, report, progress),
            partial(_check_log, volume, db, report, progress),
            partial(_check_view, volume, db, report, progress),
            partial(_check_cache, volume, db, report, progress),
            lambda: checks.extend(object_checks(volume, db)),
        )
        for step in steps:
            try:
                step()
            except _NONSENSE as error:
                report.add("database", f"rows make no sense: {error}")
    if clouds:
        _check_clouds(volume, checks, report, progress)
    return report


def _check_database(db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    progress("database", 0, 1)
    for (line,) in db.execute("PRAGMA integrity_check(20)"):
        if line != "ok":
            report.add("database", line)
    report.checked["database pages"] = db.execute("PRAGMA page_count").fetchone()[0]
    progress("database", 1, 1)


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
        # How long a chunk is that another device has made is not known before that tells where it is.
        "SELECT f.ino, f.offset FROM file_chunk f LEFT JOIN chunk c ON c.number = f.chunk "
        f"WHERE c.number IS NULL OR f.length < 1 OR (f.length > c.length AND c.pack IS NOT {ELSEWHERE})",
        "a part of a file without its chunk",
    ),
    (
        "SELECT p.ino, p.chunk FROM content_page p LEFT JOIN chunk c ON c.number = p.chunk "
        "LEFT JOIN node n ON n.ino = p.ino WHERE c.number IS NULL OR n.ino IS NULL",
        "a list of chunks without its file or its chunk",
    ),
    (
        "SELECT u.ino FROM unlisted u LEFT JOIN node n ON n.ino = u.ino WHERE n.ino IS NULL",
        "a list of chunks that is to be read for a file that does not exist",
    ),
    (
        "SELECT c.ino, c.id FROM copy c LEFT JOIN node n ON n.ino = c.ino WHERE n.ino IS NULL",
        "a version of a file that does not exist",
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
        "SELECT c.number, c.id FROM chunk c LEFT JOIN pack p ON p.number = c.pack "
        f"WHERE p.number IS NULL AND (c.pack <> {ELSEWHERE} OR c.pack IS NULL AND c.segment IS NULL)",
        "a chunk that is nowhere",
    ),
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


def _check_log(volume: Volume, db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    """The log, and what follows from it: registers, packs."""
    device = volume.keys.device.device_id
    members: dict[bytes, bytes] = dict(db.execute("SELECT device, public FROM member"))
    check = LogCheck(db, volume.updates.volume, device, members.get)
    registers, packs = RegisterCheck(db, device, Vectors(db)), PackCheck(db)
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
    report.checked["updates"] = done
    progress("log", total, total)


def _check_view(volume: Volume, db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    check = ViewCheck(db, volume.sealer.chunk_id, Vectors(db))
    for problem in check.run(partial(progress, "names")):
        report.add("tree", problem)


def _check_cache(volume: Volume, db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    journal, sealer = volume.fs.journal, volume.sealer
    total = db.execute("SELECT count(*) FROM chunk WHERE segment IS NOT NULL").fetchone()[0]
    done = 0
    rows = db.execute(
        "SELECT number, id, length, segment, position, pack FROM chunk "
        "WHERE segment IS NOT NULL ORDER BY segment"
    )
    for number, identity, length, segment, position, pack in rows:
        data = _read(journal, segment, position, length)
        if (data is None or sealer.chunk_id(data) != identity) and _still_there(
            volume, "SELECT 1 FROM chunk WHERE number = ? AND segment = ?", number, segment
        ):
            if pack is None:
                report.add("cache", f"chunk {identity.hex()} is damaged and on no cloud yet: data is lost")
            elif pack == ELSEWHERE:
                what = f"chunk {identity.hex()} is damaged here; the device that made it has yet to share it"
                report.add("cache", what, "warning")
            else:
                report.add("cache", f"chunk {identity.hex()} is damaged here; the clouds have it", "warning")
        done += 1
        if done % 256 == 0:
            progress("cache", done, total)
    for ino, start, length, segment, position in db.execute("SELECT * FROM extent WHERE segment > 0"):
        if _read(journal, segment, position, length) is None and _still_there(
            volume, "SELECT 1 FROM extent WHERE ino = ? AND start = ? AND segment = ?", ino, start, segment
        ):
            report.add("cache", f"bytes {start} to {start + length} of node {ino} are gone: data is lost")
    report.checked["cached chunks"] = done
    progress("cache", total, total)


def _read(journal: Journal, segment: int, position: int, length: int) -> bytes | None:
    try:
        return journal.read(segment, position, length)
    except OSError:
        return None


def _still_there(volume: Volume, query: str, *facts: int) -> bool:
    """Whether the row has neither changed nor gone since the snapshot."""
    with volume.fs.lock:
        volume.fs.flush()
        return volume.fs.db.execute(query, facts).fetchone() is not None


def _check_clouds(
    volume: Volume, checks: Sequence[ObjectCheck], report: FsckReport, progress: Progress
) -> None:
    names = {one.number: one.name for one in volume.config.clouds}
    finished = 0

    def done(check: ObjectCheck, wrong: str | None) -> None:
        nonlocal finished
        finished += 1
        if wrong is not None:
            report.add(f"cloud {names.get(check.cloud, check.cloud)}", wrong)
        progress("clouds", finished, len(checks))

    run_checks(len(names), checks, done)
    report.checked["objects on clouds"] = len(checks)
