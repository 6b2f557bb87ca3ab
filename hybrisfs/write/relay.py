"""The relayer: brings to the clouds what they lack and nobody else brings there (docs/internals/exchange.md).

An update of another device came directly, and its author has not brought it to the clouds for a while: it may
be asleep, or reach no cloud. Updates are signed by their author and any member can seal segments, so this
device puts them there under the author's name; only the author's head is not this device's to write. Its own
head names them instead (`sync.head`), for as long as the author's does not lead there. Nobody looks at the
head of a device that was removed: what it wrote before, the others keep on the clouds themselves.

The same goes for what this device itself wrote on another branch than its own chain, before its state was set
back: its newest segment leads to its own chain only. What its heads of before lead to is taken to be there
and named again, whether the log holds it by now or not (`sync.own_heads`).

What is shown here and whose bytes no cloud has, as far as this device knows, it claims as far as it holds it
when their author stays away: then the packer brings it. It does so, too, when the author is there but was set
back: it does not have what it wrote on the branch that it left.

The devices wait for different times, so that usually one of them relays and the others see that it has. It
is done at once when a person wants all to be on the clouds and the author cannot be reached over a link.
What another head names is taken to be there: a member that names what is not only keeps this device from
relaying, and the author brings it all the same. When it is the author that lies, another device that reaches
the clouds lacks it, by the vector in its head: what has been lacked for long is relayed whatever heads name,
also when this device has put there what follows it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.signals import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.segment_ends import end_of_segment
from hybrisfs.state.updates import UpdateLog
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unplaced import Unplaced
from hybrisfs.write.lacks import Known, Lacks
from hybrisfs.write.relayable import RelayGate
from sync import (
    MAX_CLOCK,
    MAX_RELAYED,
    NONCE_SIZE,
    Head,
    Relayed,
    SealKeys,
    SegmentId,
    encode_segment,
    parse_segment_name,
    segment_name,
)
from sync.follow import ANNOUNCE_SECONDS
from sync.own_heads import Past
from sync.segment import if_followed

__all__ = ["RELAY_SECONDS", "RelayLimits", "RelaySegment", "Relayer"]

log = logging.getLogger(__name__)

RELAY_SECONDS: Final = 60.0
"""How long an author has to bring an update to the clouds itself."""
COPY_SECONDS: Final = 15.0
"""How long a copy of this device that runs elsewhere has to bring there what is on a branch of its own."""
PRESENT_SECONDS: Final = ANNOUNCE_SECONDS + 60.0
"""Whose head on the clouds is not older is there and brings its chunks itself, however long it takes."""
_RANK_SECONDS: Final = 20.0  # that each device waits longer than the one before it
_WAIT_SECONDS: Final = 30.0  # for chunks to come to the clouds
_FORGO_SECONDS: Final = 6 * 3600.0  # that updates wait for content which only their author has
_AWAIT_SECONDS: Final = 900.0  # for the segment that a head names


_Row: TypeAlias = tuple[int, bytes, bytes]  # clock, hash and bytes of an update


@dataclass(frozen=True, slots=True)
class RelaySegment:
    """A sealed segment of another device's updates, to be put on the clouds."""

    author: bytes
    first: int
    last: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Point:
    """An update that a segment on the clouds ends with."""

    branch: bytes
    clock: int
    segment: SegmentId


@dataclass(frozen=True, slots=True)
class _Path:
    """The updates of a device up to one of its newest."""

    author: bytes
    steps: list[tuple[bytes, int]]  # (branch, last clock on it), newest first

    def leads_to(self, point: _Point) -> bool:
        return any(branch == point.branch and point.clock <= clock for branch, clock in self.steps)

    def newest_of(self, points: list[_Point]) -> _Point | None:
        """Of several that end there, the longest segment."""
        ours = (one for one in points if self.leads_to(one))
        return max(ours, key=lambda one: (one.clock, -one.segment.first), default=None)


class _Ages:
    """How long the updates of a branch have been here, as far as it matters."""

    def __init__(self) -> None:
        self.wait_until = 0.0  # for chunks to come to the clouds
        self._seen: deque[tuple[int, float]] = deque()  # (newest clock, when it was seen), ascending

    def note(self, newest: int, now: float, longest: float) -> None:
        """The newest update has that clock. Ages above *longest* need not be told apart."""
        if not self._seen or self._seen[-1][0] < newest:
            self._seen.append((newest, now))
        while len(self._seen) > 1 and now - self._seen[1][1] >= longest:
            self._seen.popleft()

    def of(self, clock: int, now: float) -> float:
        """The age of the first update with that clock or a higher one."""
        return next((now - at for newest, at in self._seen if newest >= clock), 0.0)


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """See `hybrisfs.environment.Limits`."""

    segment_bytes: int = 1 << 20
    """Of updates that make a segment full."""
    segment_updates: int = 1024
    """At most, in one segment."""


