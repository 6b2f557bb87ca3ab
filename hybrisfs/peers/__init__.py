"""The direct channel between devices: TLS 1.3, both sides pinned to their device keys, no server in between.

`PeerService` finds the other members of a volume (`discovery`, configured addresses), keeps one link with
each (`connector`, `handshakes`, `service`), exchanges updates as they happen, passes beacons on, and fetches
and serves chunks (`link`). It knows the volume through `PeerCallbacks` only. The formats are in `tls`,
`frames` and `discovery`.
"""

from __future__ import annotations

from hybrisfs.peers.errors import ListenError
from hybrisfs.peers.frames import MAX_BEACON, MAX_BODY
from hybrisfs.peers.service import PeerService, PeerStatus
from hybrisfs.peers.settings import (
    Address,
    Exchange,
    PeerCallbacks,
    PeerSettings,
    format_address,
    parse_address,
)
from hybrisfs.peers.tls import SECRET_SIZE, PeerIdentity

__all__ = [
    "MAX_BEACON",
    "MAX_BODY",
    "SECRET_SIZE",
    "Address",
    "Exchange",
    "ListenError",
    "PeerCallbacks",
    "PeerIdentity",
    "PeerService",
    "PeerSettings",
    "PeerStatus",
    "format_address",
    "parse_address",
]
