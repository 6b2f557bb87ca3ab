"""Moves a container from one metadata store to another, while programs use it.

Values, versions, times and attributes stay; tags are new, as each value is a new write of the other store. A
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
stays where another container has it.

A write that was under way when the container got its other name fails, as if the container had been deleted;
a read may return what was there when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

from hybrisfs.kv.containers import KeyFacts
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerMovingError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.metadata import Listed
from hybrisfs.kv.record import Condition, KeyMetadata, arriving, leaving
from hybrisfs.kv.store import KeyValueStore

__all__ = ["finish", "give_up", "left_behind", "migrate"]

_PASSES: Final = 10
_FEW: Final = 20  # keys; so many are copied while nobody can use the container
_AT_ONCE: Final = 8


def migrate(
    container: str, source: KeyValueStore, target: KeyValueStore, step: Callable[[str, int, int], None]
) -> int:
    """Move a container, or go on with its move; return how many keys were copied by this call.

    *step* gets the stage, how many keys are done, and 0, as nobody has counted them; it may raise to stop.
    Raises ContainerExistsError when the other store has a container of that name, NoSuchContainerError,
    ContainerMovingError, CloudsUnavailable when a value cannot be read or stored, and HybrisError.
    """
    here, there = source.metadata, target.metadata
    copied = 0
    if container in here.containers():
        if container in there.containers():
            raise ContainerExistsError(container)
        if left_behind(container, source) is not None:  # of another one, that is not to be taken for this
            raise ContainerMovingError(container)
        copy = _begin(container, source, container, target)
        for _ in range(_PASSES):
            changed = _copy(source, container, target, copy, step, is_last=False)
            copied += changed
            if changed <= _FEW:
                break
        here.rename_container(container, leaving(container, _mark(target, copy)))
    left = left_behind(container, source)
    if left is None:
        raise NoSuchContainerError(container, [])
    if container not in there.containers():
        copy = _begin(container, source, left, target)
        now = leaving(container, _mark(target, copy))
        if left != now:  # it was to go elsewhere, or its copy was thrown away
            here.rename_container(left, now)
            left = now
        copied += _copy(source, left, target, copy, step, is_last=True)
        if left not in here.containers():  # another machine moves it, too
            raise ContainerMovingError(container)
        there.rename_container(copy, container)
    if left != leaving(container, _mark(target, container)):
        raise ContainerExistsError(container)
    here.discard_container(left)
    return copied


def give_up(container: str, target: KeyValueStore) -> None:
    """Throw away what moves have copied that did not come to an end."""
    for name in target.metadata.containers():
        if name.startswith(arriving(container)):
            target.metadata.discard_container(name)


def left_behind(container: str, store: KeyValueStore) -> str | None:
    """The name of what a container that is moved, or was, has left in a store; None when nothing is left."""
    names = store.metadata.containers()
    return next((name for name in names if name.startswith(leaving(container))), None)


def finish(container: str, source: KeyValueStore, target: KeyValueStore) -> bool:
    """Discard the former values of a container that has come to *target*. False when there are none."""
    left = left_behind(container, source)
    if left is None or left != leaving(container, _mark(target, container)):
        return False
    source.metadata.discard_container(left)
    return True


def _begin(container: str, source: KeyValueStore, name: str, target: KeyValueStore) -> str:
    """See to it that there is a copy, and none of another container; its name."""
    copy = arriving(container, _mark(source, name))
    if copy not in target.metadata.containers():
        give_up(container, target)
        target.metadata.create_container(copy)
    return copy


def _mark(store: KeyValueStore, name: str) -> str:
    """What tells a container from all others, in whatever store and with whatever name."""
    return f"{store.metadata.store_id.hex()}-{store.metadata.container(name):x}"


def _copy(
    source: KeyValueStore,
    name: str,
    target: KeyValueStore,
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
        old = _entries(source, name, ends)
        new = _entries(target, new_name, ends)
        there = next(new, None)
        waiting = []
        for one in old:
            while there is not None and there.key < one.key:
                there = next(new, None)
            entry = there.entry if there is not None and there.key == one.key else None
            done += 1
            if entry is not None and entry.sn >= one.entry.sn:
                continue
            if not (is_last or one.entry.live or (entry is not None and entry.live)):
                continue
            copied += 1
            waiting.append(pool.submit(_copy_one, source, name, target, new_name, one, entry))
            if len(waiting) >= 4 * _AT_ONCE:
                waiting.pop(0).result()
                step("keys", done, 0)
        for future in waiting:
            future.result()
        step("keys", done, 0)
    return copied


def _entries(store: KeyValueStore, name: str, ends: ExitStack) -> Iterator[Listed]:
    number = store.metadata.container(name)
    pages = ends.enter_context(store.metadata.listing(number, b"", deleted=True))
    return (one for page in pages for one in page)


def _copy_one(
    source: KeyValueStore,
    name: str,
    target: KeyValueStore,
    new_name: str,
    one: Listed,
    entry: KeyMetadata | None,
) -> None:
    key = one.key.decode()
    facts = KeyFacts(key, 0, one.entry.timestamp, one.entry.written, b"")
    value: bytes | None = None
    if one.entry.live:
        try:
            value, facts = source.get(name, key)
        except NoSuchKeyError:
            return  # the next pass finds that it was deleted
    was = Condition(version=entry.sn if entry is not None and entry.live else 0)
    with suppress(ConditionNotMetError):  # another machine goes on with the same move
        target.copy(new_name, key, value, facts, was)
