"""Chunks on this device: where their bytes are, reading them, and keeping those that were fetched.

`chunk_states` says which states a chunk has and what moves it. Each move is a method, here or in
`chunk_places`.

A chunk read from the journal is checked against its id the first time, or a piece of it against its hash
(`pieces`); a chunk whose bytes have rotted is forgotten when the clouds have it (and fetched again), and is
an I/O error when they do not.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from hybrisfs.bounded import in_groups
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.errors import failure
from hybrisfs.state.bulk import insert_many, select_many, select_with
from hybrisfs.state.chunk_places import ChunkPlaces
from hybrisfs.state.chunk_states import (
    CHUNK_COLUMNS,
    ELSEWHERE,
    EVICTABLE,
    IS_SHOWN,
    ON_CLOUDS,
    ONLY_HERE,
    ChunkRef,
    ChunkState,
    CutRow,
    ForbiddenMoveError,
    state_of,
)
from hybrisfs.state.database import RowWriter
from hybrisfs.state.file_chunks import chunk_named
from hybrisfs.state.journal import Journal
from hybrisfs.state.pieces import Pieces
from hybrisfs.topic import Topic

__all__ = ["ChunkStore"]

log = logging.getLogger(__name__)

_MAX_VERIFIED: Final = 500_000
_RECENT_BYTES: Final = 16 << 20
_WRITTEN_AT_ONCE: Final = 256 << 10
_ADD: Final = "INSERT INTO chunk (id, length, segment, position) VALUES {}"
_FORGET: Final = "UPDATE chunk SET segment = NULL, position = NULL WHERE number = ?"


class ChunkStore(ChunkPlaces):
    """The `chunk` table and the bytes it points to, under the volume's lock."""

    def __init__(self, database: RowWriter, journal: Journal, namer: ChunkNamer) -> None:
        super().__init__(database, journal)
        self._journal = journal
        self._namer: Final = namer
        self.lost: set[int] = set()  # on no cloud and damaged here: nothing need wait for them
        self._verified: set[int] = set()
        self._pieces: Final = Pieces(database, journal, namer)
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._recent_bytes = 0
        self.dropped = Topic[[RowWriter]]()
        """Chunks were given up unread."""
        for segment, count in database.execute(
            f"SELECT segment, count(*) FROM chunk WHERE {ONLY_HERE} GROUP BY segment"
        ):
            self._dirty_pieces[segment] += count
        (newest,) = database.execute(
            "SELECT ifnull(max(segment), 0) FROM chunk WHERE segment IS NOT NULL"
        ).fetchone()
        journal.begin_above(newest)

    def state(self, number: int) -> ChunkState:
        """The state of the chunk with this number."""
        row = self._db.execute(
            "SELECT segment, pack, EXISTS (SELECT 1 FROM spare WHERE chunk = number AND lost) "
            "FROM chunk WHERE number = ?",
            (number,),
        ).fetchone()
        return ChunkState.UNKNOWN if row is None else state_of(*row)

    def get(self, number: int) -> ChunkRef:
        """Raises OSError (ESTALE) when the chunk has been dropped."""
        ref = self.get_if_known(number)
        if ref is None:
            raise failure(errno.ESTALE)
        return ref

    def get_if_known(self, number: int) -> ChunkRef | None:
        """None when the chunk has been dropped."""
        row = self._db.execute(
            f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number = ?", (number,)
        ).fetchone()
        return None if row is None else ChunkRef(*row)

    def find(self, identity: bytes) -> ChunkRef | None:
        """The chunk with this id; None when this device does not know it, or has dropped it."""
        return chunk_named(self._db, identity)

    def newest(self) -> int:
        """The highest number of a chunk, 0 when there is none."""
        (number,) = self._db.execute("SELECT ifnull(max(number), 0) FROM chunk").fetchone()
        return int(number)

    # -- named by files ----------------------------------------------------------------------------

    def add(self, cut: CutRow) -> int:
        """The number of the chunk with this id; it is made when it is new, and revived when its bytes are not
        here, or are damaged and nowhere else. A chunk goes to the clouds again when its pack is condemned,
        and when it cannot be read at the place that a member claims."""
        row = self._db.execute(
            "SELECT number, segment, position, pack, proven FROM chunk WHERE id = ?", (cut.id,)
        ).fetchone()
        if row is None:
            cursor = self._db.execute(_ADD.format("(?, ?, ?, ?)"), cut[:4])
            number = int(cursor.lastrowid or 0)
            self._added(number, cut)
            return number
        number = int(row[0])
        segment, position, pack, proven = row[1:]
        self.soon_named.add(number)
        if pack and not (proven and self.may_rely_on(pack)):
            self._part(number)
            pack = ELSEWHERE
        if segment is None or (not pack and not self._is_sound(number, cut, segment, position)):
            self._place(number, cut.segment, cut.position)
            self._pieces.note(number, cut.pieces)
            if not pack:
                self._release(segment)
                self._dirty_pieces[cut.segment] += 1
            self.lost.discard(number)
        if pack == ELSEWHERE:
            self._take_over(number, cut.length)
        return number

    def add_all(self, cuts: Sequence[CutRow]) -> list[int]:
        """What `add` does with each of them; it costs less when most are new."""
        ids = {cut.id for cut in cuts}
        known = {identity for (identity,) in select_with(self._db, "id", "chunk", "id", ids)}
        new = {cut.id: cut for cut in cuts if cut.id not in known}
        before = self.newest()
        insert_many(self._db, _ADD, [cut[:4] for cut in cuts if new.get(cut.id) is cut])
        made = self._db.execute("SELECT id, number FROM chunk WHERE number > ?", (before,))
        numbers: dict[bytes, int] = dict(made.fetchall())
        for identity, number in numbers.items():
            self._added(number, new[identity])
        return [numbers[cut.id] if new.get(cut.id) is cut else self.add(cut) for cut in cuts]

    def known(self, lengths: Mapping[bytes, int]) -> dict[bytes, int]:
        """The numbers, by their ids, of chunks that another device made; length 0: it is not known yet."""
        found: dict[bytes, int] = {}
        short: list[tuple[int, int]] = []  # it was said that they are shorter than what is shown of them
        columns = "id, number, length, segment IS NOT NULL OR proven"
        for identity, number, length, certain in select_with(self._db, columns, "chunk", "id", lengths):
            found[identity] = number
            if length < lengths[identity] and not certain:
                short.append((lengths[identity], number))
        if short:
            self._db.executemany("UPDATE chunk SET length = ? WHERE number = ?", short)
        if self.condemned:
            self.condemned.see_chunks(found)
        new = [identity for identity in lengths if identity not in found]
        if not new:
            return found
        # Numbers are never used again, so that those made now are above all that were there.
        before = self.newest()
        insert_many(
            self._db,
            "INSERT INTO chunk (id, length, pack) VALUES {}",
            [(identity, lengths[identity], ELSEWHERE) for identity in new],
        )
        found.update(self._db.execute("SELECT id, number FROM chunk WHERE number > ?", (before,)))
        return found

    def take_over(self, number: int) -> None:
        """See to it that the clouds get a chunk that is here and that another device made. Raises
        ForbiddenMoveError when it is not here, or a cloud is known to have it."""
        ref = self.get(number)
        if ref.segment is None or ref.pack:
            raise ForbiddenMoveError("take_over", number)
        self._take_over(number, ref.length)

    def _added(self, number: int, cut: CutRow) -> None:
        self._dirty_pieces[cut.segment] += 1
        self._pieces.note(number, cut.pieces)
        self.soon_named.add(number)

    def _is_sound(self, number: int, cut: CutRow, segment: int, position: int) -> bool:
        if number not in self._verified:
            try:
                data = self._journal.read(segment, position, cut.length)
            except OSError:
                return False
            if data is None or self._namer.chunk_id(data) != cut.id:
                return False
            self._verified.add(number)
        return True

    def _place(self, number: int, segment: int, position: int) -> None:
        self._db.execute(
            "UPDATE chunk SET segment = ?, position = ? WHERE number = ?", (segment, position, number)
        )
        self._verified.discard(number)
        self._pieces.moved(number)

    # -- read, and kept when they were fetched -----------------------------------------------------

    def read(self, ref: ChunkRef, skip: int, length: int) -> bytes | None:
        """Bytes *skip*..*skip+length* of a chunk, or None when this device does not hold it. What a file
        shows beyond the end of a chunk, as no correct device says, is zeros. Raises OSError (EIO) when they
        are damaged here and on no cloud."""
        found = self._read(ref, skip, min(length, max(0, ref.length - skip)))
        return found if found is None or len(found) == length else found.ljust(length, b"\0")

    def _read(self, ref: ChunkRef, skip: int, length: int) -> bytes | None:
        data = self._recent.get(ref.number)
        if data is not None:
            return data[skip : skip + length]
        if ref.segment is None or ref.position is None:
            return None
        if ref.number in self._verified:
            found = self._journal.read(ref.segment, ref.position + skip, length)
            if found is not None:
                return found
            self._rotten(ref)
            return None
        found = self._pieces.read(ref, skip, length)
        if found is not None:
            return found
        whole = self._journal.read(ref.segment, ref.position, ref.length)
        if whole is None or self._namer.chunk_id(whole) != ref.id:
            self._rotten(ref)
            return None
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified.add(ref.number)
        self._pieces.checked_whole(ref, whole)
        return whole if length == ref.length else whole[skip : skip + length]

    def read_whole(self, ref: ChunkRef) -> bytes | None:
        """All bytes of a chunk, or None when this device does not hold it. Raises OSError (EIO)."""
        return self.read(ref, 0, ref.length)

    def _rotten(self, ref: ChunkRef) -> None:
        """The bytes of a chunk are damaged. Raises OSError (EIO) when it is PENDING."""
        if ref.pack is None:
            log.error("chunk %s is damaged on this disk and on no cloud yet", ref.id.hex())
            raise failure(errno.EIO)
        log.warning("chunk %s is damaged or missing on this disk; it will be fetched", ref.id.hex())
        if ref.pack == ELSEWHERE:
            self._release(ref.segment)
        self._db.execute(_FORGET, (ref.number,))

    def keep(self, number: int, data: bytes) -> None:
        """Keep the verified bytes of a chunk that was fetched, on disk when there is room.

        Raises OSError when the chunk has been dropped.
        """
        self.get(number)
        self.keep_all({number: data})

    def keep_all(self, fetched: Mapping[int, bytes]) -> None:
        """Keep the verified bytes of chunks by their numbers, on disk when there is room.

        Those that have been dropped are passed over.
        """
        for number, data in fetched.items():
            self.remember(number, data)
        packs = {ref.number: ref.pack for ref in self.missing(list(fetched))}
        missing = list(packs)
        rows: list[tuple[int, int, int, int]] = []
        try:
            for group in in_groups(missing, lambda number: len(fetched[number]), _WRITTEN_AT_ONCE):
                segment, position = self._journal.append(b"".join([fetched[number] for number in group]))
                for number in group:
                    rows.append((len(fetched[number]), segment, position, number))
                    position += len(fetched[number])
        except OSError as error:
            log.debug("%d chunks are not cached: %s", len(missing) - len(rows), error)
        self._db.executemany("UPDATE chunk SET length = ?, segment = ?, position = ? WHERE number = ?", rows)
        self._verified.difference_update(row[3] for row in rows)
        for row in rows:
            self._pieces.moved(row[3])
        self._dirty_pieces.update(segment for _, segment, _, number in rows if not packs[number])

    def missing(self, numbers: Sequence[int]) -> list[ChunkRef]:
        """Those of the chunks that are not on this device's disk, in the order of the numbers."""
        query = f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number IN (VALUES {{}}) AND c.segment IS NULL"
        found = {row[0]: ChunkRef(*row) for row in select_many(self._db, query, [(one,) for one in numbers])}
        return [found[number] for number in numbers if number in found]

    def remember(self, number: int, data: bytes) -> None:
        """Keep the verified bytes of a chunk for a moment, in memory alone."""
        if number in self._recent:
            return
        self._recent[number] = data
        self._recent_bytes += len(data)
        while self._recent_bytes > _RECENT_BYTES:
            _, dropped = self._recent.popitem(last=False)
            self._recent_bytes -= len(dropped)

    # -- evicted and dropped -----------------------------------------------------------------------

    def forget_local(self, segments: list[int]) -> None:
        """The journal segments are about to go: no chunk is there any more. Raises ForbiddenMoveError when
        one of them holds bytes that no cloud is known to have."""
        for segment in segments:
            if self._dirty_pieces[segment]:
                raise ForbiddenMoveError("forget_local", segment)
        self._recent.clear()
        self._recent_bytes = 0
        for segment in segments:
            self._db.execute("UPDATE chunk SET segment = NULL, position = NULL WHERE segment = ?", (segment,))

    def forget_clean(self, segment: int, spared: Container[int] = ()) -> None:
        """Cached chunks of a segment that stays are about to go, but for those with the *spared* numbers."""
        rows = self._db.execute(
            f"SELECT number FROM chunk WHERE segment = ? AND {ON_CLOUDS}", (segment,)
        ).fetchall()
        self._db.executemany(_FORGET, [row for row in rows if row[0] not in spared])

    def forget(self, numbers: Iterable[int]) -> tuple[int, set[int]]:
        """Those of the chunks that the clouds hold are about to go; their bytes, and their segments."""
        size, segments = 0, set[int]()
        for number in numbers:
            row = self._db.execute(
                f"SELECT c.length, c.segment FROM chunk c WHERE c.number = ? AND ({EVICTABLE})", (number,)
            ).fetchone()
            if row is None:
                continue
            self._db.execute(_FORGET, (number,))
            self._recent_bytes -= len(self._recent.pop(number, b""))
            size += row[0]
            segments.add(row[1])
        return size, segments

    def drop_unwanted(self) -> None:
        """Forget chunks that no cloud has yet and no file names any more. `dropped` says so. Of what
        another device made only the bytes go: it may yet tell where that is."""
        rows = self._db.execute(
            f"SELECT number, segment, pack FROM chunk c WHERE {ONLY_HERE} AND NOT {IS_SHOWN}"
        ).fetchall()
        going = [row for row in rows if row[0] not in self.soon_named]
        for number, segment, pack in going:
            self._release(segment)
            spares = self.places(self.get(number)) if pack is None else []
            if pack is None and not spares:
                self._drop(number)
                continue
            self._db.execute(_FORGET, (number,))
            if spares:
                self.rely_on_spare(number, spares[0].pack or ELSEWHERE)
        if any(pack is None for _, _, pack in going):
            self.dropped(self._db)
