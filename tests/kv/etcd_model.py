"""An etcd in memory, and clients of it that stop before each request until a schedule lets them go on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, TypeVar

from hybrisfs.kv.etcd_client import EtcdClient, EtcdError, EtcdSettings, OutcomeUnknownError
from hybrisfs.kv.etcd_requests import Compare, Found, KeyValue, Outcome, Put, Range, Remove

__all__ = ["Actor", "EtcdModel", "Killed", "ModelClient", "Verdict"]

_MOST_OPERATIONS: Final = 128
T = TypeVar("T")


class EtcdModel:
    """What the servers hold. *changed* is called after each transaction with the keys before and after it."""

    def __init__(self, changed: Callable[[dict[bytes, KeyValue], dict[bytes, KeyValue]], None]) -> None:
        self.keys: dict[bytes, KeyValue] = {}
        self.leases: dict[int, set[bytes]] = {}
        self.revision = 1
        self._moments = {1: self.keys}
        self._changed = changed
        self._numbers = itertools.count(1)

    def range(self, asked: Range) -> Found:
        keys = self._moments[asked.revision or self.revision]
        if asked.end is None:
            found = [keys[asked.first]] if asked.first in keys else []
        else:
            found = [keys[key] for key in sorted(keys) if asked.first <= key < asked.end]
        shown = found[: asked.limit] if asked.limit else found
        if asked.keys_only:
            shown = [one._replace(value=b"") for one in shown]
        return Found(shown, self.revision, len(shown) < len(found))

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[Range]
    ) -> Outcome:
        assert max(len(compare), len(then), len(otherwise)) <= _MOST_OPERATIONS
        if not all(self._holds(one) for one in compare):
            return Outcome(False, self.revision, [self.range(one) for one in otherwise])
        revision, keys, put = self.revision + 1, dict(self.keys), set[bytes]()
        for change in then:
            if isinstance(change, Put):
                if change.lease and change.lease not in self.leases:
                    raise EtcdError("the etcd refused a request", "requested lease not found")
                assert change.key not in put, "etcd refuses that"
                put.add(change.key)
                keys[change.key] = KeyValue(change.key, change.value, revision)
                if change.lease:
                    self.leases[change.lease].add(change.key)
            else:
                end = change.first + b"\0" if change.end is None else change.end
                for key in [key for key in keys if change.first <= key < end]:
                    assert key not in put, "etcd refuses that"
                    del keys[key]
        self._become(keys)
        return Outcome(True, self.revision, [])

    def grant_lease(self) -> int:
        lease = next(self._numbers)
        self.leases[lease] = set()
        return lease

    def end_lease(self, lease: int) -> None:
        gone = self.leases.pop(lease, set())
        if gone:
            self._become({key: one for key, one in self.keys.items() if key not in gone})

    def _holds(self, one: Compare) -> bool:
        there = self.keys.get(one.key)
        if one.revision is None:
            return there is not None
        return (0 if there is None else there.revision) == one.revision

    def _become(self, keys: dict[bytes, KeyValue]) -> None:
        before, self.keys = self.keys, keys
        self.revision += 1
        self._moments[self.revision] = keys
        self._changed(before, keys)


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


class ModelClient(EtcdClient):
    """The connection of one process. Requests of others than actors are answered at once."""

    def __init__(self, model: EtcdModel, late: list[Callable[[], object]], slow: Callable[[], None]) -> None:
        """*late*: requests that have not arrived yet; *slow* is called when there was no answer."""
        super().__init__(EtcdSettings.parse("etcd://model"), None, 10.0)
        self._model = model
        self._late = late
        self._slow = slow
        self.is_dead = False
        """Whether its process has ended."""

    def range(self, asked: Range) -> Found:
        return self._asked(lambda: self._model.range(asked), reads=True)

    def look(self, *asked: Range) -> Sequence[Found]:
        return self._asked(lambda: [self._model.range(one) for one in asked], reads=True)

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[Range] = ()
    ) -> Outcome:
        return self._asked(lambda: self._model.transact(compare, then, otherwise))

    def grant_lease(self, seconds: int) -> int:
        return self._asked(self._model.grant_lease)

    def keep_alive(self, lease: int) -> bool:
        return self._asked(lambda: lease in self._model.leases, reads=True)

    def end_lease(self, lease: int) -> None:
        self._asked(lambda: self._model.end_lease(lease))

    def _asked(self, request: Callable[[], T], *, reads: bool = False) -> T:
        actor = threading.current_thread()
        verdict = actor.pause() if isinstance(actor, Actor) else Verdict.ANSWERED
        if verdict is Verdict.KILLED_AFTER and not reads:
            self._late.append(request)
        if verdict in (Verdict.KILLED, Verdict.KILLED_AFTER):
            raise Killed
        if self.is_dead:
            raise EtcdError("the process has ended")
        if verdict is Verdict.ANSWERED:
            return request()
        if verdict is Verdict.REFUSED or reads:
            raise EtcdError("the etcd refused a request")
        if verdict is Verdict.UNANSWERED:
            request()
        else:
            self._late.append(request)
        self._slow()
        raise OutcomeUnknownError("the etcd has not answered")
