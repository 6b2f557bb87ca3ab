"""The containers of a key-value store whose metadata are in a service.

`hybrisfs.kv.service_metadata` has the table of keys, and says what containers have to do with updates.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.kv.errors import ContainerExistsError, ContainerInUseError, NoSuchContainerError
from hybrisfs.kv.record import KeyMetadata, Place, is_leaving
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Put,
    Reading,
    Remove,
    after_prefix,
)
from hybrisfs.kv.service_groups import Groups, Waiting
from hybrisfs.kv.service_writes import damaged
from sync.codec import DecodeError

__all__ = ["Container", "ServiceContainers", "entry_of", "number_of"]

_PREFIX: Final = b"c/"
_PAUSE: Final = 0.05
_NUMBER_SIZE: Final = 16  # digits
_DROPPING: Final = b" dropping"
_LISTING: Final = b" listing "
_HOLD_SECONDS: Final = 30.0  # then the machine that holds a container has given up
_CONTAINER: Final = re.compile(rb"([0-9a-f]{16})( dropping| listing [0-9a-f]{8})?")
_CATCHES: Final = 4  # before writers are kept waiting
_MOST_LOOKS: Final = 64  # at entries and their containers: an etcd allows 128 operations
_Pair: TypeAlias = tuple[bytes, bytes]
_FoundPair: TypeAlias = tuple[KeyValue | None, KeyValue | None]


class Container(NamedTuple):
    """A container as it was at a revision of its key."""

    number: int
    revision: int


class ServiceContainers:
    """Names of containers, and their numbers as they were seen last. Thread-safe.

    Methods raise ServiceError.
    """

    def __init__(self, client: MetadataService, environment: Environment) -> None:
        self._client = client
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[str, Container] = {}
        self._looks: Groups[_Pair, _FoundPair] = Groups(_MOST_LOOKS, _together, self._look_at, environment)
        self.names: Final[dict[int, str]] = {}
        """By number, as far as they were seen."""

    def number(self, name: str) -> int:
        """The number of a container. Raises NoSuchContainerError."""
        with self._lock:
            known = self._known.get(name)
        return known.number if known is not None else self._look_up(name).number

    def all(self) -> list[str]:
        """The names of all containers, sorted, those included that are being moved. Raises HybrisError when
        one cannot be read here."""
        names = []
        for one in self._client.scan(_PREFIX, after_prefix(_PREFIX), keys_only=True):
            if one.trouble is not None and not isinstance(one.trouble, DamagedError):
                raise one.trouble
            names.append(one.key.removeprefix(_PREFIX).decode(errors="replace"))
        return sorted(names)

    def create(self, name: str) -> None:
        """Raises ContainerExistsError."""
        key, value = self.key(name), b"%016x" % secrets.randbits(63)
        found = self._client.settle([Compare(key, 0)], [Put(key, value)], key)
        if found is not None and found.value != value:
            raise ContainerExistsError(name)

    def delete(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        one = self._look_up(name)
        key, value = self.key(name), b"%016x" % one.number
        # From here on no update passes, as the revision of the container is another one.
        self._client.settle([Compare(key, one.revision)], [Put(key, value + _DROPPING)], key)
        (found,) = self._client.get(key)
        if found is None or found.value != value + _DROPPING:
            raise NoSuchContainerError(None, [])
        mine = [Compare(key, found.revision)]
        entries = self.entry_key((one.number, b""))
        last = after_prefix(entries)
        if any(entry_of(one).live for one in self._client.scan(entries, last)):
            self._client.settle(mine, [Put(key, value)], key)
            raise ContainerInUseError(name)
        left = self._client.settle(mine, [Remove(key), Remove(entries, last)], key)
        self.forget(name)
        if left is not None and left.value.startswith(value):
            # It took so long that another one has put it back to use.
            raise ContainerInUseError(name)

    def rename(self, name: str, new: str) -> None:
        """See `MetadataStore.rename_container`."""
        one = self._look_up(name)
        old, key, value = self.key(name), self.key(new), b"%016x" % one.number
        self._client.settle(
            [Compare(old, one.revision), Compare(key, 0)], [Remove(old), Put(key, value)], key
        )
        self.forget(name)
        (found,) = self._client.get(key)
        if found is None:
            raise NoSuchContainerError(None, [])
        if found.value != value:
            raise ContainerExistsError(new)

    def _look_up(self, name: str) -> Container:
        """The container as it is when nobody holds it. Raises NoSuchContainerError."""
        key = self.key(name)
        first: KeyValue | None = None
        began = self._environment.monotonic()
        while True:
            (found,) = self._client.get(key)
            if found is None:
                self.forget(name)
                raise NoSuchContainerError(name, self.all())
            number = number_of(found)
            if len(found.value) == _NUMBER_SIZE:
                break
            if first != found:
                first, began = found, self._environment.monotonic()
            elif self._environment.monotonic() - began >= _HOLD_SECONDS:
                self._client.settle(
                    [Compare(key, found.revision)], [Put(key, found.value[:_NUMBER_SIZE])], key
                )
            self._environment.sleep(_PAUSE)
        known = Container(number, found.revision)
        with self._lock:
            self._known[name] = known
            self.names[known.number] = name
        return known

    def of(self, number: int) -> tuple[str, Container]:
        """The container with a number, and its name. Raises NoSuchContainerError."""
        for is_last in (False, True):
            with self._lock:
                name = self.names.get(number)
                known = None if name is None else self._known.get(name)
            if name is not None and known is None:
                with suppress(NoSuchContainerError):  # it may have another name by now
                    known = self._look_up(name)
            if name is not None and known is not None and known.number == number:
                return name, known
            if not is_last:  # those who look after values find places, not names
                self._learn_names()
        raise NoSuchContainerError(None, [])

    def writable(self, number: int) -> tuple[str, Container]:
        """The same, unless it has been copied to another place. Raises NoSuchContainerError."""
        name, one = self.of(number)
        if is_leaving(name):
            raise NoSuchContainerError(None, [])
        return name, one

    def _learn_names(self) -> None:
        for one in self._client.scan(_PREFIX, after_prefix(_PREFIX)):
            number, name = number_of(one), one.key.removeprefix(_PREFIX).decode(errors="replace")
            with self._lock:
                self.names[number] = name

    def forget(self, name: str) -> None:
        """It is another one by now, or none."""
        with self._lock:
            self._known.pop(name, None)

    def key(self, name: str) -> bytes:
        """The key of a container."""
        return _PREFIX + name.encode()

    # Containers have numbers that none had before. So what was read of one before its key was seen was there
    # while the container was, whatever name it had in between.

    def entry(self, place: Place) -> KeyValue | None:
        """The key of an entry, while there is its container. Raises NoSuchContainerError."""
        name, one = self.of(place[0])
        entry, container = self._looks.do((self.entry_key(place), self.key(name)))
        self._require(name, one, container)
        return entry

    def _look_at(self, group: Sequence[Waiting[_Pair, _FoundPair]]) -> None:
        """Read the entries and the containers of those that wait: all entries before their containers."""
        keys = list(
            dict.fromkeys(key for keys in zip(*(one.asked for one in group), strict=True) for key in keys)
        )
        found = dict(zip(keys, self._client.get(*keys), strict=True))
        for one in group:
            entry, container = one.asked
            one.answer((found[entry], found[container]))

    def read(self, number: int, reading: Reading) -> None:
        """Read entries of a container, while it is there. Raises NoSuchContainerError."""
        name, one = self.of(number)
        if not any(reading.catch_up() for _ in range(_CATCHES)):
            self._keep_still(number, reading)
        (container,) = self._client.get(self.key(name))
        self._require(name, one, container)

    def _keep_still(self, number: int, reading: Reading) -> None:
        """Read what others write all the time: no update passes while the container has another revision."""
        name, _ = self.of(number)
        began = self._environment.monotonic()
        while not self._read_held(self._look_up(name), name, reading):
            if self._environment.monotonic() - began >= _HOLD_SECONDS:
                raise HybrisError(
                    "nothing was listed", "others write to the container all the time", "Try again."
                )

    def _read_held(self, one: Container, name: str, reading: Reading) -> bool:
        """Hold a container, unless another machine is quicker, and read; whether all is of one moment."""
        key, value = self.key(name), b"%016x" % one.number
        held = value + _LISTING + b"%08x" % secrets.randbits(32)
        self._client.settle([Compare(key, one.revision)], [Put(key, held)], key)
        (found,) = self._client.get(key)
        if found is None or found.value != held:
            return reading.catch_up()
        try:
            # An update that was let through before may be seen by the first, and none by the second.
            return any(reading.catch_up() for _ in range(2))
        finally:
            self._client.settle([Compare(key, found.revision)], [Put(key, value)], key)
            self.forget(name)

    def _require(self, name: str, one: Container, now: KeyValue | None) -> None:
        """Raise NoSuchContainerError when a container is another one by *now*."""
        if now is None or number_of(now) != one.number:
            self.forget(name)
            raise NoSuchContainerError(None, [])

    def entry_key(self, place: Place) -> bytes:
        """The key of an entry."""
        return b"k/%016x/%b" % place


def _together(pairs: Sequence[_Pair]) -> range:
    """Which pairs are looked at together."""
    return range(min(len(pairs), _MOST_LOOKS))


def entry_of(one: KeyValue) -> KeyMetadata:
    """The entry that a key holds. Raises DamagedError, and HybrisError when it cannot be read here."""
    if one.trouble is not None:
        raise one.trouble
    try:
        return KeyMetadata.decode(one.value)
    except DecodeError as error:
        raise damaged(one, str(error)) from error


def number_of(container: KeyValue) -> int:
    """The number of the container that a key holds. Raises DamagedError, and HybrisError when it cannot be
    read here."""
    if container.trouble is not None:
        raise container.trouble
    number = _CONTAINER.fullmatch(container.value)
    if number is None:
        raise damaged(container, "its value names no container")
    return int(number[1], 16)
