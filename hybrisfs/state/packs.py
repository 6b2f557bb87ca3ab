"""Packs, as this device knows them: where their shares are, who says so, and which chunks they hold.

A row of `pack` is a `Pack`:

n > 0             a register names the pack; its shares are where `placement` says
n > 0, doubted    a member says that it has ended, and it is not known here whether all had agreed
n = 0             it has ended, which is for good: its id is never used again
n = 0, doubted    only known from a member's word; an update may still name it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from hybrisfs.kinds import REWRITTEN
from hybrisfs.registers.tree import PackRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.state.bulk import select_with
from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, IS_SHOWN, ChunkRef
from hybrisfs.state.database import Reader
from sync import Rename

__all__ = [
    "KeptPack",
    "Lost",
    "Pack",
    "PackOnCloud",
    "PackPlace",
    "PackTable",
    "chunks_of_lost_pack",
    "chunks_of_pack",
    "count_of_pack",
    "day_of",
    "filled_packs",
    "lost_packs",
    "needs_of_pack",
    "neighbours",
    "owed_count",
    "owed_packs",
    "places_in_pack",
    "read_pack_near",
    "sealed_bytes",
    "what_is_lost",
]

_COLUMNS: Final = "number, id, k, n, placement, clock, branch, proven, doubted"
_DAY_NS: Final = 86_400 * 10**9
_READ_TOGETHER: Final = 30  # days that may lie between two reads that count together


class Pack(NamedTuple):
    """What is known of one pack; see the table above."""

    number: int
    """By which this device names it."""
    id: bytes
    k: int
    """How many shares it takes to read it."""
    n: int
    """How many shares it has; 0 when it has ended."""
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
    def has_ended(self) -> bool:
        """Whether it has ended, for all that is known here."""
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


def day_of(now_ns: int) -> int:
    """The day of a moment, since the epoch, as `used` has it."""
    return now_ns // _DAY_NS


class KeptPack(NamedTuple):
    """A pack that has not ended, and the use of it that this device knows."""

    number: int
    author: bytes | None
    """The device that has named it; None where no such device is known."""
    k: int
    placement: bytes
    """The number of the cloud that has each share, one byte each."""
    used: int
    reads: int
    """See table `pack`."""


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
        """The pack with this number, None when it has ended or there is none."""
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
        """The number of a pack that has not ended; None when there is none with this id."""
        found = self.find(pack)
        return found.number if found is not None and found.n else None

    def placement(self, pack: bytes) -> bytes:
        """The cloud of each share of a pack; nothing for one that no register names."""
        found = self.find(pack)
        return b"" if found is None else found.placement

    def is_named_by(self, pack: bytes, branch: bytes) -> bool:
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
        """The numbers of the packs of which a member says that they have ended."""
        return {number for (number,) in self._db.execute("SELECT number FROM pack WHERE doubted")}

    def kept_after(self, number: int, limit: int) -> list[KeptPack]:
        """The next packs after this one that have not ended, up to *limit*."""
        rows = self._db.execute(
            "SELECT p.number, b.device, p.k, p.placement, p.used, p.reads "
            "FROM pack p LEFT JOIN log_branch b ON b.id = p.branch "
            "WHERE p.number > ? AND p.n > 0 ORDER BY p.number LIMIT ?",
            (number, limit),
        )
        return [KeptPack(*row) for row in rows]

    def were_read(self, packs: Collection[int], now_ns: int) -> None:
        """Programs here have just had something fetched from these packs, by number."""
        self._db.executemany(
            "UPDATE pack SET used = ?2, "
            f"reads = CASE WHEN reads > 0 AND ?2 - used > {_READ_TOGETHER} THEN 1 ELSE reads + 1 END "
            "WHERE number = ?1 AND NOT (used = ?2 AND reads > 0)",
            [(pack, day_of(now_ns)) for pack in packs],
        )

    def were_met(self, packs: Collection[int], now_ns: int) -> None:
        """A look has just come across these packs, of which no use was known."""
        self._db.executemany(
            "UPDATE pack SET used = ? WHERE number = ? AND used = 0",
            [(day_of(now_ns), pack) for pack in packs],
        )

    def keepers(self) -> set[bytes]:
        """The devices that belong to the volume, one of which looks after each pack."""
        return {device for (device,) in self._db.execute("SELECT device FROM member WHERE state = 0")}

    def of_device(self, device: bytes, after: int) -> list[Pack]:
        """The packs after a number that a device has named and that have not ended."""
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

    def divided_by_more(self, k: int) -> tuple[int, int]:
        """How many packs there are of which more than *k* shares are needed, and the number of the newest."""
        count, newest = self._db.execute(
            "SELECT count(*), ifnull(max(number), 0) FROM pack WHERE k > ? AND n > 0", (k,)
        ).fetchone()
        return int(count), int(newest)

    def is_rewritten(self, pack: bytes) -> bool:
        """Whether others have taken the place of the pack with this id."""
        query = f"SELECT {_REWRITTEN} FROM pack WHERE id = ?"
        return bool(self._db.execute(query, (pack,)).fetchone() == (1,))

    def coded_otherwise(self, f: int, k: int, small: int, widest: int) -> list[Pack]:
        """The packs that chunks are read from and that do not survive the loss of just *f* clouds, or are
        divided by another number than *k*; but those with less than *small* bytes may be copies, and those
        with up to *widest* shares may be divided by more."""
        columns = ", ".join(f"p.{column}" for column in _COLUMNS.split(", "))
        rows = self._db.execute(
            f"SELECT {columns} FROM chunk c JOIN pack p ON p.number = c.pack WHERE c.pack > 0 "
            "GROUP BY p.number "
            "HAVING p.n - p.k <> ?1 OR (p.k <> ?2 AND NOT (p.k = 1 AND total(c.sealed) < ?3) "
            "AND NOT (p.k > ?2 AND p.n <= ?4))",
            (f, k, small, widest),
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


# -- what packs hold: chunks that are read from a pack, that it holds besides, or that went with it -----
# A pack that the clouds have lost is *set aside* (`ChunkStore.set_aside`). It counts as lost as long as a
# chunk that was read from it stands nowhere else.


_LOST: Final = (
    f"spare s JOIN chunk c ON c.number = s.chunk AND s.lost AND c.pack = {ELSEWHERE} "
    "JOIN pack p ON p.number = s.pack"
)
_IS_LOST: Final = (
    "pack.n > 0 AND EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    f"WHERE s.pack = pack.number AND s.lost AND c.pack = {ELSEWHERE})"
)
"""Of a row of `pack`: it is set aside, and holds what no other pack does."""
_IS_READ: Final = (
    "pack.n > 0 AND (EXISTS (SELECT 1 FROM chunk c WHERE c.pack = pack.number AND c.pack > 0 AND "
    "(pack.proven OR NOT EXISTS (SELECT 1 FROM spare s WHERE s.chunk = c.number AND s.proven))) "
    "OR EXISTS (SELECT 1 FROM spare s JOIN chunk c ON c.number = s.chunk "
    "WHERE s.pack = pack.number AND s.proven AND c.pack > 0 AND NOT c.proven))"
)
"""Of a row of `pack`: chunks are read from it. From others nothing is, though they may hold copies: what took
their place, after their code was changed or clouds had lost them, is read instead. Of a pack that only a
member says to have taken the place of another one, which this device knows, that one counts."""
_IS_OWED: Final = (
    f"(({_IS_READ}) OR {_IS_LOST}) AND NOT EXISTS (SELECT 1 FROM condemned d WHERE d.pack = pack.number)"
)
"""Of a row of `pack`: chunks are read from it, or the clouds have lost what no other pack holds. A pack that
this device has promised not to use again may be gone before it hears so."""


_REWRITTEN: Final = (
    f"(EXISTS (SELECT 1 FROM register WHERE key = {REWRITTEN.sql_key('pack.id')}) "
    f"AND NOT ({_IS_READ}) AND NOT ({_IS_LOST}))"
)
"""Of a row of `pack`: others have taken its place. Where the clouds had lost it for a while, they hold only
what devices still had of it: the rest is read from it again."""


def chunks_of_pack(db: Reader, pack: int) -> list[ChunkRef]:
    """The chunks that are read from a pack, in their order there."""
    rows = db.execute(f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.pack = ? ORDER BY c.offset", (pack,))
    return [ChunkRef(*row) for row in rows]


def neighbours(db: Reader, ref: ChunkRef, within: int) -> Iterator[ChunkRef]:
    """The CLOUD_ONLY chunks of the same pack that were made next, up to so many numbers later."""
    rows = db.execute(
        f"SELECT {CHUNK_COLUMNS} FROM chunk c WHERE c.number > ? AND c.number <= ? AND c.pack = ? "
        "AND c.segment IS NULL ORDER BY c.number",
        (ref.number, ref.number + within, ref.pack),
    ).fetchall()
    return map(ChunkRef._make, rows)


def filled_packs(db: Reader) -> Iterator[tuple[bytes, int, int]]:
    """Placement and k of all packs, and how many bytes of sealed chunks are read from each."""
    for placement, k, sealed in db.execute(
        "WITH filled AS (SELECT pack, total(sealed) AS size FROM chunk WHERE pack > 0 GROUP BY pack) "
        "SELECT p.placement, p.k, coalesce(f.size, 0) FROM pack p LEFT JOIN filled f ON f.pack = p.number "
        "WHERE p.n > 0"
    ):
        yield placement, k, int(sealed)


# -- is it to be on the clouds? ----------------------------------------------------------------------------


class PackPlace(NamedTuple):
    """A pack, the cloud of each of its shares, and how many of these it takes to read it."""

    number: int
    id: bytes
    placement: bytes
    k: int


def owed_packs(db: Reader, after: int = 0, limit: int = -1) -> Iterator[PackPlace]:
    """The packs that are to be on the clouds, by number: those above *after*, up to *limit* of them unless
    that is negative."""
    rows = db.execute(
        f"SELECT number, id, placement, k FROM pack WHERE {_IS_OWED} AND number > ? ORDER BY number LIMIT ?",
        (after, limit),
    )
    return map(PackPlace._make, rows)


def owed_count(db: Reader) -> int:
    """How many packs are to be on the clouds."""
    (count,) = db.execute(f"SELECT count(*) FROM pack WHERE {_IS_OWED}").fetchone()
    return int(count)


def read_pack_near(db: Reader, cloud: int, number: int, *, below: bool = False) -> PackPlace | None:
    """A pack that chunks are read from and of which this cloud has a share: the first one from *number* on,
    or, with *below*, down from it."""
    where, order = ("number <= ?", "number DESC") if below else ("number >= ?", "number")
    row = db.execute(
        f"SELECT number, id, placement, k FROM pack WHERE {where} AND instr(placement, ?) "
        f"AND {_IS_READ} ORDER BY {order} LIMIT 1",
        (number, bytes((cloud,))),
    ).fetchone()
    return None if row is None else PackPlace(*row)


# -- may it go? ---------------------------------------------------------------------------------------------


def count_of_pack(db: Reader, pack: bytes) -> int:
    """How many chunks are read from the pack with this id."""
    (chunks,) = db.execute(
        "SELECT count(*) FROM chunk WHERE pack = (SELECT number FROM pack WHERE id = ?) AND pack > 0", (pack,)
    ).fetchone()
    return int(chunks)


def sealed_bytes(db: Reader, pack: int) -> int:
    """How many bytes of sealed chunks a pack is known to hold."""
    (sealed,) = db.execute(
        "SELECT (SELECT total(sealed) FROM chunk WHERE pack = ?1 AND pack > 0) + "
        "(SELECT total(sealed) FROM spare WHERE pack = ?1)",
        (pack,),
    ).fetchone()
    return int(sealed)


def needs_of_pack(db: Reader, pack: int) -> Iterator[tuple[int, bytes, int, int, int, int]]:
    """Of each chunk that a pack is said to hold: number, id and sealed length; whether it is read from
    elsewhere; whether it can do without this pack, as it goes to the clouds once more or has been read
    elsewhere; whether a file or a version shows it. The caller has made the table `kept_chunk`
    (`hybrisfs.versions.contents`)."""
    shown = f"{IS_SHOWN} OR EXISTS (SELECT 1 FROM kept_chunk k WHERE k.id = c.id)"
    return db.execute(
        f"SELECT c.number, c.id, c.sealed, 0, 0, {shown} FROM chunk c WHERE c.pack = ?1 AND c.pack > 0 "
        "UNION ALL SELECT c.number, c.id, s.sealed, 1, "
        f"CASE WHEN ifnull(c.pack, 0) = 0 THEN c.segment IS NOT NULL ELSE c.proven END, {shown} "
        "FROM spare s JOIN chunk c ON c.number = s.chunk WHERE s.pack = ?1",
        (pack,),
    )


def places_in_pack(db: Reader, pack: int) -> list[tuple[bytes, int, int, int, int]]:
    """(id, offset, sealed, length, whether it is read from there) of the chunks that a pack is said to hold,
    in their order there."""
    return db.execute(
        "SELECT id, offset, sealed, length, 1 FROM chunk WHERE pack = ?1 AND pack > 0 UNION ALL "
        "SELECT c.id, s.offset, s.sealed, c.length, 0 FROM spare s JOIN chunk c ON c.number = s.chunk "
        "WHERE s.pack = ?1 AND c.pack IS NOT ?1 ORDER BY 2",
        (pack,),
    ).fetchall()


# -- have the clouds lost it? -------------------------------------------------------------------------------


class Lost(NamedTuple):
    """How many pieces of files no cloud has any more, how many bytes these are, and how many of the pieces
    are not on this device either."""

    chunks: int
    bytes: int
    absent: int


def lost_packs(db: Reader) -> dict[int, bytes]:
    """The packs that are set aside and hold what no other pack does: their ids by their numbers."""
    return dict(db.execute(f"SELECT DISTINCT p.number, p.id FROM {_LOST} WHERE p.n > 0"))


def chunks_of_lost_pack(db: Reader, pack: int) -> list[ChunkRef]:
    """The chunks that a pack which was set aside is known to hold, in their order there."""
    return [
        ChunkRef(*row)
        for row in db.execute(
            f"SELECT {CHUNK_COLUMNS} FROM spare s JOIN chunk c ON c.number = s.chunk "
            "WHERE s.pack = ? ORDER BY s.offset",
            (pack,),
        )
    ]


def what_is_lost(db: Reader, pack: int | None = None) -> Lost:
    """The chunks that files show and that are set aside: all of them, or those of one pack."""
    chunks, size, absent = db.execute(
        "SELECT count(*), total(length), total(segment IS NULL) FROM "
        f"(SELECT DISTINCT c.number, c.length, c.segment FROM {_LOST} WHERE p.n > 0 AND {IS_SHOWN} "
        "AND (?1 IS NULL OR s.pack = ?1))",
        (pack,),
    ).fetchone()
    return Lost(chunks, int(size), int(absent))