class Relayer:
    """What is relayed, decided under the volume's lock, which its methods take. Used by one thread."""

    def __init__(
        self,
        fs: FileSystem,
        updates: UpdateLog,
        signals: Signals,
        segment_keys: SealKeys,
        heads: Callable[[], Mapping[bytes, Head]],
        fetch: Callable[[ChunkRef], object],
        past: Callable[[], Past] = Past,
        linked: Callable[[], Collection[bytes]] = tuple,
        told: Callable[[], Mapping[bytes, Head]] = dict,
    ) -> None:
        """*heads* are the newest heads that clouds returned, by device. *fetch* brings a chunk here. *past*
        tells what clouds have shown of our own head, *linked* which devices can be reached over a link, and
        *told* the newest heads that came over links."""
        self._told = told
        self._signals = signals
        self._linked = linked
        self._unplaced = Unplaced(fs)
        # Authors of what no cloud has that are away, the branches that others have left, and since when.
        self._away: dict[bytes, float] = {}
        self.is_lacking = False
        """Whether something is shown here whose bytes nobody is expected to bring any more."""
        self._fetch = fetch
        self._past = past
        self.limits = fs.environment.limits.of(RelayLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
        self._updates = updates
        self._keys = segment_keys
        self._heads = heads
        self._gate = RelayGate(fs, signals)
        self._ages: dict[bytes, _Ages] = {}  # by the branch of a newest update
        self._awaited: dict[bytes, tuple[SegmentId, float]] = {}  # by author, and since when
        self._lacks = Lacks(_AWAIT_SECONDS)

    def due(self, now: float, time_ns: int) -> RelaySegment | None:
        """A segment that should go to the clouds now. *now* is a clock that never goes back, *time_ns* the
        time of day."""
        with self._fs.lock:
            batch = self._next(now, time_ns)
            unread, self._gate.unread = self._gate.unread, {}
        for ref in unread.values():
            try:
                self._fetch(ref)
            except (ChunkUnavailable, OSError) as error:
                log.info("what another device wrote cannot be relayed yet: %s", error)
                self._gate.unreadable.add(ref.number)
        return self._sealed(*batch) if batch is not None else None

    def _next(self, now: float, time_ns: int) -> tuple[_Path, _Point | None, list[_Row]] | None:
        heads = self._heads()
        linked = self._linked() if self._signals.flushing else None
        ages, self._ages = self._ages, {}
        chosen = None
        paths = [(path, self._long_lacked(path, heads, now, time_ns)) for path in self._paths()]
        left = self._left([path for path, _ in paths], heads)
        self._claim_of_absent(heads, linked, left, now, time_ns)
        self._lacks.forget_others(path.steps[0][0] for path, _ in paths)
        in_doubt = {path.author for path, lacked in paths if lacked is not None}
        for author in {path.author for path, _ in paths} - in_doubt:
            self._hand_over(author, heads)
        for path, lacked in paths:
            before = path.newest_of(self._points(path, heads, lacked))
            above = before.clock if before else 0
            branch, newest = path.steps[0]
            if newest == above or self._is_bare(branch, newest) or self._is_ahead(path, heads, now):
                continue
            alone = _is_hurried(path.author, linked)
            hurried = alone or (linked is not None and branch in left)
            patience = 0.0 if hurried else self._patience(path.author)
            age = self._ages[branch] = ages.get(branch) or _Ages()
            age.note(newest, now, max(patience, _FORGO_SECONDS))
            if chosen is not None or (now < age.wait_until and not hurried):
                continue
            if age.of(above + 1, now) < patience:
                continue
            rows = self._after(path, above)
            # One that was removed brings nothing any more, and what others wrote since may depend on it.
            removed = path.author not in self._updates.members
            forgo = alone or removed or age.of(above + 1, now) >= _FORGO_SECONDS
            claim = forgo or branch in left or self._is_away(path.author, heads, linked, time_ns)
            claim = claim and not self._fs.read_only  # who only reads cannot tell where it would put them
            rows = rows[: self._gate.count([data for _, _, data in rows], claim=claim, forgo=forgo)]
            if rows:
                chosen = path, before, rows
            else:
                age.wait_until = now + _WAIT_SECONDS
        return chosen

    def frontier(self) -> list[tuple[bytes, int]]:
        """(branch, clock) of the newest updates of other devices; called with the volume's lock held."""
        return [path.steps[0] for path in self._paths() if not self._is_own(path.author)]

    def untold(self, through: Collection[tuple[bytes, int]] | None = None) -> set[bytes]:
        """The other devices whose updates no cloud is known to have; with *through*, only those up to there
        count. Called with the volume's lock held."""
        found, heads = set[bytes](), self._heads()
        goals = self.frontier() if through is None else through
        for path in self._paths():
            if self._is_own(path.author) or path.author not in self._updates.members:
                continue
            last = dict(path.steps)
            ours = [(clock, branch) for branch, clock in goals if clock <= last.get(branch, 0)]
            clock, branch = max(ours, default=(0, b""))
            if not clock or self._is_bare(branch, clock):
                continue
            before = path.newest_of(self._points(path, heads, None))
            # What is not here yet may go on from here; an end that is here is a point, or on another branch.
            extents = [head.extent for head in self._of(path.author, heads) if head.extent is not None]
            reached = [one.last for one in extents if self._find(path.author, one.newest) is None]
            if clock > max([before.clock if before else 0, *reached]):
                found.add(path.author)
        return found

    def _claim_of_absent(
        self,
        heads: Mapping[bytes, Head],
        linked: Collection[bytes] | None,
        left: Mapping[bytes, bytes],
        now: float,
        time_ns: int,
    ) -> None:
        """Have this device bring to the clouds what it holds of files whose authors stay away, or have *left*
        the branch that they wrote it on."""
        if self._updates.device not in self._updates.members or self._fs.read_only:
            return
        authors = self._unplaced.count().devices
        away = {one: one for one in authors if self._is_away(one, heads, linked, time_ns)}
        gone = {branch: one for branch, one in left.items() if one in authors and one not in away}
        self._away = {one: self._away.get(one, now) for one in away | gone}
        due = {
            one
            for one, author in (away | gone).items()
            if _is_hurried(author, linked)
            or (one in gone and linked is not None)
            or now - self._away[one] >= self._patience(author)
        }
        self.is_lacking = bool(due)
        if due and self._unplaced.claim(due & away.keys(), due & gone.keys()):
            self._signals.chunks_made()

    def _left(self, paths: list[_Path], heads: Mapping[bytes, Head]) -> dict[bytes, bytes]:
        """The branches from which their authors, by their newest heads, do not go on, with the authors: what
        they wrote there they may not have any more."""
        found: dict[bytes, bytes] = {}
        count = Counter(path.author for path in paths)
        for author in (author for author, tips in count.items() if tips > 1):
            own = [path for path in paths if path.author == author]
            head = max(self._of(author, heads), key=lambda one: one.serial, default=None)
            ends = [end for one in _newest_of(head) if (end := self._find(author, one)) is not None]
            chain = {branch for path in own if any(map(path.leads_to, ends)) for branch, _ in path.steps}
            if chain:
                found |= {branch: author for path in own for branch, _ in path.steps if branch not in chain}
        return found

    def _is_away(
        self,
        author: bytes,
        heads: Mapping[bytes, Head],
        linked: Collection[bytes] | None,
        time_ns: int,
    ) -> bool:
        """Whether the author is not expected to bring its chunks to the clouds itself."""
        own = self._is_own(author)
        return own or _is_hurried(author, linked) or not _is_present(heads.get(author), time_ns)

    def done(self, segment: RelaySegment, placement: bytes) -> None:
        """The clouds of *placement* hold the segment."""
        with self._fs.lock:
            self._fs.segments.put_relayed(segment.name, segment.author, len(segment.data), placement)

    def listed(self, past: Past) -> tuple[Relayed, ...]:
        """What this device's head should name; called with the volume's lock held."""
        heads = self._heads()
        lacking, here = self._sorted_out(past, heads)
        found = dict.fromkeys(lacking, MAX_CLOCK)
        for path in self._paths():
            points = [
                one for one in here.get(path.author, ()) if not self._is_led_to(path.author, one, heads)
            ]
            newest = path.newest_of([*points, *self._relayed(path.author)])
            if newest is not None:
                found[Relayed(path.author, newest.segment)] = newest.clock
        return tuple(sorted(sorted(found, key=lambda one: -found[one])[:MAX_RELAYED]))

    def _sorted_out(
        self, past: Past, heads: Mapping[bytes, Head]
    ) -> tuple[list[Relayed], dict[bytes, list[_Point]]]:
        """What our heads on the clouds lead to: what is not here in full, unless the author's chain leads to
        it, and what is here, by author."""
        lacking: list[Relayed] = []
        here: dict[bytes, list[_Point]] = {}
        for one in past.segments:
            point = self._find(one.author, one.segment)
            # Named for ever, what a checkpoint has let us drop would stay on the clouds for ever, too.
            if point is None or (
                self._is_bare(point.branch, point.clock) and not self._is_led_to(one.author, point, heads)
            ):
                lacking.append(one)
            if point is not None:
                here.setdefault(one.author, []).append(point)
        return lacking, here

    def _is_bare(self, branch: bytes, clock: int) -> bool:
        """Whether an update is known through a checkpoint only, and so all that it follows: no segment of
        ours will hold it, and it need not be relayed."""
        return self._updates.update_at(branch, clock) is None

    # -- what the clouds hold --------------------------------------------------------------------

    def _is_own(self, author: bytes) -> bool:
        return author == self._updates.device

    def _paths(self) -> Iterator[_Path]:
        """The ways to the newest updates of all devices, but for our own chain; none when this device is no
        member. One that is suspended goes on: it may be the only one that has heard who accuses it."""
        members, chain = self._updates.members, self._updates.own_tip()
        if self._updates.device not in members and not self._updates.is_suspended():
            return
        for tip in self._updates.tips():
            if (chain is None or tip.branch != chain.branch) and members.known(tip.device):
                yield _Path(tip.device, self._updates.path(tip))

    def _points(self, path: _Path, heads: Mapping[bytes, Head], lacked: int | None) -> list[_Point]:
        """Where segments on the clouds end that a head leads to, those on *path* among them.

        No head is believed about the updates above the clock *lacked*. Of these, only segments count that
        this device has put there, from that clock on without a gap."""
        author = path.author
        segments = [
            one.segment
            for device, head in heads.items()
            if device != self._updates.device
            for one in head.relayed
            if one.author == author
        ]
        segments += [one.segment for one in self._past().segments if one.author == author]
        if self._is_own(author):
            segments += self._shipped(self._parting(path))
        named = [point for one in segments if (point := self._find(author, one)) is not None]
        ends = [] if self._is_own(author) else self._of(author, heads)
        for one in (segment for head in ends for segment in _newest_of(head)):
            point = self._find(author, one)
            if point is not None:
                named.append(point)
        if lacked is None:
            return named + self._relayed(author)
        return [one for one in named if one.clock <= lacked] + self._relayed_from(path, lacked)

    def _relayed_from(self, path: _Path, clock: int) -> list[_Point]:
        """The segments that this device put there and that lead on from an update of *path* without a gap: a
        device that has that update reads them."""
        found: list[_Point] = []
        for point in sorted(self._relayed(path.author), key=lambda one: one.segment):
            following = self._updates.next_whole(path.steps, clock)
            if path.leads_to(point) and following is not None and point.segment.first <= following:
                found.append(point)
                clock = max(clock, point.clock)
        return found

    def _of(self, author: bytes, heads: Mapping[bytes, Head]) -> list[Head]:
        """The newest heads of a device, from clouds and over links."""
        return [head for head in (heads.get(author), self._told().get(author)) if head is not None]

    def _shipped(self, through: int = MAX_CLOCK) -> list[SegmentId]:
        """The newest segment of our own chain that ends at that clock or below, if there is one."""
        newest = self._fs.segments.newest_through(through)
        return [] if newest is None else [parse_segment_name(newest.name)[1]]

    def _parting(self, path: _Path) -> int:
        """The clock of the last update that is on *path* and on our own chain, 0 when there is none."""
        chain, steps = self._updates.own_tip(), dict(path.steps)
        own = self._updates.path(chain) if chain is not None else []
        return max((min(clock, steps[branch]) for branch, clock in own if branch in steps), default=0)

    def _relayed(self, author: bytes) -> list[_Point]:
        """The segments of *author* that this device put there."""
        names = self._fs.segments.relayed(author)
        found = (self._find(author, parse_segment_name(name)[1]) for name in names)
        return [point for point in found if point is not None]

    def _find(self, author: bytes, segment: SegmentId) -> _Point | None:
        """Where in our log the segment ends, None when that update is not here."""
        end = end_of_segment(self._fs.db, segment_name(author, segment))
        return _Point(end.branch, end.clock, segment) if end is not None else None

    def _is_ahead(self, path: _Path, heads: Mapping[bytes, Head], now: float) -> bool:
        """Whether the author's head leads to what is not here yet: it is being fetched, and tells more.

        When it does not come for long, no cloud has it: the author lies, or they all do."""
        head = heads.get(path.author)
        if head is None or head.extent is None or head.extent.last < path.steps[0][1]:
            return False
        newest = head.extent.newest
        if self._find(path.author, newest) is not None:
            return False
        awaited, since = self._awaited.get(path.author, (newest, now))
        if awaited != newest:
            since = now
        self._awaited[path.author] = newest, since
        return now - since < _AWAIT_SECONDS

    def _long_lacked(self, path: _Path, heads: Mapping[bytes, Head], now: float, time_ns: int) -> int | None:
        """Up to which clock all have the updates of *path* who have long looked for the rest in vain on the
        clouds; None when nobody has."""
        branch, newest = path.steps[0]
        known = {
            device: Known(max(min(head.vector[one], last) for one, last in path.steps), head.time_ns)
            for device, head in heads.items()
            if device not in (self._updates.device, path.author) and _is_present(head, time_ns)
        }
        return self._lacks.note(branch, newest, known, now)

    def _hand_over(self, author: bytes, heads: Mapping[bytes, Head]) -> None:
        """Forget what the author's own chain on the clouds leads to by now."""
        for point in self._relayed(author):
            if self._is_led_to(author, point, heads):
                self._fs.segments.forget_relayed(segment_name(author, point.segment))

    def _is_led_to(self, author: bytes, point: _Point, heads: Mapping[bytes, Head]) -> bool:
        """Whether the author's own chain on the clouds leads to it, and no other branch begins with it: what
        is relayed of that one goes on from there."""
        segments = self._shipped() if self._is_own(author) else _newest_of(heads.get(author))
        end = self._find(author, segments[0]) if segments else None
        if end is None:
            return False
        path = _Path(author, self._updates.state.branches.path(end.branch, end.clock))
        if not path.leads_to(point):
            return False
        others = (one for one in self._paths() if one.author == author and not one.leads_to(end))
        return not any(other.leads_to(point) for other in others)

    def _patience(self, author: bytes) -> float:
        if self._is_own(author):
            return COPY_SECONDS
        others = sorted({*self._updates.members, self._updates.device} - {author})
        return RELAY_SECONDS + _RANK_SECONDS * others.index(self._updates.device)

    # -- what they lack --------------------------------------------------------------------------

    def _sealed(self, path: _Path, before: _Point | None, rows: list[_Row]) -> RelaySegment:
        (first, _, _), (last, identity, _) = rows[0], rows[-1]
        name = segment_name(path.author, SegmentId.of(first, identity))
        previous = if_followed(before.segment if before else None, rows[0][2])
        sealed = encode_segment(
            [data for _, _, data in rows], previous, self._keys, self._random_bytes(NONCE_SIZE)
        )
        return RelaySegment(path.author, first, last, name, sealed)

    def _after(self, path: _Path, above: int) -> list[_Row]:
        """The next updates of *path* that are not bare, as many as a segment takes."""
        found: list[_Row] = []
        size = 0
        for clock, identity, data in self._updates.after(path.steps, above):
            size += len(data or b"")
            full = size > self.limits.segment_bytes or len(found) == self.limits.segment_updates
            if found and (full or data is None):
                break
            if data is not None:
                found.append((clock, identity, data))
        return found


def _newest_of(head: Head | None) -> list[SegmentId]:
    """The segment in which the own chain of the head's writer ends."""
    return [] if head is None or head.extent is None else [head.extent.newest]


def _is_hurried(author: bytes, linked: Collection[bytes] | None) -> bool:
    """Whether somebody waits for what the author wrote and cannot be asked for. *linked*: which devices are
    linked, None when nobody waits."""
    return linked is not None and author not in linked


def _is_present(head: Head | None, time_ns: int) -> bool:
    """Whether the writer of its newest head on the clouds still reaches them, as far as that can be known."""
    return head is not None and not head.offline and time_ns - head.time_ns <= PRESENT_SECONDS * 1e9
