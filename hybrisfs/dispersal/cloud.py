"""One cloud as the engine uses it: its store, the threads that call it, and its health."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from msgspec import Struct

from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    MissingError,
    MissingRootError,
    StoreError,
    ThrottledError,
    TransientError,
)
from backends.pacing import paced
from backends.store import Store, can_sign, signed_url, takes_many
from hybrisfs.dispersal.counting import CountingStore
from hybrisfs.dispersal.ranking import (
    CloudHealth,
    CloudState,
    FailureKind,
    Offence,
    Operation,
    Ranking,
    Timing,
)
from hybrisfs.dispersal.stopwatch import Stopwatch, WatchedPacer
from hybrisfs.dispersal.throttle import Throttle
from hybrisfs.dispersal.traffic import Traffic
from hybrisfs.dispersal.workers import CloudWorkers, Job
from hybrisfs.environment import Environment
from sync.codec import Buffer

__all__ = ["Answer", "Cloud", "CloudPort", "CloudStatus", "explain", "when_emptied"]

logger = logging.getLogger(__name__)

_SMALL: Final = 64 << 10  # bytes
_SMALL_CALLS: Final = 10  # at a time beside the others; together as many as drivers keep connections
_REFUSAL_HOLDS: Final = 6 * 3600.0  # seconds; then it is tried again whether deletions are refused still

T = TypeVar("T")


class Cloud(Struct, frozen=True):
    """A configured cloud. `number` names it in placements and never changes; the engine closes `store`."""

    number: int
    name: str
    store: Store


class CloudStatus(Struct, frozen=True):
    """The state of a cloud for people; `since` is the engine's clock when it became so."""

    number: int
    name: str
    url: str
    state: CloudState
    reason: str
    since: float


class Answer(Struct, Generic[T], frozen=True):
    """What a call to a cloud ended with: `value`, or the error."""

    value: T | None
    error: StoreError | None

    @property
    def missing(self) -> bool:
        """Whether the cloud says that it has no such object."""
        return isinstance(self.error, MissingError)

    @property
    def corrupt(self) -> bool:
        """Whether what came back cannot be the object."""
        return isinstance(self.error, CorruptError)

    @property
    def passing(self) -> bool:
        """Whether the same request may work later."""
        return isinstance(self.error, TransientError)

    @property
    def reason(self) -> str:
        """Why it failed, in words for `status`."""
        return "" if self.error is None else explain(self.error)


def explain(error: StoreError) -> str:
    """Return the reason of a store's error, with the advice, but without repeating the cloud's URL."""
    return f"{error.reason} ({error.advice})" if error.advice else error.reason


def when_emptied(name: str) -> str:
    """Return what a person can do about a cloud that was emptied for good, its marker included."""
    return f"if it was emptied or made again: hybrisfs cloud adopt {shlex.quote(name)}"


