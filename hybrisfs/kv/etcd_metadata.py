"""The metadata of a key-value store in an etcd that all machines of the volume use (Hybris 4).

An entry is one key of etcd. A conditional update is one transaction: it compares the revisions of all entries
that it replaces or depends on, and fails when one of them is another; then it is tried again with what is
there now.

Under the prefix of the volume there are, with DEVICE the id of a machine and WRITE the number of a write:

==================  =================  ================================================================
key                 value              meaning
==================  =================  ================================================================
s                   16 bytes           the id of the store, part of the names of all its objects
n                   decimal            the first number of a write that no block has
c/NAME              ID, or ID dropping a container; ID is 16 hex digits. While it is being moved it has
                                       another name (`migrate.py`)
k/ID/KEY            `record.py`        the entry of a key, tombstones included
l/DEVICE            empty, leased      the machine is at work
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
machine whose lease has ended, since it slept or died, loses its blocks to the others in that way: an update
that it had begun fails then.

**An unknown outcome** (no answer to a transaction) is an ordinary case: the same transaction is repeated
until there is an answer; when it had taken place, the repeated one fails, and finds its write in ``u``.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.errors import ConditionNotMetError
from hybrisfs.kv.etcd_client import EtcdClient, EtcdError, OutcomeUnknownError
from hybrisfs.kv.etcd_containers import EtcdContainers, entry_of, number_of
from hybrisfs.kv.etcd_requests import Compare, Found, Outcome, Put, Range, Remove, after_prefix
from hybrisfs.kv.etcd_writes import EtcdWrites, WriteLostError
from hybrisfs.kv.metadata import Change, Garbage, Listed, Owed
from hybrisfs.kv.metadata import Found as FoundValue
from hybrisfs.kv.record import Condition, KeyMetadata, Place, spell
from hybrisfs.kv.repetition import Repetition
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import STORE_ID_SIZE
from sync.codec import DecodeError

__all__ = ["EtcdMetadata"]

log = logging.getLogger(__name__)

_PAGE: Final = 1000  # keys
_AT_ONCE: Final = 50  # keys of a transaction with two changes each; etcd allows 128
_SEEN: Final = 50_000  # entries
_MOST_GARBAGE: Final = 1 << 30  # rows
_UPDATE_SECONDS: Final = 30.0
_PAUSE: Final = 0.05
_PLACE: Final = re.compile(rb"([0-9a-f]{16})/(.*)", re.DOTALL)


class _Seen(NamedTuple):
    """An entry as it was at a revision of its key; 0: there was none."""

    entry: KeyMetadata | None
    revision: int


_NOTHING: Final = _Seen(None, 0)


class EtcdMetadata:
    """A metadata store (see `hybrisfs.kv.rmds.MetadataStore`). Thread-safe.

    Methods raise EtcdError when etcd does not answer in time or refuses. Then nothing was changed, unless it
    is an OutcomeUnknownError.
    """

    failed: Final = False
    is_shared: Final = True

    def __init__(
        self,
        client: EtcdClient,
        root: bytes,
        debts: DeviceMetadata,
        device: bytes,
        environment: Environment = SYSTEM,
    ) -> None:
        """*root* is what all keys begin with, *device* the id of this machine. *debts*: a database here that
        remembers what clouds have yet to delete; it is closed with this. Raises EtcdError."""
        self.store_id: Final = _store_id(client, root)
        self._debts = debts
        self._taken: set[int] = set()  # garbage that `debts` have, or have had
        self._client = client
        self._root = root
        self._environment = environment
        self.writes: Final = EtcdWrites(client, root, device, environment)
        self._containers = EtcdContainers(client, root, environment)
        self._lock = threading.Lock()
        self._seen: OrderedDict[Place, _Seen] = OrderedDict()
        self._held: Mapping[int, int] | None = None

    # -- reading ---------------------------------------------------------------------------------

    def read(self, place: Place) -> KeyMetadata | None:
        """The entry of a key, a tombstone included. Linearizable. Raises NoSuchContainerError when the
        container is another one by now, and DamagedError."""
        return self._look(place).entry

    def spelled(self, place: Place) -> str:
        """A key as people write it: CONTAINER/KEY."""
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
        """The keys with values that begin with *prefix* and come after *after*, in order, in pages of at most
        *most* keys, all of one moment: that of the first page. With *deleted* those that have none any more,
        too."""
        yield self._pages(container, prefix, after, most, deleted=deleted)

    def _pages(
        self, container: int, prefix: bytes, after: bytes | None, most: int, *, deleted: bool
    ) -> Iterator[list[Listed]]:
        base = self._containers.entry_key((container, b""))
        first = base + prefix if after is None or after < prefix else base + after + b"\0"
        asked = Range(first, after_prefix(base + prefix), most)
        beginning = self._containers.range_in(container, asked)
        for page in self._client.pages(asked, most, beginning):
            entries = [(one.key[len(base) :], entry_of(one)) for one in page.keys]
            yield [Listed(key, entry) for key, entry in entries if deleted or entry.live]

    def values(self) -> Iterator[FoundValue]:
        """All keys that have values, and those with damaged records, as of one moment."""
        prefix = self._key(b"k/")
        held: dict[int, int] = {}
        for page in self._client.pages(Range(prefix, after_prefix(prefix)), _PAGE):
            for one in page.keys:
                named = _PLACE.fullmatch(one.key, len(prefix))
                if named is None:
                    log.warning("the key %r in etcd is damaged", one.key)
                    continue
                place = int(named[1], 16), named[2]
                try:
                    entry = KeyMetadata.decode(one.value)
                except DecodeError:
                    yield FoundValue(place, None)
                    continue
                for cloud in entry.placement:
                    held[cloud] = held.get(cloud, 0) + 1
                if entry.live:
                    yield FoundValue(place, entry)
        self._held = held

    def count(self) -> int:
        """How many keys there are, deleted ones included."""
        prefix = self._key(b"k/")
        pages = self._client.pages(Range(prefix, after_prefix(prefix), keys_only=True), 10 * _PAGE)
        return sum(len(page.keys) for page in pages)

    def held(self, cloud: int) -> int | None:
        """How many values a cloud should hold, as of the last time that all were looked at, if ever. Does not
        wait."""
        return None if self._held is None else self._held.get(cloud, 0)

    def problems(self) -> list[str]:
        """What is wrong with the whole: whether etcd can be asked."""
        try:
            self._client.range(Range(self._key(b"n")))
        except EtcdError as error:
            return [str(error)]
        return []

    def watch(self, place: Place, callback: Callable[[], None]) -> AbstractContextManager[object]:
        """Have *callback*, which must be quick, called after each change of the key until the end."""
        known = self._look(place)

        def changed() -> None:
            try:
                now = self._look(place)
            except HybrisError as error:
                log.debug("a watched key cannot be looked at: %s", error)
            else:
                if now.revision != known.revision:
                    callback()

        return self._client.watch(self._containers.entry_key(place), known.revision + 1, changed)

    # -- writing ---------------------------------------------------------------------------------

    def new_write(self, above: int = 0) -> int:
        """Begin a write: a number that no other write has, and that is higher than the one of *above*."""
        return self.writes.new_write(above)

    def intend(self, writes: Sequence[Garbage]) -> None:
        """Objects of these writes are about to go to the clouds: they are garbage until a key names them."""
        self.writes.intend(writes)

    def ended(self, writes: Sequence[int]) -> None:
        """These writes have ended, with success or without."""
        self.writes.ended(writes)

    def update(
        self, changes: Sequence[Change], conditions: Mapping[Place, Condition] | None = None
    ) -> Sequence[KeyMetadata] | None:
        """The conditional update: see `MetadataStore.update`. Raises WriteLostError, too."""
        wanted = conditions or {}
        places = list(dict.fromkeys([*(change.place for change in changes), *wanted]))
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
            replaced = [known[place].entry for place, _ in changes]
            outcome = self._attempt(
                places,
                known,
                [
                    (change.place, entry, old)
                    for change, entry, old in zip(changes, made, replaced, strict=True)
                ],
                deadline,
            )
            if outcome is None:
                return made
            known, is_current = outcome, True
            if self._environment.monotonic() >= deadline:
                raise HybrisError(
                    "nothing was written", "others write the same keys all the time", "Try again."
                )

    def move(self, place: Place, old: KeyMetadata, new: KeyMetadata) -> bool:
        """Have a key name other objects with the same value, if its entry is *old* still; whether it was."""
        deadline = self._environment.monotonic() + _UPDATE_SECONDS
        known = self._look(place)
        while known.entry == old:
            outcome = self._attempt([place], {place: known}, [(place, new, old)], deadline)
            if outcome is None:
                return True
            known = outcome[place]
        return False

    def _attempt(
        self,
        places: Sequence[Place],
        known: Mapping[Place, _Seen],
        entries: Sequence[tuple[Place, KeyMetadata, KeyMetadata | None]],
        deadline: float,
    ) -> dict[Place, _Seen] | None:
        """Put *entries*, each with the one that it replaces, if all *places* are as they are *known*.

        None when that is done, or what is there instead."""
        containers = {number: self._containers.writable(number) for number, _ in places}
        writes = [entry.objects for _, entry, _ in entries]
        blocks = {self.writes.block_of(write) for write in writes}
        fences = [self.writes.of(b"x", write) for write in writes]
        compare = [Compare(self._containers.entry_key(place), known[place].revision) for place in places]
        compare += [Compare(self._containers.key(name), one.revision) for name, one in containers.values()]
        compare += [Compare(key, None) for key in blocks] + [Compare(key, 0) for key in fences]
        then: list[Put | Remove] = []
        for place, entry, old in entries:
            then.append(Put(self._containers.entry_key(place), entry.encode()))
            then.append(Put(self.writes.of(b"u", entry.objects), b""))
            if old is not None and old.live:
                then.append(Put(self.writes.of(b"g", old.objects), b"%d" % old.names))
        used = self.writes.of(b"u", writes[0])
        asked = [*(one.key for one in compare), used]
        outcome, was_unknown = self._until_answered(compare, then, [Range(key) for key in asked], deadline)
        found = {} if outcome.succeeded else dict(zip(asked, outcome.found, strict=True))
        if outcome.succeeded or found[used].keys:
            self.writes.took_place(writes)
            for place, entry, _ in entries:
                self._keep(place, _Seen(entry, outcome.revision) if outcome.succeeded else None)
            return None
        for name, one in containers.values():
            if [now.revision for now in found[self._containers.key(name)].keys] != [one.revision]:
                self._containers.forget(name)  # it was removed, renamed, or is being dropped
        lost = {key for key in blocks if not found[key].keys}
        self.writes.lost(lost)
        if lost and was_unknown:
            # Those that have taken over the block have removed the mark, if there was one.
            raise _unknown("others took this machine for gone before the metadata store had answered")
        if lost or any(found[key].keys for key in fences):
            raise WriteLostError
        return {place: self._note(place, found[self._containers.entry_key(place)]) for place in places}

    def _until_answered(
        self,
        compare: Sequence[Compare],
        then: Sequence[Put | Remove],
        otherwise: Sequence[Range],
        deadline: float,
    ) -> tuple[Outcome, bool]:
        """The first answer to a transaction, and whether there was none before, so that it may be a repeated
        one."""
        was_unknown = False
        while True:
            try:
                return self._client.transact(compare, then, otherwise), was_unknown
            except EtcdError as error:
                was_unknown |= isinstance(error, OutcomeUnknownError)
                if not was_unknown:
                    raise
                if self._environment.monotonic() >= deadline:
                    raise _unknown(f"{error.what}: {error.why}") from error
                self._environment.sleep(_PAUSE)

    # -- what this device is to delete from the clouds -------------------------------------------
    # Garbage leaves etcd when the clouds have deleted it, or `debts` remember which have not. If that is cut
    # short, it is deleted once more, which changes nothing.

    def gather_garbage(self) -> None:
        """Find out what this device is to delete."""
        found = {one.write: one for one in self.writes.garbage()}
        known = {one.write for one in self._debts.garbage(0, _MOST_GARBAGE)} | {*self._debts.owed_writes()}
        new = [one for one in found.values() if one.write not in known | self._taken]
        if new:
            self._debts.intend(new)
        self.writes.forget([write for write in found if write in self._taken and write not in known])
        self._taken = set(found)

    def garbage(self, after: int, limit: int) -> list[Garbage]:
        """Writes above *after* that no key refers to and that this device is to delete."""
        return self._debts.garbage(after, limit)

    def forget_garbage(
        self, writes: Sequence[int], owed: Sequence[Owed], again: Sequence[Repetition] = ()
    ) -> None:
        """All clouds have deleted these writes but those that owe it, and will do it again."""
        self._debts.forget_garbage(writes, owed, again)
        self.writes.forget(sorted({*writes} - {one.write for one in owed}))

    def owed(self, cloud: int, limit: int) -> list[Owed]:
        """What a cloud has yet to delete that the others have deleted."""
        return self._debts.owed(cloud, limit)

    def forget_owed(self, deletions: Sequence[Owed], again: Sequence[Repetition] = ()) -> None:
        """These clouds have deleted now what they owed, and will do it again."""
        self._debts.forget_owed(deletions, again)

    def owing(self) -> Mapping[int, int]:
        """See `MetadataStore.owing`."""
        return self._debts.owing()

    def repetitions(self, cloud: int, start: int, end: int, limit: int) -> list[Repetition]:
        """See `MetadataStore.repetitions`."""
        return self._debts.repetitions(cloud, start, end, limit)

    def first_repetitions(self) -> dict[int, int]:
        """See `MetadataStore.first_repetitions`."""
        return self._debts.first_repetitions()

    def repeat(self, done: Sequence[int], again: Sequence[Repetition]) -> None:
        """The repetitions with these numbers were carried out; others will be."""
        self._debts.repeat(done, again)

    # -- containers ------------------------------------------------------------------------------

    def container(self, name: str) -> int:
        """The number of a container. Raises NoSuchContainerError."""
        return self._containers.number(name)

    def containers(self) -> list[str]:
        """The names of all containers, sorted, those included that are being moved."""
        return self._containers.all()

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._containers.create(name)

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._containers.delete(name)

    def rename_container(self, name: str, new: str) -> None:
        """See `MetadataStore.rename_container`."""
        self._containers.rename(name, new)

    def discard_container(self, name: str) -> None:
        """See `MetadataStore.discard_container`."""
        key = self._containers.key(name)
        found = self._client.range(Range(key)).keys
        if not found:
            return
        mine = [Compare(key, found[0].revision)]
        entries = self._containers.entry_key((number_of(found[0]), b""))
        asked = Range(entries, after_prefix(entries), _AT_ONCE)
        while page := self._client.range(asked).keys:
            live = [entry for entry in (entry_of(one) for one in page) if entry.live]
            garbage = [Put(self.writes.of(b"g", one.objects), b"%d" % one.names) for one in live]
            if self._client.settle(mine, [*(Remove(one.key) for one in page), *garbage], key) is not None:
                return  # another machine is quicker
        self._client.settle(mine, [Remove(key)], key)
        self._containers.forget(name)

    def close(self) -> None:
        """End the lease, and close the connections and the database. Idempotent."""
        self.writes.close()
        self._client.close()
        self._debts.close()

    # -- how -------------------------------------------------------------------------------------

    def _key(self, rest: bytes) -> bytes:
        return self._root + rest

    def _look(self, place: Place) -> _Seen:
        return self._note(
            place, self._containers.range_in(place[0], Range(self._containers.entry_key(place)))
        )

    def _note(self, place: Place, found: Found) -> _Seen:
        seen = _NOTHING
        if found.keys:
            seen = _Seen(entry_of(found.keys[0]), found.keys[0].revision)
        self._keep(place, seen)
        return seen

    def _keep(self, place: Place, seen: _Seen | None) -> None:
        with self._lock:
            self._seen.pop(place, None)
            if seen is not None:
                self._seen[place] = seen
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)


def _store_id(client: EtcdClient, root: bytes) -> bytes:
    """The id of the store; whoever asks first draws it."""
    key = root + b"s"
    if not client.range(Range(key)).keys:
        client.settle([Compare(key, 0)], [Put(key, secrets.token_bytes(STORE_ID_SIZE))], key)
    return client.range(Range(key)).keys[0].value


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


def _unknown(why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError("it is not known whether this took place", why, "Look again later.")
