"""Verifying a volume: database, tree, log, cache and, when asked, every share on every cloud.

Nothing is changed. The database is read from a snapshot, so programs can go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from msgspec import Struct

from hybrisfs.clouds.cloud_set import CloudSet
from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.objects import ExpectedObjects
from hybrisfs.dispersal.engine import Engine
from hybrisfs.errors import HybrisError
from hybrisfs.gc.collector import Collector
from hybrisfs.parts import Writing
from hybrisfs.shown import shown
from hybrisfs.state.checks import cached_count, cached_rows, is_cached_in, is_staged, staged_parts
from hybrisfs.state.chunk_states import PENDING, SET_ASIDE
from hybrisfs.state.database import RowWriter, Snapshot
from hybrisfs.state.journal import Journal
from hybrisfs.state.packs import lost_packs, owed_packs, what_is_lost
from hybrisfs.state.segments import SegmentTable
from hybrisfs.state.shown_nodes import paths_showing
from hybrisfs.stores.own_places import MARKER_NAME
from hybrisfs.verify.database_check import (
    FsckReport,
    LocalVolume,
    Problem,
    Progress,
    check_database,
    run_steps,
)

__all__ = ["Fsck", "FsckReport", "Problem"]

_MOST_FILES: Final = 4


class Fsck:
    """Checks one volume. Its methods may be called from any thread."""

    def __init__(
        self, writing: Writing, maintenance: Maintenance, collector: Collector, cloud_set: CloudSet
    ) -> None:
        self._writing = writing
        self._clouds = writing.clouds
        self._ground = writing.clouds.ground
        self._fs = self._ground.fs
        self._sharing = self._ground.sharing
        self._maintenance = maintenance
        self._collector = collector
        self._cloud_set = cloud_set

    def check(self, *, clouds: bool, progress: Progress) -> FsckReport:
        """Check everything; problems are in the report, never raised."""
        report = FsckReport()
        checks: list[ObjectCheck] = []
        local = LocalVolume(self._sharing.volume, self._sharing.device, self._ground.sealer)
        with self._fs.state.snapshot() as db:
            check_database(db, local, report, progress)
            run_steps(
                report,
                (
                    partial(self._check_cache, db, report, progress),
                    partial(_check_lost, db, report),
                    lambda: checks.extend(
                        object_checks(self._clouds.engine, self._maintenance.objects.expected, db)
                    ),
                    partial(self._check_values, report, checks if clouds else None),
                ),
            )
        if clouds:
            self._writing.look_at_clouds()
            self._check_clouds(checks, report, progress)
        return report

    def _check_cache(self, db: Snapshot, report: FsckReport, progress: Progress) -> None:
        journal, sealer = self._fs.journal, self._ground.sealer
        total = cached_count(db)
        done = 0
        for number, identity, length, segment, position, state in cached_rows(db):
            data = _read(journal, segment, position, length)
            if (data is None or sealer.chunk_id(data) != identity) and self._still_there(
                partial(is_cached_in, number=number, segment=segment)
            ):
                if state is PENDING:
                    whose = _files_of(db, number)
                    what = f"chunk {identity.hex()} is damaged and on no cloud yet: data of {whose} is lost"
                    report.add("cache", what)
                elif state is SET_ASIDE:
                    whose = _files_of(db, number)
                    what = f"chunk {identity.hex()} is damaged, and the clouds have lost it"
                    report.add("cache", f"{what}: data of {whose} is lost unless another machine has it")
                elif state.is_dirty:
                    what = f"chunk {identity.hex()} is damaged here; its machine has yet to share it"
                    report.add("cache", what, "warning")
                else:
                    report.add(
                        "cache", f"chunk {identity.hex()} is damaged here; the clouds have it", "warning"
                    )
            done += 1
            if done % 256 == 0:
                progress("cache", done, total)
        for part in staged_parts(db):
            if _read(journal, part.segment, part.position, part.length) is None and self._still_there(
                partial(is_staged, part=part)
            ):
                where = f"bytes {part.start} to {part.start + part.length} of node {part.ino}"
                report.add("cache", f"{where} are gone: data is lost")
        report.checked["cached chunks"] = done
        progress("cache", total, total)

    def _check_values(self, report: FsckReport, checks: list[ObjectCheck] | None) -> None:
        """The key-value store of this device; *checks* gets what its clouds are to hold."""
        values = self._maintenance.objects.values
        count, problems = values.problems()
        for problem in problems:
            report.add("key-value store", problem)
        if count:
            report.checked["keys with values"] = count
        if checks is not None and not problems:
            checks.extend(ObjectCheck(*one) for one in values.checks())

    def _still_there(self, is_there: Callable[[RowWriter], bool]) -> bool:
        """Whether a row has neither changed nor gone since the snapshot."""
        with self._fs.state.transaction() as tx:
            self._fs.flush(tx)
            return is_there(tx)

    def _check_clouds(self, checks: Sequence[ObjectCheck], report: FsckReport, progress: Progress) -> None:
        names = self._cloud_set.names()
        finished = 0

        def done(check: ObjectCheck, wrong: str | None) -> None:
            nonlocal finished
            finished += 1
            if wrong is not None:
                report.add(f"cloud {names.get(check.cloud, check.cloud)}", wrong)
            progress("clouds", finished, len(checks))

        run_checks(len(self._ground.config.clouds), checks, done)
        parts = self._maintenance.objects.checkpoint.looks()
        for part in parts:
            for cloud, finding in part().findings():
                if finding is not None:
                    report.add(f"cloud {names.get(cloud, cloud)}", finding.what)
        report.checked["parts of the checkpoint"] = len(parts)
        report.checked["objects on clouds"] = len(checks)
        report.checked["objects that nothing names"] = self._collector.count_unnamed()
        with contextlib.suppress(HybrisError):  # a damaged store has been reported
            found = self._clouds.key_values.orphans(self._maintenance.trusted()).look()
            report.checked["values that nothing names"] = sum(found.counts)


def _check_lost(db: Snapshot, report: FsckReport) -> None:
    """Packs that the clouds have lost and that have yet to be stored again."""
    for number, pack in lost_packs(db).items():
        lost = what_is_lost(db, number)
        if lost.chunks:
            where = f"{lost.absent} of them are not on this machine" if lost.absent else "they are kept here"
            what = f"the clouds have lost pack {pack.hex()[:16]}: {lost.chunks} pieces of files, {where}"
            report.add("clouds", what)


def _files_of(db: Snapshot, chunk: int) -> str:
    """The paths of some files that show the chunk."""
    return ", ".join(map(shown, paths_showing(db, chunk, _MOST_FILES))) or "no file any more"


def _read(journal: Journal, segment: int, position: int, length: int) -> bytes | None:
    try:
        return journal.read(segment, position, length)
    except OSError:
        return None


# -- does every cloud hold what it has acknowledged, as it was put there? -------------------------------


_PER_CLOUD: Final = 4
_SMALL_OBJECT: Final = 64 << 20


class ObjectCheck(Struct, frozen=True):
    """One object on one cloud; *run* says what is wrong with it."""

    cloud: int
    run: Callable[[], str | None]


def object_checks(engine: Engine, expected: ExpectedObjects, db: Snapshot) -> Iterator[ObjectCheck]:
    """What the clouds are known to hold by *db*: packs of all devices, this one's log segments and head."""
    for cloud in engine.numbers:
        yield _object_check(engine, cloud, MARKER_NAME, expected.marker.verify)
    segments = SegmentTable(db).after()
    for segment in segments:
        for cloud in segment.placement:
            yield ObjectCheck(cloud, partial(_look_at_segment, expected, cloud, segment.name))
    for cloud in sorted(expected.head_holders().intersection(engine.in_use)):
        yield _object_check(engine, cloud, expected.head, expected.head_check)
    for pack in owed_packs(db):
        for index, cloud in enumerate(pack.placement):
            yield ObjectCheck(cloud, partial(engine.check_share, cloud, pack.id, index))


def _look_at_segment(expected: ExpectedObjects, cloud: int, name: str) -> str | None:
    found = expected.look_at_segment(cloud, name)
    return found.what if found is not None else None


def run_checks(
    clouds: int, checks: Iterable[ObjectCheck], done: Callable[[ObjectCheck, str | None], None]
) -> None:
    """Run *checks* on so many *clouds* at a time; *done* gets each in order, with what is wrong."""
    checks = list(checks)
    with ThreadPoolExecutor(_PER_CLOUD * clouds, thread_name_prefix="fsck") as pool:
        for check, wrong in zip(checks, pool.map(lambda check: check.run(), checks), strict=True):
            done(check, wrong)


def _object_check(engine: Engine, cloud: int, name: str, verify: Callable[[bytes], object]) -> ObjectCheck:
    return ObjectCheck(cloud, partial(engine.check_object, cloud, name, _SMALL_OBJECT, verify))
