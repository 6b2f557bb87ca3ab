"""Registers that are read before anything is trusted: recovery kits and signposts (sans-IO).

They are registers as in `register`, in the form for objects that prove themselves, whole on each cloud:

=====================================  ====================================================================
in PASIS                               here
=====================================  ====================================================================
logical time, verifier                 in the name; both follow from the object, which a member has signed
READ_LATEST, READ_PREV                 list the names on all clouds, then get the objects
VALIDATE                               an object counts where its bytes make the name under which it lies
classification                         `thresholds.first_contact`, by the clouds whose bytes are right
read repair, DO_WRITE                  put the object where it is not
deletion of earlier versions           when a later one has been complete for `KEPT_SECONDS`
=====================================  ====================================================================

The time is the clock of the log up to which the writer knows it. Writers that know the same write the same
time, and a writer that knows more writes a later one. So nobody reads before a write, and a write that stops
halfway does no harm: the earlier version is there still.

Which versions are *right* depends on the reader. A device knows the members, and drops versions that none of
them has signed. When such a version is later than the right ones, a removed device has made it. It is
overwritten before it is deleted, as some clouds refuse deletions: otherwise a machine that recovers might
take it for the latest, as it knows no members. That machine goes by the classification.

Beside the versions lies an object with the same bytes under a *former* name, which programs before this one
read and overwrite. It counts like a version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.quorums.names import Kind, RegisterNames, Time, Version
from hybrisfs.quorums.rounds import Answer, Ask, Protocol, Read, Round, ask_all
from hybrisfs.quorums.thresholds import Standing, first_contact
from sync.codec import Buffer

__all__ = ["Candidate", "ContactRegister", "OnCloud", "Sight", "Superseding", "self_proving"]

_MOST: Final = 16
"""Versions that one look gets, those that most clouds name first: no correct devices leave so many."""
_MOST_NUMBER: Final = (1 << 48) - 1
_UNASKED: Final = Answer(fault="missing")


def self_proving(clock: int, contents: bytes, digest: bytes, size: int) -> Version:
    """The version that an object is: its time is a *clock* of the log, among equal ones the hash of its
    *contents* (8 bytes or more) decides; *digest*: a keyed hash of its bytes, 24 bytes or more."""
    time = Time(min(clock, _MOST_NUMBER), int.from_bytes(contents[:8]), 0)
    write, verifier = int.from_bytes(digest[:8]), digest[8:24]
    return Version(time, write, 1, size, verifier, bytes(16), Kind.COUNTED)


class Candidate(NamedTuple):
    """A version that is right, and the clouds that have it."""

    version: Version
    data: bytes
    clouds: frozenset[int]


class OnCloud(Struct, frozen=True):
    """What one cloud has shown of a register."""

    listed: Answer
    former: Answer
    right: frozenset[Version]
    """The versions under whose names are right bytes."""
    wrong: frozenset[Version]
    """Those under whose names is something else."""


class Sight(Struct, frozen=True):
    """What all clouds have shown of a register."""

    clouds: Mapping[int, OnCloud]
    candidates: tuple[Candidate, ...]


class ContactRegister:
    """One such register, as one reader sees it."""

    def __init__(
        self,
        names: RegisterNames,
        former: str | None,
        limit: int,
        version_of: Callable[[bytes], Version | None],
    ) -> None:
        """*former*: the name that programs before this one know, None: it is not read. *limit*: the most
        bytes of an object. *version_of*: the version that these bytes are, None when they are not right."""
        self._names = names
        self._former = former
        self._limit = limit
        self._version_of = version_of

    def look(self, clouds: Iterable[int]) -> Protocol[Sight]:
        """Get the versions from all these clouds, each of which answers or fails."""
        clouds = tuple(clouds)
        listing = ask_all(dict.fromkeys(clouds, Ask(prefix=self._names.prefix)))
        lists, *more = yield [listing, *self._of_former(clouds)]
        formers = more[0] if more else {}
        named: dict[Version, set[int]] = {}
        for cloud, answer in lists.items():
            for version in self._names.read(answer.names).versions:
                if version.kind is Kind.COUNTED and version.size <= self._limit:
                    named.setdefault(version, set()).add(cloud)
        order = sorted(named, key=lambda one: (len(named[one]), one.time, one.write), reverse=True)[:_MOST]
        gotten = yield [ask_all(dict.fromkeys(sorted(named[one]), self._get(one))) for one in order]
        return self._sight(clouds, lists, formers, dict(zip(order, gotten, strict=True)))

    def glance(self, clouds: Iterable[int]) -> Protocol[Mapping[int, Answer]]:
        """Get only what lies under the former name, from these clouds. A device that puts a version
        overwrites that, too."""
        (answers,) = yield self._of_former(clouds)
        return answers

    def _of_former(self, clouds: Iterable[int]) -> list[Round]:
        if self._former is None:
            return []
        ask = Ask(read=Read(self._former, self._limit, whole=True))
        return [ask_all(dict.fromkeys(clouds, ask))]

    def _get(self, version: Version) -> Ask:
        return Ask(read=Read(self._names.of_version(version), version.size, whole=True))

    def _sight(
        self,
        clouds: Collection[int],
        lists: Mapping[int, Answer],
        formers: Mapping[int, Answer],
        gotten: Mapping[Version, Mapping[int, Answer]],
    ) -> Sight:
        made: dict[bytes, Version | None] = {}
        holders: dict[bytes, set[int]] = {}
        right: dict[int, set[Version]] = {cloud: set() for cloud in clouds}
        wrong: dict[int, set[Version]] = {cloud: set() for cloud in clouds}

        def version_of(data: bytes) -> Version | None:
            if data not in made:
                made[data] = self._version_of(data)
            return made[data]

        for version, answers in gotten.items():
            for cloud, answer in answers.items():
                if answer.fault is None and version_of(answer.data) == version:
                    right[cloud].add(version)
                    holders.setdefault(answer.data, set()).add(cloud)
                elif answer.fault in (None, "corrupt"):
                    wrong[cloud].add(version)
        for cloud, answer in formers.items():
            if answer.fault is None and version_of(answer.data) is not None:
                holders.setdefault(answer.data, set()).add(cloud)
        shown = {
            cloud: OnCloud(
                lists[cloud],
                formers.get(cloud, _UNASKED),
                frozenset(right[cloud]),
                frozenset(wrong[cloud]),
            )
            for cloud in clouds
        }
        candidates = [
            Candidate(version, data, frozenset(holders[data]))
            for data, version in made.items()
            if version is not None and data in holders
        ]
        return Sight(shown, tuple(candidates))

    def spread(
        self, sight: Sight, data: Buffer, version: Version, clouds: Iterable[int]
    ) -> Protocol[list[str]]:
        """Put a version, the latest one, where it is not; the reasons of the clouds that do not take it.

        Where a later one is that is not right, that ends."""
        asks: dict[int, Ask] = {}
        for cloud in clouds:
            shown = sight.clouds[cloud]
            puts: list[tuple[str, Buffer]] = [
                (self._names.of_version(one), b"")
                for one in shown.wrong
                if one != version and one.time >= version.time
            ]
            if version not in shown.right:
                puts.append((self._names.of_version(version), data))
            if self._former is not None and (shown.former.fault is not None or shown.former.data != data):
                puts.append((self._former, data))
            if puts:
                asks[cloud] = Ask(puts=tuple(puts))
        if not asks:
            return []
        (answers,) = yield [ask_all(asks)]
        return [answer.reason for answer in answers.values() if answer.fault is not None]

    def clear(self, sight: Sight, version: Version, clouds: Iterable[int], *, kept: bool) -> Protocol[None]:
        """Delete from these clouds what has been overwritten by `spread`; and unless it is to be *kept*, what
        is before this version, from those of them that have it."""
        asks: dict[int, Ask] = {}
        for cloud in clouds:
            shown = sight.clouds[cloud]
            old = {one for one in shown.wrong if one != version and one.time >= version.time}
            if version in shown.right and not kept:
                old |= {
                    one for one in shown.right | shown.wrong if one != version and one.time <= version.time
                }
            if old:
                asks[cloud] = Ask(deletes=tuple(sorted(map(self._names.of_version, old))))
        if asks:
            yield [ask_all(asks)]


class Superseding:
    """Since when the latest version of a register is known to be complete. Not thread-safe."""

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._since: dict[str, tuple[Version, float]] = {}

    def is_due(self, register: str, version: Version, sight: Sight, f: int) -> bool:
        """Whether what is before a version may be deleted: it has been complete for long enough."""
        holders = sum(version in one.right for one in sight.clouds.values())
        if first_contact(f).classify(holders) is not Standing.COMPLETE:
            self._since.pop(register, None)
            return False
        known, since = self._since.get(register, (None, 0.0))
        if known != version:
            known, since = self._since[register] = version, self._clock()
        return self._clock() - since >= KEPT_SECONDS
