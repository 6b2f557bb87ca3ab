"""The registers of the tree: for each key the set of its logically latest values (Depot 4.1).

A write supersedes the values that its update depends on; what is left stands side by side. The rules that
make one tree of it are in `hybrisfs.merge.rules`. Registers of packs are not kept here: they become rows of
`pack` and `chunk`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from hybrisfs.kinds import CONTENT, KINDS, NODE, ROLE, Trait, having
from hybrisfs.log.supersession import Supersession, Written
from hybrisfs.log.versions import Ended, VersionStore, is_removal
from hybrisfs.members.minutes import Minutes
from hybrisfs.members.role_table import Roles
from hybrisfs.registers.tree import is_of_tree
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.condemned import Condemned
from hybrisfs.state.database import RowWriter
from hybrisfs.state.registers import RegisterTable
from sync import Rename, VersionVector

__all__ = ["Merged", "Registers", "is_kept"]

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

    def __init__(self, database: RowWriter, condemned: Condemned, versions: VersionStore) -> None:
        """*condemned* sees the values of content registers that are written, *versions* notes each value that
        is superseded."""
        super().__init__(database)
        self.roles = Roles(database)
        self.minutes = Minutes(database, self.roles)
        self._versions = versions
        self._condemned = condemned

    def write_own(self, stamp: Stamp, writes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """An own update depends on all that is here: each write supersedes every other value."""
        number = self._number(stamp.writer)
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
        writers = dict.fromkeys(one.stamp.writer for one in updates)  # in order: numbers are given by it
        numbers = {writer: self._number(writer) for writer in writers}
        before = self._stamps({key for one in updates for key, _ in one.writes})
        change = Supersession(before, self._versions)
        self._versions.renames = renames
        change.take(updates)
        self._note(change)
        self._versions.renames = ()
        self._take_out([(key, stamp.clock, self._number(stamp.writer)) for key, stamp in change.superseded])
        self._put_in(
            [
                (key, stamp.clock, numbers[stamp.writer], value)
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
        self._versions.end(ended, {one.stamp.writer: self._number(one.stamp.writer) for one in ended})

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
            [(one.key, stamp.clock, self._number(stamp.writer)) for one in changes for stamp in one.gone]
        )
        self._put_in(
            [
                (one.key, value.stamp.clock, self._number(value.stamp.writer), value.value)
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
