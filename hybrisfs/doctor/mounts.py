"""What mounting needs, what is mounted, and who holds the locks."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hybrisfs.daemon.only_one import answers, holder, is_stopped
from hybrisfs.daemon.wanted_mounts import WantedMount, is_locked
from hybrisfs.doctor.check import Finding, bad, ok, side_by_side, warn
from hybrisfs.fuse.mounting import is_stale
from hybrisfs.home import Home

__all__ = ["examine_fuse", "examine_mounts"]

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


# -- what mounting needs --------------------------------------------------------------------------------


_DEVICE: Final = Path("/dev/fuse")
_SETTINGS: Final = Path("/etc/fuse.conf")
_PROFILE: Final = Path("/etc/apparmor.d/fusermount3")
_APPARMOR: Final = Path("/sys/module/apparmor/parameters/enabled")
_KERNEL: Final = (5, 4)  # the oldest with the requests that the mount relies on


def examine_fuse(mountpoints: Sequence[Path], user: Path, *, for_others: bool) -> Iterator[Finding]:
    """*mountpoints* are where volumes are to be mounted, *user* is the home directory, and *for_others* tells
    whether one of them is mounted with --allow-other."""
    yield kernel(os.uname().release)
    yield device(_DEVICE)
    yield helper(shutil.which("fusermount3"), root=os.geteuid() == 0)
    yield settings(_SETTINGS, needed=for_others and os.geteuid() != 0)
    yield confinement(mountpoints, user, enabled=_confined(), root=os.geteuid() == 0)


def kernel(release: str) -> Finding:
    """*release* as uname(2) tells it."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= _KERNEL:
        return ok("kernel", f"Linux {release}")
    return bad("kernel", f"Linux {release} is too old", "Run Linux 5.4 or newer.")


def device(path: Path) -> Finding:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return bad(
            "fuse",
            f"there is no {path}",
            "Load the kernel module (modprobe fuse); a container needs --device /dev/fuse.",
        )
    except OSError as error:
        return bad(
            "fuse",
            f"{path} cannot be opened: {error.strerror}",
            f"As root, run chmod 666 {path}, as udev does.",
        )
    return ok("fuse", f"{path} can be used")


def helper(path: str | None, *, root: bool) -> Finding:
    """*path* is where fusermount3 was found; root does without it."""
    if path is None:
        if root:
            return ok("fusermount3", "it is not installed, and root does without it")
        return bad("fusermount3", "it is not installed", "Install the package fuse3.")
    status = Path(path).stat()
    if status.st_uid != 0 or not status.st_mode & stat.S_ISUID:
        return bad("fusermount3", f"{path} is not setuid root", f"As root, run chmod u+s {path}.")
    return ok("fusermount3", f"{path} is setuid root")


def settings(path: Path, *, needed: bool) -> Finding:
    """*needed* when an ordinary user mounts with --allow-other."""
    try:
        words = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        words = []
    if "user_allow_other" in words:
        return ok("fuse.conf", f"{path} lets ordinary users mount with --allow-other")
    if needed:
        return bad(
            "fuse.conf",
            f"a volume is to be mounted with --allow-other, but {path} forbids it",
            f"As root, put a line user_allow_other into {path}, or mount without --allow-other.",
        )
    return ok("fuse.conf", f"{path} does not allow --allow-other, and nothing needs it")


def confinement(mountpoints: Sequence[Path], user: Path, *, enabled: bool, root: bool) -> Finding:
    """The profile of Ubuntu 24.10 and newer lets fusermount3 mount in a few places only."""
    if root or not enabled:
        return ok("apparmor", "fusermount3 is not confined")
    allowed = (user, *map(Path, ("/mnt", "/media", "/tmp", "/run/user", "/var/tmp")))
    outside = [str(one) for one in mountpoints if not any(one.is_relative_to(place) for place in allowed)]
    if not outside:
        return ok("apparmor", "fusermount3 is confined, and may mount where the volumes are")
    return warn(
        "apparmor",
        f"a profile of AppArmor may keep fusermount3 from mounting at {', '.join(outside)}",
        f"Mount below {user}, or see the kernel's log: journalctl -k -g apparmor.",
    )


def _confined() -> bool:
    try:
        return _PROFILE.exists() and _APPARMOR.read_text().startswith("Y")
    except OSError:
        return False
