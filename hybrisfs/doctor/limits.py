"""Limits of the system that a busy folder may meet."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hybrisfs.doctor.finding import Finding, ok, warn

__all__ = ["examine_limits"]

_INOTIFY: Final = Path("/proc/sys/fs/inotify")
_LEAST: Final = {"max_user_watches": 65_536, "max_user_instances": 128}
_LEAST_FILES: Final = 4096


def examine_limits() -> Iterator[Finding]:
    for name, least in _LEAST.items():
        yield inotify(name, least, _INOTIFY)
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def inotify(name: str, least: int, folder: Path) -> Finding:
    """How much programs (editors, file managers, synchronisers) may watch."""
    check = f"inotify {name}"
    try:
        limit = int((folder / name).read_text())
    except (OSError, ValueError):
        return warn(check, "it cannot be read", "Programs may not hear of what other machines change.")
    if limit < least:
        return warn(
            check,
            f"{limit}: programs may run out of watches in a large folder",
            f"As root, run sysctl fs.inotify.{name}={least}, and put that into /etc/sysctl.d.",
        )
    return ok(check, f"{limit:,}")


def open_files(limit: int) -> Finding:
    """*limit* is the hard one, to which the daemon raises its own."""
    if limit != resource.RLIM_INFINITY and limit < _LEAST_FILES:
        return warn(
            "open files",
            f"a process may open {limit} files",
            f"Raise the limit to {_LEAST_FILES} or more (limits.conf(5); LimitNOFILE= in a systemd unit).",
        )
    return ok("open files", "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}")
