"""Log exchange between two devices over any ordered channel (Depot 4.1, 4.3). The messages: `sync.messages`.

Both sides do the same. Each opens with a *frontier*: the newest updates of its branches. Who gets one knows
what the other lacks, except on devices of which the other has an update that is not known here: it may be
ahead there, or on another branch. There a *probe* asks which updates of our own branches the other has, first
at the tip and in steps that double from there, then between the newest that it has and the oldest that it has
not, until those are neighbours. Then everything that the other lacks goes out in the order in which it was
accepted here: so the causes of each update come before it. What is accepted later is pushed at once
(`advanced`).

*Flow*: at most WINDOW bytes of updates are on the way; `Taken` gives room for more, and is sent after the
updates were delivered. So both sides hold a bounded amount, however slow the other is.

*Recovery*: with nothing more to send, a side states its frontier without asking. Who then lacks something of
it asks once more, unless it did so before and nothing has changed since. Nothing needs to be remembered
between connections.

*Compaction*: of some updates a device may know only what a checkpoint (`sync.checkpoint`) says. A side that
lacks them gets a message that says so and nothing that comes after them; it asks again when its log has
grown.

*Alarm*: equal histories must give equal states. Frontiers carry the hash of both, and when the histories are
equal and the states are not, one of the two programs or disks is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from sync.codec import ZERO_HASH
from sync.errors import DecodeError
from sync.log_tree import Known
from sync.messages import (
    MAX_PROBES,
    Answer,
    Compacted,
    Frontier,
    Message,
    Probe,
    Taken,
    Updates,
    decode_message,
    encode_message,
)
from sync.update import UpdateStamp
from sync.vector import MAX_WRITERS, VersionVector

__all__ = ["Action", "Alarm", "Deliver", "Exchange", "ExchangeLog", "Failed", "LogRow", "Offer", "Send"]

# -- searching for the newest updates that two logs have in common (Depot 4.3) --------------------------
# Every leaf of our tree of branches ends a path down to the device's first update. A side that has an update
# of a path has all below it. So on each path the newest update that the other side has is found by asking
# about a few points in the interval left, in steps that double from the tip at first and evenly spaced ones
# later.


_POINTS = 16


class _Path(Struct):
    """The interval left on the path that ends in the update `tip` begins with."""

    tip: bytes
    low: int
    """The highest clock that they have, 0 when none is known."""
    high: int
    """The lowest clock that they have not, or one above the tip."""
    found: UpdateStamp | None = None
    first: bool = True
    asked: list[UpdateStamp] = field(default_factory=list)


class SearchedLog(Protocol):
    """The local log as the search reads it."""

    def tips(self) -> list[Known]:
        """The newest update of each branch that no other branch grows from."""

    def find(self, prefix: bytes) -> Known | None:
        """The accepted update whose hash begins so, if any."""

    def path(self, known: Known) -> list[tuple[bytes, int]]:
        """(branch, clock) of the update and of each fork point below it, newest first."""

    def newest_below(self, branch: bytes, clock: int) -> Known | None:
        """The newest update on a branch with at most this clock."""


class PrefixSearch:
    """One search, over the paths of `devices`; the other side is known to have what `covered` covers."""

    def __init__(self, log: SearchedLog, devices: Collection[bytes], covered: VersionVector) -> None:
        self._log = log
        self._paths: list[_Path] = []
        for tip in log.tips():
            if tip.device in devices:
                low = max((min(clock, covered[branch]) for branch, clock in log.path(tip)), default=0)
                self._paths.append(_Path(tip.stamp.prefix, low, tip.clock + 1))

    def probes(self) -> tuple[bytes, ...]:
        """The beginnings of the hashes to ask about next; none when the search is over."""
        left = [path for path in self._paths if path.high - path.low > 1]
        asked: list[bytes] = []
        for number, path in enumerate(left):
            room = (MAX_PROBES - len(asked)) // (len(left) - number)
            path.asked = list(self._points(path, min(room, _POINTS))) if room else []
            asked += [stamp.prefix for stamp in path.asked]
        return tuple(asked)

    def answered(self, known: list[bool]) -> None:
        """The answers to the last probes, in their order."""
        answers = iter(known)
        for path in self._paths:
            for stamp in path.asked:
                if next(answers):
                    if stamp.clock > path.low:
                        path.low, path.found = stamp.clock, stamp
                else:
                    path.high = min(path.high, stamp.clock)
            path.asked = []
            path.first = False

    def common(self) -> tuple[UpdateStamp, ...]:
        """The newest update of each path that they said they have."""
        return tuple(path.found for path in self._paths if path.found)

    def _points(self, path: _Path, most: int) -> Iterator[UpdateStamp]:
        """Updates in the interval, the newest first, at most `most` of them."""
        tip = self._log.find(path.tip)
        if tip is None:
            return
        last = path.high
        for clock in _clocks(path, most):
            if clock >= last:
                continue
            known = self._at(tip, clock)
            if known is None or known.clock <= path.low:
                return
            yield known.stamp
            last = known.clock

    def _at(self, tip: Known, clock: int) -> Known | None:
        """The newest update of the path with at most this clock."""
        for branch, end in self._log.path(tip):
            found = self._log.newest_below(branch, min(clock, end))
            if found:
                return found
        return None


def _clocks(path: _Path, most: int) -> Iterator[int]:
    """Clocks in the interval, falling; the highest always, as an update that they lack ends the interval."""
    top = path.high - 1
    if path.first:
        yield top
        for exponent in range(most - 1):
            yield top - (1 << 2 * exponent)
    else:
        for part in range(most):
            yield top - (top - path.low) * part // most


# -- log exchange between two devices over any ordered channel (Depot 4.1, 4.3). The messages -----------


WINDOW = 8 << 20
"""Most bytes of updates on the way to the other side; a larger update goes alone."""
BATCH = 1 << 20
_KEPT = 2 * MAX_WRITERS


class Send(Struct, frozen=True):
    """Send this message."""

    message: bytes


class Deliver(Struct, frozen=True):
    """Offer these signed updates to the log, in this order, before carrying out the next action."""

    updates: tuple[bytes, ...]


class Failed(Struct, frozen=True):
    """The other side broke the protocol: close the channel. Nothing comes after it."""

    reason: str


class Alarm(Struct, frozen=True):
    """The other side has the same log and made another state of it."""

    reason: str


class Offer(Struct, frozen=True):
    """What is lacking here begins below a checkpoint of the other side, whose root has this name."""

    root: bytes


Action: TypeAlias = Send | Deliver | Failed | Alarm | Offer


class LogRow(Struct, frozen=True):
    """An update as the store of the log returns it; `number` ascends in the order of acceptance."""

    number: int
    stamp: UpdateStamp
    branch: bytes
    data: bytes | None
    """None when a checkpoint has taken its place."""


class ExchangeLog(SearchedLog, Protocol):
    """The local log as exchange reads it."""

    def history(self) -> bytes:
        """The history hash at the tips."""

    def missing(self, known: VersionVector, after: int, size: int) -> list[LogRow]:
        """Updates with a number above `after` that `known` does not cover, in order, about `size` bytes of
        them, at least one if there is any. One without data is the last of them."""


class Exchange:
    """One side of one connection. `state_hash` returns 32 bytes, or None while the state is not known;
    `checkpoint` the root of the checkpoint that can be offered, if there is one."""

    def __init__(
        self,
        log: ExchangeLog,
        state_hash: Callable[[], bytes | None],
        checkpoint: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self._log = log
        self._state_hash = state_hash
        self._checkpoint = checkpoint
        self._blocked = False  # what they lack begins with what only a checkpoint tells
        self._lacking = False  # they said that of what we lack
        self._theirs: dict[bytes, UpdateStamp] | None = None  # the newest that they have, as far as we know
        self._search: PrefixSearch | None = None
        self._probed: tuple[bytes, ...] = ()
        self._sent_up_to = 0
        self._on_the_way = 0
        self._told = True  # whether they know that there is nothing more
        self._stated = b""  # the history in the last frontier
        self._asked: object = None  # our tips and theirs when we last asked because we lacked something
        self._again: Frontier | None = None  # what they asked for while a search was under way
        self._failed = False

    def begin(self) -> list[bytes]:
        """The first messages to send."""
        return [self._frontier(request=True)]

    def advanced(self) -> list[bytes]:
        """Our log has grown: the messages that bring the other side what it lacks."""
        if self._failed:
            return []
        lacking, self._lacking = self._lacking, False
        return [*([self._frontier(request=True)] if lacking else []), *self._push()]

    def receive(self, message: bytes) -> list[Action]:
        """What to do about a message. Never raises because of what is in it."""
        if self._failed:
            return []
        try:
            return self._handle(decode_message(message))
        except DecodeError as error:
            self._failed = True
            return [Failed(str(error))]

    def _handle(self, message: Message) -> list[Action]:
        match message:
            case Frontier():
                return self._on_frontier(message)
            case Updates():
                self._learn(message.ends)
                taken = Taken(sum(map(len, message.updates)))
                return [Deliver(message.updates), Send(encode_message(taken))]
            case Taken():
                if message.size > self._on_the_way:
                    raise DecodeError(f"{message.size} bytes taken of {self._on_the_way} on the way")
                self._on_the_way -= message.size
                return _sends(self._push())
            case Probe():
                known = [self._log.find(prefix) is not None for prefix in message.prefixes]
                return [Send(encode_message(Answer.of(known)))]
            case Answer():
                return _sends(self._on_answer(message))
            case Compacted(root):
                self._lacking = True
                return [] if root == ZERO_HASH else [Offer(root)]

    def _on_frontier(self, message: Frontier) -> list[Action]:
        actions: list[Action] = []
        if message.history == self._log.history():
            state = self._state_hash()
            if state is not None and message.state not in (state, ZERO_HASH):
                actions.append(Alarm("the same log gave another state on the other machine"))
        if message.request:
            return [*actions, *_sends(self._on_request(message))]
        self._learn(message.tips)
        if any(self._log.find(stamp.prefix) is None for stamp in message.tips):
            reason = {tip.stamp for tip in self._log.tips()}, message.tips
            if reason != self._asked:
                self._asked = reason
                actions.append(Send(self._frontier(request=True)))
        elif message.history != self._log.history() != self._stated:
            self._told = False
        return [*actions, *_sends(self._push())]

    def _on_request(self, message: Frontier) -> list[bytes]:
        """Find out what they lack, then send it."""
        if self._search is not None:
            self._again = message
            return []
        self._theirs = {}
        self._sent_up_to = 0
        self._blocked = False
        self._learn(message.tips)
        unknown = {stamp.device for stamp in message.tips if self._log.find(stamp.prefix) is None}
        self._search = PrefixSearch(self._log, unknown, self._covered())
        return self._probe()

    def _frontier(self, *, request: bool) -> bytes:
        tips = tuple(tip.stamp for tip in self._log.tips())
        self._stated = self._log.history()
        return encode_message(Frontier(request, tips, self._stated, self._state_hash() or ZERO_HASH))

    def _learn(self, stamps: tuple[UpdateStamp, ...]) -> None:
        """The other side has these, and so all their causes."""
        if self._theirs is None:
            return
        self._theirs |= {stamp.prefix: stamp for stamp in stamps}
        if len(self._theirs) > _KEPT:
            self._prune(self._theirs)

    def _prune(self, theirs: dict[bytes, UpdateStamp]) -> None:
        """Forget what others imply; of what is not known here, the oldest news too."""
        causes = VersionVector()
        for prefix in theirs:
            found = self._log.find(prefix)
            if found:
                causes = causes.merge(found.dependencies)
        for prefix in list(theirs):
            found = self._log.find(prefix)
            if found and found.clock <= causes[found.branch]:
                del theirs[prefix]
        while len(theirs) > _KEPT:
            del theirs[next(iter(theirs))]

    def _covered(self) -> VersionVector:
        """What the other side has of our log, as far as we know."""
        covered = VersionVector()
        for prefix in self._theirs or ():
            found = self._log.find(prefix)
            if found and found.clock > covered[found.branch]:
                covered = covered.merge(found.dependencies.with_entry(found.branch, found.clock))
        return covered

    # -- finding the common history --------------------------------------------------------------

    def _probe(self) -> list[bytes]:
        """Ask on, or begin to send when the search is over."""
        assert self._search is not None
        self._probed = self._search.probes()
        if self._probed:
            return [encode_message(Probe(self._probed))]
        self._learn(self._search.common())
        self._search = None
        if self._again is not None:
            message, self._again = self._again, None
            return self._on_request(message)
        return self._push()

    def _on_answer(self, message: Answer) -> list[bytes]:
        if self._search is None or not self._probed:
            raise DecodeError("an answer without a probe")
        flags = message.flags(len(self._probed))
        self._probed = ()
        self._search.answered(flags)
        return self._probe()

    # -- sending ---------------------------------------------------------------------------------

    def _push(self) -> list[bytes]:
        if self._theirs is None or self._search is not None or self._blocked:
            return []
        messages: list[bytes] = []
        covered: VersionVector | None = None
        while self._on_the_way < WINDOW:
            covered = covered or self._covered()
            rows = self._log.missing(covered, self._sent_up_to, BATCH)
            if not rows:
                if not self._told:
                    messages.append(self._frontier(request=False))
                    self._told = True
                break
            updates = tuple(row.data for row in rows if row.data is not None)
            size = sum(map(len, updates))
            if self._on_the_way and self._on_the_way + size > WINDOW:
                break
            if updates:
                ends = {row.branch: row.stamp for row in rows if row.data is not None}
                messages.append(encode_message(Updates(tuple(ends.values()), updates)))
                self._sent_up_to = rows[len(updates) - 1].number
                self._on_the_way += size
                self._told = False
            if len(updates) < len(rows):
                messages.append(encode_message(Compacted(self._checkpoint() or ZERO_HASH)))
                self._blocked = True
                break
        return messages


def _sends(messages: list[bytes]) -> list[Action]:
    return [Send(message) for message in messages]
