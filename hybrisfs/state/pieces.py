"""Checking a part of a chunk: the hashes of its pieces, table `piece`.

A chunk that is read from the journal is checked against its id the first time in the life of a daemon. For
that all of it is read, up to 1 MiB, which takes thirty times as long as the 4 KiB that a program wants. So
large chunks have a hash for each piece of 32 KiB, and a small read checks the pieces that it touches.

The hashes are made of bytes that have just been named or checked, and depend on the content alone: they hold
wherever in the journal the bytes are. They go when the bytes go, by triggers. Where they lack or do not
match, the whole chunk is checked: only its id decides whether it is damaged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hybrisfs.chunk_namer import PIECE_HASH_SIZE, ChunkNamer
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.database import RowWriter
from hybrisfs.state.journal import Journal
from sync.codec import Buffer

__all__ = ["PIECE", "Pieces", "hashes_of_pieces"]

PIECE: Final = 32 << 10
_FEWEST: Final = 4  # pieces of a chunk that has hashes
_SMALL: Final = 8  # a read that is shorter than the chunk by this factor checks only its pieces
_MOST_OPEN: Final = 4096  # partly checked chunks that are remembered: 2 MiB of memory


def hashes_of_pieces(namer: ChunkNamer, chunk: Buffer) -> bytes:
    """The hashes of all pieces of a chunk; none of a small one."""
    if len(chunk) < _FEWEST * PIECE:
        return b""
    with memoryview(chunk) as view:
        return b"".join([namer.piece_hash(view[at : at + PIECE]) for at in range(0, len(view), PIECE)])


class Pieces:
    """The table, and which pieces have been checked. Under the volume's lock."""

    def __init__(self, database: RowWriter, journal: Journal, namer: ChunkNamer) -> None:
        self._db = database
        self._journal = journal
        self._namer = namer
        self._checked = OrderedDict[int, tuple[bytes, set[int]]]()  # by chunk: hashes, pieces that are sound

    def note(self, number: int, hashes: bytes) -> None:
        """Keep the hashes of a chunk whose bytes are here."""
        if hashes:
            self._db.execute(
                "INSERT OR REPLACE INTO piece (chunk, hashes) "
                "SELECT number, ? FROM chunk WHERE number = ? AND segment IS NOT NULL",
                (hashes, number),
            )

    def checked_whole(self, ref: ChunkRef, chunk: bytes) -> None:
        """These are the bytes of the chunk: keep their hashes, unless that has been done."""
        self._checked.pop(ref.number, None)
        if len(chunk) >= _FEWEST * PIECE and self._hashes(ref.number) is None:
            self.note(ref.number, hashes_of_pieces(self._namer, chunk))

    def moved(self, number: int) -> None:
        """The bytes of the chunk are elsewhere in the journal now, or gone."""
        self._checked.pop(number, None)

    def read(self, ref: ChunkRef, skip: int, length: int) -> bytes | None:
        """Bytes *skip*..*skip+length* of a chunk that is here, checked; None when all of it has to be
        checked for them."""
        if ref.segment is None or ref.position is None or length * _SMALL > ref.length or not length:
            return None
        found = self._checked.get(ref.number)
        if found is None:
            hashes = self._hashes(ref.number)
            if hashes is None:
                return None
            found = self._checked[ref.number] = hashes, set()
            if len(self._checked) > _MOST_OPEN:
                self._checked.popitem(last=False)
        hashes, sound = found
        touched = range(skip // PIECE, -(-(skip + length) // PIECE))
        if sound.issuperset(touched):
            return self._journal.read(ref.segment, ref.position + skip, length)
        start = touched.start * PIECE
        upto = min(touched.stop * PIECE, ref.length)
        data = self._journal.read(ref.segment, ref.position + start, upto - start)
        if data is None:
            return None
        with memoryview(data) as view:
            for number in touched:
                piece = view[number * PIECE - start : (number + 1) * PIECE - start]
                at = number * PIECE_HASH_SIZE
                if self._namer.piece_hash(piece) != hashes[at : at + PIECE_HASH_SIZE]:
                    self._distrust(ref.number)
                    return None
        sound.update(touched)
        return data[skip - start : skip - start + length]

    def _distrust(self, number: int) -> None:
        """The bytes have changed, or the hashes: these are made again, if the chunk is sound."""
        del self._checked[number]
        self._db.execute("DELETE FROM piece WHERE chunk = ?", (number,))

    def _hashes(self, number: int) -> bytes | None:
        row = self._db.execute("SELECT hashes FROM piece WHERE chunk = ?", (number,)).fetchone()
        return None if row is None else bytes(row[0])
