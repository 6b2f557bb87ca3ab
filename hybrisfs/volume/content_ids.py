"""The IDs of files and folders of one volume, now and at past moments (`hybrisfs.content_ids`).

Only bytes are read of which no hash is known, and the tree as it is now is looked through only where it has
changed (`hybrisfs.state.known_ids`). What programs change in the meantime is looked at again, until nothing
has changed below what was asked for: so an ID is that of one moment.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from hybrisfs.content_ids import (
    LEAF,
    Comparison,
    compare,
    content_id,
    file_hash,
    folder_hash,
    kind_of,
    leaf_hash,
    special_hash,
)
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.errors import HybrisError, UsageError, failure
from hybrisfs.read.fetch import Fetcher
from hybrisfs.shown import shown
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.file_chunks import BaseRow
from hybrisfs.state.known_ids import LeafKey, ListedNode, leaf_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.versions.browser import HISTORY_NAME
from hybrisfs.versions.contents import VersionReader
from hybrisfs.versions.tree import VersionNode, VersionTree, parse_moment

__all__ = ["ContentIds", "Place"]

_Node = TypeVar("_Node")
_Seen = TypeVar("_Seen")
Place: TypeAlias = tuple[str, str | None]
"""A path relative to the volume's root, and a moment; None for what is there now. A path below
`.hybrisfs/at/MOMENT` is of that moment."""
Tell: TypeAlias = Callable[[int], None]
"""Hears how many bytes have been read so far."""

_TRIES: Final = 20
_PAGE: Final = 64  # files of a folder that are looked at together
_MOST_CHANGES: Final = 500  # that are looked at together
_TOGETHER: Final = 16 << 20  # bytes that are fetched at once
_TOLD: Final = 1 << 20  # bytes between two news
_WAITS: Final = 1.0  # seconds between two news of one that waits for another
_ZEROS: Final = leaf_hash(bytes(LEAF))


class _ChangedError(Exception):
    """What was looked at is not there any more."""


class _UnreadableError(Exception):
    """The file with this name cannot be read; the cause says why."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name)
        self.name = name


# -- trees of which parts are known ---------------------------------------------------------------------


class _Entry(NamedTuple, Generic[_Node]):
    """What is in a folder. *digest*: None of a folder whose hash is not known."""

    name: bytes
    kind: str
    node: _Node
    digest: bytes | None


class _Tree(Protocol[_Node]):
    def list(self, folder: _Node) -> Iterator[_Entry[_Node]]:
        """What is in a folder; files are hashed. Raises _ChangedError, _UnreadableError."""

    def keep(self, folder: _Node, digest: bytes) -> None:
        """This is the hash of a folder; those of all that is in it are kept."""


class _Found(Generic[_Node]):
    """A file or folder of a tree: a `ContentTree`."""

    def __init__(self, tree: _Tree[_Node], kind: str, node: _Node, digest: bytes | None) -> None:
        self._tree = tree
        self._node = node
        self._digest = digest
        self.kind = kind

    @property
    def digest(self) -> bytes:
        """Of a folder it is made now unless it is known."""
        if self._digest is None:
            self._digest = _hash_folder(self._tree, self._node)
        return self._digest

    def entries(self) -> Mapping[bytes, _Found[_Node]]:
        """What is in the folder."""
        listed = self._tree.list(self._node) if self.kind == "d" else ()
        return {one.name: _Found(self._tree, one.kind, one.node, one.digest) for one in listed}

    def is_still(self, later: _Found[Any]) -> bool:
        """Whether what was found later in the same place is known to be the same."""
        return (later._node, later._digest) == (self._node, self.digest)


