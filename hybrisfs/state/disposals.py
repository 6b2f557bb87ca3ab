"""What garbage collection knows between its looks: packs that are candidates for deletion, shares that are
orphans, and the shares that this device has yet to delete from the clouds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from hybrisfs.registers.tree import Content
from hybrisfs.state.database import Reader, RowWriter
from sync.codec import DecodeError

__all__ = [
    "Condemned",
    "DeletionCandidate",
    "DeletionCandidateTable",
    "Disposal",
    "DisposalTable",
    "OrphanTable",
    "ShareOnCloud",
    "is_condemned",
]


class Disposal(NamedTuple):
    """Shares of a pack that are to go from one cloud: how many indices there are, and about how many bytes
    that frees."""

    pack: bytes
    shares: int
    size: int


class DisposalTable:
    """The shares that this device has yet to delete, under the volume's lock. Each disposal waits until the
    clouds hold the own update at its clock, which says that the pack has ended."""

    def __init__(self, db: RowWriter) -> None:
        self._db = db

    def add(self, pack: bytes, shares: int, sizes: Mapping[int, int], clock: int) -> None:
        """A pack has ended with the own update at *clock*: delete its shares from the clouds that *sizes*
        names, with about how many bytes that frees on each."""
        self._db.executemany(
            "INSERT OR REPLACE INTO disposal (pack, cloud, shares, size, clock) VALUES (?, ?, ?, ?, ?)",
            [(pack, cloud, shares, size, clock) for cloud, size in sizes.items()],
        )

    def add_leftovers(self, leftovers: Iterable[ShareOnCloud], shares: int) -> None:
        """Delete what is left of packs that ended long ago, by so many indices; at any time."""
        self._db.executemany(
            "INSERT OR IGNORE INTO disposal (pack, cloud, shares, size, clock) VALUES (?, ?, ?, 0, 0)",
            [(one.pack, one.cloud, shares) for one in leftovers],
        )

    def counts(self) -> dict[int, int]:
        """Of how many packs there are shares to delete, by cloud."""
        return dict(self._db.execute("SELECT cloud, count(*) FROM disposal GROUP BY cloud"))

    def total(self) -> tuple[int, int]:
        """Of how many packs there are shares to delete, and about how many bytes these are."""
        packs, size = self._db.execute(
            "SELECT count(DISTINCT pack), ifnull(sum(size), 0) FROM disposal"
        ).fetchone()
        return packs, size

    def due_clouds(self) -> set[int]:
        """The clouds from which something may be deleted now."""
        rows = self._db.execute(
            "SELECT DISTINCT cloud FROM disposal WHERE clock <= ?", (self._db.shipped_clock(),)
        )
        return {cloud for (cloud,) in rows}

    def due(self, cloud: int, limit: int) -> list[Disposal]:
        """What may be deleted from a cloud now, up to *limit* packs."""
        rows = self._db.execute(
            "SELECT pack, shares, size FROM disposal WHERE cloud = ? AND clock <= ? ORDER BY pack LIMIT ?",
            (cloud, self._db.shipped_clock(), limit),
        )
        return [Disposal(*row) for row in rows]

    def done(self, cloud: int, packs: Iterable[bytes]) -> None:
        """A cloud has no shares of these packs any more."""
        self._db.executemany(
            "DELETE FROM disposal WHERE cloud = ? AND pack = ?", [(cloud, pack) for pack in packs]
        )

    def done_but(self, cloud: int, listed: Collection[bytes]) -> None:
        """A cloud has shares of the packs *listed* only."""
        rows = self._db.execute("SELECT pack FROM disposal WHERE cloud = ?", (cloud,)).fetchall()
        self.done(cloud, [pack for (pack,) in rows if pack not in listed])

    def forget(self, cloud: int) -> None:
        """A cloud has left the volume."""
        self._db.execute("DELETE FROM disposal WHERE cloud = ?", (cloud,))


class DeletionCandidate(NamedTuple):
    """An own pack of which little or nothing is needed: *live* bytes of sealed chunks. That number has not
    changed since *since*, ns since the epoch."""

    pack: int
    live: int
    since: int


class DeletionCandidateTable:
    """The candidates that the last look found, under the volume's lock; or as a snapshot shows them."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    def all(self) -> dict[int, DeletionCandidate]:
        """By the pack's number."""
        rows = self._db.execute("SELECT pack, live, since FROM idle_pack")
        return {row[0]: DeletionCandidate(*row) for row in rows}

    def replace(self, found: Iterable[DeletionCandidate]) -> None:
        """A look has found these, and no others."""
        self._db.execute("DELETE FROM idle_pack")
        self._db.executemany("INSERT INTO idle_pack (pack, live, since) VALUES (?, ?, ?)", list(found))

    def emptied(self, packs: Iterable[int]) -> None:
        """Nothing of these is needed any more; they have been candidates for long enough."""
        self._db.executemany("UPDATE idle_pack SET live = 0 WHERE pack = ?", [(pack,) for pack in packs])

    def put_off(self, packs: Iterable[bytes], now_ns: int) -> None:
        """Count packs, by their ids, as candidates from now on only."""
        self._db.executemany(
            "UPDATE idle_pack SET since = ? WHERE pack = (SELECT number FROM pack WHERE id = ?)",
            [(now_ns, pack) for pack in packs],
        )


