"""All registers of a container at one moment (sans-IO).

Names are listed again and again until two lists from a quorum show the same latest versions, each of which
was complete before the second list began. So there was a moment, between the two, at which these were the
latest of all registers: the double collect of Afek et al. (1993). Times never come back, so none can hide
between.

While others write all the time, no two lists are the same. After some looks it asks the writers to wait
(`Holds`), so that soon two are. The writers' embedded snapshots of the paper would make each write as dear as
a list, and readers that must help a list would make each read dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.quorums.names import Kind, RegisterNames, Version
from hybrisfs.quorums.reading import settle
from hybrisfs.quorums.register import Lists, Part, Register
from hybrisfs.quorums.rounds import (
    Answer,
    Ask,
    Pause,
    Protocol,
    Round,
    RoundFailedError,
    Steps,
    Within,
    ask_all,
    need,
)
from hybrisfs.quorums.thresholds import Thresholds

__all__ = ["Holds", "LOOK_SECONDS", "Short", "Survey", "erase", "survey", "take_snapshot"]

# -- holds: a list that others' writes keep from its end asks the writers of the container to wait ----------
# A hold is an object on a quorum, under a name of the container's own. A writer lists these with its first
# round, unless it did so less than `LOOK_SECONDS` ago, and waits until there are none; then it goes on with
# what it has found.
#
# Why a list then ends. When the hold is on a quorum and `LOOK_SECONDS` are over, each write that begins sees
# it and waits. So only those that had begun before can still change what a list shows, each of them once: of
# as many looks and two more, two that follow each other are the same.
#
# Why nothing else rests on it. A list counts only if two looks were the same, however they came to be. A
# writer that waits is a slow one. So a hold that is not seen, or seen too late, costs a look and no more;
# programs that know no holds may write beside those that do.
#
# Writes stay wait-free: each waits for `_PAUSES` pauses at most, and then goes on in spite of the hold. Its
# lister has died, or lists a very large container: that device takes no notice of this hold any more, and
# deletes it. A cloud that lies cannot make holds (`names`). It can show them again when they were deleted; a
# writer waits for those that more than b clouds show.


LOOK_SECONDS: Final = 2.0
"""For how long a device relies on what it has seen of the holds of a container."""
_PAUSES: Final = 20

T = TypeVar("T")


class Holds:
    """The holds of one container, as one device sees them. Thread-safe."""

    def __init__(
        self,
        names: RegisterNames,
        clouds: Sequence[int],
        thresholds: Thresholds,
        environment: Environment,
    ) -> None:
        self._names = names
        self._clouds = clouds
        self._thresholds = thresholds
        self._clock = environment.boot_time
        self._looked: float | None = None
        self._ignored: frozenset[int] = frozenset()

    def put(self, number: int) -> Protocol[None]:
        """Ask writers to wait."""
        yield [self._change(Ask(puts=((self._names.of_hold(number), b""),)))]

    def remove(self, numbers: frozenset[int]) -> Protocol[None]:
        """Let writers go on."""
        yield [self._change(Ask(deletes=tuple(map(self._names.of_hold, sorted(numbers)))))]

    def waiting(self, write: Protocol[T]) -> Protocol[T]:
        """A write that waits, after its first round, while there are holds."""
        steps = next(write)
        now = self._clock()
        is_fresh = self._looked is not None and now - self._looked < LOOK_SECONDS
        if is_fresh or isinstance(steps, Pause | Within):
            return (yield from _resumed(write, steps))
        *answers, found = yield [*steps, self._list()]
        yield from self._wait(self._seen(found))
        self._looked = now
        try:
            steps = write.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        return (yield from _resumed(write, steps))

    def _wait(self, holds: frozenset[int]) -> Protocol[None]:
        for attempt in range(1, _PAUSES + 1):
            if not holds:
                return
            yield Pause(attempt)
            (found,) = yield [self._list()]
            holds = self._seen(found)
        self._ignored |= holds
        yield from self.remove(holds)

    def _list(self) -> Round:
        ask = Ask(prefix=self._names.prefix)
        return Round(dict.fromkeys(self._clouds, ask), need(self._thresholds.quorum))

    def _change(self, ask: Ask) -> Round:
        return Round(dict.fromkeys(self._clouds, ask), need(self._thresholds.quorum))

    def _seen(self, answers: Mapping[int, Answer]) -> frozenset[int]:
        shown = [self._names.read(answer.names).holds for answer in answers.values()]
        found = frozenset[int]().union(*shown) - self._ignored
        return frozenset(one for one in found if sum(one in some for some in shown) > self._thresholds.b)


def _resumed(protocol: Protocol[T], steps: Steps) -> Protocol[T]:
    """The rest of a protocol that has yielded *steps*."""
    while True:
        try:
            go_on: Callable[[], Steps] = partial(protocol.send, (yield steps))
        except RoundFailedError as error:
            go_on = partial(protocol.throw, error)
        try:
            steps = go_on()
        except StopIteration as end:
            result: T = end.value
            return result


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
