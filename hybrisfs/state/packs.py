"""Packs, as this device knows them: where their shares are, and which device says so. Their chunks are in
`pack_chunks`.

A row of `pack` is a `Pack`:

n > 0             a register names the pack; its shares are where `placement` says
n > 0, doubted    a member says that it was discarded, and it is not known here whether all had agreed
n = 0             it was discarded, which is for good: its id is never used again
n = 0, doubted    only known from a member's word; an update may still name it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from hybrisfs.kinds import REWRITTEN
from hybrisfs.registers.tree import PackRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.state.bulk import select_with
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.database import Reader
from sync import Rename

__all__ = ["Pack", "PackOnCloud", "PackTable"]

_COLUMNS: Final = "number, id, k, n, placement, clock, branch, proven, doubted"
_REWRITTEN: Final = f"EXISTS (SELECT 1 FROM register WHERE key = {REWRITTEN.sql_key('pack.id')})"


class Pack(NamedTuple):
    """What is known of one pack; see the table above."""

    number: int
    """By which this device names it."""
    id: bytes
    k: int
    """How many shares it takes to read it."""
    n: int
    """How many shares it has; 0 when it was discarded."""
    placement: bytes
    """The number of the cloud that has each share, one byte each."""
    clock: int
    branch: bytes
    """Those of the update that says so."""
    proven: bool
    """Whether this device has put the shares there, or read from them; else a member says so."""
    doubted: bool

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.clock, self.branch)

    @property
    def is_discarded(self) -> bool:
        """Whether it was discarded, for all that is known here."""
        return not self.n and not self.doubted

    def is_at(self, index: int, cloud: int) -> bool:
        """Whether this cloud is to have the share with this index."""
        return self.placement[index : index + 1] == bytes((cloud,))


class PackOnCloud(NamedTuple):
    """A pack of which a cloud has a share; `rewritten`: others have taken its place."""

    number: int
    id: bytes
    branch: bytes
    rewritten: bool


class PackTable:
    """The packs of a volume, under its lock; or as a snapshot shows them, without it."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    # -- one pack ----------------------------------------------------------------------------------------

    def find(self, pack: bytes) -> Pack | None:
        """The pack with this id, None when nothing is known of it."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM pack WHERE id = ?", (pack,)).fetchone()
        return None if row is None else _pack(row)

    def numbered(self, number: int) -> Pack | None:
        """The pack with this number, None when it has been discarded or there is none."""
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM pack WHERE number = ? AND n > 0", (number,)
        ).fetchone()
        return None if row is None else _pack(row)

    def of_chunk(self, ref: ChunkRef) -> Pack:
        """The pack that a chunk is read from. Raises KeyError when that is not known."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM pack WHERE number = ?", (ref.pack,)).fetchone()
        if row is None:
            raise KeyError(ref.pack)
        return _pack(row)

    def number_of(self, pack: bytes) -> int | None:
        """The number of a pack that has not been discarded; None when there is none with this id."""
        found = self.find(pack)
        return found.number if found is not None and found.n else None

    def is_discarded(self, pack: bytes) -> bool:
        """Whether the pack with this id was discarded, for all that is known here."""
        found = self.find(pack)
        return found is not None and found.is_discarded

    def placement(self, pack: bytes) -> bytes:
        """The cloud of each share of a pack; nothing for one that no register names."""
        found = self.find(pack)
        return b"" if found is None else found.placement

    def is_told_by(self, pack: bytes, branch: bytes) -> bool:
        """Whether the device with this branch is the one that has named the pack."""
        query = (
            "SELECT 1 FROM pack p JOIN log_branch b ON b.id = p.branch "
            "JOIN log_branch o ON o.device = b.device WHERE p.id = ? AND o.id = ?"
        )
        return self._db.execute(query, (pack, branch)).fetchone() is not None

    # -- many packs --------------------------------------------------------------------------------------

    def newest(self) -> int:
        """The number of the pack that this device learned of last, 0 before there is one."""
        (newest,) = self._db.execute("SELECT ifnull(max(number), 0) FROM pack").fetchone()
        return int(newest)

    def numbers(self, packs: Iterable[bytes]) -> dict[bytes, int]:
        """The numbers of those of these packs of which something is known, by their ids."""
        return dict(select_with(self._db, "id, number", "pack", "id", packs))

    def doubted(self) -> set[int]:
        """The numbers of the packs of which a member says that they were discarded."""
        return {number for (number,) in self._db.execute("SELECT number FROM pack WHERE doubted")}

    def authors_after(self, number: int, limit: int) -> dict[int, bytes | None]:
        """The numbers of the next packs after this one that have not been discarded, up to *limit*, and the
        devices that have named them, None where no such device is known."""
        return dict(
            self._db.execute(
                "SELECT p.number, b.device FROM pack p LEFT JOIN log_branch b ON b.id = p.branch "
                "WHERE p.number > ? AND p.n > 0 ORDER BY p.number LIMIT ?",
                (number, limit),
            )
        )

    def keepers(self) -> set[bytes]:
        """The devices that belong to the volume, one of which looks after each pack."""
        return {device for (device,) in self._db.execute("SELECT device FROM member WHERE state = 0")}

    def of_device(self, device: bytes, after: int) -> list[Pack]:
        """The packs after a number that a device has named and that have not been discarded."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM pack WHERE number > ? AND n > 0 "
            "AND branch IN (SELECT id FROM log_branch WHERE device = ?) ORDER BY number",
            (after, device),
        )
        return [_pack(row) for row in rows]

    def on_cloud(self, cloud: int, after: int, limit: int) -> list[PackOnCloud]:
        """The next packs after a number that have a share on this cloud, up to *limit*."""
        rows = self._db.execute(
            f"SELECT number, id, branch, {_REWRITTEN} FROM pack "
            "WHERE number > ? AND instr(placement, ?) ORDER BY number LIMIT ?",
            (after, bytes((cloud,)), limit),
        )
        return [PackOnCloud(number, pack, branch, bool(former)) for number, pack, branch, former in rows]

    def count_on_cloud(self, cloud: int) -> int:
        """How many packs have a share on this cloud, without those that others have taken the place of."""
        (count,) = self._db.execute(
            f"SELECT count(*) FROM pack WHERE instr(placement, ?) AND NOT {_REWRITTEN}", (bytes((cloud,)),)
        ).fetchone()
        return int(count)

    def coded_otherwise(self, f: int, k: int, small: int) -> list[Pack]:
        """The packs that chunks are read from and that do not survive the loss of just *f* clouds, or are
        divided by another number than *k*; but those with less than *small* bytes may be copies."""
        columns = ", ".join(f"p.{column}" for column in _COLUMNS.split(", "))
        rows = self._db.execute(
            f"SELECT {columns} FROM chunk c JOIN pack p ON p.number = c.pack WHERE c.pack > 0 "
            "GROUP BY p.number "
            "HAVING p.n - p.k <> ?1 OR (p.k <> ?2 AND NOT (p.k = 1 AND total(c.sealed) < ?3))",
            (f, k, small),
        )
        return [_pack(row) for row in rows]

    # -- what this device does ---------------------------------------------------------------------------

    def put(self, pack: bytes, k: int, n: int, placement: bytes, stamp: Stamp) -> int:
        """This device has put a pack on the clouds; its number. Another device may have named it: chunks in
        the same order make the same pack."""
        (number,) = self._db.execute(
            "INSERT INTO pack (id, k, n, placement, proven, clock, branch) VALUES (?, ?, ?, ?, 1, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET placement = excluded.placement, proven = 1, "
            "clock = excluded.clock, branch = excluded.branch RETURNING number",
            (pack, k, n, placement, *stamp),
        ).fetchone()
        return int(number)

    def move(self, pack: bytes, placement: bytes, stamp: Stamp) -> None:
        """This device has moved shares of a pack."""
        self._db.execute(
            "UPDATE pack SET placement = ?, clock = ?, branch = ? WHERE id = ?", (placement, *stamp, pack)
        )

    # -- what other devices say --------------------------------------------------------------------------

    def learn(self, told: Collection[tuple[bytes, PackRecord, Stamp]]) -> dict[bytes, int]:
        """Note packs, by their ids, of which nothing is known yet; their numbers."""
        self._db.executemany(
            "INSERT INTO pack (id, k, n, placement, clock, branch) VALUES (?, ?, ?, ?, ?, ?)",
            [(pack, record.k, record.n, record.placement, *stamp) for pack, record, stamp in told],
        )
        return self.numbers([pack for pack, _, _ in told])

    def rename(self, rename: Rename) -> None:
        """A branch of the log has another name now, above a clock."""
        self._db.execute(
            "UPDATE pack SET branch = ? WHERE branch = ? AND clock > ?",
            (rename.new, rename.old, rename.above),
        )

    def learn_again(self, pack: bytes, record: PackRecord, stamp: Stamp, *, overrules: bool) -> int | None:
        """Note where a pack is of which something is known, if this is later than what is known, or
        *overrules* it. Its number, None when its code is another one: then nothing is noted."""
        newer = "TRUE" if overrules else "(?2, ?3) > (clock, branch)"
        self._db.execute(
            "UPDATE pack SET k = ?, n = ?, placement = ?, clock = ?, branch = ? "
            "WHERE id = ? AND n = 0 AND doubted",
            (record.k, record.n, record.placement, *stamp, pack),
        )
        self._db.execute(
            "UPDATE pack SET proven = proven AND placement = ?1, placement = ?1, clock = ?2, branch = ?3 "
            f"WHERE id = ?4 AND {newer} AND (k, n) = (?5, ?6)",
            (record.placement, *stamp, pack, record.k, record.n),
        )
        number, *code = self._db.execute("SELECT number, k, n FROM pack WHERE id = ?", (pack,)).fetchone()
        return number if code == [record.k, record.n] else None


def _pack(row: tuple[Any, ...]) -> Pack:
    number, identity, k, n, placement, clock, branch, proven, doubted = row
    return Pack(number, identity, k, n, placement, clock, branch, bool(proven), bool(doubted))
