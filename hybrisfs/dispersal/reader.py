"""Runs the GET machine against the clouds, verifies what comes back and says who is to blame."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Generic, NamedTuple, TypeVar

from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.errors import (
    ChunkUnavailable,
    CloudsUnavailable,
    IntegrityError,
    ObjectMissing,
    Superseded,
    UnreadableHereError,
)
from hybrisfs.dispersal.get import Fetch, GetAction, GetFailed, GetMachine, Verify
from hybrisfs.dispersal.health import Offence
from hybrisfs.dispersal.operation import SUPERSEDED, TIMER, Interrupt, OperationLoop
from hybrisfs.dispersal.put import SetTimer
from hybrisfs.dispersal.read import Read
from hybrisfs.dispersal.recall import recall

__all__ = ["get"]

T = TypeVar("T")


class _Fetched(NamedTuple):
    position: int
    answer: Answer[bytes]


def get(clouds: Clouds, read: Read[T], timeout: float) -> T:
    """Return the value. Raises `read.failure` with the reason per cloud, after `timeout` seconds at most.

    Raises Superseded when the subscription tells so.
    """
    with OperationLoop[_Fetched](clouds.operations, timeout) as loop:
        subscription = nullcontext() if read.subscribe is None else read.subscribe(loop.supersede)
        with subscription:
            if read.subscribe is not None and not read.current():
                raise Superseded(f"{read.what} has been written anew")
            return _Get(clouds, read, loop, timeout).run()


class _Get(Generic[T]):
    """One read under way."""

    def __init__(self, clouds: Clouds, read: Read[T], loop: OperationLoop[_Fetched], timeout: float) -> None:
        self._clouds = clouds
        self._read = read
        self._loop = loop
        self._timeout = timeout
        self._parts: dict[int, bytes] = {}
        self._late: set[int] = set()
        self._missing: set[int] = set()
        self._amiss: set[int] = set()  # positions that answered, but not with what was written
        # Positions whose bytes announce a newer format: a lie only if another cloud has the value.
        self._newer: dict[int, str] = {}
        self._alleged: dict[int, str] = {}
        position = {target.cloud: index for index, target in enumerate(read.targets)}
        order = [position[cloud] for cloud in clouds.order("get", read.size, position)]
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
                raise Superseded(f"{self._read.what} has been written anew")
            case _:
                return machine.give_up(self._clouds.explain_interrupt(event, self._flying(), self._timeout))

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
