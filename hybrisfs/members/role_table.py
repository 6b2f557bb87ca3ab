"""What each device may do, by the registers of `hybrisfs.members.roles` that an update had seen.

Which words about a device count, when members say what it may do (`hybrisfs.members.roles`).

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

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from hybrisfs.kinds import ADMISSION, MEMBER, ROLE
from hybrisfs.members.lineage import Lineage, VectorOf, founders, trace
from hybrisfs.members.roles import Grounds, Rights, Role, RoleRecord, known_assignments, whose_role
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Reader
from hybrisfs.state.members import is_let_in_limited, is_reserve
from hybrisfs.state.registers import Said, said_of_kin, stamped_of_kind
from hybrisfs.state.stored_log import devices_of_branches, newest_by_branch, vector_of
from hybrisfs.topic import Topic
from sync import Bound, DecodeError, SignedUpdate, VersionVector

__all__ = ["MOST_WORDS", "Roles"]

MOST_WORDS: Final = 8
"""Words of one author about one device, on a branch. Older ones have no effect, because they would take
time."""
_MOST_KEPT: Final = 256
_ALL: Final = Rights(Role.FULL)


class _Said(NamedTuple):
    """In the order of clocks."""

    clock: int
    key: bytes
    record: RoleRecord


class Roles:
    """What has been said in registers of roles; of the transaction, or of a snapshot."""

    def __init__(self, database: Reader) -> None:
        self._db = database
        self._backing = Backing(database)
        self._judged: dict[tuple[object, ...], list[Word]] = {}
        self.changed = Topic[[Collection[bytes]]]()
        """Called with devices whose rights may have changed."""
        self._said: dict[bytes, dict[bytes, list[_Said]]] = {}  # by device and branch
        self._stamps: dict[bytes, list[Stamp]] = {}  # of the values of each register
        self.count = 0
        """How often words about roles have arrived."""
        self.overstepped: set[bytes] = set()
        """The readers and contributors that have signed what they may not, as far as known since the
        start."""
        self.load()

    def load(self) -> None:
        """Load again after registers got other values or stamps."""
        self._is_let_in_limited = is_let_in_limited(self._db)
        self._said.clear()
        self._stamps.clear()
        self.forget()
        for key, stamp, value in stamped_of_kind(self._db, ROLE):
            self._put(stamp, key, value)
        self.changed(self.devices())

    def __bool__(self) -> bool:
        """Whether the log says anything about roles."""
        return bool(self._said)

    def devices(self) -> Collection[bytes]:
        """Those of which a register tells."""
        return self._said.keys()

    def note(self, stamp: Stamp, key: bytes, value: bytes | None) -> None:
        """An update has written this to a register of a role."""
        self.count += 1
        self._judged.clear()
        self._put(stamp, key, value)
        self.changed((whose_role(key),))

    def kin_changed(self) -> None:
        """Admissions have changed; `forget` was called before."""
        if self._said:
            self.changed(self.devices())

    def forget(self) -> None:
        """Forget earlier results, which may be outdated; `kin_changed` follows."""
        self.count += 1
        self._backing.forget()
        self._judged.clear()

    def _put(self, stamp: Stamp, key: bytes, value: bytes | None) -> None:
        try:
            said = _Said(stamp.clock, key, RoleRecord.decode(value or b""))
        except DecodeError:
            return
        self._stamps.setdefault(key, []).append(stamp)
        insort(self._said.setdefault(whose_role(key), {}).setdefault(stamp.branch, []), said)

    def are_awaited(self, device: bytes) -> bool:
        """Whether this *device* was let in as less than a full member, and the log has yet to say what it may
        do: until then it only reads."""
        return self._is_let_in_limited and device not in self._said

    def was_written(self, key: bytes, seen: VersionVector) -> bool:
        """Whether an update with the vector *seen* had seen a value of this register."""
        return any(seen[stamp.branch] >= stamp.clock for stamp in self._stamps.get(key, ()))

    def role(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> Role:
        """The role of the device for an update that had seen so much; None: for all that is known here."""
        return self.rights(device, seen, vector_of).role

    def rights(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> Rights:
        """The same, with the areas of a contributor."""
        said = [one.record for one in self._judge(device, seen, vector_of) if one.record.limits]
        if not said:
            return _ALL
        if any(one.role is Role.READER for one in said):
            return Rights(Role.READER)
        return Rights(Role.CONTRIBUTOR, frozenset.intersection(*(one.rights.areas for one in said)))

    def grounds(self, rights: Rights, seen: VersionVector | None) -> Grounds:
        """What a device with these rights may write to, which had seen so much; None: all that is known."""
        return Grounds(rights.areas, lambda keys: self.known_assignments(keys, seen))

    def known_assignments(self, keys: Collection[bytes], seen: VersionVector | None) -> set[bytes]:
        """See `roles.known_assignments`."""
        return known_assignments(self._db, keys, seen)

    def known_areas(self) -> set[bytes]:
        """The areas of which any register of a role has ever told."""
        every = (one for branches in self._said.values() for said in branches.values() for one in said)
        return {area.id for one in every for area in one.record.areas}

    def pending(self, device: bytes, vector_of: VectorOf) -> list[tuple[bytes, Rights]]:
        """The words that limit the device and have no effect yet: author and rights of each, in order."""
        words = self._words(device, None)
        pending = self._backing.pending(device, words, self._backing.lineage(None, vector_of), vector_of)
        now = self.rights(device, None, vector_of)
        found = {(one.author, one.record.rights) for one in pending if one.record.rights != now}
        return sorted(found, key=lambda one: (one[0], one[1].role, sorted(one[1].areas)))

    def may_lift(self, author: bytes, device: bytes, vector_of: VectorOf) -> bool:
        """Whether a word of *author* that lifts all limits of the device has an effect."""
        own = (
            one
            for by, said in self._said.get(device, {}).items()
            if self._backing.author(by) == author
            for one in said
        )
        return self._backing.may_lift(author, device, self._backing.lineage(None, vector_of)) or any(
            one.record.limits for one in own
        )

    def readers(self) -> set[bytes]:
        """The devices that are less than full members, by the stored registers."""
        return {one for one in self._said if self.stored_role(one) is not Role.FULL}

    def stored_role(self, device: bytes) -> Role:
        """The role of the device, by the stored registers."""
        if device not in self._said:
            return Role.FULL
        return self.role(device, newest_by_branch(self._db), self.vector_of)

    def bounds(self, device: bytes, seen: VersionVector, vector_of: VectorOf) -> list[Bound]:
        """The updates on which the updates of the device must depend, for an update that has seen so much;
        none if it is a full member. The inviter's word stays among them when other words limit the device:
        otherwise it could sign forbidden writes as if it had seen nothing."""
        limits = [one for one in self._judge(device, seen, vector_of) if one.record.limits]
        if not limits:
            return []
        inviter = self._backing.lineage(seen, vector_of).kinship.inviter(device)
        earliest = [
            Word(Stamp(said[0].clock, branch), self._backing.author(branch), said[0].record)
            for branch, said in self._said[device].items()
            if said[0].clock <= seen[branch] and said[0].record.from_first and said[0].record.limits
        ]
        known = {one.stamp for one in limits}
        first = [one for one in earliest if one.author == inviter and one.stamp not in known]
        return [
            Bound(one.author, *one.stamp[::-1], one.record.from_first and one.author == inviter, one.seconds)
            for one in (*limits, *first)
        ]

    def binds(self, update: SignedUpdate) -> set[bytes]:
        """The devices that the update limits and that its writer had never said anything about, as far as is
        known here."""
        found = {whose_role(key) for key, value in update.writes if key[0] == ROLE and _restricts(value)}
        writer = update.header.writer
        author = self._backing.author
        return {one for one in found if all(author(by) != writer for by in self._said.get(one, ()))}

    def vector_of(self, branch: bytes, clock: int) -> VersionVector | None:
        """The dependency vector of an update that is stored."""
        return vector_of(self._db, branch, clock)

    def _judge(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> list[Word]:
        """The word about the device that holds."""
        counts = self._counts(device, seen)
        if not any(counts) or is_reserve(self._db, device):
            return []
        lineage = self._backing.lineage(seen, vector_of)
        basis = device, lineage, *counts
        if basis not in self._judged:
            if len(self._judged) >= _MOST_KEPT:
                self._judged.clear()
            counting = self._backing.counting(device, self._words(device, seen), lineage, vector_of)
            self._judged[basis] = _latest(counting, vector_of)
        return self._judged[basis]

    def _words(self, device: bytes, seen: VersionVector | None) -> list[Word]:
        """The newest words about the device, up to the vector *seen*."""
        branches = self._said.get(device, {}).items()
        return [
            Word(Stamp(one.clock, branch), self._backing.author(branch), one.record)
            for (branch, said), count in zip(branches, self._counts(device, seen), strict=True)
            for one in said[max(0, count - MOST_WORDS) : count]
        ]

    def _counts(self, device: bytes, seen: VersionVector | None) -> list[int]:
        """How many of each branch the vector *seen* covers."""
        branches = self._said.get(device, {}).items()
        return [len(said) if seen is None else _seen(said, seen[branch]) for branch, said in branches]


def _latest(words: list[Word], vector_of: VectorOf) -> list[Word]:
    """Those that no other's author had seen."""
    newest: dict[bytes, int] = {}
    for one in words:
        newest[one.stamp.branch] = max(one.stamp.clock, newest.get(one.stamp.branch, 0))
    stamps = {Stamp(clock, branch) for branch, clock in newest.items()}
    vectors = [vector_of(*stamp[::-1]) for stamp in stamps if len(stamps) > 1]
    return [
        one
        for one in words
        if one.stamp in stamps
        and not any(vector is not None and vector[one.stamp.branch] >= one.stamp.clock for vector in vectors)
    ]


