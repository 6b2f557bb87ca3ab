"""The local disk: is there room where HybrisFS keeps its files, and is it a disk that keeps them?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hybrisfs.doctor.finding import Finding, bad, ok, warn

__all__ = ["examine_disk"]

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
