"""The epochs of an open volume: learning of their keys, and beginning one when a device is removed."""

from __future__ import annotations

import logging

from hybrisfs.keyring import KeyRing
from hybrisfs.keys import EpochKeys
from hybrisfs.merge.epochs import encode_grant, epoch_key, open_grant
from hybrisfs.merge.members import MemberTable
from hybrisfs.merge.registers import Registers
from hybrisfs.store.updates import UpdateLog
from sync import DecodeError, Write

__all__ = ["Epochs"]

log = logging.getLogger(__name__)


class Epochs:
    """Keeps the key ring up to date with the registers; called with the volume's lock held."""

    def __init__(self, ring: KeyRing, updates: UpdateLog, registers: Registers, members: MemberTable) -> None:
        self._ring = ring
        self._updates = updates
        self._members = members
        self.exclude()
        for values in registers.with_prefix(b"e").values():
            for one in values:
                self.learn(one.value or b"")

    def exclude(self) -> None:
        """Take note of who was removed."""
        self._ring.exclude(member.device for member in self._members.removed())

    def learn(self, grant: bytes) -> None:
        """Take in the keys that a grant gives to this device, if it does."""
        try:
            self._ring.add(open_grant(grant, self._updates.volume, self._ring.keys.device))
        except DecodeError as error:
            log.warning("a grant of keys makes no sense: %s", error)
        except OSError as error:
            log.error(
                "new keys of the volume cannot be stored, they are tried again at the next start: %s", error
            )

    @property
    def is_one_due(self) -> bool:
        """Whether a removed device has the newest keys, so that somebody has to begin an epoch."""
        return not self._ring.is_fit

    def begin(self) -> Write:
        """Begin an epoch without the removed devices: the register by which the others get its keys.

        Raises OSError when they cannot be stored here.
        """
        removed = [member.device for member in self._members.removed()]
        epoch = EpochKeys.after(self._ring.newest.number, removed)
        self._ring.add([epoch])
        grant = encode_grant(self._updates.volume, self._ring.keys.shared.epochs, self._members.keys())
        return epoch_key(epoch.id), grant
