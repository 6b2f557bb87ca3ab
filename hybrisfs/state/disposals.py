"""What garbage collection knows between its looks: packs that are candidates for deletion, shares that are
orphans, and the shares that this device has yet to delete from the clouds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from hybrisfs.state.database import Reader, RowWriter

__all__ = [
    "Disposal",
    "DisposalTable",
    "DeletionCandidate",
    "DeletionCandidateTable",
    "ShareOnCloud",
    "OrphanTable",
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
            "SELECT DISTINCT cloud FROM disposal WHERE clock <= ?", (self._db.meta("published"),)
        )
        return {cloud for (cloud,) in rows}

    def due(self, cloud: int, limit: int) -> list[Disposal]:
        """What may be deleted from a cloud now, up to *limit* packs."""
        rows = self._db.execute(
            "SELECT pack, shares, size FROM disposal WHERE cloud = ? AND clock <= ? ORDER BY pack LIMIT ?",
            (cloud, self._db.meta("published"), limit),
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