class CloudPort:
    """Runs calls to one cloud in the background and keeps its health and latencies. Thread-safe."""

    def __init__(
        self,
        cloud: Cloud,
        ranking: Ranking,
        lock: threading.Lock,
        throttle: Throttle,
        timing: Timing,
        environment: Environment,
    ) -> None:
        self.number = cloud.number
        self.name = cloud.name
        self.url = cloud.store.url
        self.signs = can_sign(cloud.store)
        self.traffic = Traffic(environment)
        self._store: Store = CountingStore(cloud.store, self.traffic.request)
        self._ranking = ranking
        self._lock = lock  # the engine's: guards the ranking and the health of all clouds
        self._throttle = throttle
        self._stall = timing.stall
        self._clock = environment.monotonic
        self._environment = environment
        self._health = CloudHealth(environment.monotonic)
        self._no_deletion, self._no_deletion_until = "", float("-inf")
        self._acknowledged: set[str] = set()  # names of objects that `put_to_all` has put
        self._workers = CloudWorkers(
            cloud.name,
            environment,
            more=_SMALL_CALLS if takes_many(cloud.store) else 0,
        )

    def submit(
        self,
        operation: Operation,
        size: int,
        call: Callable[[Store], T],
        report: Callable[[Answer[T]], None],
        *,
        clock: Stopwatch,
        started: Callable[[], None] | None = None,
        stuck: Callable[[], None] | None = None,
        key: str | None = None,
        ranked: bool = True,
        deletes: bool = False,
    ) -> Job:
        """Run `call` in the background and report its end; calls with one `key` run one after the other.

        `clock` is its operation's: it hears what the call moves, and stands still while the call is held back
        to keep within the bandwidth.
        `stuck` is called when it has to wait behind calls that are late.
        Without `ranked` its latency tells nothing about requests of that operation and size. `deletes`: it
        does nothing else, so that a refusal says nothing of the cloud's health (see `refused_deletion`).
        """
        own = Stopwatch(self._environment)

        def run() -> Callable[[], None]:
            if started is not None:
                started()
            began = own()
            watches = (own, clock)
            pacer = WatchedPacer(self._throttle.pacer(watches), self.number, watches)
            with self.traffic.transfer(operation, size, pacer) as counting, paced(counting):
                answer = self._answer(call)
            carried = counting.carried
            if not (deletes and self._note_deletion(answer.error)):
                self._record(operation, carried, own() - began if ranked else None, answer.error)
            return partial(report, answer)

        job = Job(
            run, writes=operation == "put", small=size <= _SMALL, key=key, clock=own, stuck=stuck, size=size
        )
        if not self._workers.submit(job):
            report(
                Answer(None, TransientError(self.url, operation, "", "too many requests wait for it already"))
            )
        return job

    def cancel(self, job: Job) -> None:
        """Forget a call that has not begun."""
        self._workers.cancel(job)

    def mark_late(self, job: Job) -> None:
        """A call that runs takes longer than usual: those that wait behind it need not be patient."""
        self._workers.mark_late(job)

    def detach(self, job: Job) -> None:
        """Let a call run although nobody waits for it, unless a newer one with its key overtakes it."""
        self._workers.detach(job)

    def under_way(self) -> set[str]:
        """Return the keys of the calls that have not ended."""
        return self._workers.under_way()

    def load(self) -> int:
        """Return the bytes that the cloud has yet to send for calls that run or wait."""
        return self.traffic.load("get") + self._workers.awaited()

    def put_to_all(self, store: Store, name: str, data: Buffer) -> None:
        """Put an object which all clouds are to hold: from now on this one has to have it, in this version or
        a later one."""
        store.put(name, data)
        with self._lock:
            self._acknowledged.add(name)

    def has_acknowledged(self, name: str) -> bool:
        """Whether the cloud has acknowledged some version of an object that was put with `put_to_all`."""
        with self._lock:
            return name in self._acknowledged

    def in_time(self) -> None:
        """The cloud answered before another one had to stand in."""
        with self._lock:
            self._health.in_time()

    def late(self, operation: Operation, size: int, seconds: float) -> None:
        """A request has had no answer for `seconds`, and another cloud has to stand in."""
        carried = self.traffic.carried(operation, size)
        with self._lock:
            self._health.late()
            self._ranking.waited(self.number, operation, carried, seconds)

    def silent(self, seconds: float) -> None:
        """A caller gave up waiting for an answer."""
        with self._lock:
            self._health.failed("down", f"no answer within {seconds:.0f} s")

    def lied(self, name: str, offence: Offence) -> None:
        """The cloud lost or altered an object that it had acknowledged."""
        with self._lock:
            news = self._health.lied(name, offence)
        if news:
            logger.warning("cloud %s: %s", self.name, offence.reason)

    def cleared(self, name: str) -> None:
        """An object that was wrong is right now."""
        with self._lock:
            self._health.cleared(name)

    def offences(self) -> list[str]:
        """Return the names of the objects that are known to be wrong, the longest known first."""
        with self._lock:
            return self._health.offences()

    def take_rechecks(self) -> dict[str, Offence]:
        """Return the wrong objects that should be looked at again now."""
        with self._lock:
            return self._health.take_rechecks()

    def penalty(self, operation: Operation) -> int:
        """Return how far back the cloud is put for this operation. The caller holds the lock."""
        return self._health.penalty(operation) if self.stalled() is None else 3

    def probe_due(self) -> bool:
        """Whether it should be found out now if the cloud works again."""
        with self._lock:
            return self._health.probe_due()

    @property
    def full(self) -> bool:
        """Whether the cloud had no room for the last object."""
        with self._lock:
            return self._health.full

    def status(self) -> CloudStatus:
        """Return the state for people."""
        stalled = self.stalled()
        with self._lock:
            state, reason = self._health.state()
            since = self._health.since
        if stalled is not None and state in ("ok", "slow"):
            state, reason = "down", stalled
        return CloudStatus(self.number, self.name, self.url, state, reason, since)

    def refused_deletion(self) -> str | None:
        """Why the cloud has lately refused to delete anything, None when it has not: the credentials of this
        device may lack the right to that. It is worth another try after some hours."""
        with self._lock:
            return self._no_deletion if self._clock() < self._no_deletion_until else None

    def signed_urls(self, names: Sequence[str], seconds: int, content_type: str) -> Answer[list[str]]:
        """URLs by which others can read objects for a while, see `backends.store.signed_url`. The cloud is
        not asked, so that this says nothing of its health."""
        return self._answer(lambda store: [signed_url(store, name, seconds, content_type) for name in names])

    def stop(self) -> None:
        """Begin no further call."""
        self._workers.stop()

    def close(self, grace: float) -> None:
        """Stop the threads and close the store, waiting `grace` seconds at most for calls that run."""
        if self._workers.close(grace):
            self._store.close()

    def stalled(self) -> str | None:
        """Say that a request hangs for so long that others had better not be sent; None when none does."""
        standstill = self._workers.standstill()
        if standstill is None or standstill < self._stall:
            return None
        return f"a request has had no answer for {standstill:.0f} s"

    def moves(self, job: Job) -> bool:
        """Whether a call that has not ended is a transfer that goes on."""
        return job.clock.has_moved and job.clock.standstill() < self._stall

    def transfers(self) -> bool:
        """Whether any of the calls at work is a transfer that goes on."""
        return any(map(self.moves, self._workers.running()))

    def _answer(self, call: Callable[[Store], T]) -> Answer[T]:
        try:
            return Answer(call(self._store), None)
        except StoreError as error:
            return Answer(None, error)
        except Exception as error:
            # Whatever a driver or its SDK lets escape must end as an answer: a thread waits for one.
            logger.exception("cloud %s: unexpected error", self.name)
            reason = f"unexpected {type(error).__name__}: {error}"
            return Answer(None, TransientError(self.url, "call", "", reason))

    def _note_deletion(self, error: StoreError | None) -> bool:
        """Take note of how a deletion ended; whether it was refused."""
        refused = isinstance(error, AuthError)
        with self._lock:
            if error is not None and refused:
                self._no_deletion = explain(error)
                self._no_deletion_until = self._clock() + _REFUSAL_HOLDS
            elif error is None:
                self._no_deletion_until = float("-inf")
        return refused

    def _record(
        self, operation: Operation, size: int, seconds: float | None, error: StoreError | None
    ) -> None:
        if error is not None and not isinstance(error, MissingError):
            self.traffic.failed()
        elif error is None and seconds is not None:
            self.traffic.answered(operation, size, seconds)
        with self._lock:
            health = self._health
            if error is None:
                if seconds is not None:
                    self._ranking.observe(self.number, operation, size, seconds)
                health.succeeded(operation)
            elif isinstance(error, MissingError | CorruptError):
                health.succeeded("get")  # it answered; whether the answer is a lie, the caller knows
            elif isinstance(error, ThrottledError):
                health.throttled(error.retry_after)
            elif isinstance(error, FullError):
                health.failed("full", explain(error))
            else:
                kind: FailureKind = "refusing" if isinstance(error, AuthError) else "down"
                reason = explain(error)
                if isinstance(error, MissingRootError):
                    reason += f"; {when_emptied(self.name)}"
                health.failed(kind, reason, lasting=not isinstance(error, TransientError))
