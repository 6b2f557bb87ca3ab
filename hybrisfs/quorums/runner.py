"""Runs protocols against the clouds: asks, waits, asks again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct, field

from backends.store import MAX_PAGE, Store
from hybrisfs.dispersal import cloud as ports
from hybrisfs.dispersal.clouds import TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.errors import CloudsUnavailable, FindingKind
from hybrisfs.dispersal.ranking import Operation
from hybrisfs.dispersal.workers import Job
from hybrisfs.environment import Environment
from hybrisfs.quorums.rounds import (
    Answer,
    Ask,
    Pause,
    Protocol,
    Read,
    Round,
    RoundFailedError,
    Within,
)

__all__ = ["Runner", "RunnerLimits"]

S = TypeVar("S")
T = TypeVar("T")

_ATTEMPTS: Final = 3  # of a cloud in a round, when it fails with a passing error
_LIST_BYTES: Final = 16 << 10  # that a list counts as, for the latency classes
_LONGEST_PAUSE: Final = 2.0
_AT_ONCE: Final = 16
_MOST_LATER: Final = 64 << 20  # bytes that wait in memory for one cloud when their rounds are over


class RunnerLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    patience: float = 60.0
    """Seconds in which something of a round has to move."""


class _Answered(NamedTuple):
    position: int
    cloud: int
    answer: ports.Answer[Answer]


class _Running(Struct):
    """A round that goes on."""

    round: Round
    answers: dict[int, Answer] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)
    kinds: dict[int, FindingKind] = field(default_factory=dict)
    changes: list[tuple[ports.CloudPort, Job, int]] = field(default_factory=list)
    """What is to take place, also on slow clouds, when the round is over; with its size in bytes."""

    @property
    def is_over(self) -> bool:
        return self.round.enough(self.answers)

    def forgive(self, cloud: int) -> None:
        """Let the failure of a cloud be its answer, in a round that takes that."""
        if self.round.forgiving:
            self.again.discard(cloud)
            self.answers[cloud] = Answer(fault=self.kinds[cloud], reason=self.reasons[cloud])

    def next(self, most: int) -> list[int]:
        """The clouds to ask next, at most so many."""
        fresh = [cloud for cloud in self.round.asks if cloud not in self.attempts]
        return fresh[:most]


class Runner:
    """Runs protocols, see `rounds.ProtocolRunner`. A round ends at the latest when nothing of it has moved
    for a while."""

    def __init__(self, clouds: Clouds, environment: Environment, patience: float | None = None) -> None:
        """*patience*: instead of that of the `RunnerLimits`."""
        self.environment: Final = environment
        self._clouds = clouds
        self._patience = environment.limits.of(RunnerLimits).patience if patience is None else patience
        self._chance: Random = environment.chance()
        self._lock = threading.Lock()
        self._later: dict[int, list[tuple[Job, int]]] = {}  # what was detached, by cloud, with its size

    def has(self, cloud: int) -> bool:
        """See `ProtocolRunner`."""
        return cloud in self._clouds

    def each(self, work: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """See `ProtocolRunner`."""
        with ThreadPoolExecutor(_AT_ONCE, "kv-list") as pool:
            return list(pool.map(work, items))

    def start(self, name: str, work: Callable[[], object]) -> Callable[[], object]:
        """See `ProtocolRunner`."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread.join

    def order(self, clouds: Sequence[int], size: int) -> list[int]:
        """See `ProtocolRunner`."""
        best = self._clouds.order("get", size, clouds)
        return [*best, *(cloud for cloud in clouds if cloud not in best)]

    def run(self, what: str, protocol: Protocol[T]) -> T:
        """See `ProtocolRunner`."""
        until = inf
        try:
            steps = next(protocol)
            while True:
                if isinstance(steps, Pause):
                    self._pause(steps)
                    steps = protocol.send(())
                    continue
                if isinstance(steps, Within):
                    until = self.environment.boot_time() + steps.seconds
                    steps = protocol.send(())
                    continue
                try:
                    answers = self._step(what, steps, until)
                except RoundFailedError as error:
                    if self.environment.boot_time() >= until:
                        raise
                    steps = protocol.throw(error)
                else:
                    steps = protocol.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            protocol.close()

    def _pause(self, pause: Pause) -> None:
        most = min(_LONGEST_PAUSE, self._clouds.first_pause * 2 ** min(pause.attempt - 1, 8))
        self.environment.sleep(self._chance.uniform(most / 4, most))

    def _step(self, what: str, rounds: Sequence[Round], until: float) -> list[Mapping[int, Answer]]:
        running = [_Running(round_) for round_ in rounds]
        left = max(0.0, until - self.environment.boot_time())
        with OperationLoop[_Answered](self._clouds.operations, min(left, self._patience)) as loop:
            for position, one in enumerate(running):
                first = len(one.round.asks) if one.round.first is None else one.round.first
                self._ask(loop, position, one, one.next(first))
            pauses = (self._clouds.first_pause * 2**n for n in count())
            loop.set_timer(self._timer(running) or next(pauses))
            while not all(one.is_over for one in running):
                self._require_hope(what, running)
                match loop.wait():
                    case _Answered(position, cloud, answer):
                        self._take(loop, position, running[position], cloud, answer)
                    case event if event is TIMER:
                        for position, one in enumerate(running):
                            again, one.again = sorted(one.again), set()
                            more = [] if one.is_over or one.round.first is None else one.next(1)
                            self._ask(loop, position, one, [*again, *more])
                        loop.set_timer(min(_LONGEST_PAUSE, next(pauses)))
                    case event:
                        self._give_up(what, running, loop, event)
            self._let_go(change for one in running for change in one.changes)
        # The machine may have slept: others have gone on long since, and deleted what this one relies on.
        if self.environment.boot_time() >= until:
            raise CloudsUnavailable(what, {})
        return [one.answers for one in running]

    def _let_go(self, changes: Iterable[tuple[ports.CloudPort, Job, int]]) -> None:
        """Let changes that have not begun take place later, unless too much waits for a cloud already: then
        it hangs, and a repair will bring it what it lacks."""
        with self._lock:
            for port, job, size in changes:
                waiting = [
                    (other, bytes_) for other, bytes_ in self._later.get(port.number, ()) if _waits(other)
                ]
                if size + sum(bytes_ for _, bytes_ in waiting) <= _MOST_LATER:
                    port.detach(job)
                    waiting.append((job, size))
                self._later[port.number] = waiting

    def _timer(self, running: Sequence[_Running]) -> float | None:
        """The usual time of what is asked of some of the clouds only; None: nothing is."""
        times = [
            self._clouds.usual(one.waiting, "get", _size(one.round))
            for one in running
            if one.round.first is not None
        ]
        return max(times, default=None)

    def _ask(self, loop: OperationLoop[_Answered], position: int, one: _Running, clouds: list[int]) -> None:
        for cloud in clouds:
            one.attempts[cloud] = one.attempts.get(cloud, 0) + 1
            if cloud not in self._clouds:
                one.reasons[cloud], one.kinds[cloud] = "is no longer configured", "unreadable"
                one.forgive(cloud)
                continue
            stalled = self._clouds[cloud].stalled() if one.round.forgiving else None
            if stalled is not None:
                one.reasons[cloud], one.kinds[cloud] = stalled, "unreadable"
                one.forgive(cloud)
                continue
            one.waiting.add(cloud)
            ask = one.round.asks[cloud]
            operation: Operation = "put" if ask.puts else "get"
            port = self._clouds[cloud]
            job = port.submit(
                operation,
                _ask_size(ask),
                partial(_carry_out, ask),
                partial(_report, loop, position, cloud),
                clock=loop.clock,
                ranked=ask.read is not None or bool(ask.puts and ask.prefix is None),
                deletes=bool(ask.deletes),
            )
            if ask.puts or ask.deletes:
                one.changes.append((port, job, _ask_size(ask)))
            loop.track(port, job)

    def _take(
        self,
        loop: OperationLoop[_Answered],
        position: int,
        one: _Running,
        cloud: int,
        answer: ports.Answer[Answer],
    ) -> None:
        one.waiting.discard(cloud)
        if answer.value is not None and one.round.accept(cloud, answer.value):
            one.answers[cloud] = answer.value
            one.reasons.pop(cloud, None)
            return
        one.reasons[cloud] = answer.reason or "is wrong: it is not the object that was written"
        is_wrong = answer.error is None or answer.corrupt
        one.kinds[cloud] = "missing" if answer.missing else "corrupt" if is_wrong else "unreadable"
        if one.round.first is not None:
            self._ask(loop, position, one, one.next(1))
        elif answer.passing and one.attempts[cloud] < _ATTEMPTS:
            one.again.add(cloud)
        else:
            one.forgive(cloud)

    def _require_hope(self, what: str, running: Sequence[_Running]) -> None:
        for one in running:
            if one.is_over or one.waiting or one.again:
                continue
            if one.round.first is None:
                raise CloudsUnavailable(what, self._clouds.by_name(one.reasons))
            if not one.next(1):
                raise RoundFailedError(what, self._clouds.by_name(one.reasons), tuple(one.kinds.values()))

    def _give_up(
        self, what: str, running: Sequence[_Running], loop: OperationLoop[_Answered], event: Interrupt
    ) -> None:
        """Raise CloudsUnavailable, or let silence be the answer in rounds that take it."""
        unfinished = [one for one in running if not one.is_over]
        if all(one.round.forgiving for one in unfinished):
            for one in unfinished:
                silent = [cloud for cloud in one.round.asks if cloud not in one.answers]
                for cloud, reason in loop.explain(event, silent).items():
                    one.reasons[cloud], one.kinds[cloud] = reason, "unreadable"
                    one.forgive(cloud)
            return
        reasons: dict[int, str] = {}
        for one in unfinished:
            reasons |= one.reasons | loop.explain(event, one.waiting)
        raise CloudsUnavailable(what, self._clouds.by_name(reasons))


