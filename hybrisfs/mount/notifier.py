"""Tells the kernel, and programs that watch, what other devices have changed.

A thread of its own does it: the kernel may hold a notice back until a handler has returned, so nobody who is
in a handler, or holds a lock that one takes, may give it. First the kernel drops what is stale, so that
nobody is served it any more; then events are raised for directories that the kernel knows, see `mount.echo`.

Programs must not see an update in part. If the kernel were told only afterwards, a program could meanwhile
look up one name as it is, and be served another one as it was. So it forgets what is about to change
*before* that, and keeps nothing that it is told until it has been told all (`upcoming`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Final, NamedTuple

from hybrisfs import fuse
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.merge.rows import Change
from hybrisfs.mount.adapter import Adapter
from hybrisfs.mount.echo import HIDDEN_NAME, Found
from hybrisfs.mount.hand import Hand
from hybrisfs.store.schema import ROOT_INO

__all__ = ["Notifier"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 5.0


class _Notice(NamedTuple):
    """What has changed, and how many of the changes that were upcoming are over with that."""

    changes: list[Change]
    over: int = 0


class _Name(NamedTuple):
    """A name in a directory, by the directory's number."""

    parent: int
    name: bytes


class Notifier:
    """One thread per mount, from construction to `stop`."""

    def __init__(self, session: fuse.Session, adapter: Adapter, fs: FileSystem) -> None:
        self._session = session
        self._adapter = adapter
        self._fs = fs
        self._hand = Hand()
        self._queue: SimpleQueue[_Notice | None] = SimpleQueue()
        self._working = threading.Lock()
        self._forgetting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def notify(self, changes: Iterable[Change]) -> None:
        """Have the kernel told; returns at once, from any thread."""
        self._queue.put(_Notice(list(changes)))

    @contextlib.contextmanager
    def upcoming(self, changes: Iterable[Change]) -> Iterator[None]:
        """The view changes while the block lasts, presumably like that; `notify` is called within it. The
        caller holds no lock that a handler takes."""
        self._adapter.begin_change()
        try:
            with self._forgetting:
                self._forget(changes)
            yield
        finally:
            self._queue.put(_Notice([], over=1))

    def _forget(self, changes: Iterable[Change]) -> None:
        try:
            for ino, name, _ in changes:
                if name is None:
                    self._session.notify_inval_inode(ino, offset=-1)
                elif self._adapter.knows(ino):
                    self._session.notify_inval_entry(ino, name)
        except fuse.FuseError as error:
            log.debug("the kernel was not told of upcoming changes: %s", error)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """While the block lasts nothing is done with the mount, which could not be unmounted then."""
        with self._working, self._forgetting:
            yield

    def stop(self) -> None:
        """End the thread; what has not been told yet is of no use any more."""
        self._queue.put(None)
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._hand.close()

    def _serve(self) -> None:
        while (notice := self._queue.get()) is not None:
            changes, over = notice
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    return
                changes += more.changes
                over += more.over
            with self._working:
                try:
                    self._drop_stale(changes)
                except fuse.FuseError as error:
                    log.debug("the kernel was not told of changes: %s", error)
                for _ in range(over):
                    self._adapter.end_change()
                self._raise_events(changes)

    def _drop_stale(self, changes: Iterable[Change]) -> None:
        for ino, name in dict.fromkeys((change.ino, change.name) for change in changes):
            if name is None:
                self._session.notify_inval_inode(ino)
            else:
                self._session.notify_inval_entry(ino, name)

    # -- events ----------------------------------------------------------------------------------

    def _raise_events(self, changes: Iterable[Change]) -> None:
        """One event for each name that is another node's now, and for each file that has changed."""
        gone: dict[_Name, tuple[int, int]] = {}
        names: dict[_Name, None] = {}
        inodes: dict[int, None] = {}
        for change in changes:
            if change.name is None:
                inodes[change.ino] = None
            elif self._adapter.knows(change.ino):
                names[_Name(change.ino, change.name)] = None
                if change.gone is not None:
                    gone.setdefault(_Name(change.ino, change.name), change.gone)
        arrived: set[int] = set()
        for name in names:
            try:
                arrived |= self._name_changed(name, gone.get(name), arrived)
            except OSError as error:  # the directory is gone, too, or closed to this user
                log.debug("no event was raised for a name: %s", error)
        for ino in inodes:
            if ino not in arrived:
                try:
                    self._file_changed(ino)
                except OSError as error:
                    log.debug("no event was raised for a file: %s", error)

    def _name_changed(self, name: _Name, gone: tuple[int, int] | None, arrived: set[int]) -> set[int]:
        """Repeat what happened to a name; the numbers of the inodes that have been shown by that, besides
        those that *arrived* before."""
        with self._fs.lock:
            now = self._fs.lookup(*name)
            moved_to = None if gone is None else self._place_of(gone[0])
        if now is not None:
            if now.ino not in arrived and (gone is None or gone[0] != now.ino):
                self._arrive(name, now)
            return {now.ino}
        if gone is None:
            return set()
        if moved_to is not None and self._adapter.knows(moved_to.parent):
            self._move(name, moved_to, gone[0])
            return {gone[0]}
        if moved_to is None or not stat.S_ISDIR(gone[1]):
            self._remove(name, gone[1])
        return set()

    def _place_of(self, ino: int) -> _Name | None:
        row = self._fs.db.execute("SELECT parent, name FROM place WHERE ino = ? LIMIT 1", (ino,)).fetchone()
        return _Name(*row) if row else None

    def _arrive(self, name: _Name, inode: Inode) -> None:
        directory = self._path(name.parent)
        with self._making({name: fuse.Entry.negative(0.0)}):
            self._hand.rename(self._top + b"/" + HIDDEN_NAME, b"%d" % inode.ino, directory, name.name)

    def _move(self, old: _Name, new: _Name, ino: int) -> None:
        found: dict[tuple[int, bytes], Found] = {old: ino, new: fuse.Entry.negative(0.0)}
        source, target = self._path(old.parent), self._path(new.parent)
        with self._making(found):
            self._hand.rename(source, old.name, target, new.name)

    def _remove(self, name: _Name, mode: int) -> None:
        ghost = self._adapter.echoes.ghost(mode)
        directory = self._path(name.parent)
        with self._making({name: ghost}):
            (self._hand.rmdir if stat.S_ISDIR(mode) else self._hand.unlink)(directory, name.name)

    def _file_changed(self, ino: int) -> None:
        """Whoever watches a file sees it modified, whoever watches anything else, other attributes."""
        with self._fs.lock:
            place = self._place_of(ino)
            inode = self._fs.inodes.cached(ino)
            if place is None or inode is None or not self._adapter.knows(place.parent):
                return
            is_file, size = inode.is_file, inode.size
        directory = self._path(place.parent)
        with self._making({}):
            if is_file:
                self._hand.truncate(directory, place.name, size)
            else:
                self._hand.touch(directory, place.name)

    # -- ways into the mount ---------------------------------------------------------------------

    def _making(self, found: dict[tuple[int, bytes], Found]) -> contextlib.AbstractContextManager[None]:
        return self._adapter.echoes.making(self._hand.pid, found)

    @property
    def _top(self) -> bytes:
        return os.fsencode(self._session.mountpoint)

    def _path(self, ino: int) -> bytes:
        """The path of a directory in the mount. Raises FileNotFoundError."""
        with self._fs.lock:
            names: list[bytes] = []
            while ino != ROOT_INO:
                place = self._place_of(ino)
                if place is None:
                    raise FileNotFoundError(ino)
                names.append(place.name)
                ino = place.parent
        return b"/".join([self._top, *reversed(names)])
