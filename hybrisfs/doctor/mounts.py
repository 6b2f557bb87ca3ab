"""What runs and what is mounted: dead mounts, mounts that are missing, who holds the locks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hybrisfs.daemon.covered import is_locked
from hybrisfs.daemon.only_one import answers, holder, is_stopped
from hybrisfs.daemon.wanted import WantedMount
from hybrisfs.doctor.finding import Finding, bad, ok, warn
from hybrisfs.doctor.patience import side_by_side
from hybrisfs.fuse.mounting import is_stale
from hybrisfs.home import Home

__all__ = ["examine_mounts"]

_MOUNTS: Final = Path("/proc/self/mountinfo")
_PATIENCE: Final = 5.0  # seconds
_KIND: Final = "fuse.hybrisfs"


def examine_mounts(home: Home, wanted: Mapping[str, WantedMount]) -> Iterator[Finding]:
    runs = answers(home.socket)
    yield daemon(home, runs=runs)
    yield from strangers(home)
    mounted = our_mounts(_MOUNTS.read_bytes())
    states = side_by_side([partial(is_stale, place) for place in mounted], _PATIENCE)
    dead = [place for place, stale in zip(mounted, states, strict=True) if stale]
    for place, stale in zip(mounted, states, strict=True):
        if stale is None:
            yield bad(
                "mounts",
                f"the mount at {place} does not answer",
                "Run hybrisfs daemon --stop, and mount again.",
            )
    for place in dead:
        yield bad(
            "mounts", f"the mount at {place} is dead: its daemon was killed", f"Run hybrisfs umount {place}."
        )
    for name, mount in wanted.items():
        if mount.directory not in mounted:
            yield missing(name, mount.directory, runs=runs)
    if not any(states) and None not in states:
        yield ok("mounts", f"{len(mounted)} mounted, none of them dead")


def daemon(home: Home, *, runs: bool) -> Finding:
    pid = holder(home.daemon_lock)
    if pid is not None and not runs:
        return bad(
            "daemon",
            f"process {pid} holds {home.daemon_lock}, but does not answer",
            f"Wait if it is just starting or stopping; otherwise kill -9 {pid}: nothing is lost by it.",
        )
    if pid is None:
        return ok("daemon", "it is not running; commands start it")
    if is_stopped(pid):
        return bad("daemon", f"process {pid} stands still (SIGSTOP)", f"kill -CONT {pid} lets it go on.")
    supervisor = holder(home.supervisor_lock)
    guard = f", watched over by process {supervisor}" if supervisor else ""
    return ok("daemon", f"it runs, process {pid}{guard}")


def strangers(home: Home) -> Iterator[Finding]:
    """Processes that have a volume open and are not the daemon that commands reach."""
    ours = holder(home.daemon_lock)
    for name in home.volume_names():
        pid = holder(home.volume_state(name) / "lock")
        if pid is not None and pid != ours:
            yield bad(
                "daemon",
                f"process {pid} has the volume {name} open, and is not the daemon that commands use",
                f"kill {pid} ends it; nothing is lost by it.",
            )


def missing(name: str, directory: Path, *, runs: bool) -> Finding:
    locked = "; the folder is locked until then" if is_locked(directory) else ""
    if _holds_something(directory):
        locked += "; what is in it lies beside the volume, and is moved away when that is mounted"
    return warn(
        "mounts",
        f"{name} is not mounted at {directory}, as it should be{locked}",
        f"Run hybrisfs mount {name} {directory}" + (", which says why." if runs else "."),
    )


def _holds_something(directory: Path) -> bool:
    """False as well when we may not look."""
    try:
        return any(directory.iterdir())
    except OSError:
        return False


def our_mounts(mounts: bytes) -> list[Path]:
    """Where HybrisFS is mounted, dead or alive, from the text of proc_pid_mountinfo(5)."""
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(b" - ")
        if after.split()[0].decode() == _KIND:
            where = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), before.split()[4])
            found.append(Path(os.fsdecode(where)))
    return found
