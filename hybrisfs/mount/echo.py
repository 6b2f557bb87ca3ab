"""Raising events (inotify) in the mount for changes of other devices.

The kernel raises events for changes made through it, not for those that it is notified of. So a process of
the daemon's (`mount.hand`) does to the mount what the other device did: it makes a new node, and moves it
from a hidden directory to its name, for programs watch for either; it renames one that has another name now,
removes the name of one that is gone, opens and closes a file that was written. The view shows it all already:
the requests that come of it, the *echoes*, are recognised by the process that makes them, and change nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from hybrisfs.errors import failure
from hybrisfs.fuse import Attributes, Entry, Request
from hybrisfs.mount.answers import FOREVER

__all__ = ["ECHO_FH", "HIDDEN_INO", "HIDDEN_NAME", "Echoes", "Found"]

HIDDEN_NAME: Final = b".hybrisfs arrivals"
HIDDEN_INO: Final = 1 << 62
_GHOST_INO: Final = HIDDEN_INO + 1  # the first number of stand-ins for other nodes

ECHO_FH: Final = HIDDEN_INO
"""The handle of files that an echo opens; nothing is read or written through it."""

Found: TypeAlias = Entry | int
"""What an echo finds under a name: an entry, or the number of an inode of the view."""


class Echoes:
    """Which requests are echoes, and what these find. `making` is for the thread that has them made, the rest
    for the mount's loop."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._maker = 0
        self._found: Mapping[tuple[int, bytes], Found] = {}
        self._touched: frozenset[int] = frozenset()
        self._ghosts = 0

    @contextlib.contextmanager
    def making(self, maker: int, found: Mapping[tuple[int, bytes], Found]) -> Iterator[None]:
        """The process *maker* makes an echo; *found* is what it is to find by directory and name, where that
        differs from what other requests find."""
        self._found = found
        self._touched = frozenset(directory for directory, _ in found)
        self._maker = maker
        try:
            yield
        finally:
            self._maker = 0
            self._touched = frozenset()

    def touches(self, directory: int) -> bool:
        """Whether the process is about to find something else in the directory than others do: the kernel may
        not keep what these find there, or that process would not be asked."""
        return directory in self._touched

    def is_one(self, request: Request) -> bool:
        """Whether the request comes from an echo that the process makes."""
        return self._maker != 0 and request.pid == self._maker

    def lookup(self, parent: int, name: bytes) -> Found | None:
        """What an echo finds; None: what other requests find."""
        if parent == self._root and name == HIDDEN_NAME:
            return Entry(self._hidden())
        found = self._found.get((parent, name))
        return int(name) if found is None and parent == HIDDEN_INO else found

    def ghost(self, mode: int) -> Entry:
        """What stands for a node of this mode that is gone, or for a new one while it is moved to its name.
        The name is to be asked for again at once, the attributes never."""
        self._ghosts += 1
        attributes = Attributes(_GHOST_INO + self._ghosts, mode, 1, os.getuid(), os.getgid())
        return Entry(attributes, attr_timeout=FOREVER)

    def is_hidden(self, ino: int) -> bool:
        """Whether it is the number of the hidden directory or of a ghost."""
        return ino >= HIDDEN_INO

    def attributes(self, ino: int) -> Attributes:
        """Those of the hidden directory. Raises OSError for a ghost."""
        if ino != HIDDEN_INO:
            raise failure(errno.ESTALE)
        return self._hidden()

    def _hidden(self) -> Attributes:
        return Attributes(HIDDEN_INO, stat.S_IFDIR | 0o700, 2, os.getuid(), os.getgid())
