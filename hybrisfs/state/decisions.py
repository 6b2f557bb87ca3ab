"""What the view shows otherwise than each node where it says that it stands, which follows from conflicts:

joined       nodes that are merged with another: folders of one name, equal files of one name
copy         concurrent contents of a node, each shown as a file of its own
moved        nodes that cannot stand in the directory that they name, and where they stand instead
moved_for    the directories for whose sake they do
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from hybrisfs.kinds import sql_node
from hybrisfs.state.database import RowWriter
from sync.codec import digest

__all__ = ["Cause", "ConflictTable", "Deletion", "HeldDeletions", "HeldRegister"]

_CONTEXT: Final = "hybrisfs.state 2026-11 overwritten files"


class ConflictTable:
    """The conflicts of one volume, under its lock; inodes must have been flushed."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def are_any(self) -> bool:
        """Whether the view shows anything but one node per name, so that own changes may change others."""
        (found,) = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM joined) OR EXISTS (SELECT 1 FROM copy) "
            "OR EXISTS (SELECT 1 FROM moved) OR EXISTS (SELECT 1 FROM place WHERE wanted IS NOT NULL)"
        ).fetchone()
        return bool(found)

    def inodes(self) -> set[int]:
        """The inodes with which nodes are merged, those that have copies, and these."""
        rows = self._db.execute(
            "SELECT ino FROM joined UNION SELECT ino FROM copy "
            "UNION SELECT n.ino FROM copy c JOIN node n ON n.id = c.id"
        )
        return {ino for (ino,) in rows}

    def is_conflict(self, ino: int, node: bytes) -> bool:
        """Whether others are merged with an inode, which shows this node, or are copies of that."""
        (found,) = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM joined WHERE ino = ?) OR EXISTS (SELECT 1 FROM copy WHERE id = ?)",
            (ino, node),
        ).fetchone()
        return bool(found)

    def forget(self, ino: int) -> None:
        """An inode is shown no more, neither as a copy nor for the nodes that were merged with it."""
        self._db.execute("DELETE FROM copy WHERE ino = ?", (ino,))
        self._db.execute("DELETE FROM joined WHERE ino = ?", (ino,))

    # -- nodes that are merged --------------------------------------------------------------

    def merged_with(self, ino: int) -> list[bytes]:
        """The nodes that are merged with an inode, which is not theirs."""
        rows = self._db.execute("SELECT id FROM joined WHERE ino = ?", (ino,))
        return [node for (node,) in rows]

    def is_merged(self, ino: int) -> bool:
        """Whether nodes are merged with an inode."""
        return self._db.execute("SELECT 1 FROM joined WHERE ino = ?", (ino,)).fetchone() is not None

    def merged_into(self, node: bytes) -> int | None:
        """The inode that a node is merged with."""
        row = self._db.execute("SELECT ino FROM joined WHERE id = ?", (node,)).fetchone()
        return row[0] if row else None

    def merge(self, node: bytes, ino: int) -> None:
        """Let a node, which is not merged yet, be merged with an inode."""
        self._db.execute("INSERT INTO joined VALUES (?, ?)", (node, ino))

    def part(self, node: bytes) -> int | None:
        """Let a node be merged with none; the inode that it was merged with."""
        row = self._db.execute("DELETE FROM joined WHERE id = ? RETURNING ino", (node,)).fetchone()
        return row[0] if row else None

    def merge_instead(self, ino: int, fresh: int) -> None:
        """Let all that is merged with an inode be merged with another one."""
        self._db.execute("UPDATE joined SET ino = ? WHERE ino = ?", (fresh, ino))

    # -- concurrent contents ---------------------------------------------------------------------

    def copies_of(self, node: bytes) -> list[int]:
        """The inodes that show concurrent contents of a node."""
        return [ino for (ino,) in self._db.execute("SELECT ino FROM copy WHERE id = ?", (node,)).fetchall()]

    def original(self, ino: int) -> bytes | None:
        """The node of which an inode shows a concurrent content."""
        row = self._db.execute("SELECT id FROM copy WHERE ino = ?", (ino,)).fetchone()
        return row[0] if row else None

    def shown_by(self, ino: int) -> list[bytes]:
        """The nodes that an inode shows besides its own: the original, and those that are merged with it."""
        query = "SELECT id FROM copy WHERE ino = ?1 UNION ALL SELECT id FROM joined WHERE ino = ?1"
        return [node for (node,) in self._db.execute(query, (ino,))]

    def originals_beside(self, parent: int, name: bytes) -> list[bytes]:
        """The nodes copies of which are shown beside a name, for its sake."""
        rows = self._db.execute(
            "SELECT c.id FROM place p JOIN copy c ON c.ino = p.ino WHERE p.parent = ? AND p.wanted = ?",
            (parent, name),
        )
        return [node for (node,) in rows]

    def copy(self, ino: int, node: bytes) -> None:
        """An inode shows a concurrent content of a node."""
        self._db.execute("INSERT INTO copy VALUES (?, ?)", (ino, node))

    def end_copy(self, ino: int) -> None:
        """An inode shows such a content no more."""
        self._db.execute("DELETE FROM copy WHERE ino = ?", (ino,))

    # -- nodes that stand elsewhere --------------------------------------------------------------

    def move(self, node: bytes, directory: bytes, causes: Iterable[bytes]) -> None:
        """A node stands in this directory, not where it says, for the sake of *causes*."""
        self._db.execute("INSERT OR REPLACE INTO moved VALUES (?, ?)", (node, directory))
        self._db.executemany(
            "INSERT OR IGNORE INTO moved_for VALUES (?, ?)", [(cause, node) for cause in causes]
        )

    def move_back(self, node: bytes) -> None:
        """A node stands where it says."""
        self._db.execute("DELETE FROM moved WHERE id = ?", (node,))
        self._db.execute("DELETE FROM moved_for WHERE id = ?", (node,))

    def is_moved(self, node: bytes) -> bool:
        """Whether a node stands elsewhere than it says."""
        return self._db.execute("SELECT 1 FROM moved WHERE id = ?", (node,)).fetchone() is not None

    def moved_to(self, directory: bytes) -> list[bytes]:
        """The nodes that stand in a directory without saying so."""
        return [node for (node,) in self._db.execute("SELECT id FROM moved WHERE parent = ?", (directory,))]

    def moved_for(self, cause: bytes) -> list[bytes]:
        """The nodes that stand elsewhere for the sake of a directory."""
        return [node for (node,) in self._db.execute("SELECT id FROM moved_for WHERE cause = ?", (cause,))]

    def causes(self, node: bytes) -> list[bytes]:
        """The directories for whose sake a node stands elsewhere."""
        return [cause for (cause,) in self._db.execute("SELECT cause FROM moved_for WHERE id = ?", (node,))]

    def moved_for_nobody(self) -> list[bytes]:
        """The nodes that stand elsewhere, when an older program has not noted for whose sake any does."""
        rows = self._db.execute("SELECT id FROM moved WHERE NOT EXISTS (SELECT 1 FROM moved_for LIMIT 1)")
        return [node for (node,) in rows]


