"""Verifying what the database of a volume holds: pages, tree, log, and that each follows from the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from hybrisfs.admit.damaged_database import NONSENSE
from hybrisfs.api.maintenance import Check, CheckProblem
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.state.checkpoints import has_agreed_checkpoint
from hybrisfs.state.checks import (
    TREE_CHECKS,
    count_files,
    count_pages,
    damaged_pages,
    recorded_files,
)
from hybrisfs.state.database import Snapshot
from hybrisfs.state.members import member_rows
from hybrisfs.state.nodes import NodeTable
from hybrisfs.state.stored_log import count_bare_updates, count_updates
from hybrisfs.state.versions import count_versions
from hybrisfs.verify.derived_check import PackCheck, RegisterCheck, check_versions, count_without_bytes
from hybrisfs.verify.log_check import LogCheck, Vectors
from hybrisfs.verify.view_check import ViewCheck

__all__ = ["FsckReport", "LocalVolume", "Problem", "Progress", "check_database", "run_steps"]

_MOST_PAGES: Final = 20


class LocalVolume(Struct, frozen=True):
    """What the rows are checked against: the ids of the volume and of this device, how chunks are named."""

    id: bytes
    device: bytes
    namer: ChunkNamer


def check_database(db: Snapshot, volume: LocalVolume, report: FsckReport, progress: Progress) -> None:
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


def _check_pages(db: Snapshot, report: FsckReport, progress: Progress) -> None:
    progress("database", 0, 1)
    for line in damaged_pages(db, _MOST_PAGES):
        report.add("database", line)
    report.checked["database pages"] = count_pages(db)
    progress("database", 1, 1)


def _check_tree(db: Snapshot, report: FsckReport, progress: Progress) -> None:
    total = len(TREE_CHECKS) + 1
    for done, check in enumerate(TREE_CHECKS):
        progress("tree", done, total)
        for row in check.wrong(db):
            shown = ", ".join(one.hex() if isinstance(one, bytes) else str(one) for one in row)
            report.add("tree", f"{check.what} ({shown})")
    found, recorded = count_files(db), recorded_files(db)
    if recorded.files != found.files or (recorded.bytes != found.bytes and not NodeTable(db).nameless()):
        report.add(
            "tree",
            f"{found.files} files of {found.bytes} bytes, recorded as {recorded.files} of {recorded.bytes}",
            "warning",
        )
    report.checked["files"] = found.files
    progress("tree", total, total)


def _check_log(db: Snapshot, volume: LocalVolume, report: FsckReport, progress: Progress) -> None:
    """The log, and what follows from it: registers, packs."""
    members = {one.device: one.public for one in member_rows(db)}
    check = LogCheck(db, volume.id, volume.device, members)
    registers, packs = RegisterCheck(db, Vectors(db)), PackCheck(db)
    total = count_updates(db)
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
    bare = count_bare_updates(db)
    if bare and not has_agreed_checkpoint(db):
        report.add(
            "log", f"{bare} updates are without what they wrote, and there is no checkpoint that has it"
        )
    report.checked["updates"] = done
    progress("log", total, total)


def _check_versions(db: Snapshot, report: FsckReport, progress: Progress) -> None:
    total = count_versions(db)
    progress("versions", 0, total)
    for problem in check_versions(db):
        report.add("versions", problem)
    if total:
        report.checked["versions of registers"] = total
        report.checked["versions that cannot be read any more"] = count_without_bytes(db)
    progress("versions", total, total)


def _check_view(db: Snapshot, volume: LocalVolume, report: FsckReport, progress: Progress) -> None:
    check = ViewCheck(db, volume.namer, Vectors(db))
    for problem in check.run(partial(progress, "names")):
        report.add("tree", problem)


# -- what a check of a volume found ---------------------------------------------------------------------


Progress: TypeAlias = Callable[[str, int, int], None]
"""Gets a stage, how much of it is done, and how much there is."""

_MOST_PROBLEMS: Final = 1000


class Problem(Struct, frozen=True):
    """What is wrong where. An *error* has cost bytes or may; a *warning* has not."""

    where: str
    what: str
    severity: Literal["error", "warning"] = "error"


class FsckReport(Struct):
    """What was checked, and what is wrong."""

    problems: list[Problem] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def add(self, where: str, what: str, severity: Literal["error", "warning"] = "error") -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(where, what, severity))

    def facts(self) -> Check:
        """The same as answers tell it."""
        found = [CheckProblem(one.where, one.what, one.severity) for one in self.problems]
        return Check(found, dict(self.checked))