def _seen(said: list[_Said], clock: int) -> int:
    """How many were said up to this clock."""
    return len(said) if said[-1].clock <= clock else bisect_right(said, clock, key=lambda one: one.clock)


def _restricts(value: bytes | None) -> bool:
    try:
        return RoleRecord.decode(value or b"").role is not Role.FULL
    except DecodeError:
        return False


# -- which words about a device count, when members say what it may do (`hybrisfs.members.roles`) -------


_MOST_BACKINGS_KEPT: Final = 64


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
        """Whether that member may lift all limits of the device."""
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
            if len(self._lineages) >= _MOST_BACKINGS_KEPT:
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
    """One liar and its puppets may have signed many words. So until two independent ones agree, no step takes
    time that grows with the square of their number."""

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
                newest[word.stamp.branch, word.record] = word
            elif word.author not in self._kinship.line(device) or word.author in self._first:
                self._free.setdefault(word.stamp.branch, []).append(word)
            else:
                withdrawn.setdefault(word.author, []).append(word)
        self._limiting = [
            one
            for one in newest.values()
            if not any(self._saw(later, one) for later in withdrawn.get(one.author, ()))
        ]

    def _saw(self, later: Word, earlier: Word) -> bool:
        vector = self._vector_of(*later.stamp[::-1])
        return vector is not None and vector[earlier.stamp.branch] >= earlier.stamp.clock

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
