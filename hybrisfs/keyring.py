"""The key ring: the keys of all epochs of a volume, for each purpose.

A volume begins with one epoch. When a device is removed, a new one begins, whose keys it is not given
(`hybrisfs.merge.epochs`). What is sealed from then on is sealed with the newest keys of an epoch that
excludes every removed device; what was sealed before stays readable with the keys that sealed it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hybrisfs.keys import MAX_EPOCHS, EpochKeys, VolumeKeys
from sync import EpochKey

__all__ = ["KeyRing"]


@dataclass(frozen=True, slots=True)
class _Purpose:
    """The keys for one purpose; see `sync.SealKeys`."""

    ring: KeyRing
    derive: Callable[[EpochKeys], bytes]

    def newest(self) -> EpochKey:
        epoch = self.ring.newest
        return EpochKey(epoch.id, self._key(epoch))

    def find(self, epoch: bytes) -> bytes | None:
        found = self.ring.find(epoch)
        return None if found is None else self._key(found)

    def _key(self, epoch: EpochKeys) -> bytes:
        return self.ring.derived((self.derive, epoch.id), lambda: self.derive(epoch))


class KeyRing:
    """All epochs known here. Thread-safe.

    *removed* are the devices that no longer belong to the volume. *keep* stores the keys durably before a new
    one is used; it raises OSError.
    """

    def __init__(
        self,
        keys: VolumeKeys,
        removed: Iterable[bytes] = (),
        keep: Callable[[VolumeKeys], None] = lambda _: None,
    ) -> None:
        self._lock = threading.Lock()
        self._keys = keys
        self._removed = frozenset(removed)
        self._keep = keep
        self._derived: dict[tuple[Callable[[EpochKeys], bytes], bytes], bytes] = {}
        self._choose()
        self.chunks = _Purpose(self, _data)
        self.tables = _Purpose(self, _table)
        self.segments = _Purpose(self, _segments)

    def _choose(self) -> None:
        epochs = self._keys.shared.epochs
        self._by_id = {epoch.id: epoch for epoch in epochs}
        fit = [epoch for epoch in epochs if self._removed <= epoch.excluded]
        self._newest = fit[-1] if fit else epochs[-1]

    @property
    def keys(self) -> VolumeKeys:
        """All that is known, to be handed on."""
        return self._keys

    @property
    def newest(self) -> EpochKeys:
        """The epoch to seal with."""
        return self._newest

    @property
    def is_fit(self) -> bool:
        """Whether no removed device has the keys of the newest epoch."""
        return self._removed <= self._newest.excluded

    def find(self, epoch: bytes) -> EpochKeys | None:
        """The keys of an epoch, None when they are not known here."""
        return self._by_id.get(epoch)

    def exclude(self, removed: Iterable[bytes]) -> None:
        """These devices no longer belong to the volume."""
        with self._lock:
            self._removed |= frozenset(removed)
            self._choose()

    def add(self, epochs: Iterable[EpochKeys]) -> bool:
        """Take in epochs, of those known under one id the first; False when there is none new.

        Raises OSError when they cannot be stored; they are not used then.
        """
        with self._lock:
            new = {epoch.id: epoch for epoch in epochs if epoch.id not in self._by_id}
            new = dict(list(new.items())[: MAX_EPOCHS - len(self._by_id)])
            if not new:
                return False
            keys = self._keys.with_epochs([*self._keys.shared.epochs, *new.values()])
            self._keep(keys)
            self._keys = keys
            self._choose()
            return True

    def derived(
        self, purpose: tuple[Callable[[EpochKeys], bytes], bytes], make: Callable[[], bytes]
    ) -> bytes:
        """The key for a purpose and an epoch, made once."""
        found = self._derived.get(purpose)
        if found is None:
            found = self._derived[purpose] = make()
        return found


def _data(epoch: EpochKeys) -> bytes:
    return epoch.data


def _table(epoch: EpochKeys) -> bytes:
    return epoch.table


def _segments(epoch: EpochKeys) -> bytes:
    return epoch.segments
