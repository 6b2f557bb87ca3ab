"""The folder of the volume as one side of a mirror. It calls the filesystem core as the mount does.

The content of a file is staged in a file without a name, and handed over in one step, so that no program
ever sees half a file, whatever dies when.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol, TypeVar

from hybrisfs.mirror.engine import Held, Listing, LocalOriginal, Original
from hybrisfs.mirror.file_access import Reader, VolumeFile, digest_of, is_mirrored
from hybrisfs.mirror.ignore import Ignored
from hybrisfs.mirror.model import (
    PERMISSIONS,
    ChangedError,
    Facts,
    Glimpse,
    InUseError,
    Kind,
    Seen,
    join,
    name_of,
    own_bits,
    parent_of,
)
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.shown_nodes import ino_shown_for, way_to_root
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.names import RENAME_NOREPLACE
from hybrisfs.tree.unseen import Aspect, Change

__all__ = ["VolumeSide", "Host"]

_STATE: Final = struct.Struct(">qqqI")  # size, mtime, ctime, mode
_STAMP: Final = struct.Struct(f">{_STATE.size}sqq")  # that, and the stamps of attributes and content
_AT_ONCE: Final = 1000  # names listed while the lock is held
_BEING_WRITTEN: Final = 15.0  # seconds after which a file that is always open is taken as it is
_A_NODE: Final = 4096
_KINDS: Final = {stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.LINK}

T = TypeVar("T")


class Host(Protocol):
    """What a side needs of its volume: chunks that are not here, room, and word to the kernel."""

    def fetch(self, chunks: list[ChunkRef]) -> object: ...
    def wait_for_room(self, length: int) -> bool: ...
    def notify(self, changes: Sequence[Change]) -> None: ...


class VolumeSide:
    """A folder of the volume, known by the id of its node.

    Methods are called without the volume's lock.
    """

    def __init__(
        self,
        fs: FileSystem,
        host: Host,
        root: bytes,
        ignored: Ignored,
    ) -> None:
        self._fs = fs
        self._host = host
        self._reader = Reader(fs, host.fetch)
        self._root = root
        self._root_number = 0  # where it was last found
        self._ignored = ignored
        self._monotonic = fs.environment.monotonic

    # -- finding ---------------------------------------------------------------------------------

    def _root_folder(self, tx: Transaction) -> Inode | None:
        """The mirrored folder, wherever it has been moved to; None when it is gone."""
        known = self._fs.inodes.find(tx, self._root_number) if self._root_number else None
        if known is not None and known.id == self._root and known.is_directory and not known.orphan:
            return known
        self._fs.flush(tx)
        ino = ino_shown_for(tx, self._root)
        inode = None if ino is None else self._fs.inodes.find(tx, ino)
        self._root_number = inode.ino if inode is not None else 0
        return inode if inode is not None and inode.is_directory and not inode.orphan else None

    def is_there(self) -> bool:
        """Whether the mirrored folder is in the volume."""
        with self._fs.state.transaction() as tx:
            return self._root_folder(tx) is not None

    def _find(self, tx: Transaction, path: bytes) -> Inode | None:
        root = self._root_folder(tx)
        return None if root is None else self._fs.locate(tx, path.split(b"/") if path else (), root.ino)

    def _directory(self, tx: Transaction, path: bytes) -> Inode:
        inode = self._find(tx, path)
        if inode is None or not inode.is_directory:
            raise ChangedError(f"there is no folder {path!r} in the volume")
        return inode

    def _expect(self, tx: Transaction, path: bytes, seen: Seen | None) -> Inode | None:
        """What is at a path; raises ChangedError unless it is what was *seen*."""
        inode = self._find(tx, path)
        if inode is None and seen is None:
            return None
        is_same = (
            inode is not None
            and seen is not None
            and inode.id == seen.identity
            # A directory changes whenever a name in it does.
            and (inode.is_directory or _stamp(inode) == seen.stamp)
        )
        if not is_same:
            raise ChangedError(f"{path!r} has changed in the volume")
        return inode

    def _required(self, tx: Transaction, path: bytes, seen: Seen) -> Inode:
        inode = self._expect(tx, path, seen)
        assert inode is not None
        return inode

    def paths_of(self, numbers: set[int]) -> set[bytes]:
        """The directories of the mirror in which something has changed, by the numbers of changed nodes."""
        fs, found = self._fs, set[bytes]()
        known: dict[int, bytes | None] = {}
        with fs.state.transaction() as tx:
            root = self._root_folder(tx)
            if root is None:
                return {b""}
            known[root.ino] = b""
            for number in numbers:
                parents = tx.places.parents_of(number)
                found |= {path for parent in parents if (path := self._path(tx, parent, known)) is not None}
                inode = fs.inodes.find(tx, number)
                if inode is not None and inode.is_directory:
                    path = self._path(tx, number, known)
                    found |= set() if path is None else {path}
        return found

    def _path(self, tx: Transaction, number: int, known: dict[int, bytes | None]) -> bytes | None:
        """The path of a directory within the mirror; None when it is elsewhere."""
        way = list(way_to_root(tx, number, ends=known))
        path = known.get(way[-1].folder if way else number)
        for child, _, name in way[::-1]:
            path = known[child] = None if path is None else join(path, name)
        return path

    # -- looking ---------------------------------------------------------------------------------

    def names(self, path: bytes) -> Listing | None:
        """See `engine.Place`; so are all of these."""
        found: Listing = {}
        after = 0
        while True:
            with self._fs.state.transaction() as tx:
                directory = self._find(tx, path)
                if directory is None or not directory.is_directory:
                    return None
                rows = self._fs.names.list(tx, directory.ino, after, _AT_ONCE)
                for _, name, inode in rows:
                    found[name] = self._glimpse(join(path, name), inode)
            if len(rows) < _AT_ONCE:
                return found
            after = rows[-1][0]

    def _glimpse(self, path: bytes, inode: Inode) -> Glimpse | Held:
        kind = _KINDS.get(stat.S_IFMT(inode.mode))
        if (path, kind is Kind.DIRECTORY) in self._ignored:
            return Held()
        if kind is None:
            return Held("is a device, a socket or a pipe: these are not mirrored")
        if kind is Kind.LINK and (not inode.target or b"\0" in inode.target):
            return Held("is a symbolic link whose target no disk takes")
        if inode.writers and self._monotonic() - inode.dirty_since < _BEING_WRITTEN:
            return Held(later=True)
        return Glimpse(kind, inode.id, _stamp(inode), inode.nlink)

    def examine(
        self, path: bytes, glimpse: Glimpse, *, content: bool, beside: LocalOriginal | None = None
    ) -> Seen:
        with self._fs.state.transaction() as tx:
            inode = self._required(tx, path, Seen(glimpse.identity, glimpse.stamp, Facts(glimpse.kind)))
            seen = self._seen(tx, inode, None)
        if not content or seen.facts.kind is not Kind.FILE:
            return seen
        with self.read(path, seen) as original:
            return original.identified(beside)

    def _seen(self, tx: Transaction, inode: Inode, content: bytes | None) -> Seen:
        kind = _KINDS[stat.S_IFMT(inode.mode)]
        xattrs = digest_of(self._xattrs(tx, inode))
        mode = 0 if kind is Kind.LINK else inode.mode & PERMISSIONS
        if kind is Kind.FILE:
            facts = Facts(kind, mode, inode.mtime, inode.size, content, xattrs)
        else:
            facts = Facts(kind, mode, 0, 0, (inode.target or b"") if kind is Kind.LINK else b"", xattrs)
        return Seen(inode.id, _stamp(inode), facts, inode.nlink)

    def _xattrs(self, tx: Transaction, inode: Inode) -> dict[bytes, bytes]:
        attributes = self._fs.attributes
        names = [name for name in attributes.list_xattrs(tx, inode) if is_mirrored(name)]
        return {name: attributes.get_xattr(tx, inode, name) for name in names}

    @contextmanager
    def read(self, path: bytes, seen: Seen) -> Iterator[VolumeFile]:
        with ExitStack() as stack:
            with self._fs.state.transaction() as tx:
                file = self._open(tx, self._required(tx, path, seen), seen, stack)
            yield file

    def read_back(self, path: bytes, stored: Seen) -> Seen:
        """What is at *path* now, where *stored* was put, with its content. Raises ChangedError when it
        has changed since; that the volume has signed it is not a change."""
        with ExitStack() as stack:
            with self._fs.state.transaction() as tx:
                inode = self._find(tx, path)
                if (
                    inode is None
                    or inode.id != stored.identity
                    or _state(inode) != stored.stamp[: _STATE.size]
                ):
                    raise ChangedError(f"{path!r} has changed in the volume")
                file = self._open(tx, inode, self._seen(tx, inode, None), stack)
            return file.identified()

    def _open(self, tx: Transaction, inode: Inode, seen: Seen, stack: ExitStack) -> VolumeFile:
        """Called with the lock held; closed with the *stack*, without it."""
        if inode.is_file:
            stack.callback(self._release, self._fs.open(tx, inode.ino, os.O_RDONLY))
        return VolumeFile(self._reader, inode, seen, self._xattrs(tx, inode))

    def _release(self, handle: int) -> None:
        with self._fs.state.transaction() as tx:
            self._fs.release(tx, handle)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        facts = original.seen.facts
        if facts.kind is not Kind.FILE:
            return self._changing(path, lambda tx: self._make(tx, path, original, replaces, None))
        staged, handle = self._in_room(_A_NODE, lambda tx: self._fs.create_scratch(tx, facts.mode, *_owner()))
        try:
            for offset, data in original.blocks():
                self._write(handle, offset, data)
            with self._fs.state.transaction() as tx:
                self._fs.truncate(tx, staged, original.seen.facts.size)
                existing = self._find(tx, path)
            if existing is not None and existing.is_file:
                self._reader.list_chunks(existing)
            seen = self._changing(path, lambda tx: self._make(tx, path, original, replaces, staged))
            return seen.with_content(original.seen.facts.content)
        finally:
            with self._fs.state.transaction() as tx:
                self._fs.release(tx, handle)
                self._fs.forget(tx, staged.ino)

    def _write(self, handle: int, offset: int, data: bytes) -> None:
        self._in_room(len(data), lambda tx: self._fs.write(tx, self._fs.handle(handle), offset, data))

    def _in_room(self, length: int, work: Callable[[Transaction], T]) -> T:
        """Do with the lock held what takes room in the cache, waiting for it. Raises JournalFullError."""
        while True:
            try:
                with self._fs.state.transaction() as tx:
                    return work(tx)
            except JournalFullError:
                if not self._host.wait_for_room(length):
                    raise

    def _changing(
        self, path: bytes, work: Callable[[Transaction], Inode], aspect: Aspect = Aspect.CONTENT
    ) -> Seen:
        """Do something to what is at *path* in one step, and let the kernel know."""

        def change(tx: Transaction) -> tuple[Seen, list[Change]]:
            before = self._find(tx, path)
            inode = work(tx)
            parent = self._directory(tx, parent_of(path))
            changes = [Change(parent.ino), Change(inode.ino, aspect=aspect)]
            if before is None or before.ino != inode.ino:
                gone = None if before is None else (before.ino, before.mode)
                changes.append(Change(parent.ino, name_of(path), gone))
            return self._seen(tx, inode, None), changes

        seen, changes = self._in_room(_A_NODE, change)
        self._host.notify(changes)
        return seen

    def _make(
        self, tx: Transaction, path: bytes, original: Original, replaces: Seen | None, staged: Inode | None
    ) -> Inode:
        """Put what was read at *path*. A file that is there keeps its node, and so its history."""
        fs, facts, name = self._fs, original.seen.facts, name_of(path)
        existing = self._expect(tx, path, replaces)
        _check_unused(existing)
        parent = self._directory(tx, parent_of(path))
        if existing is not None and not (existing.is_file and facts.kind is Kind.FILE):
            fs.unlink(tx, parent.ino, name)
            existing = None
        if existing is None:
            is_link = facts.kind is Kind.LINK
            mode, target = (0o777, facts.content) if is_link else (facts.mode | original.own_bits, None)
            existing = fs.make(tx, parent.ino, name, _type_of(facts.kind) | mode, *_owner(), target=target)
        if staged is not None:
            fs.content.take_over(tx, existing, staged)
        self._give_attributes(tx, existing, original)
        return existing

    def _give_attributes(self, tx: Transaction, inode: Inode, original: Original) -> None:
        attributes, facts = self._fs.attributes, original.seen.facts
        wanted = {name: value for name, value in original.xattrs.items() if is_mirrored(name)}
        present = self._xattrs(tx, inode)
        for name in present.keys() - wanted.keys():
            attributes.remove_xattr(tx, inode, name)
        for name, value in wanted.items():
            if present.get(name) != value:
                attributes.set_xattr(tx, inode, name, value, 0)
        mode = facts.mode | own_bits(inode.mode)
        if facts.kind is Kind.FILE:
            attributes.change(tx, inode, mode=mode, mtime=facts.mtime)
        elif facts.kind is Kind.DIRECTORY:
            attributes.change(tx, inode, mode=mode)

    def set_attributes(self, path: bytes, original: Original, target: Seen) -> Seen:
        def change(tx: Transaction) -> Inode:
            inode = self._required(tx, path, target)
            self._give_attributes(tx, inode, original)
            return inode

        return self._changing(path, change, Aspect.ATTRIBUTES).with_content(target.facts.content)

    def link(self, path: bytes, existing: bytes, seen: Seen, replaces: Seen | None) -> Seen:
        def change(tx: Transaction) -> Inode:
            inode = self._find(tx, existing)
            # Not the stamp: it changes with each further name.
            if (
                inode is None
                or inode.id != seen.identity
                or self._seen(tx, inode, seen.facts.content).facts != seen.facts
            ):
                raise ChangedError(f"{existing!r} has changed in the volume")
            parent, before = self._directory(tx, parent_of(path)), self._expect(tx, path, replaces)
            if before is inode:
                return inode
            _check_unused(before)
            if before is not None:
                self._fs.unlink(tx, parent.ino, name_of(path))
            return self._fs.link(tx, inode.ino, parent.ino, name_of(path))

        return self._changing(path, change).with_content(seen.facts.content)

    def remove(self, path: bytes, target: Seen) -> None:
        with self._fs.state.transaction() as tx:
            inode, parent = self._find(tx, path), self._directory(tx, parent_of(path))
            if inode is None or inode.id != target.identity:
                raise ChangedError(f"{path!r} has changed in the volume")
            if inode.is_directory:
                try:
                    self._fs.rmdir(tx, parent.ino, name_of(path))
                except OSError as error:
                    raise ChangedError(f"the folder {path!r} of the volume is not empty") from error
            else:
                _check_unused(self._required(tx, path, target))
                self._fs.unlink(tx, parent.ino, name_of(path))
            changes = [Change(parent.ino, name_of(path), (inode.ino, inode.mode)), Change(parent.ino)]
        self._host.notify(changes)

    def rename(self, old: bytes, new: bytes, target: Seen) -> None:
        with self._fs.state.transaction() as tx:
            inode = self._find(tx, old)
            if inode is None or inode.id != target.identity:
                raise ChangedError(f"{old!r} has changed in the volume")
            parent, new_parent = self._directory(tx, parent_of(old)), self._directory(tx, parent_of(new))
            try:
                self._fs.rename(tx, parent.ino, name_of(old), new_parent.ino, name_of(new), RENAME_NOREPLACE)
            except FileExistsError as error:
                raise ChangedError(f"{new!r} has appeared in the volume") from error
            changes = [
                Change(parent.ino, name_of(old), (inode.ino, inode.mode)),
                Change(new_parent.ino, name_of(new)),
                Change(parent.ino),
                Change(new_parent.ino),
            ]
        self._host.notify(changes)

    # -- what is known of the other side's record --------------------------------------------------

    def generation(self, mirror: str) -> int:
        """How often the volume's database has taken note of a commit of the mirror's record."""
        with self._fs.state.transaction() as tx:
            return int(tx.find_meta(f"mirror {mirror}") or 0)

    def note_generation(self, mirror: str, generation: int) -> None:
        """Take note; durable with the next commit of the volume."""
        with self._fs.state.transaction() as tx:
            tx.add_meta(f"mirror {mirror}", generation)

    def forget_generation(self, mirror: str) -> None:
        """There is no such mirror any more."""
        with self._fs.state.transaction() as tx:
            tx.remove_meta(f"mirror {mirror}")


def _check_unused(inode: Inode | None) -> None:
    """Raises InUseError."""
    if inode is not None and inode.writers:
        raise InUseError


def _owner() -> tuple[int, int]:
    return os.getuid(), os.getgid()


def _type_of(kind: Kind) -> int:
    return next(one for one, found in _KINDS.items() if found is kind)


def _stamp(inode: Inode) -> bytes:
    return _STAMP.pack(_state(inode), inode.attr_stamp, inode.content_stamp)


def _state(inode: Inode) -> bytes:
    """What of a stamp programs change, and signing does not."""
    return _STATE.pack(inode.size, inode.mtime, inode.ctime, inode.mode)
