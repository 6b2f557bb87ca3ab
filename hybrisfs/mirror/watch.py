"""Changes in the folder on the disk: hearing of them, and waiting until a file is at rest.

An event only says that a directory has to be looked at. Whatever may have been missed (the queue overflowed,
there are too few watches) is found by looking at everything.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from typing import Final

from msgspec import Struct
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from hybrisfs.environment import Environment
from hybrisfs.merge.names import Author, conflict_name
from hybrisfs.mirror.folder import Care
from hybrisfs.mirror.model import join

__all__ = ["Rest", "WatchedCare", "Watcher"]

log = logging.getLogger(__name__)

_MASK: Final = Mask(
    InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_DONT_FOLLOW
)
_JOIN_SECONDS: Final = 5.0
_LIMITS: Final = {
    errno.ENOSPC: "too few inotify watches: raise the sysctl fs.inotify.max_user_watches",
    errno.EMFILE: "too few inotify instances: raise the sysctl fs.inotify.max_user_instances",
}


class Watcher:
    """Watches directories below *root*, from construction to `stop`. *wake* is set when there is
    something to `take`."""

    def __init__(self, root: bytes, wake: threading.Event) -> None:
        self._root = root
        self._wake = wake
        self._lock = threading.Lock()
        self._paths: dict[WatchDescriptor, tuple[bytes, CallbackId]] = {}
        self._dirty: set[bytes] = set()
        self._writing: set[bytes] = set()
        self._missed = False
        self._number = 0
        self.trouble: str | None = None
        """Why some changes are not noticed; None: all are."""
        self._inotify: InotifyFD | None = None
        try:
            self._inotify = InotifyFD()
            self._inotify.start()
        except OSError as error:
            self._limited(error)

    def cover(self, path: bytes) -> None:
        """Hear of changes in a directory from now on, under this path, whatever it was called before."""
        if self._inotify is None:
            return
        with self._lock:
            self._number += 1
            number = CallbackId(self._number)
        try:
            watch = self._inotify.add_callback(
                join(self._root, path) if path else self._root, _MASK, self, number
            )
        except OSError as error:
            if error.errno in _LIMITS:
                self._limited(error)
            return  # what is gone already is found gone
        with self._lock:
            before = self._paths.get(watch)
            self._paths[watch] = path, number
        if before is not None:
            self._inotify.remove_callbacks([(watch, before[1])])

    def _limited(self, error: OSError) -> None:
        trouble = _LIMITS.get(error.errno or 0, f"cannot watch for changes: {error.strerror or error}")
        if self.trouble is None:
            log.warning("%s: %s; it is looked through instead", os.fsdecode(self._root), trouble)
        self.trouble = trouble

    def take(self) -> tuple[set[bytes], bool]:
        """The directories in which something has happened since the last call, and whether there may be
        more."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            missed, self._missed = self._missed, False
        return dirty, missed

    def is_being_written(self, path: bytes) -> bool:
        """Whether a program has written to the file and not closed it yet."""
        return path in self._writing

    def stop(self) -> None:
        """End the thread; no change is noticed any more."""
        if self._inotify is not None:
            self._inotify.stop()
            self._inotify.join(_JOIN_SECONDS)

    # -- in watchdog's thread --------------------------------------------------------------------

    def on_event(self, event: InotifyEvent) -> None:
        """Take note of where something has happened."""
        with self._lock:
            found = self._paths.get(event.wd)
            if found is None:
                return
            path = join(found[0], event.name)
            if event.is_close_write or event.is_moved_from or event.is_delete:
                self._writing.discard(path)
            elif event.is_modify:
                self._writing.add(path)
            self._dirty.add(found[0])
        self._wake.set()

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """The directory is gone, or its filesystem."""
        with self._lock:
            found = self._paths.pop(wd, None)
            if found is not None:
                self._dirty.add(found[0])
        self._wake.set()

    def on_queue_overflow(self) -> None:
        """More happened than the kernel could hold for us."""
        with self._lock:
            self._missed = True
            self._writing.clear()
        self._wake.set()


# -- which files are at rest: not being written just now, so that no half of them is taken --------------
# `Rest` is sans-IO: it gets what was seen, and the time.


_LONG_AGO: Final = 5.0  # seconds; what changed before that need not be watched first
_OVERDUE: Final = 30.0  # seconds after which a file that never rests is taken as it is


class _Recent(Struct):
    first: float
    since: float
    stamp: bytes
    rested: bool = False


class Rest:
    """Looks at files that changed a moment ago. A file counts as finished after *quiet* seconds
    without a change."""

    def __init__(self, quiet: float) -> None:
        self._quiet = quiet
        self._recent: dict[bytes, _Recent] = {}

    def is_at_rest(self, path: bytes, stamp: bytes, age: float, *, writing: bool, now: float) -> bool:
        """Whether the file may be taken. *age*: seconds since its last change by the system's clock, which
        may be wrong; *writing*: a program is known to have it open for writing; *now*: seconds, monotonic."""
        long_ago = age >= _LONG_AGO and not writing
        one = self._recent.get(path)
        if one is None or long_ago:
            self._recent.pop(path, None)
            if not long_ago:
                self._recent[path] = _Recent(now, now, stamp)
            return long_ago
        if stamp != one.stamp:
            one.stamp, one.since, one.rested = stamp, now, False
        if not one.rested:
            quiet = now - one.since >= self._quiet and not writing
            one.rested = quiet or now - one.first >= _OVERDUE
        if one.rested:
            one.first = now
        return one.rested

    def forget(self) -> None:
        """Nothing is known any more: the folder was away."""
        self._recent.clear()


class WatchedCare(Care):
    """Takes what is at rest, and watches each directory before it is listed."""

    def __init__(self, watcher: Watcher, rest: Rest, device: str, environment: Environment) -> None:
        self._watcher = watcher
        self._rest = rest
        self._device = device
        self._time_ns = environment.time_ns
        self._monotonic = environment.monotonic

    def rests(self, path: bytes, stamp: bytes, changed: int) -> bool:
        age = (self._time_ns() - changed) / 1e9
        writing = self._watcher.is_being_written(path)
        return self._rest.is_at_rest(path, stamp, age, writing=writing, now=self._monotonic())

    def entering(self, path: bytes) -> None:
        self._watcher.cover(path)

    def conflict_name(self, name: bytes, number: int) -> bytes:
        return conflict_name(name, Author(self._device, self._time_ns()), number)
