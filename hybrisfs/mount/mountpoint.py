"""One mounted volume: the session with the kernel and the thread that serves it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from hybrisfs import fuse
from hybrisfs.errors import HybrisError
from hybrisfs.fuse import FuseError
from hybrisfs.mount.adapter import Served
from hybrisfs.mount.holders import Holder, describe_holders, find_holders
from hybrisfs.mount.notifier import Notifier
from hybrisfs.mount.versions import VersionsAdapter
from hybrisfs.tree.view import Change

__all__ = ["SOURCE", "SUBTYPE", "MountPoint"]

log = logging.getLogger(__name__)

SUBTYPE: Final = "hybrisfs"
SOURCE: Final = "hybrisfs:"
"""What the source of a mount is called, before the name of the volume."""

_JOIN_SECONDS: Final = 10.0
# Access control lists decide what umask does, so that the filesystem has to apply it.
_CAPABILITIES: Final = fuse.DEFAULT_CAPABILITIES | fuse.FUSE_CAP_POSIX_ACL | fuse.FUSE_CAP_DONT_MASK
_PASSES_WITHIN: Final = 2.0  # seconds; a program looks at a name, or has just closed a file
_AGAIN_AFTER: Final = 0.05  # seconds


class MountPoint:
    """Mounts at construction and serves until `unmount`. Raises HybrisError."""

    def __init__(
        self, name: str, directory: Path, served: Served, *, allow_other: bool = False, again: bool = False
    ) -> None:
        self.directory = directory
        self._fs = fs = served.fs
        self._adapter = VersionsAdapter(served)
        options = [f"fsname={SOURCE}{name}", f"subtype={SUBTYPE}", "default_permissions"]
        if allow_other:
            options.append("allow_other")
        if again:
            options.append("again")
        try:
            fuse.clear_stale(directory)
            self._session = fuse.MountedSession(self._adapter, directory, options, capabilities=_CAPABILITIES)
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
            unmount(self.directory, lambda: self._session.unmount(lazy=lazy))
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
    *,
    find: Callable[[Path], Sequence[Holder]] = find_holders,
    sleep: Callable[[float], None] = time.sleep,
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
