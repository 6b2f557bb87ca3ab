"""Runs the PUT machine against the clouds.

The machine runs in the caller's thread; the clouds' threads only make the calls and queue the outcome. A put
that has begun is not interrupted when its operation ends: the cloud may still finish it. That is harmless,
because a share's name holds its position, and copies of one object are written in order per cloud and name.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.put import Placed, PutAction, PutFailed, PutMachine, Send, SetTimer
from hybrisfs.environment import Environment
from sync.codec import Buffer

__all__ = ["PackTurns", "Placement", "Write", "broadcast", "put"]

Placement: TypeAlias = tuple[int, ...]


class Write(Struct, frozen=True):
    """`n` objects, each for a cloud of its own; with `fungible` they are copies of one object.

    A secondary cloud stands in for one that takes `patience_factor` times as long as usual.
    """

    what: str
    n: int
    size: int  # bytes of each object, for the latency classes
    name: Callable[[int], str]
    data: Callable[[int], Buffer]
    fungible: bool = False
    patience_factor: float = 1.0


class _Started(NamedTuple):
    cloud: int
    position: int


class _Stuck(NamedTuple):
    cloud: int
    position: int


class _Stored(NamedTuple):
    cloud: int
    position: int
    answer: Answer[None]


_Event: TypeAlias = _Started | _Stuck | _Stored


def put(
    clouds: Clouds,
    write: Write,
    timeout: float,
    held: dict[int, int] | None = None,
    among: Collection[int] | None = None,
) -> Placement:
    """Write all n objects; return the cloud of each. Raises CloudsUnavailable, at the latest when nothing of
    it has moved for `timeout` seconds.

    *held*: the clouds that have acknowledged some of them before. It is added to, also when this fails, and
    afterwards when a put that has begun ends late. *among*: the clouds that may be chosen, if not all.
    """
    held = {} if held is None else held
    order = clouds.order("put", write.size, among, asked=write.n)
    usual = clouds.usual(order[: write.n], "put", write.size) * write.patience_factor
    machine = PutMachine(
        write.n,
        order,
        timer=usual,
        patience=clouds.start_patience,
        pause=clouds.first_pause,
        fungible=write.fungible,
        held=dict(held),
    )
    late: set[int] = set()
    with OperationLoop[_Event](clouds.operations, timeout) as loop:
        actions = deque(machine.start())
        while True:
            while actions:
                match actions.popleft():
                    case Send(index, cloud):
                        _store(clouds, loop, write, index, cloud, held)
                    case SetTimer(seconds):
                        loop.set_timer(seconds)
                    case Placed(placement):
                        return placement
                    case PutFailed(reasons):
                        raise CloudsUnavailable(f"{write.what} was not stored", clouds.by_name(reasons))
            event = loop.wait()
            if event is TIMER:
                newly_late = machine.flying - late
                late |= newly_late
                clouds.mark_late(newly_late, "put", write.size, loop.timer_length)
            actions.extend(_step(clouds, loop, machine, event, late))


def _store(
    clouds: Clouds, loop: OperationLoop[_Event], write: Write, index: int, cloud: int, held: dict[int, int]
) -> None:
    name = write.name(index)
    port = clouds[cloud]

    def report(answer: Answer[None]) -> None:
        if answer.error is None:
            held.setdefault(index, cloud)
        loop.report(_Stored(cloud, index, answer))

    job = port.submit(
        "put",
        write.size,
        lambda store: store.put(name, write.data(index)),
        report,
        clock=loop.clock,
        started=partial(loop.report, _Started(cloud, index)),
        stuck=partial(loop.report, _Stuck(cloud, index)),
        key=name,
    )
    loop.track(port, job)


def _step(
    clouds: Clouds,
    loop: OperationLoop[_Event],
    machine: PutMachine,
    event: _Event | Interrupt,
    late: set[int],
) -> list[PutAction]:
    match event:
        case _Started(cloud, index):
            return machine.started(cloud, index)
        case _Stuck(cloud, index):
            return machine.stuck(cloud, index)
        case _Stored(cloud, index, answer):
            if answer.error is not None:
                return machine.failed(cloud, index, answer.reason, passing=answer.passing)
            if cloud not in late:
                clouds[cloud].in_time()
            return machine.acked(cloud, index)
        case _ if event is TIMER:
            return machine.timer_expired()
        case _:
            return machine.give_up(loop.explain(event, machine.flying))


def broadcast(
    clouds: Clouds,
    name: str,
    data: Buffer,
    needed: int,
    timeout: float,
    only: Container[int] | None = None,
) -> Placement:
    """Put one object on every cloud in use, or those of *only*; return those that acknowledged it in the
    usual time.

    The others may still get it afterwards. Raises CloudsUnavailable when fewer than `needed` have it and
    nothing has moved for `timeout` seconds.
    """
    size = len(data)
    ports = [
        port for port in clouds if clouds.takes_writes(port.number) and (only is None or port.number in only)
    ]
    acked: list[int] = []
    reasons: dict[int, str] = {}
    with OperationLoop[_Stored](clouds.operations, timeout) as loop:
        for port in ports:
            report = partial(_report_stored, loop, port.number)
            put = partial(port.put_to_all, name=name, data=data)
            job = port.submit("put", size, put, report, clock=loop.clock, key=name)
            port.detach(job)
            loop.track(port, job)
        loop.set_timer(clouds.usual((port.number for port in ports), "put", size))
        usual_time = True
        while len(acked) + len(reasons) < len(ports) and (usual_time or len(acked) < needed):
            match loop.wait():
                case _Stored(cloud, _, answer):
                    if answer.error is None:
                        acked.append(cloud)
                    else:
                        reasons[cloud] = answer.reason
                case event if event is TIMER:
                    usual_time = False
                case event:
                    silent = {port.number for port in ports}.difference(acked, reasons)
                    reasons |= loop.explain(event, silent)
    if len(acked) < needed:
        raise CloudsUnavailable(f"{name} was not stored", clouds.by_name(reasons))
    return tuple(acked)


# -- packs take turns ----------------------------------------------------------------------------------------
# Packs that share a line take longer the more there are of them: of three that are sent side by side none is
# done before the time of three is over. One after the other, the first is done after a third of it: who waits
# for it goes on, and a restart has less to send again. So there are as many at a time as keep the line busy.
# The next one begins when those under way should have been sent, by what the last packs took; what follows,
# until the last answer is there, is the round trip. On fast lines that is at once. Bytes that were handed to
# the system do not tell, as they may wait there for the line.


_MOST_PACKS: Final = 4
_REMEMBERED: Final = 4  # packs that tell the speed of the line
_LEAD: Final = 1.0  # seconds before those under way should be over; lines that send a pack sooner get several
_LATE: Final = (1.5, 1.0)  # a factor and seconds: what takes longer than usual by these is late
_SMALL: Final = 2 << 20  # bytes of a share: it delays those under way by little, and may be waited for


class _Turn(Struct, eq=False):
    """Of one pack: the bytes of each share, and from when to when it was sent."""

    size: int
    begun: float = 0.0
    ended: float = 0.0


class PackTurns:
    """Has packs begin one after the other, in the order in which they come. Thread-safe."""

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._wait = environment.wait
        self._changed = threading.Condition()
        self._waiting = deque[_Turn]()
        self._sent: list[_Turn] = []  # under way, the oldest first
        self._done = deque[_Turn](maxlen=_REMEMBERED)

    @contextmanager
    def turn(self, size: int) -> Iterator[None]:
        """Within the block a pack with shares of *size* bytes may be sent. Waits until it is its turn.

        A small one need not wait for the line.
        """
        turn = _Turn(size)
        with self._changed:
            self._waiting.append(turn)
            while (left := self._left(turn)) > 0:
                self._wait(self._changed, lambda: self._left(turn) <= 0, None if left == inf else left)
            self._waiting.remove(turn)
            turn.begun = self._clock()
            self._sent.append(turn)
            self._changed.notify_all()
        sent = False
        try:
            yield
            sent = True
        finally:
            with self._changed:
                self._sent.remove(turn)
                turn.ended = self._clock()
                if sent and size > _SMALL:
                    self._done.append(turn)
                self._changed.notify_all()

    def _left(self, turn: _Turn) -> float:
        """The seconds until it may be its turn; infinite when another pack has to begin or to end before."""
        if len(self._sent) >= _MOST_PACKS:
            return inf
        if turn.size <= _SMALL:
            return 0.0
        if next(one for one in self._waiting if one.size > _SMALL) is not turn:
            return inf
        large = [one for one in self._sent if one.size > _SMALL]
        if not large:
            return 0.0
        if not self._done:
            return inf
        pace, elapsed = self._pace(), self._clock() - large[0].begun
        factor, seconds = _LATE
        if elapsed > factor * large[0].size * pace + seconds:
            return inf
        return sum(one.size for one in large) * pace - _LEAD - elapsed

    def _pace(self) -> float:
        """The seconds that the line took for a byte of each share of the last packs."""
        busy, until = 0.0, -inf
        for one in sorted(self._done, key=lambda one: one.begun):
            busy += max(0.0, one.ended - max(one.begun, until))
            until = max(until, one.ended)
        return busy / sum(one.size for one in self._done)


def _report_stored(loop: OperationLoop[_Stored], cloud: int, answer: Answer[None]) -> None:
    loop.report(_Stored(cloud, 0, answer))
