"""Contents that other devices made: what the view shows of a file whose content register they wrote.

The list of a long file's chunks stands in chunks itself; those may have to be fetched before the file can be
read or changed: until then the file is *unlisted*.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from hybrisfs.filesystem.chunks import CHUNK_COLUMNS, ChunkRef, ChunkStore
from hybrisfs.filesystem.content import Content, Missing
from hybrisfs.filesystem.inodes import Inode, InodeTable
from hybrisfs.filesystem.names import failure
from hybrisfs.filesystem.registers import Content as Listed
from hybrisfs.filesystem.registers import Run, decode_runs
from hybrisfs.store.database import Database
from sync.codec import DecodeError

__all__ = ["ReceivedContent"]


class ReceivedContent:
    """Shows contents by their register values, under the volume's lock."""

    def __init__(self, database: Database, inodes: InodeTable, content: Content, chunks: ChunkStore) -> None:
        self._db = database
        self._inodes = inodes
        self._content = content
        self._chunks = chunks
        self._unlisted = {ino for (ino,) in database.execute("SELECT ino FROM unlisted")}

    def show(self, inode: Inode, value: bytes | None) -> None:
        """Let the file have this content instead of what is there. Nobody has it open."""
        listed = _decode(value)
        self._content.discard(inode)
        self.forget(inode)
        self._content.resize(inode, listed.size)
        inode.truncations += 1  # what is being settled of the old content must not come back
        if listed.depth:
            self._show_later(inode, listed, value or b"")
        else:
            self._list(inode, listed.runs)
        self._inodes.touch(inode)

    def unlisted(self, inode: Inode) -> bytes | None:
        """The content register of a file that is unlisted; None when it is not."""
        if inode.ino not in self._unlisted:
            return None
        row = self._db.execute("SELECT value FROM unlisted WHERE ino = ?", (inode.ino,)).fetchone()
        value: bytes = row[0]
        return value

    def forget(self, inode: Inode) -> None:
        """The file is not unlisted any more."""
        if inode.ino in self._unlisted:
            self._unlisted.discard(inode.ino)
            self._db.execute("DELETE FROM unlisted WHERE ino = ?", (inode.ino,))

    def _show_later(self, inode: Inode, listed: Listed, value: bytes) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO content_page (ino, chunk) VALUES (?, ?)",
            [(inode.ino, self._chunks.known(run.chunk, 0)) for run in listed.runs if run.chunk],
        )
        self._db.execute("INSERT INTO unlisted VALUES (?, ?)", (inode.ino, value))
        self._unlisted.add(inode.ino)
        inode.stored = listed.size

    def lacking(self, inode: Inode) -> Missing | None:
        """The chunks needed before the file can be read or changed; None when it can be now.

        Raises OSError (EIO) when what they hold is no list of chunks.
        """
        value = self.unlisted(inode)
        if value is None:
            return None
        runs: list[Run] = []
        missing: list[ChunkRef] = []
        for page in _decode(value).runs:
            ref = self._ref(page.chunk or b"")
            data = None if ref is None else self._chunks.read(ref, 0, ref.length)
            if ref is not None and data is None:
                missing.append(ref)
            elif not missing:
                runs += _page(data, page.length)
        if missing:
            return Missing(missing)
        self.forget(inode)
        self._list(inode, runs)
        return None

    def _ref(self, identity: bytes) -> ChunkRef | None:
        row = self._db.execute(f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.id = ?", (identity,)).fetchone()
        return ChunkRef(*row) if row else None

    def _list(self, inode: Inode, runs: Iterable[Run]) -> None:
        rows = list(self._rows(runs))
        self._db.execute("DELETE FROM file_chunk WHERE ino = ?", (inode.ino,))
        self._db.executemany(
            "INSERT INTO file_chunk (ino, offset, length, chunk) VALUES (?, ?, ?, ?)",
            [(inode.ino, *row) for row in rows],
        )
        inode.stored = sum(length for _, length, _ in rows)
        self._inodes.touch(inode)

    def _rows(self, runs: Iterable[Run]) -> Iterator[tuple[int, int, int]]:
        at = 0
        for run in runs:
            if run.chunk is not None:
                yield at, run.length, self._chunks.known(run.chunk, run.length)
            at += run.length


def _decode(value: bytes | None) -> Listed:
    """What no correct device can have written counts as an empty file, for everybody."""
    try:
        return Listed(0, 0, ()) if value is None else Listed.decode(value)
    except DecodeError:
        return Listed(0, 0, ())


def _page(data: bytes | None, length: int) -> list[Run]:
    try:
        runs = decode_runs(data or b"")
    except DecodeError:
        raise failure(errno.EIO) from None
    if sum(run.length for run in runs) != length:
        raise failure(errno.EIO)
    return runs
