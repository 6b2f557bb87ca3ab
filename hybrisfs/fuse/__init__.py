"""libfuse 3's low-level interface through ctypes: no compiler, no headers, one loop thread, late answers.

A filesystem derives from `Operations`; `MountedSession` mounts and serves it. Knows nothing of HybrisFS.
"""

from hybrisfs.fuse.errors import FuseError
from hybrisfs.fuse.library import KILL_FLAGS_SINCE, libfuse
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
    "KILL_FLAGS_SINCE",
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
    "libfuse",
]
