"""What members have said in registers whose every value matters: the table `said`.

A row says that the update with this clock on this branch wrote the value to the register of this key. So
the values that the author of a decision had seen can be found again. `hybrisfs.members` knows which values
count.
*begins* in a row: what was said before on this branch is not known, or not any more.
"""

from __future__ import annotations

from typing import NamedTuple

from hybrisfs.kinds import ADMISSION, MEMBER, Kind
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.registers import after
from sync import Rename

__all__ = [
    "Said",
    "all_values",
    "beginnings",
    "forget_older",
    "is_anything_said_of",
    "note_said",
    "rename_said",
    "said_of_kin",
    "said_of_kind",
    "stamps_of_key",
    "value_at",
    "values_on_branch",
]


class Said(NamedTuple):
    """A value of a register, with branch and clock of the update that wrote it."""

    key: bytes
    branch: bytes
    clock: int
    value: bytes


def note_said(db: RowWriter, said: Said, *, begins: bool) -> None:
    """Note a value. *begins*: see above."""
    db.execute(
        "INSERT OR REPLACE INTO said (key, branch, clock, value, begins) VALUES (?, ?, ?, ?, ?)",
        (*said, begins),
    )


def forget_older(db: RowWriter, key: bytes, branch: bytes, kept: int) -> None:
    """Of a register, keep the newest values of a branch, so many, and forget the others."""
    oldest = db.execute(
        "SELECT clock FROM said WHERE key = ? AND branch = ? ORDER BY clock DESC LIMIT 2 OFFSET ?",
        (key, branch, kept - 1),
    ).fetchall()
    if len(oldest) < 2:
        return
    first = (key, branch, oldest[0][0])
    db.execute("DELETE FROM said WHERE key = ? AND branch = ? AND clock < ?", first)
    db.execute("UPDATE said SET begins = 1 WHERE key = ? AND branch = ? AND clock = ?", first)


def rename_said(db: RowWriter, rename: Rename) -> None:
    """A branch of the log has another name now, above a clock."""
    db.execute(
        "UPDATE said SET branch = ? WHERE branch = ? AND clock > ?", (rename.new, rename.old, rename.above)
    )


def beginnings(db: Reader) -> list[tuple[bytes, int]]:
    """Branch and clock of the values before which something is not known."""
    return db.execute("SELECT branch, clock FROM said WHERE begins").fetchall()


def values_on_branch(db: Reader, key: bytes, branch: bytes) -> set[bytes]:
    """All that a branch has said in a register."""
    rows = db.execute("SELECT value FROM said WHERE key = ? AND branch = ?", (key, branch))
    return {value for (value,) in rows}


def all_values(db: Reader, key: bytes) -> list[bytes]:
    """All that was said in a register, by clock and branch."""
    rows = db.execute("SELECT value FROM said WHERE key = ? ORDER BY clock, branch", (key,))
    return [value for (value,) in rows.fetchall()]


def stamps_of_key(db: Reader, key: bytes) -> list[tuple[bytes, int]]:
    """Branch and clock of all that was said in a register, by these."""
    return db.execute("SELECT branch, clock FROM said WHERE key = ?", (key,)).fetchall()


def value_at(db: Reader, key: bytes, branch: bytes, clock: int) -> bytes:
    """What an update has said in a register, as `stamps_of_key` tells."""
    (value,) = db.execute(
        "SELECT value FROM said WHERE key = ? AND branch = ? AND clock = ?", (key, branch, clock)
    ).fetchone()
    return bytes(value)


def said_of_kind(db: Reader, kind: Kind) -> list[Said]:
    """All that was said in registers of a kind, by key, branch and clock."""
    rows = db.execute(
        f"SELECT key, branch, clock, value FROM said WHERE {kind.sql_rows()} ORDER BY key, branch, clock"
    )
    return list(map(Said._make, rows))


def said_of_kin(db: Reader) -> list[Said]:
    """All that was said of members and of their inviters, by clock."""
    rows = db.execute(
        f"SELECT key, branch, clock, value FROM said WHERE {ADMISSION.sql_rows()} OR {MEMBER.sql_rows()} "
        "ORDER BY clock"
    )
    return list(map(Said._make, rows))


def is_anything_said_of(db: Reader, kind: Kind, device: bytes) -> bool:
    """Whether anything was said in registers of a kind whose keys begin with this device."""
    first = kind.key(device)
    row = db.execute("SELECT 1 FROM said WHERE key >= ? AND key < ? LIMIT 1", (first, after(first)))
    return row.fetchone() is not None
