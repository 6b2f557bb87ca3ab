"""FUSE as the kernel speaks it (linux/fuse.h): no compiler, no library, one loop thread, late answers.

A filesystem derives from `Operations`; `MountedSession` mounts and serves it. Knows nothing of HybrisFS.
"""

from hybrisfs.fuse.errors import FuseError
from hybrisfs.fuse.mounting import abort, clear_stale
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.records import (
    Attributes,
    Buffer,
    Entry,
    Listing,
    ListingPlus,
    Opened,
    StatVfs,
)
from hybrisfs.fuse.request import LATER, Later, Request
from hybrisfs.fuse.session import DEFAULT_CAPABILITIES, MountedSession

__all__ = [
    "DEFAULT_CAPABILITIES",
    "LATER",
    "Attributes",
    "Buffer",
    "Entry",
    "FuseError",
    "Later",
    "Listing",
    "ListingPlus",
    "Opened",
    "Operations",
    "Request",
    "MountedSession",
    "StatVfs",
    "abort",
    "clear_stale",
]
