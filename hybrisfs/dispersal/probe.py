"""Looking again at clouds that are not well, and at single objects for fsck."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hybrisfs.dispersal.cloud import Answer, CloudPort
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.health import Offence
from hybrisfs.dispersal.operation import Interrupt, OperationLoop

__all__ = ["Marker", "check", "probe"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A small object that every cloud has held since it was added to the volume."""

    name: str
    data: bytes

    def verify(self, data: bytes) -> None:
        """Raise IntegrityError unless `data` is the marker."""
        if data != self.data:
            raise IntegrityError("it is not this volume's marker (another folder or account?)")


class _Look(NamedTuple):
    """One acknowledged object to be read from one cloud."""

    port: CloudPort
    name: str
    limit: int
    verify: Callable[[bytes], object]


class _Looked(NamedTuple):
    look: _Look
    answer: Answer[bytes]


class _Wrote(NamedTuple):
    port: CloudPort


def check(
    clouds: Clouds, number: int, name: str, limit: int, verify: Callable[[bytes], object], timeout: float
) -> str | None:
    """Return what is wrong with an object that this cloud acknowledged, or None; its health learns it."""
    port = clouds[number]
    with OperationLoop[_Looked | _Wrote](clouds.operations, timeout) as loop:
        _begin(loop, _Look(port, name, limit, verify))
        event = loop.wait()
    if isinstance(event, Interrupt):
        return f"{name} cannot be read: {clouds.explain_interrupt(event, [number], timeout)}"
    return _judge(event.look, event.answer) if isinstance(event, _Looked) else None


def probe(clouds: Clouds, marker: Marker, everyone: bool, timeout: float) -> None:
    """Read from clouds that are not well what they had lost or altered and the marker, all at once.

    With `everyone` the marker is read from the others too. A cloud that was full gets the marker written.
    """
    waiting = dict.fromkeys(clouds, 0)
    with OperationLoop[_Looked | _Wrote](clouds.operations, timeout) as loop:
        for port in clouds:
            for look in _looks(port, marker, everyone):
                _begin(loop, look)
                waiting[port] += 1
            if port.full and port.probe_due():
                _rewrite(loop, port, marker)
                waiting[port] += 1
        while any(waiting.values()):
            match loop.wait():
                case _Looked(look, answer):
                    _judge(look, answer)
                    waiting[look.port] -= 1
                case _Wrote(port):
                    waiting[port] -= 1
                case interrupt:
                    clouds.explain_interrupt(interrupt, (p.number for p in waiting if waiting[p]), timeout)
                    return


def _looks(port: CloudPort, marker: Marker, everyone: bool) -> Iterator[_Look]:
    rechecks = port.take_rechecks()
    for name, offence in rechecks.items():
        yield _Look(port, name, offence.limit, offence.recheck)
    if (everyone or rechecks or port.probe_due()) and marker.name not in rechecks:
        yield _Look(port, marker.name, len(marker.data), marker.verify)


def _begin(loop: OperationLoop[_Looked | _Wrote], look: _Look) -> None:
    job = look.port.submit(
        "get",
        look.limit,
        lambda store: store.get(look.name, limit=look.limit),
        lambda answer: loop.report(_Looked(look, answer)),
    )
    loop.track(look.port, job)


def _rewrite(loop: OperationLoop[_Looked | _Wrote], port: CloudPort, marker: Marker) -> None:
    job = port.submit(
        "put",
        len(marker.data),
        lambda store: store.put(marker.name, marker.data),
        lambda _: loop.report(_Wrote(port)),
        key=marker.name,
    )
    loop.track(port, job)


def _judge(look: _Look, answer: Answer[bytes]) -> str | None:
    port, name, limit, verify = look
    if answer.missing:
        problem = f"{name} is missing although it was acknowledged"
    elif answer.corrupt:
        problem = f"{name} is damaged: {answer.reason}"
    elif answer.value is None:
        return f"{name} cannot be read: {answer.reason}"
    else:
        try:
            verify(answer.value)
        except (IntegrityError, ValueError) as error:
            problem = f"{name} is wrong: {error}"
        else:
            port.cleared(name)
            port.in_time()
            return None
    port.lied(name, Offence(problem, limit, verify))
    return problem
