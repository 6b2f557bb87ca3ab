"""Merging the versions of a file that are in conflict: what they are, and putting the merged one in their
place.

A person, or a tool of theirs, looks at the versions for as long as it takes, without the volume's lock. So
the answer to `compare` has a mark of what was compared, and `settle` does nothing when that is not what is
there. All versions are signed before, so that each of them stays as an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hybrisfs.api.decisions import LARGEST_COMPARED
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.resolution import node_shown, signed_content
from hybrisfs.merge.signing import only_reads
from hybrisfs.merge.text import LARGEST, Merge, merge_texts
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import content_key
from hybrisfs.registers.values import Value
from hybrisfs.shown import shown
from hybrisfs.state.database import Snapshot
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.shown_nodes import contested_names
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Aspect, Change
from hybrisfs.versions.ancestor import Side, version_before
from hybrisfs.versions.contents import VersionReader, is_readable, size_of
from hybrisfs.volume.decisions import Conflict, Conflicts
from hybrisfs.write.relayer import Uploads
from sync.codec import Writer, digest

__all__ = ["Compared", "Merging", "Waiting"]

_MOST: Final = 8  # versions
_AT_ONCE: Final = 50  # names with conflicts that are looked at with the lock held
_GIVE_WAY_SECONDS: Final = 0.0003
_SIGNED_WITHIN: Final = 60.0
_CONTEXT: Final = "hybrisfs.volume 2026-11 versions compared"
_NO_BASE: Final = "the version that they come from is not known"


class Compared(NamedTuple):
    """The versions of *path*: where each is, that which has the name first, and what it holds. *base*: what
    they come from; None when that is not known. *mark*: for `settle`."""

    path: str
    places: Sequence[str]
    contents: Sequence[bytes]
    base: bytes | None
    merge: Merge
    mark: str


class Waiting(NamedTuple):
    """Versions that may be merged unasked: the path of the one that has the name, and a *mark* of them.
    *is_in_use*: whether a program has one open. *largest*: bytes of the largest."""

    path: str
    mark: str
    is_in_use: bool
    largest: int


class _Version(NamedTuple):
    path: str
    inode: Inode
    side: Side


class _Group(NamedTuple):
    """What wants one name: the *holder* of it, and the *others*. *folders*: the ids of the folder."""

    folders: Sequence[bytes]
    parent: int
    wanted: bytes
    versions: Sequence[_Version]
    others: Sequence[Conflict]

    @property
    def holder(self) -> Inode:
        return self.versions[0].inode

    @property
    def mark(self) -> str:
        writer = Writer()
        for one in self.versions:
            stamp, value = one.side.content
            writer.blob(one.side.node).varint(stamp.clock).blob(stamp.branch).blob(value or b"")
        return digest(_CONTEXT, writer.getvalue(), 16).hex()

    @property
    def is_in_use(self) -> bool:
        """Whether a program has one of the versions open."""
        return any(one.inode.handles for one in self.versions)


class Merging:
    """Takes the volume's lock itself."""

    def __init__(
        self,
        fs: FileSystem,
        conflicts: Conflicts,
        fetcher: Fetcher,
        uploads: Uploads,
        room: Evictor,
    ) -> None:
        self._fs = fs
        self._conflicts = conflicts
        self._fetcher = fetcher
        self._wait_signed = uploads.wait_signed
        self._wait_for_room = room.wait_for_room

    # -- comparing -------------------------------------------------------------------------------

    def compare(self, path: str) -> Compared:
        """The versions beside each other that are at *path*, or beside what is there, and their merge.

        Raises UsageError when there is no conflict or no such file, HybrisError when not all is signed,
        ChunkUnavailable, OSError.
        """
        if not self._wait_signed(_SIGNED_WITHIN):
            raise HybrisError("what is there now could not be signed in time", "", "Try again in a while.")
        return self._compare(path)

    def _compare(self, path: str) -> Compared:
        """The same of versions that are signed."""
        with self._fs.committed(lambda tx: self._group(tx, path)) as (group, db):
            sides = [one.side for one in group.versions]
            before = version_before(db, group.folders, group.wanted, sides, lambda one: _is_usable(db, one))
        contents = [self._read(one.content.value) for one in sides]
        base = None if before is None else self._read(before)
        return Compared(
            group.versions[0].path,
            [one.path for one in group.versions],
            contents,
            base,
            Merge(None, _NO_BASE) if base is None else merge_texts(base, _by_stamp(sides, contents)),
            group.mark,
        )

    def _read(self, value: bytes | None) -> bytes:
        reader = VersionReader(self._fs, self._fetcher, value)
        return reader.read(0, reader.size)

    def _group(self, tx: Transaction, path: str) -> _Group:
        others = self._conflicts.beside(tx, path)
        parent, wanted = others[0].parent, others[0].wanted
        holder = self._fs.lookup(tx, parent, wanted)
        folder = self._fs.get(tx, parent)
        found = [*([(wanted, holder)] if holder else []), *((one.name, one.inode) for one in others)]
        if len(found) > _MOST:
            raise UsageError(
                f"{shown(path)} has {len(found)} versions",
                f"{_MOST} are merged at the most",
                "hybrisfs conflicts keep keeps one of them.",
            )
        if holder is None or not all(inode.is_file for _, inode in found):
            raise UsageError(f"{shown(path)} cannot be merged", "not all that has this name is a file")
        versions = [
            _Version(self._conflicts.path(tx, parent, name), inode, self._side(tx, inode, path))
            for name, inode in found
        ]
        if any(size_of(one.side.content.value) > LARGEST_COMPARED for one in versions):
            raise UsageError(
                f"{shown(path)} cannot be merged",
                f"a version has more than {LARGEST_COMPARED >> 20} MiB",
                "hybrisfs conflicts keep keeps one of them.",
            )
        others = sorted(others, key=lambda one: one.name)
        versions[1:] = sorted(versions[1:], key=lambda one: one.path)
        return _Group([folder.id, *tx.conflicts.merged_with(parent)], parent, wanted, versions, others)

    def _side(self, tx: Transaction, inode: Inode, path: str) -> Side:
        node = node_shown(tx, inode)
        content = signed_content(tx, inode)
        if content is None or content_key(node) in self._fs.changes.unsigned:
            raise HybrisError(
                f"{shown(path)} cannot be merged now", "a program is writing to it", "Try again in a while."
            )
        return Side(node, content)

    # -- settling --------------------------------------------------------------------------------

    def settle(self, path: str, mark: str, content: bytes) -> None:
        """Let *content* be that of the file, and the only version. *mark*: of what was compared.

        Raises UsageError, HybrisError when something else is there by now, OSError.
        """
        self._settle(path, mark, content)

    def _settle(self, path: str, mark: str, content: bytes, *, unasked: bool = False) -> None:
        fs = self._fs
        if fs.read_only:
            raise only_reads()
        with fs.state.transaction() as tx:
            holder = self._group(tx, path).holder
            staged, handle = fs.create_scratch(tx, 0o600, 0, 0)
        try:
            self._in_room(len(content), lambda tx: fs.write(tx, staged, 0, content))
            self._list_chunks(holder)
            with fs.state.transaction() as tx:
                self._replace(tx, path, mark, staged, unasked=unasked)
        finally:
            with fs.state.transaction() as tx:
                fs.release(tx, handle)
                fs.forget(tx, staged.ino)

    def _replace(self, tx: Transaction, path: str, mark: str, staged: Inode, *, unasked: bool) -> None:
        fs = self._fs
        group = self._group(tx, path)
        if unasked and group.is_in_use:
            raise HybrisError(f"{shown(path)} was not changed", "a program has opened it")
        if group.mark != mark:
            raise HybrisError(
                f"{shown(path)} was not changed", "another version came while they were merged", "Try again."
            )
        changes = [Change(one.parent, one.name, (one.inode.ino, one.inode.mode)) for one in group.others]
        for one in group.others:
            fs.unlink(tx, one.parent, one.name)
        fs.content.take_over(tx, group.holder, staged)
        if unasked:  # a program that has read it before may not know the merged text
            fs.unseen.content_changed(group.holder.ino)
        fs.flush(tx)
        fs.shown([*changes, Change(group.parent), Change(group.holder.ino, aspect=Aspect.CONTENT)])

    # -- unasked ---------------------------------------------------------------------------------

    def waiting(self) -> Iterator[Waiting]:
        """Versions that may be merged unasked: all are files, signed, and no label of theirs or above them
        forbids it (`merge=off`). Programs get the lock in between: there may be many conflicts."""
        after = 0, b""
        while True:
            with self._fs.state.transaction() as tx:
                places = contested_names(tx, after, _AT_ONCE)
                found = [one for place in places if (one := self._waiting_at(tx, *place)) is not None]
            yield from found
            if len(places) < _AT_ONCE:
                return
            after = places[-1]
            self._fs.environment.sleep(_GIVE_WAY_SECONDS)

    def _waiting_at(self, tx: Transaction, parent: int, wanted: bytes) -> Waiting | None:
        try:
            group = self._group(tx, self._conflicts.path(tx, parent, wanted))
        except HybrisError:
            return None
        if not all(self._fs.labels.may_merge(tx, one.inode) for one in group.versions):
            return None
        path, largest = group.versions[0].path, max(map(_size, group.versions))
        return Waiting(path, group.mark, group.is_in_use, largest)

    def merge_unasked(self, waiting: Waiting) -> bool:
        """Merge these versions; False when that is for a person, or other versions are there by now.

        Raises UsageError, HybrisError, ChunkUnavailable, OSError.
        """
        found = self._compare(waiting.path)
        if found.merge.content is None or found.mark != waiting.mark:
            return False
        self._settle(waiting.path, waiting.mark, found.merge.content, unasked=True)
        self._wait_signed(_SIGNED_WITHIN)  # until then a program that overwrites it leaves no copy beside
        return True

    def _in_room(self, length: int, work: Callable[[Transaction], object]) -> None:
        while True:
            try:
                with self._fs.state.transaction() as tx:
                    work(tx)
                return
            except JournalFullError:
                if not self._wait_for_room(length):
                    raise

    def _list_chunks(self, inode: Inode) -> None:
        """See to it that this device knows the chunks of the file, so that it can be changed."""
        while True:
            with self._fs.state.transaction() as tx:
                lacking = self._fs.received.lacking(tx, inode)
            if lacking is None:
                return
            self._fetcher.fetch(lacking.chunks)


def _size(version: _Version) -> int:
    return size_of(version.side.content.value)


def _is_usable(db: Snapshot, value: bytes) -> bool:
    return size_of(value) <= LARGEST and is_readable(db, value, lambda _: None)


def _by_stamp(sides: Sequence[Side], contents: Sequence[bytes]) -> list[bytes]:
    """In the order in which they were signed, which is the same on all devices."""
    order = sorted(zip(sides, contents, strict=True), key=lambda one: _stamp(one[0].content))
    return [content for _, content in order]


def _stamp(value: Value) -> tuple[int, bytes]:
    return value.stamp.clock, value.stamp.branch
