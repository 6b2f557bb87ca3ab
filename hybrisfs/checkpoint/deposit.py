"""Agreed checkpoints on the clouds: put there, looked after, brought here, removed when they are replaced.

Each part, the root and every slice, is to be on f+k clouds. No register tells which: they are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.dispersal.errors import CloudsUnavailable, Finding, UnreadableHereError
from hybrisfs.state.checkpoints import Recorded, StoredSnapshot
from sync import (
    NONCE_SIZE,
    CheckpointId,
    DecodeError,
    Members,
    NewerFormatError,
    SealKeys,
    UnknownEpochError,
)
from sync.checkpoint import (
    CHECKPOINTS,
    MAX_SLICE,
    Root,
    Slice,
    checkpoint_name,
    open_object,
    parse_checkpoint_name,
    seal_object,
)

__all__ = [
    "CloudObjects",
    "CloudStore",
    "Depositor",
    "Fetching",
    "LinkedDevices",
    "NotToBeHadError",
    "parts_of",
]

log = logging.getLogger(__name__)

MAX_OBJECT: Final = MAX_SLICE + (1 << 20)
"""Most bytes of a part on a cloud: sealed and, at worst, not compressible."""
_MOST_NAMES: Final = 100_000


def parts_of(name: bytes, root: Root) -> list[bytes]:
    """The names of all parts of a checkpoint, the root last."""
    return [*(one.name for one in (*root.slices, *root.hints)), name]


class CloudStore(Protocol):
    """What is done with the clouds."""

    @property
    def copies(self) -> int:
        """On how many clouds an object is to be."""

    @property
    def in_use(self) -> Sequence[int]:
        """The clouds that something new may go to."""

    @property
    def numbers(self) -> Collection[int]:
        """The clouds that objects may be removed from."""

    def put(self, name: str, data: bytes) -> Collection[int]:
        """Put an object on that many clouds. Returns those that have acknowledged it. Raises
        CloudsUnavailable."""

    def put_on(self, cloud: int, name: str, data: bytes) -> str | None:
        """Put an object on one cloud; why that failed, None when it did not."""

    def look(self, cloud: int, name: str, limit: int, verify: Callable[[bytes], object]) -> Finding | None:
        """Read and verify an object on one cloud. Returns what is wrong with it."""

    def names(self, cloud: int, prefix: str, most: int) -> Sequence[str] | None:
        """The objects that a cloud lists, None when it does not answer."""

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        """Delete objects from a cloud; why that failed, None when it did not."""


class Depositor:
    """Thread-safe. Slices go before the root that names them."""

    def __init__(
        self,
        volume: bytes,
        keys: SealKeys,
        snapshots: LocalSnapshots,
        store: CloudStore,
    ) -> None:
        self._volume = volume
        self._keys = keys
        self._snapshots = snapshots
        self._random_bytes = snapshots.environment.random_bytes
        self._store = store

    @property
    def place(self) -> tuple[frozenset[int], int]:
        """The clouds that parts may be on, and on how many they are to be."""
        return frozenset(self._store.in_use), self._store.copies

    def put(self, one: Recorded) -> bytes:
        """Put an agreed checkpoint on the clouds and read it back from each. Returns the name of its root.
        Parts from an interrupted attempt are put again. Raises CloudsUnavailable, OSError, DecodeError."""
        assert one.root is not None
        for pieces in (self._snapshots.pieces(one.stored), self._snapshots.hints(one.stored)):
            for piece in pieces:
                self._put(self._snapshots.name_of(piece), piece)
        name = self._snapshots.name_of(one.root)
        self._put(name, one.root)
        return name

    def _put(self, part: bytes, plaintext: bytes) -> None:
        placement = self._store.put(checkpoint_name(part), self._sealed(part, plaintext))
        holders = {cloud for cloud in placement if self.look(cloud, part) is None}
        self.spread(part, holders, lambda: plaintext)

    def _sealed(self, part: bytes, plaintext: bytes) -> bytes:
        return seal_object(part, plaintext, self._volume, self._keys, self._random_bytes(NONCE_SIZE))

    def look(self, cloud: int, part: bytes) -> Finding | None:
        """Read and verify a part on a cloud that is said to have it; what is wrong with it."""
        return self._store.look(cloud, checkpoint_name(part), MAX_OBJECT, partial(self.verify, part))

    def verify(self, part: bytes, data: bytes) -> None:
        """Raises DecodeError when an object is not this part, UnreadableHereError when this device cannot
        tell."""
        try:
            open_object(data, part, self._volume, self._keys, self._snapshots.name_of)
        except (NewerFormatError, UnknownEpochError) as error:
            raise UnreadableHereError(str(error)) from error

    def listed(self) -> Mapping[int, frozenset[bytes]]:
        """The parts that each cloud lists; clouds that do not answer are left out."""
        found = {}
        for cloud in self._store.numbers:
            names = self._store.names(cloud, CHECKPOINTS, _MOST_NAMES)
            if names is not None:
                parts = (parse_checkpoint_name(name) for name in names)
                found[cloud] = frozenset(part for part in parts if part is not None)
        return found

    def secure(self, parts: Sequence[bytes], plaintext: Callable[[bytes], bytes]) -> None:
        """Make sure that enough clouds list each part. *plaintext* brings a part. Raises CloudsUnavailable
        when that cannot be done now, and what *plaintext* raises.
        """
        listed = self.listed()
        for part in parts:
            holders = {cloud for cloud in self._store.in_use if part in listed.get(cloud, ())}
            self.spread(part, holders, partial(plaintext, part))

    def spread(self, part: bytes, holders: set[int], plaintext: Callable[[], bytes]) -> None:
        """Put a part on further clouds, which join *holders*, until there are enough; each must return it on
        a read. Raises like `secure`."""
        if len(holders) >= self._store.copies:
            return
        sealed, reasons = self._sealed(part, plaintext()), dict[str, str]()
        for cloud in self._store.in_use:
            if cloud in holders:
                continue
            refused = self._store.put_on(cloud, checkpoint_name(part), sealed)
            finding = self.look(cloud, part) if refused is None else None
            if refused is None and finding is None:
                holders.add(cloud)
                if len(holders) >= self._store.copies:
                    return
            else:
                reasons[str(cloud)] = refused or (finding.what if finding is not None else "")
        raise CloudsUnavailable(checkpoint_name(part), reasons)

    def put_back(self, cloud: int, part: bytes, holders: set[int], plaintext: Callable[[], bytes]) -> None:
        """Put a part again on a cloud that has it wrong. The cloud joins *holders* when it returns the part
        on a read. Raises what *plaintext* raises."""
        refused = self._store.put_on(cloud, checkpoint_name(part), self._sealed(part, plaintext()))
        if refused is None and self.look(cloud, part) is None:
            holders.add(cloud)

    def sweep(self, parts: Collection[bytes]) -> bool:
        """Remove all other parts from the clouds. Returns whether all clouds have done so."""
        wanted, done = frozenset(parts), True
        for cloud in self._store.numbers:
            found = self._store.names(cloud, CHECKPOINTS, _MOST_NAMES)
            old = [
                one
                for one in found or ()
                if (name := parse_checkpoint_name(one)) is not None and name not in wanted
            ]
            failure = self._store.delete(cloud, old) if old else None
            if failure is not None:
                log.info("%d parts of old checkpoints stay on cloud %d for now: %s", len(old), cloud, failure)
            done &= found is not None and failure is None
        return done


# -- bringing a checkpoint here -------------------------------------------------------------------------


T = TypeVar("T")

_DEVICE_SECONDS: Final = 30.0


class NotToBeHadError(Exception):
    """Neither a linked device nor a cloud has returned a part of a checkpoint."""


class CloudObjects(Protocol):
    """What is asked of the clouds."""

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T: ...


class LinkedDevices(Protocol):
    """The devices that this one is linked with."""

    def fetch_chunk(self, identity: bytes, patience: float) -> bytes | None:
        """The chunk of this name; None when no device gives it within so many seconds."""


class Fetching:
    """Asks linked devices first, which is quick, then the clouds."""

    def __init__(
        self,
        volume: bytes,
        keys: SealKeys,
        snapshots: LocalSnapshots,
        clouds: CloudObjects,
        devices: LinkedDevices,
    ) -> None:
        self._volume = volume
        self._keys = keys
        self._snapshots = snapshots
        self._clouds = clouds
        self._devices = devices

    def root(self, name: bytes) -> Root:
        """Raises NotToBeHadError, DecodeError."""
        return Root.decode(self.part(name))

    def by_statements(self, named: Iterable[CheckpointId], members: Members) -> list[CheckpointId]:
        """The roots that can be fetched and are in order; the one that most of *members* have stated comes
        first."""
        counts: dict[CheckpointId, int] = {}
        for one in named:
            try:
                root = self.root(one.root)
                root.check(self._volume, members)
            except (NotToBeHadError, DecodeError) as error:
                log.info("checkpoint %s is passed over: %s", one.root.hex(), error)
                continue
            counts[one] = sum(device in members for device in root.evidence)
        return sorted(counts, key=lambda one: (-counts[one], one))

    def fetch_slices(self, root: Root) -> StoredSnapshot:
        """Fetch all slices into a file; the caller checks them. Raises NotToBeHadError, OSError."""
        return self._snapshots.put(self._parts(root.slices), self._parts(root.hints), lambda: root.snapshot)

    def _parts(self, slices: Iterable[Slice]) -> Iterator[bytes]:
        for one in slices:
            yield self.part(one.name)

    def part(self, name: bytes) -> bytes:
        """The root or slice with this name. Raises NotToBeHadError."""
        found = self._devices.fetch_chunk(name, _DEVICE_SECONDS)
        if found is not None:
            return found
        try:
            return self._clouds.get_object(
                checkpoint_name(name), MAX_OBJECT, lambda data: self._open(data, name)
            )
        except CloudsUnavailable as error:
            raise NotToBeHadError(str(error)) from error

    def _open(self, data: bytes, name: bytes) -> bytes:
        try:
            return open_object(data, name, self._volume, self._keys, self._snapshots.name_of)
        except (NewerFormatError, UnknownEpochError) as error:
            raise UnreadableHereError(str(error)) from error