def _hash_folder(tree: _Tree[_Node], folder: _Node) -> bytes:
    """The hash of a folder, after those of all folders in it that are not known."""
    path = [(b"", folder, tree.list(folder))]
    known: list[list[tuple[bytes, str, bytes]]] = [[]]
    while True:
        try:
            below = _list_known(path[-1][2], known[-1])
        except _UnreadableError as error:
            where = b"/".join([*(name for name, _, _ in path[1:]), error.name])
            raise _unreadable(where, error.__cause__) from error
        if below is not None:
            path.append((below.name, below.node, tree.list(below.node)))
            known.append([])
            continue
        name, node, _ = path.pop()
        found = folder_hash(known.pop())
        tree.keep(node, found)
        if not path:
            return found
        known[-1].append((name, "d", found))


def _list_known(
    entries: Iterable[_Entry[_Node]], known: list[tuple[bytes, str, bytes]]
) -> _Entry[_Node] | None:
    """Add entries to *known* up to the first one of which no hash is known, which is returned."""
    for one in entries:
        if one.digest is None:
            return one
        known.append((one.name, one.kind, one.digest))
    return None


def _unreadable(path: bytes, why: BaseException | None) -> HybrisError:
    return HybrisError(
        f"{shown(os.fsdecode(path))} cannot be read",
        str(why).partition("\n")[0],
        "hybrisfs status says whether the clouds answer.",
    )


# -- the bytes of files ---------------------------------------------------------------------------------


class _Source(Protocol):
    """The bytes of one file."""

    size: int

    def parts(self, tx: Transaction, start: int, end: int) -> Sequence[BaseRow] | Missing | None:
        """The parts in chunks that are all of start..end but zeros. None: they are not, `staged` has the
        bytes. Raises OSError."""

    def staged(self, tx: Transaction, start: int, end: int) -> bytes | Missing:
        """The bytes of start..end. Raises OSError."""


