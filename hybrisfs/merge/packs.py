"""What updates tell of packs: where they are, that they have been discarded, that others took their place.

The registers of packs are not kept as such; they become rows of `pack`, `chunk` and `spare`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from hybrisfs.registers.tree import PackRecord, Rewritten, pack_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.bulk import select_many, select_with
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError

__all__ = ["Packs", "Placement"]

_SHOWN_BY: Final = (
    "SELECT f.chunk, n.content_stamp & 65535 FROM "
    "(SELECT ino, chunk FROM file_chunk UNION ALL SELECT ino, chunk FROM content_page) f "
    "JOIN node n ON n.ino = f.ino WHERE f.chunk IN (VALUES {})"
)
"""Chunks, and the numbers of the writers of the contents that show them."""


class Placement(NamedTuple):
    """What an update says of a pack: the value of its register, None when it has been discarded.

    *hearsay*: nobody who is known here has signed it, or it is not known whether all had agreed.
    """

    pack: bytes
    value: bytes | None
    stamp: Stamp
    hearsay: bool = False


class Packs:
    """Takes in what other devices say of packs, under the volume's lock."""

    def __init__(self, fs: FileSystem, is_contributed: Callable[[Stamp], bool] = lambda stamp: False) -> None:
        """*is_contributed* tells whether who signed an update was no full member."""
        self._is_contributed = is_contributed
        self._fs = fs
        self._db = fs.db

    def take(self, placements: Sequence[Placement]) -> None:
        """Note where other devices have put chunks, or moved them, unless something later is known, and which
        packs have been discarded, which is for good. In the order given; what is malformed is passed over.

        That members have put something somewhere is what they say: see `ChunkStore.packed_elsewhere`."""
        named = {one.pack for one in placements}
        known = {pack for (pack,) in select_with(self._db, "id", "pack", "id", named)}
        new: dict[bytes, tuple[PackRecord, Placement]] = {}
        for one in placements:
            record = _decoded(one.value)
            if one.value is not None and record is None:
                continue
            if record is not None and one.pack not in known:
                known.add(one.pack)
                new[one.pack] = record, one
                continue
            self._take_new(new)
            new.clear()
            if record is not None:
                self._take_again(record, one)
            elif one.hearsay:
                self._fs.chunks.doubt_pack(one.pack, one.stamp.clock, one.stamp.writer)
            else:
                self._fs.chunks.discard_pack(one.pack, one.stamp.clock, one.stamp.writer)
            known.add(one.pack)
        self._take_new(new)

    def _take_new(self, records: Mapping[bytes, tuple[PackRecord, Placement]]) -> None:
        """Packs that nobody has told of."""
        self._db.executemany(
            "INSERT INTO pack (id, k, n, placement, clock, branch) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (pack, record.k, record.n, record.placement, *one.stamp)
                for pack, (record, one) in records.items()
            ],
        )
        numbers: dict[bytes, int] = dict(select_with(self._db, "id, number", "pack", "id", records))
        for (hearsay, writer), some in groupby(records.items(), key=_said_by):
            self._fs.chunks.packed_elsewhere(
                [(numbers[pack], record.chunks) for pack, (record, _) in some],
                hearsay=hearsay,
                vouched=partial(self._made_by, writer),
            )

    def _made_by(self, writer: bytes, chunks: Collection[int]) -> set[int]:
        """Those of the chunks that files show, and only files that the device of this branch wrote."""
        self._fs.flush()
        rows = select_many(self._db, _SHOWN_BY, [(number,) for number in chunks])
        own = {
            number
            for (number,) in self._db.execute(
                "SELECT w.number FROM log_branch b JOIN log_branch o ON o.device = b.device "
                "JOIN writer w ON w.branch = o.id WHERE b.id = ?",
                (writer,),
            )
        }
        found, others = set[int](), set[int]()
        for chunk, author in rows:
            (found if author in own else others).add(chunk)
        return found - others

    def _take_again(self, record: PackRecord, one: Placement) -> None:
        """A pack that is on record, or of which it was said that it is gone. The id of a pack stands for its
        code: who says something else of that is wrong. What a contributor says counts as long as no other
        device tells of the pack."""
        newer = "(?2, ?3) > (clock, branch)"
        if self._is_contributed(one.stamp):
            if not self._is_of_the_same(one):
                return
        elif self._is_only_contributed(one.pack):
            newer = "TRUE"
        self._db.execute(
            "UPDATE pack SET k = ?, n = ?, placement = ?, clock = ?, branch = ? "
            "WHERE id = ? AND n = 0 AND doubted",
            (record.k, record.n, record.placement, *one.stamp, one.pack),
        )
        self._db.execute(
            "UPDATE pack SET proven = proven AND placement = ?1, placement = ?1, clock = ?2, branch = ?3 "
            f"WHERE id = ?4 AND {newer} AND (k, n) = (?5, ?6)",
            (record.placement, *one.stamp, one.pack, record.k, record.n),
        )
        number, *code = self._db.execute("SELECT number, k, n FROM pack WHERE id = ?", (one.pack,)).fetchone()
        if code == [record.k, record.n]:
            self._fs.chunks.packed_elsewhere(
                [(number, record.chunks)],
                hearsay=one.hearsay,
                vouched=partial(self._made_by, one.stamp.writer),
            )

    def _is_of_the_same(self, one: Placement) -> bool:
        """Whether the device that says this is the one that has told of the pack."""
        query = (
            "SELECT 1 FROM pack p JOIN log_branch b ON b.id = p.branch "
            "JOIN log_branch o ON o.device = b.device WHERE p.id = ? AND o.id = ?"
        )
        return self._db.execute(query, (one.pack, one.stamp.writer)).fetchone() is not None

    def _is_only_contributed(self, pack: bytes) -> bool:
        row = self._db.execute("SELECT clock, branch FROM pack WHERE id = ?", (pack,)).fetchone()
        return row is not None and row[1] is not None and self._is_contributed(Stamp(*row))

    def rewrite(self, pack: bytes, value: bytes | None, writes: Mapping[bytes, bytes | None]) -> None:
        """Read the chunks of a pack from those that the same update, with all its *writes*, tells of. The
        pack is needed until they have been read there once."""
        row = self._db.execute("SELECT number FROM pack WHERE id = ?", (pack,)).fetchone()
        try:
            into = Rewritten.decode(value or b"").packs if row is not None else ()
            records = {one: PackRecord.decode(writes.get(pack_key(one)) or b"") for one in into}
        except DecodeError:
            return
        for one, record in records.items():
            found = self._db.execute("SELECT number FROM pack WHERE id = ?", (one,)).fetchone()
            for chunk in record.chunks if found is not None else ():
                self._fs.chunks.repacked(chunk.id, row[0], found[0], chunk.offset, chunk.sealed, proven=False)


def _said_by(item: tuple[bytes, tuple[PackRecord, Placement]]) -> tuple[bool, bytes]:
    return item[1][1].hearsay, item[1][1].stamp.writer


def _decoded(value: bytes | None) -> PackRecord | None:
    try:
        return None if value is None else PackRecord.decode(value)
    except DecodeError:
        return None
