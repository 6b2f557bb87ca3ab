"""The metadata of a key-value store in a service that all machines of the volume use (Hybris 4).

An entry is one key of the service. A conditional update is one transaction: it compares the revisions of all
entries that it replaces or depends on, and fails when one of them is another; then it is tried again with
what is there now. `service.py` says what a service does, and how each does it is in the module of its
client.

The keys are, with DEVICE the id of a machine and WRITE the number of a write:

==================  =================  ================================================================
key                 value              meaning
==================  =================  ================================================================
s                   16 bytes           the id of the store, part of the names of all its objects
n                   decimal            the first number of a write that no block has
c/NAME              ID STATE           a container; ID is 16 hex digits. While it is being moved it has
                                       another name (`migrate.py`). STATE is empty; or it is held:
                                       `` dropping``, or `` listing MARK`` by somebody who could not list its
                                       keys since others wrote them all the time; MARK is 8 hex digits that
                                       tell the holders from each other
k/ID/KEY            `record.py`        the entry of a key, tombstones included
l/DEVICE            empty              the machine is at work: the service removes it when that falls silent
b/DEVICE/WRITE      decimal            a block of so many numbers, from WRITE on, is the machine's
u/DEVICE/WRITE      empty              this write of a block has taken place
x/DEVICE/WRITE      empty              this write of a block cannot take place any more
g/DEVICE/WRITE      decimal            no key refers to the write's objects, which have so many names; 0: not
                                       known how many
f/DEVICE/OF/WRITE   decimal            what a block of machine OF has left is being looked for
==================  =================  ================================================================

**Nothing that a key names is deleted.** A machine puts objects to the clouds only under numbers of its
blocks, and an update names them only if the block is there and the write is not in ``x``; it puts the write
into ``u``. Objects are deleted only when their write is in ``g``. It gets there when an update replaces it,
or when a write has ended without success, after ``x`` was set in a transaction that found its block and no
``u``; or when a block has been removed, which no later update can follow, by looking which of its writes are
not in ``u``: marks go with their block, or with the note in ``f`` of the machine that has taken it over. A
machine that has lost its ``l``, since it slept or died, loses its blocks to the others in that way: an update
that it had begun fails then.

**An unknown outcome** (no answer to a transaction) is an ordinary case: the same transaction is repeated
until there is an answer; when it had taken place, the repeated one fails, and finds its write in ``u``. The
mark is looked for before the block: where the block is still there, no mark had been removed when it was
looked for. Updates of several threads go in one transaction; `service_updates.py` has what follows from that.

**Revisions** that fail once fail for ever, so a transaction that comes late finds none. Entries go only with
their container, blocks and writes have numbers of their own; a note in ``f`` may come back when machines take
it from each other, and the marks of its block have stayed. Names of containers come back: services see to it
that their revisions do not.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Final, NamedTuple

from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.kv.errors import ConditionNotMetError
from hybrisfs.kv.metadata import Change, Listed, Owed
from hybrisfs.kv.metadata import Found as FoundValue
from hybrisfs.kv.record import Condition, KeyMetadata, Place, spell
from hybrisfs.kv.repetition import Repetition
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import STORE_ID_SIZE
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Put,
    Remove,
    ServiceError,
    after_prefix,
)
from hybrisfs.kv.service_containers import ServiceContainers, entry_of, number_of
from hybrisfs.kv.service_updates import NewEntry, ServiceUpdates
from hybrisfs.kv.service_writes import ServiceWrites

__all__ = ["ServiceMetadata", "store_id_in"]

log = logging.getLogger(__name__)

_PAGE: Final = 1000  # keys
_AT_ONCE: Final = 50  # keys of a transaction with two changes each; etcd allows 128
_ENTRIES: Final = b"k/"
_SEEN: Final = 50_000  # entries
_MOST_GARBAGE: Final = 1 << 30  # rows
_UPDATE_SECONDS: Final = 30.0
_PLACE: Final = re.compile(rb"k/([0-9a-f]{16})/(.*)", re.DOTALL)


class _Seen(NamedTuple):
    """An entry as it was at a revision of its key; 0: there was none."""

    entry: KeyMetadata | None
    revision: int


_NOTHING: Final = _Seen(None, 0)


class ServiceMetadata:
    """A `MetadataStore`; what has no text here is explained there. Thread-safe.

    Methods raise ServiceError when the service does not answer in time or refuses. Then nothing was changed,
    unless it is an OutcomeUnknownError.
    """

    failed: Final = False
    is_shared: Final = True

    def __init__(
        self,
        client: MetadataService,
        debts: DeviceMetadata,
        device: bytes,
        environment: Environment,
    ) -> None:
        """*device* is the id of this machine. *debts*: a database here that remembers what clouds have yet to
        delete. It and the client are closed with this. Raises ServiceError."""
        self.store_id: Final = store_id_in(client)
        self._debts = debts
        self._taken: set[int] = set()  # garbage that `debts` have, or have had
        self._client = client
        self._environment = environment
        self.writes: Final = ServiceWrites(client, device, environment)
        self._containers = ServiceContainers(client, environment)
        self._updates = ServiceUpdates(client, self._containers, self.writes, environment)
        self._lock = threading.Lock()
        self._seen: OrderedDict[Place, _Seen] = OrderedDict()
        self._held: Mapping[int, int] | None = None
        # What the parts do alone; see `MetadataStore`.
        self.new_write = self.writes.new_write
        self.intend = self.writes.intend
        self.ended = self.writes.ended
        self.garbage = debts.garbage
        self.owed = debts.owed
        self.forget_owed = debts.forget_owed
        self.owing = debts.owing
        self.repetitions = debts.repetitions
        self.first_repetitions = debts.first_repetitions
        self.repeat = debts.repeat
        self.container = self._containers.number
        self.containers = self._containers.all
        self.create_container = self._containers.create
        self.delete_container = self._containers.delete
        self.rename_container = self._containers.rename

    # -- reading ---------------------------------------------------------------------------------

    def read(self, place: Place) -> KeyMetadata | None:
        """The entry of a key, a tombstone included. Linearizable. Raises NoSuchContainerError when the
        container is another one by now, and DamagedError."""
        return self._look(place).entry

    def spelled(self, place: Place) -> str:
        return spell(self._containers.names, place)

    @contextmanager
    def listing(
        self,
        container: int,
        prefix: bytes,
        after: bytes | None = None,
        most: int = _PAGE,
        *,
        deleted: bool = False,
    ) -> Iterator[Iterator[list[Listed]]]:
        """See `MetadataStore`: the moment is that of the first page."""
        yield self._pages(container, prefix, after, most, deleted=deleted)

    def _pages(
        self, container: int, prefix: bytes, after: bytes | None, most: int, *, deleted: bool
    ) -> Iterator[list[Listed]]:
        base = self._containers.entry_key((container, b""))
        first = base + prefix if after is None or after < prefix else base + after + b"\0"
        reading = self._client.reading(first, after_prefix(base + prefix), most)
        self._containers.read(container, reading)
        for page in reading.pages():
            entries = [(one.key[len(base) :], entry_of(one)) for one in page]
            yield [Listed(key, entry) for key, entry in entries if deleted or entry.live]

    def values(self) -> Iterator[FoundValue]:
        held: dict[int, int] = {}
        for one in self._client.scan(_ENTRIES, after_prefix(_ENTRIES)):
            named = _PLACE.fullmatch(one.key)
            if named is None:
                log.warning("the key %r of the metadata is damaged", one.key)
                continue
            place = int(named[1], 16), named[2]
            try:
                entry = entry_of(one)
            except DamagedError:
                yield FoundValue(place, None)
                continue
            for cloud in entry.placement:
                held[cloud] = held.get(cloud, 0) + 1
            if entry.live:
                yield FoundValue(place, entry)
        self._held = held

    def count(self) -> int:
        return sum(1 for _ in self._client.scan(_ENTRIES, after_prefix(_ENTRIES), keys_only=True))

    def held(self, cloud: int) -> int | None:
        """How many values a cloud should hold, as of the last time that all were looked at, if ever. Does not
        wait."""
        return None if self._held is None else self._held.get(cloud, 0)

    def problems(self) -> list[str]:
        """What is wrong with the whole: whether the service can be asked."""
        try:
            self._client.get(b"n")
        except ServiceError as error:
            return [str(error)]
        return []

    def watch(self, place: Place, callback: Callable[[], None]) -> AbstractContextManager[object]:
        known = self._look(place)

        def changed() -> None:
            try:
                now = self._look(place)
            except HybrisError as error:
                log.debug("a watched key cannot be looked at: %s", error)
            else:
                if now.revision != known.revision:
                    callback()

        return self._client.watch(self._containers.entry_key(place), known.revision, changed)

    # -- writing ---------------------------------------------------------------------------------

    def update(
        self, changes: Sequence[Change], conditions: Mapping[Place, Condition] | None = None
    ) -> Sequence[KeyMetadata] | None:
        """The conditional update: see `MetadataStore.update`. Raises WriteLostError, too."""
        wanted = conditions or {}
        places = dict.fromkeys([change.place for change in changes] + [*wanted])
        with self._lock:
            known = {place: self._seen.get(place, _NOTHING) for place in places}
        is_current = False
        deadline = self._environment.monotonic() + _UPDATE_SECONDS
        while True:
            try:
                made = _evaluated(changes, wanted, known)
            except _Unmet as unmet:
                if is_current:
                    place, condition = unmet.args
                    raise ConditionNotMetError(self.spelled(place), condition, known[place].entry) from None
                known, is_current = {place: self._look(place) for place in places}, True
                continue
            if made is None:
                return None
            entries = [
                NewEntry(change.place, entry, known[change.place].entry)
                for change, entry in zip(changes, made, strict=True)
            ]
            outcome = self._attempt(known, entries, deadline)
            if outcome is None:
                return made
            known, is_current = outcome, True
            if self._environment.monotonic() >= deadline:
                raise HybrisError(
                    "nothing was written", "others write the same keys all the time", "Try again."
                )

    def move(self, place: Place, old: KeyMetadata, new: KeyMetadata) -> bool:
        deadline = self._environment.monotonic() + _UPDATE_SECONDS
        known = self._look(place)
        while known.entry == old:
            outcome = self._attempt({place: known}, [NewEntry(place, new, old)], deadline)
            if outcome is None:
                return True
            known = outcome[place]
        return False

    def _attempt(
        self, known: Mapping[Place, _Seen], entries: Sequence[NewEntry], deadline: float
    ) -> dict[Place, _Seen] | None:
        """Put *entries* if all places are as they are *known*. None when that is done, or what is there
        instead."""
        revisions = {place: one.revision for place, one in known.items()}
        answer = self._updates.make(revisions, entries, deadline)
        if not answer.took_place:
            return {place: self._note(place, one) for place, one in answer.found.items()}
        for place, entry, _ in entries:
            revision = answer.revisions.get(place)
            self._keep(place, None if revision is None else _Seen(entry, revision))
        return None

    # -- what this device is to delete from the clouds -------------------------------------------
    # Garbage leaves the service when the clouds have deleted it, or `debts` remember which have not. If that
    # is cut short, it is deleted once more, which changes nothing.

    def gather_garbage(self) -> None:
        found = {one.write: one for one in self.writes.garbage()}
        known = {one.write for one in self._debts.garbage(0, _MOST_GARBAGE)} | {*self._debts.owed_writes()}
        new = [one for one in found.values() if one.write not in known | self._taken]
        if new:
            self._debts.intend(new)
        self.writes.forget([write for write in found if write in self._taken and write not in known])
        self._taken = set(found)

    def forget_garbage(
        self, writes: Sequence[int], owed: Sequence[Owed], again: Sequence[Repetition] = ()
    ) -> None:
        self._debts.forget_garbage(writes, owed, again)
        self.writes.forget(sorted({*writes} - {one.write for one in owed}))

    # -- containers ------------------------------------------------------------------------------

    def discard_container(self, name: str) -> None:
        key = self._containers.key(name)
        (found,) = self._client.get(key)
        if found is None:
            return
        mine = [Compare(key, found.revision)]
        first = self._containers.entry_key((number_of(found), b""))
        last = after_prefix(first)
        entries = self._client.scan(first, last)
        while some := list(islice(entries, _AT_ONCE)):
            live = [entry for entry in (entry_of(one) for one in some) if entry.live]
            garbage = [Put(self.writes.of(b"g", one.objects), b"%d" % one.names) for one in live]
            if self._client.settle(mine, [*(Remove(one.key) for one in some), *garbage], key) is not None:
                return  # another machine is quicker
        self._client.settle(mine, [Remove(key), Remove(first, last)], key)
        self._containers.forget(name)

    def close(self) -> None:
        """Say that this machine is at work no longer, close the connections and the database. Idempotent."""
        self.writes.close()
        self._client.close()
        self._debts.close()

    # -- how -------------------------------------------------------------------------------------

    def _look(self, place: Place) -> _Seen:
        return self._note(place, self._containers.entry(place))

    def _note(self, place: Place, found: KeyValue | None) -> _Seen:
        seen = _NOTHING if found is None else _Seen(entry_of(found), found.revision)
        self._keep(place, seen)
        return seen

    def _keep(self, place: Place, seen: _Seen | None) -> None:
        with self._lock:
            self._seen.pop(place, None)
            if seen is not None:
                self._seen[place] = seen
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)


def store_id_in(client: MetadataService) -> bytes:
    """The id of the store; the first caller draws it. Raises DamagedError and ServiceError."""
    (found,) = client.get(b"s")
    if found is None:
        client.settle([Compare(b"s", 0)], [Put(b"s", secrets.token_bytes(STORE_ID_SIZE))], b"s")
        (found,) = client.get(b"s")
    if found is None or len(found.value) != STORE_ID_SIZE:
        raise DamagedError("the metadata of the key-value store cannot be used", "they have no right id")
    return found.value


class _Unmet(Exception):  # noqa: N818
    """A condition does not hold of an entry that is known."""


def _evaluated(
    changes: Sequence[Change], conditions: Mapping[Place, Condition], known: Mapping[Place, _Seen]
) -> list[KeyMetadata] | None:
    """The entries that the changes make of those known; None when one was overtaken. Raises _Unmet."""
    for place, condition in conditions.items():
        if not condition.holds(known[place].entry):
            raise _Unmet(place, condition)
    made = []
    for place, entry in changes:
        new = entry.after(known[place].entry)
        if new is None:
            return None
        made.append(new.under(conditions.get(place)))
    return made
