"""What can go wrong when a volume is recovered."""

from __future__ import annotations

from hybrisfs.errors import HybrisError

__all__ = ["RecoveryError"]


class RecoveryError(HybrisError):
    """The volume was not recovered; this machine is as it was."""
