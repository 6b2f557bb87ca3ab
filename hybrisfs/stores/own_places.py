"""Places that cannot be clouds: taken by the marker of a volume, by mounts and mirrors, by HybrisFS's own
files; or folders whose disk is not there.

What is put into a mount or a mirror becomes a part of a volume, which is to be put onto clouds, and so on
for ever; what is put among HybrisFS's own files may take the place of one of them. Any member can name such a
folder by a `file://` URL, or a person by mistake, and it may become one later: so it is looked at before each
request, in the thread of the cloud, for the disk that it is on may hang.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from backends.errors import PermanentError
from backends.store import Store, StoreWrapper
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import UsageError, as_sentence
from hybrisfs.fuse.mounting import mounts_of
from hybrisfs.home import Home
from hybrisfs.mirror.agreed import read_settings
from hybrisfs.mirror.ignore import MARKER
from hybrisfs.mount.mountpoint import SOURCE, SUBTYPE
from sync.codec import Writer

__all__ = [
    "ANY_HOME",
    "MARKER_NAME",
    "OwnPlaces",
    "belongs_to_another",
    "marker",
    "objection_to_making",
    "require_ready",
    "table_of_disks",
]

_MOUNTS: Final = "mounts.json"  # see hybrisfs.daemon.wanted_mounts
_GOOD_FOR: Final = 1.0  # seconds that what was found holds: a burst of requests looks once
_MIRROR: Final = "a mirrored folder"
_ADVICE: Final = "choose a folder apart from mounts, mirrors and what HybrisFS keeps for itself"

T = TypeVar("T")


class OwnPlaces:
    """The folders that cannot be clouds: those of a *home*; without one mounts, whosever they are, and marked
    mirrors. Thread-safe."""

    def __init__(self, home: Home | None, environment: Environment) -> None:
        self._home = home
        self.clock: Final = environment.monotonic

    def objection(self, url: str) -> str:
        """Why the folder that a `file://` URL names cannot be a cloud; "" when it can, and for other URLs."""
        parts = urlsplit(url)
        if parts.scheme != "file":
            return ""
        named = Path(os.path.normpath(unquote(parts.path)))
        mounted = dict(mounts_of(SUBTYPE))
        mounts = [
            (path, f"the mount of the volume {mounted[path].removeprefix(SOURCE)}")
            for path in self._own(mounted)
        ]
        # First by name alone: one who follows a path into a mount waits for that.
        return _why(named, mounts) or self._objection(named.resolve(), mounts)

    def _own(self, mounted: Collection[Path]) -> Collection[Path]:
        """Those of the mounts that are volumes of this home; without a home they may be anybody's."""
        if self._home is None:
            return mounted
        try:
            record = json.loads((self._home.state / _MOUNTS).read_bytes())
            wanted = [Path(one["directory"]) for one in record["mounts"].values()]
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return mounted  # nobody knows
        return {_as_mounted(one, mounted) for one in wanted}.intersection(mounted)

    def _objection(self, folder: Path, mounts: list[tuple[Path, str]]) -> str:
        above = (folder, *folder.parents)
        marked = [(one, _MIRROR) for one in above if os.path.lexists(one / os.fsdecode(MARKER))]
        return _why(folder, (*mounts, *marked, *self._of_home()))

    def _of_home(self) -> Iterator[tuple[Path, str]]:
        if self._home is None:
            return
        yield from self._home.own_folders()
        for path in self._home.state.glob("volumes/*/mirrors/*.db"):
            with contextlib.suppress(sqlite3.Error, ValueError):  # the code that begins the mirrors says so
                yield read_settings(path).directory, _MIRROR

    def require_apart(self, url: str) -> None:
        """Raise UsageError when the folder that a person names cannot be a cloud."""
        why = self.objection(url)
        if why:
            raise UsageError(f"the cloud {url} cannot be used", why, as_sentence(_ADVICE))

    def guarded(self, store: Store) -> Store:
        """*store*, but that each call raises `PermanentError` while its folder cannot be a cloud."""
        return _Guarded(store, self) if store.url.startswith("file://") else store


ANY_HOME: Final = OwnPlaces(None, SYSTEM)


def _as_mounted(named: Path, mounted: Collection[Path]) -> Path:
    """What the table of mounts calls a directory. By name as far as that goes: a look at a directory that is
    mounted waits for the program that serves it."""
    if named in mounted:
        return named
    beside = named.parent.resolve() / named.name
    return beside if beside in mounted else beside.resolve()


def _why(folder: Path, taken: Iterable[tuple[Path, str]]) -> str:
    for place, what in taken:
        if folder == place:
            return f"it is {what}"
        if folder.is_relative_to(place):
            return f"it lies in {what}, {place}"
        if place.is_relative_to(folder):
            return f"it holds {what}, {place}"
    return ""


class _Guarded(StoreWrapper):
    """A store that raises `PermanentError` at each call while there is an objection to its folder."""

    def __init__(self, store: Store, places: OwnPlaces) -> None:
        super().__init__(store)
        self._places = places
        self._looked = -math.inf
        self._why = ""

    def _pass_on(self, operation: str, name: str, call: Callable[[Store], T]) -> T:
        now = self._places.clock()
        if now - self._looked >= _GOOD_FOR:
            self._why = self._places.objection(self.url)
            self._looked = now
        if self._why:
            raise PermanentError(self.url, operation, name, self._why, _ADVICE)
        return super()._pass_on(operation, name, call)


# -- the object `volume` on every cloud: it marks the folder or bucket as a place of one volume ---------


MARKER_NAME: Final = "volume"
_MARKER_MAGIC: Final = b"HFVO"
_MARKER_VERSION: Final = 1
_DAMAGED_BITS: Final = 16  # two random ids differ in about 64 bits


def marker(volume: bytes) -> bytes:
    """The object `volume` on every cloud: magic "HFVO", version u16 = 1, volume id 16.

    It tells that the folder or bucket belongs to this volume, and stays as it is for ever.
    """
    return Writer().raw(_MARKER_MAGIC).u16(_MARKER_VERSION).raw(volume).getvalue()


def belongs_to_another(data: bytes, volume: bytes) -> bool:
    """Whether the object `volume` of a cloud marks another volume: not this one with a few bits damaged."""
    expected = marker(volume)
    if len(data) < len(expected) or not data.startswith(_MARKER_MAGIC):
        return False
    difference = int.from_bytes(data[: len(expected)]) ^ int.from_bytes(expected)
    return difference.bit_count() > _DAMAGED_BITS


# -- a local folder that is to become a cloud: is the disk there on which it is meant to be? ----------
# A folder that is made where a disk is not mounted lies on the system's disk, and so do the folders of the
# other disks that are not mounted: then one disk holds all, and the volume takes it for several.


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
