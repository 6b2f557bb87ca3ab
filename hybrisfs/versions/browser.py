"""The folder of the past: `.hybrisfs` at the root of a mounted volume, and in it `at/MOMENT/...`, the tree as
it was then, and `versions/PATH/...`, the versions of each file. Nothing in it
can be changed.

`at` lists moments of which the whole tree is kept: those of the rule, and lately those after which something
had changed. Any other can be typed (`hybrisfs.versions.tree`).
The folder is hidden: no listing shows it. Where a volume has a node of that name already, from another or an
earlier program, that is what the name means, and the past is reached by `hybrisfs versions` only until it has
been renamed.

Folders are made up when they are looked at, from a snapshot of the database, and forgotten when others have
been since. Numbers of nodes follow from the moment's name and the node's id: they are stable, and a mount
knows as many of them as the kernel does.
"""

from __future__ import annotations

import datetime
import errno
import stat
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.errors import failure
from hybrisfs.merge.names import shortened
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import MAX_NAME, Attr
from hybrisfs.state.database import Snapshot
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.stored_log import first_moment
from hybrisfs.state.versions import known_since
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.catalog import Catalog, Version
from hybrisfs.versions.contents import VersionReader
from hybrisfs.versions.retention import RetentionRule
from hybrisfs.versions.tree import VersionNode, VersionTree, format_moment, parse_moment
from sync.codec import digest

__all__ = ["HISTORY_INO", "HISTORY_NAME", "Child", "VersionBrowser", "VersionEntry", "VersionsByPath"]

HISTORY_NAME: Final = b".hybrisfs"
HISTORY_INO: Final = 1 << 61
"""The least number of a node of the past; there is none from `1 << 62` on."""
_AT_INO: Final = HISTORY_INO + 1
_AT_NAME: Final = b"at"
_VERSIONS_INO: Final = HISTORY_INO + 2
_VERSIONS_NAME: Final = b"versions"
_FIXED: Final = {
    HISTORY_INO: ROOT_INO,
    _AT_INO: HISTORY_INO,
    _VERSIONS_INO: HISTORY_INO,
}  # with their parents
_OF_TREES: Final = HISTORY_INO | 1 << 60
_FOLDER: Final = Attr(stat.S_IFDIR | 0o555, 0, 0, 0, 0)
_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of the past"
_MOST_ENTRIES: Final = 20_000  # of listings that are remembered
_LISTED_SECONDS: Final = 60.0
_YOUNG_NS: Final = 600 * 1_000_000_000
_YOUNG_SECONDS: Final = 1.0


class VersionEntry(Struct, frozen=True):
    """A node of the past. *parent*: the number of the folder it is in. *source*: what it is listed from, if
    it is a folder. *holds*: for how many seconds that may be believed: what was recently may yet come to be
    known."""

    ino: int
    parent: int
    node: VersionNode
    source: Source
    holds: float


class _Known(Struct):
    entry: VersionEntry
    lookups: int


class _Listing(Struct, frozen=True):
    until: float
    entries: Sequence[tuple[bytes, VersionEntry]]


class _TreeAt:
    """The `Source` of the folders of the tree at *moment*, under this name of it: two names are two trees."""

    def __init__(self, moment: int, spelling: bytes) -> None:
        self._moment = moment
        self._spelling = spelling

    def children(self, db: Snapshot, folder: VersionNode) -> Iterator[Child]:
        for name, node in VersionTree(db, self._moment).children(folder).items():
            yield Child(name, self.number(node), node, self)

    def number(self, node: VersionNode) -> int:
        return number_of(_CONTEXT, len(self._spelling).to_bytes(2, "big") + self._spelling + node.id)


