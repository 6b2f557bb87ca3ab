"""Errors of the direct channel. Nothing of them leaves this package but `ListenError`: a link that fails is
closed with the reason, and connected again."""

from __future__ import annotations

from hybrisfs.errors import HybrisError

__all__ = ["ChannelError", "FrameError", "ListenError", "PeerError", "StrangerError"]


class PeerError(Exception):
    """Base of what ends a connection; the message is the reason."""


class ChannelError(PeerError):
    """The connection broke, was closed in the middle of something, or never came about."""


class StrangerError(PeerError):
    """The other side is not a member of the volume."""


class FrameError(PeerError, ValueError):
    """What the other side sent is not a well-formed frame, or none that may come now."""


class ListenError(HybrisError):
    """The port on which devices are expected cannot be opened."""
