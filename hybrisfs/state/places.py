"""Which inode the view shows in which directory, and under which name: the table `place`.

A name keeps its number when it comes to mean another node, so that no listing misses it or has it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from hybrisfs.state.database import Database
from hybrisfs.state.nodes import NODE_COLUMNS
from hybrisfs.state.schema import ROOT_INO

__all__ = ["PlaceRow", "PlaceTable"]

PlaceRow: TypeAlias = tuple[int, int, int]
"""What has a name: its inode, the slot of the place, and the stamp."""
_INSERT: Final = (
    "INSERT INTO place (number, parent, name, ino, slot, stamp, wanted) "
    "SELECT iif(EXISTS (SELECT 1 FROM place WHERE number = ?1), NULL, ?1), ?, ?, ?, ?, ?, ?"
)
_LIST: Final = (
    f"SELECT p.number, p.name, p.ino, {', '.join(f'n.{name}' for name in NODE_COLUMNS.split(', '))} "
    "FROM place p LEFT JOIN node n ON n.ino = p.ino WHERE p.parent = ? AND p.number > ? "
    "ORDER BY p.number LIMIT ?"
)


class PlaceTable:
    """The names of one volume, under its lock."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # -- reading ---------------------------------------------------------------------------------

    def find(self, parent: int, name: bytes) -> PlaceRow | None:
        """What has the name in a directory."""
        row: PlaceRow | None = self._db.execute(
            "SELECT ino, slot, stamp FROM place WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        return row

    def listing(self, parent: int, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Up to *limit* names in a directory, those with numbers above *after*, in their order: number, name,
        inode, and the `NodeRow`, which has NULLs when the node has not been flushed yet."""
        return self._db.execute(_LIST, (parent, after, limit)).fetchall()

    def is_empty(self, directory: int) -> bool:
        """Whether a directory holds no name."""
        query = "SELECT 1 FROM place WHERE parent = ? LIMIT 1"
        return self._db.execute(query, (directory,)).fetchone() is None

    def parent_of(self, ino: int) -> int:
        """A directory that holds the inode; the root holds itself, and all that has no name."""
        if ino == ROOT_INO:
            return ino
        row = self._db.execute("SELECT parent FROM place WHERE ino = ?", (ino,)).fetchone()
        return row[0] if row else ROOT_INO

    def parents_of(self, ino: int) -> list[int]:
        """All directories that hold the inode; nothing holds the root."""
        if ino == ROOT_INO:
            return []
        rows = self._db.execute("SELECT DISTINCT parent FROM place WHERE ino = ?", (ino,)).fetchall()
        return [parent for (parent,) in rows]

    def above(self, directory: int) -> Iterator[int]:
        """The directories above one, the nearest first and the root last."""
        while directory != ROOT_INO:
            directory = self.parent_of(directory)
            yield directory

    # -- changing --------------------------------------------------------------------------------

    def insert(
        self,
        parent: int,
        name: bytes,
        ino: int,
        slot: int,
        stamp: int,
        number: int | None = None,
        wanted: bytes | None = None,
    ) -> None:
        """Give an inode a name that nothing has. *number*: the one that the name had before; if another name
        has taken it, the name gets a new one. *wanted*: see `hybrisfs.state.schema`."""
        self._db.execute(_INSERT, (number, parent, name, ino, slot, stamp, wanted))

    def remove_name(self, parent: int, name: bytes) -> int:
        """Remove a name that is there; its number."""
        number: int = self._db.execute(
            "DELETE FROM place WHERE parent = ? AND name = ? RETURNING number", (parent, name)
        ).fetchone()[0]
        return number

    def set_stamp(self, stamp: int, places: Iterable[tuple[int, int]]) -> None:
        """The update with this stamp wrote these places, each given by its inode and slot."""
        self._db.executemany(
            "UPDATE place SET stamp = ? WHERE ino = ? AND slot = ?",
            [(stamp, ino, slot) for ino, slot in places],
        )
