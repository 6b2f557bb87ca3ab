"""What updates tell of packs: where they are, that they have been discarded, that others took their place.

The registers of packs are not kept as such; they become rows of `pack`, `chunk` and `spare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hybrisfs.filesystem.discarded import discard_pack
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.registers import PackRecord, Rewritten, pack_key
from hybrisfs.merge.rules import Stamp
from hybrisfs.store.bulk import select_with
from sync import DecodeError

__all__ = ["Packs", "Placement"]


class Placement(NamedTuple):
    """What an update says of a pack: the value of its register, None when it has been discarded."""

    pack: bytes
    value: bytes | None
    stamp: Stamp


class Packs:
    """Takes in what other devices say of packs, under the volume's lock."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._db = fs.db

    def take(self, placements: Sequence[Placement]) -> None:
        """Note where other devices have put chunks, or moved them, unless something later is known, and which
        packs have been discarded, which is for good. In the order given; what is malformed is passed over."""
        named = {one.pack for one in placements}
        known = {pack for (pack,) in select_with(self._db, "id", "pack", "id", named)}
        new: dict[bytes, tuple[PackRecord, Stamp]] = {}
        for one in placements:
            record = _decoded(one.value)
            if one.value is not None and record is None:
                continue
            if record is not None and one.pack not in known:
                known.add(one.pack)
                new[one.pack] = record, one.stamp
                continue
            self._take_new(new)
            new.clear()
            if record is None:
                discard_pack(self._fs, one.pack, one.stamp.clock, one.stamp.writer)
                known.add(one.pack)
            else:
                self._take_again(one.pack, record, one.stamp)
        self._take_new(new)

    def _take_new(self, records: Mapping[bytes, tuple[PackRecord, Stamp]]) -> None:
        """Packs that nobody has told of."""
        self._db.executemany(
            "INSERT INTO pack (id, k, n, placement, clock, branch) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (pack, record.k, record.n, record.placement, *stamp)
                for pack, (record, stamp) in records.items()
            ],
        )
        numbers: dict[bytes, int] = dict(select_with(self._db, "id, number", "pack", "id", records))
        self._fs.chunks.packed_elsewhere(
            [(numbers[pack], record.chunks) for pack, (record, _) in records.items()]
        )

    def _take_again(self, pack: bytes, record: PackRecord, stamp: Stamp) -> None:
        self._db.execute(
            "UPDATE pack SET placement = ?, clock = ?, branch = ? "
            "WHERE id = ? AND (?, ?) > (clock, branch) AND n > 0",
            (record.placement, *stamp, pack, *stamp),
        )
        number, shares = self._db.execute("SELECT number, n FROM pack WHERE id = ?", (pack,)).fetchone()
        if shares:
            self._fs.chunks.packed_elsewhere([(number, record.chunks)])

    def rewrite(self, pack: bytes, value: bytes | None, writes: Mapping[bytes, bytes | None]) -> None:
        """Read the chunks of a pack from those that the same update, with all its *writes*, tells of."""
        row = self._db.execute("SELECT number FROM pack WHERE id = ?", (pack,)).fetchone()
        try:
            into = Rewritten.decode(value or b"").packs if row is not None else ()
            records = {one: PackRecord.decode(writes.get(pack_key(one)) or b"") for one in into}
        except DecodeError:
            return
        for one, record in records.items():
            found = self._db.execute("SELECT number FROM pack WHERE id = ?", (one,)).fetchone()
            for chunk in record.chunks if found is not None else ():
                self._fs.chunks.repacked(chunk.id, row[0], found[0], chunk.offset, chunk.sealed)


def _decoded(value: bytes | None) -> PackRecord | None:
    try:
        return None if value is None else PackRecord.decode(value)
    except DecodeError:
        return None
