"""Pairing as a volume and a new device see it: an invitation, and taking one up."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from backends.credentials import CredentialStore
from backends.errors import StoreError
from backends.registry import open_heard, open_store
from backends.store import Store
from hybrisfs.admit.join import check_can_join, join_volume, make_grant
from hybrisfs.api import devices as api
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.members.roles import Rights, Role
from hybrisfs.pairing.code import PairingCode, new_code
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.lan import Listener
from hybrisfs.pairing.messages import Offer, Peer
from hybrisfs.pairing.session import run_inviter, run_joiner
from hybrisfs.parts import Ground
from hybrisfs.qr import qr_lines
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.stores.own_places import OwnPlaces
from sync import DeviceKey

__all__ = ["Invitation", "Joining"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 600.0


class Invitation:
    """An open invitation; `run` waits for the device that takes it up, which gets these rights."""

    def __init__(self, ground: Ground, rights: Rights, *, lifetime: float, with_credentials: bool) -> None:
        self._credentials = CredentialStore(ground.home.credentials)
        self._environment = environment = ground.fs.environment
        self._places = OwnPlaces(ground.home, environment)
        self._config = config = ground.config
        self._keys = ground.ring.keys
        self._sharing = ground.sharing
        self._rights = rights
        self._with_credentials = with_credentials
        self._listener = _open_port(environment)
        addresses = self._listener.addresses if self._listener is not None else ()
        self._code = new_code([cloud.url for cloud in config.clouds], addresses, environment, lifetime)

    @property
    def facts(self) -> api.Invitation:
        """What the person carries over."""
        code = self._code.encode()
        return api.Invitation(code, qr_lines(code.upper()), self._code.expires)

    def run(self, dialogue: Dialogue, stop: threading.Event) -> api.Admission:
        """Wait for a device, have it confirmed and let it in. Raises HybrisError when none was let in."""

        grant = make_grant(
            self._config,
            self._keys,
            self._sharing.key_holders(),
            self._credentials if self._with_credentials else None,
            reader=self._rights.role is not Role.FULL,
        )
        heard = {one.url: one.heard for one in self._config.clouds}
        with _stores(heard, self._credentials, self._places) as stores:
            admitted = run_inviter(
                self._code,
                self._keys.device,
                self._sharing.membership.own_name,
                grant,
                self,
                stores,
                self._listener,
                dialogue,
                stop,
                environment=self._environment,
            )
        return api.Admission(
            device=admitted.device.name,
            id=Member(admitted.device.public, "").device.hex(),
            acknowledged=admitted.acknowledged,
        )

    def admit(self, joiner: Peer) -> None:
        """Make the device a member, when it is confirmed. Raises HybrisError, OSError."""
        self._sharing.admit(Member(joiner.public, joiner.name), self._rights)


class Joining:
    """Taking up an invitation; `run` makes the volume on this device."""

    def __init__(self, home: Home, code: str, name: str | None, own_name: str) -> None:
        """Raises PairingError for what is not a code, UsageError when *name* is taken here."""
        self._home = home
        self._code = PairingCode.decode(code)
        self._name = name
        self._own_name = own_name
        if name is not None:
            check_can_join(home, name)

    def run(self, dialogue: Dialogue, stop: threading.Event) -> Callable[[], VolumeConfig]:
        """Be let in; what is returned makes the volume. Both raise HybrisError, having changed nothing."""
        device = DeviceKey.generate()
        credentials = CredentialStore(self._home.credentials)
        with _stores(
            dict.fromkeys(self._code.clouds, True), credentials, OwnPlaces(self._home, SYSTEM)
        ) as stores:
            joined = run_joiner(
                self._code,
                device,
                self._own_name,
                self,
                stores,
                dialogue,
                stop,
                timeout=_JOIN_SECONDS,
                environment=SYSTEM,
            )
        return partial(join_volume, self._home, self._name, device, self._own_name, joined)

    def check(self, offer: Offer) -> None:
        """Raise UsageError, or HybrisError, when the volume of this offer cannot be made here."""
        check_can_join(self._home, self._name or offer.volume_name, offer.volume)


def _open_port(environment: Environment) -> Listener | None:
    try:
        return Listener(environment)
    except OSError as error:
        log.warning("no port can be opened, pairing goes through the clouds alone: %s", error)
        return None


@contextlib.contextmanager
def _stores(
    urls: Mapping[str, bool], credentials: CredentialStore, places: OwnPlaces
) -> Iterator[list[Store]]:
    """The clouds that can be opened, by URL and whether it was `heard`. A new device may lack secrets."""
    stores: list[Store] = []
    try:
        for url, heard in urls.items():
            try:
                store = (open_heard if heard else open_store)(url, credentials)
                stores.append(places.guarded(store))
            except StoreError as error:
                log.info("the pairing does without %s: %s", error.url, error)
        yield stores
    finally:
        for store in stores:
            store.close()
