"""Versions: former values of registers of the tree, noted when an update supersedes them, in its transaction.

A value is true from the moment of the update that wrote it until that of the first update which supersedes it
(`hybrisfs.state.moments`). Both follow from the accepted updates alone: devices that have accepted the same
ones note the same, in whatever order and batches these came. A value that is overwritten before it is signed
is no version: no other device ever sees it.

A removal supersedes a place only. What the removed file held is still the latest value of its content, so
it is noted as removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hybrisfs.kinds import PLACE, Trait, having
from hybrisfs.registers.tree import removed_place
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import RowWriter
from hybrisfs.state.updates import UpdateLog
from hybrisfs.state.versions import (
    end_stored_values,
    end_unstored_values,
    end_versions_sooner,
    note_removals,
    rename_versions,
    versions_ending_after,
)
from sync import Rename

__all__ = ["Ended", "VersionStore", "is_removal"]

_VERSIONED: Final = having(Trait.VERSIONED)


def is_removal(key: bytes, value: bytes | None) -> bool:
    """Whether this is what the removal of a name writes."""
    return key[0] == PLACE and removed_place(value) is not None


class Ended(NamedTuple):
    """A value that an update has superseded at the moment *until*. *value*: unless `register` has it."""

    key: bytes
    stamp: Stamp
    until: int
    value: bytes | None = None


class VersionStore:
    """The versions of one volume."""

    keeps = True
    """Whether anything is to be noted."""

    def __init__(self, database: RowWriter, updates: UpdateLog) -> None:
        self._db = database
        self._updates = updates
        self.renames: Sequence[Rename] = ()
        """Renames that the log has made already, and that the incoming stamps do not show yet."""

    def moment(self, stamp: Stamp) -> int:
        """When the update counts as signed."""
        writer = stamp.writer
        for rename in self.renames:
            if writer == rename.old and stamp.clock > rename.above:
                writer = rename.new
        return self._updates.moment_of(writer, stamp.clock)

    def end(self, ended: Iterable[Ended], numbers: Mapping[bytes, int]) -> None:
        """Note values that are about to leave `register`, and those that never came into it. *numbers*:
        those of the branches."""
        if not self.keeps:
            return
        stored: list[tuple[int, int, bytes, int, int]] = []
        unstored: list[tuple[bytes, int, int, bytes, int, int]] = []
        for key, stamp, until, value in ended:
            if key[0] not in _VERSIONED:
                continue
            since = self.moment(stamp)
            row = (key, stamp.clock, numbers[stamp.writer])
            if value is None:
                stored.append((since, until, *row))
            else:
                unstored.append((*row, value, since, until))
        end_stored_values(self._db, stored)
        end_unstored_values(self._db, unstored)

    def end_sooner(self, key: bytes, until: int, covers: Callable[[int, int], bool]) -> None:
        """An update has come that supersedes values, too, which another one had superseded already.

        *covers* tells by clock and number of the branch whether it depends on the update that wrote a value.
        """
        rows = versions_ending_after(self._db, key, until)
        sooner = [number for number, clock, writer in rows if covers(clock, writer)]
        end_versions_sooner(self._db, sooner, until)

    def removed(self, removals: Iterable[tuple[bytes, int]]) -> None:
        """Names of these nodes were removed at these moments."""
        if self.keeps:
            note_removals(self._db, removals)

    def rename_branch(self, old: int, above: int, new: int) -> None:
        """Updates of the branch with number *old* with a clock above *above* are those of branch *new*."""
        rename_versions(self._db, old, above, new)
