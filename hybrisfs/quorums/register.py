"""Reads and writes of one register: M-PoWerStore and PASIS over clouds that run no code (sans-IO).

A version is an object of its own on each cloud, and is never changed; a round is a put, a list or a get on a
quorum of the clouds. What the papers have servers compute is done with names:

=====================================  ====================================================================
in the papers                          here
=====================================  ====================================================================
PoWerStore: round CLOCK                list the names; take a number above all of them
round STORE                            put each cloud's object, its name with the hash of a nonce
round COMPLETE                         put an empty object whose name has the nonce: the proof of writing
read: COLLECT                          list the names; the candidate is the latest version with a proof
FILTER                                 get the objects, from k clouds; at the same time put the proof where
                                       it is not (the write-back of metadata only)
PASIS: READ_TIMESTAMP, DO_WRITE        list the names; put each cloud's object
READ_LATEST, READ_PREV                 list the names: all versions at once
classification                         by how many clouds name a version (`Thresholds`)
read repair                            put the objects, made again from k of them, where they are not
=====================================  ====================================================================

So a write takes three rounds (PASIS: two), a read two; one if nothing is to be fetched. A read begins again
when the version was deleted since it was listed: then there is a later one that is complete.

Why names are enough. They are hashed with a key of the volume, so a cloud cannot make a time or a proof; of
what a round has put on a quorum, a later list from a quorum shows all that one correct cloud has, and
`Thresholds` says that there is one. A cloud that lies can only hide and corrupt, which both quorums allow for
t clouds. It can also name what it does not have: what so many clouds deny that it cannot be complete, and is
the latest still when the names are listed again, is dropped (PASIS; in the paper the objects come with the
names). This needs clouds whose lists show what was put before the list was asked for, as those of S3, GCS
and Azure do. On a cloud that shows it later, a reader may get a value that was overwritten a moment ago,
never a wrong one.

Linearizable: order the versions by their times. A write that begins when another operation has ended takes a
higher number than all that this one has seen; a read that ends leaves its version complete, so that no later
read returns an earlier one. Wait-free: no round depends on what other clients do, but that a read begins
again for a later version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple
from typing import Protocol as Interface

from msgspec import Struct, field
from msgspec.structs import replace

from hybrisfs.dispersal.errors import IntegrityError, UnreadableHereError
from hybrisfs.quorums.names import ZERO_TIME, Kind, RegisterNames, Seen, Time, Version, commitment_to
from hybrisfs.quorums.rounds import Answer, Ask, Protocol, Read, Round, RoundFailedError, ask_all, need
from hybrisfs.quorums.thresholds import PASIS, Thresholds
from sync.codec import Buffer

__all__ = ["METADATA_SIZE", "Codec", "Draft", "Found", "Lists", "Part", "Register"]

METADATA_SIZE: Final = 16 << 10
"""Within so many bytes of an object its metadata end."""


class Part(Enum):
    """What of a version a read is to get."""

    NOTHING = "nothing"
    METADATA = "metadata"
    VALUE = "value"


class Codec(Interface):
    """What makes a value of the objects of a version, and the other way round."""

    def is_right(self, version: Version, cloud: int, data: bytes) -> bool:
        """Whether this is a cloud's object, or its beginning with the metadata."""

    def rebuild(self, version: Version, parts: Mapping[int, bytes]) -> Callable[[int], Buffer]:
        """The objects of all clouds, from enough of them that are right."""

    def marker(self) -> Draft:
        """A version without contents: what counts is that clients decide on it."""


class Draft(Struct):
    """A version that is to be written, but for its time."""

    write: int
    k: int
    size: int
    verifier: bytes
    nonce: bytes
    objects: Callable[[int], Buffer]
    """The object of a cloud."""
    exposed: bool = False
    """The write may take place, whatever becomes of its writer."""

    def at(self, time: Time, kind: Kind = Kind.PROVEN) -> Version:
        commitment = commitment_to(self.nonce)
        return Version(time, self.write, self.k, self.size, self.verifier, commitment, kind)


class Found(NamedTuple):
    """A version that was read, and the right objects of it that were asked for, by cloud."""

    version: Version
    parts: Mapping[int, bytes]
    is_only: bool
    """Whether nobody can have read another version with the number that people see, `Time.version`: two that
    are written at the same time may have one."""


