"""When a device looks for packs that nobody needs, and what it does with them."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["GcLimits"]


class GcLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`. Seconds are between two looks of a kind, in the background."""

    step_seconds: float = 15.0
    """At what others have answered."""
    later_seconds: float = 300.0
    """When a cloud or a chunk could not be reached."""
    unproven_seconds: float = 60.0
    """Whether the clouds have what members say."""
    first_look: float = 600.0
    """After the start, for packs that nobody needs, ..."""
    look_seconds: float = 3600.0
    """... and then."""
    list_seconds: float = 86_400.0
    """Listings of all clouds by the device that does it for all, ..."""
    others_list_seconds: float = 7 * 86_400.0
    """... and by others, which may delete what the first one may not."""
    refused_seconds: float = 86_400.0
    """Whether others have deleted what this device may not."""

    sparse: float = 0.5
    """A pack of which a smaller share is needed is packed again, ..."""
    least_dead: int = 256 << 10
    """... if that frees at least so many bytes of sealed chunks."""
    rewritten_bytes: int = 64 << 20
    """That are packed again after one look in the background."""
    archived_bytes: int = 16 << 20
    """That are archived in one go."""
    pause: float = 0.02
    """Seconds without work, in the background, after some packs."""
    shipped_within: float = 60.0
    """Seconds that a person waits until what is agreed is on the clouds."""
