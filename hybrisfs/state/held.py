"""What other devices have taken away, too much at once, and waits for a person: tables `deletion` and `held`.

A row of `deletion` is what one device has taken away; it begins with the update that went too far. A row of
`held` is a register that it is about. Either the view *holds on* to what it shows of this one; that is in
`pending`, too, as if it had been written here (`Changes.hold`). Or the register has been let go of before,
and the row keeps what it said then. What is too much, `hybrisfs.merge.brake` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hybrisfs.kinds import sql_node
from hybrisfs.state.database import RowWriter

__all__ = ["Deletion", "HeldDeletions", "HeldRegister"]


class Deletion(NamedTuple):
    """What one device has taken away. *id*: the hash of the update that went too far; *time_ns*: when the
    first of it was signed, by the device's clock; *names*: how many names are held, *of* how many that are
    lost."""

    number: int
    id: bytes
    device: bytes
    time_ns: int
    names: int
    of: int


class HeldRegister(NamedTuple):
    """A register of a deletion. *former*: what it said before it was let go of; None: the view holds on to
    it."""

    key: bytes
    former: bytes | None


class HeldDeletions:
    """The deletions of one volume that wait, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def begin(self, device: bytes, identity: bytes, time_ns: int, total: int) -> int:
        """The number of the deletion by a device, which begins with this update unless one waits already; so
        many names are lost with it."""
        row = self._db.execute("SELECT number FROM deletion WHERE device = ?", (device,)).fetchone()
        if row is None:
            row = self._db.execute(
                "INSERT INTO deletion (id, device, time, total) VALUES (?, ?, ?, ?) RETURNING number",
                (identity, device, time_ns, total),
            ).fetchone()
        number = int(row[0])
        self._db.execute("UPDATE deletion SET total = max(total, ?) WHERE number = ?", (total, number))
        return number

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
            f"GROUP BY {sql_node('h.key')})), d.total FROM deletion d ORDER BY d.time, d.number"
        )
        return [
            Deletion(number, identity, device, time_ns, min(names, total), total)
            for number, identity, device, time_ns, names, total in rows
        ]

    def registers(self, number: int) -> list[HeldRegister]:
        """The registers of a deletion."""
        rows = self._db.execute("SELECT key, former FROM held WHERE deletion = ?", (number,)).fetchall()
        return [HeldRegister(*row) for row in rows]

    def forget(self, number: int) -> None:
        """A person has decided about a deletion."""
        self._db.execute("DELETE FROM held WHERE deletion = ?", (number,))
        self._db.execute("DELETE FROM deletion WHERE number = ?", (number,))