class _Hashes:
    """Makes hashes of files, and keeps those of their leaves."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, tell: Tell) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._tell = tell
        self._read = 0
        self._told = 0

    def file(self, source: _Source) -> bytes:
        """The hash of a file. Raises HybrisError, OSError."""
        ends = range(0, source.size, LEAF)
        return file_hash(
            source.size, [self._leaf(source, start, min(start + LEAF, source.size)) for start in ends]
        )

    def _leaf(self, source: _Source, start: int, end: int) -> bytes:
        fetched: dict[int, bytes] = {}
        while True:
            with self._fs.state.transaction() as tx:
                parts = source.parts(tx, start, end)
                key: LeafKey | None = None
                data: bytes | Missing
                if isinstance(parts, Missing):
                    data = parts
                elif parts is None:
                    data = source.staged(tx, start, end)
                else:
                    key = leaf_key(parts, start, end - start)
                    known = _ZEROS if key is None and end - start == LEAF else tx.known_ids.leaf(key)
                    if known is not None:
                        return known
                    data = _read(tx, parts, start, end, fetched)
            if not isinstance(data, Missing):
                break
            fetched = self._fetcher.fetch(data.chunks)
        digest = leaf_hash(data)
        self._note_read(len(data))
        if key is not None:
            with self._fs.state.transaction() as tx:
                tx.known_ids.put_leaf(key, digest)
        return digest

    def _note_read(self, size: int) -> None:
        self._read += size
        if self._read - self._told >= _TOLD:
            self._told = self._read
            self._tell(self._read)

    def _fetch(self, sources: Iterable[_Source]) -> None:
        """Bring the first bytes of files here side by side; as many as the disk has room for stay."""
        wanted: dict[int, ChunkRef] = {}
        with self._fs.state.transaction() as tx:
            for source in sources:
                end = min(source.size, LEAF)
                try:
                    parts = source.parts(tx, 0, end)
                except OSError:  # hashing the file says so
                    continue
                if parts is None or isinstance(parts, Missing):
                    continue
                key = leaf_key(parts, 0, end)
                if key is not None and tx.known_ids.leaf(key) is None:
                    wanted |= {one.chunk.number: one.chunk for one in parts if not one.chunk.is_here}
        size = 0
        together: list[ChunkRef] = []
        for ref in wanted.values():
            size += ref.length
            if size > _TOGETHER:
                break
            together.append(ref)
        if len(together) > 1:
            with suppress(ChunkUnavailable):  # whichever file it is of, is asked for again, and says so
                self._fetcher.fetch(together)

    def files(self, files: Sequence[tuple[bytes, _Source]]) -> Iterator[bytes]:
        """The hashes of files of one folder, each given by name. Raises _ChangedError, _UnreadableError."""
        self._fetch([source for _, source in files])
        for name, source in files:
            try:
                yield self.file(source)
            except (HybrisError, OSError) as error:
                raise _UnreadableError(name) from error


def _read(
    tx: Transaction, parts: Sequence[BaseRow], start: int, end: int, fetched: Mapping[int, bytes]
) -> bytes | Missing:
    """The bytes of start..end, which *parts* show, and zeros between them."""
    found: list[bytes] = []
    missing: list[ChunkRef] = []
    at = start
    for one in parts:
        found.append(bytes(one.offset - at))
        here = fetched.get(one.chunk.number)
        data = tx.chunks.read(one.chunk, one.skip, one.length) if here is None else here[one.skip :]
        if data is None:
            missing.append(one.chunk)
        else:
            found.append(data[: one.length].ljust(one.length, b"\0"))
        at = one.end
    found.append(bytes(end - at))
    return Missing(missing) if missing else b"".join(found)


# -- the tree as it is ----------------------------------------------------------------------------------


class _Live:
    """The bytes of a file that programs may be writing to. Raises _ChangedError when it is gone."""

    def __init__(self, fs: FileSystem, ino: int) -> None:
        self._fs = fs
        self._ino = ino
        with fs.state.transaction() as tx:
            self.size = self._inode(tx).size

    def _inode(self, tx: Transaction) -> Inode:
        try:
            return self._fs.get(tx, self._ino)
        except OSError as error:
            raise _ChangedError from error

    def parts(self, tx: Transaction, start: int, end: int) -> Sequence[BaseRow] | Missing | None:
        inode = self._inode(tx)
        lacking = self._fs.received.lacking(tx, inode)
        if lacking is not None:
            return lacking
        extents = self._fs.inodes.extents_of(tx, inode)
        if any(piece.segment is not None for piece in (extents.pieces(start, end) if extents else ())):
            return None
        rows = self._fs.content.base_rows(tx, inode, start, end)
        return [one.between(max(one.offset, start), min(one.end, end)) for one in rows]

    def staged(self, tx: Transaction, start: int, end: int) -> bytes | Missing:
        inode = self._inode(tx)
        if inode.size < end:
            raise _ChangedError
        return self._fs.read(tx, inode, start, end - start)


class _Now:
    """Nodes are inodes."""

    def __init__(self, fs: FileSystem, hashes: _Hashes) -> None:
        self._fs = fs
        self._hashes = hashes

    def find(self, names: Sequence[bytes]) -> _Found[int]:
        """What is at a path; what was known of it and has changed is not known any more."""
        inode, digest = self._settled(names)
        kind = kind_of(inode.mode)
        if digest is None and kind in "fx":
            try:
                digest = self._hashes.file(_Live(self._fs, inode.ino))
            except (HybrisError, OSError) as error:
                raise _unreadable(b"/".join(names), error) from error
            self.keep(inode.ino, digest)
        elif kind not in "fxd":
            digest = special_hash(kind, inode.target or b"", inode.rdev)
        return _Found(self, kind, inode.ino, digest)

    def _settled(self, names: Sequence[bytes]) -> tuple[Inode, bytes | None]:
        while True:
            with self._fs.state.transaction() as tx:
                self._fs.flush(tx)
                if not tx.known_ids.settle(_MOST_CHANGES):
                    continue  # the lock is free for programs in between
                inode = self._fs.locate(tx, names)
                if inode is None:
                    raise HybrisError(f"there is no {shown(os.fsdecode(b'/'.join(names)))} in the volume")
                return inode, tx.known_ids.find(inode.ino)

    def keep(self, folder: int, digest: bytes) -> None:
        with self._fs.state.transaction() as tx:
            tx.known_ids.put([(folder, digest)])

    def list(self, folder: int) -> Iterator[_Entry[int]]:
        after = 0
        while True:
            with self._fs.state.transaction() as tx:
                self._fs.flush(tx)
                page = tx.known_ids.list(folder, after, _PAGE)
            if not page:
                return
            after = page[-1].number
            made = self._hash_files([one for one in page if one.hash is None])
            for one in page:
                kind = kind_of(one.mode)
                digest = made.get(one.ino) if one.hash is None else one.hash
                if kind not in "fxd":
                    digest = special_hash(kind, one.target or b"", one.rdev)
                yield _Entry(one.name, kind, one.ino, digest)

    def _hash_files(self, nodes: Iterable[ListedNode]) -> dict[int, bytes]:
        """The hashes of those of the nodes that are files, by inode."""
        files = {one.ino: one.name for one in nodes if kind_of(one.mode) in "fx"}
        if not files:
            return {}
        sources = [(name, _Live(self._fs, ino)) for ino, name in files.items()]
        made = dict(zip(files, self._hashes.files(sources), strict=True))
        with self._fs.state.transaction() as tx:
            tx.known_ids.put(made.items())
        return made


# -- the tree as it was ---------------------------------------------------------------------------------


class _Stored:
    """The bytes of a content. It is made without the volume's lock, and may wait for clouds."""

    def __init__(self, reader: VersionReader) -> None:
        self.size = reader.size
        self._reader = reader
        reader.list_chunks()

    def parts(self, tx: Transaction, start: int, end: int) -> Sequence[BaseRow]:
        found: list[BaseRow] = []
        for offset, run in self._reader.runs(start, end):
            if run.chunk is None:
                continue
            ref = tx.chunks.find(run.chunk)
            if ref is None:
                raise failure(errno.EIO)
            row = BaseRow(offset, run.length, run.skip, ref)
            found.append(row.between(max(offset, start), min(row.end, end)))
        return found

    def staged(self, tx: Transaction, start: int, end: int) -> bytes:
        """There are none."""
        raise failure(errno.EIO)


