"""Bringing a checkpoint here: its root, which names the devices that have stated it, then its slices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeVar

from hybrisfs.checkpoint.deposit import MAX_OBJECT
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.dispersal.errors import CloudsUnavailable, UnreadableHereError
from hybrisfs.state.checkpoints import StoredSnapshot
from sync import (
    CheckpointId,
    DecodeError,
    Members,
    NewerFormatError,
    SealKeys,
    UnknownEpochError,
)
from sync.checkpoint import Root, Slice, checkpoint_name, open_object

__all__ = ["CloudObjects", "Fetching", "LinkedDevices", "NotToBeHadError"]

log = logging.getLogger(__name__)

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
        """Those that can be had and are in order, the one that most of *members* have stated first."""
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
        """Fetch all slices into a file; they are to be checked then. Raises NotToBeHadError, OSError."""
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
