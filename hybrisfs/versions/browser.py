"""The folder of the past: `.hybrisfs` at the root of a mounted volume, and in it `at/MOMENT/...`, the tree as
it was then. Nothing in it can be changed.

`at` lists the moments of which the whole tree is kept; any other can be typed (`hybrisfs.versions.moment`).
The folder is hidden: no listing shows it. Where a volume has a node of that name already, from another or an
earlier program, that is what the name means, and the past is reached by `hybrisfs versions` only until it has
been renamed.

Folders are made up when they are looked at, from a snapshot of the database, and forgotten when others have
been since. Numbers of nodes follow from the moment's name and the node's id: they are stable, and a mount
knows as many of them as the kernel does.
"""

from __future__ import annotations

import errno
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.names import failure
from hybrisfs.filesystem.registers import Attr
from hybrisfs.pipeline.fetch import Fetcher
from hybrisfs.store.schema import ROOT_INO
from hybrisfs.versions.contents import VersionReader
from hybrisfs.versions.moment import format_moment, parse_moment
from hybrisfs.versions.tree import PastNode, PastTree
from sync.hashing import digest

__all__ = ["HISTORY_NAME", "PAST_INO", "Past", "PastBrowser"]

HISTORY_NAME: Final = b".hybrisfs"
PAST_INO: Final = 1 << 61
"""The least number of a node of the past; there is none from `1 << 62` on."""
_AT_INO: Final = PAST_INO + 1
_AT_NAME: Final = b"at"
_OF_TREES: Final = 1 << 60
_FOLDER: Final = Attr(stat.S_IFDIR | 0o555, 0, 0, 0, 0)
_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of the past"
_MOST_ENTRIES: Final = 20_000  # of listings that are remembered
_LISTED_SECONDS: Final = 60.0
_YOUNG_NS: Final = 600 * 1_000_000_000
_YOUNG_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Past:
    """A node of the past. *parent*: the number of the folder it is in. *holds*: for how many seconds that may
    be believed: what was recently may yet come to be known."""

    ino: int
    parent: int
    node: PastNode
    moment: int
    spelling: bytes
    holds: float


@dataclass(slots=True)
class _Known:
    past: Past
    lookups: int


@dataclass(frozen=True, slots=True)
class _Listing:
    until: float
    entries: Sequence[tuple[bytes, Past]]


