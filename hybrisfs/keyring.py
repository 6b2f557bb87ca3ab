"""The key ring: the keys of all epochs of a volume, for each purpose.

A volume begins with one epoch. When a device is removed, a new one begins, whose keys it is not given
(`hybrisfs.members.epochs`). What is sealed from then on is sealed with the newest keys of an epoch that
excludes every removed device, and that a present member granted; what was sealed before stays readable with
the keys that sealed it. When the removal of a device was vetoed, it was given the keys of the epochs that
excluded it: should it be removed after all, these seal nothing any more. The maker of an epoch has its keys,
whatever it states: so epochs of a device that was removed later seal nothing any more, nor do those of which
only a cloud tells.

A device that was removed keeps the keys of old epochs. With them and a cloud that helps it, it can make what
opens, but none of it counts by its seal alone:

=============  =====================================================================================
head           signed by its device; who has accepted its removal does not look at it
segment        its name tells the hash of the last update, each of which is signed and names the one
               before; `previous` is a hint, beside which segments are listed
grant          signed by its writer, who must be a present member; its keys seal nothing by that
recovery kit   signed by its writer, who must be a present member; who recovers goes by more than f clouds
checkpoint     its hash stands in signed heads of all members
signpost       signed by a present member, and the same place on more than f clouds
pack, chunk    a pack is named by the hash of its table, a chunk by that of its bytes; what is in
               which pack, signed updates tell
=============  =====================================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from hybrisfs.environment import Environment
from hybrisfs.keys import MAX_EPOCHS, EpochKeys, VolumeKeys
from sync import FIRST_EPOCH, EpochKey

__all__ = ["KeyRing", "Standing"]


class _Purpose(Struct, frozen=True):
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


class Standing(Struct, frozen=True):
    """What the log says of epochs."""

    gone: frozenset[bytes]
    """The devices of which it is said that they no longer belong to the volume."""
    granted: Mapping[bytes, int]
    """The epochs that a present member granted, and the lowest clocks of updates in which one did."""
    disowned: Sequence[bytes]
    """Those that only devices that are not members granted; those to be kept come last."""
    left: frozenset[bytes] = frozenset()
    """The devices that somebody wanted to remove and that are members all the same."""
    given: Mapping[bytes, Collection[bytes]] = field(default_factory=dict)
    """By epoch: the devices that grants name, whatever the epoch states of them."""


class KeyRing:
    """All epochs known here. Thread-safe.

    *removed* are the devices that no longer belong to the volume. *path* is the file in
    which the keys are stored durably before a new one is used; None: nowhere.
    """

    def __init__(
        self,
        keys: VolumeKeys,
        removed: Iterable[bytes] = (),
        path: Path | None = None,
        *,
        environment: Environment,
    ) -> None:
        self.environment: Final = environment
        self._lock = threading.Lock()
        self._keys = keys
        self._removed = frozenset(removed)
        self._standing = Standing(frozenset(), {}, ())
        self._path = path
        self._derived: dict[tuple[Callable[[EpochKeys], bytes], bytes], bytes] = {}
        self._choose()
        self.chunks = _Purpose(self, _data)
        self.tables = _Purpose(self, _table)
        self.segments = _Purpose(self, _segments)
        self.values = _Purpose(self, _values)
        self.parcels = _Purpose(self, _parcels)

    def _choose(self) -> None:
        epochs = self._keys.shared.epochs
        self._by_id = {epoch.id: epoch for epoch in epochs}
        granted = [epoch for epoch in epochs if self._is_granted(epoch)]
        fit = [epoch for epoch in granted if self._removed <= self.withheld_from(epoch)]
        told = [epoch for epoch in epochs if self._is_passed_on(epoch) and self._removed <= epoch.excluded]
        self._is_fit = bool(fit or told)
        if fit:
            self._newest = max(fit, key=self._age)
        else:
            self._newest = told[-1] if told else max(granted, key=self._age)
        self._handed_on = self._numbered()

    def _is_granted(self, epoch: EpochKeys) -> bool:
        """Whether a present member granted it, or it is the first; and nobody is excluded in advance."""
        if epoch.id == FIRST_EPOCH:
            return True
        return epoch.id in self._standing.granted and epoch.excluded <= self._standing.gone

    def _is_passed_on(self, epoch: EpochKeys) -> bool:
        """Whether a device told this one, when it let it in, to seal with it, and the log says nothing of it
        yet."""
        standing = self._standing
        heard = epoch.id in standing.granted or epoch.id in standing.disowned
        return epoch.number > 0 and not heard

    def _age(self, epoch: EpochKeys) -> tuple[int, bytes]:
        """Of several that would do, the one with the highest is used: no number that somebody states, but
        the clock of the log, which nobody can put forward."""
        return self._standing.granted.get(epoch.id, 0), epoch.id

    @property
    def keys(self) -> VolumeKeys:
        """All that is known, to be handed on. Who does not know the log yet goes by the numbers: only the
        epoch to seal with has one, unless it is the first."""
        return self._handed_on

    def _numbered(self) -> VolumeKeys:
        newest = b"" if self._newest.id == FIRST_EPOCH else self._newest.id
        return self._keys.with_epochs(
            replace(epoch, number=int(epoch.id == newest)) for epoch in self._keys.shared.epochs
        )

    @property
    def newest(self) -> EpochKeys:
        """The epoch to seal with."""
        return self._newest

    @property
    def is_fit(self) -> bool:
        """Whether no removed device has the keys of the newest epoch."""
        return self._is_fit

    def withheld_from(self, epoch: EpochKeys) -> frozenset[bytes]:
        """The devices that an epoch excludes and that no grant gives its keys."""
        return epoch.excluded.difference(self._standing.given.get(epoch.id, ()))

    def kept_from(self, members: Iterable[bytes]) -> list[EpochKeys]:
        """The epochs that exclude some of these members, as somebody wanted to remove them for a while."""
        members, standing = frozenset(members), self._standing
        return [
            epoch
            for epoch in self._keys.shared.epochs
            if epoch.id in standing.granted
            and epoch.excluded <= standing.gone | standing.left
            and not epoch.excluded.isdisjoint(members)
        ]

    def find(self, epoch: bytes) -> EpochKeys | None:
        """The keys of an epoch, None when they are not known here."""
        return self._by_id.get(epoch)

    def exclude(self, removed: Iterable[bytes]) -> None:
        """These devices no longer belong to the volume."""
        with self._lock:
            self._removed = frozenset(removed)
            self._choose()

    def judge(self, standing: Standing) -> None:
        """From now on the log says this."""
        with self._lock:
            self._standing = standing
            self._choose()

    def add(self, epochs: Iterable[EpochKeys], spare: Sequence[bytes] | None = None) -> bool:
        """Take in epochs, of those known under one id the first; False when there is none new, or no room.
        Epochs with the number 0 seal nothing until a member is seen to have granted them. For epochs that a
        member granted, those of which only a cloud tells make room, which can be had again, and those that
        only devices granted that are no longer members; with *spare* for all, and these are the latter.

        Raises OSError when they cannot be stored; they are not used then.
        """
        with self._lock:
            new = {epoch.id: epoch for epoch in epochs if epoch.id not in self._by_id}
            if spare is None:
                spare = self._standing.disowned
                wanted = sum(one in self._standing.granted for one in new)
            else:
                wanted = len(new)
            dropping = [one for one in (*self._unheard(), *spare) if one in self._by_id]
            dropped = set(dropping[: max(0, len(self._by_id) + wanted - MAX_EPOCHS)])
            kept = [epoch for epoch in self._keys.shared.epochs if epoch.id not in dropped]
            new = dict(list(new.items())[: max(0, MAX_EPOCHS - len(kept))])
            if not new:
                return False
            keys = self._keys.with_epochs([*kept, *new.values()])
            if self._path is not None:
                keys.replace(self._path, self.environment)
            self._keys = keys
            self._choose()
            return True

    def _unheard(self) -> list[bytes]:
        """The epochs for reading of which the log says nothing."""
        standing = self._standing
        heard = {FIRST_EPOCH, *standing.granted, *standing.disowned}
        return [one.id for one in self._keys.shared.epochs if one.number == 0 and one.id not in heard]

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


def _values(epoch: EpochKeys) -> bytes:
    return epoch.values


def _parcels(epoch: EpochKeys) -> bytes:
    return epoch.parcels


def _segments(epoch: EpochKeys) -> bytes:
    return epoch.segments
