"""Pairing: a one-time code lets a new device into a volume, over the local network or the clouds alone.

`code` is what the person carries over, `messages`, `handshake` and `protocol` are what the devices say to
each other (sans-IO), `mailbox` and `lan` carry it, `exchange` and `session` drive it.
"""

from __future__ import annotations

from hybrisfs.pairing.code import PairingCode, new_code, qr_lines
from hybrisfs.pairing.errors import CodeError, PairingError
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.lan import Listener
from hybrisfs.pairing.messages import Grant, GrantedCloud, Offer, Peer
from hybrisfs.pairing.session import Admitted, Joined, run_inviter, run_joiner

__all__ = [
    "Admitted",
    "CodeError",
    "Dialogue",
    "Grant",
    "GrantedCloud",
    "Joined",
    "Listener",
    "Offer",
    "PairingCode",
    "PairingError",
    "Peer",
    "new_code",
    "qr_lines",
    "run_inviter",
    "run_joiner",
]