class VersionBrowser:
    """Answers about one volume, from any thread, without the volume's lock. Raises OSError."""

    def __init__(
        self,
        fs: FileSystem,
        fetcher: Fetcher,
        retention: Retention,
    ) -> None:
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._monotonic = fs.environment.monotonic
        self._fetcher = fetcher
        self._retention = retention
        self._versions = VersionsByPath((), retention, fs.environment)
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}
        self._listings: OrderedDict[int, _Listing] = OrderedDict()
        self._entries = 0
        self._handles: dict[int, VersionReader] = {}
        self._next_handle = 1

    # -- nodes -----------------------------------------------------------------------------------

    def get(self, ino: int) -> VersionEntry:
        """The node with this number, which the kernel knows."""
        if ino in _FIXED:
            return self._fixed(ino)
        with self._lock:
            known = self._known.get(ino)
        if known is None:
            raise failure(errno.ESTALE)
        return known.entry

    def top(self) -> VersionEntry:
        """The folder of the past itself."""
        return self._fixed(HISTORY_INO)

    def _fixed(self, ino: int) -> VersionEntry:
        with self._fs.state.transaction() as tx:
            root = self._fs.get(tx, ROOT_INO)
            attr = _FOLDER._replace(uid=root.uid, gid=root.gid, mtime=root.mtime)
        holds = _YOUNG_SECONDS if ino == _VERSIONS_INO else _LISTED_SECONDS
        return VersionEntry(ino, _FIXED[ino], VersionNode((b"",), attr, None, 1), self._versions, holds)

    def lookup(self, parent: int, name: bytes) -> VersionEntry | None:
        """What has this name in a folder. It counts as looked up: `forget` must follow."""
        if parent == HISTORY_INO:
            ino = {_AT_NAME: _AT_INO, _VERSIONS_NAME: _VERSIONS_INO}.get(name)
            return None if ino is None else self._fixed(ino)
        if parent == _AT_INO:
            found = self._tree(name)
        elif isinstance(source := self.get(parent).source, VersionsByPath):
            found = self._version(parent, source, name)
        else:
            found = next((entry for other, entry in self.list(parent) if other == name), None)
        if found is not None:
            self.looked_up(found)
        return found

    def looked_up(self, entry: VersionEntry) -> None:
        """The kernel knows the node once more than before."""
        if entry.ino in _FIXED:
            return
        with self._lock:
            known = self._known.setdefault(entry.ino, _Known(entry, 0))
            known.entry = entry
            known.lookups += 1

    def forget(self, ino: int, lookups: int) -> None:
        """The kernel does not know the node any more, or not so many times."""
        with self._lock:
            known = self._known.get(ino)
            if known is not None:
                known.lookups -= lookups
                if known.lookups <= 0:
                    del self._known[ino]

    def _tree(self, spelling: bytes) -> VersionEntry | None:
        """The root of the tree at a moment; None for a text that is not a moment, for the future, and for a
        time before the history known here."""
        moment = parse_moment(spelling.decode("ascii", "replace"))
        now = self._time_ns()
        if moment is None or moment > now:
            return None
        with self._fs.state.snapshot() as db:
            first = first_moment(db)
            if first is None or moment < max(known_since(db), first):
                return None
            node = VersionTree(db, moment).root()
        holds = _YOUNG_SECONDS if now - moment < _YOUNG_NS else _LISTED_SECONDS
        source = _TreeAt(moment, spelling)
        return VersionEntry(_OF_TREES | source.number(node), _AT_INO, node, source, holds)

    def _version(self, parent: int, source: VersionsByPath, name: bytes) -> VersionEntry | None:
        with self._fs.state.snapshot() as db:
            child = source.find(db, self.get(parent).node, name)
        return None if child is None else _entry_of(child, parent, _YOUNG_SECONDS)

    # -- listings --------------------------------------------------------------------------------

    def list(self, ino: int) -> Sequence[tuple[bytes, VersionEntry]]:
        """What is in a folder, in the order of names."""
        if ino == HISTORY_INO:
            return [(_AT_NAME, self._fixed(_AT_INO)), (_VERSIONS_NAME, self._fixed(_VERSIONS_INO))]
        if ino == _AT_INO:
            names = sorted(format_moment(one).encode() for one in self._retention.rungs())
            return [(name, tree) for name in names if (tree := self._tree(name)) is not None]
        with self._lock:
            known = self._listings.get(ino)
            if known is not None and self._monotonic() < known.until:
                self._listings.move_to_end(ino)
                return known.entries
        folder = self.get(ino)
        if not stat.S_ISDIR(folder.node.attr.mode):
            raise failure(errno.ENOTDIR)
        with self._fs.state.snapshot() as db:
            children = sorted(folder.source.children(db, folder.node), key=lambda one: one.name)
        entries = [(one.name, _entry_of(one, ino, folder.holds)) for one in children]
        self._remember(ino, _Listing(self._monotonic() + folder.holds, entries))
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
        entry = self.get(ino)
        if stat.S_ISDIR(entry.node.attr.mode):
            raise failure(errno.EISDIR)
        reader = VersionReader(self._fs, self._fetcher, entry.node.content)
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


def _entry_of(child: Child, parent: int, holds: float) -> VersionEntry:
    return VersionEntry(_OF_TREES | child.number, parent, child.node, child.source, holds)


# -- the versions of every file by its path: what `.hybrisfs/versions` shows ----------------------------
# Below it, whatever path something has ever had (and is remembered by) is a folder. That of a folder shows
# the names that were in it while it had the path; that of a file shows its versions, each as a file of its
# own, called by the moment from which it was: `2026-11-20T18:00:05Z notes.txt`. The second of one second has
# a number: `2026-11-20T18:00:05Z (2) ...`. Removed files are there like all others, as long as a version of
# them is kept.


