"""The versions of every file by its path: what `.hybrisfs/versions` shows.

Below it, whatever path something has ever had (and is remembered by) is a folder. That of a folder shows the
names that were in it while it had the path; that of a file shows its versions, each as a file of its own,
called by the moment from which it was: `2026-11-20T18:00:05Z notes.txt`. The second of one second has a
number: `2026-11-20T18:00:05Z (2) ...`. Removed files are there like all others, as long as a version of them
is kept.
"""

from __future__ import annotations

import datetime
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.merge.names import shortened
from hybrisfs.registers.tree import MAX_NAME, Attr
from hybrisfs.versions.catalog import Catalog, Version
from hybrisfs.versions.retention import RetentionRule
from hybrisfs.versions.tree import PastNode, PastTree
from sync.hashing import digest

__all__ = ["Child", "Source", "VersionsByPath", "number_of"]

_NUMBERS: Final = 1 << 60
_FOLDER_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of a folder of versions"
_VERSION_CONTEXT: Final = "hybrisfs.versions 2026-11 inode of a version"
_SECOND_NS: Final = 1_000_000_000


class Child(NamedTuple):
    """Something in a folder of the past. *number*: below 2**60, the same whenever it is looked at. *source*:
    what it is listed from, if it is a folder."""

    name: bytes
    number: int
    node: PastNode
    source: Source


class Source(Protocol):
    """What a folder of the past is listed from; *db* is a snapshot of the database."""

    def children(self, db: sqlite3.Connection, folder: PastNode) -> Iterable[Child]: ...


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

    def __init__(
        self, path: Sequence[bytes], retention: Retention, environment: Environment = SYSTEM
    ) -> None:
        self._environment = environment
        self._path = tuple(path)
        self._retention = retention

    def children(self, db: sqlite3.Connection, folder: PastNode) -> Iterator[Child]:
        """The folders first, then the versions."""
        catalog = Catalog(db, self._retention.rule)
        taken = set()
        for name, nodes in catalog.names(self._path).items():
            child = self._folder(catalog, name, nodes, folder)
            if child is not None:
                taken.add(name)
                yield child
        yield from (one for one in self._versions(db, catalog) if one.name not in taken)

    def find(self, db: sqlite3.Connection, folder: PastNode, name: bytes) -> Child | None:
        """The child with this name, without looking at all of them."""
        catalog = Catalog(db, self._retention.rule)
        nodes = {stay.node for stay in catalog.stays([*self._path, name])}
        child = self._folder(catalog, name, nodes, folder)
        return child or next((one for one in self._versions(db, catalog) if one.name == name), None)

    def _folder(
        self, catalog: Catalog, name: bytes, nodes: Iterable[bytes], parent: PastNode
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
            PastNode((b"",), attr, None, 1),
            VersionsByPath(path, self._retention, self._environment),
        )

    def _versions(self, db: sqlite3.Connection, catalog: Catalog) -> Iterator[Child]:
        if not self._path:
            return
        second = Counter[str]()
        for version in reversed(catalog.kept(self._path, self._environment.time_ns())):
            attr = PastTree(db, version.since).attr(version.node)
            if attr is None or not stat.S_ISREG(attr.mode):
                continue
            moment = datetime.datetime.fromtimestamp(version.since // _SECOND_NS, datetime.UTC)
            begun = moment.strftime("%Y-%m-%dT%H:%M:%SZ ")
            second[begun] += 1
            if second[begun] > 1:
                begun += f"({second[begun]}) "
            name = begun.encode() + shortened(self._path[-1], MAX_NAME - len(begun))
            node = PastNode((version.node,), attr, version.content, 1)
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
