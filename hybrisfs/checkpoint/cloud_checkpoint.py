"""The agreed checkpoint on the clouds: its parts, and what it replaces."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from hybrisfs.checkpoint.compaction import Compactor
from hybrisfs.checkpoint.deposit import Depositor, parts_of
from hybrisfs.checkpoint.fetching import Fetching
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.state.checkpoints import Recorded
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Head
from sync.checkpoint import Root

__all__ = ["CloudCheckpoint"]

log = logging.getLogger(__name__)


class CloudCheckpoint:
    """`settle` is called by one thread, the other methods by any."""

    def __init__(
        self,
        fs: FileSystem,
        snapshots: LocalSnapshots,
        fetching: Fetching,
        depositor: Depositor,
        compactor: Compactor,
    ) -> None:
        self._fs = fs
        self._snapshots = snapshots
        self._fetching = fetching
        self._depositor = depositor
        self._compactor = compactor

    @property
    def clouds(self) -> tuple[frozenset[int], int]:
        """The clouds that parts may be on, and on how many they are to be."""
        return self._depositor.place

    def part(self, name: bytes) -> bytes | None:
        """The root or slice with this name, if it is on this device."""
        with self._fs.state.transaction() as tx:
            recorded = tx.checkpoints.all()
        for one in recorded:
            if one.root is not None:
                found = (
                    one.root
                    if self._snapshots.name_of(one.root) == name
                    else self._snapshots.find(one.stored, name)
                )
                if found is not None:
                    return found
        return None

    def fetched(self, name: bytes) -> bytes:
        """The same, from wherever it can be had. Raises NotToBeHadError."""
        return self.part(name) or self._fetching.part(name)

    def parts(self) -> list[bytes]:
        """The names of all parts of the checkpoint that is on the clouds, the root last; none while there is
        no such. Raises NotToBeHadError, DecodeError."""
        with self._fs.state.transaction() as tx:
            newest = tx.checkpoints.deposited()
        if newest is None or newest.deposited is None:
            return []
        return parts_of(newest.deposited, Root.decode(self.fetched(newest.deposited)))

    def found(self, agreed: Recorded, roots: Iterable[tuple[bytes, bytes]]) -> bytes | None:
        """The first of *roots*, each with the device that names it, that is one of this checkpoint. Raises
        NotToBeHadError."""
        with self._fs.state.transaction() as tx:
            members, volume = tx.members.devices(), tx.meta("volume")
        for device, name in roots:
            try:
                root = self._fetching.root(name)
                root.check(volume, members)
            except DecodeError as error:
                log.warning("device %s names a checkpoint that is none: %s", device.hex(), error)
                continue
            if root.snapshot == agreed.stored.snapshot:
                return name
        return None

    def put(self, agreed: Recorded) -> bytes:
        """See `Depositor.put`."""
        return self._depositor.put(agreed)

    def secure(self) -> None:
        """See to it that the checkpoint is on as many clouds as it should be, of those in use. Raises
        CloudsUnavailable, NotToBeHadError, DecodeError."""
        self._depositor.secure(self.parts(), self.fetched)

    def settle(self, agreed: Recorded, heads: Mapping[bytes, Head]) -> bool:
        """See that the checkpoint is safe, then let go of what it replaces; whether all clouds obeyed.
        *heads*: the newest of all devices. Raises like `secure`, and OSError."""
        parts = self.parts()
        self._depositor.secure(parts, self.fetched)
        done = self._depositor.sweep(parts)
        if agreed.former is not None:
            done &= self._compactor.run(agreed.former, heads)
        return done
