"""One mounted volume: the session with the kernel and the thread that serves it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from hybrisfs import fuse
from hybrisfs.errors import HybrisError
from hybrisfs.fuse import FuseError, records
from hybrisfs.mount.adapter import Served
from hybrisfs.mount.notifier import Notifier
from hybrisfs.mount.versions import VersionsAdapter
from hybrisfs.shown import shown
from hybrisfs.tree.unseen import Change

__all__ = ["SOURCE", "SUBTYPE", "Holder", "MountPoint", "describe_holders", "find_holders"]

log = logging.getLogger(__name__)


# -- the processes that keep a mount busy ---------------------------------------------------------------
# Only links are read and nothing in the mount is touched: the kernel would have to ask this very daemon. Of
# processes of other users only root learns anything.


_PROC: Final = Path("/proc")
_SHOWN: Final = 5


class Holder(Struct, frozen=True):
    """A process and one path of the mount that it uses."""

    pid: int
    program: str
    path: str


def find_holders(directory: Path, proc: Path = _PROC) -> list[Holder]:
    """The processes that use what is mounted at *directory* (an absolute path), by their number."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    found = (_holder(proc / str(pid), pid, os.fspath(directory)) for pid in pids)
    return [holder for holder in found if holder is not None]


def describe_holders(holders: Sequence[Holder]) -> str:
    """For a sentence: "vim (process 12) uses /home/a/HybrisFS/x, ..."; "" when there are none."""
    named = [f"{shown(one.program)} (process {one.pid}) uses {shown(one.path)}" for one in holders[:_SHOWN]]
    more = len(holders) - _SHOWN
    return ", ".join(named) + (f", and {more} more" if more > 0 else "")


def _holder(process: Path, pid: int, directory: str) -> Holder | None:
    try:
        path = next((used for used in _used(process) if used == directory or _below(used, directory)), None)
        if path is None:
            return None
        program = (process / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:  # it has ended, or is another user's
        return None
    return Holder(pid, program, path)


def _below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _used(process: Path) -> Iterator[str]:
    """Paths, as this process would name them; those of deleted files end in " (deleted)"."""
    for name in ("cwd", "root", "exe"):
        try:
            yield os.readlink(process / name)  # noqa: PTH115 - a Path would lose what is not a path
        except FileNotFoundError:  # a thread of the kernel
            continue
    for descriptor in (process / "fd").iterdir():
        try:
            yield os.readlink(descriptor)  # noqa: PTH115
        except FileNotFoundError:  # closed since
            continue
    with (process / "maps").open(errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6:
                yield fields[5]


# -- one mounted volume: the session with the kernel and the thread that serves it ----------------------


SUBTYPE: Final = "hybrisfs"
SOURCE: Final = "hybrisfs:"
"""What the source of a mount is called, before the name of the volume."""

_JOIN_SECONDS: Final = 10.0
# Access control lists decide what umask does, so that the filesystem has to apply it. Privileges of files
# that are written go here, too (`clear_privileges`): the kernel would ask for them before each write.
CAPABILITIES: Final = (
    fuse.DEFAULT_CAPABILITIES
    | records.FUSE_POSIX_ACL
    | records.FUSE_DONT_MASK
    | records.FUSE_HANDLE_KILLPRIV_V2
)
_PASSES_WITHIN: Final = 2.0  # seconds; a program looks at a name, or has just closed a file
_AGAIN_AFTER: Final = 0.05  # seconds


class MountPoint:
    """Mounts at construction and serves until `unmount`. Raises HybrisError."""

    def __init__(
        self, name: str, directory: Path, served: Served, *, allow_other: bool = False, again: bool = False
    ) -> None:
        self.directory = directory
        self._fs = fs = served.fs
        self._adapter = VersionsAdapter(served, self)
        options = [f"fsname={SOURCE}{name}", f"subtype={SUBTYPE}", "default_permissions"]
        if allow_other:
            options.append("allow_other")
        if again:
            options.append("again")
        try:
            fuse.clear_stale(directory)
            self._session = fuse.MountedSession(self._adapter, directory, options, capabilities=CAPABILITIES)
            self._session.mount()
        except fuse.FuseError as error:
            raise HybrisError(f"cannot mount {name} at {directory}", str(error)) from error
        with fs.state.transaction():
            fs.unseen.watch(self._adapter.knows)
        self._thread = threading.Thread(target=self._serve, name=f"{name}-mount", daemon=True)
        self._thread.start()
        self._notifier = Notifier(self._session, self._adapter, fs)

    def notify(self, changes: Iterable[Change]) -> None:
        """Notify the kernel of changes that did not come through this mount; from any thread."""
        self._notifier.notify(changes)

    def upcoming(self, changes: Iterable[Change]) -> contextlib.AbstractContextManager[None]:
        """See `Notifier.upcoming`."""
        return self._notifier.upcoming(changes)

    def write_out(self, ino: int, offset: int) -> None:
        """See `Pages`."""
        with contextlib.suppress(fuse.FuseError):  # nothing is mounted any more
            self._session.notify_inval_inode(ino, offset)

    def _serve(self) -> None:
        try:
            self._session.run()
        except fuse.FuseError as error:
            log.error("the mount at %s broke: %s", self.directory, error)

    @property
    def alive(self) -> bool:
        """False when it was unmounted from outside."""
        return self._thread.is_alive()

    def unmount(self, *, lazy: bool) -> None:
        """End the mount. Raises HybrisError while files in it are open, unless *lazy*."""
        with self._notifier.at_rest():
            unmount(self.directory, lambda: self._session.unmount(lazy=lazy), self._fs.environment.sleep)
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            log.warning("%s is unmounted, but programs still have files open in it", self.directory)
            return
        self._notifier.stop()
        with self._fs.state.transaction():
            self._fs.unseen.watch(None)
        self._adapter.close()
        self._session.close()


def unmount(
    directory: Path,
    attempt: Callable[[], None],
    sleep: Callable[[float], None],
    *,
    find: Callable[[Path], Sequence[Holder]] = find_holders,
) -> None:
    """Call *attempt*, which unmounts *directory*, again while it is busy although no process is found that
    uses it.

    Raises HybrisError, which names the processes that use it.
    """
    for _ in range(round(_PASSES_WITHIN / _AGAIN_AFTER)):
        try:
            return attempt()
        except FuseError as error:
            if error.errno != errno.EBUSY:
                raise HybrisError(str(error)) from error
        holders = find(directory)
        if holders:
            raise _busy(directory, describe_holders(holders))
        sleep(_AGAIN_AFTER)
    raise _busy(
        directory, "by no process that can be seen" + ("" if os.geteuid() == 0 else ": by another user")
    )


def _busy(directory: Path, users: str) -> HybrisError:
    return HybrisError(
        f"cannot unmount {directory}, it is in use",
        users,
        "End that first, or unmount lazily (hybrisfs umount --lazy): then programs keep what they have open.",
    )