class _Then:
    """Nodes are those of a tree of versions."""

    def __init__(self, tree: VersionTree, fs: FileSystem, fetcher: Fetcher, hashes: _Hashes) -> None:
        self._tree = tree
        self._fs = fs
        self._fetcher = fetcher
        self._hashes = hashes
        self._folders: dict[tuple[bytes, ...], bytes] = {}

    def find(self, names: Sequence[bytes]) -> _Found[VersionNode]:
        """What was at a path."""
        node = self._tree.find(names)
        if node is None:
            raise HybrisError(
                f"there was no {shown(os.fsdecode(b'/'.join(names)))} then, as far as this machine knows",
                "",
                "hybrisfs versions list shows what is known of it.",
            )
        (found,) = self._hashed([(names[-1] if names else b".", node)])
        return _Found(self, found.kind, found.node, found.digest)

    def keep(self, folder: VersionNode, digest: bytes) -> None:
        self._folders[folder.ids] = digest

    def list(self, folder: VersionNode) -> Iterator[_Entry[VersionNode]]:
        nodes = iter(self._tree.children(folder).items())
        while page := list(islice(nodes, _PAGE)):
            yield from self._hashed(page)

    def _hashed(self, nodes: Sequence[tuple[bytes, VersionNode]]) -> Iterator[_Entry[VersionNode]]:
        files = [one for one in nodes if kind_of(one[1].attr.mode) in "fx"]
        made = self._hashes.files([(name, self._source(name, node)) for name, node in files])
        for name, node in nodes:
            kind = kind_of(node.attr.mode)
            if kind in "fx":
                digest: bytes | None = next(made)
            elif kind == "d":
                digest = self._folders.get(node.ids)
            else:
                digest = special_hash(kind, node.attr.target, node.attr.rdev)
            yield _Entry(name, kind, node, digest)

    def _source(self, name: bytes, node: VersionNode) -> _Stored:
        try:
            return _Stored(VersionReader(self._fs, self._fetcher, node.content))
        except (HybrisError, OSError) as error:
            raise _UnreadableError(name) from error