_NUMBERS: Final = 1 << 60
_FOLDER_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of a folder of versions"
_VERSION_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of a version"
_SECOND_NS: Final = 1_000_000_000


class Child(NamedTuple):
    """Something in a folder of the past. *number*: below 2**60, the same whenever it is looked at. *source*:
    what it is listed from, if it is a folder."""

    name: bytes
    number: int
    node: VersionNode
    source: Source


class Source(Protocol):
    """What a folder of the past is listed from; *db* is a snapshot of the database."""

    def children(self, db: Snapshot, folder: VersionNode) -> Iterable[Child]: ...


def number_of(context: str, what: bytes) -> int:
    """The number of a child."""
    return int.from_bytes(digest(context, what, 8), "big") & (_NUMBERS - 1)


class Retention(Protocol):
    """Which versions are kept now."""

    @property
    def rule(self) -> RetentionRule: ...

    def rungs(self) -> Sequence[int]:
        """Moments of which the whole tree is kept, the latest first, ns since the epoch."""


class VersionsByPath:
    """The `Source` of the folder at *path*, given by its names."""

    def __init__(self, path: Sequence[bytes], retention: Retention, environment: Environment) -> None:
        self._environment = environment
        self._path = tuple(path)
        self._retention = retention

    def children(self, db: Snapshot, folder: VersionNode) -> Iterator[Child]:
        """The folders first, then the versions."""
        catalog = Catalog(db, self._retention.rule)
        taken = set()
        for name, nodes in catalog.names(self._path).items():
            child = self._folder(catalog, name, nodes, folder)
            if child is not None:
                taken.add(name)
                yield child
        yield from (one for one in self._versions(db, catalog) if one.name not in taken)

    def find(self, db: Snapshot, folder: VersionNode, name: bytes) -> Child | None:
        """The child with this name, without looking at all of them."""
        catalog = Catalog(db, self._retention.rule)
        nodes = {stay.node for stay in catalog.stays([*self._path, name])}
        child = self._folder(catalog, name, nodes, folder)
        return child or next((one for one in self._versions(db, catalog) if one.name == name), None)

    def _folder(
        self, catalog: Catalog, name: bytes, nodes: Iterable[bytes], parent: VersionNode
    ) -> Child | None:
        """None when no file or folder had the name."""
        attrs = [attr for node in nodes if (attr := catalog.attr(node)) is not None]
        if not any(stat.S_ISDIR(one.mode) or stat.S_ISREG(one.mode) for one in attrs):
            return None
        path = (*self._path, name)
        number = number_of(_FOLDER_CONTEXT, b"/".join(path))
        attr = _guarding([one for one in attrs if stat.S_ISDIR(one.mode)], parent.attr)
        return Child(
            name,
            number,
            VersionNode((b"",), attr, None, 1),
            VersionsByPath(path, self._retention, self._environment),
        )

    def _versions(self, db: Snapshot, catalog: Catalog) -> Iterator[Child]:
        if not self._path:
            return
        second = Counter[str]()
        for version in reversed(catalog.kept(self._path, self._environment.time_ns())):
            attr = VersionTree(db, version.since).attr(version.node)
            if attr is None or not stat.S_ISREG(attr.mode):
                continue
            moment = datetime.datetime.fromtimestamp(version.since // _SECOND_NS, datetime.UTC)
            begun = moment.strftime("%Y-%m-%dT%H:%M:%SZ ")
            second[begun] += 1
            if second[begun] > 1:
                begun += f"({second[begun]}) "
            name = begun.encode() + shortened(self._path[-1], MAX_NAME - len(begun))
            node = VersionNode((version.node,), attr, version.content, 1)
            yield Child(name, number_of(_VERSION_CONTEXT, self._identity(version)), node, self)

    def _identity(self, version: Version) -> bytes:
        path = b"/".join(self._path)
        return path + b"\0" + version.since.to_bytes(8, "big") + version.node + (version.content or b"")


def _guarding(folders: Sequence[Attr], parent: Attr) -> Attr:
    """The attributes of a folder into which nobody may look who may not look into all of *folders*; owner and
    time are those of the latest, or else of *parent*."""
    mode = 0o555
    for one in folders:
        mode &= one.mode
    if len({(one.uid, one.gid) for one in folders}) > 1:
        mode &= stat.S_IRWXU
    latest = max(folders, key=lambda one: one.mtime, default=parent)
    return Attr(stat.S_IFDIR | mode, latest.uid, latest.gid, 0, latest.mtime)
