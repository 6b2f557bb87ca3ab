"""Runs the PUT machine against the clouds.

The machine runs in the caller's thread; the clouds' threads only make the calls and queue the outcome. A put
that has begun is not interrupted when its operation ends: the cloud may still finish it. That is harmless,
because a share's name holds its position, and copies of one object are written in order per cloud and name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.put import Placed, PutAction, PutFailed, PutMachine, Send, SetTimer
from sync.codec import Buffer

__all__ = ["Placement", "Write", "broadcast", "put"]

Placement: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Write:
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


def put(clouds: Clouds, write: Write, timeout: float) -> Placement:
    """Write all n objects; return the cloud of each. Raises CloudsUnavailable, at the latest when nothing of
    it has moved for `timeout` seconds."""
    order = clouds.order("put", write.size, asked=write.n)
    usual = clouds.usual(order[: write.n], "put", write.size) * write.patience_factor
    machine = PutMachine(
        write.n,
        order,
        timer=usual,
        patience=clouds.start_patience,
        pause=clouds.first_pause,
        fungible=write.fungible,
    )
    late: set[int] = set()
    with OperationLoop[_Event](clouds.operations, timeout) as loop:
        actions = deque(machine.start())
        while True:
            while actions:
                match actions.popleft():
                    case Send(index, cloud):
                        _store(clouds, loop, write, index, cloud)
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


def _store(clouds: Clouds, loop: OperationLoop[_Event], write: Write, index: int, cloud: int) -> None:
    name = write.name(index)
    port = clouds[cloud]
    job = port.submit(
        "put",
        write.size,
        lambda store: store.put(name, write.data(index)),
        lambda answer: loop.report(_Stored(cloud, index, answer)),
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


def _report_stored(loop: OperationLoop[_Stored], cloud: int, answer: Answer[None]) -> None:
    loop.report(_Stored(cloud, 0, answer))
