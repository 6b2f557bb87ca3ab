"""Chunks on this device: where their bytes are, reading them, and keeping those that were fetched.

A chunk read from the journal is checked against its id the first time; a chunk whose bytes have rotted
is forgotten when the clouds have it (and fetched again), and is an I/O error when they do not.

**Where a chunk is on the clouds** is what members say. A place of a chunk is *proven* when this device has
put it there, or read it there, and a claim until then. A claim is believed where nothing is lost by it: for
a chunk that is not here, or that the claimant made itself, by all files that show it. It is one more place to
look (a *spare*) for a chunk that this device made, even after the claim, or has from a third one, which may
be gone; for one whose pack the clouds had lost; and for one that stands somewhere already. Reading tries all
places, the one of the row first. A pack is needed for its spares as long as these are not proven to be
elsewhere (`hybrisfs.discard.references`).
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hybrisfs.filesystem.condemned import Condemned
from hybrisfs.filesystem.groups import in_groups
from hybrisfs.filesystem.names import failure
from hybrisfs.filesystem.registers import PackedChunk
from hybrisfs.store.bulk import insert_many, select_many, select_with
from hybrisfs.store.database import Database
from hybrisfs.store.journal import Journal
from hybrisfs.topic import Topic
from sync.codec import Buffer

__all__ = [
    "CHUNK_COLUMNS",
    "ELSEWHERE",
    "MAX_CHUNK",
    "ONLY_HERE",
    "ON_CLOUDS",
    "ChunkRef",
    "ChunkStore",
    "CutRow",
]

log = logging.getLogger(__name__)

MAX_CHUNK: Final = 1 << 20
ELSEWHERE: Final = 0  # the pack of a chunk that another device made and has yet to tell where it is
ON_CLOUDS: Final = "pack > 0"
"""The condition in SQL for chunks whose bytes may go from this device: the clouds are known to have them."""
ONLY_HERE: Final = (
    "segment IS NOT NULL AND number IN "
    "(SELECT number FROM chunk WHERE pack IS NULL UNION ALL "
    f"SELECT number FROM chunk WHERE pack = {ELSEWHERE})"
)
"""The condition for chunks that pin their segment: as far as this device knows, no cloud has their bytes."""
CHUNK_COLUMNS: Final = "c.number, c.id, c.length, c.segment, c.position, c.pack, c.offset, c.sealed, c.proven"
_MAX_VERIFIED: Final = 500_000
_RECENT_BYTES: Final = 16 << 20
_WRITTEN_AT_ONCE: Final = 256 << 10


class ChunkRef(NamedTuple):
    """A row of `chunk`."""

    number: int
    id: bytes
    length: int
    segment: int | None
    position: int | None
    pack: int | None
    offset: int | None
    sealed: int | None
    proven: int = 0


class CutRow(NamedTuple):
    """A chunk just cut: its id, and where its bytes lie in the journal."""

    id: bytes
    length: int
    segment: int
    position: int


class ChunkStore:
    """The `chunk` table and the bytes it points to, under the volume's lock."""

    def __init__(self, database: Database, journal: Journal, chunk_id: Callable[[Buffer], bytes]) -> None:
        self._db = database
        self._journal = journal
        self._chunk_id = chunk_id
        self.claimed: set[int] = set()  # made elsewhere, and now by us too: we see that a cloud gets them
        self.lost: set[int] = set()  # on no cloud and damaged here: nobody need wait for them
        self._verified: set[int] = set()
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._recent_bytes = 0
        self.settling: set[int] = set()  # chunks that a file is about to name
        self.located = Topic[[]]()
        """A cloud is known to have a chunk."""
        self.dropped = Topic[[]]()
        """Chunks were given up unread."""
        self.condemned = Condemned(database)
        self.doubted: set[int] = {  # packs that may be gone: nothing new relies on these
            number for (number,) in database.execute("SELECT number FROM pack WHERE doubted")
        }
        for segment, count in database.execute(
            f"SELECT segment, count(*) FROM chunk WHERE {ONLY_HERE} GROUP BY segment"
        ):
            journal.pins[segment] += count

    def get(self, number: int) -> ChunkRef:
        """Raises OSError when the chunk has been dropped."""
        row = self._db.execute(
            f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number = ?", (number,)
        ).fetchone()
        if row is None:
            raise failure(errno.ESTALE)
        return ChunkRef(*row)

    def add(self, cut: CutRow) -> int:
        """The number of the chunk with this id; it is made when it is new, and revived when its bytes are not
        here, or are damaged and nowhere else. A chunk goes to the clouds again when its pack is condemned,
        and when it cannot be read at the place that a member claims."""
        row = self._db.execute(
            "SELECT number, segment, position, pack, proven FROM chunk WHERE id = ?", (cut.id,)
        ).fetchone()
        if row is None:
            cursor = self._db.execute(
                "INSERT INTO chunk (id, length, segment, position) VALUES (?, ?, ?, ?)", cut
            )
            self._journal.pins[cut.segment] += 1
            number = int(cursor.lastrowid or 0)
            self.settling.add(number)
            return number
        number = int(row[0])
        segment, position, pack, proven = row[1:]
        self.settling.add(number)
        if pack and (not proven or pack in self.condemned or pack in self.doubted):
            self._part(number)
            pack = ELSEWHERE
        if segment is None or (not pack and not self._is_sound(number, cut, segment, position)):
            self._place(number, cut.segment, cut.position)
            if not pack:
                self._unpin(segment)
                self._journal.pins[cut.segment] += 1
            self.lost.discard(number)
        if pack == ELSEWHERE:
            self._claim(number, cut.length)
        return number

    def known(self, lengths: Mapping[bytes, int]) -> dict[bytes, int]:
        """The numbers, by their ids, of chunks that another device made; length 0: it is not known yet."""
        found: dict[bytes, int] = {}
        short: list[tuple[int, int]] = []  # it was said that they are shorter than what is shown of them
        columns = "id, number, length, segment"
        for identity, number, length, segment in select_with(self._db, columns, "chunk", "id", lengths):
            found[identity] = number
            if length < lengths[identity] and segment is None:
                short.append((lengths[identity], number))
        if short:
            self._db.executemany("UPDATE chunk SET length = ? WHERE number = ?", short)
        if self.condemned:
            self.condemned.see_chunks(found)
        new = [identity for identity in lengths if identity not in found]
        if not new:
            return found
        # Numbers are never used again, so that those made now are above all that were there.
        (before,) = self._db.execute("SELECT ifnull(max(number), 0) FROM chunk").fetchone()
        insert_many(
            self._db,
            "INSERT INTO chunk (id, length, pack) VALUES {}",
            [(identity, lengths[identity], ELSEWHERE) for identity in new],
        )
        found.update(self._db.execute("SELECT id, number FROM chunk WHERE number > ?", (before,)))
        return found

    def claim(self, number: int) -> None:
        """See to it that the clouds get a chunk that is here and that another device made."""
        self._claim(number, self.get(number).length)

    def give_up_pack(self, number: int) -> None:
        """The pack of the chunk is gone: if its bytes are here, they go to the clouds anew."""
        self._part(number)
        ref = self.get(number)
        if ref.segment is not None:
            self._claim(number, ref.length)

    def _claim(self, number: int, length: int) -> None:
        """A file of ours names the chunk now: do not rely on the other device to bring it to the clouds."""
        self._db.execute("UPDATE chunk SET pack = NULL, length = ? WHERE number = ?", (length, number))
        self.claimed.add(number)

    def _unpin(self, segment: int | None) -> None:
        """A chunk needs that segment no more."""
        if segment is not None:
            self._journal.pins[segment] -= 1

    def _is_sound(self, number: int, cut: CutRow, segment: int, position: int) -> bool:
        if number not in self._verified:
            try:
                data = self._journal.read(segment, position, cut.length)
            except OSError:
                return False
            if data is None or self._chunk_id(data) != cut.id:
                return False
            self._verified.add(number)
        return True

    def _place(self, number: int, segment: int, position: int) -> None:
        self._db.execute(
            "UPDATE chunk SET segment = ?, position = ? WHERE number = ?", (segment, position, number)
        )
        self._verified.discard(number)

    def read(self, ref: ChunkRef, skip: int, length: int) -> bytes | None:
        """Bytes *skip*..*skip+length* of a chunk, or None when this device does not hold it."""
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
        whole = self._journal.read(ref.segment, ref.position, ref.length)
        if whole is None or self._chunk_id(whole) != ref.id:
            self._rotten(ref)
            return None
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified.add(ref.number)
        return whole if length == ref.length else whole[skip : skip + length]

    def _rotten(self, ref: ChunkRef) -> None:
        if ref.pack is None:
            log.error("chunk %s is damaged on this disk and on no cloud yet", ref.id.hex())
            raise failure(errno.EIO)
        log.warning("chunk %s is damaged or missing on this disk; it will be fetched", ref.id.hex())
        if ref.pack == ELSEWHERE:
            self._unpin(ref.segment)
        self._db.execute("UPDATE chunk SET segment = NULL, position = NULL WHERE number = ?", (ref.number,))

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
            self._remember(number, data)
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
        self._journal.pins.update(segment for _, segment, _, number in rows if not packs[number])

    def missing(self, numbers: Sequence[int]) -> list[ChunkRef]:
        """Those of the chunks that are not on this device's disk, in the order of the numbers."""
        query = f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number IN (VALUES {{}}) AND c.segment IS NULL"
        found = {row[0]: ChunkRef(*row) for row in select_many(self._db, query, [(one,) for one in numbers])}
        return [found[number] for number in numbers if number in found]

    def _remember(self, number: int, data: bytes) -> None:
        if number in self._recent:
            return
        self._recent[number] = data
        self._recent_bytes += len(data)
        while self._recent_bytes > _RECENT_BYTES:
            _, dropped = self._recent.popitem(last=False)
            self._recent_bytes -= len(dropped)

    def forget_local(self, segments: list[int]) -> None:
        """The journal segments are about to go: no chunk is there any more."""
        self._recent.clear()
        self._recent_bytes = 0
        for segment in segments:
            self._db.execute("UPDATE chunk SET segment = NULL, position = NULL WHERE segment = ?", (segment,))

    def forget_clean(self, segment: int, spared: Container[int] = ()) -> None:
        """Cached chunks of a segment that stays are about to go, but for those with the *spared* numbers."""
        rows = self._db.execute(
            f"SELECT number FROM chunk WHERE segment = ? AND {ON_CLOUDS}", (segment,)
        ).fetchall()
        self._db.executemany(
            "UPDATE chunk SET segment = NULL, position = NULL WHERE number = ?",
            [row for row in rows if row[0] not in spared],
        )

    def forget(self, numbers: Iterable[int]) -> tuple[int, set[int]]:
        """Those of the chunks that the clouds hold are about to go; their bytes, and their segments."""
        size, segments = 0, set[int]()
        for number in numbers:
            row = self._db.execute(
                f"SELECT length, segment FROM chunk WHERE number = ? AND segment IS NOT NULL AND {ON_CLOUDS}",
                (number,),
            ).fetchone()
            if row is None:
                continue
            self._db.execute("UPDATE chunk SET segment = NULL, position = NULL WHERE number = ?", (number,))
            self._recent_bytes -= len(self._recent.pop(number, b""))
            size += row[0]
            segments.add(row[1])
        return size, segments

    def drop_unwanted(self) -> None:
        """Forget chunks that no cloud has yet and no file names any more. `dropped` tells of it. Of what
        another device made only the bytes go: it may yet tell where that is."""
        rows = self._db.execute(
            f"SELECT number, segment, pack FROM chunk WHERE {ONLY_HERE} "
            "AND NOT EXISTS (SELECT 1 FROM file_chunk f WHERE f.chunk = number) "
            "AND NOT EXISTS (SELECT 1 FROM content_page p WHERE p.chunk = number)"
        ).fetchall()
        going = [row for row in rows if row[0] not in self.settling]
        for number, segment, pack in going:
            self._unpin(segment)
            spares = self.places(self.get(number)) if pack is None else []
            if pack is None and not spares:
                self._db.execute("DELETE FROM spare WHERE chunk = ?", (number,))
                self._db.execute("DELETE FROM chunk WHERE number = ?", (number,))
                continue
            self._db.execute("UPDATE chunk SET segment = NULL, position = NULL WHERE number = ?", (number,))
            if spares:
                self.rely_on_spare(number, spares[0].pack or ELSEWHERE)
        if any(pack is None for _, _, pack in going):
            self.dropped()

    def packed_elsewhere(
        self,
        packs: Sequence[tuple[int, Sequence[PackedChunk]]],
        *,
        hearsay: bool = False,
        vouched: Callable[[Collection[int]], Container[int]] = lambda numbers: numbers,
    ) -> None:
        """Another device says that it has put chunks into these packs, given by number. *hearsay*: nobody has
        signed it, so that nothing is let go for it. *vouched* tells of which chunks that are here nobody but
        that device would lose anything by an untruth."""
        named = {one.id for _, chunks in packs for one in chunks}
        found = select_with(self._db, "id, number, segment, pack, length", "chunk", "id", named)
        rows = {row[0]: row[1:] for row in found}
        kept = [
            number for number, segment, pack, _ in rows.values() if segment is not None and pack == ELSEWHERE
        ]
        doubtful = self._have_places(kept)
        believed = vouched(kept) if kept and not hearsay else ()
        new: dict[bytes, tuple[bytes, int, int, int, int]] = {}
        again: list[tuple[int, Sequence[PackedChunk]]] = []  # further packs of chunks that are new
        moved: list[tuple[int, int, int, int, int]] = []
        spare: list[tuple[int, int, int, int, int]] = []
        for pack, chunk in ((pack, chunk) for pack, chunks in packs for chunk in chunks):
            if chunk.id not in rows:
                if chunk.id in new:
                    again.append((pack, [chunk]))
                else:
                    new[chunk.id] = chunk.id, chunk.length, pack, chunk.offset, chunk.sealed
                continue
            number, segment, before, length = rows[chunk.id]
            if before == pack or (not before and chunk.length < length):
                continue  # it has been said before, or cannot be: more than that is shown of it
            if before == ELSEWHERE and (segment is None or (number in believed and number not in doubtful)):
                self._unpin(segment)
                # What is here has been measured.
                told = chunk.length if segment is None else length
                moved.append((told, pack, chunk.offset, chunk.sealed, number))
                rows[chunk.id] = number, segment, pack, told
            else:
                spare.append((pack, number, chunk.offset, chunk.sealed, chunk.length))
        self._db.executemany(
            "UPDATE chunk SET length = ?, pack = ?, offset = ?, sealed = ? WHERE number = ?", moved
        )
        self._db.executemany(
            "INSERT INTO spare (pack, chunk, offset, sealed, length) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (pack, chunk) DO NOTHING",
            spare,
        )
        insert_many(
            self._db, "INSERT INTO chunk (id, length, pack, offset, sealed) VALUES {}", list(new.values())
        )
        if moved:
            # That it stood here, too, is no news any more.
            self._db.executemany(
                "DELETE FROM spare WHERE pack = ? AND chunk = ?",
                [(pack, number) for _, pack, _, _, number in moved],
            )
            self.located()
        if again:
            self.packed_elsewhere(again, hearsay=hearsay, vouched=vouched)

    def _have_places(self, numbers: Iterable[int]) -> set[int]:
        """Those of the chunks that the clouds have lost, or that stand elsewhere by another claim: which of
        their places is the true one is found out by reading."""
        query = "SELECT chunk FROM spare WHERE chunk IN (VALUES {})"
        return {number for (number,) in select_many(self._db, query, [(one,) for one in numbers])}

    def repacked(
        self, identity: bytes, before: int, pack: int, offset: int, sealed: int, *, proven: bool = True
    ) -> None:
        """The pack *before* was rewritten: if the chunk is read from there, it is read from *pack* now.
        *proven*: by this device."""
        row = self._db.execute(
            "SELECT number FROM chunk WHERE id = ? AND pack = ?", (identity, before)
        ).fetchone()
        if row is not None and pack not in self.condemned and pack not in self.doubted:
            self.packed(row[0], pack, offset, sealed, proven=proven)

    def packed(self, number: int, pack: int, offset: int, sealed: int, *, proven: bool = True) -> bool:
        """The chunk is on the clouds, in the given pack; False when it was dropped while it was under way."""
        row = self._db.execute("SELECT segment, pack FROM chunk WHERE number = ?", (number,)).fetchone()
        if row is None:
            return False
        if row[1] and row[1] != pack:
            self._part(number)
        if row[1] != pack:
            self._unpin(row[0])
        self._db.execute(
            "UPDATE chunk SET pack = ?1, offset = ?2, sealed = ?3, "
            "proven = max(?4, proven AND pack IS ?1) WHERE number = ?5",
            (pack, offset, sealed, proven, number),
        )
        self.located()
        self._db.execute("DELETE FROM spare WHERE pack = ? AND chunk = ?", (pack, number))
        return True

    def places(self, ref: ChunkRef) -> list[ChunkRef]:
        """The chunk at all places where it is said to be on the clouds: the one where it is read first, then
        the likeliest."""
        rows = self._db.execute(
            "SELECT s.length, s.pack, s.offset, s.sealed, s.proven FROM spare s "
            "JOIN pack p ON p.number = s.pack WHERE s.chunk = ? AND p.n > 0 "
            "ORDER BY p.doubted, s.proven DESC, s.pack",
            (ref.number,),
        )
        spares = [
            ref._replace(length=length or ref.length, pack=pack, offset=offset, sealed=sealed, proven=proven)
            for length, pack, offset, sealed, proven in rows.fetchall()
        ]
        return [ref, *spares] if ref.pack else spares

    def is_claimed(self, number: int) -> bool:
        """Whether a member says of a chunk that no cloud is known to have that it has put it there."""
        row = self._db.execute("SELECT 1 FROM spare WHERE chunk = ? LIMIT 1", (number,)).fetchone()
        return row is not None

    def is_on_clouds(self, number: int) -> bool:
        """Whether the chunk need not be brought to the clouds: it is there, or was dropped."""
        row = self._db.execute("SELECT pack FROM chunk WHERE number = ?", (number,)).fetchone()
        return row is None or bool(row[0])

    def relies_on(self, number: int, pack: int) -> bool:
        """Whether this device needs a pack to have a chunk that is said to be in it: it has yet to read it in
        another one, or to put it there."""
        row = self._db.execute(
            "SELECT pack, proven, segment FROM chunk WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            return False
        return row[0] == pack or not row[1] if row[0] else row[2] is None

    def rely_on_spare(self, number: int, pack: int) -> None:
        """Read the chunk from another pack, in which it is said to be, too."""
        length, offset, sealed, proven = self._db.execute(
            "SELECT length, offset, sealed, proven FROM spare WHERE chunk = ? AND pack = ?", (number, pack)
        ).fetchone()
        self.packed(number, pack, offset, sealed, proven=proven)
        self._db.execute(
            "UPDATE chunk SET length = ?1 WHERE number = ?2 AND segment IS NULL AND ?1 > 0", (length, number)
        )

    def read_at(self, refs: Sequence[ChunkRef]) -> None:
        """Chunks have been read where these refs say: there they are read from now on. Those that have other
        places by now are passed over."""
        if self._are_known(refs):
            return
        packs = {one.pack for one in refs}
        self._db.executemany("UPDATE pack SET proven = 1 WHERE number = ?", [(pack,) for pack in packs])
        spares = [
            pack
            for pack in packs
            if self._db.execute("SELECT 1 FROM spare WHERE pack = ?", (pack,)).fetchone()
        ]
        for one in refs if spares else ():
            cursor = self._db.execute(
                "UPDATE spare SET proven = 1 WHERE pack = ? AND chunk = ? AND offset = ? AND sealed = ?",
                (one.pack, one.number, one.offset, one.sealed),
            )
            if cursor.rowcount:
                self.rely_on_spare(one.number, one.pack or ELSEWHERE)
        self._db.executemany(
            "UPDATE chunk SET proven = 1 WHERE pack = ? AND number = ? AND offset = ? AND sealed = ?",
            [(one.pack, one.number, one.offset, one.sealed) for one in refs],
        )

    def _are_known(self, refs: Sequence[ChunkRef]) -> bool:
        """Whether these places, which are those of the rows, are proven already."""
        query = "SELECT number, pack FROM chunk WHERE proven AND number IN (VALUES {})"
        known = dict(select_many(self._db, query, [(one.number,) for one in refs if one.proven]))
        return all(known.get(one.number) == one.pack for one in refs)

    def part(self, number: int) -> None:
        """The clouds have lost the pack of the chunk: no cloud is known to have it."""
        self._part(number, lost=True)

    def _part(self, number: int, *, lost: bool = False) -> None:
        """Rely on the pack of the chunk no longer, but remember that it is there, or that the clouds have
        *lost* it. The bytes of the chunk are pinned."""
        self._db.execute(
            "INSERT OR REPLACE INTO spare (pack, chunk, offset, sealed, length, proven, lost) "
            "SELECT pack, number, offset, sealed, length, proven, ? FROM chunk WHERE number = ? AND pack > 0",
            (lost, number),
        )
        self._db.execute(
            "UPDATE chunk SET pack = ?, offset = NULL, sealed = NULL, proven = 0 WHERE number = ?",
            (ELSEWHERE, number),
        )
        (segment,) = self._db.execute("SELECT segment FROM chunk WHERE number = ?", (number,)).fetchone()
        if segment is not None:
            self._journal.pins[segment] += 1
