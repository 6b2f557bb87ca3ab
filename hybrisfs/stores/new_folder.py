"""A local folder that is to become a cloud: is the disk there on which it is meant to be?

A folder that is made where a disk is not mounted lies on the system's disk, and so do the folders of the
other disks that are not mounted: then one disk holds all, and the volume takes it for several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hybrisfs.errors import UsageError

__all__ = ["objection_to_making", "require_ready", "table_of_disks"]

_FSTAB: Final = Path("/etc/fstab")
_MOST_BYTES: Final = 1 << 20
_FOR_DISKS: Final = tuple(map(Path, ("/mnt", "/media", "/run/media")))
"""The folders below which disks are mounted (FHS 3.0, 3.11 and 3.12)."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def require_ready(url: str, *, make: bool) -> None:
    """Raise UsageError when *url* is that of a local folder whose parent or disk is not there, unless a
    person says *make*."""
    parts = urlsplit(url)
    if make or parts.scheme != "file":
        return
    folder = Path(os.path.normpath(unquote(parts.path, errors="surrogateescape")))
    why = objection_to_making(folder, table_of_disks(_FSTAB), os.path.ismount)
    if why:
        raise UsageError(
            f"the cloud {url} cannot be used", why, "Mount the disk, or say --make to have the folder made."
        )


def objection_to_making(folder: Path, expected: Iterable[Path], is_mount: Callable[[Path], bool]) -> str:
    """Why *folder* should not be made; "" when it may be. *expected*: where disks are to be mounted."""
    above = [folder, *folder.parents][:-1]
    for place in above:
        if place in expected and not is_mount(place):
            return f"no disk is mounted at {place}, as /etc/fstab wants it"
    for base in _FOR_DISKS:
        if folder.is_relative_to(base) and not any(map(is_mount, above)):
            return f"no disk is mounted at {folder}, nor at a folder above it"
    return "" if folder.parent.is_dir() else f"there is no folder {folder.parent}"


def table_of_disks(path: Path) -> frozenset[Path]:
    """Where the file *path* wants disks to be mounted; nowhere, when it cannot be read. See fstab(5)."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return frozenset()
    entries = [line.split() for line in lines if not line.lstrip().startswith("#")]
    places = [_OCTAL.sub(lambda found: chr(int(found[1], 8)), one[1]) for one in entries if len(one) > 1]
    return frozenset(Path(place) for place in places if place.startswith("/") and place != "/")
