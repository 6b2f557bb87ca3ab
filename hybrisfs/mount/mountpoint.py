"""One mounted volume: the session with the kernel and the thread that serves it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hybrisfs import fuse
from hybrisfs.errors import HybrisError
from hybrisfs.mount.adapter import Served
from hybrisfs.mount.history import HistoryAdapter
from hybrisfs.mount.notifier import Notifier
from hybrisfs.mount.unmounting import unmount
from hybrisfs.tree.view import Change

__all__ = ["SOURCE", "SUBTYPE", "MountPoint"]

log = logging.getLogger(__name__)

SUBTYPE: Final = "hybrisfs"
SOURCE: Final = "hybrisfs:"
"""What the source of a mount is called, before the name of the volume."""

_JOIN_SECONDS: Final = 10.0
# Access control lists decide what umask does, so that the filesystem has to apply it.
_CAPABILITIES: Final = fuse.DEFAULT_CAPABILITIES | fuse.FUSE_CAP_POSIX_ACL | fuse.FUSE_CAP_DONT_MASK


class MountPoint:
    """Mounts at construction and serves until `unmount`. Raises HybrisError."""

    def __init__(
        self, name: str, directory: Path, served: Served, *, allow_other: bool = False, again: bool = False
    ) -> None:
        self.directory = directory
        self._fs = fs = served.fs
        self._adapter = HistoryAdapter(served)
        options = [f"fsname={SOURCE}{name}", f"subtype={SUBTYPE}", "default_permissions"]
        if allow_other:
            options.append("allow_other")
        if again:
            options.append("again")
        try:
            fuse.clear_stale(directory)
            self._session = fuse.Session(self._adapter, directory, options, capabilities=_CAPABILITIES)
            self._session.mount()
        except fuse.FuseError as error:
            raise HybrisError(f"cannot mount {name} at {directory}", str(error)) from error
        with fs.lock:
            fs.unseen.watch(self._adapter.knows)
        self._thread = threading.Thread(target=self._serve, name=f"{name}-mount", daemon=True)
        self._thread.start()
        self._notifier = Notifier(self._session, self._adapter, fs)

    def notify(self, changes: Iterable[Change]) -> None:
        """Let the kernel hear of changes that did not come through this mount; from any thread."""
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
        """False when somebody else has unmounted it."""
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
        with self._fs.lock:
            self._fs.unseen.watch(None)
        self._adapter.close()
        self._session.close()
