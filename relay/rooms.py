"""The objects of the spaces: each space has a folder on this disk, and holds no more bytes than it may."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from backends.errors import FullError
from backends.file import FileStore
from backends.store import Page
from relay.spaces import Space

__all__ = ["MAX_OBJECT", "Room", "Rooms", "objects_of", "size_of"]

_NAMES: Final = 64

MAX_OBJECT: Final = 64 << 20
"""Bytes; shares of packs are the largest objects, at most half as large."""


class Rooms:
    """The folders of the spaces that are in use. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """*folder* is the relay's."""
        self._folder = folder
        self._lock = threading.Lock()
        self._rooms: dict[str, Room] = {}

    def of(self, space: Space) -> Room:
        """The objects of a space."""
        with self._lock:
            room = self._rooms.get(space.name)
            if room is None:
                room = self._rooms[space.name] = Room(objects_of(self._folder, space.name))
            return room


def objects_of(folder: Path, space: str) -> Path:
    """Where the objects of a space are."""
    return folder / "objects" / space


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder; 0 when it is not there."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118 - a million of them
            except FileNotFoundError:
                continue
    return found


class Room:
    """The objects of one space. Methods raise what those of `backends.store.Store` do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = FileStore(folder.as_uri())
        self._counting = threading.Lock()
        self._used: int | None = None
        # What an object takes is seen before it is changed: two changes at a time would both count it.
        self._changing = [threading.Lock() for _ in range(_NAMES)]

    def put(self, name: str, data: bytes, quota: int, *, only_new: bool) -> bool:
        """Store an object, or with *only_new* only one that is not there; whether it was stored.

        Raises `FullError` when the space would hold more than *quota* bytes; 0 is no bound.
        """
        with self._alone(name):
            return self._put(name, data, quota, only_new=only_new)

    def _put(self, name: str, data: bytes, quota: int, *, only_new: bool) -> bool:
        before = self.size(name)
        more = len(data) - before
        if only_new and before:
            return False
        self._take(name, more, quota)
        stored = False
        try:
            if only_new:
                stored = self.store.put_if_absent(name, data)
            else:
                self.store.put(name, data)
                stored = True
        finally:
            if not stored:
                self._add(-more)
        return stored

    def delete(self, name: str) -> None:
        """Remove an object, if there is one."""
        with self._alone(name):
            before = self.size(name)
            self.store.delete(name)
            self._add(-before)

    def _alone(self, name: str) -> threading.Lock:
        """What nobody else holds who changes the object."""
        return self._changing[hash(name) % _NAMES]

    def size(self, name: str) -> int:
        """The size of an object in bytes; 0 when there is none. *name* is one that objects may have."""
        try:
            return (self._folder / name).lstat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def size_of(self, name: str) -> int:
        """The size of an object in bytes. Raises `MissingError` and the like."""
        self.store.get_range(name, 0, 0)
        return self.size(name)

    def list(self, prefix: str, after: str, limit: int) -> Page:
        """See `Store.list`."""
        return self.store.list(prefix, after=after, limit=limit)

    def _take(self, name: str, more: int, quota: int) -> None:
        with self._counting:
            if self._used is None:
                self._used = size_of(self._folder)
            if quota and more > 0 and self._used + more > quota:
                raise FullError(self.store.url, "put", name, f"the quota of {quota} bytes is used up")
            self._used += more

    def _add(self, more: int) -> None:
        with self._counting:
            if self._used is not None:
                self._used = max(0, self._used + more)