# -- what people ask ------------------------------------------------------------------------------------


class ContentIds:
    """Methods may be called from any thread, without the volume's lock. They raise HybrisError or OSError."""

    def __init__(self, fs: FileSystem, committer: Committer, fetcher: Fetcher) -> None:
        self._fs = fs
        self._committer = committer
        self._fetcher = fetcher
        self._turn = threading.Lock()

    def of(self, place: Place, tell: Tell) -> str:
        """The ID of a file or folder."""
        return self._look([place], tell, lambda tree: content_id(tree.kind, tree.digest))

    def compare(self, first: Place, second: Place, tell: Tell) -> Comparison:
        """What differs between two files or folders."""
        return self._look([first, second], tell, compare)

    def _look(self, places: Sequence[Place], tell: Tell, look: Callable[..., _Seen]) -> _Seen:
        """What *look* returns of the trees at these places, which did not change while it looked."""
        hashes = _Hashes(self._fs, self._fetcher, tell)
        with self._watching(tell), ExitStack() as past:
            find = [self._finder(*self._split(*one), hashes, past) for one in places]
            for _ in range(_TRIES):
                try:
                    trees = [one() for one in find]
                    seen = look(*trees)
                    if all(tree.is_still(again()) for tree, again in zip(trees, find, strict=True)):
                        return seen
                except _ChangedError:
                    continue
        raise HybrisError(
            "what is there changes all the time, so an ID would be one of no moment",
            "",
            "Try again when programs write less, or name a past moment.",
        )

    @contextmanager
    def _watching(self, tell: Tell) -> Iterator[None]:
        """In the block it is noted what changes. There is one at a time."""
        while not self._turn.acquire(timeout=_WAITS):
            tell(0)
        with ExitStack() as undo:
            undo.callback(self._turn.release)
            with self._fs.state.transaction() as tx:
                tx.known_ids.begin()
            undo.callback(self._end)
            yield

    def _end(self) -> None:
        with self._fs.state.transaction() as tx:
            tx.known_ids.end()

    def _finder(
        self, names: Sequence[bytes], moment: int | None, hashes: _Hashes, past: ExitStack
    ) -> Callable[[], _Found[int] | _Found[VersionNode]]:
        if moment is None:
            return partial(_Now(self._fs, hashes).find, names)
        self._committer.commit_now()
        db = past.enter_context(self._fs.state.snapshot())
        found = _Then(VersionTree(db, moment), self._fs, self._fetcher, hashes).find(names)
        return lambda: found

    def _split(self, path: str, at: str | None) -> tuple[list[bytes], int | None]:
        """The names of a place, and its moment in ns since the epoch."""
        names = [name for name in os.fsencode(path).split(b"/") if name not in (b"", b".")]
        if at is None and names[:2] == [HISTORY_NAME, b"at"] and len(names) > 2 and self._shows_past():
            at, names = os.fsdecode(names[2]), names[3:]
        if at is None:
            return names, None
        moment = parse_moment(at)
        if moment is None:
            raise UsageError(
                f"{shown(at)} is not a moment",
                "",
                "For example 2h or 3d (ago), 2026-11-20 or 2026-11-20T18:00.",
            )
        return names, moment

    def _shows_past(self) -> bool:
        with self._fs.state.transaction() as tx:
            return self._fs.lookup(tx, ROOT_INO, HISTORY_NAME) is None