def _waits(job: Job) -> bool:
    return job.state == "waiting"


def _report(loop: OperationLoop[_Answered], position: int, cloud: int, answer: ports.Answer[Answer]) -> None:
    loop.report(_Answered(position, cloud, answer))


def _size(round_: Round) -> int:
    return max(map(_ask_size, round_.asks.values()), default=0)


def _ask_size(ask: Ask) -> int:
    if ask.read is not None:
        return ask.read.size
    return sum(len(data) for _, data in ask.puts) if ask.puts else _LIST_BYTES


def _carry_out(ask: Ask, store: Store) -> Answer:
    for name, data in ask.puts:
        store.put(name, data)
    if ask.deletes:
        store.delete_many(ask.deletes)
    names = () if ask.prefix is None else _list(store, ask)
    return Answer(names, b"" if ask.read is None else _read(store, ask.read))


def _read(store: Store, read: Read) -> bytes:
    if read.whole:
        return store.get(read.name, limit=read.size)
    return store.get_range(read.name, 0, read.size)


def _list(store: Store, ask: Ask) -> tuple[str, ...]:
    """List a prefix. Of a list of several pages the first comes last again: what was deleted between the
    pages is overtaken by a name that is there then (`Register.clear`)."""
    prefix = ask.prefix or ""
    page = store.list(prefix)
    first, found = page.names, dict.fromkeys(page.names)
    for _ in range(ask.pages):
        if not page.more or not page.names or (ask.will_do is not None and ask.will_do(first)):
            break
        page = store.list(prefix, after=page.names[-1], limit=MAX_PAGE)
        found |= dict.fromkeys(page.names)
    if page.names != first:
        found |= dict.fromkeys(store.list(prefix).names)
    return tuple(found)
