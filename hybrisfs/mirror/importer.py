"""Copying a folder into the volume, once: what is there already and equal is not copied again.

Each file appears in the volume whole, or not at all, so that an import that was cut short goes on where it
was. What was stored is read back and compared with what was read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from hybrisfs.mirror.engine import Held, Listing
from hybrisfs.mirror.folder import Folder
from hybrisfs.mirror.model import ChangedError, Facts, Glimpse, Kind, Seen, join
from hybrisfs.mirror.volume_side import VolumeSide
from hybrisfs.tree.commit import Committer

__all__ = ["Importer", "ImportReport", "Step"]

Step = Callable[[str, int, int], None]
"""Called with the present step, the bytes done and all bytes; may raise to stop."""

_SHOWN: Final = 200
_COMMIT_EVERY: Final = 2000  # names


class ImportReport(Struct):
    """Counts of files that were copied, that were there, and that could not be copied."""

    folders: int = 0
    files: int = 0
    size: int = 0
    present: int = 0
    replaced: int = 0
    problems: list[tuple[bytes, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """ "folders", "files" (links and further names of files count), "bytes", "present" (were there and
        equal), "replaced", "problems" (the first of them: "path" and "why") and "problem_count"."""
        return {
            "folders": self.folders,
            "files": self.files,
            "bytes": self.size,
            "present": self.present,
            "replaced": self.replaced,
            "problems": [{"path": os.fsdecode(path), "why": why} for path, why in self.problems[:_SHOWN]],
            "problem_count": len(self.problems),
        }


class Importer:
    """Copies *source* into *target*. A *dry_run* only looks; a
    file that differs from the one in the volume is a problem unless it is to *replace* that."""

    def __init__(
        self,
        source: Folder,
        target: VolumeSide,
        committer: Committer,
        step: Step,
        *,
        dry_run: bool,
        replace: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._committer = committer
        self._step = step
        self._dry_run = dry_run
        self._replace = replace
        self._total = 0
        self._done = 0
        self._uncommitted = 0
        self._links: dict[bytes, tuple[bytes, Seen]] = {}  # of files with several names: one that is there
        self.report = ImportReport()

    def run(self) -> ImportReport:
        """Copy. Raises OSError when the volume takes nothing any more; what was copied by then stays."""
        try:
            for directory in self._directories():
                self._enter(directory)
        finally:
            if not self._dry_run:
                self._committer.commit_now()
        return self.report

    def _directories(self) -> list[bytes]:
        """All directories to be copied, each after the one that it is in; counts what there is."""
        found = [b""]
        for directory in found:
            self._step("looking", 0, 0)
            for path, glimpse in self._glimpses(directory, self._list(directory)):
                if glimpse.kind is Kind.DIRECTORY:
                    found.append(path)
                elif glimpse.kind is Kind.FILE:
                    self._total += self._source.size_of(glimpse)
        self.report.problems.clear()  # they are found again
        return found

    def _list(self, directory: bytes) -> Listing:
        try:
            return self._source.names(directory) or {}
        except OSError as error:
            self._problem(directory, error.strerror or str(error))
            return {}

    def _glimpses(self, directory: bytes, listing: Listing) -> list[tuple[bytes, Glimpse]]:
        found: list[tuple[bytes, Glimpse]] = []
        for name, one in sorted(listing.items()):
            if not isinstance(one, Held):
                found.append((join(directory, name), one))
            elif one.why:
                self._problem(join(directory, name), one.why)
        return found

    def _enter(self, directory: bytes) -> None:
        there = self._target.names(directory) or {}
        for path, glimpse in self._glimpses(directory, self._list(directory)):
            self._step("copying", self._done, self._total)
            try:
                self._one(path, glimpse, there.get(path.rpartition(b"/")[2]))
            except ChangedError:
                self._problem(path, "it changed while it was read; import it again")
            except OSError as error:
                if self._is_full(error):
                    raise
                self._problem(path, error.strerror or str(error))
            if glimpse.kind is Kind.FILE:
                self._done += self._source.size_of(glimpse)
            self._uncommitted += 1
            if self._uncommitted >= _COMMIT_EVERY and not self._dry_run:
                self._uncommitted = 0
                self._committer.commit_now()

    @staticmethod
    def _is_full(error: OSError) -> bool:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

    def _one(self, path: bytes, glimpse: Glimpse, there: Glimpse | Held | None) -> None:
        replaces = None
        if isinstance(there, Held):
            self._problem(path, there.why or "it is being written in the volume just now")
            return
        if there is not None:
            seen = self._source.examine(path, glimpse, content=True)
            with self._source.read(path, seen) as original:
                present = self._target.examine(path, there, content=True, beside=original)
            if seen.facts.kind is Kind.DIRECTORY is present.facts.kind or seen.facts.same_content(
                present.facts
            ):
                self._refresh(path, seen, present)
                return
            if not self._replace or Kind.DIRECTORY in (seen.facts.kind, present.facts.kind):
                self._problem(path, "the volume has something else under this name")
                return
            replaces = present
        self._count(glimpse, replaces is not None)
        if not self._dry_run:
            self._copy(path, glimpse, replaces)

    def _refresh(self, path: bytes, seen: Seen, present: Seen) -> None:
        """It is there already, but may lack attributes: the import may have been cut short."""
        self.report.present += 1
        if seen.links > 1:
            self._links.setdefault(seen.identity, (path, present))
        if not self._dry_run and seen.facts != present.facts and seen.facts.kind is not Kind.LINK:
            with self._source.read(path, seen) as original:
                self._target.set_attributes(path, original, present)

    def _count(self, glimpse: Glimpse, replaced: bool) -> None:
        report = self.report
        report.replaced += replaced
        if glimpse.kind is Kind.DIRECTORY:
            report.folders += 1
            return
        report.files += 1
        if glimpse.kind is Kind.FILE and glimpse.identity not in self._links:
            report.size += self._source.size_of(glimpse)

    def _copy(self, path: bytes, glimpse: Glimpse, replaces: Seen | None) -> None:
        sibling = self._links.get(glimpse.identity)
        if sibling is not None and glimpse.kind is not Kind.DIRECTORY:
            try:
                self._target.link(path, sibling[0], sibling[1], replaces)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:  # at the border of a contributor's folder
                    raise
        with self._source.read(path, Seen(glimpse.identity, glimpse.stamp, Facts(glimpse.kind))) as original:
            stored = self._target.write(path, original, replaces)
            read = original.seen
        if glimpse.kind is Kind.FILE:
            self._verify(path, read, stored)
            self._see_that_it_stayed(path, glimpse)
        if glimpse.links > 1 and glimpse.kind is not Kind.DIRECTORY:
            self._links[glimpse.identity] = path, stored

    def _see_that_it_stayed(self, path: bytes, glimpse: Glimpse) -> None:
        """What grows is stored as far as it was read; people remove what they have imported."""
        try:
            self._source.examine(path, glimpse, content=False)
        except ChangedError:
            self._problem(path, "it has changed since it was read; import it again with --replace")

    def _verify(self, path: bytes, read: Seen, stored: Seen) -> None:
        try:
            again = self._target.read_back(path, stored)
        except ChangedError:
            return  # a program has written to it
        if not again.facts.same_content(read.facts):
            self._problem(path, "what was stored is not what was read: check the disk, then import it again")

    def _problem(self, path: bytes, why: str) -> None:
        self.report.problems.append((path, why))
