"""Which cloud to ask first: its latencies as observed, and what is known of its health (Hybris 4.4).

A request for s bytes takes a cloud a round trip and a time per byte, a + b s. s are all bytes that the line
has carried during the call, for other requests of ours, too (`traffic`), or a cloud would look slow because
it is asked for much. For each cloud, operation and size class the last few answers are kept. The *usual* one
is the second quickest of these, so that what something else has spoilt does not move it, and a lasting change
has done so after a few. a and b follow from the usual answers of all classes of a cloud, those near s
weighing most; of answers of one class alone, b is a / 256 KiB. While a request is overdue, one of its class
takes at least what it has been waited for; its answer, should it come, tells more.

If too little is known of a cloud for that, what a request of class z takes is *derived*, (o', z') being the
class of the same operation that is nearest in size, or else, if there is none, the nearest of the other
operation:

    e(c, o, z) = e(c, o', z') * m      m: the median of e(x, o, z) / e(x, o', z') over all other clouds x of
                                       which both are known
    e(c, o, z) = e(c, o', z') + d / r  if there is no such x: d = bytes by which the least request of z
                                       exceeds that of z', or 0, r = `TimerBounds.unknown_rate`. For ranks
                                       r is infinite: a cloud of which small requests alone are known would
                                       never be asked for large ones

A cloud is ranked by h(c, o, s), what is hoped: e times 1 - 1/n after n answers, so that a new one is tried
again before it is judged; as quick as its last answer if that is less; half of e when it is derived. What is
written will be read: a write is ranked by

    h(c, put, z) + h(c, get, z) / 4

so that of clouds that take it about as quickly those get it that also return it quickly; of a cloud whose
reads cannot even be derived the second term is 0. A cloud of which nothing is known, or nothing recent, is
tried first.

Reads that are under way at a time share a line. What a cloud has yet to move for others, l bytes, comes
first: e(s + l) - e(s) is added to h. So each is asked of the cloud where it will be over first, and reads
side by side get what all lines carry together. One read at a time tries an unknown cloud.

A cloud that had bad luck, or has become fast, would not be asked again for long. So others are *explored*:
each has a credit of seconds for each kind of request. It begins with the time of two requests, and grows with
each request by its share of 1/32 of its time; a cloud is asked instead of the last that would be when its
credit pays for what that takes longer. So clouds that are nearly as fast are explored often, slow ones
hardly, and what is lost is bounded, as far as e is right: two requests per cloud and kind, and 1/32 of the
time of all.

Pure: the caller measures and tells. Not thread-safe: the engine's lock guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from statistics import median
from typing import Literal, TypeAlias

from msgspec import Struct, field

from hybrisfs.environment import Environment

__all__ = [
    "MAX_OFFENCES",
    "CloudHealth",
    "CloudState",
    "FailureKind",
    "Offence",
    "Operation",
    "Ranking",
    "TimerBounds",
    "size_class",
]

Operation: TypeAlias = Literal["put", "get"]

_CLASS_LIMITS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)  # bytes; latencies of a class must be comparable
_REMEMBERED = 5  # latest answers; the second quickest counts
_PER_TRIP = 256 << 10  # bytes that a usual line carries in the time of one round trip
_NEARER = 4  # times what an observation weighs that is one size class nearer
_FARTHEST = 16  # times the largest size observed: to tell more from a line would be a guess
_DERIVED_HOPE = 1 / 2  # a derived time counts half for the rank
_FIRST_CREDIT = 64  # requests whose share of what may be lost by exploring each cloud has from the start
_SPREAD_GAIN = 1 / 4  # the weight of the newest in the spread: RFC 6298 estimates the same for TCP
_SPREAD_FACTOR = 4
_DERIVED_TIMER = 1 + _SPREAD_FACTOR / 2  # as after a single observation
_READ_WEIGHT = 1 / 4  # of the latency of reads, in the rank for a write
_STALE_AFTER = 600.0  # seconds after which a cloud is tried again, as its speed may have changed


def size_class(size: int) -> int:
    """Return 0 for requests below 64 KiB, 1 below 256 KiB, 2 below 1 MiB, 3 below 4 MiB, 4 from there on."""
    return sum(size >= limit for limit in _CLASS_LIMITS)


def _least(number: int) -> int:
    """The bytes of the least request of a size class."""
    return _CLASS_LIMITS[number - 1] if number else 0


class TimerBounds(Struct, frozen=True):
    """Limits of the timers after which another cloud is asked, and other pauses, in seconds."""

    shortest: float = 0.25
    longest: float = 30.0
    unknown_put: float = 10.0
    unknown_get: float = 2.0
    unknown_rate: float = 256 << 10  # bytes per second assumed of a cloud never seen, beside the above
    explored: float = 1 / 32  # of the time of requests, what may be lost by finding out about other clouds
    first_pause: float = 0.2  # before clouds that all failed are asked again; doubles each time
    start_patience: float = 10.0  # that a put may wait for a free thread of its cloud


class Timing(Struct, frozen=True):
    """How long to wait, in seconds, while nothing moves of what is waited for (`stopwatch`)."""

    put: float = 300.0  # for a pack or object to be on enough clouds
    get: float = 60.0  # for an object, a share that is checked, or one look at a bad cloud
    stall: float = 30.0  # a call at a standstill for longer makes its cloud count as down
    close: float = 3.0  # for running calls to end when the engine is closed
    timers: TimerBounds = field(default_factory=TimerBounds)


class _Estimate(Struct):
    """What was observed of one cloud, operation and size class."""

    usual: float = 0.0
    size: int = 0  # of the request that took the usual time
    spread: float = 0.0
    seen: float = 0.0
    overdue: float = 0.0  # seconds that a request has been waited for since the last answer
    _latest: deque[tuple[float, int]] = field(default_factory=partial(deque, maxlen=_REMEMBERED))

    def forget(self) -> None:
        """What was observed so long ago tells nothing any more."""
        self._latest.clear()

    def answered(self, size: int, seconds: float, now: float) -> None:
        """A request was answered after so many seconds."""
        error = abs(seconds - self.usual) if self._latest else seconds / 2
        self.spread += (_SPREAD_GAIN if self._latest else 1.0) * (error - self.spread)
        self._latest.append((seconds, size))
        self.usual, self.size = sorted(self._latest, key=_pace)[len(self._latest) // 3]
        self.overdue = 0.0
        self.seen = now

    def waited(self, size: int, seconds: float, now: float) -> None:
        """A request has had no answer for so many seconds."""
        if not self._latest:
            self.spread = max(self.spread, seconds / 2)
            self.size = size
        self.overdue = max(self.overdue, seconds)
        self.seen = now

    @property
    def expected(self) -> float:
        """The seconds to expect of the next request."""
        return max(self.usual, self.overdue)

    @property
    def number(self) -> int:
        """How many observations count."""
        return len(self._latest)

    @property
    def hope(self) -> float:
        """A factor for the expected time, for ranks: the fewer answers are known, the lower it is.

        The first request often pays for a new connection. Were it taken at its word, a fast cloud that had
        bad luck with it would not be asked again for long. For the same reason the last answer counts alone
        when it came sooner than is usual: either the next one comes so, too, or it is not the last any more.
        """
        if self.overdue >= self.usual:
            return 1.0
        return min(1 - 1 / self.number, _pace(self._latest[-1]) / _pace((self.usual, self.size)))


def _pace(answer: tuple[float, int]) -> float:
    """Seconds per byte if the line is a usual one: so answers of unequal size can be compared."""
    seconds, size = answer
    return seconds / (size + _PER_TRIP)


_Kind: TypeAlias = tuple[int, Operation, int]
"""A cloud, an operation and a size class."""


class Ranking:
    """Latency estimates of all clouds and the orders and timers that follow from them."""

    def __init__(self, bounds: TimerBounds, environment: Environment) -> None:
        self._bounds = bounds
        self._clock = environment.monotonic
        self._estimates: dict[_Kind, _Estimate] = {}
        self._credits: dict[_Kind, float] = {}  # seconds that may be lost by finding out more

    def observe(self, cloud: int, operation: Operation, size: int, seconds: float) -> None:
        """Take note that a request of `size` bytes was answered well after `seconds`."""
        estimate = self._estimate(cloud, operation, size)
        if not self._is_fresh(estimate):
            estimate.forget()
        estimate.answered(size, seconds, self._clock())

    def waited(self, cloud: int, operation: Operation, size: int, seconds: float) -> None:
        """Take note that such a request has had no answer for `seconds`: it will take longer than that.

        That counts until one is answered, whose latency then tells more.
        """
        self._estimate(cloud, operation, size).waited(size, seconds, self._clock())

    def _estimate(self, cloud: int, operation: Operation, size: int) -> _Estimate:
        return self._estimates.setdefault((cloud, operation, size_class(size)), _Estimate())

    def order(
        self,
        clouds: Iterable[int],
        operation: Operation,
        size: int,
        penalties: Mapping[int, int],
        *,
        asked: int = 0,
        loads: Mapping[int, int] | None = None,
    ) -> list[int]:
        """Return the clouds, the best first: least penalties, then unknown or not seen for long, then best
        ranked.

        `asked`: so many of the first will be, for a request of this size. Then the last of these is another
        one that is as healthy now and then, to find out about it; each order adds to what that may cost.
        `loads`: bytes by cloud that it has to move before.
        """
        queues = loads or {}

        def key(cloud: int) -> tuple[int, float, float, int]:
            penalty, load = penalties.get(cloud, 0), queues.get(cloud, 0)
            expected = self._expected(cloud, operation, size)
            if expected is None:
                return penalty, inf if load else -1.0, float(load), cloud
            queue = expected * (self._stretch(cloud, operation, size, load) - 1)
            known = self._estimates.get((cloud, operation, size_class(size)))
            if known is not None and not self._is_fresh(known) and not load:
                return penalty, -1.0, expected, cloud
            hoped = queue + expected * (_DERIVED_HOPE if known is None else known.hope)
            reads = _READ_WEIGHT * (self._hoped(cloud, "get", size) or 0.0) if operation == "put" else 0.0
            return penalty, reads + hoped, queue + expected, cloud

        keys = sorted(map(key, clouds))
        order = [cloud for *_, cloud in keys]
        if (
            self._bounds.explored
            and 0 < asked < len(keys)
            and all(hoped >= 0 for _, hoped, *_ in keys[:asked])
        ):
            usual = max(expected for _, _, expected, _ in keys[:asked])
            worst = max(penalty for penalty, *_ in keys[:asked])
            rivals = [cloud for penalty, *_, cloud in keys[asked:] if penalty <= worst]
            explored = self._explored(rivals, operation, size, usual, queues)
            if explored is not None:
                order.remove(explored)
                order.insert(asked - 1, explored)
        return order

    def _explored(
        self, rivals: list[int], operation: Operation, size: int, usual: float, loads: Mapping[int, int]
    ) -> int | None:
        """The rival about which to find out more with this request, which takes `usual` seconds without it.

        Each has a credit, for each kind of request: its share of `TimerBounds.explored` of the time of such
        requests. It is asked as soon as that pays for what it takes longer.
        """
        share = usual * self._bounds.explored
        for cloud in rivals:
            kind = cloud, operation, size_class(size)
            credit = self._credits.get(kind, _FIRST_CREDIT * share) + share / len(rivals)
            seconds = self._price(cloud, operation, size)
            price = seconds * self._stretch(cloud, operation, size, loads.get(cloud, 0)) - usual
            if 0 <= price <= credit:
                self._credits[kind] = 0.0
                return cloud
            self._credits[kind] = credit
        return None

    def _price(self, cloud: int, operation: Operation, size: int) -> float:
        """The seconds that a request takes of this cloud, or takes until another one stands in when it may
        not answer."""
        known = self._estimates.get((cloud, operation, size_class(size)))
        if known is not None and known.overdue >= known.usual:
            return self._usual(cloud, operation, size) + known.overdue
        return self._expected(cloud, operation, size) or 0.0

    def _stretch(self, cloud: int, operation: Operation, size: int, load: int) -> float:
        """How many times as long a request takes that begins behind so many bytes."""
        if not load:
            return 1.0
        alone, behind = (self._on_line(cloud, operation, size, before) for before in (0, load))
        if alone and behind:
            return behind / alone
        return (size + load + _PER_TRIP) / (size + _PER_TRIP)

    def _is_fresh(self, estimate: _Estimate) -> bool:
        return estimate.seen > self._clock() - _STALE_AFTER

    def _hoped(self, cloud: int, operation: Operation, size: int) -> float | None:
        """The seconds to rank by; None when nothing is known of the cloud."""
        known = self._estimates.get((cloud, operation, size_class(size)))
        expected = self._expected(cloud, operation, size)
        if expected is None:
            return None
        return expected * (_DERIVED_HOPE if known is None else known.hope)

    def _expected(self, cloud: int, operation: Operation, size: int) -> float | None:
        """The seconds that such a request takes of a cloud; None when nothing is known of it."""
        wanted = size_class(size)
        known = self._estimates.get((cloud, operation, wanted))
        if known is not None and known.overdue >= known.usual:
            return known.overdue
        on_line = self._on_line(cloud, operation, size)
        if on_line is not None:
            return on_line
        if known is not None:
            return known.usual * (size + _PER_TRIP) / (known.size + _PER_TRIP)
        return self._derived(cloud, operation, wanted, hopefully=True)

    def _on_line(self, cloud: int, operation: Operation, size: int, load: int = 0) -> float | None:
        """What a request of this size, behind *load* bytes, takes if each takes a round trip and a time for
        each byte.

        Both follow from the usual requests of all size classes by least squares of relative errors, those
        nearest in size weighing most. None when there are too few classes or all this is far beyond them.
        """
        wanted = size_class(size)
        found = [
            (number, one)
            for number in range(len(_CLASS_LIMITS) + 1)
            if (one := self._estimates.get((cloud, operation, number))) is not None
            and one.usual > one.overdue
            and (number == wanted or self._is_fresh(one))
        ]
        total = size + load
        if len(found) < 2 or total > _FARTHEST * found[-1][1].size:
            return None
        trips = mixed = byte_times = trip_sum = byte_sum = 0.0
        for number, one in found:
            weight = one.number / _NEARER ** abs(number - wanted)
            trip, per_byte = 1 / one.usual, one.size / one.usual
            trips += weight * trip * trip
            mixed += weight * trip * per_byte
            byte_times += weight * per_byte * per_byte
            trip_sum += weight * trip
            byte_sum += weight * per_byte
        divisor = trips * byte_times - mixed * mixed
        if divisor <= 0:
            return None
        a = (trip_sum * byte_times - byte_sum * mixed) / divisor
        b = (byte_sum * trips - trip_sum * mixed) / divisor
        if a < 0:
            return total * byte_sum / byte_times
        return trip_sum / trips if b < 0 else a + b * total

    def _derived(
        self, cloud: int, operation: Operation, wanted: int, *, hopefully: bool = False
    ) -> float | None:
        """The latency of a class without observations, from the nearest one that has recent ones.

        *hopefully*: for ranks.
        """
        other: Operation = "get" if operation == "put" else "put"
        nearest = sorted(range(len(_CLASS_LIMITS) + 1), key=lambda one: abs(one - wanted))
        for source in (operation, other):
            for found in nearest:
                estimate = self._estimates.get((cloud, source, found))
                if estimate is not None and self._is_fresh(estimate):
                    return self._scaled(estimate.expected, (source, found), (operation, wanted), hopefully)
        return None

    def _scaled(
        self, seconds: float, source: tuple[Operation, int], wanted: tuple[Operation, int], hopefully: bool
    ) -> float:
        """What a latency of the class *source* makes one expect in the class *wanted*."""
        ratios = [
            self._estimates[cloud, *wanted].expected / estimate.expected
            for (cloud, *kind), estimate in self._estimates.items()
            if tuple(kind) == source and estimate.expected > 0 and (cloud, *wanted) in self._estimates
        ]
        if ratios:
            return seconds * median(ratios)
        if hopefully:
            return seconds
        return seconds + max(0, _least(wanted[1]) - _least(source[1])) / self._bounds.unknown_rate

    def timer(self, sizes: Mapping[int, int], operation: Operation) -> float:
        """Return the seconds within which all these clouds usually answer such requests of these sizes."""
        usual = (self._usual(cloud, operation, size) for cloud, size in sizes.items())
        return max(usual, default=self._bounds.shortest)

    def _usual(self, cloud: int, operation: Operation, size: int) -> float:
        bounds = self._bounds
        estimate = self._estimates.get((cloud, operation, size_class(size)))
        derived = self._derived(cloud, operation, size_class(size)) if estimate is None else None
        if derived is not None:
            seconds = derived * _DERIVED_TIMER
        elif estimate is None:
            unknown = bounds.unknown_put if operation == "put" else bounds.unknown_get
            seconds = unknown + size / bounds.unknown_rate
        else:
            seconds = estimate.expected + _SPREAD_FACTOR * estimate.spread
        return min(max(seconds, bounds.shortest), bounds.longest)


# -- what is known about each cloud: its state in words for `status`, and how readily to ask it ---------
# A circuit breaker: a cloud that fails is asked only when the others are too few, and by probes, which come
# less and less often. Pure apart from the clock passed in. Not thread-safe: the engine's lock guards it.


CloudState: TypeAlias = Literal["ok", "slow", "down", "lying", "full", "refusing"]
FailureKind: TypeAlias = Literal["down", "full", "refusing"]

MAX_OFFENCES = 64  # objects remembered per cloud; fsck finds the others
_DOWN_AFTER = 3  # failures in a row that may pass; one that will not pass is enough
_SLOW_AFTER = 3  # requests in a row that another cloud had to stand in for
_PROBE_PAUSE = (1.0, 60.0)  # seconds, first and longest
_RECHECK_PAUSE = (5.0, 600.0)
_RECHECKS = 4  # objects looked at again at a time: they may be large


class Offence(Struct, frozen=True):
    """An object that a cloud acknowledged and then lost or returned wrong.

    `recheck` gets the object as it is now (at most `limit` bytes) and raises ValueError or IntegrityError
    when it is still wrong.
    """

    reason: str
    limit: int
    recheck: Callable[[bytes], object]


class CloudHealth(Struct):
    """One cloud. Times are those of `clock`, in seconds."""

    clock: Callable[[], float]
    _offences: dict[str, Offence] = field(default_factory=dict)  # by object name, the latest last
    _recheck_at: float = 0.0
    _recheck_pause: float = _RECHECK_PAUSE[0]
    _failures: int = 0  # in a row
    _failure: tuple[FailureKind, str] = ("down", "")
    _full: str = ""
    _probe_at: float = 0.0
    _probe_pause: float = _PROBE_PAUSE[0]
    _throttled_until: float = 0.0
    _late: int = 0  # in a row
    _since: float = 0.0
    _shown: CloudState = "ok"

    def __post_init__(self) -> None:
        self._since = self._probe_at = self._throttled_until = self.clock()

    def succeeded(self, operation: Operation) -> None:
        """A request was answered as it should be."""
        self._failures = 0
        self._probe_pause = _PROBE_PAUSE[0]
        if operation == "put":
            self._full = ""
        self._note()

    def in_time(self) -> None:
        """A request was answered before another cloud had to stand in."""
        self._late = 0
        self._note()

    def late(self) -> None:
        """A request took so long that another cloud was asked."""
        self._late += 1
        self._note()

    def throttled(self, seconds: float) -> None:
        """The cloud wants no requests for a while."""
        self._throttled_until = max(self._throttled_until, self.clock() + seconds)
        self._note()

    def failed(self, kind: FailureKind, reason: str, *, lasting: bool = False) -> None:
        """A request failed; `lasting` when it will until a person mends it. Reads may go on when full."""
        if kind == "full":
            self._full = reason
        else:
            self._failures = max(self._failures + 1, _DOWN_AFTER if lasting else 0)
            self._failure = (kind, reason)
        self._probe_at = self.clock() + self._probe_pause
        self._probe_pause = min(self._probe_pause * 2, _PROBE_PAUSE[1])
        self._note()

    def lied(self, name: str, offence: Offence) -> bool:
        """An acknowledged object is missing or is not what was written. Returns whether that is news."""
        known = self._offences.pop(name, None) is not None
        if len(self._offences) < MAX_OFFENCES:
            self._offences[name] = offence
        self._note()
        return not known

    def cleared(self, name: str) -> None:
        """The object was looked at again and is right."""
        if self._offences.pop(name, None) is not None:
            self._recheck_pause = _RECHECK_PAUSE[0]
            self._recheck_at = self.clock()
        self._note()

    def offences(self) -> list[str]:
        """Return the names of the objects that are known to be wrong, the longest known first."""
        return list(self._offences)

    def take_rechecks(self) -> dict[str, Offence]:
        """Return the objects to look at again now, the longest known first; none while it is too early."""
        if not self._offences or self.clock() < self._recheck_at:
            return {}
        self._recheck_at = self.clock() + self._recheck_pause
        self._recheck_pause = min(self._recheck_pause * 2, _RECHECK_PAUSE[1])
        return dict(list(self._offences.items())[:_RECHECKS])

    def probe_due(self) -> bool:
        """Whether it should be found out now if the cloud works again."""
        return bool(self._failures or self._full) and self.clock() >= self._probe_at

    @property
    def full(self) -> bool:
        """Whether the cloud had no room for the last object."""
        return bool(self._full)

    def state(self) -> tuple[CloudState, str]:
        """Return the state and the reason for it in a sentence; the reason is empty when it is ok."""
        kind, failure = self._failure
        if self._failures >= _DOWN_AFTER or (self._failures and kind == "refusing"):
            return kind, failure
        if self._offences:
            reason = next(reversed(self._offences.values())).reason
            others = len(self._offences) - 1
            return "lying", f"{reason} (and {others} more)" if others else reason
        if self._full:
            return "full", self._full
        if self._failures:
            return "slow", f"last request failed: {failure}"
        if self.clock() < self._throttled_until:
            return "slow", "asks for fewer requests"
        if self._late >= _SLOW_AFTER:
            return "slow", f"did not answer the last {self._late} requests in its usual time"
        return "ok", ""

    @property
    def since(self) -> float:
        """When the state became what it is."""
        return self._since

    def penalty(self, operation: Operation) -> int:
        """Return 0 when the cloud is as good as any for this operation, more the less it should be asked."""
        state, _ = self.state()
        if state in ("down", "refusing"):
            return 3
        if state == "lying" or (state == "full" and operation == "put"):
            return 2
        return 1 if self._failures or self.clock() < self._throttled_until else 0

    def _note(self) -> None:
        state, _ = self.state()
        if state != self._shown:
            self._shown = state
            self._since = self.clock()
