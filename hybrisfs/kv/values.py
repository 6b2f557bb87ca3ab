"""Values on their way: put on the clouds, fetched from them, and kept in memory for later reads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS, split
from hybrisfs.dispersal.errors import CloudsUnavailable, Superseded
from hybrisfs.dispersal.pack import Redundancy, choose_code
from hybrisfs.dispersal.values import StoredValue, Values
from hybrisfs.environment import Environment
from hybrisfs.kv.metadata import MetadataStore
from hybrisfs.kv.record import KeyMetadata, Place, Timestamp
from hybrisfs.kv.seal import SEAL_OVERHEAD, ValueSealer

__all__ = ["Copy", "Upload", "Uploader", "ValueCache", "ValueFetcher", "describe"]

log = logging.getLogger(__name__)


def describe(entry: KeyMetadata, sealer: ValueSealer, key: str) -> StoredValue:
    """What *entry*, of a key that people call *key*, tells of the objects on the clouds."""
    return StoredValue(
        what=f"the value of {key}",
        name=sealer.name(entry.objects, entry.k == 1),
        k=entry.k,
        size=entry.sealed,
        placement=entry.placement,
        checksums=entry.checksums if entry.k > 1 else entry.checksums * len(entry.placement),
        checksum=sealer.checksum,
    )


class ValueFetcher:
    """Fetches values. Thread-safe."""

    def __init__(
        self, metadata: MetadataStore, values: Values, sealer: ValueSealer, environment: Environment
    ) -> None:
        self._metadata = metadata
        self._values = values
        self._sealer = sealer
        self._monotonic = environment.monotonic

    def fetch(self, place: Place, entry: KeyMetadata, seconds: float) -> tuple[bytes, KeyMetadata] | None:
        """Return the value of `entry`, just read, or of a newer one; None when the key has been deleted
        since.

        Ends, unless newer values are written without end and each is deleted before it can be read
        (finite-write termination), or after so many *seconds*. Raises CloudsUnavailable.
        """
        deadline = self._monotonic() + seconds
        try:
            # What the metadata named when they were read will do, although there may be something newer now.
            return self._get(place, entry, deadline, watching=False), entry
        except CloudsUnavailable as error:
            if self._monotonic() >= deadline:
                raise
            log.debug("all clouds are asked again: %s", error)
        while (newest := self._metadata.read(place)) is not None and newest.live:
            try:
                return self._get(place, newest, deadline, watching=True), newest
            except Superseded as error:
                log.debug("the read begins again: %s", error)
        return None

    def _get(self, place: Place, entry: KeyMetadata, deadline: float, *, watching: bool) -> bytes:
        sealed = self._values.get(
            describe(entry, self._sealer, self._metadata.spelled(place)),
            max(0.0, deadline - self._monotonic()),
            current=lambda: self._metadata.read(place) == entry,
            subscribe=(lambda callback: self._metadata.watch(place, callback)) if watching else None,
        )
        return self._sealer.open(entry.objects, sealed, entry.size)


# -- bringing values to the clouds: sealing, encoding, and putting each share on a cloud of its own -----


_AT_ONCE: Final = 8  # values of one transaction


class Upload(NamedTuple):
    """A write under way, its value (None deletes), and the code that this is stored with. *key* is what
    people call its key."""

    key: str
    write: int
    value: bytes | None
    attributes: bytes = b""
    k: int = 1
    n: int = 1

    @property
    def names(self) -> int:
        """How many names its objects will have: known before the first of them is put."""
        return 1 if self.k == 1 else self.n


class Uploader:
    """Stores values. Thread-safe; `redundancy` may be set at any time, and holds for what is planned then."""

    def __init__(self, values: Values, sealer: ValueSealer, redundancy: Redundancy) -> None:
        self._values = values
        self._sealer = sealer
        self.redundancy = redundancy

    def names(self, write: int, count: int) -> list[str]:
        """The names of the objects of a write, of which there are so many; 0: all that they may have."""
        if not count:
            return self.names(write, 1) + self.names(write, MAX_FRAGMENTS)
        name = self._sealer.name(write, count == 1)
        return [name(index) for index in range(count)]

    def plan(self, key: str, write: int, value: bytes | None, attributes: bytes = b"") -> Upload:
        """The write of a value as f and k are now."""
        return Upload(key, write, value, attributes, *self._code(len(value or b"")))

    def is_outdated(self, entry: KeyMetadata) -> bool:
        """Whether a value is stored otherwise than it would be now."""
        return entry.live and (entry.k, len(entry.placement)) != self._code(entry.size)

    def upload(self, uploads: Sequence[Upload]) -> Sequence[KeyMetadata]:
        """Store all values; return their entries, with sequence number 0. Raises CloudsUnavailable."""
        if len(uploads) == 1:
            return [self._upload(uploads[0])]
        with ThreadPoolExecutor(_AT_ONCE, "kv-upload") as pool:
            return list(pool.map(self._upload, uploads))

    def _upload(self, upload: Upload) -> KeyMetadata:
        if upload.value is None:
            return KeyMetadata(0, upload.write)
        sealed = self._sealer.seal(upload.write, upload.value)
        k = upload.k
        shares = split(k, upload.n, sealed)
        placement = self._values.put(
            f"the value of {upload.key}", self._sealer.name(upload.write, k == 1), shares, k == 1
        )
        checksums = tuple(map(self._sealer.checksum, shares if k > 1 else shares[:1]))
        return KeyMetadata(
            0,
            upload.write,
            len(upload.value),
            len(sealed),
            k,
            placement,
            checksums,
            attributes=upload.attributes,
        )

    def _code(self, size: int) -> tuple[int, int]:
        return choose_code(size + SEAL_OVERHEAD, *self.redundancy)


# -- values in memory, for reads that need not go to the clouds (Hybris 3.10 and 4.4) -------------------


_OVERHEAD: Final = 512  # bytes that a copy takes beside its value, roughly


class Copy(Struct):
    """A cached value and its key's entry. It was the newest at `fresh_at`, and `behind` newer ones have been
    written since."""

    value: bytes
    entry: KeyMetadata
    fresh_at: float
    behind: int = 0


class ValueCache:
    """The values used last, one per key, of `budget` bytes together. Thread-safe."""

    def __init__(self, budget: int, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._budget = budget
        self._lock = threading.Lock()
        self._copies: OrderedDict[Place, Copy] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """The bytes that the copies take."""
        return self._bytes

    def find(self, place: Place) -> Copy | None:
        """The copy of a key's value, which may be out of date."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None:
                self._copies.move_to_end(place)
            return copy

    def confirm(self, place: Place, timestamp: Timestamp, moment: float) -> bytes | None:
        """The value, if it is the one with this timestamp, which was the newest at *moment*."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is None or copy.entry.timestamp != timestamp:
                return None
            self._copies.move_to_end(place)
            copy.fresh_at = max(copy.fresh_at, moment)
            return copy.value

    def read(self, place: Place, value: bytes, entry: KeyMetadata, moment: float) -> None:
        """A value has been fetched that was the newest at *moment*."""
        self._keep(place, value, entry, moment)

    def written(self, place: Place, value: bytes | None, entry: KeyMetadata, moment: float) -> None:
        """A value was written after *moment*; None: the key was deleted."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None and copy.entry.timestamp < entry.timestamp:
                copy.behind += 1
        if value is None:
            self._drop(place, entry.timestamp)
        else:
            self._keep(place, value, entry, moment)

    def _keep(self, place: Place, value: bytes, kept: KeyMetadata, moment: float) -> None:
        if len(value) + _OVERHEAD > self._budget:
            return
        with self._lock:
            # A thread that writes a newer one from here on finds this copy and counts; one before has not.
            # Of a shared store nobody counts: how many have followed is in the metadata.
            if not self._metadata.is_shared:
                entry = self._metadata.read(place)
                if entry is None or entry.timestamp != kept.timestamp:
                    return
            copy = self._copies.get(place)
            if copy is not None:
                if copy.entry.timestamp >= kept.timestamp:
                    return
                self._bytes -= len(copy.value) + _OVERHEAD
            self._copies[place] = Copy(value, kept, moment)
            self._copies.move_to_end(place)
            self._bytes += len(value) + _OVERHEAD
            while self._bytes > self._budget:
                _, dropped = self._copies.popitem(last=False)
                self._bytes -= len(dropped.value) + _OVERHEAD

    def _drop(self, place: Place, timestamp: Timestamp) -> None:
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None and copy.entry.timestamp < timestamp:
                del self._copies[place]
                self._bytes -= len(copy.value) + _OVERHEAD