class Lists(Struct):
    """What lists from a quorum have shown."""

    seen: Seen = field(default_factory=Seen)
    holders: dict[Version, set[int]] = field(default_factory=dict)
    """The clouds that name a version, and ..."""
    provers: dict[Version, set[int]] = field(default_factory=dict)
    """... a proof of it."""


class Register:
    """The register of one key, as one client of its sees it."""

    def __init__(
        self, names: RegisterNames, clouds: Sequence[int], thresholds: Thresholds, codec: Codec
    ) -> None:
        """*clouds*, the best first, are all that keep the register."""
        self.names: Final = names
        self.clouds: Final = tuple(clouds)
        self.thresholds: Final = thresholds
        self.codec: Final = codec
        self._counts = thresholds.protocol == PASIS
        self._denied: set[Version] = set()
        self._dropped: set[Version] = set()

    # -- reading, see `reading` ------------------------------------------------------------------

    def complete(self, lists: Lists, part: Part) -> Protocol[Found | None]:
        """See to it that the latest version in *lists* is complete, and get a part of it. Raises
        RoundFailedError."""
        version = self.latest(lists)
        if version is None:
            return None
        parts = yield from self._complete(lists, version, part)
        return Found(version, parts, self._is_only(lists, version))

    def look(self, version: Version) -> Protocol[Mapping[int, bytes]]:
        """Get the metadata of a version. Raises RoundFailedError."""
        return _data((yield self._fetch(Lists(), version, Part.METADATA, whatever=True))[0])

    def collect(self) -> Protocol[Lists]:
        """List the names on a quorum."""
        ask = Ask(prefix=self.names.prefix, will_do=None if self._counts else self._shows_proof)
        answers = yield [Round(dict.fromkeys(self.clouds, ask), need(self.thresholds.quorum))]
        return self.lists(answers[0])

    def lists(self, answers: Mapping[int, Answer]) -> Lists:
        """What these lists tell together."""
        lists, known = Lists(), dict[str, Seen]()
        for cloud, answer in answers.items():
            for name in answer.names:
                seen = known.get(name)
                if seen is None:
                    known[name] = seen = self.names.read([name])
                    lists.seen.merge(seen)
                for version in seen.versions:
                    lists.holders.setdefault(version, set()).add(cloud)
                for version in seen.proofs:
                    lists.provers.setdefault(version, set()).add(cloud)
        # Where nothing later is complete, what clouds deny was not deleted: it never was complete.
        if self._denied and (latest := self.latest(lists)) in self._denied:
            self._dropped.add(latest)
        return lists

    def _shows_proof(self, names: Sequence[str]) -> bool:
        return bool(self.names.read(names).proofs)

    def latest(self, lists: Lists) -> Version | None:
        """The latest version that may be complete."""
        return max(self._candidates(lists), key=lambda one: (one.time, one.write), default=None)

    def _candidates(self, lists: Lists) -> list[Version]:
        """The versions that may be complete."""
        counted = (
            version
            for version, holders in lists.holders.items()
            if version.kind is Kind.COUNTED
            and len(holders) >= self.thresholds.repairable
            and version not in self._dropped
        )
        return [*lists.seen.proofs, *counted]

    def _is_only(self, lists: Lists, version: Version) -> bool:
        number = version.time.version
        return not any(one.time.version == number and one != version for one in self._candidates(lists))

    def waiting(self, lists: Lists) -> list[Version]:
        """Versions of transactions, later than the latest that may be complete: these are complete as soon as
        their transaction takes place."""
        latest = self.latest(lists)
        joint = (one for one in lists.seen.versions - lists.seen.void if one.kind is Kind.JOINT)
        return [one for one in joint if latest is None or one.time > latest.time]

    def next_step(self, lists: Lists) -> Time:
        """The time of what follows the latest version, with nothing between them that takes place."""
        latest = self.latest(lists)
        void = (one.time for one in lists.seen.void)
        return max([ZERO_TIME if latest is None else latest.time, *void]).after()

    def transaction(self, commitment: bytes) -> Register:
        """The register that says what becomes of a transaction."""
        return Register(self.names.of_transaction(commitment), self.clouds, self.thresholds, self.codec)

    def _complete(self, lists: Lists, version: Version, part: Part) -> Protocol[Mapping[int, bytes]]:
        """See to it that a version is complete, and get a part of it."""
        if version.kind is not Kind.COUNTED:
            rounds = [*self._fetch(lists, version, part), *self._write_back(lists, version)]
            answers = (yield rounds) if rounds else []
            return _data(answers[0]) if part is not Part.NOTHING and version.live else {}
        holders = lists.holders[version]
        lacking = self.thresholds.complete - len(holders)
        if lacking > 0:
            whole, objects = yield from self._rebuild(lists, version)
            puts = {
                cloud: Ask(puts=((self.names.of_version(version), objects(cloud)),))
                for cloud in self.clouds
                if cloud not in holders
            }
            yield [Round(puts, need(lacking))]
            return whole
        rounds = self._fetch(lists, version, part)
        return _data((yield rounds)[0]) if rounds else {}

    def _rebuild(
        self, lists: Lists, version: Version
    ) -> Protocol[tuple[Mapping[int, bytes], Callable[[int], Buffer]]]:
        """Get enough objects of a version to make those of all clouds. Raises RoundFailedError when there are
        none: then it may never have been complete, or no correct device has written it."""
        (round_,) = self._fetch(lists, version, Part.VALUE, whatever=True)
        try:
            (answers,) = yield [replace(round_, accept=_correct(round_.accept))]
            whole = _data(answers)
            return whole, self.codec.rebuild(version, whole)
        except RoundFailedError as error:
            if error.denials > self.thresholds.denials:
                self._denied.add(version)
            raise
        except UnreadableHereError:
            raise
        except IntegrityError as error:
            self._denied.add(version)
            raise RoundFailedError(str(error), {}, ()) from error

    def _fetch(self, lists: Lists, version: Version, part: Part, *, whatever: bool = False) -> list[Round]:
        """The round that gets a part; none when there is nothing. *whatever*: also of a deletion."""
        if part is Part.NOTHING or not (version.live or whatever):
            return []
        holders = lists.holders.get(version, set())
        count = version.needed if part is Part.VALUE else 1
        size = version.size if part is Part.VALUE else min(version.size, METADATA_SIZE)
        ask = Ask(read=Read(self.names.of_version(version), size))
        order = sorted(self.clouds, key=lambda cloud: cloud not in holders)
        return [
            Round(
                dict.fromkeys(order, ask),
                need(count),
                first=count,
                accept=lambda cloud, answer: self.codec.is_right(version, cloud, answer.data),
            )
        ]

    def _write_back(self, lists: Lists, version: Version) -> list[Round]:
        """The round that puts the proof of a version where it is not; none when a quorum has it."""
        provers = lists.provers[version]
        lacking = self.thresholds.quorum - len(provers)
        if lacking <= 0:
            return []
        others = [cloud for cloud in self.clouds if cloud not in provers]
        return [self._proof(version, lists.seen.proofs[version], others, lacking)]

    def _proof(self, version: Version, nonce: bytes, clouds: Sequence[int], count: int) -> Round:
        ask = Ask(puts=((self.names.of_proof(version, nonce), b""),))
        return Round(dict.fromkeys(clouds, ask), need(count))

    # -- writing ---------------------------------------------------------------------------------

    def write(self, draft: Draft) -> Protocol[Version]:
        """Write a version, whatever is there."""
        lists = yield from self.collect()
        return (yield from self._write(draft, lists.seen.next_number()))

    def copy(self, draft: Draft, number: int, *, is_only: bool) -> Protocol[Version]:
        """Write a version that has a *number* elsewhere (`Time.version`), with that number if it can be.

        If no other value has had the number there (`Found.is_only`), a version here with it, or a later one,
        is what a former attempt has written, and is only completed. What is not complete does not count: it
        was written in vain. Otherwise a former attempt may have written the other value: this one gets a
        higher number."""
        lists = yield from self.collect()
        if not is_only:
            return (yield from self._write(draft, max(lists.seen.next_number(), number + 1)))
        complete = [*self._candidates(lists), *self.waiting(lists)]
        if number <= max((one.time.version for one in complete), default=0):
            found = yield from self.complete(lists, Part.NOTHING)
            if found is not None and found.version.time.version >= number:
                return found.version
            number = lists.seen.next_number()
        return (yield from self._write(draft, number))

    def _write(self, draft: Draft, number: int) -> Protocol[Version]:
        time = Time(number, draft.write, 0)
        version = draft.at(time, Kind.COUNTED if self._counts else Kind.PROVEN)
        draft.exposed = self._counts
        yield [Round(self.objects(version, draft), need(self.thresholds.quorum))]
        if not self._counts:
            draft.exposed = True
            yield from self.prove(version, draft.nonce)
        return version

    def objects(self, version: Version, draft: Draft) -> dict[int, Ask]:
        """What puts the objects of a version on all clouds."""
        name = self.names.of_version(version)
        return {cloud: Ask(puts=((name, draft.objects(cloud)),)) for cloud in self.clouds}

    def prove(self, version: Version, nonce: bytes) -> Protocol[None]:
        """Put the proof of a version, the objects of which a quorum has."""
        yield [self._proof(version, nonce, self.clouds, self.thresholds.quorum)]

    def declare_void(self, version: Version) -> Protocol[None]:
        """Note that a version of a transaction, which has got its time, does not take place."""
        ask = Ask(puts=((self.names.of_void(version), b""),))
        yield [Round(dict.fromkeys(self.clouds, ask), need(self.thresholds.quorum))]

    # -- what single clouds have -----------------------------------------------------------------

    def get(self, version: Version, cloud: int) -> Protocol[bytes]:
        """Get a cloud's object. Raises RoundFailedError when it has none that is right."""
        ask = Ask(read=Read(self.names.of_version(version), version.size))
        answers = yield [
            Round(
                {cloud: ask},
                need(1),
                first=1,
                accept=lambda cloud, answer: self.codec.is_right(version, cloud, answer.data),
            )
        ]
        return answers[0][cloud].data

    def put_back(self, version: Version, cloud: int, data: Buffer) -> Protocol[None]:
        """Put a cloud's object there, and the proof of it."""
        nonce = (yield from self.collect()).seen.proofs.get(version)
        puts: list[tuple[str, Buffer]] = [(self.names.of_version(version), data)]
        if nonce is not None:
            puts.append((self.names.of_proof(version, nonce), b""))
        yield [Round({cloud: Ask(puts=tuple(puts))}, need(1))]

    def fill(self, version: Version, clouds: Collection[int]) -> Protocol[set[int]]:
        """Put the latest version, made of what others have, and its proof on clouds that lack them. Return
        those that have taken it; all, when there is a later one by now. Raises RoundFailedError."""
        lists = yield from self.collect()
        if self.latest(lists) != version:
            return set(clouds)
        _, objects = yield from self._rebuild(lists, version)
        nonce = lists.seen.proofs.get(version)
        proof = () if nonce is None else ((self.names.of_proof(version, nonce), b""),)
        name = self.names.of_version(version)
        asks = {cloud: Ask(puts=((name, objects(cloud)), *proof)) for cloud in clouds}
        (answers,) = yield [ask_all(asks)]
        return {cloud for cloud, answer in answers.items() if answer.fault is None}

    def clear(self, version: Version, cloud: int) -> Protocol[None]:
        """Delete from a cloud what is before a version that has been complete for `conditional.KEPT_SECONDS`.

        Only if that cloud has a proof or, counted, a version as late: so a list from a cloud that lacks
        something deleted shows that there is something later, however slow its reader is. What tells that
        another version has the same number stays (`Found.is_only`).
        """
        answers = yield [Round({cloud: Ask(prefix=self.names.prefix)}, need(1))]
        names = answers[0][cloud].names
        seen = self.names.read(names)
        known = {self.names.of_proof(one, nonce): one for one, nonce in seen.proofs.items()}
        known |= {self.names.of_version(one): one for one in seen.versions if one.kind is Kind.COUNTED}
        if any(one.time >= version.time for one in known.values()):
            namesakes = {name for name, one in known.items() if one.time.version == version.time.version}
            times = ((name, self.names.time_of(name)) for name in names if name not in namesakes)
            old = tuple(name for name, time in times if time is not None and time < version.time)
            if old:
                yield [Round({cloud: Ask(deletes=old)}, need(1))]


def _correct(accept: Callable[[int, Answer], bool]) -> Callable[[int, Answer], bool]:
    """The same, but what no correct device has written is not right, and no error."""

    def correct(cloud: int, answer: Answer) -> bool:
        try:
            return accept(cloud, answer)
        except UnreadableHereError:
            raise
        except IntegrityError:
            return False

    return correct


def _data(answers: Mapping[int, Answer]) -> dict[int, bytes]:
    return {cloud: answer.data for cloud, answer in answers.items()}
