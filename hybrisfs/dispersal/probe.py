"""Looking at clouds: are they well again, which objects are there, what do changing ones say?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from backends.store import MAX_PAGE, Store
from hybrisfs.dispersal.cloud import Answer, CloudPort
from hybrisfs.dispersal.clouds import TIMER, Clouds, Interrupt, OperationLoop
from hybrisfs.dispersal.errors import Expected, Finding, IntegrityError
from hybrisfs.dispersal.ranking import Offence

__all__ = [
    "Changed",
    "Failed",
    "Listing",
    "Look",
    "Marker",
    "Missing",
    "Owed",
    "Polled",
    "Unchanged",
    "all_names",
    "check",
    "check_part",
    "list_names",
    "poll",
    "probe",
]


class Marker(Struct, frozen=True):
    """A small object that every cloud has held since it was added to the volume."""

    name: str
    data: bytes

    def verify(self, data: bytes) -> None:
        """Raise IntegrityError unless `data` is the marker."""
        if data != self.data:
            raise IntegrityError("it is not this volume's marker (another folder or account?)")


class Owed(NamedTuple):
    """An object that a cloud acknowledged: at most `limit` bytes, refused by `verify` when they are wrong.

    Unless it is *acknowledged*, its absence is not held against the cloud.
    """

    port: CloudPort
    name: str
    limit: int
    verify: Callable[[bytes], object]
    acknowledged: bool = True


class _Probed(NamedTuple):
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
            reason = loop.explain(event, [port.number])[port.number]
            return Finding("unreadable", f"{owed.name} cannot be read: {reason}")
    if event.missing and not owed.acknowledged:
        return Finding("missing", f"{owed.name} is not there yet")
    return _judge(owed, event, verify)


def probe(clouds: Clouds, marker: Marker, everyone: bool, timeout: float) -> None:
    """Read from clouds that are not well what they had lost or altered and the marker, all at once.

    With `everyone` the marker is read from the others too. A cloud that was full gets the marker written.
    """
    waiting = dict.fromkeys((port for port in clouds if port.stalled() is None), 0)
    with OperationLoop[_Probed | _Wrote](clouds.operations, timeout) as loop:
        for port in waiting:
            for owed in _looks(port, marker, everyone):
                _begin_probe(loop, owed)
                waiting[port] += 1
            if port.full and port.probe_due():
                _rewrite(loop, port, marker)
                waiting[port] += 1
        while any(waiting.values()):
            match loop.wait():
                case _Probed(owed, answer):
                    if _judge(owed, answer, owed.verify) is None:
                        owed.port.cleared(owed.name)
                    waiting[owed.port] -= 1
                case _Wrote(port):
                    waiting[port] -= 1
                case interrupt:
                    loop.explain(interrupt, (port.number for port in waiting if waiting[port]))
                    return


def _looks(port: CloudPort, marker: Marker, everyone: bool) -> Iterator[Owed]:
    rechecks = port.take_rechecks()
    for name, offence in rechecks.items():
        yield Owed(port, name, offence.limit, offence.recheck)
    if (everyone or rechecks or port.probe_due()) and marker.name not in rechecks:
        yield Owed(port, marker.name, len(marker.data), marker.verify)


def _begin_probe(loop: OperationLoop[_Probed | _Wrote], owed: Owed) -> None:
    job = owed.port.submit(
        "get",
        owed.limit,
        lambda store: store.get(owed.name, limit=owed.limit),
        lambda answer: loop.report(_Probed(owed, answer)),
        clock=loop.clock,
    )
    loop.track(owed.port, job)


def _rewrite(loop: OperationLoop[_Probed | _Wrote], port: CloudPort, marker: Marker) -> None:
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


# -- looking at small objects that others overwrite, and at which objects there are ---------------------
# A look is a conditional request: an object that is still the one seen before costs no transfer. Looks at
# one name through one cloud never overlap, so that a cloud that hangs holds one thread per name at most.


_PAGE_BYTES = 256 << 10  # roughly what a page of names takes, for the latency classes


class Look(NamedTuple):
    """One object at one cloud; `tag` is that of the copy seen last at this cloud, None to get it anyway."""

    name: str
    cloud: int
    tag: str | None


class Changed(Struct, frozen=True):
    """The object is another one than `tag` stood for; its bytes are whatever the cloud says."""

    data: bytes
    tag: str


class Unchanged(Struct, frozen=True):
    """The object is still the one that the tag stands for."""


class Missing(Struct, frozen=True):
    """The cloud says that it has no such object."""


class Failed(Struct, frozen=True):
    """No answer, for `reason`; or, when `wrong`, one that cannot be the object."""

    reason: str
    wrong: bool = False


Polled: TypeAlias = Changed | Unchanged | Missing | Failed


class Listing(Struct, frozen=True):
    """The names that at least one of the clouds `answered` claims to have, ascending."""

    names: tuple[str, ...]
    answered: frozenset[int]


class _Looked(NamedTuple):
    look: Look
    answer: Answer[tuple[bytes, str] | None]


class _Listed(NamedTuple):
    cloud: int
    answer: Answer[list[str]]


def poll(clouds: Clouds, looks: Sequence[Look], limit: int, timeout: float) -> dict[Look, Polled]:
    """Look at objects of at most `limit` bytes, all at once; the result has every look.

    Returns when all have been answered, or the usual time is over and somebody has answered for each name,
    or nothing has moved for `timeout` seconds.
    """
    found: dict[Look, Polled] = {}
    flying: set[Look] = set()
    with OperationLoop[_Looked](clouds.operations, timeout) as loop:
        for look in looks:
            stalled = clouds[look.cloud].stalled() if look.cloud in clouds else "is no longer configured"
            if stalled is None:
                flying.add(look)
                _begin(clouds, loop, look, limit)
            else:
                found[look] = Failed(stalled)
        asked = {look.cloud for look in flying}
        loop.set_timer(clouds.usual(asked, "get", 0))
        usual_time = True
        while flying and (usual_time or not _each_answered(looks, found)):
            match loop.wait():
                case _Looked(look, answer):
                    flying.discard(look)
                    found[look] = _polled(answer)
                    if usual_time and answer.error is None:
                        clouds[look.cloud].in_time()
                case event if event is TIMER:
                    usual_time = False
                    clouds.mark_late({look.cloud for look in flying}, "get", 0, loop.timer_length)
                case event:
                    reasons = loop.explain(event, {look.cloud for look in flying})
                    return found | {look: Failed(reasons[look.cloud]) for look in flying}
    return found | {look: Failed("has not answered in its usual time") for look in flying}


def _begin(clouds: Clouds, loop: OperationLoop[_Looked], look: Look, limit: int) -> None:
    def call(store: Store) -> tuple[bytes, str] | None:
        return store.get_if_changed(look.name, look.tag, limit=limit)

    def report(answer: Answer[tuple[bytes, str] | None]) -> None:
        loop.report(_Looked(look, answer))

    port = clouds[look.cloud]
    loop.track(port, port.submit("get", 0, call, report, clock=loop.clock, key=f"look {look.name}"))


def _polled(answer: Answer[tuple[bytes, str] | None]) -> Polled:
    if answer.missing:
        return Missing()
    if answer.error is not None:
        return Failed(answer.reason, wrong=answer.corrupt)
    return Unchanged() if answer.value is None else Changed(*answer.value)


def _each_answered(looks: Iterable[Look], found: dict[Look, Polled]) -> bool:
    answered = {look.name for look, polled in found.items() if not isinstance(polled, Failed)}
    return all(look.name in answered for look in looks)


def list_names(clouds: Clouds, prefix: str, most: int, enough: int, timeout: float) -> Listing:
    """List the objects that begin with `prefix` on all clouds, at most `most` of each.

    What one cloud leaves out another may tell, and what one makes up is found missing later. Returns when
    all have answered, or the usual time is over and `enough` of them have, or nothing has moved for `timeout`
    seconds.
    """
    names: set[str] = set()
    answered: set[int] = set()
    with OperationLoop[_Listed](clouds.operations, timeout) as loop:
        flying = {port.number for port in clouds if port.stalled() is None}
        for number in sorted(flying):
            call = partial(all_names, prefix=prefix, most=most)
            report = partial(_report_listed, loop, number)
            job = clouds[number].submit(
                "get", _PAGE_BYTES, call, report, clock=loop.clock, key=f"list {prefix}"
            )
            loop.track(clouds[number], job)
        loop.set_timer(clouds.usual(flying, "get", _PAGE_BYTES))
        usual_time = True
        while flying and (usual_time or len(answered) < enough):
            match loop.wait():
                case _Listed(cloud, answer):
                    flying.discard(cloud)
                    if answer.value is not None:
                        names.update(answer.value)
                        answered.add(cloud)
                case event if event is TIMER:
                    usual_time = False
                case event:
                    loop.explain(event, flying)
                    break
    return Listing(tuple(sorted(names)), frozenset(answered))


def _report_listed(loop: OperationLoop[_Listed], cloud: int, answer: Answer[list[str]]) -> None:
    loop.report(_Listed(cloud, answer))


def all_names(store: Store, prefix: str, most: int) -> list[str]:
    """Return the names that begin with `prefix`, at most `most`, as far as the store tells."""
    names: list[str] = []
    after = ""
    while len(names) < most:
        page = store.list(prefix, after=after, limit=min(MAX_PAGE, most - len(names)))
        # A page that does not go on would be asked for again for ever.
        fresh = [name for name in page.names if name > after and name.startswith(prefix)]
        names += fresh
        if not page.more or not fresh:
            break
        after = max(fresh)
    return names[:most]
