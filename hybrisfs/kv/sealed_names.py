"""Names of containers and keys, and what is known of them, sealed from the operator of a service.

`SealedService` is a service to which everything is in plain text (`hybrisfs.kv.service_metadata` has the
table of keys), over one that has, of containers and entries,

    key    c/HASH and k/ID/HASH instead of c/NAME and k/ID/KEY
           HASH = BLAKE3(key = name key, what the key begins with | NAME or KEY), 16 bytes as hex digits
           name key = BLAKE3(key = the volume's key for names, "hybrisfs names in a service" | store id)
    value  1   format (1)
           4   the epoch whose key seals it
           12  nonce = BLAKE3(key = nonce key, content)
               AES-256-GCM of the content, 16 bytes longer; associated data: format and epoch

    content    blob  NAME or KEY
               blob  the value as it would be in plain text
               zeros, up to a multiple of 128 bytes

    AES key (32) | nonce key (32) = BLAKE3(key = record key, store id | the key of the service)
    record key = BLAKE3(key = the key of the epoch for values, "hybrisfs records in a service")

A value opens only under the key that it was sealed for. So the operator of the service can neither swap two
values nor make one. It can put back an older one, as it is trusted to tell what was written last. A device
that was removed from the volume knows the name key still, and no key of a later epoch: it can find out
whether a name that it guesses is there, and reads nothing that is written later.

All other keys have numbers only, and are passed on. The protocol is about keys and their revisions, which
correspond one to one, so nothing of its argument changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from heapq import nsmallest
from typing import Final, NamedTuple

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError, NewerFormatError
from hybrisfs.kv.seal import STORE_ID_SIZE
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    Put,
    Reading,
    Remove,
    after_prefix,
)
from sync import EPOCH_SIZE
from sync.codec import DecodeError, Reader, Writer
from sync.seal import SealKeys

__all__ = ["NameSealer", "SealedService"]

_FORMAT: Final = 1
_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
_HEAD: Final = 1 + EPOCH_SIZE + _NONCE_SIZE
_KEY_SIZE: Final = 32
_HASH_SIZE: Final = 16
_PADDED: Final = 128  # bytes, of which the size of each content is a multiple
_MOST_CONTENT: Final = 1 << 20  # bytes
_SEALED: Final = (b"c/", b"k/")
_PAGE: Final = 1000  # keys
_SORTED_AT_ONCE: Final = 50_000  # entries in memory, of about half a KiB each


class NameSealer:
    """Seals what one store has in a service. Thread-safe."""

    def __init__(self, names: bytes, store: bytes, epochs: SealKeys) -> None:
        """*names* is the volume's key for names (32 bytes), *store* the id of the store, *epochs* are the
        keys that seal values."""
        if len(names) != _KEY_SIZE or len(store) != STORE_ID_SIZE:
            raise ValueError("a key for names has 32 bytes, a store id 16")
        self._name_key = blake3(b"hybrisfs names in a service" + store, key=names).digest()
        self._store = store
        self._epochs = epochs

    def hidden(self, before: bytes, name: bytes) -> bytes:
        """The key of the service for a name; *before* is what it begins with."""
        return before + blake3(before + name, key=self._name_key).digest(_HASH_SIZE).hex().encode()

    def seal(self, key: bytes, name: bytes, value: bytes) -> bytes:
        """What the *key* of the service holds."""
        content = Writer().blob(name).blob(value).getvalue()
        content += bytes(-len(content) % _PADDED)
        newest = self._epochs.newest()
        head = bytes((_FORMAT,)) + newest.epoch
        cipher, nonce_key = self._keys(newest.key, key)
        nonce = blake3(content, key=nonce_key).digest(_NONCE_SIZE)
        return b"".join((head, nonce, cipher.encrypt(nonce, content, head)))

    def open(self, key: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        """The name and the value that the *key* of the service holds. Raises DamagedError,
        NewerFormatError, and HybrisError when the key of its epoch is not here."""
        if not sealed:
            raise _damaged(key, "it is empty")
        if sealed[0] > _FORMAT:
            raise NewerFormatError(
                f"the key {key.decode(errors='replace')!r} of the metadata cannot be read",
                f"it has format {sealed[0]}, this version reads {_FORMAT}",
                "Upgrade HybrisFS on this machine.",
            )
        if sealed[0] != _FORMAT or not 0 <= len(sealed) - _HEAD - _TAG_SIZE <= _MOST_CONTENT:
            raise _damaged(key, "it is not a sealed value")
        epoch = sealed[1 : 1 + EPOCH_SIZE]
        found = self._epochs.find(epoch)
        if found is None:
            raise HybrisError(
                "a key of the metadata cannot be read yet",
                f"another machine has sealed it with a key of epoch {epoch.hex()}, which has not come here",
                "Try again when this machine has synchronised.",
            )
        cipher, _ = self._keys(found, key)
        try:
            content = cipher.decrypt(sealed[1 + EPOCH_SIZE : _HEAD], sealed[_HEAD:], sealed[: 1 + EPOCH_SIZE])
        except InvalidTag:
            raise _damaged(key, "it was altered, or belongs to another key") from None
        reader = Reader(content)
        try:
            name, value = reader.blob(_MOST_CONTENT), reader.blob(_MOST_CONTENT)
            rest = reader.raw(reader.remaining)
        except DecodeError as error:
            raise _damaged(key, str(error)) from error
        if len(rest) >= _PADDED or rest.strip(b"\0") or len(content) % _PADDED:
            raise _damaged(key, "it is not padded as it should be")
        return name, value

    def _keys(self, epoch_key: bytes, key: bytes) -> tuple[AESGCM, bytes]:
        record_key = blake3(b"hybrisfs records in a service", key=epoch_key).digest()
        material = blake3(self._store + key, key=record_key).digest(2 * _KEY_SIZE)
        return AESGCM(material[:_KEY_SIZE]), material[_KEY_SIZE:]


def _damaged(key: bytes, why: str) -> DamagedError:
    return DamagedError(f"the key {key.decode(errors='replace')!r} of the metadata is damaged", why)


class _Parts(NamedTuple):
    """A key: what tells its kind and container, and the name."""

    before: bytes
    name: bytes


def _parts(key: bytes) -> _Parts | None:
    """None of a key that has no name."""
    if not key.startswith(_SEALED):
        return None
    end = key.find(b"/", 2) + 1 if key.startswith(b"k/") else 2
    return _Parts(key[:end], key[end:]) if end else None


class SealedService(MetadataService):
    """A `MetadataService` over another one, see above; what has no text here is explained there. Closes that
    with it."""

    def __init__(self, inner: MetadataService, sealer: NameSealer, environment: Environment) -> None:
        super().__init__(environment)
        self._inner = inner
        self._sealer = sealer

    # -- reading ---------------------------------------------------------------------------------

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        return self._opened(keys, self._inner.get(*map(self._hidden, keys)))

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        """See `MetadataService.scan`: all of a kind, or of a container, in no order."""
        if not first.startswith(_SEALED):
            yield from self._inner.scan(first, end, keys_only=keys_only)
            return
        _require_whole(first, end)
        yield from map(self.plain, self._inner.scan(first, end))

    def groups(self, kind: bytes) -> Sequence[bytes]:
        return self._inner.groups(kind)

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        """See `MetadataService.reading`. The service cannot choose keys by their names: it is asked for all
        of the container."""
        whole = b"/".join(first.split(b"/")[:2]) + b"/"
        inner = self._inner.reading(whole, after_prefix(whole), _PAGE)
        return _SortedReading(inner, self, first, end, size)

    def plain(self, one: KeyValue) -> KeyValue:
        """A container or an entry, as the service has it, in plain text."""
        parts = _parts(one.key)
        before = b"" if parts is None else parts.before
        try:
            name, value = self._sealer.open(one.key, one.value)
            if self._sealer.hidden(before, name) != one.key:
                raise _damaged(one.key, "it holds another name")
        except HybrisError as error:
            return one._replace(value=b"", trouble=error)
        return one._replace(key=before + name, value=value)

    def _hidden(self, key: bytes) -> bytes:
        """The key of the service."""
        parts = _parts(key)
        return key if parts is None else self._sealer.hidden(*parts)

    def _opened(self, keys: Iterable[bytes], found: Iterable[KeyValue | None]) -> list[KeyValue | None]:
        return [
            one if one is None or _parts(key) is None else self.plain(one)._replace(key=key)
            for key, one in zip(keys, found, strict=True)
        ]

    # -- writing ---------------------------------------------------------------------------------

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        names = {self._hidden(one.key): one.key for one in then if isinstance(one, Put)}
        outcome = self._inner.transact(
            [replace(one, key=self._hidden(one.key)) for one in compare],
            [self._put(one) if isinstance(one, Put) else self._remove(one) for one in then],
            [self._hidden(key) for key in otherwise],
        )
        revisions = {names[key]: revision for key, revision in outcome.revisions.items()}
        found = self._opened(otherwise, outcome.found) if outcome.found else ()
        return Outcome(outcome.succeeded, revisions, found)

    def _put(self, change: Put) -> Put:
        parts = _parts(change.key)
        if parts is None:
            return change
        key = self._sealer.hidden(*parts)
        return Put(key, self._sealer.seal(key, parts.name, change.value))

    def _remove(self, change: Remove) -> Remove:
        if change.end is None:
            return Remove(self._hidden(change.first))
        if change.first.startswith(_SEALED):
            _require_whole(change.first, change.end)
        return change

    def announce(self, key: bytes, seconds: int) -> None:
        self._inner.announce(key, seconds)

    def withdraw(self) -> None:
        self._inner.withdraw()

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> AbstractContextManager[object]:
        return self._inner.watch(self._hidden(key), revision, changed)

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()


class _SortedReading:
    """The entries of a range, of which the service has the whole container in another order.

    So many are kept in memory at a time; a larger container is gone through several times.
    """

    def __init__(self, inner: Reading, service: SealedService, first: bytes, end: bytes, size: int) -> None:
        self._inner = inner
        self._service = service
        self._first, self._end, self._size = first, end, size

    def catch_up(self) -> bool:
        """See `Reading.catch_up`."""
        return self._inner.catch_up()

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        """See `Reading.pages`. Raises the trouble of an entry that cannot be read: nobody knows whether it is
        within the range."""
        first = self._first
        while True:
            some = nsmallest(_SORTED_AT_ONCE, self._from(first), key=lambda one: one.key)
            for start in range(0, len(some), self._size):
                yield some[start : start + self._size]
            if len(some) < _SORTED_AT_ONCE:
                return
            first = some[-1].key + b"\0"

    def _from(self, first: bytes) -> Iterator[KeyValue]:
        for page in self._inner.pages():
            for one in map(self._service.plain, page):
                if one.trouble is not None:
                    raise one.trouble
                if first <= one.key < self._end:
                    yield one


def _require_whole(first: bytes, end: bytes) -> None:
    """Raise ValueError unless it is a range of all keys of a kind, or of a container."""
    parts = _parts(first)
    if end != after_prefix(first) or (parts is not None and parts.name):
        raise ValueError("sealed names are asked for one by one, or all of a kind or a container")
