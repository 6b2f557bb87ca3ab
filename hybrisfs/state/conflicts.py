"""What the view shows otherwise than each node where it says that it stands, which follows from conflicts:

joined           nodes that are seen as one with another: folders of one name, equal files of one name
copy             concurrent contents of a node, each shown as a file of its own
"""

from __future__ import annotations

from hybrisfs.state.database import Database

__all__ = ["ConflictTable"]


class ConflictTable:
    """The conflicts of one volume, under its lock; inodes must have been flushed."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def entangled(self) -> set[int]:
        """The inodes with which nodes are joined, those that have copies, and these."""
        rows = self._db.execute(
            "SELECT ino FROM joined UNION SELECT ino FROM copy "
            "UNION SELECT n.ino FROM copy c JOIN node n ON n.id = c.id"
        )
        return {ino for (ino,) in rows}

    def joined_with(self, ino: int) -> list[bytes]:
        """The nodes that are joined with an inode, which is not theirs."""
        rows = self._db.execute("SELECT id FROM joined WHERE ino = ?", (ino,))
        return [node for (node,) in rows]

    def original(self, ino: int) -> bytes | None:
        """The node of which an inode shows a concurrent content."""
        row = self._db.execute("SELECT id FROM copy WHERE ino = ?", (ino,)).fetchone()
        return row[0] if row else None

    def shown_by(self, ino: int) -> list[bytes]:
        """The nodes that an inode shows besides its own: the original, and those that are joined with it."""
        query = "SELECT id FROM copy WHERE ino = ?1 UNION ALL SELECT id FROM joined WHERE ino = ?1"
        return [node for (node,) in self._db.execute(query, (ino,))]