class PastBrowser:
    """Answers about one volume, from any thread, without the volume's lock. Raises OSError.

    *rungs* tells the moments to be listed.
    """

    def __init__(self, fs: FileSystem, fetcher: Fetcher, rungs: Callable[[], Sequence[int]]) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._rungs = rungs
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._listings: OrderedDict[int, _Listing] = OrderedDict()
        self._entries = 0
        self._handles: dict[int, VersionReader] = {}
        self._next_handle = 1

    # -- nodes -----------------------------------------------------------------------------------

    def get(self, ino: int) -> Past:
        """The node with this number, which the kernel knows."""
        if ino in (PAST_INO, _AT_INO):
            return self._fixed(ino)
        with self._lock:
            known = self._known.get(ino)
        if known is None:
            raise failure(errno.ESTALE)
        return known.past

    def top(self) -> Past:
        """The folder of the past itself."""
        return self._fixed(PAST_INO)

    def _fixed(self, ino: int) -> Past:
        with self._fs.lock:
            root = self._fs.get(ROOT_INO)
            attr = _FOLDER._replace(uid=root.uid, gid=root.gid, mtime=root.mtime)
        parent = ROOT_INO if ino == PAST_INO else PAST_INO
        return Past(ino, parent, PastNode((b"",), attr, None, 1), 0, b"", _LISTED_SECONDS)

    def lookup(self, parent: int, name: bytes) -> Past | None:
        """What has this name in a folder. It counts as looked up: `forget` must follow."""
        if parent == PAST_INO:
            return self._fixed(_AT_INO) if name == _AT_NAME else None
        if parent == _AT_INO:
            found = self._tree(name)
        else:
            found = next((past for other, past in self.list(parent) if other == name), None)
        if found is not None:
            self.looked_up(found)
        return found

    def looked_up(self, past: Past) -> None:
        """The kernel knows the node once more than before."""
        if past.ino in (PAST_INO, _AT_INO):
            return
        with self._lock:
            known = self._known.setdefault(past.ino, _Known(past, 0))
            known.past = past
            known.lookups += 1

    def forget(self, ino: int, lookups: int) -> None:
        """The kernel does not know the node any more, or not so many times."""
        with self._lock:
            known = self._known.get(ino)
            if known is not None:
                known.lookups -= lookups
                if known.lookups <= 0:
                    del self._known[ino]

    def _tree(self, spelling: bytes) -> Past | None:
        """The root of the tree at a moment; None when it is none that this device knows of."""
        moment = parse_moment(spelling.decode("ascii", "replace"))
        now = time.time_ns()
        if moment is None or moment > now:
            return None
        with self._fs.db.snapshot() as db:
            (history,) = db.execute("SELECT value FROM meta WHERE key = 'history'").fetchone()
            (first,) = db.execute("SELECT min(moment) FROM log WHERE moment > 0").fetchone()
            if first is None or moment < max(history, first):
                return None
            node = PastTree(db, moment).root()
        holds = _YOUNG_SECONDS if now - moment < _YOUNG_NS else _LISTED_SECONDS
        return Past(_number(spelling, node.id), _AT_INO, node, moment, spelling, holds)

    # -- listings --------------------------------------------------------------------------------

    def list(self, ino: int) -> Sequence[tuple[bytes, Past]]:
        """What is in a folder, in the order of names."""
        if ino == PAST_INO:
            return [(_AT_NAME, self._fixed(_AT_INO))]
        if ino == _AT_INO:
            names = sorted(format_moment(one).encode() for one in self._rungs())
            return [(name, tree) for name in names if (tree := self._tree(name)) is not None]
        with self._lock:
            known = self._listings.get(ino)
            if known is not None and time.monotonic() < known.until:
                self._listings.move_to_end(ino)
                return known.entries
        folder = self.get(ino)
        if not stat.S_ISDIR(folder.node.attr.mode):
            raise failure(errno.ENOTDIR)
        with self._fs.db.snapshot() as db:
            children = PastTree(db, folder.moment).children(folder.node)
        entries = [
            (
                name,
                Past(
                    _number(folder.spelling, one.id), ino, one, folder.moment, folder.spelling, folder.holds
                ),
            )
            for name, one in children.items()
        ]
        self._remember(ino, _Listing(time.monotonic() + folder.holds, entries))
        return entries

    def _remember(self, ino: int, listing: _Listing) -> None:
        with self._lock:
            before = self._listings.pop(ino, None)
            self._entries += len(listing.entries) - (len(before.entries) if before else 0)
            self._listings[ino] = listing
            while self._entries > _MOST_ENTRIES and len(self._listings) > 1:
                _, dropped = self._listings.popitem(last=False)
                self._entries -= len(dropped.entries)

    # -- files -----------------------------------------------------------------------------------

    def open(self, ino: int) -> int:
        """A handle for reading a file."""
        past = self.get(ino)
        if stat.S_ISDIR(past.node.attr.mode):
            raise failure(errno.EISDIR)
        reader = VersionReader(self._fs, self._fetcher, past.node.content)
        with self._lock:
            number = self._next_handle
            self._next_handle += 1
            self._handles[number] = reader
        return number

    def reader(self, number: int) -> VersionReader:
        """What the handle reads."""
        with self._lock:
            try:
                return self._handles[number]
            except KeyError:
                raise failure(errno.EBADF) from None

    def release(self, number: int) -> None:
        """Close a handle."""
        with self._lock:
            self._handles.pop(number, None)


def _number(spelling: bytes, node: bytes) -> int:
    """The number of a node of the tree under this name of a moment: two names are two trees."""
    hashed = digest(_CONTEXT, len(spelling).to_bytes(2, "big") + spelling + node, 8)
    return PAST_INO | _OF_TREES | (int.from_bytes(hashed, "big") & (_OF_TREES - 1))
