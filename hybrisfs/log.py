"""What the accepted updates leave: for each register its latest values, and the versions before them.

A write supersedes the values that its update depends on; what is left stands side by side. The rules that
make one tree of it are in `hybrisfs.merge.rules`. Registers of packs are not kept here: they become rows of
`pack` and `chunk`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from hybrisfs.kinds import CONTENT, KINDS, NODE, PLACE, ROLE, Trait, having
from hybrisfs.members.hearing import Hearing
from hybrisfs.members.minutes import Minutes
from hybrisfs.registers.tree import is_of_tree, removed_place
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import RowWriter
from hybrisfs.state.disposals import Condemned
from hybrisfs.state.registers import RegisterTable
from hybrisfs.state.updates import UpdateLog
from hybrisfs.state.versions import (
    end_stored_values,
    end_unstored_values,
    end_versions_sooner,
    note_removals,
    rename_versions,
    versions_ending_after,
)
from sync import Rename, VersionVector, Write

__all__ = ["Concurrent", "Merged", "Registers", "Supersession", "VersionStore", "Written", "is_kept"]

_TREE: Final = having(Trait.TREE)
_ELSEWHERE: Final = having(Trait.ELSEWHERE)
_KIN: Final = having(Trait.KIN)
_SAID: Final = having(Trait.SAID)


def is_kept(key: bytes) -> bool:
    """Whether a register is kept here: not those of packs, nor those with a key that no correct device gives
    to a register of the tree, since they cannot be shown."""
    return is_of_tree(key) if key[0] in _TREE else key[0] not in _ELSEWHERE


class Merged(NamedTuple):
    """What becomes of a register when two sets of values are merged."""

    key: bytes
    gone: Sequence[Stamp]
    """Stamps of values here that the other set supersedes."""
    come: Sequence[Value]
    """Values of the other set that nothing here supersedes."""


class Registers(RegisterTable):
    """The registers of one volume."""

    def __init__(
        self, database: RowWriter, condemned: Condemned, versions: VersionStore, hearing: Hearing
    ) -> None:
        """*condemned* sees the values of content registers that are written, *versions* notes each value that
        is superseded."""
        super().__init__(database)
        self.roles = hearing.roles
        self.minutes = Minutes(database, hearing)
        self._versions = versions
        self._condemned = condemned

    def write_own(self, stamp: Stamp, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """An own update depends on all that is here: each write supersedes every other value."""
        number = self._number(stamp.branch)
        writes = list(writes)
        before = list(self._rows(key for key, _ in writes))
        until = self._versions.moment(stamp)
        self._end(Ended(key, self.stamp(*row), until) for key, *row in before)
        self._versions.removed((key[NODE], until) for key, value in writes if is_removal(key, value))
        self._take_out(before)
        self._put_in([(key, stamp.clock, number, value) for key, value in writes])
        for key, value in writes:
            if key[0] in _SAID:
                self.minutes.note(stamp, key, value)
            elif key[0] == ROLE:
                self.roles.note(stamp, key, value)
        if any(key[0] in _KIN for key, _ in writes):
            self.roles.kin_changed()
        self._see_contents(writes)

    def write(self, updates: Sequence[Written], renames: Sequence[Rename] = ()) -> dict[bytes, Value | None]:
        """Take in what other devices' updates have written, in the order in which they were accepted. The
        registers written: with their value when they had none before and have one now, else None.

        *renames*: what the log has renamed since, and the stamps of *updates* have not."""
        branches = dict.fromkeys(one.stamp.branch for one in updates)  # in order: numbers are given by it
        numbers = {branch: self._number(branch) for branch in branches}
        before = self._stamps({key for one in updates for key, _ in one.writes})
        change = Supersession(before, self._versions)
        self._versions.renames = renames
        change.take(updates)
        self._note(change)
        self._versions.renames = ()
        self._take_out([(key, stamp.clock, self._number(stamp.branch)) for key, stamp in change.superseded])
        self._put_in(
            [
                (key, stamp.clock, numbers[stamp.branch], value)
                for key, latest in change.come.items()
                for stamp, value in latest
            ]
        )
        self._see_contents((key, value) for one in updates for key, value in one.writes)
        return {
            key: latest[0] if len(latest) == 1 and key not in before else None
            for key, latest in change.come.items()
        }

    def _stamps(self, keys: Collection[bytes]) -> dict[bytes, list[Stamp]]:
        """The stamps of the latest values of registers."""
        found: dict[bytes, list[Stamp]] = {}
        for key, clock, writer in self._rows(self._perhaps_here(keys)):
            found.setdefault(key, []).append(self.stamp(clock, writer))
        return found

    def _perhaps_here(self, keys: Collection[bytes]) -> list[bytes]:
        """Those of *keys* that are not above all of the tree's that are stored of their kind, as those of new
        nodes are."""
        highest = {int(kind): self._highest(kind) for kind in KINDS if kind in _TREE}
        return [key for key in keys if key <= highest.get(key[0], key)]

    def _note(self, change: Supersession) -> None:
        """Note superseded values as versions before they leave their registers."""
        self._end(change.ended)
        for key, until, vector in change.concurrent:
            self._versions.end_sooner(key, until, partial(self._covers, vector))
        self._versions.removed(change.removals)

    def _end(self, ended: Iterable[Ended]) -> None:
        ended = list(ended)
        self._versions.end(ended, {one.stamp.branch: self._number(one.stamp.branch) for one in ended})

    def _covers(self, vector: VersionVector, clock: int, writer: int) -> bool:
        return vector[self._branches[writer]] >= clock

    def _see_contents(self, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._condemned.see(value for key, value in writes if key[0] == CONTENT and value is not None)

    def merge(self, changes: Iterable[Merged]) -> None:
        """Take out and put in the values that these tell."""
        changes = list(changes)
        # The update that did it is not known any more: it came before the new values, or with them.
        for one in changes:
            if one.gone and one.come:
                until = max(self._versions.moment(value.stamp) for value in one.come)
                self._end(Ended(one.key, stamp, until) for stamp in one.gone if until)
        self._take_out(
            [(one.key, stamp.clock, self._number(stamp.branch)) for one in changes for stamp in one.gone]
        )
        self._put_in(
            [
                (one.key, value.stamp.clock, self._number(value.stamp.branch), value.value)
                for one in changes
                for value in one.come
            ]
        )
        self._see_contents((one.key, value.value) for one in changes for value in one.come)

    def rename_branch(self, old: bytes, above: int, new: bytes) -> dict[bytes, list[Stamp]]:
        """Updates of branch *old* with a clock above *above* turned out to be those of branch *new*: the
        stamps that values have no more, by their keys."""
        if old not in self._numbers:
            return {}
        number = self._numbers[old]
        found: dict[bytes, list[Stamp]] = {}
        for key, clock in self._rename(number, above, self._number(new)):
            found.setdefault(key, []).append(Stamp(clock, old))
        self._versions.rename_branch(number, above, self._number(new))
        return found


# -- what many updates do to registers, one after the other ---------------------------------------------


class Written(NamedTuple):
    """What an update has written to registers that are kept here, with all that it depends on."""

    stamp: Stamp
    vector: VersionVector
    writes: Sequence[Write]


class Concurrent(NamedTuple):
    """A write of an update with *vector*, signed at the moment *until*, which left other values standing."""

    key: bytes
    until: int
    vector: VersionVector


class Supersession:
    """The values of registers while updates are taken in, in the order in which they were accepted."""

    def __init__(self, stored: Mapping[bytes, Sequence[Stamp]], versions: VersionStore | None = None) -> None:
        """*stored*: the latest values of the registers that are written to; *versions* says when an update
        counts as signed, should it matter."""
        self._stored = dict(stored)
        self._versions = versions
        self.come: dict[bytes, list[Value]] = {}
        """The latest values of each register among those that the updates have written."""
        self.superseded: list[tuple[bytes, Stamp]] = []
        """Values that were stored, and an update supersedes."""
        self.ended: list[Ended] = []
        """Them, and those of updates that a later one supersedes."""
        self.concurrent: list[Concurrent] = []
        self.removals: list[tuple[bytes, int]] = []
        """Nodes of which a name was removed, and the moment."""

    def take(self, updates: Iterable[Written]) -> None:
        """The next updates."""
        come, stored = self.come, self._stored
        for stamp, vector, writes in updates:
            moment = 0 if self._versions is None else self._versions.moment(stamp)
            for key, value in writes:
                new = Value(stamp, value)
                if key in come or key in stored:
                    come[key] = [*self._beside(key, vector, moment), new]
                else:
                    come[key] = [new]
                if key[0] == PLACE and removed_place(value) is not None:
                    self.removals.append((key[NODE], moment))

    def _beside(self, key: bytes, vector: VersionVector, moment: int) -> Sequence[Value]:
        """The values that came before and stand beside that of an update with *vector*."""
        come = self.come.get(key)
        latest = self._outliving(key, come, vector, moment) if come else ()
        if (key in self._stored and self._standing(key, vector, moment)) or latest:
            self.concurrent.append(Concurrent(key, moment, vector))
        return latest

    def _outliving(
        self, key: bytes, latest: Iterable[Value], vector: VersionVector, moment: int
    ) -> list[Value]:
        """Those of the values of earlier updates that one with *vector* does not supersede."""
        outliving = []
        for one in latest:
            if vector[one.stamp.branch] < one.stamp.clock:
                outliving.append(one)
            elif one.value is not None:
                self.ended.append(Ended(key, one.stamp, moment, one.value))
        return outliving

    def _standing(self, key: bytes, vector: VersionVector, moment: int) -> Sequence[Stamp]:
        """Those of the values stored that an update with *vector* does not supersede."""
        standing = []
        for stamp in self._stored[key]:
            if vector[stamp.branch] < stamp.clock:
                standing.append(stamp)
            else:
                self.superseded.append((key, stamp))
                self.ended.append(Ended(key, stamp, moment))
        self._stored[key] = standing
        return standing


# -- versions: former values of registers of the tree ---------------------------------------------------
# A value is true from the moment of the update that wrote it until that of the first update which supersedes
# it (`hybrisfs.state.moments`). Both follow from the accepted updates alone: devices that have accepted the
# same ones note the same, in whatever order and batches these came. A value that is overwritten before it is
# signed is not a version: no other device ever sees it.
#
# A removal supersedes a place only. What the removed file held is still the latest value of its content, so
# it is noted as removed.


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
        branch = stamp.branch
        for rename in self.renames:
            if branch == rename.old and stamp.clock > rename.above:
                branch = rename.new
        return self._updates.moment_of(branch, stamp.clock)

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
            row = (key, stamp.clock, numbers[stamp.branch])
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
