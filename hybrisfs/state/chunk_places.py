"""Where chunks are on the clouds: what this device has put or read there, and what members say.

A place of a chunk is *proven* when this device has put it there, or read it there, and a claim until then. A
claim is believed where nothing is lost by it: for a chunk that is not here, or that the claimant made itself,
by all files that show it. It is one more place to look (a *spare*) for a chunk that this device made, even
after the claim, or has from a third one, which may be gone; for one whose pack the clouds had lost; and for
one that stands somewhere already. Reading tries all places, the one of the row first. A pack is needed for
its spares as long as these are not proven to be elsewhere (`hybrisfs.gc.find`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from hybrisfs.registers.tree import PackedChunk
from hybrisfs.state.bulk import insert_many, select_many, select_with
from hybrisfs.state.chunk_states import ELSEWHERE, IS_SHOWN, ChunkRef, ForbiddenMoveError
from hybrisfs.state.database import RowWriter
from hybrisfs.state.disposals import Condemned
from hybrisfs.state.journal import Journal
from hybrisfs.state.unplaced import deferred_chunks
from hybrisfs.topic import Topic

__all__ = ["ChunkPlaces"]


class ChunkPlaces:
    """The half of `ChunkStore` that knows where chunks are on the clouds. The volume's lock is held."""

    def __init__(self, database: RowWriter, journal: Journal) -> None:
        self._db = database
        self._dirty_pieces = journal.dirty_pieces
        self.taken_over: set[int] = set()  # made elsewhere, and now by us too: we see that a cloud gets them
        self.soon_named: set[int] = set()  # chunks that a file is about to name
        # PENDING chunks for which nothing waits, and the inode that has them (docs/internals/write-path.md).
        self.deferred = deferred_chunks(database)
        self.located = Topic[[]]()
        """A cloud is known to have a chunk."""
        self.condemned = Condemned(database)
        self.doubted: set[int] = {  # packs that may be gone: nothing new relies on these
            number for (number,) in database.execute("SELECT number FROM pack WHERE doubted")
        }

    # -- put there, by this device or by others ----------------------------------------------------

    def packed(self, number: int, pack: int, offset: int, sealed: int, *, proven: bool = True) -> bool:
        """The chunk is on the clouds, in the given pack; False when it was dropped while it was under way."""
        row = self._db.execute("SELECT segment, pack FROM chunk WHERE number = ?", (number,)).fetchone()
        if row is None:
            return False
        if row[1] and row[1] != pack:
            self._part(number)
        if row[1] != pack:
            self._release(row[0])
        self._db.execute(
            "UPDATE chunk SET pack = ?1, offset = ?2, sealed = ?3, "
            "proven = max(?4, proven AND pack IS ?1) WHERE number = ?5",
            (pack, offset, sealed, proven, number),
        )
        self.deferred.pop(number, None)
        self.located()
        self._db.execute("DELETE FROM spare WHERE pack = ? AND chunk = ?", (pack, number))
        return True

    def hurry(self, numbers: Iterable[int]) -> None:
        """Something waits for these chunks. Those that are deferred are so no more."""
        found = self.deferred.keys() & numbers
        for number in found:
            del self.deferred[number]
            self.taken_over.add(number)  # the packer may have passed it by
        if found:
            self._db.add_meta("hurried", max(found))

    def repacked(
        self, identity: bytes, before: int, pack: int, offset: int, sealed: int, *, proven: bool = True
    ) -> None:
        """The pack *before* was rewritten: if the chunk is read from there, it is read from *pack* now.
        *proven*: by this device."""
        row = self._db.execute(
            "SELECT number FROM chunk WHERE id = ? AND pack = ?", (identity, before)
        ).fetchone()
        if row is not None and self.may_rely_on(pack):
            self.packed(row[0], pack, offset, sealed, proven=proven)

    def packed_elsewhere(
        self,
        packs: Sequence[tuple[int, Sequence[PackedChunk]]],
        *,
        hearsay: bool = False,
        vouched: Callable[[Collection[int]], Container[int]] = lambda numbers: numbers,
    ) -> None:
        """Another device says that it has put chunks into these packs, given by number. *hearsay*: no device
        has signed it, so nothing is let go for it. *vouched* returns those of some chunks that are here by
        which no other device loses anything if it is untrue."""
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
            if before == pack or (not before and segment is not None and chunk.length < length):
                continue  # it has been said before, or cannot be: more than that is here
            if before == ELSEWHERE and (segment is None or (number in believed and number not in doubtful)):
                self._release(segment)
                # What is here has been measured; of what is not, members say what they like until it is read.
                told = max(chunk.length, length) if segment is None else length
                moved.append((told, pack, chunk.offset, chunk.sealed, number))
                rows[chunk.id] = number, segment, pack, told
            else:
                spare.append((pack, number, chunk.offset, chunk.sealed, chunk.length))
        self._note_places(list(new.values()), moved, spare)
        if again:
            self.packed_elsewhere(again, hearsay=hearsay, vouched=vouched)

    def _note_places(
        self,
        new: Sequence[tuple[bytes, int, int, int, int]],
        moved: Sequence[tuple[int, int, int, int, int]],
        spare: Sequence[tuple[int, int, int, int, int]],
    ) -> None:
        """*new*: id, length, pack, offset, sealed. *moved*: length, pack, offset, sealed, number. *spare*:
        pack, number, offset, sealed, length."""
        self._db.executemany(
            "UPDATE chunk SET length = ?, pack = ?, offset = ?, sealed = ? WHERE number = ?", moved
        )
        self._db.executemany(
            "INSERT INTO spare (pack, chunk, offset, sealed, length) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (pack, chunk) DO NOTHING",
            spare,
        )
        insert_many(self._db, "INSERT INTO chunk (id, length, pack, offset, sealed) VALUES {}", new)
        if moved:
            # That it stood here, too, is no news any more.
            self._db.executemany(
                "DELETE FROM spare WHERE pack = ? AND chunk = ?",
                [(pack, number) for _, pack, _, _, number in moved],
            )
            self.located()

    def _have_places(self, numbers: Iterable[int]) -> set[int]:
        """Those of the chunks that the clouds have lost, or that stand elsewhere by another claim: which of
        their places is the true one is found out by reading."""
        query = "SELECT chunk FROM spare WHERE chunk IN (VALUES {})"
        return {number for (number,) in select_many(self._db, query, [(one,) for one in numbers])}

    # -- asked for ---------------------------------------------------------------------------------

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

    def may_rely_on(self, pack: int | None) -> bool:
        """Whether the pack is to stay, for all that is known here: something new may rely on it."""
        return pack not in self.condemned and pack not in self.doubted

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

    # -- read there --------------------------------------------------------------------------------

    def rely_on_spare(self, number: int, pack: int) -> None:
        """Read the chunk from another pack, in which it is said to be, too. Raises ForbiddenMoveError when
        nothing says so."""
        row = self._db.execute(
            "SELECT length, offset, sealed, proven FROM spare WHERE chunk = ? AND pack = ?", (number, pack)
        ).fetchone()
        if row is None:
            raise ForbiddenMoveError("rely_on_spare", number)
        length, offset, sealed, proven = row
        self.packed(number, pack, offset, sealed, proven=proven)
        self._db.execute(
            "UPDATE chunk SET length = ?1 WHERE number = ?2 AND segment IS NULL AND ?1 > 0", (length, number)
        )

    def rely_on_spares(self, pack: int, but: Container[int] = (), *, gone: bool = False) -> None:
        """Let chunks of a pack be read from other packs that hold them, too, and that are to stay; not from
        those of *but*. When the pack is *gone*, those that are not here are also looked for where members
        only say that they are."""
        rows = self._db.execute(
            "SELECT s.chunk, s.pack, s.proven OR (? AND c.segment IS NULL) FROM chunk c "
            "JOIN spare s ON s.chunk = c.number JOIN pack p ON p.number = s.pack "
            "WHERE c.pack = ? AND c.pack > 0 AND p.n > 0 AND NOT p.doubted ORDER BY s.proven DESC, s.pack",
            (gone, pack),
        ).fetchall()
        moved = set[int]()
        for number, other, will_do in rows:
            if will_do and other not in self.condemned and other not in but and number not in moved:
                moved.add(number)
                self.rely_on_spare(number, other)

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

    # -- packs that end ----------------------------------------------------------------------------

    def set_aside(self, pack: int, but: Container[int] = ()) -> None:
        """The clouds have lost a pack: its chunks are on no cloud until they have been put there once more,
        or read there at another place, whatever members say. What other packs hold as well, except those of
        *but*, which the clouds have lost, too, is read from there. `spare` remembers where a chunk was, in
        case that the clouds have it again."""
        self.rely_on_spares(pack, but, gone=True)
        rows = self._db.execute("SELECT number FROM chunk WHERE pack = ? AND pack > 0", (pack,)).fetchall()
        for (number,) in rows:
            self._part(number, lost=True)

    def take_back(self, pack: int) -> None:
        """The clouds have a pack that was set aside, after all. Chunks that are here stay as they are
        until they have been read there, unless that is known already."""
        rows = self._db.execute(
            "SELECT c.number FROM spare s JOIN chunk c ON c.number = s.chunk "
            "JOIN pack p ON p.number = s.pack "
            f"WHERE s.pack = ? AND s.lost AND c.pack = {ELSEWHERE} AND p.n > 0 "
            "AND (s.proven OR c.segment IS NULL)",
            (pack,),
        ).fetchall()
        for (number,) in rows:
            self.rely_on_spare(number, pack)

    def doubt_pack(self, pack: bytes, clock: int, branch: bytes) -> None:
        """A member says that the pack with this id has ended, and this device cannot tell whether
        that is so.

        What is in it is still read from there, and what has been here stays as it is. But nothing new relies
        on it, no pack gets its name, and none of its shares is deleted by this device on that account.
        """
        row = self._db.execute(
            "INSERT INTO pack (id, k, n, placement, clock, branch, doubted) VALUES (?, 0, 0, x'', ?, ?, 1) "
            "ON CONFLICT (id) DO UPDATE SET doubted = 1 WHERE n > 0 RETURNING number",
            (pack, clock, branch),
        ).fetchone()
        if row is not None:
            self.doubted.add(row[0])

    def end_pack(self, pack: bytes, clock: int, branch: bytes) -> None:
        """The pack with this id is gone from the clouds, or about to go, as the update at *clock* says.

        All devices have agreed that none of them needs its chunks. Should a file here name one all the same
        (after a restore from a backup), it goes to the clouds once more when its bytes are here, and else
        waits for another device that has them.
        """
        (number,) = self._db.execute(
            "INSERT INTO pack (id, k, n, placement, clock, branch) VALUES (?, 0, 0, x'', ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET k = 0, n = 0, placement = x'', doubted = 0, "
            "clock = max(clock, excluded.clock), "
            "branch = CASE WHEN excluded.clock >= clock THEN excluded.branch ELSE branch END "
            "RETURNING number",
            (pack, clock, branch),
        ).fetchone()
        self.doubted.discard(number)
        self.rely_on_spares(number, gone=True)
        for chunk, length, segment, shown in self._db.execute(
            f"SELECT c.number, c.length, c.segment, {IS_SHOWN} FROM chunk c WHERE c.pack = ? AND c.pack > 0",
            (number,),
        ).fetchall():
            if not shown and chunk not in self.soon_named:
                self._drop(chunk)
                continue
            self._part(chunk)
            if segment is not None:
                self._take_over(chunk, length)
        self._db.execute("DELETE FROM spare WHERE pack = ?", (number,))
        self._db.execute("DELETE FROM idle_pack WHERE pack = ?", (number,))
        self.condemned.release([number])

    # -- the steps that these are made of ----------------------------------------------------------

    def _take_over(self, number: int, length: int) -> None:
        """A file of ours names the chunk now: do not rely on the other device to bring it to the clouds."""
        self._db.execute("UPDATE chunk SET pack = NULL, length = ? WHERE number = ?", (length, number))
        self.taken_over.add(number)

    def _part(self, number: int, *, lost: bool = False) -> None:
        """Rely on the pack of the chunk no longer, but remember that it is there, or that the clouds have
        *lost* it. Its segment becomes dirty. Raises ForbiddenMoveError when it is in no pack."""
        row = self._db.execute("SELECT segment, pack FROM chunk WHERE number = ?", (number,)).fetchone()
        if row is None or not row[1]:
            raise ForbiddenMoveError("to part from its pack", number)
        self._db.execute(
            "INSERT OR REPLACE INTO spare (pack, chunk, offset, sealed, length, proven, lost) "
            "SELECT pack, number, offset, sealed, length, proven, ? FROM chunk WHERE number = ? AND pack > 0",
            (lost, number),
        )
        self._db.execute(
            "UPDATE chunk SET pack = ?, offset = NULL, sealed = NULL, proven = 0 WHERE number = ?",
            (ELSEWHERE, number),
        )
        if row[0] is not None:
            self._dirty_pieces[row[0]] += 1

    def _drop(self, number: int) -> None:
        """Nothing needs the chunk; its segment is no longer dirty because of it."""
        self._db.execute("DELETE FROM spare WHERE chunk = ?", (number,))
        self._db.execute("DELETE FROM chunk WHERE number = ?", (number,))
        self.deferred.pop(number, None)

    def _release(self, segment: int | None) -> None:
        """A chunk needs that segment no more."""
        if segment is not None:
            self._dirty_pieces[segment] -= 1
