"""Mounts that are wanted: which they are, and the folder below each, which is locked and cleared.

STATE/mounts.json, written whenever that changes, replaced atomically and synced:
{"format": 1, "mounts": {NAME: {"directory": ABSOLUTE PATH, "allow_other": BOOLEAN}}}
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import logging
import os
import shlex
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from hybrisfs.environment import Environment, replace_file
from hybrisfs.fuse.mounting import mounted_device

__all__ = ["Beside", "WantedMount", "WantedMounts", "is_locked", "locked_below", "unlock"]

log = logging.getLogger(__name__)

_FORMAT: Final = 1


class WantedMount(Struct, frozen=True):
    """One mount that is to be there whenever the daemon runs."""

    directory: Path
    allow_other: bool = False


class WantedMounts:
    """The record of wanted mounts in the folder `state`. Safe to use from several threads of one process."""

    def __init__(self, state: Path, environment: Environment) -> None:
        self._environment = environment
        self._path = state / "mounts.json"
        self._lock = threading.Lock()

    def all(self) -> dict[str, WantedMount]:
        """The wanted mounts by volume. A damaged record counts as empty, and is logged."""
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.error("cannot use %s, no volume is remounted: %s", self._path, error)
            return {}

    def add(self, volume: str, mount: WantedMount) -> None:
        """Record a mount. Raises `OSError`."""
        with self._lock:
            self._write({**self.all(), volume: mount})

    def remove(self, volume: str) -> None:
        """Forget a mount; one that is not recorded is not an error. Raises `OSError`."""
        with self._lock:
            mounts = self.all()
            if mounts.pop(volume, None):
                self._write(mounts)

    def rename(self, old: str, new: str) -> None:
        """A volume has another name. Raises `OSError`."""
        with self._lock:
            mounts = self.all()
            mount = mounts.pop(old, None)
            if mount is not None and old != new:
                self._write({**mounts, new: mount})

    def _write(self, mounts: dict[str, WantedMount]) -> None:
        record = {
            "format": _FORMAT,
            "mounts": {
                name: {"directory": str(mount.directory), "allow_other": mount.allow_other}
                for name, mount in mounts.items()
            },
        }
        replace_file(self._path, json.dumps(record, indent=2).encode("ascii"), self._environment)


def _decode(data: bytes) -> dict[str, WantedMount]:
    record = json.loads(data)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError("not a record of mounts, or of a newer version")
    mounts = record.get("mounts")
    if not isinstance(mounts, dict):
        raise ValueError("no mounts in it")
    return {name: _decode_mount(name, entry) for name, entry in mounts.items()}


def _decode_mount(name: str, entry: object) -> WantedMount:
    if isinstance(entry, dict):
        directory, allow_other = entry.get("directory"), entry.get("allow_other")
        if isinstance(directory, str) and directory.startswith("/") and isinstance(allow_other, bool):
            return WantedMount(Path(directory), allow_other)
    raise ValueError(f"malformed entry for {name!r}")


# -- the folder below a mount ---------------------------------------------------------------------------
# When a mount goes away unasked, programs would see an empty folder: a backup would take everything for
# deleted, and what is saved there would lie beside the volume. A locked folder (mode 0) answers "Permission
# denied" until the mount is back. Modes do not bind root: a daemon of root makes the folder immutable, too
# (chattr +i), where the filesystem knows that. An ordinary user's programs find it open while fusermount3
# mounts, for a millisecond or two. What lands there all the same never keeps the volume from being
# mounted again: once it is covered by the mount, it is moved into a folder beside it.


_USUAL_MODE: Final = 0o755
_MARK: Final = ".beside-"  # in the names of folders with what was found beside a volume
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS of linux/fs.h
_IMMUTABLE: Final = 0x10  # FS_IMMUTABLE_FL


class Beside(Struct):
    """What was found in the folder below a mount: moved to `places`, or still below, `trouble` says why."""

    places: list[Path] = field(default_factory=list)
    trouble: str = ""

    def warnings(self, volume: str, directory: Path) -> list[str]:
        """What a person should know, in sentences; places that have been removed since are left out."""
        said = [
            f"files that were written beside the volume while it was not mounted are in {place}: "
            f"hybrisfs import --volume {volume} {shlex.quote(str(place))} copies them into it; "
            "remove that folder afterwards"
            for place in self.places
            if place.is_dir()
        ]
        if self.trouble:
            said.append(
                f"files that were written beside the volume are hidden below {directory}, as {self.trouble}: "
                f"run hybrisfs umount {volume}, move them elsewhere, and mount it again"
            )
        return said


def is_locked(directory: Path) -> bool:
    """Whether the folder is there, nothing is mounted there, and it is locked."""
    try:
        return stat.S_IMODE(directory.lstat().st_mode) == 0
    except OSError:
        return False


def unlock(directory: Path) -> bool:
    """Let the folder be used; False when it was not locked. Raises `OSError`."""
    if not is_locked(directory):
        return False
    if os.geteuid() == 0:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _make_immutable(folder, immutable=False)
        finally:
            os.close(folder)
    directory.chmod(_USUAL_MODE)
    return True


def _found_beside(directory: Path) -> list[Path]:
    """The folders into which was moved what was found beside a volume at *directory*, oldest first."""
    try:
        with os.scandir(directory.parent) as entries:
            names = [one.name for one in entries if one.name.startswith(directory.name + _MARK)]
    except OSError as error:
        log.debug("cannot look for strays beside %s: %s", directory, error)
        return []
    return [directory.with_name(name) for name in sorted(names)]


@contextlib.contextmanager
def locked_below(directory: Path, *, again: bool = False) -> Iterator[Beside]:
    """Lock the folder once the body has mounted something on it, and move away what is in it.

    What was found is filled in at the end. A folder of another user is left alone. A body that mounts *again*
    can do so on a locked folder; otherwise it is unlocked before. Raises `OSError`.
    """
    was_locked = is_locked(directory) and os.geteuid() != 0
    if was_locked and not again:
        unlock(directory)
    below = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    beside = Beside()
    try:
        covered = f"/proc/self/fd/{below}"
        try:
            yield beside
        except BaseException:
            if was_locked:
                os.chmod(covered, 0)  # noqa: PTH101
            raise
        if mounted_device(directory) is not None:
            folder = os.open(covered, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                beside.trouble = _clear(folder, directory)
                _lock(folder, directory)
            finally:
                os.close(folder)
        beside.places = _found_beside(directory)
    finally:
        os.close(below)


def _lock(folder: int, directory: Path) -> None:
    try:
        if os.fstat(folder).st_mode & 0o7777:
            os.fchmod(folder, 0)
    except OSError as error:
        log.debug("%s is not locked: %s", directory, error)
        return
    if os.geteuid() == 0 and not _make_immutable(folder, immutable=True):
        log.info(
            "%s is not locked for root: neither filesystem nor container lets it be immutable", directory
        )


def _make_immutable(folder: int, *, immutable: bool) -> bool:
    """Set or clear the flag; False where there is none, or we may not."""
    flags = array.array("i", [0])
    try:
        fcntl.ioctl(folder, _GET_FLAGS, flags)
        wanted = flags[0] | _IMMUTABLE if immutable else flags[0] & ~_IMMUTABLE
        if wanted != flags[0]:
            fcntl.ioctl(folder, _SET_FLAGS, array.array("i", [wanted]))
    except OSError as error:
        log.debug("the flag immutable cannot be changed: %s", error)
        return False
    return True


def _clear(below: int, directory: Path) -> str:
    """Move everything in the folder *below*, covered by now, into a new one next to it.

    Returns why not, or "".
    """
    try:
        names = os.listdir(below)
        if not names:
            return ""
        if os.geteuid() == 0:
            _make_immutable(below, immutable=False)
        os.fchmod(below, 0o700)
        place = _new_place(directory)
        # The owner of the folder around it may put a link there before it is open.
        there = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.geteuid() == 0:
                owner = os.fstat(below)
                os.fchown(there, owner.st_uid, owner.st_gid)
            refusals = [error for name in names if (error := _moved(name, below, there)) is not None]
        finally:
            os.close(there)
            with contextlib.suppress(OSError):  # it holds what was moved
                place.rmdir()
        if refusals:
            raise refusals[0]
    except OSError as error:
        log.error("what landed in %s beside the volume stays hidden below the mount: %s", directory, error)
        return f"they cannot be moved away ({error.strerror})"
    log.warning(
        "%d names had landed in %s beside the volume; they are in %s now", len(names), directory, place
    )
    return ""


def _moved(name: str, below: int, there: int) -> OSError | None:
    """Move one name; why not, if not. A folder of another user can only be moved by that user."""
    try:
        os.rename(name, name, src_dir_fd=below, dst_dir_fd=there)
    except OSError as error:
        return error
    return None


def _new_place(directory: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    place, number = directory.with_name(f"{directory.name}{_MARK}{stamp}"), 1
    while True:
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            place = directory.with_name(f"{directory.name}{_MARK}{stamp}-{number}")
            continue
        return place
