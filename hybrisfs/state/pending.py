"""The registers that the view has changed and the clouds do not hold yet: the table `pending`.

A change is *unsigned* until an update holds it, and *shipped* when the clouds hold that. Keys that are held
(`hybrisfs.state.held`) are here, too, and unsigned, though no update is going to hold them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hybrisfs.kinds import KINDS, PACK, Trait
from hybrisfs.state.bulk import insert_many
from hybrisfs.state.database import RowWriter

__all__ = ["PendingTable"]

_LAST: Final = f"?1 || x'{'ff' * 64}'"
_OF_NODE: Final = " OR ".join(
    f"key BETWEEN {kind.sql_key('?1')} AND {kind.sql_key(_LAST)}"
    for kind in KINDS
    if kind.traits & (Trait.TREE | Trait.DIRECT)
)
_IS_HELD: Final = "EXISTS (SELECT 1 FROM held h WHERE h.key = p.key AND h.former IS NULL)"


class PendingTable:
    """The pending changes of one volume, under its lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def unsigned(self) -> list[tuple[bytes, int, int]]:
        """Key, inode and number of all changes that no update holds."""
        return self._db.execute("SELECT key, ino, seq FROM pending WHERE clock IS NULL").fetchall()

    def newest(self) -> int:
        """The highest number that a change has had."""
        number: int = self._db.meta("seq")
        return number

    def put(self, changes: Sequence[tuple[bytes, int, int]], newest: int) -> None:
        """These have changed, given as `unsigned` gives them; nothing else is pending of their keys then."""
        insert_many(self._db, "INSERT OR REPLACE INTO pending (key, ino, seq) VALUES {}", changes)
        self._db.set_meta("seq", newest)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Nothing is pending of these keys."""
        self._db.executemany("DELETE FROM pending WHERE key = ?", [(key,) for key in keys])

    def sign(self, clock: int, changes: Iterable[tuple[bytes, int]]) -> None:
        """The update with this clock holds changes, given by key and number."""
        self._db.executemany(
            "UPDATE pending SET clock = ? WHERE key = ? AND seq = ?",
            [(clock, key, seq) for key, seq in changes],
        )

    def ship(self, clock: int) -> None:
        """The clouds hold every own update up to this clock."""
        self._db.execute("DELETE FROM pending WHERE clock <= ?", (clock,))
        self._db.set_meta("published", clock)

    # -- what is pending -------------------------------------------------------------------------

    def count_nodes(self) -> int:
        """How many nodes have changes that the clouds are to get."""
        (count,) = self._db.execute(
            f"SELECT count(DISTINCT ino) FROM pending p WHERE ino > 0 AND NOT {_IS_HELD}"
        ).fetchone()
        return int(count)

    def is_node_pending(self, node: bytes) -> bool:
        """Whether the clouds are to get a register that says something of a node."""
        query = f"SELECT 1 FROM pending p WHERE ({_OF_NODE}) AND NOT {_IS_HELD} LIMIT 1"
        return self._db.execute(query, (node,)).fetchone() is not None

    def packs(self) -> set[bytes]:
        """The registers of packs that the clouds lack."""
        return {key for (key,) in self._db.execute(f"SELECT key FROM pending WHERE {PACK.sql_rows()}")}
