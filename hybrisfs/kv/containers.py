"""What programs do with the keys of a container, wherever its metadata are.

====================  =======================================================================================
`KeyValueStore`       values on clouds, metadata in SQLite or a service: linearizable (`hybrisfs.kv.store`)
`LogStore`            all of it in the log of the volume: causal, also offline (`hybrisfs.kv.log_store`)
`CloudStore`          all of it on clouds, as cloud registers: linearizable (`hybrisfs.kv.cloud_store`)
====================  =======================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.errors import ConditionNotMetError, NoSuchKeyError
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, Timestamp

__all__ = [
    "ANYBODY",
    "Authority",
    "ContainerStore",
    "Entry",
    "Key",
    "KeyFacts",
    "Room",
    "Source",
    "Versioned",
    "name_keys",
]

log = logging.getLogger(__name__)

_EDIT_TRIES: Final = 64
_SHOWN: Final = 10  # keys


class Key(NamedTuple):
    """The full name of a value."""

    container: str
    key: str


class KeyFacts(NamedTuple):
    """What the metadata tell of a key. `written` is in milliseconds since the epoch, 0 when not known."""

    key: str
    size: int
    timestamp: Timestamp
    written: int
    attributes: bytes


class Versioned(NamedTuple):
    """A value, and what the metadata tell of it."""

    value: bytes
    facts: KeyFacts

    @property
    def timestamp(self) -> Timestamp:
        return self.facts.timestamp


class Entry(NamedTuple):
    """A key of a container that is moved; `live` when it has a value. `written` and `size`: see
    `KeyFacts`."""

    key: str
    timestamp: Timestamp
    live: bool
    written: int
    size: int
    is_only: bool = True
    """Whether no other value has had its version: two that are written to clouds at the same time may."""


def name_keys(container: str, keys: Sequence[str]) -> str:
    """Some of these keys, as people write them, and how many there are besides."""
    shown = ", ".join(f"{container}/{key[:80]}" for key in keys[:_SHOWN])
    return f"{shown} and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else shown


class Room(NamedTuple):
    """What a store has room for: bytes of a key, and of a value."""

    key: int
    value: int

    def refusal(self, container: str, keys: Sequence[str]) -> UsageError:
        """The error of a container that cannot be moved there because of these keys."""
        room = f"keys have at most {self.key:,} bytes there and values {self.value:,}"
        return UsageError(
            f"the container {container!r} cannot be moved there",
            f"{room}; larger: {name_keys(container, keys)}",
            "Move these to another container, or choose another place for this one.",
        )


class Authority(Protocol):
    """Tells whether this device may write."""

    def require_writer(self) -> None:
        """Raise HybrisError when it may not."""


class _Anybody:
    def require_writer(self) -> None:
        """Every device may write."""


ANYBODY: Final[Authority] = _Anybody()
"""That of a store which belongs to no volume."""


class Source(Protocol):
    """A value that is read only when there is room for it in memory."""

    @property
    def size(self) -> int:
        """In bytes."""

    def read(self) -> bytes:
        """The value. Raises HybrisError or OSError."""


class ContainerStore(Protocol):
    """A store of containers. Thread-safe. Methods raise HybrisError and OSError. A key has one value at most,
    unless a store has a `values` of its own."""

    def put(
        self,
        container: str,
        key: str,
        value: bytes | Source,
        condition: Condition | None = None,
        attributes: bytes = b"",
    ) -> Timestamp:
        """Write a value; return when it was written. *attributes* are kept beside it. Raises
        ConditionNotMetError when the key is not as *condition* says."""
        name = Key(container, key)
        conditions = {} if condition is None else {name: condition}
        return self.tput({name: value}, conditions, {name: attributes})[0]

    def edit(
        self, container: str, key: str, change: Callable[[bytes | None], bytes]
    ) -> tuple[Timestamp, int]:
        """Write what *change* makes of the value, of None when there is none; return when it was written, and
        its size.

        No other write comes between: when one does, *change* is called again with the newer value. Raises
        what *change* raises, and HybrisError when others write the key again and again.
        """
        for _ in range(_EDIT_TRIES):
            try:
                found = self.get(container, key)
            except NoSuchKeyError:
                before, condition = None, ABSENT
            else:
                before, condition = found.value, Condition(tag=found.timestamp)
            value = change(before)
            try:
                return self.put(container, key, value, condition), len(value)
            except ConditionNotMetError as error:
                log.debug("the value is changed again: %s", error)
        raise HybrisError("the value was not changed", "others write the same key all the time", "Try again.")

    def delete(self, container: str, key: str, condition: Condition | None = None) -> Timestamp | None:
        """Delete a key. Return the time of the deletion, or None: there was no such key. Raises
        ConditionNotMetError."""
        name = Key(container, key)
        try:
            return self.tput({name: None}, {name: condition or PRESENT})[0]
        except ConditionNotMetError:
            if condition is not None:
                raise
            return None  # there was none, or another delete was quicker

    def tput(
        self,
        values: Mapping[Key, bytes | Source | None],
        conditions: Mapping[Key, Condition] | None = None,
        attributes: Mapping[Key, bytes] | None = None,
    ) -> Sequence[Timestamp]:
        """Write several values, and delete the keys whose value is None: all of it at one moment, or nothing.
        Raises ConditionNotMetError."""

    def get(
        self,
        container: str,
        key: str,
        *,
        max_age: float | None = None,
        max_versions: int | None = None,
        at_least: Timestamp | None = None,
        tag: Timestamp | None = None,
    ) -> Versioned:
        """Return the first of `values`, or the one with this *tag*. The other arguments allow weaker reads.
        Raises NoSuchKeyError, and ConditionNotMetError: no value has the tag."""

    def stat(self, container: str, key: str) -> KeyFacts:
        """What there is to know of the value that `get` returns. Raises NoSuchKeyError."""

    def values(self, container: str, key: str) -> Sequence[KeyFacts]:
        """All values of the key: several when machines have written without knowing of each other. Raises
        NoSuchKeyError."""
        return [self.stat(container, key)]

    def list(
        self, container: str, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Sequence[KeyFacts]:
        """All keys that begin with *prefix* and follow *after*, or the first *limit* of them, in the order of
        their UTF-8 bytes, as of one moment."""
        with self.listing(container, prefix, after=after) as pages:
            return list(islice(chain.from_iterable(pages), limit))

    def listing(
        self, container: str, prefix: str = "", *, after: str | None = None, most: int = 1000
    ) -> AbstractContextManager[Iterator[Sequence[KeyFacts]]]:
        """The same in pages of at most *most* keys, all of the moment at which the context is entered."""
