"""Errors of the data plane. Each message names what failed, why, and what is affected."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ChunkUnavailable",
    "CloudsUnavailable",
    "DispersalError",
    "IntegrityError",
    "NewerVersionError",
    "ObjectMissing",
    "Superseded",
    "UnreadableHereError",
]


class DispersalError(Exception):
    """Base of everything that dispersal raises."""


class IntegrityError(DispersalError):
    """Bytes that came back from a cloud are not the bytes that were written."""


class UnreadableHereError(IntegrityError):
    """The bytes may be right, but this device cannot tell; nothing of them was used. When all clouds return
    the same, none of them lies."""


class NewerVersionError(UnreadableHereError):
    """The bytes announce a format that this version does not know."""


class _PerCloudError(DispersalError):
    """A failure explained cloud by cloud: `reasons` maps the cloud's name to a sentence."""

    def __init__(self, what: str, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        detail = "; ".join(f"{cloud}: {reason}" for cloud, reason in self.reasons.items())
        super().__init__(f"{what} ({detail})" if detail else what)


class CloudsUnavailable(_PerCloudError):  # noqa: N818 - a state of the world, waited out by callers
    """Too few clouds acknowledged a write, or none had an object; try again when they are back."""


class ObjectMissing(CloudsUnavailable):
    """So many clouds say that there is no such object that it was never completely written."""


class Superseded(DispersalError):  # noqa: N818 - no failure: there is something newer to be read
    """The object has been written again while it was read."""


class ChunkUnavailable(_PerCloudError):  # noqa: N818 - a state of the world, waited out by callers
    """A chunk cannot be rebuilt from what the clouds answer now; try again when they are back."""
