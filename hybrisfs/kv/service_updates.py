"""The conditional updates of the threads of this machine, as few transactions of a service.

`hybrisfs.kv.service_metadata` has the table of keys, and the argument that nothing is deleted that a key
names. What this adds to it:

**A group** is several updates in one transaction. No key is in two of them, also none that is only compared,
so the order in which they take place does not matter. All of them take place or none.

**When it fails** without any doubt, nothing of it took place. What the service has instead tells which
updates it was for: each of these gets its answer, as it would have got it alone, and the others go again. A
comparison that was not met never is, so a group that comes late changes nothing, whatever becomes of its
members.

**One thread writes** the transaction for all. Each thread finds out itself what may keep it waiting, as the
container. What it asks for is then written and encoded in one loop, not by each as it is woken, on another
processor each time.

**When there is no answer**, the same transaction is repeated until there is one; until then no member is in
another. The mark of one write stands for all, as all have taken place or none. If it is there, all have. If
it is not, and the block of this write is there, none has. If both are gone, nobody knows, of no member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.kv.record import KeyMetadata, Place
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    OutcomeUnknownError,
    Put,
    ServiceError,
)
from hybrisfs.kv.service_containers import Container, ServiceContainers
from hybrisfs.kv.service_groups import Groups, Waiting
from hybrisfs.kv.service_writes import ServiceWrites, WriteLostError

__all__ = ["Answer", "NewEntry", "ServiceUpdates"]

_PAUSE: Final = 0.05
_MOST_OPERATIONS: Final = 128  # comparisons, changes or looks of a transaction, by default of an etcd
_OTHER_BYTES: Final = 200  # about: of a place, or an entry, besides what programs gave
_MOST_BYTES: Final = 500_000  # of a group; an etcd takes 1.5 MiB as it is sent, a ZooKeeper 1 MiB


class NewEntry(NamedTuple):
    """An entry to be put, and the one that it replaces."""

    place: Place
    entry: KeyMetadata
    old: KeyMetadata | None


class Answer(NamedTuple):
    """What became of an update: the revisions of its entries, as far as they are known, when it took place;
    else what all its places had instead."""

    took_place: bool
    revisions: Mapping[Place, int]
    found: Mapping[Place, KeyValue | None]


class _Update(Struct, frozen=True):
    """An update that is asked for."""

    known: Mapping[Place, int]
    """The revision that each place must have, see `Compare`."""
    entries: Sequence[NewEntry]
    containers: Mapping[str, Container]
    blocks: frozenset[bytes]
    """The keys of the blocks that the writes of the entries are in."""
    changes: int
    """How many keys it changes."""
    size: int
    """In bytes, about."""
    deadline: float


class _Request(Struct, frozen=True):
    """A transaction for some updates."""

    keys: Mapping[Place, bytes]
    compare: Mapping[bytes, int | None]
    """The revision that each key must have, see `Compare`."""
    then: Sequence[Put]

    def is_met(self, found: Mapping[bytes, KeyValue | None]) -> bool:
        """Whether all comparisons are met by what was found."""
        return all(_is_met(revision, found[key]) for key, revision in self.compare.items())


class ServiceUpdates:
    """Thread-safe."""

    def __init__(
        self,
        client: MetadataService,
        containers: ServiceContainers,
        writes: ServiceWrites,
        environment: Environment,
    ) -> None:
        self._client = client
        self._containers = containers
        self._writes = writes
        self._environment = environment
        # An update that makes one key has two comparisons and two changes that it shares with no other.
        enough = (_MOST_OPERATIONS - 3) // 2
        self._groups: Groups[_Update, Answer] = Groups(enough, _together, self._serve, environment)

    def make(self, known: Mapping[Place, int], entries: Sequence[NewEntry], deadline: float) -> Answer:
        """Put *entries* if all places have the revision that is *known*: 0 where there is no entry.

        Raises WriteLostError, NoSuchContainerError, ServiceError, and OutcomeUnknownError when there is no
        answer until the *deadline*, or that of another update that it goes with.
        """
        containers = dict([self._containers.writable(number) for number in {place[0] for place in known}])
        blocks = frozenset([self._writes.block_of(one.entry.objects) for one in entries])
        changes, size = 2 * len(entries), 0
        for place in known:
            size += _OTHER_BYTES + 2 * len(place[1])
        for _, entry, old in entries:
            size += _OTHER_BYTES + 40 * len(entry.placement) + len(entry.attributes)
            changes += old is not None and old.live
        return self._groups.do(_Update(known, entries, containers, blocks, changes, size, deadline))

    def _request(self, updates: Iterable[_Update]) -> _Request:
        """The transaction for these. No two of them share a place."""
        keys: dict[Place, bytes] = {}
        compare: dict[bytes, int | None] = {}
        then: list[Put] = []
        for update in updates:
            for place, revision in update.known.items():
                keys[place] = key = self._containers.entry_key(place)
                compare[key] = revision
            for name, container in update.containers.items():
                compare[self._containers.key(name)] = container.revision
            for block in update.blocks:
                compare[block] = None
            for place, entry, old in update.entries:
                mark, fence = self._writes.mark_and_fence(entry.objects)
                compare[fence] = 0
                then.append(Put(keys[place], entry.encode()))
                then.append(Put(mark, b""))
                if old is not None and old.live:
                    then.append(Put(self._writes.of(b"g", old.objects), b"%d" % old.names))
        return _Request(keys, compare, then)

    def _serve(self, group: Sequence[Waiting[_Update, Answer]]) -> None:
        """Answer all of a group. Raises OutcomeUnknownError, of all that have no answer yet."""
        updates = [one.asked for one in group]
        request = self._request(updates)
        first = updates[0].entries[0].entry.objects
        mark, block = self._writes.of(b"u", first), self._writes.block_of(first)
        asked = [mark, *request.compare]  # the mark before the block: see `service_metadata`
        try:
            outcome, was_unknown = self._until_answered(
                [Compare(key, revision) for key, revision in request.compare.items()],
                request.then,
                asked,
                max([one.deadline for one in updates]),
                is_group=len(group) > 1,
            )
        except OutcomeUnknownError:
            raise
        except ServiceError:
            if len(group) == 1:
                raise
            self._divide(group)  # it may be too large for this service, or one of them is to blame
            return
        found = dict(zip(asked, outcome.found, strict=False))
        if outcome.succeeded or found[mark] is not None:
            self._writes.took_place([new.entry.objects for one in updates for new in one.entries])
            for waiting in group:
                waiting.answer(Answer(True, _revisions(waiting.asked, request, outcome), {}))
        elif was_unknown and found[block] is None:
            # Those that have taken over the block have removed the mark, if there was one.
            self._writes.lost({block})
            raise _unknown("others took this machine for gone before the metadata store had answered")
        else:
            self._answer_unmet(group, found)

    def _answer_unmet(
        self, group: Sequence[Waiting[_Update, Answer]], found: Mapping[bytes, KeyValue | None]
    ) -> None:
        """Nothing of the group took place: answer those that it was for, and try the others again."""
        others = []
        for one in group:
            alone = self._request([one.asked])
            if len(group) > 1 and alone.is_met(found):
                others.append(one)
                continue
            self._forget_changed(one.asked, found)
            lost = {key for key in one.asked.blocks if found[key] is None}
            self._writes.lost(lost)
            fences = [self._writes.of(b"x", new.entry.objects) for new in one.asked.entries]
            if lost or any(found[key] is not None for key in fences):
                one.refuse(WriteLostError())
            else:
                one.answer(Answer(False, {}, {place: found[key] for place, key in alone.keys.items()}))
        if len(others) == len(group):
            self._divide(others)
        elif others:
            self._serve(others)

    def _divide(self, group: Sequence[Waiting[_Update, Answer]]) -> None:
        half = len(group) // 2
        for some in (group[:half], group[half:]):
            try:
                self._serve(some)
            except ServiceError as error:
                for one in some:
                    if not one.is_answered:
                        one.refuse(error)

    def _forget_changed(self, update: _Update, found: Mapping[bytes, KeyValue | None]) -> None:
        for name, one in update.containers.items():
            now = found[self._containers.key(name)]
            if now is None or now.revision != one.revision:
                self._containers.forget(name)  # it was removed, renamed, or is held

    def _until_answered(
        self,
        compare: Sequence[Compare],
        then: Sequence[Put],
        otherwise: Sequence[bytes],
        deadline: float,
        *,
        is_group: bool,
    ) -> tuple[Outcome, bool]:
        """The first answer to a transaction, and whether there was none before, so that it may be a repeated
        one."""
        was_unknown = False
        while True:
            try:
                # A group seldom fails, and where it does a look of its own costs less than to ask it always.
                outcome = self._client.transact(compare, then, () if is_group else otherwise)
                if is_group and not outcome.succeeded:
                    outcome = outcome._replace(found=self._client.get(*otherwise))
                return outcome, was_unknown
            except ServiceError as error:
                was_unknown |= isinstance(error, OutcomeUnknownError)
                if not was_unknown:
                    raise
                if self._environment.monotonic() >= deadline:
                    raise _unknown(f"{error.what}: {error.why}") from error
                self._environment.sleep(_PAUSE)


def _together(updates: Sequence[_Update]) -> list[int]:
    """Which updates go in one transaction: the first, and those that fit beside it."""
    chosen: list[int] = []
    places: set[Place] = set()
    containers: Mapping[str, Container] = {}
    blocks: frozenset[bytes] = frozenset()
    writes = changes = size = 0
    for number, one in enumerate(updates):
        others, all_blocks = {**containers, **one.containers}, blocks | one.blocks
        compared = len(places) + len(one.known) + len(others) + len(all_blocks) + writes + len(one.entries)
        fits = (
            places.isdisjoint(one.known)
            and others == {**one.containers, **containers}  # they know the same of those that they share
            and max(compared + 1, changes + one.changes) <= _MOST_OPERATIONS
            and size + one.size <= _MOST_BYTES
        )
        if not fits and chosen:
            continue
        chosen.append(number)
        places.update(one.known)
        containers, blocks = others, all_blocks
        writes, changes, size = writes + len(one.entries), changes + one.changes, size + one.size
        if max(compared + 1, changes) + 2 > _MOST_OPERATIONS:  # each has two keys of its own at least
            break
    return chosen


def _is_met(revision: int | None, found: KeyValue | None) -> bool:
    if revision is None:
        return found is not None
    return (0 if found is None else found.revision) == revision


def _revisions(update: _Update, request: _Request, outcome: Outcome) -> dict[Place, int]:
    keys = [(new.place, request.keys[new.place]) for new in update.entries]
    return {place: outcome.revisions[key] for place, key in keys if key in outcome.revisions}


def _unknown(why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError("it is not known whether this took place", why, "Look again later.")
