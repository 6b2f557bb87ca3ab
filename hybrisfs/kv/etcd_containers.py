"""The containers of a key-value store in an etcd.

`hybrisfs.kv.etcd_metadata` has the table of keys, and says what containers have to do with updates.
"""

from __future__ import annotations

import re
import secrets
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from hybrisfs.environment import Environment
from hybrisfs.kv.errors import ContainerExistsError, ContainerInUseError, NoSuchContainerError
from hybrisfs.kv.etcd_client import EtcdClient
from hybrisfs.kv.etcd_requests import Compare, Found, KeyValue, Put, Range, Remove, after_prefix
from hybrisfs.kv.etcd_writes import damaged
from hybrisfs.kv.record import KeyMetadata, Place, is_leaving
from sync.codec import DecodeError

__all__ = ["Container", "EtcdContainers", "entry_of", "number_of"]

_PAGE: Final = 1000  # keys
_PAUSE: Final = 0.05
_DROPPING: Final = b" dropping"
_DROP_SECONDS: Final = 30.0  # then whoever began to drop a container has given up
_CONTAINER: Final = re.compile(rb"([0-9a-f]{16})( dropping)?")


class Container(NamedTuple):
    """A container as it was at a revision of its key."""

    number: int
    revision: int


class EtcdContainers:
    """Names of containers, and their numbers as they were seen last. Thread-safe. Methods raise EtcdError."""

    def __init__(self, client: EtcdClient, root: bytes, environment: Environment) -> None:
        """*root* is what all keys begin with."""
        self._client = client
        self._root = root
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[str, Container] = {}
        self.names: Final[dict[int, str]] = {}
        """By number, as far as they were seen."""

    def number(self, name: str) -> int:
        """The number of a container. Raises NoSuchContainerError."""
        with self._lock:
            known = self._known.get(name)
        return known.number if known is not None else self._look_up(name).number

    def all(self) -> list[str]:
        """The names of all containers, sorted, those included that are being moved."""
        prefix = self._root + b"c/"
        pages = self._client.pages(Range(prefix, after_prefix(prefix), keys_only=True), _PAGE)
        names = (one.key[len(prefix) :] for page in pages for one in page.keys)
        return sorted(name.decode(errors="replace") for name in names)

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
        found = self._client.range(Range(key)).keys
        if not found or found[0].value != value + _DROPPING:
            raise NoSuchContainerError(None, [])
        mine = [Compare(key, found[0].revision)]
        entries = self.entry_key((one.number, b""))
        last = after_prefix(entries)
        pages = self._client.pages(Range(entries, last), _PAGE)
        if any(entry_of(one).live for page in pages for one in page.keys):
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
        found = self._client.range(Range(key)).keys
        if not found:
            raise NoSuchContainerError(None, [])
        if found[0].value != value:
            raise ContainerExistsError(new)

    def _look_up(self, name: str) -> Container:
        """The container as it is when nobody looks whether it may go. Raises NoSuchContainerError."""
        key = self.key(name)
        first: KeyValue | None = None
        began = self._environment.monotonic()
        while True:
            found = self._client.range(Range(key)).keys
            if not found:
                self.forget(name)
                raise NoSuchContainerError(name, self.all())
            if not found[0].value.endswith(_DROPPING):
                break
            if first != found[0]:
                first, began = found[0], self._environment.monotonic()
            elif self._environment.monotonic() - began >= _DROP_SECONDS:  # whoever looked has given up
                value = found[0].value.removesuffix(_DROPPING)
                self._client.settle([Compare(key, found[0].revision)], [Put(key, value)], key)
            self._environment.sleep(_PAUSE)
        known = Container(number_of(found[0]), found[0].revision)
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
        prefix = self._root + b"c/"
        for page in self._client.pages(Range(prefix, after_prefix(prefix)), _PAGE):
            names = {number_of(one): one.key[len(prefix) :].decode(errors="replace") for one in page.keys}
            with self._lock:
                self.names.update(names)

    def forget(self, name: str) -> None:
        """It is another one by now, or none."""
        with self._lock:
            self._known.pop(name, None)

    def key(self, name: str) -> bytes:
        """The key of a container."""
        return self._root + b"c/" + name.encode()

    def range_in(self, number: int, asked: Range) -> Found:
        """What a range holds while there is the container. Raises NoSuchContainerError."""
        name, one = self.of(number)
        found, container = self._client.look(asked, Range(self.key(name)))
        if not container.keys or number_of(container.keys[0]) != one.number:
            self.forget(name)
            raise NoSuchContainerError(None, [])
        return found

    def entry_key(self, place: Place) -> bytes:
        """The key of an entry."""
        return self._root + b"k/%016x/%b" % place


def entry_of(one: KeyValue) -> KeyMetadata:
    """The entry that a key holds. Raises DamagedError."""
    try:
        return KeyMetadata.decode(one.value)
    except DecodeError as error:
        raise damaged(one, str(error)) from error


def number_of(container: KeyValue) -> int:
    """The number of the container that a key holds. Raises DamagedError."""
    number = _CONTAINER.fullmatch(container.value)
    if number is None:
        raise damaged(container, "its value names no container")
    return int(number[1], 16)
