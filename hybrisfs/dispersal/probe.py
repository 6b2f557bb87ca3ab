"""Looking again at clouds that are not well, and at single objects for fsck and scrubbing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from backends.store import Store
from hybrisfs.dispersal.cloud import Answer, CloudPort
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.finding import Expected, Finding
from hybrisfs.dispersal.health import Offence
from hybrisfs.dispersal.operation import Interrupt, OperationLoop

__all__ = ["Marker", "Owed", "check", "check_part", "probe"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A small object that every cloud has held since it was added to the volume."""

    name: str
    data: bytes

    def verify(self, data: bytes) -> None:
        """Raise IntegrityError unless `data` is the marker."""
        if data != self.data:
            raise IntegrityError("it is not this volume's marker (another folder or account?)")


class Owed(NamedTuple):
    """An object that a cloud acknowledged: at most `limit` bytes, refused by `verify` when they are wrong."""

    port: CloudPort
    name: str
    limit: int
    verify: Callable[[bytes], object]


class _Looked(NamedTuple):
    owed: Owed
    answer: Answer[bytes]


class _Wrote(NamedTuple):
    port: CloudPort


def check(
    clouds: Clouds, owed: Owed, timeout: float, take: Callable[[bytes], object] | None = None
) -> Finding | None:
    """Read the whole object; return what is wrong with it, or None. The cloud's health learns it.

    With `take` that verifies now what `owed.verify` will verify at later looks.
    """
    finding = check_part(
        clouds, owed, lambda store: store.get(owed.name, limit=owed.limit), take or owed.verify, timeout
    )
    if finding is None:
        owed.port.cleared(owed.name)
    return finding


def check_part(
    clouds: Clouds,
    owed: Owed,
    fetch: Callable[[Store], bytes],
    verify: Callable[[bytes], object],
    timeout: float,
) -> Finding | None:
    """Like `check` for a part of the object. What is wrong with a part is right again when the whole is."""
    port = owed.port
    stalled = port.stalled()
    if stalled is not None:
        return Finding("unreadable", f"{owed.name} cannot be read: {stalled}")
    with OperationLoop[Answer[bytes]](clouds.operations, timeout) as loop:
        loop.track(port, port.submit("get", owed.limit, fetch, loop.report, clock=loop.clock))
        event = loop.wait()
    if isinstance(event, Interrupt):
        reason = clouds.explain_interrupt(event, [port.number], timeout)
        return Finding("unreadable", f"{owed.name} cannot be read: {reason}")
    return _judge(owed, event, verify)


def probe(clouds: Clouds, marker: Marker, everyone: bool, timeout: float) -> None:
    """Read from clouds that are not well what they had lost or altered and the marker, all at once.

    With `everyone` the marker is read from the others too. A cloud that was full gets the marker written.
    """
    waiting = dict.fromkeys((port for port in clouds if port.stalled() is None), 0)
    with OperationLoop[_Looked | _Wrote](clouds.operations, timeout) as loop:
        for port in waiting:
            for owed in _looks(port, marker, everyone):
                _begin(loop, owed)
                waiting[port] += 1
            if port.full and port.probe_due():
                _rewrite(loop, port, marker)
                waiting[port] += 1
        while any(waiting.values()):
            match loop.wait():
                case _Looked(owed, answer):
                    if _judge(owed, answer, owed.verify) is None:
                        owed.port.cleared(owed.name)
                    waiting[owed.port] -= 1
                case _Wrote(port):
                    waiting[port] -= 1
                case interrupt:
                    clouds.explain_interrupt(interrupt, (p.number for p in waiting if waiting[p]), timeout)
                    return


def _looks(port: CloudPort, marker: Marker, everyone: bool) -> Iterator[Owed]:
    rechecks = port.take_rechecks()
    for name, offence in rechecks.items():
        yield Owed(port, name, offence.limit, offence.recheck)
    if (everyone or rechecks or port.probe_due()) and marker.name not in rechecks:
        yield Owed(port, marker.name, len(marker.data), marker.verify)


def _begin(loop: OperationLoop[_Looked | _Wrote], owed: Owed) -> None:
    job = owed.port.submit(
        "get",
        owed.limit,
        lambda store: store.get(owed.name, limit=owed.limit),
        lambda answer: loop.report(_Looked(owed, answer)),
        clock=loop.clock,
    )
    loop.track(owed.port, job)


def _rewrite(loop: OperationLoop[_Looked | _Wrote], port: CloudPort, marker: Marker) -> None:
    job = port.submit(
        "put",
        len(marker.data),
        lambda store: store.put(marker.name, marker.data),
        lambda _: loop.report(_Wrote(port)),
        clock=loop.clock,
        key=marker.name,
    )
    loop.track(port, job)


def _judge(owed: Owed, answer: Answer[bytes], verify: Callable[[bytes], object]) -> Finding | None:
    expected = Expected(owed.name, owed.limit, owed.verify)
    if answer.missing:
        what = f"{owed.name} is missing although it was acknowledged"
        finding = Finding("missing", what, expected=expected)
    elif answer.corrupt:
        finding = Finding("corrupt", f"{owed.name} is damaged: {answer.reason}", expected=expected)
    elif answer.value is None:
        return Finding("unreadable", f"{owed.name} cannot be read: {answer.reason}")
    else:
        try:
            verify(answer.value)
        except (IntegrityError, ValueError) as error:
            finding = Finding("corrupt", f"{owed.name} is wrong: {error}", expected=expected)
        else:
            owed.port.in_time()
            return None
    owed.port.lied(owed.name, Offence(finding.what, owed.limit, owed.verify))
    return finding
