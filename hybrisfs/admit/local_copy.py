"""What this machine has of a volume, given up or called otherwise, so that a crash harms nothing.

A volume is given up (`forget_copy`) in these steps. The first is the one that counts: whatever ends the
program after it, `finish_copies` does the rest when the daemon starts, as does the same command once more.

    1  state/volumes/NAME becomes state/volumes/.left-NAME, a name that no volume has: nothing opens it now
    2  the marks of mirrors go from their folders, and the key of the S3 gateway and secrets of clouds that no
       other volume here uses
    3  config/volumes/NAME goes, volume.json last: until then the volume is listed, and can be named
    4  state/volumes/.left-NAME goes, with keys, database, journal and the rest

It gets another name (`rename_copy`) in these:

    1  config/volumes/OLD/new-name holds the name NEW
    2  what else goes by the name learns of it (mounts that are wanted, the key of the S3 gateway)
    3  state/volumes/OLD becomes state/volumes/NEW
    4  config/volumes/OLD becomes config/volumes/NEW
    5  config/volumes/NEW/new-name goes

While the clouds of a volume are being deleted, the file `deleting` in its state (`Deletion`) says how far
that is, and keeps the volume from being opened: it would put back what it misses.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from backends.credentials import CredentialStore
from backends.errors import AuthError
from hybrisfs.environment import SYSTEM, replace_file, sync_directory
from hybrisfs.errors import DamagedError, HybrisError, UsageError
from hybrisfs.home import Home, check_volume_name
from hybrisfs.mirror.agreed import read_settings
from hybrisfs.mirror.ignore import remove_marker
from hybrisfs.settings.config import MAX_CLOUDS, list_volumes

__all__ = [
    "Deletion",
    "finish_copies",
    "forget_copy",
    "is_half_forgotten",
    "rename_copy",
    "require_free_name",
    "require_kept",
]

log = logging.getLogger(__name__)

_LEFT: Final = ".left-"
_NEW_NAME: Final = "new-name"
_CONFIG: Final = "volume.json"
_MOST_NAME: Final = 64


# -- giving it up ---------------------------------------------------------------------------------------


def forget_copy(home: Home, name: str) -> None:
    """Delete all that this machine has of a volume that is closed; begun or not. Raises OSError, and
    HybrisError when there is nothing of that name."""
    state, left = home.volume_state(name), _left(home, name)
    if state.exists():
        if left.exists():  # of an earlier volume of that name
            shutil.rmtree(left)
        state.rename(left)
        sync_directory(left.parent, SYSTEM)
    elif not left.exists() and not home.volume_config(name).exists():
        raise HybrisError(f"there is nothing of a volume {name!r} on this machine")
    _remove_marks(left)
    for path in home.files_of_servers(name):
        path.unlink(missing_ok=True)
    _remove_secrets(home, name)
    _remove_configuration(home.volume_config(name))
    if left.exists():
        shutil.rmtree(left)
        sync_directory(left.parent, SYSTEM)
    log.info("%s: all that this machine had of the volume is deleted", name)


def is_half_forgotten(home: Home, name: str) -> bool:
    """Whether a volume was being given up when the program ended."""
    return _left(home, name).exists() and not home.volume_state(name).exists()


def finish_copies(home: Home, renamed: Callable[[str, str], None]) -> None:
    """Do the rest of what was begun when the daemon ended; no volume is open. *renamed*: see `rename_copy`.
    What fails is logged: the next start tries again."""
    for path in sorted((home.config / "volumes").glob(f"*/{_NEW_NAME}")):
        try:
            name = check_volume_name(path.read_text(encoding="ascii")[:_MOST_NAME])
            _finish_renaming(home, path.parent.name, name, renamed)
        except (OSError, ValueError, UsageError) as error:
            log.error("the renaming of the volume %s cannot be finished: %s", path.parent.name, error)
    for path in sorted((home.state / "volumes").glob(f"{_LEFT}*")):
        name = path.name.removeprefix(_LEFT)
        try:
            if is_half_forgotten(home, name):
                forget_copy(home, name)
            else:
                shutil.rmtree(path)
        except (OSError, HybrisError) as error:
            log.error("what is left of the volume %s cannot be deleted: %s", name, error)


def _left(home: Home, name: str) -> Path:
    return home.volume_state(name).with_name(f"{_LEFT}{name}")


def _remove_marks(state: Path) -> None:
    for path in state.glob("mirrors/*.db"):
        # Its disk may be away; a mark without a mirror does little harm.
        with contextlib.suppress(sqlite3.Error, ValueError, OSError):
            settings = read_settings(path)
            remove_marker(settings.directory, settings.id)


def _remove_secrets(home: Home, name: str) -> None:
    try:
        volumes = list_volumes(home)
        mine = [cloud.url for one in volumes if one.name == name for cloud in one.clouds]
        others = [cloud.url for one in volumes if one.name != name for cloud in one.clouds]
        CredentialStore(home.credentials).remove(mine, others)
    except (HybrisError, AuthError) as error:
        log.warning("secrets of clouds of %s may be in %s still: %s", name, home.credentials, error)


def _remove_configuration(folder: Path) -> None:
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _CONFIG:
            path.unlink()
    (folder / _CONFIG).unlink(missing_ok=True)
    folder.rmdir()
    sync_directory(folder.parent, SYSTEM)


# -- another name ---------------------------------------------------------------------------------------


def require_free_name(home: Home, name: str) -> None:
    """Raise UsageError when a volume of this machine is called so, or none can be; HybrisError when something
    of another one is in the way."""
    if (home.volume_config(name) / _CONFIG).exists():
        raise UsageError(f"there is a volume {name!r} already", "", "Choose another name.")
    state = home.volume_state(name)
    if state.exists():
        raise HybrisError(
            f"{state} is in the way",
            "it holds the keys or data of a volume whose configuration is gone",
            "Move it away, or restore the configuration.",
        )


def rename_copy(home: Home, old: str, new: str, renamed: Callable[[str, str], None]) -> None:
    """Call a volume that is closed otherwise on this machine. *renamed* gets both names, maybe again after
    a crash. Raises UsageError, HybrisError, OSError."""
    require_free_name(home, new)
    if not home.volume_state(old).exists():
        raise HybrisError(f"{old} cannot be renamed", f"its folder {home.volume_state(old)} is not there")
    if home.volume_config(new).exists():
        home.volume_config(new).rmdir()
    replace_file(home.volume_config(old) / _NEW_NAME, new.encode("ascii"), SYSTEM)
    _finish_renaming(home, old, new, renamed)


def _finish_renaming(home: Home, old: str, new: str, renamed: Callable[[str, str], None]) -> None:
    renamed(old, new)
    for before, now in zip(home.files_of_servers(old), home.files_of_servers(new), strict=True):
        if before != now and before.exists():
            before.replace(now)
    for before, now in (
        (home.volume_state(old), home.volume_state(new)),
        (home.volume_config(old), home.volume_config(new)),
    ):
        if before != now and before.exists() and not now.exists():
            before.rename(now)
            sync_directory(now.parent, SYSTEM)
    (home.volume_config(new) / _NEW_NAME).unlink()
    log.info("the volume %s is called %s now", old, new)


# -- while its clouds are being deleted -----------------------------------------------------------------


class _Record(msgspec.Struct):
    """{"version": 1, "clouds": {NUMBER: "begun" or "emptied"}}"""

    version: Literal[1]
    clouds: Annotated[dict[int, Literal["begun", "emptied"]], msgspec.Meta(max_length=MAX_CLOUDS)]


class Deletion:
    """How far the deletion of a volume's clouds is, kept in its state. Thread-safe."""

    def __init__(self, home: Home, name: str) -> None:
        """Raises DamagedError."""
        self._path = _mark(home, name)
        try:
            self._clouds = msgspec.json.decode(self._path.read_bytes(), type=_Record).clouds
        except FileNotFoundError:
            self._clouds = {}
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise DamagedError(f"cannot read {self._path}", str(error), "Delete it.") from error
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Keep the volume from being opened from now on. Raises OSError."""
        self._save()

    def has_begun(self, cloud: int) -> bool:
        """Whether the cloud was seen to be the volume's, and its mark may be gone since."""
        return cloud in self._clouds

    def is_emptied(self, cloud: int) -> bool:
        return self._clouds.get(cloud) == "emptied"

    def note(self, cloud: int, *, emptied: bool) -> None:
        """Keep where a cloud is. Raises OSError."""
        with self._lock:
            self._clouds[cloud] = "emptied" if emptied else "begun"
            self._save()

    def _save(self) -> None:
        clouds = {str(number): stage for number, stage in self._clouds.items()}
        replace_file(self._path, json.dumps({"version": 1, "clouds": clouds}).encode("ascii"), SYSTEM)


def _mark(home: Home, name: str) -> Path:
    return home.volume_state(name) / "deleting"


def require_kept(home: Home, name: str) -> None:
    """Raise HybrisError when the volume is about to go, and is not to be opened."""
    if is_half_forgotten(home, name):
        raise HybrisError(
            f"the volume {name} is being given up on this machine",
            "",
            f"hybrisfs volume leave {name} goes on with that.",
        )
    if _mark(home, name).exists():
        raise HybrisError(
            f"the volume {name} is being deleted",
            "some of its clouds may be empty already",
            f"hybrisfs volume delete {name} goes on with that.",
        )
