"""Contents that other devices made: the bytes of a file whose content register they wrote.

The list of a long file's chunks stands in chunks itself; those may have to be fetched before the file can be
read or changed: until then the file is *unlisted*.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence

from hybrisfs.registers.tree import Content, Run, decode_runs
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.contents import Part
from hybrisfs.state.state import Transaction
from hybrisfs.tree.content import FileBytes, Missing
from hybrisfs.tree.inodes import Inode, InodeTable
from sync.codec import DecodeError

__all__ = ["NoListError", "ReceivedContent"]


class NoListError(OSError):
    """What should be a list of chunks is none: no correct device wrote it."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, os.strerror(errno.EIO))


class ReceivedContent:
    """Shows contents by their register values."""

    def __init__(self, tx: Transaction, inodes: InodeTable, content: FileBytes) -> None:
        self._inodes = inodes
        self._content = content
        self._unlisted = tx.contents.unlisted()

    def show(self, tx: Transaction, inode: Inode, value: bytes | None) -> None:
        """Replace the content of the file by this one. No program has the file open."""
        listed = _decode(value)
        self._content.discard(tx, inode)
        self.forget(tx, inode)
        self._content.resize(inode, listed.size)
        inode.truncations += 1  # what is being settled of the old content must not come back
        if listed.depth:
            self._show_later(tx, inode, listed, value or b"")
        else:
            self._list(tx, inode, listed.runs)
        self._inodes.touch(inode)

    def show_all(self, tx: Transaction, contents: Mapping[int, bytes | None]) -> dict[int, tuple[int, int]]:
        """Let new files, by their numbers, have these contents; the size of each, and the bytes stored of it.

        There is nothing else of these files yet.
        """
        listed = {ino: _decode(value) for ino, value in contents.items()}
        numbers = self._numbers(tx, listed.values())
        sizes: dict[int, tuple[int, int]] = {}
        parts: list[Part] = []
        for ino, one in listed.items():
            if one.depth:
                self._list_later(tx, ino, one.runs, contents[ino] or b"", numbers)
                sizes[ino] = one.size, one.size
                continue
            mine = _parts(ino, one.runs, numbers)
            parts += mine
            sizes[ino] = one.size, sum([length for _, _, length, _ in mine])
        tx.contents.add_parts(parts)
        self._content.total_bytes += sum([size for size, _ in sizes.values()])
        return sizes

    def all_unlisted(self) -> list[int]:
        """The numbers of all files that are unlisted, in their order."""
        return sorted(self._unlisted)

    def is_unlisted(self, ino: int) -> bool:
        return ino in self._unlisted

    def unlisted(self, tx: Transaction, inode: Inode) -> bytes | None:
        """The content register of a file that is unlisted; None when it is not."""
        return tx.contents.value_unlisted(inode.ino) if inode.ino in self._unlisted else None

    def forget(self, tx: Transaction, inode: Inode) -> None:
        """The file is not unlisted any more."""
        if inode.ino in self._unlisted:
            self._unlisted.discard(inode.ino)
            tx.contents.end_unlisted(inode.ino)

    def _show_later(self, tx: Transaction, inode: Inode, listed: Content, value: bytes) -> None:
        self._list_later(tx, inode.ino, listed.runs, value, self._numbers(tx, [listed]))
        inode.stored = listed.size

    def _numbers(self, tx: Transaction, contents: Iterable[Content]) -> dict[bytes, int]:
        """The numbers of all chunks that the contents name; the length of a page is not known yet."""
        lengths: dict[bytes, int] = {}
        for one in contents:
            for run in one.runs:
                if run.chunk is not None:
                    length = 0 if one.depth else run.length
                    lengths[run.chunk] = max(length, lengths.get(run.chunk, 0))
        return tx.chunks.known(lengths)

    def _list_later(
        self, tx: Transaction, ino: int, pages: Iterable[Run], value: bytes, numbers: Mapping[bytes, int]
    ) -> None:
        tx.contents.add_pages([(ino, numbers[page.chunk]) for page in pages if page.chunk])
        tx.contents.leave_unlisted(ino, value)
        self._unlisted.add(ino)

    def lacking(self, tx: Transaction, inode: Inode) -> Missing | None:
        """The chunks needed before the file can be read or changed; None when it can be now.

        Raises NoListError (EIO) when what they hold is no list of chunks, and OSError.
        """
        value = self.unlisted(tx, inode)
        if value is None:
            return None
        runs: list[Run] = []
        missing: list[ChunkRef] = []
        for page in _decode(value).runs:
            ref = tx.chunks.find(page.chunk or b"")
            data = None if ref is None else tx.chunks.read_whole(ref)
            if ref is not None and data is None:
                missing.append(ref)
            elif not missing:
                runs += _page(data, page.length)
        if missing:
            return Missing(missing)
        self.forget(tx, inode)
        self._list(tx, inode, runs)
        return None

    def lacking_to_know(self, tx: Transaction, inode: Inode) -> Missing | None:
        """The chunks needed before it is known what the file needs; None when that is. What should be a list
        of chunks and is none names nothing, on all devices. Raises OSError."""
        try:
            return self.lacking(tx, inode)
        except NoListError:
            return None

    def _list(self, tx: Transaction, inode: Inode, runs: Sequence[Run]) -> None:
        parts = _parts(inode.ino, runs, self._numbers(tx, [Content(inode.size, 0, runs)]))
        tx.contents.set_parts(inode.ino, parts)
        inode.stored = sum(length for _, _, length, _ in parts)
        self._inodes.touch(inode)


def _parts(ino: int, runs: Iterable[Run], numbers: Mapping[bytes, int]) -> list[Part]:
    at = 0
    parts: list[Part] = []
    for run in runs:
        if run.chunk is not None:
            parts.append((ino, at, run.length, numbers[run.chunk]))
        at += run.length
    return parts


def _decode(value: bytes | None) -> Content:
    """What no correct device can have written counts as an empty file, on all devices."""
    try:
        return Content(0, 0, ()) if value is None else Content.decode(value)
    except DecodeError:
        return Content(0, 0, ())


def _page(data: bytes | None, length: int) -> list[Run]:
    try:
        runs = decode_runs(data or b"")
    except DecodeError:
        raise NoListError from None
    if sum(run.length for run in runs) != length:
        raise NoListError
    return runs