# -- what other devices have taken away or overwritten, too much at once, and waits ---------------------
# A row of `deletion` is what one device has taken away, or has overwritten; it begins with the update that
# went too far. A row of `held` is a register that it is about. Either the view *holds on* to what it shows of
# this one; that is in `pending`, too, as if it had been written here (`Changes.hold`). Or the register has
# been let go of before, and the row keeps what it said then. What is too much, `hybrisfs.merge.brake` says.


class Cause(IntEnum):
    """Why something is held. Of what is overwritten, samples are looked at (`hybrisfs.merge.samples`)."""

    REMOVED = 0
    """It is gone: it waits for a person."""
    OVERWRITTEN = 1
    """It waits for a person, after samples were looked at or could not be had."""
    MANY = 2
    """Many files are overwritten: no sample was looked at yet, nobody is asked yet."""
    MUCH = 3
    """The same, of so much of the volume that a person is asked unless samples keep what they were."""

    @property
    def is_suspicion(self) -> bool:
        """Whether samples are to be looked at."""
        return self >= Cause.MANY


class Deletion(NamedTuple):
    """What one device has taken away or overwritten. *id*: follows from the update that went too far;
    *time_ns*: when the first of it was signed, by the device's clock; *names*: how many names are held, *of*
    how many that there were."""

    number: int
    id: bytes
    device: bytes
    time_ns: int
    names: int
    of: int
    cause: Cause


class HeldRegister(NamedTuple):
    """A register of a deletion. *former*: what it said before it was let go of; None: the view holds on to
    it."""

    key: bytes
    former: bytes | None


