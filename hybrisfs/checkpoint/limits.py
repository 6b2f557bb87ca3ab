"""When checkpoints are made, agreed upon and taken in, and how large their parts are."""

from __future__ import annotations

from msgspec import Struct

from hybrisfs.checkpoint.snapshot import SLICE_BYTES
from hybrisfs.checkpoint.state_at_vector import MOST_BYTES

__all__ = ["CheckpointLimits"]


class CheckpointLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    look_seconds: float = 5.0
    """How often a device looks whether something is due."""

    # When a device states what it has:
    quiet_seconds: float = 10.0
    """How long the volume must have been quiet before a snapshot is made."""
    least_bytes: int = 1 << 18
    """Of updates that make a new checkpoint worth while, ..."""
    least_share: float = 0.25
    """... if they are that share of what the last one holds."""
    restate_seconds: float = 600.0
    """How often a device states something else while others do not agree."""
    restless_seconds: float = 600.0
    """How often a device states what it has without having been quiet."""

    # When it takes in a checkpoint of others:
    far_behind: int = 2000
    """A device that has a log takes a checkpoint in when it lags so many steps of logical time behind it."""
    patience_seconds: float = 300.0
    """A device that still lacks a part of a checkpoint after that long takes it in, even if the lag is small:
    the updates may exist nowhere else any more."""

    slice_bytes: int = SLICE_BYTES
    """A slice of a snapshot ends when it has so many."""
    past_bytes: int = MOST_BYTES
    """Most bytes of updates that are gone through to find the state at an earlier vector."""
