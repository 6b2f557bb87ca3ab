"""The machine: its disk, its limits, and the ports on which other devices may call it."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hybrisfs.doctor.check import Finding, bad, ok, warn

__all__ = ["examine_disk", "examine_limits", "examine_links"]

_MOUNTS: Final = Path("/proc/self/mountinfo")
_FEW_BYTES: Final = 1 << 30
_TOO_FEW_BYTES: Final = 100 << 20  # below that, writes end with ENOSPC
_FEW_INODES: Final = 10_000
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs"}
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


def examine_disk(folders: dict[str, Path]) -> Iterator[Finding]:
    """*folders*: what they hold, and where. Those that do not exist yet stand for the next above."""
    for name, folder in folders.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        kind = file_system(there, _MOUNTS.read_bytes())
        yield room(name, folder, os.statvfs(there))
        yield durable(name, folder, kind)


def room(name: str, folder: Path, facts: os.statvfs_result) -> Finding:
    check = f"room for {name}"
    free = facts.f_bavail * facts.f_frsize
    if free < _TOO_FEW_BYTES:
        return bad(check, f"{free >> 20} MiB are free at {folder}", "Make room: nothing can be written.")
    if facts.f_files and facts.f_favail < _FEW_INODES:
        return warn(
            check, f"{facts.f_favail} inodes are free at {folder}", "Remove small files from that disk."
        )
    if free < _FEW_BYTES:
        return warn(check, f"{free >> 20} MiB are free at {folder}", "Make room before it is full.")
    return ok(check, f"{free >> 30} GiB are free at {folder}")


def durable(name: str, folder: Path, kind: str) -> Finding:
    check = f"disk of {name}"
    if kind in _NETWORK:
        return warn(
            check,
            f"{folder} is on a network file system ({kind})",
            "Move it to a local disk: databases on network disks may be damaged when the network fails.",
        )
    if kind in _VOLATILE:
        return warn(
            check,
            f"{folder} is in memory ({kind})",
            "Move it to a disk: keys and all that is not on the clouds yet are lost at the next reboot.",
        )
    return ok(check, f"{folder} is on {kind}")


def file_system(path: Path, mounts: bytes) -> str:
    """The type of the file system that holds *path*, from the text of proc_pid_mountinfo(5)."""
    wanted, best, kind = os.fsencode(path.resolve()), b"", "an unknown file system"
    for line in mounts.splitlines():
        before, _, after = line.partition(b" - ")
        where = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), before.split()[4])
        below = where == b"/" or wanted == where or wanted.startswith(where + b"/")
        if below and len(where) >= len(best):
            best, kind = where, after.split()[0].decode()
    return kind


# -- limits of the system that a busy folder may meet ---------------------------------------------------


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


# -- the ports on which other devices may call this one -------------------------------------------------


def examine_links(ports: Mapping[str, int], *, daemon_runs: bool) -> Iterator[Finding]:
    """*ports*: those that `volume.json` names, 0 for any; by volume."""
    for name, number in ports.items():
        if number:
            yield port(name, number, daemon_runs=daemon_runs)


def port(name: str, number: int, *, daemon_runs: bool) -> Finding:
    """While the daemon runs it holds the port itself."""
    check = f"port of {name}"
    try:
        with socket.create_server(("", number)):
            free = True
    except OSError as error:
        if error.errno == errno.EACCES:
            return warn(
                check, f"port {number} is reserved for root", "Choose one above 1023 in volume.json (links)."
            )
        free = False
    if free and daemon_runs:
        return warn(
            check,
            f"nobody listens on port {number}",
            "The log says why; other machines cannot call this one.",
        )
    if not free and not daemon_runs:
        return warn(
            check,
            f"port {number} is taken by another program",
            f"Run ss -ltnp 'sport = :{number}' to see by which; or choose another in volume.json (links).",
        )
    return ok(check, f"port {number} {'is free' if free else 'is listened on'}")
