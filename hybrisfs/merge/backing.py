"""Which words about a device count, when members say what it may do (`hybrisfs.merge.roles`).

No member takes rights from another one alone, or a thief would make readers of all others at once. A word
*limits* when it allows less than all. It counts when

 (a) it is of a member above the device: the one that let it in, or let in that one, and so on, up to the
     first recovery kit, so that whoever recovers by that is not below a stolen machine which made it; or
 (b) it is of the volume's first recovery kit; or
 (c) another member that is independent of its author says the same.

Until then it is a *proposal*, which has no effect. Anybody may say that a device may do all; of those that
it has let in itself, which may be its puppets, that only takes back what they had said themselves. It also
answers proposals: two words are no agreement when somebody had seen one and said "all", and the author of the
other had seen that.

All of that is decided from what an update had seen, and from registers that are never written again: nobody's
word loses its weight when its author is removed, or a later joiner would decide otherwise. *Independent* and
*first* are as in `hybrisfs.merge.kinship`.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hybrisfs.merge.admission import ADMISSION_PREFIX
from hybrisfs.merge.lineage import Lineage, VectorOf, trace
from hybrisfs.merge.rules import Stamp
from hybrisfs.store.database import Database
from sync import VersionVector

if TYPE_CHECKING:
    from hybrisfs.merge.roles import RoleRecord

__all__ = ["Backing", "Word"]

_MEMBER: Final = ord("m")
_ADMISSION: Final = ADMISSION_PREFIX[0]
_SAID: Final = (
    "SELECT key, branch, clock, value FROM said WHERE key >= x'69' AND key < x'6a' "
    "OR key >= x'6d' AND key < x'6e' ORDER BY clock"
)
_MOST_KEPT: Final = 64


class Word(NamedTuple):
    """What somebody said of a device."""

    stamp: Stamp
    author: bytes
    record: RoleRecord
    seconds: frozenset[bytes] = frozenset()
    """Those by whom it counts that say the same, unless it counts without them."""

    def agrees(self, other: Word) -> bool:
        """Whether somebody else says the same."""
        same = self.record._replace(from_first=False) == other.record._replace(from_first=False)
        return same and self.author != other.author


class Backing:
    """Judges words by the table `said` of a database; used with the volume's lock held, or of a snapshot."""

    def __init__(self, database: Database | sqlite3.Connection) -> None:
        self._db = database
        self._devices: dict[bytes, bytes] = {}  # by branch
        self._rows: dict[bytes, list[tuple[Any, ...]]] | None = None  # by branch, in the order of clocks
        self._lineages: dict[tuple[int, ...], Lineage] = {}

    def forget(self) -> None:
        """Something else is said of who let whom in."""
        self._rows = None
        self._lineages.clear()

    def author(self, branch: bytes) -> bytes:
        """The device that has written a branch; the branch itself while nobody knows."""
        if branch not in self._devices:
            self._devices.update(self._db.execute("SELECT id, device FROM log_branch").fetchall())
        return self._devices.get(branch, branch)

    @staticmethod
    def may_lift(author: bytes, device: bytes, lineage: Lineage) -> bool:
        """Whether that member may say that the device may do all."""
        return author not in lineage.kinship.line(device) or author in _first_kits(device, lineage)

    def counting(
        self, device: bytes, words: Sequence[Word], lineage: Lineage, vector_of: VectorOf
    ) -> tuple[list[Word], list[Word]]:
        """Of *words*, all that somebody had seen about the device: those that count, and open proposals."""
        court = _Court(device, words, lineage, vector_of)
        free = [one for one in words if not one.record.limits and self.may_lift(one.author, device, lineage)]
        taken_back = [one for one in words if not one.record.limits and one not in free]
        limiting = [one for one in words if one.record.limits and not court.is_taken_back(one, taken_back)]
        backed = court.backed(limiting, free)
        stamps = {one.stamp for one in backed}
        proposals = [one for one in limiting if one.stamp not in stamps and not court.is_seen(one, free)]
        return [*free, *backed], proposals

    def lineage(self, seen: VersionVector | None, vector_of: VectorOf) -> Lineage:
        """How devices came, for somebody who had seen so much; None: all that is known here. The same object
        as long as it is the same."""
        rows = self._rows
        if rows is None:
            rows = self._rows = {}
            for row in self._db.execute(_SAID).fetchall():
                rows.setdefault(row[1], []).append(row)
        counts = tuple(
            len(said) if seen is None else bisect_right(said, seen[branch], key=lambda row: int(row[2]))
            for branch, said in rows.items()
        )
        found = self._lineages.get(counts)
        if found is None:
            if len(self._lineages) >= _MOST_KEPT:
                self._lineages.clear()
            heard = [
                row for (_, said), count in zip(rows.items(), counts, strict=True) for row in said[:count]
            ]
            found = self._lineages[counts] = trace(
                [row for row in heard if row[0][0] == _MEMBER],
                [row for row in heard if row[0][0] == _ADMISSION],
                {row[1]: self.author(row[1]) for row in heard},
                vector_of,
            )
        return found


def _first_kits(device: bytes, lineage: Lineage) -> list[bytes]:
    kits = sorted(lineage.kits & lineage.roster.counted)
    return lineage.kinship.first_kits(device, kits) if kits else []


class _Court:
    def __init__(self, device: bytes, words: Iterable[Word], lineage: Lineage, vector_of: VectorOf) -> None:
        self._device = device
        self._kinship = lineage.kinship
        self._first = _first_kits(device, lineage)
        self._above: set[bytes] = set()
        one = self._kinship.inviter(device)
        while one is not None:
            self._above.add(one)
            one = None if one in self._first else self._kinship.inviter(one)
        self._vectors = {one.stamp: vector_of(*one.stamp[::-1]) for one in words}

    def _saw(self, later: Word, earlier: Word) -> bool:
        vector = self._vectors[later.stamp]
        return vector is not None and vector[earlier.stamp.writer] >= earlier.stamp.clock

    def is_seen(self, word: Word, by: Iterable[Word]) -> bool:
        """Whether the author of any of these had seen the word."""
        return any(self._saw(one, word) for one in by)

    def is_taken_back(self, word: Word, by: Iterable[Word]) -> bool:
        """Whether one of these is of the word's author, who had seen it."""
        return any(one.author == word.author and self._saw(one, word) for one in by)

    def backed(self, limiting: Sequence[Word], free: Sequence[Word]) -> list[Word]:
        """Those of *limiting* that count; *free* are those that allow all, and count."""
        found = [one for one in limiting if one.author in self._above or self._is_by_kits(one, limiting)]
        rest = [one for one in limiting if one not in found]
        for one in rest:
            seconds = {other.author for other in limiting if self._agree(one, other, free)}
            if seconds:
                found.append(one._replace(seconds=frozenset(seconds)))
        return found

    def _is_by_kits(self, word: Word, limiting: Sequence[Word]) -> bool:
        same = {one.author for one in limiting if one.agrees(word)}
        return word.author in self._first and same.issuperset(set(self._first) - {word.author})

    def _agree(self, one: Word, other: Word, free: Sequence[Word]) -> bool:
        if not one.agrees(other) or not self._kinship.are_independent(
            (one.author, other.author), self._device
        ):
            return False
        return not any(
            self._saw(answer, first) and self._saw(second, answer)
            for answer in free
            for first, second in ((one, other), (other, one))
        )
