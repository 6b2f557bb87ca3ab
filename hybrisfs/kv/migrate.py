"""Moves a container from one metadata store to another, while programs use it.

Values, versions, times and attributes stay; tags are new, as each value is a new write of the other store.
(Where two values of a key have had one version, on clouds, the copy on other clouds has a higher one.) A
container that is being moved has another name for a while, which no user can give it:

=====================  =====================  ==========================================================
where it was           where it goes          what is done
=====================  =====================  ==========================================================
``NAME``               ``NAME/arriving/OLD``  keys are copied, again and again until few have changed
``NAME/leaving/NEW``   ``NAME/arriving/OLD``  nobody reads or writes; what has changed since is copied
``NAME/leaving/NEW``   ``NAME``               programs use it; the former values become garbage
none                   ``NAME``               it is done
=====================  =====================  ==========================================================

Each row follows from the one before by one transaction, so a move that was cut short goes on where it was.
OLD and NEW are marks, each of one container of all that ever were. A copy of another container of that name,
which was dropped since, is thrown away. What has been copied is discarded when its copy has the name, and
stays where another container has it. Before that, the clouds must have the copy.

**To the log** the copy goes into spaces of its own, and one update gives it the name. What the log has no
room for is refused before anything is changed. If a program writes that while its container is copied, the
container gets its name back. **From the log**, keys with several values are refused, as elsewhere a key has
one. Values of machines that do not know of the move are brought over afterwards, by
`finish` and by every `migrate` to the place where it is: `hybrisfs.kv.log_moves` says how.

A write that was under way when the container got its other name fails, as if the container had been deleted;
a read may return what was there when it began. From the clouds, where each device looks once a minute which
containers there are, the second row waits until no write can be under way any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Final, NamedTuple, Protocol, TypeAlias

from hybrisfs.errors import UsageError
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import ContainerStore, Entry, KeyFacts, Room, Versioned
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerMovingError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.record import Condition, arriving, container_of, leaving
from hybrisfs.kv.store import KeyValueStore

__all__ = ["Movable", "Moved", "Store", "finish", "give_up", "left_behind", "migrate"]

Store: TypeAlias = KeyValueStore | CloudStore | LogStore

_PASSES: Final = 10
_FEW: Final = 20  # keys; so many are copied while nobody can use the container
_AT_ONCE: Final = 8


class Movable(Protocol):
    """A store, as a move sees it. Methods raise HybrisError, CloudsUnavailable and OSError."""

    @property
    def room(self) -> Room | None:
        """What it has room for; None: for whatever there is elsewhere."""

    def names(self) -> Sequence[str]:
        """The names of all containers, also of those on their way."""

    def mark(self, name: str) -> str:
        """What tells a container from all others, in whatever store and with whatever name. Raises
        NoSuchContainerError."""

    def origin(self, name: str) -> str:
        """The mark that a copy of a container has in its name."""

    def require_one_value(self, name: str) -> None:
        """Raise UsageError when keys of a container have several values."""

    def create_container(self, name: str) -> None:
        """Make an empty container."""

    def rename(self, name: str, new: str) -> None:
        """Give a container another name. Writes to it that are under way fail, or have ended after
        `wait_for_others`."""

    def wait_for_others(self) -> None:
        """Wait until no write can be under way to a container by a former name."""

    def wait_until_safe(self, container: str) -> None:
        """Wait until the values of a container that came here need this machine no more than those that were
        put here. Raises HybrisError when that takes too long."""

    def is_late(self, name: str) -> bool:
        """Whether a container that has left holds only what was written to it since."""

    def withdraw(self, name: str) -> None:
        """Leave a container that is to leave to another machine, which moves it, too."""

    def hand_over(self, name: str, container: str, target: ContainerStore) -> Sequence[str]:
        """Discard a container that has left, when its copy has the name; bring there what was written to it
        since, and return the keys of the values that were put beside others."""

    def discard(self, name: str) -> None:
        """Remove a container that nobody uses, if it is there, with all that it holds."""

    def entries(self, name: str) -> AbstractContextManager[Iterator[Entry]]:
        """All keys of a container, also those that were deleted, in order; while others write to it, each may
        be as of a moment of its own."""

    def get(self, container: str, key: str) -> Versioned:
        """See `ContainerStore`."""

    def copy(
        self,
        container: str,
        key: str,
        value: bytes | None,
        facts: KeyFacts,
        before: Entry | None,
        *,
        is_only: bool,
    ) -> None:
        """Write a value with the version, the time and the attributes that it has elsewhere; None: delete it.
        *before*: what is there. *is_only*: see `Entry`; if it is not, what has this version is overwritten.
        Raises ConditionNotMetError when *before* is not there any more."""


class _Linearizable:
    """What a move need not do in stores in which one write follows another; see `Movable`."""

    room: Final = None
    mark: Callable[[str], str]
    discard: Callable[[str], None]

    def __init__(self, store: KeyValueStore | CloudStore) -> None:
        self.get = store.get

    def origin(self, name: str) -> str:
        return self.mark(name)

    def require_one_value(self, name: str) -> None:
        """They have one."""

    def wait_until_safe(self, container: str) -> None:
        """They are on the clouds before they count."""

    def is_late(self, name: str) -> bool:
        return False

    def withdraw(self, name: str) -> None:
        """Its name is gone already."""

    def hand_over(self, name: str, container: str, target: ContainerStore) -> Sequence[str]:
        self.discard(name)
        return ()


class _OnClouds(_Linearizable):
    """A store on the clouds, see `Movable`."""

    def __init__(self, store: CloudStore) -> None:
        super().__init__(store)
        self.mark = store.mark
        self.discard = store.discard
        self.names = store.names
        self.create_container = store.create_container
        self.rename = store.rename
        self.wait_for_others = store.wait_for_others
        self.entries = store.entries
        self.copy = store.copy


class _WithMetadata(_Linearizable):
    """A store with metadata of its own, see `Movable`."""

    def __init__(self, store: KeyValueStore) -> None:
        super().__init__(store)
        self._store = store
        self._metadata = store.metadata
        self.mark = self._marked
        self.discard = store.metadata.discard_container
        self.create_container = store.metadata.create_container
        self.rename = store.metadata.rename_container
        self.names = store.metadata.containers

    def _marked(self, name: str) -> str:
        return f"{self._metadata.store_id.hex()}-{self._metadata.container(name):x}"

    def wait_for_others(self) -> None:
        """None can be: the rename has ended them."""

    @contextmanager
    def entries(self, name: str) -> Iterator[Iterator[Entry]]:
        number = self._metadata.container(name)
        with self._metadata.listing(number, b"", deleted=True) as pages:
            yield (
                Entry(
                    one.key.decode(), one.entry.timestamp, one.entry.live, one.entry.written, one.entry.size
                )
                for page in pages
                for one in page
            )

    def copy(
        self,
        container: str,
        key: str,
        value: bytes | None,
        facts: KeyFacts,
        before: Entry | None,
        *,
        is_only: bool,
    ) -> None:
        version = before.timestamp.sn if before is not None and before.live else 0
        self._store.copy(container, key, value, facts, Condition(version=version))


def _movable(store: Store) -> Movable:
    if isinstance(store, LogStore):
        return store.moves
    return _OnClouds(store) if isinstance(store, CloudStore) else _WithMetadata(store)


class Moved(NamedTuple):
    """What a call has done."""

    keys: int
    """How many were copied."""
    beside: Sequence[str]
    """The keys under which values were put that were written late and did not agree with others."""


def migrate(container: str, source: Store, target: Store, step: Callable[[str, int, int], None]) -> Moved:
    """Move a container, or go on with its move.

    *step* gets the stage, how many keys are done, and 0, as nobody has counted them; it may raise to stop.
    Raises ContainerExistsError when the other store has a container of that name, NoSuchContainerError,
    ContainerMovingError, UsageError when there is no room or a key has several values, CloudsUnavailable when
    a value cannot be read or stored, and HybrisError.
    """
    here, there = _movable(source), _movable(target)
    copied = 0
    if container in here.names():
        if container in there.names():
            raise ContainerExistsError(container)
        if _left(container, here) is not None:  # of another one, that is not to be taken for this
            raise ContainerMovingError(container)
        here.require_one_value(container)
        _require_room(here, container, there)
        copy = _begin(container, here, container, there)
        for _ in range(_PASSES):
            changed = _copy(here, container, there, copy, step, is_last=False)
            copied += changed
            if changed <= _FEW:
                break
        here.rename(container, leaving(container, there.mark(copy)))
    left = _left(container, here)
    if left is None:
        raise NoSuchContainerError(container, [])
    if container not in there.names():
        copy = _begin(container, here, left, there)
        now = leaving(container, there.mark(copy))
        if left != now:  # it was to go elsewhere, or its copy was thrown away
            here.rename(left, now)
            left = now
        step("waiting", 0, 0)
        here.wait_for_others()
        try:
            _require_room(here, left, there)
        except UsageError:
            here.rename(left, container)
            there.discard(copy)
            raise
        copied += _copy(here, left, there, copy, step, is_last=True)
        if left not in here.names():  # another machine moves it, too
            here.withdraw(left)
            raise ContainerMovingError(container)
        there.rename(copy, container)
    if left != leaving(container, there.mark(container)):
        raise ContainerExistsError(container)
    there.wait_until_safe(container)
    return Moved(copied, here.hand_over(left, container, target))


def _require_room(here: Movable, name: str, there: Movable) -> None:
    """Raise UsageError when a container has keys that the other store has no room for."""
    room = there.room
    if room is not None:
        with here.entries(name) as entries:
            keys = [
                one.key
                for one in entries
                if one.live and (one.size > room.value or len(one.key.encode()) > room.key)
            ]
        if keys:
            raise room.refusal(container_of(name), keys)


def give_up(container: str, target: Store) -> None:
    """Throw away what moves have copied that did not come to an end."""
    _give_up(container, _movable(target))


def _give_up(container: str, there: Movable) -> None:
    for name in there.names():
        if name.startswith(arriving(container)):
            there.discard(name)


def left_behind(container: str, store: Store) -> str | None:
    """The name of what a container that is moved, or was, has left in a store; None when nothing is left."""
    return _left(container, _movable(store))


def _left(container: str, here: Movable) -> str | None:
    return next((name for name in here.names() if name.startswith(leaving(container))), None)


def finish(container: str, source: Store, target: Store) -> Moved | None:
    """Discard the former values of a container that has come to *target*, and bring there what was written to
    it late. None when there are none."""
    here = _movable(source)
    left = _left(container, here)
    if left is None:
        return None
    there = _movable(target)
    if left != leaving(container, there.mark(container)) and not here.is_late(left):
        return None
    there.wait_until_safe(container)
    return Moved(0, here.hand_over(left, container, target))


def _begin(container: str, here: Movable, name: str, there: Movable) -> str:
    """See to it that there is a copy, and none of another container; its name."""
    copy = arriving(container, here.origin(name))
    if copy not in there.names():
        _give_up(container, there)
        there.create_container(copy)
    return copy


def _copy(
    here: Movable,
    name: str,
    there: Movable,
    new_name: str,
    step: Callable[[str, int, int], None],
    *,
    is_last: bool,
) -> int:
    """Bring the keys of a container up to date in another; return how many were not.

    That a key was deleted is copied for its version. Where it has no value yet that waits for the last pass,
    after which nothing changes: two machines may go on with one move, and the second counts the version up.
    """
    done = copied = 0
    with ExitStack() as ends:
        pool = ends.enter_context(ThreadPoolExecutor(_AT_ONCE, "kv-migrate"))
        old = ends.enter_context(here.entries(name))
        new = ends.enter_context(there.entries(new_name))
        found = next(new, None)
        waiting = []
        for one in old:
            while found is not None and found.key.encode() < one.key.encode():
                found = next(new, None)
            before = found if found is not None and found.key == one.key else None
            done += 1
            if before is not None and _is_copied(one, before):
                continue
            if not (is_last or one.live or (before is not None and before.live)):
                continue
            copied += 1
            waiting.append(pool.submit(_copy_one, here, name, there, new_name, one, before))
            if len(waiting) >= 4 * _AT_ONCE:
                waiting.pop(0).result()
                step("keys", done, 0)
        for future in waiting:
            future.result()
        step("keys", done, 0)
    return copied


def _is_copied(one: Entry, copy: Entry) -> bool:
    """Whether a copy is as late as its original. Where two values have had one version, that does not tell:
    the other one may have been copied."""
    return one.is_only and copy.timestamp.sn >= one.timestamp.sn


def _copy_one(
    here: Movable, name: str, there: Movable, new_name: str, one: Entry, before: Entry | None
) -> None:
    facts = KeyFacts(one.key, 0, one.timestamp, one.written, b"")
    value: bytes | None = None
    if one.live:
        try:
            value, facts = here.get(name, one.key)
        except NoSuchKeyError:
            return  # the next pass finds that it was deleted
    with suppress(ConditionNotMetError):  # another machine goes on with the same move
        there.copy(new_name, one.key, value, facts, before, is_only=one.is_only)
