"""Grants on the clouds: what lets a member read heads that are sealed with keys it has not heard of yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from hybrisfs.dispersal.errors import CloudsUnavailable, EarlierVersionError
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import EpochKeys
from hybrisfs.members.epochs import (
    MAX_GRANT,
    encode_grant,
    encode_grant_object,
    grant_name,
    open_grant_object,
)
from sync import FIRST_EPOCH, DeviceKey, Members

__all__ = ["GrantClouds", "Grants"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyHolders(Protocol):
    """What is used of `sharing.Sharing`."""

    def key_holders(self) -> Members:
        """The devices that belong to the volume, with those in reserve."""


class GrantClouds(Protocol):
    """What is used of `dispersal.Engine`."""

    def put_everywhere(self, name: str, data: bytes) -> tuple[int, ...]: ...

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T: ...


class Grants:
    """Puts this device's grants and fetches those of others. `ensure` is for one thread, `fetch` for
    another."""

    def __init__(self, ring: KeyRing, volume: bytes, holders: KeyHolders, clouds: GrantClouds) -> None:
        self._ring = ring
        self._random_bytes = ring.environment.random_bytes
        self._volume = volume
        self._holders = holders
        self._clouds = clouds
        self._given: tuple[bytes, frozenset[bytes]] | None = None
        self._given_back: set[tuple[bytes, frozenset[bytes]]] = set()
        self._denied = frozenset[bytes]()

    @property
    def is_shut_out(self) -> bool:
        """Whether a member has granted the keys that it uses to others but not to this device, which has not
        got them in another way since."""
        return any(self._ring.find(epoch) is None for epoch in self._denied)

    def ensure(self) -> None:
        """Grant keys so that all members can read what this device seals from now on, also when this device
        knows that it is accused, because others may not know it. Raises CloudsUnavailable."""
        newest, members = self._ring.newest, self._holders.key_holders()
        # Keys may be here before the update that tells whose removal they are the answer to.
        members = Members(key for one, key in members.public_keys.items() if one not in newest.excluded)
        epochs = [one for one in self._ring.keys.shared.epochs if one.excluded.isdisjoint(members)]
        epoch, device = newest.id, self._ring.keys.device
        if device.device_id in members:
            self._give_back(members, device)
        given = epoch, frozenset(members)
        if epoch == FIRST_EPOCH or given == self._given:
            return
        grant = encode_grant(self._volume, epochs, members, random_bytes=self._random_bytes)
        name = grant_name(epoch, device.device_id)
        self._clouds.put_everywhere(name, encode_grant_object(epoch, grant, device))
        self._given = given

    def _give_back(self, members: Members, device: DeviceKey) -> None:
        """Let devices whose removal was vetoed read what was sealed until the veto. First the log must say
        that they have the keys: if they are removed after all, no device may go on with these keys."""
        for epoch in self._ring.kept_from(members):
            back = epoch.id, frozenset(members)
            if back not in self._given_back and self._ring.withheld_from(epoch).isdisjoint(members):
                grant = encode_grant(self._volume, [epoch], members, random_bytes=self._random_bytes)
                name = grant_name(epoch.id, device.device_id)
                self._clouds.put_everywhere(name, encode_grant_object(epoch.id, grant, device))
                self._given_back.add(back)

    def again(self) -> None:
        """Put the grants once more: there are other clouds."""
        self._given = None
        self._given_back.clear()

    def fetch(self, writer: bytes, epoch: bytes) -> bool:
        """Look for keys of an epoch that another member grants to this device. Returns whether there are new
        keys now."""
        public = self._holders.key_holders().public_key(writer)
        if public is None:
            return False

        left_out = False

        def verify(data: bytes) -> list[EpochKeys]:
            nonlocal left_out
            epochs = open_grant_object(data, epoch, self._volume, public, writer, self._ring.keys.device)
            if not any(one.id == epoch for one in epochs):
                # To the writer this device was removed; or is not known yet: then there will be another.
                left_out = True
                raise EarlierVersionError("the grant has no key for this machine")
            return epochs

        try:
            found = self._clouds.get_object(grant_name(epoch, writer), MAX_GRANT, verify)
            # For reading: the log is yet to say who granted them, and whether that one still belongs here.
            return self._ring.add(replace(one, number=0) for one in found)
        except CloudsUnavailable as error:
            if left_out:
                self._denied |= {epoch}
            log.info("no cloud has a key of epoch %s for this machine: %s", epoch.hex(), error)
        except OSError as error:
            log.error("new keys of the volume cannot be stored: %s", error)
        return False
