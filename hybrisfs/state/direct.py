"""Facets of nodes that are shown as their registers say (`Trait.DIRECT`): the view has no rows of them.

What a program here has changed, and no update holds yet, stands in the table `unsigned` and hides what the
register says. `pending` has its key, too, so that the next cut takes it. When it is signed, the register says
the same, and the row goes. So what other devices write is shown as soon as it is in the registers.

Of the concurrent values of such a register the greatest counts, by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hybrisfs.kinds import ATTRIBUTES, NODE, Kind, sql_node
from hybrisfs.state.database import Reader, RowWriter

__all__ = ["Direct", "ShownValue", "has_any"]

_VALUES = (
    "SELECT key, value FROM unsigned WHERE key >= ?1 AND key < ?2 UNION ALL "
    "SELECT key, max(value) AS value FROM register r WHERE key >= ?1 AND key < ?2 "
    "AND NOT EXISTS (SELECT 1 FROM unsigned u WHERE u.key = r.key) GROUP BY key"
)
_SHOWN = (
    f"SELECT v.key, v.value, ifnull(j.ino, n.ino) AS at FROM ({_VALUES}) v "
    f"LEFT JOIN node n ON n.id = {sql_node('v.key')} AND n.nlink > 0 "
    f"LEFT JOIN joined j ON j.id = {sql_node('v.key')} WHERE at IS NOT NULL"
)
_IS_WANTED = (
    "SELECT 1 FROM node WHERE id = ?1 AND nlink > 0 UNION ALL SELECT 1 FROM joined WHERE id = ?1 "
    f"UNION ALL SELECT 1 FROM register WHERE key = {ATTRIBUTES.sql_key('?1')} LIMIT 1"
)


class ShownValue(NamedTuple):
    """What a register says here, and the inode that shows the node."""

    key: bytes
    value: bytes
    ino: int


def has_any(db: Reader, kind: Kind) -> bool:
    """Whether an update has ever written a register of this kind."""
    query = f"SELECT 1 FROM register WHERE {kind.sql_rows()} LIMIT 1"
    return db.execute(query).fetchone() is not None


class Direct:
    """Those of one volume, under its lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def between(self, first: bytes, last: bytes) -> dict[bytes, bytes]:
        """What the registers from *first* on and before *last* say here, by their keys."""
        return dict(self._db.execute(_VALUES, (first, last)).fetchall())

    def shown(self, first: bytes, last: bytes) -> list[ShownValue]:
        """The same of all nodes that are shown; inodes must have been flushed."""
        return [ShownValue(*row) for row in self._db.execute(_SHOWN, (first, last))]

    def is_wanted(self, key: bytes) -> bool:
        """Whether the node of the register is shown, or others know it and may bring it back; inodes must
        have been flushed."""
        return self._db.execute(_IS_WANTED, (key[NODE],)).fetchone() is not None

    def unsigned(self, key: bytes) -> bytes | None:
        """The value of a register that no update holds yet."""
        row = self._db.execute("SELECT value FROM unsigned WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: bytes, value: bytes) -> None:
        """A program has changed it."""
        self._db.execute("INSERT OR REPLACE INTO unsigned VALUES (?, ?)", (key, value))

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are shown as their registers say again."""
        self._db.executemany("DELETE FROM unsigned WHERE key = ?", [(key,) for key in keys])
