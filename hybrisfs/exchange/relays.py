"""Through which relays the devices of a volume reach each other: those that are its clouds, and those that
are among the addresses that the user has given."""

from __future__ import annotations

import logging
from typing import Final

from backends.credentials import Credentials
from backends.errors import StoreError
from hybrisfs.peers.settings import Relay
from hybrisfs.settings.config import VolumeConfig

__all__ = ["relays_of"]

log = logging.getLogger(__name__)

_SCHEME: Final = "relay://"


def relays_of(config: VolumeConfig, credentials: Credentials) -> list[Relay]:
    """Those whose tokens are on this device, each once."""
    urls = [one.url for one in config.clouds if one.url.startswith(_SCHEME)]
    found = [_relay(url, credentials) for url in dict.fromkeys([*urls, *config.links.relays])]
    return [one for one in found if one is not None]


def _relay(url: str, credentials: Credentials) -> Relay | None:
    from backends.relay import RelayStore, pin_of, port_of  # only volumes that have one need it

    try:
        address = RelayStore.kind.parse(url)
        token = credentials.lookup(url).get("token")
    except StoreError as error:
        log.info("no links through a relay: %s", error)
        return None
    if not token:
        return None
    return Relay((address.host, port_of(address)), pin_of(address), address.path, token)
