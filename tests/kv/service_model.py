"""A service in memory, and clients of it that stop before each request until a schedule lets them go on."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, TypeVar

from hybrisfs.environment import SYSTEM
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    OutcomeUnknownError,
    Put,
    Reading,
    Remove,
    ServiceError,
    after_prefix,
)
from hybrisfs.kv.zookeeper_reads import Bucket, BucketReading

__all__ = ["Actor", "Killed", "LooseClient", "ModelClient", "Keys", "ServiceModel", "Verdict", "in_range"]

_MOST_OPERATIONS: Final = 128
_HALF: Final = 1 << 32
T = TypeVar("T")
Keys = Mapping[bytes, KeyValue]


class ServiceModel:
    """What the servers hold. *changed* is called after each transaction with the keys before and after it.

    Revisions are those of etcd, or, *restarting*, those of ZooKeeper: a key that is made again begins again,
    and only containers tell how often one came or went.
    """

    def __init__(self, changed: Callable[[Keys, Keys], None], *, restarting: bool = False) -> None:
        self.keys: dict[bytes, KeyValue] = {}
        self.leases: dict[int, set[bytes]] = {}
        self.moments: list[dict[bytes, KeyValue]] = [self.keys]
        self._restarting = restarting
        self._containers = 1
        self._changed = changed
        self._numbers = itertools.count(1)

    def transact(self, compare: Sequence[Compare], then: Sequence[Put | Remove], lease: int = 0) -> Outcome:
        assert max(len(compare), len(then)) <= _MOST_OPERATIONS
        if not all(self._holds(one) for one in compare):
            return Outcome(False, {}, ())
        if lease and lease not in self.leases:
            raise ServiceError("the service refused a request", "requested lease not found")
        keys, put = dict(self.keys), set[bytes]()
        for change in then:
            if isinstance(change, Put):
                assert change.key not in put, "etcd refuses that"
                put.add(change.key)
                keys[change.key] = KeyValue(change.key, change.value, 0)
                if lease:
                    self.leases[lease].add(change.key)
            else:
                end = change.first + b"\0" if change.end is None else change.end
                for key in in_range(keys, change.first, end):
                    assert key not in put, "etcd refuses that"
                    del keys[key]
        self._containers += any(key.startswith(b"c/") for key in keys.keys() ^ self.keys.keys())
        for key in put:
            keys[key] = keys[key]._replace(revision=self._revision(key))
        self._become(keys)
        return Outcome(True, {key: keys[key].revision for key in put}, ())

    def _revision(self, key: bytes) -> int:
        if not self._restarting:
            return len(self.moments) + 1
        before = self.keys.get(key)
        version = 1 if before is None else before.revision % _HALF + 1
        return version + (_HALF * self._containers if key.startswith(b"c/") else 0)

    def look(self, key: bytes) -> KeyValue | None:
        one = self.keys.get(key)
        if one is not None and self._restarting and key.startswith(b"c/"):
            return one._replace(revision=one.revision % _HALF + _HALF * self._containers)
        return one

    def grant_lease(self) -> int:
        lease = next(self._numbers)
        self.leases[lease] = set()
        return lease

    def end_lease(self, lease: int) -> None:
        gone = self.leases.pop(lease, set())
        if gone:
            self._become({key: one for key, one in self.keys.items() if key not in gone})

    def _holds(self, one: Compare) -> bool:
        there = self.look(one.key)
        if one.revision is None:
            return there is not None
        return (0 if there is None else there.revision) == one.revision

    def _become(self, keys: dict[bytes, KeyValue]) -> None:
        before, self.keys = self.keys, keys
        self.moments.append(keys)
        self._changed(before, keys)


def in_range(keys: Keys, first: bytes, end: bytes) -> list[bytes]:
    """The keys of a range in order."""
    return sorted(key for key in keys if first <= key < end)


class Verdict(Enum):
    """What becomes of a request."""

    ANSWERED = auto()
    UNANSWERED = auto()
    """It is carried out, and the answer gets lost."""
    LATE = auto()
    """The client gives up, and it is carried out later, if ever."""
    REFUSED = auto()
    """Nothing is done, and the client knows."""
    KILLED = auto()
    """The process ends before it asks."""
    KILLED_AFTER = auto()
    """The process ends; the request is carried out later, if ever."""


class Killed(BaseException):
    """The process of an actor has ended."""


class Actor(threading.Thread):
    """Something that a process does, in steps: each step ends before a request, or with the whole."""

    def __init__(self, what: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._what = what
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._verdict = Verdict.ANSWERED
        self.over = False
        self.failure: BaseException | None = None
        self.is_exclusive = False
        """Whether it holds a lock of its process: no other actor of that may go on."""
        self.waits: Callable[[], bool] | None = None
        """Whether it waits for another actor still."""
        self.start()
        self._stopped.acquire()

    def step(self, verdict: Verdict) -> None:
        """Let it go on to its next request, or to its end; this one gets the verdict."""
        self._verdict = verdict
        self._go.release()
        self._stopped.acquire()

    def pause(self) -> Verdict:
        """Called by the actor itself, before a request."""
        self._stopped.release()
        self._go.acquire()
        return self._verdict

    @property
    def is_able(self) -> bool:
        """Whether it can go on."""
        return self.waits is None or not self.waits()

    def wait_while(self, waits: Callable[[], bool]) -> None:
        """Pause as long as another one has not done its part. Raises Killed."""
        self.waits = waits
        while waits():
            self.rest()
        self.waits = None

    def rest(self) -> None:
        """Pause, without a request that could get lost. Raises Killed."""
        if self.pause() in (Verdict.KILLED, Verdict.KILLED_AFTER):
            raise Killed

    def run(self) -> None:
        try:
            self.rest()
            self._what()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failure = error
        self.over = True
        self._stopped.release()


class ModelClient(MetadataService):
    """The connection of one process. Requests of others than actors are answered at once. As to etcd: what is
    looked at together is of one moment."""

    def __init__(
        self, model: ServiceModel, late: list[Callable[[], object]], slow: Callable[[], None]
    ) -> None:
        """*late*: requests that have not arrived yet; *slow* is called when there was no answer."""
        super().__init__(SYSTEM)
        self.model = model
        self._late = late
        self._slow = slow
        self.lease: int | None = None
        self.is_dead = False
        """Whether its process has ended."""

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        return self._asked(lambda: [self.model.look(key) for key in keys], reads=True)

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        keys = self._asked(lambda: self.model.keys, reads=True)
        for key in in_range(keys, first, end):
            yield KeyValue(key, b"", 0) if keys_only else keys[key]

    def groups(self, kind: bytes) -> Sequence[bytes]:
        keys = self._asked(lambda: self.model.keys, reads=True)
        return sorted({key.split(b"/")[1] for key in keys if key.startswith(kind + b"/")})

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        return _ModelReading(self, first, end)

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        def request() -> Outcome:
            outcome = self.model.transact(compare, then)
            found = [] if outcome.succeeded else [self.model.look(key) for key in otherwise]
            return outcome._replace(found=found)

        return self._asked(request)

    def announce(self, key: bytes, seconds: int) -> None:
        lease = self.lease
        if lease is None or not self._asked(lambda: lease in self.model.leases, reads=True):
            granted = self._asked(self.model.grant_lease)
            self._asked(lambda: self.model.transact((), [Put(key, b"")], granted))
            self.lease = granted

    def withdraw(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            self._asked(lambda: self.model.end_lease(lease))

    def watch(
        self, key: bytes, revision: int, changed: Callable[[], None]
    ) -> contextlib.AbstractContextManager[object]:
        raise NotImplementedError("no schedule watches a key")

    def check(self) -> None:
        raise NotImplementedError("no person logs in")

    def close(self) -> None:
        """There is nothing to be closed."""

    def _asked(self, request: Callable[[], T], *, reads: bool = False) -> T:
        actor = threading.current_thread()
        verdict = actor.pause() if isinstance(actor, Actor) else Verdict.ANSWERED
        if verdict is Verdict.KILLED_AFTER and not reads:
            self._late.append(request)
        if verdict in (Verdict.KILLED, Verdict.KILLED_AFTER):
            raise Killed
        if self.is_dead:
            raise ServiceError("the process has ended")
        if verdict is Verdict.ANSWERED:
            return request()
        if verdict is Verdict.REFUSED or reads:
            raise ServiceError("the service refused a request")
        if verdict is Verdict.UNANSWERED:
            request()
        else:
            self._late.append(request)
        self._slow()
        raise OutcomeUnknownError("the service has not answered")


class LooseClient(ModelClient):
    """As to ZooKeeper: whatever is looked at is of a moment of its own."""

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        return [super(LooseClient, self).get(key)[0] for key in keys]

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        for one in super().scan(first, end, keys_only=True):
            if keys_only:
                yield one
            elif (found := self.get(one.key)[0]) is not None:
                yield found

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        return BucketReading(self, first, end, size)

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        outcome = self._asked(lambda: self.model.transact(compare, then))
        return outcome if outcome.succeeded else outcome._replace(found=self.get(*otherwise))

    def changes(self, container: bytes) -> Mapping[str, int]:
        """See `hybrisfs.kv.zookeeper_reads.Buckets`. A bucket has one or two keys."""
        prefix = b"k/%b/" % container
        found = {}
        for bucket in sorted(
            {_bucket(one.key) for one in super().scan(prefix, after_prefix(prefix), keys_only=True)}
        ):
            change = self._change(prefix, bucket)
            if change:
                found[bucket] = change
        return found

    def contents(self, paths: Sequence[str], first: bytes, end: bytes) -> Mapping[str, Bucket]:
        """See `hybrisfs.kv.zookeeper_reads.Buckets`."""
        prefix = b"/".join(first.split(b"/")[:2]) + b"/"
        buckets = {}
        for path in paths:
            change = self._change(prefix, path)
            found = self.scan(first, end)
            buckets[path] = Bucket(change, [one for one in found if _bucket(one.key) == path])
        return buckets

    def _change(self, prefix: bytes, bucket: str) -> int:
        """When something has last changed in a bucket; 0: there is none."""
        return self._asked(lambda: _last_change(self.model.moments, prefix, bucket), reads=True)


def _last_change(moments: Sequence[Keys], prefix: bytes, bucket: str) -> int:
    last, before = 0, list[KeyValue]()
    for number, keys in enumerate(moments):
        now = [keys[key] for key in in_range(keys, prefix, after_prefix(prefix)) if _bucket(key) == bucket]
        if now != before:
            last, before = number, now
    return last if before else 0


class _ModelReading:
    """Of the moment at which it began."""

    def __init__(self, client: ModelClient, first: bytes, end: bytes) -> None:
        self._client = client
        self._range = first, end
        self._found: list[KeyValue] | None = None

    def catch_up(self) -> bool:
        if self._found is None:
            self._found = list(self._client.scan(*self._range))
        return True

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        assert self._found is not None
        yield self._found


def _bucket(entry: bytes) -> str:
    return "odd" if entry[-1] & 1 else "even"
