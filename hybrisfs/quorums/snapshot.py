"""All registers of a container at one moment (sans-IO).

Names are listed again and again until two lists from a quorum show the same latest versions, each of which
was complete before the second list began. So there was a moment, between the two, at which these were the
latest of all registers: the double collect of Afek et al. (1993). Times never come back, so none can hide
between.

While others write all the time, no two lists are the same. After some looks it asks the writers to wait
(`holds`), so that soon two are. The writers' embedded snapshots of the paper would make each write as dear as
a list, and readers that must help a list would make each read dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hybrisfs.errors import HybrisError
from hybrisfs.quorums.holds import Holds
from hybrisfs.quorums.names import Kind, Version
from hybrisfs.quorums.reading import settle
from hybrisfs.quorums.register import Lists, Part, Register
from hybrisfs.quorums.rounds import Answer, Ask, Pause, Protocol, Round, RoundFailedError, ask_all, need

__all__ = ["Short", "Survey", "erase", "survey", "take_snapshot"]

_UNDISTURBED: Final = 3  # looks before writers are asked to wait
_LOOKS: Final = 20
_PAGES: Final = 4000  # of a list of a container


class Snapshot(NamedTuple):
    """What was found, by the prefixes of the registers."""

    latest: dict[str, Version]
    crowded: dict[str, Version]
    """Those of the latest versions that have earlier ones behind them, which may be deleted."""
    shared: set[str]
    """The registers in which two versions have the number of the latest one, see `Found.is_only`."""


def take_snapshot(
    register_at: Callable[[str], Register],
    prefix: str,
    divide: Callable[[Answer], Mapping[str, Answer]],
    holds: Holds,
    number: int,
    *,
    steady: bool = True,
) -> Protocol[Snapshot]:
    """The latest versions. *register_at* is the register with a prefix, *divide* its part of a list. *holds*
    are those of the container, *number* a random one.

    If it need not be *steady*, each may be of another moment. Raises HybrisError when others write all the
    time and do not wait.
    """
    found = yield from _look_often(register_at, prefix, divide, _UNDISTURBED, steady=steady)
    if found is None:
        yield from holds.put(number)
        found = yield from _look_often(register_at, prefix, divide, _LOOKS, steady=steady)
        yield from holds.remove(frozenset((number,)))
    if found is None:
        raise HybrisError(
            "the keys cannot be listed now", "others write to the container all the time", "Try again."
        )
    return found


def _look_often(
    register_at: Callable[[str], Register],
    prefix: str,
    divide: Callable[[Answer], Mapping[str, Answer]],
    looks: int,
    *,
    steady: bool,
) -> Protocol[Snapshot | None]:
    """See `take_snapshot`. None: no two of so many looks were the same."""
    whole = register_at(prefix)
    ask = Ask(prefix=prefix, pages=_PAGES)
    before: dict[str, Version] | None = None
    registers: dict[str, Register] = {}  # each remembers what clouds deny
    for look in range(looks):
        (answers,) = yield [Round(dict.fromkeys(whole.clouds, ask), need(whole.thresholds.quorum))]
        failed = False
        found = Snapshot({}, {}, set())
        for name, parts in _by_register(answers, divide).items():
            if name not in registers:
                registers[name] = register_at(name)
            failed |= not (yield from _look(registers[name], name, parts, found))
        if failed:  # there are later ones by now
            before = None
        if found.latest == before or not (steady or failed):
            return found
        if look:
            yield Pause(look)
        before = found.latest
    return None


def _look(register: Register, name: str, parts: Mapping[int, Answer], found: Snapshot) -> Protocol[bool]:
    """Add the latest version of a register; False when it cannot be completed."""
    lists = yield from settle(register, register.lists(parts))
    try:
        latest = yield from register.complete(lists, Part.NOTHING)
    except RoundFailedError:
        return False
    if latest is not None:
        found.latest[name] = latest.version
        if _has_earlier(lists, latest.version):
            found.crowded[name] = latest.version
        if not latest.is_only:
            found.shared.add(name)
    return True


def _by_register(
    answers: Mapping[int, Answer], divide: Callable[[Answer], Mapping[str, Answer]]
) -> dict[str, dict[int, Answer]]:
    found: dict[str, dict[int, Answer]] = {}
    for cloud, answer in answers.items():
        for name, part in divide(answer).items():
            found.setdefault(name, {})[cloud] = part
    return found


class Short(NamedTuple):
    """A latest version that fewer clouds have than should."""

    register: Register
    version: Version
    lacking: frozenset[int]
    """The clouds that list not all that they should have of it."""


class Survey(NamedTuple):
    """What the lists of all clouds say of a container."""

    short: list[Short]
    silent: frozenset[int]
    """The clouds that did not answer."""


def survey(
    register_at: Callable[[str], Register], prefix: str, divide: Callable[[Answer], Mapping[str, Answer]]
) -> Protocol[Survey]:
    """Which clouds lack something of the latest versions; see `take_snapshot`. Nothing is short when fewer
    than a quorum answer."""
    whole = register_at(prefix)
    (answers,) = yield [ask_all(dict.fromkeys(whole.clouds, Ask(prefix=prefix, pages=_PAGES)))]
    heard = {cloud: answer for cloud, answer in answers.items() if answer.fault is None}
    found = Survey([], frozenset(answers.keys() - heard.keys()))
    if len(heard) < whole.thresholds.quorum:
        return found
    for name, parts in _by_register(heard, divide).items():
        register = register_at(name)
        lists = register.lists(parts)
        version = register.latest(lists)
        if version is not None:
            having = lists.holders.get(version, set())
            if version.kind is not Kind.COUNTED:
                having = having & lists.provers[version]
            if having != heard.keys():
                found.short.append(Short(register, version, frozenset(heard.keys() - having)))
    return found


def erase(prefix: str, cloud: int) -> Protocol[None]:
    """Delete from a cloud all objects whose names begin with a prefix."""
    answers = yield [Round({cloud: Ask(prefix=prefix, pages=_PAGES)}, need(1))]
    names = answers[0][cloud].names
    if names:
        yield [Round({cloud: Ask(deletes=names)}, need(1))]


def _has_earlier(lists: Lists, version: Version) -> bool:
    return any(one.time < version.time for one in (*lists.seen.versions, *lists.seen.proofs))