class ShareOnCloud(NamedTuple):
    """A share of a pack on a cloud."""

    cloud: int
    pack: bytes
    share: int


class OrphanTable:
    """The shares that the last look found on clouds although no register names them there, each with the
    moment since when it is there, ns since the epoch. Under the volume's lock, or of a snapshot."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    def all(self) -> dict[ShareOnCloud, int]:
        """What the last look found."""
        rows = self._db.execute("SELECT cloud, pack, share, since FROM unnamed_share")
        return {ShareOnCloud(cloud, pack, index): since for cloud, pack, index, since in rows}

    def replace(self, found: Mapping[ShareOnCloud, int]) -> None:
        """A look has found these, and no others."""
        self._db.execute("DELETE FROM unnamed_share")
        self._db.executemany(
            "INSERT INTO unnamed_share (cloud, pack, share, since) VALUES (?, ?, ?, ?)",
            [(*one, since) for one, since in found.items()],
        )


# -- packs that may be deleted soon -------------------------------------------------------------------
# Between its promise not to use a pack again and the end of that pack (`hybrisfs.gc`), a device must know
# whether anything of its own has come to need it, however briefly. So all that names chunks is noted here: by
# the view when it shows them, and by the registers when an update of any device writes a content.


_PLACES: Final = (
    "SELECT pack FROM chunk WHERE id = :id UNION ALL SELECT s.pack FROM chunk c "
    "JOIN spare s ON s.chunk = c.number WHERE c.id = :id "
    "AND CASE WHEN ifnull(c.pack, 0) = 0 THEN c.segment IS NULL ELSE NOT c.proven END"
)
"""Packs that a chunk is needed in: as long as it is not here, and has not been read in the first one, in all
of them."""


def is_condemned(db: Reader, pack: int) -> bool:
    """Whether a pack may be deleted soon."""
    return db.execute("SELECT 1 FROM condemned WHERE pack = ?", (pack,)).fetchone() is not None


class Condemned:
    """The `condemned` table, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database
        rows = database.execute("SELECT pack, wanted FROM condemned").fetchall()
        self._wanted: dict[int, bool] = {pack: bool(wanted) for pack, wanted in rows}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def __contains__(self, pack: object) -> bool:
        return pack in self._wanted

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._wanted))

    def add(self, packs: Iterable[int]) -> None:
        """From now on nothing new relies on these."""
        for pack in packs:
            if pack not in self._wanted:
                self._wanted[pack] = False
                self._db.execute("INSERT INTO condemned (pack, wanted) VALUES (?, 0)", (pack,))

    def release(self, packs: Iterable[int]) -> None:
        """These are packs like any other again, or gone."""
        for pack in packs:
            if self._wanted.pop(pack, None) is not None:
                self._db.execute("DELETE FROM condemned WHERE pack = ?", (pack,))
        if not self._wanted:
            self._db.execute("DELETE FROM unread_page")

    def want(self, pack: int) -> None:
        """Something needs a chunk of the pack."""
        if not self._wanted[pack]:
            self._wanted[pack] = True
            self._db.execute("UPDATE condemned SET wanted = 1 WHERE pack = ?", (pack,))

    def want_all(self) -> None:
        """The needed packs are unknown."""
        for pack in self._wanted:
            self.want(pack)

    def is_wanted(self, pack: int) -> bool:
        """Whether something has needed a chunk of this condemned pack since it was condemned."""
        return self._wanted[pack]

    def see(self, values: Iterable[bytes]) -> None:
        """Updates have written these values of content registers."""
        for value in values if self._wanted else ():
            self._see(value)

    def _see(self, value: bytes) -> None:
        try:
            content = Content.decode(value)
        except DecodeError:
            return  # it shows an empty file
        named = [run.chunk for run in content.runs if run.chunk is not None]
        self.see_chunks(named)
        if content.depth:
            self._db.executemany(
                "INSERT OR IGNORE INTO unread_page (id) VALUES (?)", [(identity,) for identity in named]
            )

    def see_chunks(self, named: Iterable[bytes]) -> None:
        """Something names the chunks with these ids."""
        for identity in named:
            for (pack,) in self._db.execute(_PLACES, {"id": identity}).fetchall():
                if pack in self._wanted:
                    self.want(pack)

    def unread_pages(self) -> list[bytes]:
        """Ids of the lists of chunks that have been named and not been read."""
        return [identity for (identity,) in self._db.execute("SELECT id FROM unread_page")]

    def page_read(self, identity: bytes) -> None:
        """It has been looked into this list of chunks."""
        self._db.execute("DELETE FROM unread_page WHERE id = ?", (identity,))
