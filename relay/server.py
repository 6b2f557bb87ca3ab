"""The process that is a relay: from `hybrisfs relay serve` until Ctrl-C."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hybrisfs import http_server
from hybrisfs.door import Door, DoorLimits
from hybrisfs.listening import Address, listening, only_one
from relay.files import certificate
from relay.line import Exchange, protocol_of
from relay.objects import ObjectServer
from relay.rooms import Rooms
from relay.spaces import Spaces

__all__ = ["Endpoint", "serve"]

_IDLE: Final = 60  # seconds that a connection is kept
_LIMITS: Final = DoorLimits(connections=1024, of_one=128)


class Endpoint(NamedTuple):
    """Where it listens, whether only programs of this machine reach that, and the hash of its certificate."""

    host: str
    port: int
    is_local: bool
    pin: bytes


def serve(folder: Path, address: Address, show: Callable[[Endpoint], None]) -> None:
    """Be the relay whose files are in *folder*; *show* is called when devices can connect.

    Ends with KeyboardInterrupt at Ctrl-C. Raises HybrisError when it runs already, or the address cannot be
    used; OSError.
    """
    made = certificate(folder)
    with only_one(folder / "lock", "this relay"), listening(address) as listener:
        host, port = listener.getsockname()[:2]
        endpoint = Endpoint(host, port, ipaddress.ip_address(host).is_loopback, made.pin)
        with Door(listener, _LIMITS) as door:
            spaces = Spaces(folder)
            objects = ObjectServer(spaces, Rooms(folder), door.entered)
            try:
                http_server.serve(
                    objects,
                    door,
                    _LIMITS.connections,
                    lambda: show(endpoint),
                    idle=_IDLE,
                    tls=(made.chain, made.key),
                    protocol=protocol_of(Exchange(spaces, door.entered)),
                )
            finally:
                objects.close()