class HeldDeletions:
    """The deletions of one volume that wait, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def begin(self, device: bytes, update: bytes, time_ns: int, total: int, cause: Cause) -> int:
        """The number of the deletion by a device, which begins with the update of this hash unless one of a
        like cause waits already; so many names are lost with it. What is suspected comes into one of its own
        each time, until `confirm`."""
        lowest, highest = (Cause.MANY, Cause.MUCH) if cause.is_suspicion else (cause, cause)
        row = self._db.execute(
            "SELECT number FROM deletion WHERE device = ? AND cause BETWEEN ? AND ?",
            (device, lowest, highest),
        ).fetchone()
        if row is None:
            identity = digest(_CONTEXT, update) if cause.is_suspicion else update
            row = self._db.execute(
                "INSERT INTO deletion (id, device, time, total, cause) VALUES (?, ?, ?, ?, ?) "
                "RETURNING number",
                (identity, device, time_ns, total, cause),
            ).fetchone()
        number = int(row[0])
        self._db.execute(
            "UPDATE deletion SET total = max(total, ?), cause = max(cause, ?) WHERE number = ?",
            (total, cause, number),
        )
        return number

    def confirm(self, deletion: Deletion) -> None:
        """What is suspected waits for a person, together with what waits already of the device."""
        row = self._db.execute(
            "SELECT number FROM deletion WHERE device = ? AND cause = ?", (deletion.device, Cause.OVERWRITTEN)
        ).fetchone()
        if row is None:
            self._db.execute(
                "UPDATE deletion SET cause = ? WHERE number = ?", (Cause.OVERWRITTEN, deletion.number)
            )
            return
        self._db.execute("UPDATE held SET deletion = ? WHERE deletion = ?", (row[0], deletion.number))
        self._db.execute("UPDATE deletion SET total = max(total, ?) WHERE number = ?", (deletion.of, row[0]))
        self.forget(deletion.number)

    def keep_former(self, number: int, former: Iterable[tuple[bytes, bytes]]) -> None:
        """Registers of a deletion have been let go of; with what they said, unless it is kept already."""
        self._db.executemany(
            "INSERT OR IGNORE INTO held VALUES (?, ?, ?, 1)", [(key, number, value) for key, value in former]
        )

    def hold(self, number: int, key: bytes, names: int) -> None:
        """The view holds on to a register of a deletion, with which so many names are shown or not."""
        self._db.execute("INSERT OR REPLACE INTO held VALUES (?, ?, NULL, ?)", (key, number, names))

    def keys_held(self) -> set[bytes]:
        """All registers that the view holds on to."""
        return {key for (key,) in self._db.execute("SELECT key FROM held WHERE former IS NULL")}

    def let_go(self, keys: Iterable[bytes]) -> None:
        """The view holds on to these registers no more."""
        self._db.executemany("DELETE FROM held WHERE key = ?", [(key,) for key in keys])

    def is_held_from(self, device: bytes, key: bytes) -> bool:
        """Whether a register is part of what a device has taken away."""
        row = self._db.execute(
            "SELECT 1 FROM held h JOIN deletion d ON d.number = h.deletion WHERE h.key = ? AND d.device = ?",
            (key, device),
        ).fetchone()
        return row is not None

    def waiting(self) -> list[Deletion]:
        """What waits for a person, oldest first. What nothing is held of any more is over, and forgotten."""
        self._db.execute(
            "DELETE FROM deletion WHERE NOT EXISTS "
            "(SELECT 1 FROM held h WHERE h.deletion = deletion.number AND h.former IS NULL)"
        )
        self._db.execute("DELETE FROM held WHERE deletion NOT IN (SELECT number FROM deletion)")
        rows = self._db.execute(
            "SELECT d.number, d.id, d.device, d.time, "
            "(SELECT sum(most) FROM (SELECT max(names) AS most FROM held h WHERE h.deletion = d.number "
            f"GROUP BY {sql_node('h.key')})), d.total, d.cause FROM deletion d ORDER BY d.time, d.number"
        )
        return [
            Deletion(number, identity, device, time_ns, min(names, total), total, Cause(cause))
            for number, identity, device, time_ns, names, total, cause in rows
        ]

    def registers(self, number: int) -> list[HeldRegister]:
        """The registers of a deletion."""
        rows = self._db.execute("SELECT key, former FROM held WHERE deletion = ?", (number,)).fetchall()
        return [HeldRegister(*row) for row in rows]

    def forget(self, number: int) -> None:
        """A person has decided about a deletion."""
        self._db.execute("DELETE FROM held WHERE deletion = ?", (number,))
        self._db.execute("DELETE FROM deletion WHERE number = ?", (number,))
