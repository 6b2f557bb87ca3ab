"""Looking at small objects that others overwrite, and at which objects there are.

A look is a conditional request: an object that is still the one seen before costs no transfer. Looks at
one name through one cloud never overlap, so that a cloud that hangs holds one thread per name at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from backends.store import MAX_PAGE, Store
from hybrisfs.dispersal.cloud import Answer
from hybrisfs.dispersal.clouds import Clouds
from hybrisfs.dispersal.operation import TIMER, OperationLoop

__all__ = [
    "Changed",
    "Failed",
    "Listing",
    "Look",
    "Missing",
    "Polled",
    "Unchanged",
    "all_names",
    "list_names",
    "poll",
]


_PAGE_BYTES = 256 << 10  # roughly what a page of names takes, for the latency classes


class Look(NamedTuple):
    """One object at one cloud; `tag` is that of the copy seen last at this cloud, None to get it anyway."""

    name: str
    cloud: int
    tag: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The object is another one than `tag` stood for; its bytes are whatever the cloud says."""

    data: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The object is still the one that the tag stands for."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The cloud says that it has no such object."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, for `reason`; or, when `wrong`, one that cannot be the object."""

    reason: str
    wrong: bool = False


Polled: TypeAlias = Changed | Unchanged | Missing | Failed


@dataclass(frozen=True, slots=True)
class Listing:
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
    or after `timeout` seconds.
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
                    silent = {look.cloud for look in flying}
                    reason = clouds.explain_interrupt(event, silent, timeout)
                    return found | {look: Failed(reason) for look in flying}
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
    all have answered, or the usual time is over and `enough` of them have, or after `timeout` seconds.
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
                    clouds.explain_interrupt(event, flying, timeout)
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
