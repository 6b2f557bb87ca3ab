"""The epochs of an open volume: learning of their keys, and beginning one when a device is removed.

A register of an epoch grants the keys of the epoch of its key. The first `MAX_BEGUN` epochs of a device
count. It is noted who granted which (`hybrisfs.state.members`), so that those of a device that is removed are
known for what they are.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from hybrisfs.errors import HybrisError
from hybrisfs.keyring import KeyRing, Standing
from hybrisfs.keys import MAX_EPOCHS, EpochKeys
from hybrisfs.kinds import EPOCH, ID
from hybrisfs.members.epochs import encode_grant, epoch_key, given_to, open_grant
from hybrisfs.members.members import Member
from hybrisfs.registers.values import Value
from hybrisfs.state.members import Granted, begun_epochs, grants, is_granted, note_grant
from hybrisfs.state.state import Transaction
from sync import FIRST_EPOCH, DecodeError, Members, Write

__all__ = ["MAX_BEGUN", "Epochs"]

log = logging.getLogger(__name__)

MAX_BEGUN: Final = 64


class Epochs:
    """Keeps the key ring up to date with the registers."""

    def __init__(self, tx: Transaction, ring: KeyRing) -> None:
        self._ring = ring
        self._random_bytes = ring.environment.random_bytes
        self._given: dict[bytes, frozenset[bytes]] = {}  # by epoch: the devices that grants name
        self.learn(tx, list(tx.registers.with_prefix(EPOCH.prefix)))

    def learn(self, tx: Transaction, keys: Iterable[bytes] = ()) -> None:
        """These registers of epochs have other values now, or others are members."""
        values = [
            (key[ID], value)
            for key in keys
            for value in sorted(tx.registers.values(key), key=lambda one: one.stamp)
        ]
        known = tx.members.gone().union(tx.members.keys())
        for epoch, value in values:
            self._given[epoch] = self._given.get(epoch, frozenset()).union(_named(value) & known)
        noted = [(epoch, value) for epoch, value in values if self._note(tx, epoch, value)]
        self._ring.judge(self._standing(tx))
        self._ring.exclude(member.device for member in tx.members.removed())
        for epoch, value in noted:
            self._take(tx, epoch, value.value or b"")

    def _note(self, tx: Transaction, epoch: bytes, value: Value) -> bool:
        """Note the device that granted the epoch. False, and nothing is noted, when its grant does not
        count."""
        signed = tx.updates.signed_by(value.stamp.branch, value.stamp.clock)
        if value.value is None or signed is None or epoch == FIRST_EPOCH:
            return False
        if begun_epochs(tx, signed[0]) >= MAX_BEGUN and not is_granted(tx, epoch):
            return False
        note_grant(tx, Granted(epoch, signed[0], value.stamp.clock))
        return True

    def _standing(self, tx: Transaction, leaving: Collection[bytes] = ()) -> Standing:
        """What the log says of epochs, and will when those are removed that are *leaving*."""
        members, granted = set(tx.members.keys()).difference(leaving), dict[bytes, int]()
        others: dict[bytes, list[bytes]] = defaultdict(list)
        for epoch, device, clock in grants(tx):
            if device in members:
                granted.setdefault(epoch, clock)
            else:
                others[device].append(epoch)
        places = [(place, epoch) for epochs in others.values() for place, epoch in enumerate(epochs)]
        disowned = [epoch for _, epoch in sorted(places, reverse=True) if epoch not in granted]
        return Standing(tx.members.gone(), granted, disowned, tx.members.left(), self._given)

    def _take(self, tx: Transaction, epoch: bytes, grant: bytes) -> None:
        """Take in the keys that a grant gives to this device, if it does."""
        try:
            found = open_grant(grant, tx.updates.volume, self._ring.keys.device)
            # The keys are stored before what says who granted them is: until then they seal nothing.
            self._ring.add(replace(one, number=0) for one in found if one.id == epoch)
        except DecodeError as error:
            log.warning("a grant of keys makes no sense: %s", error)
        except OSError as error:
            log.error(
                "new keys of the volume cannot be stored, they are tried again at the next start: %s", error
            )

    @property
    def is_one_due(self) -> bool:
        """Whether a removed device has the newest keys, so that a member has to begin an epoch."""
        return not self._ring.is_fit

    def begin(
        self, tx: Transaction, leaving: Sequence[Member] = (), returning: Sequence[Member] = ()
    ) -> Write:
        """Begin an epoch without the removed devices, and those that are *leaving*, but with those that are
        *returning*: the register by which the others get its keys. It is used once that is signed, and
        `learn` told. When nobody is leaving, half of the room is left for removals: what asks for an epoch
        then, one member can sign again and again.

        Raises OSError when they cannot be stored here, HybrisError when there is no room for them.
        """
        self._require_room(tx, 1 if leaving else 2)
        gone = {member.device for member in leaving}
        back = {member.device for member in returning}
        members = {**tx.members.keys().public_keys, **{one.device: one.public for one in returning}}
        rest = Members(key for device, key in members.items() if device not in gone)
        excluded = gone.union(member.device for member in tx.members.removed()) - back
        epoch = EpochKeys.after(self._ring.newest.number, excluded, self._random_bytes)
        self._ring.add([replace(epoch, number=0)], self._standing(tx, gone).disowned)
        if self._ring.find(epoch.id) is None:
            raise _no_room()
        grant = encode_grant(tx.updates.volume, [epoch], rest, random_bytes=self._random_bytes)
        return epoch_key(epoch.id), grant

    def _require_room(self, tx: Transaction, share: int) -> None:
        """Raise HybrisError unless this device may begin an epoch, and that part of the room is free."""
        begun, granted = begun_epochs(tx, tx.updates.device), len(self._standing(tx).granted)
        if begun >= MAX_BEGUN // share or (share > 1 and granted >= MAX_EPOCHS // share):
            raise _no_room()

    def give_back(self, tx: Transaction) -> list[Write]:
        """Grants of the epochs that began while a member wanted to remove a device that is a member all the
        same, as far as no member has granted it these. The grants go on naming devices that got the keys
        before and have been removed since: a checkpoint holds the latest grant only."""
        members = tx.members.keys()
        return [
            (
                epoch_key(epoch.id),
                encode_grant(
                    tx.updates.volume,
                    [epoch],
                    members,
                    epoch.excluded.intersection(self._given.get(epoch.id, ())).difference(members),
                    self._random_bytes,
                ),
            )
            for epoch in self._ring.kept_from(members)
            if not self._ring.withheld_from(epoch).isdisjoint(members)
        ]


def _named(value: Value) -> frozenset[bytes]:
    """The devices that a grant names."""
    try:
        return given_to(value.value or b"")
    except DecodeError:
        return frozenset()


def _no_room() -> HybrisError:
    return HybrisError(
        "no new keys can be made for the volume",
        "there are too many already",
        "Remove the machine that made them, or remove this one on another machine.",
    )
