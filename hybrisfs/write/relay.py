"""Relaying, a sans-IO machine: what the clouds lack and no other device brings there.

An update of another device came directly, and its author has not brought it to the clouds for a while: it may
be asleep, or reach no cloud. Updates are signed by their author and any member can seal segments, so this
device puts them there under the author's name; only the author's head is not this device's to write. Its own
head names them instead (`sync.head`), for as long as the author's does not lead there. Nobody looks at the
head of a device that was removed: what it wrote before, the others keep on the clouds themselves.

The same goes for what this device itself wrote on another branch than its own chain, before its state was set
back: its newest segment leads to its own chain only. What its heads of before lead to is taken to be there
and named again, whether the log holds it by now or not (`sync.beacons`).

This device takes over chunks that are shown here and that no cloud has, as far as it knows, when their author
stays away and it holds their bytes: then its packer brings them. It does so, too, when the author is there
but was set back: the author then lacks the bytes that it wrote on the branch that it left.

The devices wait for different times, so that usually one of them relays and the others see that it has. A
device relays at once when a person wants all to be on the clouds and the author cannot be reached over a
link. It takes for granted that the clouds have what another head names. A member that names what is missing
there only keeps this device from relaying, and the author brings it all the same. When the author itself
lies, another device that reaches the clouds lacks the update, by the vector in its head: an update that has
been lacking for long is relayed whatever heads name, also when this device has put there what follows it.

`due` returns what is to be done now, and `hybrisfs.write.relayer` does it. Of each way to a newest update of
another device (`Path`):

    the newest update is      as this device knows it               then
    -----------------------   -----------------------------------   --------------------------------------
    on the clouds             a head leads to it                    Forget what was relayed, once the
                                                                    author's own chain leads there
    in doubt                  ... but a reader says for a quarter   only what this device has put there
                              of an hour that it lacks it           counts: as lacking
    ahead                     the author's head leads further       wait for that; as lacking when it has
                              than the log here                     not come after a quarter of an hour
    lacking                   none of these                         Relay, when the patience is over: at
                                                                    once when a person waits for it
    held back                 its chunks are not on the clouds      Relay again, half a minute later

What always holds (tests/write/test_relay_machine.py):

1. A relayed segment goes on where another one ends that heads lead to, without a gap, or begins with the
   first update: a device that follows the heads can read it.
2. Our head names what was relayed until the author's head leads there: nothing gets out of reach.
3. No head keeps an update from the clouds for ever: the heads of devices that lack it show that one lies.
4. What is remembered is how long something has been so. After a crash that begins at nothing: an update waits
   longer, or is relayed twice under one name.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.write.missing import Known, MissingEvidence
from sync import MAX_CLOCK, MAX_RELAYED, Head, Members, Relayed, SegmentId, parse_segment_name, segment_name
from sync import Known as Tip
from sync.beacons import EarlierHeads
from sync.follow import ANNOUNCE_SECONDS

__all__ = [
    "PRESENT_SECONDS",
    "RELAY_SECONDS",
    "TakeOver",
    "Forget",
    "Path",
    "Point",
    "Relay",
    "RelayLog",
    "RelayMachine",
    "RelayRows",
    "RelayedSegments",
    "Seen",
]

RELAY_SECONDS: Final = 60.0
"""How long an author has to bring an update to the clouds itself."""
COPY_SECONDS: Final = 15.0
"""How long a clone of this device has to bring the updates on its own branch to the clouds itself."""
PRESENT_SECONDS: Final = ANNOUNCE_SECONDS + 60.0
"""An author with a head on the clouds that is not older than this is present, and brings its chunks itself,
however long that takes."""
_RANK_SECONDS: Final = 20.0  # that each device waits longer than the one before it
_WAIT_SECONDS: Final = 30.0  # for chunks to come to the clouds
_FORGO_SECONDS: Final = 6 * 3600.0  # that updates wait for content which only their author has
_AWAIT_SECONDS: Final = 900.0  # for the segment that a head names


Steps: TypeAlias = Sequence[tuple[bytes, int]]  # (branch, last clock on it), newest first


class RelayLog(Protocol):
    """What is read of the log here."""

    @property
    def device(self) -> bytes: ...

    @property
    def members(self) -> Members: ...

    def own_tip(self) -> Tip | None:
        """The newest update of the own chain."""

    def tips(self) -> list[Tip]:
        """The newest update of each branch that no other branch grows from."""

    def path(self, known: Tip) -> list[tuple[bytes, int]]:
        """(branch, clock) of an update and of each fork point below it, newest first."""

    def path_through(self, branch: bytes, clock: int) -> list[tuple[bytes, int]]:
        """The same, of the update on a branch at a clock."""

    def update_at(self, branch: bytes, clock: int) -> bytes | None:
        """The bytes of an update, None when it is bare."""

    def next_whole(self, path: Steps, clock: int) -> int | None:
        """The clock of the first update of a path above a clock that is not bare."""


class RelayedSegments(Protocol):
    """What is known here of log segments on the clouds."""

    def end(self, name: str) -> tuple[bytes, int] | None:
        """(branch, clock) of the update with which a segment ends, None when that is not here."""

    def relayed(self, author: bytes) -> list[str]:
        """The names of the segments of another device that this one has put there."""

    def newest_name(self, through: int) -> str | None:
        """The name of the newest own segment that ends at a clock or below."""


class RelayRows(Protocol):
    """The open transaction, as far as the machine reads it."""

    @property
    def updates(self) -> RelayLog: ...

    @property
    def segments(self) -> RelayedSegments: ...

    def is_suspended(self) -> bool: ...


class Seen(Struct, frozen=True):
    """What others have said up to now."""

    clouds: Mapping[bytes, Head]
    """The newest heads that clouds returned, by device."""
    told: Mapping[bytes, Head]
    """The newest heads that came over links."""
    earlier_heads: EarlierHeads
    """What clouds have shown of our own head."""
    linked: Collection[bytes] | None = None
    """The devices that can be reached over a link; None when no person waits for all to be on the clouds."""


class Point(Struct, frozen=True):
    """An update that a segment on the clouds ends with."""

    branch: bytes
    clock: int
    segment: SegmentId


class Path(Struct, frozen=True):
    """The updates of a device up to one of its newest."""

    author: bytes
    steps: list[tuple[bytes, int]]  # (branch, last clock on it), newest first

    def leads_to(self, point: Point) -> bool:
        return any(branch == point.branch and point.clock <= clock for branch, clock in self.steps)

    def newest_of(self, points: list[Point]) -> Point | None:
        """The longest of several segments that end there."""
        ours = (one for one in points if self.leads_to(one))
        return max(ours, key=lambda one: (one.clock, -one.segment.first), default=None)


class Forget(Struct, frozen=True):
    """Know no longer that this segment was relayed."""

    name: str


class TakeOver(Struct, frozen=True):
    """Have this device upload its chunks of files that these authors wrote, or that were written on these
    branches."""

    authors: Collection[bytes]
    branches: Collection[bytes]


class Relay(Struct, frozen=True):
    """Put the next updates of *path*, above the end of *before*, on the clouds, as many as are allowed to go.
    If none is, report `held_back` and do the next of these actions."""

    path: Path
    before: Point | None
    take_over: bool
    """Have this device upload the chunks that it holds and that hold some of them back."""
    forgo: bool
    """Do not wait for chunks that are not here."""


Action: TypeAlias = Forget | TakeOver | Relay


class _Ages:
    """How long the updates of a branch have been here, as far as it matters."""

    def __init__(self) -> None:
        self.wait_until = 0.0  # for chunks to come to the clouds
        self._seen: deque[tuple[int, float]] = deque()  # (newest clock, when it was seen), ascending

    def note(self, newest: int, now: float, longest: float) -> None:
        """The newest update has that clock. Ages above *longest* may come back as equal."""
        if not self._seen or self._seen[-1][0] < newest:
            self._seen.append((newest, now))
        while len(self._seen) > 1 and now - self._seen[1][1] >= longest:
            self._seen.popleft()

    def of(self, clock: int, now: float) -> float:
        """The age of the first update with that clock or a higher one."""
        return next((now - at for newest, at in self._seen if newest >= clock), 0.0)


class RelayMachine:
    """What this device relays. *now* is a clock that never goes back, *time_ns* the time of day."""

    def __init__(self, *, read_only: bool = False) -> None:
        """*read_only*: this device cannot sign where it would put chunks of others."""
        self._read_only = read_only
        # Authors of what no cloud has that are away, the branches that others have left, and since when.
        self._away: dict[bytes, float] = {}
        self.is_lacking = False
        """Whether something is shown here whose bytes no device is expected to upload any more."""
        self._ages: dict[bytes, _Ages] = {}  # by the branch of a newest update
        self._awaited: dict[bytes, tuple[SegmentId, float]] = {}  # by author, and since when
        self._missing = MissingEvidence(_AWAIT_SECONDS)

    def due(
        self, tx: RelayRows, seen: Seen, unplaced: Collection[bytes], now: float, time_ns: int
    ) -> list[Action]:
        """What to do now. *unplaced*: the authors of files that are shown here and whose bytes no cloud is
        known to have."""
        ages, self._ages = self._ages, {}
        paths = [(path, self._long_lacked(tx, path, seen, now, time_ns)) for path in self._paths(tx)]
        left = self._left(tx, [path for path, _ in paths], seen)
        actions: list[Action] = self._to_take_over(tx, seen, unplaced, left, now, time_ns)
        self._missing.forget_others(path.steps[0][0] for path, _ in paths)
        in_doubt = {path.author for path, lacked in paths if lacked is not None}
        authors = {path.author for path, _ in paths} - in_doubt
        handed = {name for author in sorted(authors) for name in self._handed_over(tx, author, seen)}
        actions += [Forget(name) for name in sorted(handed)]
        for path, lacked in paths:
            before = path.newest_of(self._points(tx, path, seen, lacked, handed))
            above = before.clock if before else 0
            branch, newest = path.steps[0]
            if newest == above or self._is_bare(tx, branch, newest) or self._is_ahead(tx, path, seen, now):
                continue
            alone = _is_hurried(path.author, seen)
            hurried = alone or (seen.linked is not None and branch in left)
            patience = 0.0 if hurried else self._patience(tx, path.author)
            age = self._ages[branch] = ages.get(branch) or _Ages()
            age.note(newest, now, max(patience, _FORGO_SECONDS))
            if (now < age.wait_until and not hurried) or age.of(above + 1, now) < patience:
                continue
            # One that was removed brings nothing any more, and what others wrote since may depend on it.
            removed = path.author not in tx.updates.members
            forgo = alone or removed or age.of(above + 1, now) >= _FORGO_SECONDS
            take_over = forgo or branch in left or self._is_away(tx, path.author, seen, time_ns)
            actions.append(Relay(path, before, take_over and not self._read_only, forgo))
        return actions

    def held_back(self, path: Path, now: float) -> None:
        """None of the next updates of *path* may go to the clouds yet."""
        self._ages[path.steps[0][0]].wait_until = now + _WAIT_SECONDS

    def frontier(self, tx: RelayRows) -> list[tuple[bytes, int]]:
        """(branch, clock) of the newest updates of other devices."""
        return [path.steps[0] for path in self._paths(tx) if not self._is_own(tx, path.author)]

    def unshipped_authors(
        self, tx: RelayRows, seen: Seen, through: Collection[tuple[bytes, int]] | None = None
    ) -> set[bytes]:
        """The other devices whose updates no cloud is known to have; with *through*, only those up to there
        count."""
        found = set[bytes]()
        goals = self.frontier(tx) if through is None else through
        for path in self._paths(tx):
            if self._is_own(tx, path.author) or path.author not in tx.updates.members:
                continue
            last = dict(path.steps)
            ours = [(clock, branch) for branch, clock in goals if clock <= last.get(branch, 0)]
            clock, branch = max(ours, default=(0, b""))
            if not clock or self._is_bare(tx, branch, clock):
                continue
            before = path.newest_of(self._points(tx, path, seen, None))
            # What is not here yet may go on from here; an end that is here is a point, or on another branch.
            logs = [head.on_clouds for head in self._of(path.author, seen) if head.on_clouds is not None]
            reached = [one.last for one in logs if self._find(tx, path.author, one.newest) is None]
            if clock > max([before.clock if before else 0, *reached]):
                found.add(path.author)
        return found

    def _to_take_over(
        self,
        tx: RelayRows,
        seen: Seen,
        unplaced: Collection[bytes],
        left: Mapping[bytes, bytes],
        now: float,
        time_ns: int,
    ) -> list[Action]:
        """Have this device upload its chunks of files whose authors stay away, or have *left* the branch on
        which they wrote the file."""
        if tx.updates.device not in tx.updates.members or self._read_only:
            return []
        away = {one: one for one in unplaced if self._is_away(tx, one, seen, time_ns)}
        gone = {branch: one for branch, one in left.items() if one in unplaced and one not in away}
        self._away = {one: self._away.get(one, now) for one in away | gone}
        due = {
            one
            for one, author in (away | gone).items()
            if _is_hurried(author, seen)
            or (one in gone and seen.linked is not None)
            or now - self._away[one] >= self._patience(tx, author)
        }
        self.is_lacking = bool(due)
        return [TakeOver(due & away.keys(), due & gone.keys())] if due else []

    def _left(self, tx: RelayRows, paths: list[Path], seen: Seen) -> dict[bytes, bytes]:
        """The branches that their authors, by their newest heads, do not continue, with the authors. An
        author may have lost what it wrote there."""
        found: dict[bytes, bytes] = {}
        count = Counter(path.author for path in paths)
        for author in (author for author, tips in count.items() if tips > 1):
            own = [path for path in paths if path.author == author]
            head = max(self._of(author, seen), key=lambda one: one.serial, default=None)
            ends = [end for one in _newest_of(head) if (end := self._find(tx, author, one)) is not None]
            chain = {branch for path in own if any(map(path.leads_to, ends)) for branch, _ in path.steps}
            if chain:
                found |= {branch: author for path in own for branch, _ in path.steps if branch not in chain}
        return found

    def _is_away(self, tx: RelayRows, author: bytes, seen: Seen, time_ns: int) -> bool:
        """Whether the author is unlikely to upload its chunks itself."""
        own = self._is_own(tx, author)
        return own or _is_hurried(author, seen) or not _is_present(seen.clouds.get(author), time_ns)

    def listed(self, tx: RelayRows, seen: Seen) -> tuple[Relayed, ...]:
        """What this device's head should name."""
        lacking, here = self._sorted_out(tx, seen)
        found = dict.fromkeys(lacking, MAX_CLOCK)
        for path in self._paths(tx):
            points = [
                one for one in here.get(path.author, ()) if not self._is_led_to(tx, path.author, one, seen)
            ]
            newest = path.newest_of([*points, *self._relayed(tx, path.author)])
            if newest is not None:
                found[Relayed(path.author, newest.segment)] = newest.clock
        return tuple(sorted(sorted(found, key=lambda one: -found[one])[:MAX_RELAYED]))

    def _sorted_out(self, tx: RelayRows, seen: Seen) -> tuple[list[Relayed], dict[bytes, list[Point]]]:
        """The relayed segments that our heads on the clouds lead to: those that are not here in full and that
        the author's chain does not lead to, and, by author, those that are here."""
        lacking: list[Relayed] = []
        here: dict[bytes, list[Point]] = {}
        for one in seen.earlier_heads.segments:
            point = self._find(tx, one.author, one.segment)
            # Named for ever, what a checkpoint has let us drop would stay on the clouds for ever, too.
            if point is None or (
                self._is_bare(tx, point.branch, point.clock)
                and not self._is_led_to(tx, one.author, point, seen)
            ):
                lacking.append(one)
            if point is not None:
                here.setdefault(one.author, []).append(point)
        return lacking, here

    def _is_bare(self, tx: RelayRows, branch: bytes, clock: int) -> bool:
        """Whether an update, and so all that it follows, is known through a checkpoint only. No segment of
        ours will hold it, and it need not be relayed."""
        return tx.updates.update_at(branch, clock) is None

    # -- what the clouds hold --------------------------------------------------------------------

    def _is_own(self, tx: RelayRows, author: bytes) -> bool:
        return author == tx.updates.device

    def _paths(self, tx: RelayRows) -> Iterator[Path]:
        """The paths to the newest updates of all devices, except our own chain; none when this device is
        not a member. A suspended device goes on relaying: it may be the only one that has received the
        accusation."""
        members, chain = tx.updates.members, tx.updates.own_tip()
        if tx.updates.device not in members and not tx.is_suspended():
            return
        for tip in tx.updates.tips():
            if (chain is None or tip.branch != chain.branch) and members.known(tip.device):
                yield Path(tip.device, tx.updates.path(tip))

    def _points(
        self, tx: RelayRows, path: Path, seen: Seen, lacked: int | None, handed: Collection[str] = ()
    ) -> list[Point]:
        """The ends, on *path*, of segments on the clouds that a head leads to. Above the clock *lacked* no
        head is believed: there only segments count that this device has put there itself, without a gap from
        that clock on."""
        author = path.author
        segments = [
            one.segment
            for device, head in seen.clouds.items()
            if device != tx.updates.device
            for one in head.relayed
            if one.author == author
        ]
        segments += [one.segment for one in seen.earlier_heads.segments if one.author == author]
        if self._is_own(tx, author):
            segments += self._shipped(tx, self._parting(tx, path))
        named = [point for one in segments if (point := self._find(tx, author, one)) is not None]
        ends = [] if self._is_own(tx, author) else self._of(author, seen)
        for one in (segment for head in ends for segment in _newest_of(head)):
            point = self._find(tx, author, one)
            if point is not None:
                named.append(point)
        if lacked is None:
            return named + self._relayed(tx, author, handed)
        return [one for one in named if one.clock <= lacked] + self._relayed_from(tx, path, lacked)

    def _relayed_from(self, tx: RelayRows, path: Path, clock: int) -> list[Point]:
        """The segments that this device put there and that continue from an update of *path* without a gap,
        so that a device with that update can read them."""
        found: list[Point] = []
        for point in sorted(self._relayed(tx, path.author), key=lambda one: one.segment):
            following = tx.updates.next_whole(path.steps, clock)
            if path.leads_to(point) and following is not None and point.segment.first <= following:
                found.append(point)
                clock = max(clock, point.clock)
        return found

    @staticmethod
    def _of(author: bytes, seen: Seen) -> list[Head]:
        """The newest heads of a device, from clouds and over links."""
        return [head for head in (seen.clouds.get(author), seen.told.get(author)) if head is not None]

    def _shipped(self, tx: RelayRows, through: int = MAX_CLOCK) -> list[SegmentId]:
        """The newest segment of our own chain that ends at that clock or below, if there is one."""
        name = tx.segments.newest_name(through)
        return [] if name is None else [parse_segment_name(name)[1]]

    def _parting(self, tx: RelayRows, path: Path) -> int:
        """The clock of the last update that is on *path* and on our own chain, 0 when there is none."""
        chain, steps = tx.updates.own_tip(), dict(path.steps)
        own = tx.updates.path(chain) if chain is not None else []
        return max((min(clock, steps[branch]) for branch, clock in own if branch in steps), default=0)

    def _relayed(self, tx: RelayRows, author: bytes, but: Collection[str] = ()) -> list[Point]:
        """The segments of *author* that this device put there."""
        names = (name for name in tx.segments.relayed(author) if name not in but)
        found = (self._find(tx, author, parse_segment_name(name)[1]) for name in names)
        return [point for point in found if point is not None]

    def _find(self, tx: RelayRows, author: bytes, segment: SegmentId) -> Point | None:
        """The point of our log at which the segment ends; None when that update is not here."""
        end = tx.segments.end(segment_name(author, segment))
        return Point(*end, segment) if end is not None else None

    def _is_ahead(self, tx: RelayRows, path: Path, seen: Seen, now: float) -> bool:
        """Whether the author's head leads to updates that are not here yet: they are being fetched, and say
        more. If they do not come for long, no cloud has them: the author lies, or all clouds do."""
        head = seen.clouds.get(path.author)
        if head is None or head.on_clouds is None or head.on_clouds.last < path.steps[0][1]:
            return False
        newest = head.on_clouds.newest
        if self._find(tx, path.author, newest) is not None:
            return False
        awaited, since = self._awaited.get(path.author, (newest, now))
        if awaited != newest:
            since = now
        self._awaited[path.author] = newest, since
        return now - since < _AWAIT_SECONDS

    def _long_lacked(self, tx: RelayRows, path: Path, seen: Seen, now: float, time_ns: int) -> int | None:
        """The highest clock on *path* that all devices have which have long searched the clouds for the rest
        in vain; None when there is no such device."""
        branch, newest = path.steps[0]
        known = {
            device: Known(max(min(head.vector[one], last) for one, last in path.steps), head.time_ns)
            for device, head in seen.clouds.items()
            if device not in (tx.updates.device, path.author) and _is_present(head, time_ns)
        }
        return self._missing.note(branch, newest, known, now)

    def _handed_over(self, tx: RelayRows, author: bytes, seen: Seen) -> list[str]:
        """The segments to which the author's own chain on the clouds leads by now."""
        return [
            segment_name(author, point.segment)
            for point in self._relayed(tx, author)
            if self._is_led_to(tx, author, point, seen)
        ]

    def _is_led_to(self, tx: RelayRows, author: bytes, point: Point, seen: Seen) -> bool:
        """Whether the author's own chain on the clouds leads to it and no other branch begins with it. (The
        relayed segments of such a branch continue from there.)"""
        segments = self._shipped(tx) if self._is_own(tx, author) else _newest_of(seen.clouds.get(author))
        end = self._find(tx, author, segments[0]) if segments else None
        if end is None:
            return False
        path = Path(author, tx.updates.path_through(end.branch, end.clock))
        if not path.leads_to(point):
            return False
        others = (one for one in self._paths(tx) if one.author == author and not one.leads_to(end))
        return not any(other.leads_to(point) for other in others)

    def _patience(self, tx: RelayRows, author: bytes) -> float:
        if self._is_own(tx, author):
            return COPY_SECONDS
        others = sorted({*tx.updates.members, tx.updates.device} - {author})
        return RELAY_SECONDS + _RANK_SECONDS * others.index(tx.updates.device)


def _newest_of(head: Head | None) -> list[SegmentId]:
    """The segment in which the own chain of the head's writer ends."""
    return [] if head is None or head.on_clouds is None else [head.on_clouds.newest]


def _is_hurried(author: bytes, seen: Seen) -> bool:
    """Whether a person waits for what the author wrote, and the author cannot be asked."""
    return seen.linked is not None and author not in seen.linked


def _is_present(head: Head | None, time_ns: int) -> bool:
    """Whether the writer of this head, the newest on the clouds, still reaches them, as far as that can be
    known."""
    return head is not None and not head.offline and time_ns - head.time_ns <= PRESENT_SECONDS * 1e9
