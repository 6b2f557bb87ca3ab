"""A folder that was never shared: whatever members do, nothing of it changes. And what could change it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from hybrisfs.mount.hand import Hand

__all__ = ["ORDERS", "Order", "device_of", "private_folder", "state"]

_LONG_AGO: Final = 1_000_000_000

Order: TypeAlias = Callable[[Hand, bytes], None]
"""What the hand is told to do in a folder."""
ORDERS: Final[dict[str, Order]] = {
    "unlink": lambda hand, folder: hand.unlink(folder, b"name"),
    "rmdir": lambda hand, folder: hand.rmdir(folder, b"empty"),
    "write": lambda hand, folder: hand.write(folder, b"name", 1),
    "touch": lambda hand, folder: hand.touch(folder, b"name"),
    "touch a folder": lambda hand, folder: hand.touch(folder, b"empty"),
    "rename within": lambda hand, folder: hand.rename(folder, b"name", folder, b"other"),
    "rename into": lambda hand, folder: hand.rename(b"", b"file", folder, b"other"),
    "rename out": lambda hand, folder: hand.rename(folder, b"name", b"", b"other"),
    "make": lambda hand, folder: hand.arrive(b"hidden", folder, [(1, b"new", stat.S_IFREG)]),
    "make a folder": lambda hand, folder: hand.arrive(b"hidden", folder, [(2, b"new", stat.S_IFDIR)]),
    "make a link": lambda hand, folder: hand.arrive(b"hidden", folder, [(1, b"new", stat.S_IFLNK)]),
    "make a pipe": lambda hand, folder: hand.arrive(b"hidden", folder, [(1, b"new", stat.S_IFIFO)]),
    "take from": lambda hand, folder: hand.arrive(folder, b"", [(7, b"new", stat.S_IFREG)]),
}


def private_folder(folder: Path) -> Path:
    """Make it, with the file `name` and the folder `empty` in it."""
    (folder / "empty").mkdir(parents=True)
    (folder / "name").write_bytes(b"never shared")
    for path in (folder / "name", folder / "empty", folder):
        os.utime(path, (_LONG_AGO, _LONG_AGO))
    return folder


def device_of(path: Path) -> str:
    """The number of the filesystem that a folder is in."""
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def state(folder: Path) -> dict[Path, tuple[int, int, int, bytes]]:
    """All that can be seen of a folder and of what is in it."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[path] = status.st_mode, status.st_mtime_ns, status.st_ctime_ns, content
    return found
