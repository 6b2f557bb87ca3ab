"""Runs the GET machine against the clouds, verifies what comes back and says who is to blame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from backends.errors import StoreError
from backends.store import Store
from backends.versions import Version, Versions, older_versions, versions_of
from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import SUPERSEDED, TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.errors import (
    ChunkUnavailable,
    CloudsUnavailable,
    EarlierVersionError,
    IntegrityError,
    ObjectMissing,
    Superseded,
    UnreadableHereError,
)
from hybrisfs.dispersal.get import Fetch, GetAction, GetFailed, GetMachine, Verify
from hybrisfs.dispersal.put import SetTimer
from hybrisfs.dispersal.ranking import Offence

__all__ = ["Read", "Readable", "Target", "get", "older_bytes"]

# -- older versions of objects as further candidates ----------------------------------------------------
# Nothing of this is asked for while the present objects are right. It changes nothing of what is believed: an
# older version is verified like any answer, and heads are never read this way (`clouds.others_log`).
# That a cloud does not tell, or may not be asked, is held against nobody.


S = TypeVar("S")
T = TypeVar("T")

_LIST: Final = 0  # bytes that a list of versions counts as


class _OlderObjects:
    """A cloud as it was, so far as one version of one object is asked for."""

    def __init__(self, versions: Versions, version: Version) -> None:
        self._versions = versions
        self._version = version

    def get(self, name: str, *, limit: int) -> bytes:
        return self._versions.get(name, self._version.id, limit=limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._versions.get_range(name, self._version.id, offset, length)


def older_bytes(
    store: Store, name: str, version: Version, fetch: Callable[[Readable, str], bytes]
) -> bytes | None:
    """What *fetch* reads of a version; None when it cannot be had."""
    versions = versions_of(store)
    try:
        return None if versions is None else fetch(_OlderObjects(versions, version), name)
    except StoreError:
        return None


class _Listed(NamedTuple):
    position: int
    versions: tuple[Version, ...]


class _Recalled(NamedTuple):
    position: int
    data: bytes | None


def recall(
    clouds: Clouds, read: Read[T], parts: Mapping[int, bytes], amiss: Collection[int], timeout: float
) -> list[T]:
    """Rebuild a value from the *parts* that are right and from older versions of those that are *amiss*: the
    value, or nothing.

    Asks each position for one version after the other, the newest first, those of all positions side by side.
    """
    with OperationLoop[_Listed | _Recalled](clouds.operations, timeout) as loop:
        return _Recall(clouds, read, loop, dict(parts)).run(amiss)


class _Recall(Generic[T]):
    """One attempt."""

    def __init__(
        self,
        clouds: Clouds,
        read: Read[T],
        loop: OperationLoop[_Listed | _Recalled],
        parts: dict[int, bytes],
    ) -> None:
        self._clouds = clouds
        self._read = read
        self._loop = loop
        self._parts = parts
        self._left: dict[int, list[Version]] = {}

    def run(self, amiss: Collection[int]) -> list[T]:
        asked = [one for one in sorted(amiss) if self._read.targets[one].cloud in self._clouds]
        for position in asked:
            self._list(position)
        for event in self._events(len(asked)):
            if isinstance(event, _Listed):
                self._left[event.position] = list(event.versions)
        while True:
            due = [one for one, left in self._left.items() if left and one not in self._parts]
            for position in due:
                self._fetch(position, self._left[position].pop(0))
            for event in self._events(len(due)):
                if isinstance(event, _Recalled) and event.data is not None:
                    self._parts[event.position] = event.data
            while len(self._parts) >= self._read.k:
                chosen = dict(list(self._parts.items())[: self._read.k])
                try:
                    return [self._read.rebuild(chosen)]
                except (IntegrityError, ValueError):
                    self._drop(chosen)
            if not any(left for one, left in self._left.items() if one not in self._parts):
                return []

    def _drop(self, chosen: Mapping[int, bytes]) -> None:
        """Do without what is wrong of *chosen*, or without all of it when nobody can tell what is."""
        blame = self._read.blame
        wrong = None if blame is None else blame(chosen, self._loop.remaining())
        for position in wrong or chosen:
            self._parts.pop(position, None)

    def _list(self, position: int) -> None:
        name = self._read.targets[position].name
        self._submit(
            position,
            _LIST,
            lambda store: older_versions(store, name),
            lambda versions: _Listed(position, versions or ()),
        )

    def _fetch(self, position: int, version: Version) -> None:
        read = self._read
        name = read.targets[position].name
        self._submit(
            position,
            read.size,
            lambda store: older_bytes(store, name, version, read.fetch),
            lambda data: _Recalled(position, data),
        )

    def _submit(
        self,
        position: int,
        size: int,
        call: Callable[[Store], S],
        event: Callable[[S | None], _Listed | _Recalled],
    ) -> None:
        port = self._clouds[self._read.targets[position].cloud]
        job = port.submit(
            "get",
            size,
            call,
            lambda answer: self._loop.report(event(answer.value)),
            clock=self._loop.clock,
            ranked=False,
        )
        self._loop.track(port, job)

    def _events(self, count: int) -> Iterator[_Listed | _Recalled]:
        """So many events, or as many as come in time; none after that."""
        for _ in range(count):
            event = self._loop.wait()
            if isinstance(event, Interrupt):
                self._left.clear()
                return
            yield event


# -- runs the GET machine against the clouds, verifies what comes back and says who is to blame ---------


class _Fetched(NamedTuple):
    position: int
    answer: Answer[bytes]


def get(clouds: Clouds, read: Read[T], timeout: float) -> T:
    """Return the value. Raises `read.failure` with the reason per cloud, at the latest when nothing of it has
    moved for `timeout` seconds.

    Raises Superseded when the subscription tells so.
    """
    with OperationLoop[_Fetched](clouds.operations, timeout) as loop:
        subscription = nullcontext() if read.subscribe is None else read.subscribe(loop.supersede)
        with subscription:
            if read.subscribe is not None and not read.current():
                raise Superseded(f"{read.what} has been rewritten")
            return _Get(clouds, read, loop).run()


class _Get(Generic[T]):
    """One read under way."""

    def __init__(self, clouds: Clouds, read: Read[T], loop: OperationLoop[_Fetched]) -> None:
        self._clouds = clouds
        self._read = read
        self._loop = loop
        self._parts: dict[int, bytes] = {}
        self._late: set[int] = set()
        self._missing: set[int] = set()
        self._amiss: set[int] = set()  # positions that answered, but not with what was written
        # Positions whose bytes announce a newer format: a lie only if another cloud has the value.
        self._newer: dict[int, str] = {}
        self._alleged: dict[int, str] = {}
        position = {target.cloud: index for index, target in enumerate(read.targets)}
        order = [position[cloud] for cloud in clouds.order("get", read.size, position, asked=read.k)]
        order.sort(key=lambda index: not read.targets[index].owed)
        usual = clouds.usual((read.targets[i].cloud for i in order[: read.k]), "get", read.size)
        self._machine = GetMachine(
            read.k,
            order,
            timer=usual,
            rounds=read.rounds,
            pause=clouds.first_pause,
            eager=read.eager,
            absent=read.absent,
        )

    def run(self) -> T:
        actions = deque(self._machine.start())
        while True:
            while actions:
                match actions.popleft():
                    case Fetch(index):
                        self._fetch(index)
                    case SetTimer(seconds):
                        self._loop.set_timer(seconds)
                    case GetFailed(reasons):
                        for value in self._recalled():
                            return value
                        raise self._failure(reasons)
                    case Verify(indices):
                        chosen = {index: self._parts[index] for index in indices}
                        try:
                            value = self._read.rebuild(chosen)
                        except (IntegrityError, ValueError) as error:
                            actions.extend(self._rejected(chosen, error))
                        else:
                            for index, reason in {**self._alleged, **self._newer}.items():
                                self._hold_against(index, reason)
                            return value
            actions.extend(self._step(self._loop.wait()))

    def _recalled(self) -> list[T]:
        """What older versions give, where the present objects are missing or wrong."""
        if not (self._amiss and self._read.older):
            return []
        parts = {index: part for index, part in self._parts.items() if index not in self._amiss}
        return recall(self._clouds, self._read, parts, self._amiss, self._loop.remaining())

    def _fetch(self, index: int) -> None:
        read = self._read
        target = read.targets[index]
        port = self._clouds[target.cloud]
        job = port.submit(
            "get",
            read.size,
            lambda store: read.fetch(store, target.name),
            lambda answer: self._loop.report(_Fetched(index, answer)),
            clock=self._loop.clock,
        )
        self._loop.track(port, job)

    def _step(self, event: _Fetched | Interrupt) -> list[GetAction]:
        machine = self._machine
        match event:
            case _Fetched(index, answer):
                return self._arrived(index, answer)
            case _ if event is TIMER:
                late = set(self._flying()) - self._late
                self._late |= late
                self._clouds.mark_late(late, "get", self._read.size, self._loop.timer_length)
                return machine.timer_expired()
            case _ if event is SUPERSEDED:
                raise Superseded(f"{self._read.what} has been rewritten")
            case _:
                reasons = self._loop.explain(event, self._flying())
                return machine.give_up({i: reasons[self._read.targets[i].cloud] for i in machine.flying})

    def _arrived(self, index: int, answer: Answer[bytes]) -> list[GetAction]:
        target = self._read.targets[index]
        if answer.value is not None:
            self._amiss.discard(index)
            self._parts[index] = answer.value
            if target.cloud not in self._late:
                self._clouds[target.cloud].in_time()
            return self._machine.arrived(index)
        reason = answer.reason
        if answer.missing or answer.corrupt:
            self._amiss.add(index)
        if answer.missing:
            self._missing.add(index)
            reason = "it has no such object"
        if target.owed and (answer.missing or answer.corrupt) and self._read.current():
            reason = "is missing although it was acknowledged" if answer.missing else f"is damaged: {reason}"
            self._lied(index, reason)
        return self._machine.failed(index, reason, denied=answer.missing)

    def _rejected(self, chosen: Mapping[int, bytes], error: Exception) -> list[GetAction]:
        read = self._read
        wrong: Mapping[int, str] | None = dict.fromkeys(chosen, f"is wrong: {error}")
        if read.blame is not None:
            wrong = read.blame(chosen, self._loop.remaining())
        self._amiss |= (chosen if wrong is None else wrong).keys()
        if wrong is None:
            return self._machine.rejected(
                chosen.keys(), f"{error}, and no cloud can prove whose share is wrong"
            )
        if not wrong:
            raise read.failure(f"{read.what}: every share is as it was written, but {error}", {})
        for index, reason in wrong.items():
            if isinstance(error, EarlierVersionError):
                continue  # `broadcast` does not wait for clouds that are slow
            if isinstance(error, UnreadableHereError):
                self._newer[index] = reason
            else:
                self._lied(index, reason)
        return self._machine.rejected(wrong.keys(), "; ".join(sorted(set(wrong.values()))))

    def _lied(self, index: int, reason: str) -> None:
        if self._read.hearsay:
            self._alleged[index] = reason
        else:
            self._hold_against(index, reason)

    def _hold_against(self, index: int, reason: str) -> None:
        target = self._read.targets[index]
        limit, check = self._read.recheck(index)
        self._clouds[target.cloud].lied(target.name, Offence(f"{target.name} {reason}", limit, check))

    def _flying(self) -> list[int]:
        return [self._read.targets[index].cloud for index in self._machine.flying]

    def _failure(self, reasons: Mapping[int, str]) -> ChunkUnavailable | CloudsUnavailable:
        read = self._read
        failure = read.failure
        if read.absent is not None and len(self._missing) >= read.absent:
            failure = ObjectMissing
        gone = [target.cloud for target in read.targets if target.cloud not in self._clouds]
        by_cloud = dict.fromkeys(gone, "is no longer configured")
        by_cloud |= {read.targets[index].cloud: reason for index, reason in reasons.items()}
        return failure(f"{read.what} cannot be read", self._clouds.by_name(by_cloud))


# -- a value to be read: where its parts are, how it is rebuilt from them, and which clouds owe it ------


class Readable(Protocol):
    """What of a store it takes to read an object."""

    def get(self, name: str, *, limit: int) -> bytes:
        """See `Store.get`."""

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """See `Store.get_range`."""


class Target(NamedTuple):
    """An object at a cloud; `owed` when that cloud acknowledged it."""

    cloud: int
    name: str
    owed: bool


class Read(Struct, Generic[T], frozen=True):
    """A value to be rebuilt from what any `k` of the targets return.

    `rebuild` gets bytes by position and raises IntegrityError or ValueError when they are wrong. With k > 1
    `blame` then returns what is wrong by position, or None when that cannot be found out now; it may ask
    clouds itself within the seconds given. `recheck(position)` returns the size limit and the check of that
    cloud's whole object, for later. `absent` is how many clouds prove by their word that there is none; then
    those that are late are not waited for. `rounds` is how often all clouds are asked again when none has it;
    `eager` asks all from the start. `older`: whether older versions of the objects may be read when they are
    missing or wrong. `current` says whether the clouds still owe what is read, or may have got a request to
    delete it. `subscribe` has a function called when they need not have it any more, as long as its result is
    entered. `hearsay`: that the clouds owe it is only said: nothing is held against any before another one
    has delivered it.
    """

    what: str
    k: int
    targets: Sequence[Target]
    size: int
    fetch: Callable[[Readable, str], bytes]
    rebuild: Callable[[Mapping[int, bytes]], T]
    recheck: Callable[[int], tuple[int, Callable[[bytes], object]]]
    failure: type[ChunkUnavailable] | type[CloudsUnavailable]
    blame: Callable[[Mapping[int, bytes], float], Mapping[int, str] | None] | None = None
    absent: int | None = None
    rounds: int = 2
    eager: bool = False
    older: bool = True
    current: Callable[[], bool] = lambda: True
    subscribe: Callable[[Callable[[], None]], AbstractContextManager[object]] | None = None
    hearsay: bool = False
