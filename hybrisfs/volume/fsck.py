"""Verifying a volume: database, tree, log, cache and, when asked, every share on every cloud.

Nothing is changed. The database is read from a snapshot, so that programs go on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from hybrisfs.errors import HybrisError
from hybrisfs.shown import shown
from hybrisfs.state.chunk_checks import cached_count, cached_rows, is_cached_in
from hybrisfs.state.chunk_states import PENDING, state_of
from hybrisfs.state.pack_chunks import lost_packs, what_is_lost
from hybrisfs.store.database import Database
from hybrisfs.store.journal import Journal
from hybrisfs.store.schema import ROOT_INO
from hybrisfs.volume.cloud_check import ObjectCheck, object_checks, run_checks
from hybrisfs.volume.database_check import LocalVolume, check_database, run_steps
from hybrisfs.volume.fsck_report import FsckReport, Problem, Progress

if TYPE_CHECKING:
    from hybrisfs.volume.opened import Opened

__all__ = ["FsckReport", "Problem", "check_volume"]

_MOST_FILES: Final = 4
_LONGEST_PATH: Final = 4096


def check_volume(volume: Opened, *, clouds: bool, progress: Progress) -> FsckReport:
    """Check everything; problems are in the report, never raised."""
    report = FsckReport()
    checks: list[ObjectCheck] = []
    local = LocalVolume(volume.updates.volume, volume.updates.device, volume.sealer.chunk_id)
    with volume.fs.db.snapshot() as db:
        check_database(db, local, report, progress)
        run_steps(
            report,
            (
                partial(_check_cache, volume, db, report, progress),
                partial(_check_lost, db, report),
                lambda: checks.extend(object_checks(volume, db)),
                partial(_check_values, volume, report, checks if clouds else None),
            ),
        )
    if clouds:
        volume.writing.look_at_clouds()
        _check_clouds(volume, checks, report, progress)
    return report


def _check_cache(volume: Opened, db: sqlite3.Connection, report: FsckReport, progress: Progress) -> None:
    journal, sealer = volume.fs.journal, volume.sealer
    total = cached_count(db)
    done = 0
    for number, identity, length, segment, position, pack in cached_rows(db):
        data = _read(journal, segment, position, length)
        if (data is None or sealer.chunk_id(data) != identity) and _still_there(
            volume, partial(is_cached_in, number=number, segment=segment)
        ):
            state = state_of(segment, pack)
            if state is PENDING:
                whose = _files_of(db, number)
                what = f"chunk {identity.hex()} is damaged and on no cloud yet: data of {whose} is lost"
                report.add("cache", what)
            elif state.is_dirty:
                what = f"chunk {identity.hex()} is damaged here; the device that made it has yet to share it"
                report.add("cache", what, "warning")
            else:
                report.add("cache", f"chunk {identity.hex()} is damaged here; the clouds have it", "warning")
        done += 1
        if done % 256 == 0:
            progress("cache", done, total)
    for ino, start, length, segment, position in db.execute("SELECT * FROM extent WHERE segment > 0"):
        if _read(journal, segment, position, length) is None and _still_there(
            volume, partial(_is_staged_in, ino=ino, start=start, segment=segment)
        ):
            report.add("cache", f"bytes {start} to {start + length} of node {ino} are gone: data is lost")
    report.checked["cached chunks"] = done
    progress("cache", total, total)


def _check_lost(db: sqlite3.Connection, report: FsckReport) -> None:
    """What the clouds have lost and has yet to be put there anew."""
    for number, pack in lost_packs(db).items():
        lost = what_is_lost(db, number)
        if lost.chunks:
            where = f"{lost.absent} of them are not on this device" if lost.absent else "they are kept here"
            what = f"the clouds have lost pack {pack.hex()[:16]}: {lost.chunks} pieces of files, {where}"
            report.add("clouds", what)


def _check_values(volume: Opened, report: FsckReport, checks: list[ObjectCheck] | None) -> None:
    """The key-value store of this device; *checks* gets what its clouds are to hold."""
    values = volume.maintenance.values
    count, problems = values.problems()
    for problem in problems:
        report.add("key-value store", problem)
    if count:
        report.checked["keys with values"] = count
    if checks is not None and not problems:
        checks.extend(ObjectCheck(*one) for one in values.checks())


def _files_of(db: sqlite3.Connection, chunk: int) -> str:
    """The paths of some files that show the chunk."""
    rows = db.execute(
        "WITH RECURSIVE up (ino, path) AS ("
        "SELECT p.parent, p.name FROM place p "
        "WHERE p.ino IN (SELECT ino FROM file_chunk WHERE chunk = ? LIMIT ?) "
        "UNION SELECT p.parent, CAST(p.name || x'2f' || up.path AS BLOB) FROM place p "
        "JOIN up ON p.ino = up.ino WHERE length(up.path) < ?) "
        "SELECT path FROM up WHERE ino = ?",
        (chunk, _MOST_FILES, _LONGEST_PATH, ROOT_INO),
    )
    return ", ".join(shown(os.fsdecode(path)) for (path,) in rows) or "no file any more"


def _read(journal: Journal, segment: int, position: int, length: int) -> bytes | None:
    try:
        return journal.read(segment, position, length)
    except OSError:
        return None


def _is_staged_in(db: Database, ino: int, start: int, segment: int) -> bool:
    query = "SELECT 1 FROM extent WHERE ino = ? AND start = ? AND segment = ?"
    return db.execute(query, (ino, start, segment)).fetchone() is not None


def _still_there(volume: Opened, is_there: Callable[[Database], bool]) -> bool:
    """Whether a row has neither changed nor gone since the snapshot."""
    with volume.fs.lock:
        volume.fs.flush()
        return is_there(volume.fs.db)


def _check_clouds(
    volume: Opened, checks: Sequence[ObjectCheck], report: FsckReport, progress: Progress
) -> None:
    names = volume.clouds.names()
    finished = 0

    def done(check: ObjectCheck, wrong: str | None) -> None:
        nonlocal finished
        finished += 1
        if wrong is not None:
            report.add(f"cloud {names.get(check.cloud, check.cloud)}", wrong)
        progress("clouds", finished, len(checks))

    run_checks(len(volume.config.clouds), checks, done)
    parts = volume.maintenance.checkpoint.looks()
    for part in parts:
        for cloud, finding in part().findings():
            if finding is not None:
                report.add(f"cloud {names.get(cloud, cloud)}", finding.what)
    report.checked["parts of the checkpoint"] = len(parts)
    report.checked["objects on clouds"] = len(checks)
    report.checked["objects that nothing names"] = volume.collector.count_unnamed()
    with contextlib.suppress(HybrisError):  # a damaged store has been reported
        found = volume.key_values.orphans(volume.maintenance.trusted).look()
        report.checked["values that nothing names"] = sum(found.counts)
