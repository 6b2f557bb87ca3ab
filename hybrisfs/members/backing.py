"""Which words about a device count, when members say what it may do (`hybrisfs.members.roles`).

No member takes rights from another one alone, or a thief would make readers of all others at once. A word
*limits* when it allows less than all. It counts when

 (a) it is of a member above the device: the one that let it in, or let in that one, and so on, up to the
     first recovery kit: a device that recovers by that kit is not below a stolen machine that made it; or
 (b) it is of the volume's first recovery kit; or
 (c) another member that is independent of its author says the same.

Until then it is *pending*, and has no effect. Any member may say that a device may do all. When the device
has let that member in, which may be its puppet, this only takes back what the member had said itself. To say
"all" also refuses pending words: two words are no agreement when a member had seen one of them and said
"all", and the author of the other had seen that.

All of that follows from what an update had seen, and from registers that are never written again. So a word
keeps its weight when its author is removed; else a later joiner would decide otherwise. *Independent* and
*first* are as in `hybrisfs.members.kinship`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from hybrisfs.kinds import ADMISSION, MEMBER
from hybrisfs.members.admission import founders
from hybrisfs.members.lineage import Lineage, VectorOf, trace
from hybrisfs.members.roles import RoleRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Reader
from hybrisfs.state.said import Said, said_of_kin
from hybrisfs.state.stored_log import devices_of_branches
from sync import VersionVector

__all__ = ["Backing", "Word"]

_MOST_KEPT: Final = 64


class Word(NamedTuple):
    """What a member said of a device."""

    stamp: Stamp
    author: bytes
    record: RoleRecord
    seconds: frozenset[bytes] = frozenset()
    """The authors of equal words by which it counts; none if it counts without them."""


class Backing:
    """Judges words by what was said; of the transaction, or of a snapshot."""

    def __init__(self, database: Reader) -> None:
        self._db = database
        self._devices: dict[bytes, bytes] = {}  # by branch
        self._rows: dict[bytes, list[Said]] | None = None  # by branch, in the order of clocks
        self._lineages: dict[tuple[int, ...], Lineage] = {}

    def forget(self) -> None:
        """What members say of admissions has changed."""
        self._rows = None
        self._lineages.clear()

    def author(self, branch: bytes) -> bytes:
        """The device that has written a branch; the branch itself while that is unknown."""
        if branch not in self._devices:
            self._devices.update(devices_of_branches(self._db))
        return self._devices.get(branch, branch)

    @staticmethod
    def may_lift(author: bytes, device: bytes, lineage: Lineage) -> bool:
        """Whether that member may say that the device may do all."""
        return author not in lineage.kinship.line(device) or author in _first_kits(device, lineage)

    @staticmethod
    def counting(device: bytes, words: Sequence[Word], lineage: Lineage, vector_of: VectorOf) -> list[Word]:
        """The words that count, of *words*: all about the device that an update had seen."""
        return _Court(device, words, lineage, vector_of).counting()

    @staticmethod
    def pending(device: bytes, words: Sequence[Word], lineage: Lineage, vector_of: VectorOf) -> list[Word]:
        """The words that wait for another member to agree."""
        return _Court(device, words, lineage, vector_of).pending()

    def lineage(self, seen: VersionVector | None, vector_of: VectorOf) -> Lineage:
        """How devices came, as an update with that vector had seen it; None: all that is known here. The same
        object as long as the answer is the same."""
        rows = self._rows
        if rows is None:
            rows = self._rows = {}
            for one in said_of_kin(self._db):
                rows.setdefault(one.branch, []).append(one)
        counts = tuple(
            len(said) if seen is None else _heard(said, seen[branch]) for branch, said in rows.items()
        )
        found = self._lineages.get(counts)
        if found is None:
            if len(self._lineages) >= _MOST_KEPT:
                self._lineages.clear()
            heard = [
                one for (_, said), count in zip(rows.items(), counts, strict=True) for one in said[:count]
            ]
            found = self._lineages[counts] = trace(
                [one for one in heard if one.key[0] == MEMBER],
                [one for one in heard if one.key[0] == ADMISSION],
                {one.branch: self.author(one.branch) for one in heard},
                vector_of,
                founders(self._db),
            )
        return found


def _heard(said: list[Said], clock: int) -> int:
    """How many of these were written up to this clock."""
    return len(said) if said[-1].clock <= clock else bisect_right(said, clock, key=lambda one: one.clock)


def _first_kits(device: bytes, lineage: Lineage) -> list[bytes]:
    kits = sorted(lineage.kits & lineage.roster.counted)
    return lineage.kinship.first_kits(device, kits) if kits else []


class _Court:
    """Many words may be of one liar and its puppets, so that nothing takes time that grows with their square
    before two agree that are independent."""

    def __init__(self, device: bytes, words: Iterable[Word], lineage: Lineage, vector_of: VectorOf) -> None:
        self._device = device
        self._kinship = lineage.kinship
        self._first = _first_kits(device, lineage)
        self._vector_of = lru_cache(None)(vector_of)
        self._above: set[bytes] = set()
        one = self._kinship.inviter(device)
        while one is not None:
            self._above.add(one)
            one = None if one in self._first else self._kinship.inviter(one)
        self._free: dict[bytes, list[Word]] = {}  # those that allow all and count, by branch, oldest first
        withdrawn: dict[bytes, list[Word]] = {}  # others that allow all, by author
        newest: dict[tuple[object, ...], Word] = {}  # those that limit, of a branch the newest of each kind
        for word in sorted(words, key=lambda one: one.stamp):
            if word.record.limits:
                newest[word.stamp.writer, word.record] = word
            elif word.author not in self._kinship.line(device) or word.author in self._first:
                self._free.setdefault(word.stamp.writer, []).append(word)
            else:
                withdrawn.setdefault(word.author, []).append(word)
        self._limiting = [
            one
            for one in newest.values()
            if not any(self._saw(later, one) for later in withdrawn.get(one.author, ()))
        ]

    def _saw(self, later: Word, earlier: Word) -> bool:
        vector = self._vector_of(*later.stamp[::-1])
        return vector is not None and vector[earlier.stamp.writer] >= earlier.stamp.clock

    def counting(self) -> list[Word]:
        """Those that count."""
        return [*(one for free in self._free.values() for one in free), *self._backed()]

    def pending(self) -> list[Word]:
        """The words that limit, do not count, and that no member has refused."""
        backed = {one.stamp for one in self._backed()}
        return [
            one
            for one in self._limiting
            if one.stamp not in backed and not any(self._answers(one, free) for free in self._free.values())
        ]

    def _answers(self, word: Word, free: Sequence[Word]) -> list[Word]:
        """The first of these, of one branch, that has seen the word: those after it have, too."""
        at = bisect_left(free, True, key=lambda one: self._saw(one, word))
        return [*free[at : at + 1]]

    def _backed(self) -> list[Word]:
        """Those that limit and count."""
        groups: dict[RoleRecord, list[Word]] = {}
        for one in self._limiting:
            groups.setdefault(one.record._replace(from_first=False), []).append(one)
        found = []
        for group in groups.values():
            authors = {one.author for one in group}
            by_kits = bool(self._first) and authors.issuperset(self._first)
            agree = self._kinship.are_independent(authors, self._device)
            for one in group:
                if one.author in self._above or (by_kits and one.author in self._first):
                    found.append(one)
                elif agree and (seconds := self._seconds(one, group)):
                    found.append(one._replace(seconds=seconds))
        return found

    def _seconds(self, word: Word, group: Iterable[Word]) -> frozenset[bytes]:
        """The authors that agree to the word."""
        return frozenset(other.author for other in group if self._agree(word, other))

    def _agree(self, one: Word, other: Word) -> bool:
        return self._kinship.are_independent((one.author, other.author), self._device) and not any(
            self._saw(second, answer)
            for first, second in ((one, other), (other, one))
            for free in self._free.values()
            for answer in self._answers(first, free)
        )
