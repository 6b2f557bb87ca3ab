"""What a checkpoint replaces goes once it is safe itself: on f+k clouds, and named by all members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hybrisfs.checkpoint.compaction import Compactor
from hybrisfs.checkpoint.deposit import Depositor, parts_of
from hybrisfs.checkpoint.fetching import Fetching
from hybrisfs.checkpoint.shelf import Shelf
from hybrisfs.state.checkpoints import CheckpointTable, Recorded
from hybrisfs.tree.filesystem import FileSystem
from sync import Buffer
from sync.checkpoint import Root

__all__ = ["Succession"]

_AGAIN_SECONDS: Final = 1800.0  # when a cloud did not delete what it should


class Succession:
    """The checkpoint on the clouds. `settle` is called by one thread, the other methods by any."""

    def __init__(
        self,
        fs: FileSystem,
        shelf: Shelf,
        name_of: Callable[[Buffer], bytes],
        fetching: Fetching,
        depositor: Depositor,
        compactor: Compactor,
    ) -> None:
        self._fs = fs
        self._table = CheckpointTable(fs.db)
        self._shelf = shelf
        self._name_of = name_of
        self._fetching = fetching
        self._depositor = depositor
        self._compactor = compactor
        self._settled: object = None  # the root and the clouds for which all is as it should be
        self._again = float("inf")  # when to look nevertheless

    def part(self, name: bytes) -> bytes | None:
        """The root or slice with this name, if it is on this device."""
        with self._fs.lock:
            recorded = self._table.all()
        for one in recorded:
            if one.root is not None:
                found = one.root if self._name_of(one.root) == name else self._shelf.find(one.shelved, name)
                if found is not None:
                    return found
        return None

    def fetched(self, name: bytes) -> bytes:
        """The same, from wherever it can be had. Raises NotToBeHadError."""
        return self.part(name) or self._fetching.part(name)

    def parts(self) -> list[bytes]:
        """The names of all parts of the checkpoint that is on the clouds, the root last; none while there is
        no such. Raises NotToBeHadError, DecodeError."""
        with self._fs.lock:
            newest = self._table.deposited()
        if newest is None or newest.deposited is None:
            return []
        return parts_of(newest.deposited, Root.decode(self.fetched(newest.deposited)))

    def secure(self) -> None:
        """See to it that the checkpoint is on as many clouds as it should be, of those in use. Raises
        CloudsUnavailable, NotToBeHadError, DecodeError."""
        self._depositor.secure(self.parts(), self.fetched)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be done for the newest checkpoint."""
        with self._fs.lock:
            newest = self._table.stated()
        if newest is None or newest.deposited is None:
            return False
        return self._settled == (newest.deposited, self._depositor.place)

    def settle(self, agreed: Recorded, now: float) -> None:
        """All members name this checkpoint: see that it is safe, then let go of what it replaces. Does
        nothing when that was done, and the clouds are the same. Raises like `secure`, and OSError."""
        state = agreed.deposited, self._depositor.place
        with self._fs.lock:
            newest = self._table.stated()
        # While this device has stated nothing newer, nobody puts that on the clouds.
        if newest != agreed or (state == self._settled and now < self._again):
            return
        parts = self.parts()
        self._depositor.secure(parts, self.fetched)
        done = self._depositor.sweep(parts)
        if agreed.former is not None:
            done &= self._compactor.run(agreed.former)
        self._settled, self._again = state, float("inf") if done else now + _AGAIN_SECONDS
