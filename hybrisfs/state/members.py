"""The devices of the volume, as this one knows them: the tables `member`, `epoch` and `charge`.

`member`: the devices that may write to the volume, and those that might; a row is a `MemberRow`. What follows
from the rows, from votes and from the bounds, `hybrisfs.members.member_table` finds.

`epoch`: which devices have granted the keys of which epochs, and the clocks of the updates that did so first.

`charge`: since when this device has known, by its own clock, what time makes it do something about: that a
device is accused, by whom; the accuser `NO_MEMBER` stands for a proof of a fork.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from hybrisfs.kinds import ADMISSION, KIT, SIGNED_KIT
from hybrisfs.state.database import Reader, RowWriter
from sync import DEVICE_ID_SIZE
from sync.beacons import Sighting

__all__ = [
    "NO_MEMBER",
    "AdmissionValue",
    "Charge",
    "Granted",
    "MemberRow",
    "Membership",
    "SightingTable",
    "admission_values",
    "begun_epochs",
    "charges",
    "devices_from_the_beginning",
    "forget_charges",
    "grants",
    "inviter_of_this_device",
    "is_granted",
    "is_reserve",
    "is_let_in_limited",
    "member_rows",
    "name_of_member",
    "note_charges",
    "note_grant",
    "put_members",
    "rename_members",
    "reserves_with_kits",
]

NO_MEMBER: Final = b""
_LAST: Final = b"\xff" * (DEVICE_ID_SIZE + 1)


class Membership(IntEnum):
    """What the column `state` of the `member` table says of a device."""

    MEMBER = 0
    TOLD_REMOVED = 1  # by the device that let this one in; what it wrote before is accepted with the log
    REMOVED = (
        2  # by votes that are accepted here; in the table only when no register says that it ever belonged
    )
    RESERVE = 3  # the key of a recovery kit; less than removed, more than an ordinary member


class MemberRow(NamedTuple):
    """A device. *public*: its Ed25519 key; *state*: a `Membership`, unless the row is damaged; *inviter*: who
    let it in, None when that is not known; *clock*: of the update that did, 0 for none, None when this device
    was only told of it."""

    device: bytes
    public: bytes
    name: str
    state: int
    inviter: bytes | None
    clock: int | None


# -- members ---------------------------------------------------------------------------------------------


def member_rows(db: Reader) -> list[MemberRow]:
    """All that are known, by name."""
    rows = db.execute(
        "SELECT device, public, name, state, inviter, clock FROM member ORDER BY name, device"
    ).fetchall()
    return [MemberRow(*row) for row in rows]


def name_of_member(db: Reader, device: bytes) -> str:
    """What a device is called; empty when it is unknown, or has no name."""
    row = db.execute("SELECT name FROM member WHERE device = ?", (device,)).fetchone()
    return row[0] if row else ""


def is_reserve(db: Reader, device: bytes) -> bool:
    """Whether a device is the key of a recovery kit."""
    query = "SELECT 1 FROM member WHERE device = ? AND state = ?"
    return db.execute(query, (device, Membership.RESERVE)).fetchone() is not None


def reserves_with_kits(db: Reader) -> set[bytes]:
    """Those in reserve of which a register holds the kit."""
    rows = db.execute(
        "SELECT device FROM member WHERE state = ? AND EXISTS (SELECT 1 FROM register WHERE key IN "
        f"({KIT.sql_key('device')}, {SIGNED_KIT.sql_key('device')}) AND value IS NOT NULL)",
        (Membership.RESERVE,),
    )
    return {device for (device,) in rows}


def devices_from_the_beginning(db: Reader, *states: Membership) -> set[bytes]:
    """The devices with which the volume began here, whatever the log says: those of these states, or all."""
    rows = db.execute("SELECT device, state FROM member WHERE inviter IS NULL AND clock = 0").fetchall()
    return {device for device, state in rows if not states or state in states}


def inviter_of_this_device(db: Reader) -> bytes:
    """The device that let this one in, empty on the first one."""
    return bytes(db.execute("SELECT value FROM meta WHERE key = 'inviter'").fetchone()[0])


def is_let_in_limited(db: Reader) -> bool:
    """Whether this device was let in as less than a full member."""
    return db.execute("SELECT 1 FROM meta WHERE key = 'reader'").fetchone() is not None


def rename_members(db: RowWriter, names: Iterable[tuple[bytes, str]]) -> None:
    """Let these devices be called so."""
    db.membership += 1
    db.executemany("UPDATE member SET name = ? WHERE device = ?", [(name, device) for device, name in names])


def put_members(db: RowWriter, rows: Iterable[MemberRow]) -> None:
    """Add devices, or change what is known of them: a removed one stays removed, and what is known to be a
    device, or in reserve, stays that."""
    db.membership += 1
    db.executemany(
        "INSERT INTO member (device, public, name, state, inviter, clock) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (device) DO UPDATE SET name = excluded.name, state = CASE "
        "WHEN state IN (1, 2) OR excluded.state IN (1, 2) THEN max(state % 3, excluded.state % 3) "
        "WHEN clock IS NOT NULL THEN state ELSE max(state, excluded.state) END, "
        # The device that removes a known one did not let it in, nor did a device that renames one that is
        # here from the beginning.
        "inviter = CASE WHEN excluded.state IN (1, 2) OR inviter IS NULL AND clock = 0 THEN inviter "
        "ELSE ifnull(inviter, excluded.inviter) END, "
        "clock = CASE WHEN inviter IS NULL AND clock = 0 THEN 0 "
        "WHEN excluded.state IN (1, 2) THEN ifnull(clock, excluded.clock) "
        "WHEN inviter IS NULL AND excluded.inviter IS NOT NULL THEN excluded.clock "
        "WHEN clock > 0 THEN clock ELSE ifnull(nullif(excluded.clock, 0), clock) END",
        rows,
    )


class AdmissionValue(NamedTuple):
    """A value of a register that says which device let *device* in, and the clock of the update that wrote
    it."""

    device: bytes
    key: bytes
    clock: int
    value: bytes | None


def admission_values(db: Reader) -> Iterator[AdmissionValue]:
    """What registers say of the admission of the devices that are known."""
    rows = db.execute(
        "SELECT m.device, r.key, r.clock, r.value FROM member m JOIN register r "
        f"ON r.key > {ADMISSION.sql_key('m.device')} AND r.key < {ADMISSION.sql_key('m.device || ?')}",
        (_LAST,),
    )
    return map(AdmissionValue._make, rows)


# -- epochs ----------------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """*device* has granted the keys of *epoch* (its id, 4 bytes), first in an update with this clock."""

    epoch: bytes
    device: bytes
    clock: int


def note_grant(db: RowWriter, granted: Granted) -> None:
    """Note a grant, unless one of the same epoch by the same device is noted."""
    db.execute("INSERT OR IGNORE INTO epoch VALUES (?, ?, ?)", granted)


def is_granted(db: Reader, epoch: bytes) -> bool:
    """Whether a grant of an epoch is noted."""
    return db.execute("SELECT 1 FROM epoch WHERE id = ? LIMIT 1", (epoch,)).fetchone() is not None


def begun_epochs(db: Reader, device: bytes) -> int:
    """How many epochs a device has begun: it was the first to grant them."""
    (count,) = db.execute(
        "SELECT count(*) FROM epoch e WHERE device = ? AND NOT EXISTS (SELECT 1 FROM epoch o "
        "WHERE o.id = e.id AND (o.clock < e.clock OR (o.clock = e.clock AND o.device < e.device)))",
        (device,),
    ).fetchone()
    return int(count)


def grants(db: Reader) -> list[Granted]:
    """All grants, by clock and epoch."""
    rows = db.execute("SELECT id, device, clock FROM epoch ORDER BY clock, id").fetchall()
    return [Granted(*row) for row in rows]


# -- charges ---------------------------------------------------------------------------------------------


class Charge(NamedTuple):
    """An accusation that this device has known *since* then, ns since the epoch by its own clock."""

    accused: bytes
    accuser: bytes
    since: int


def charges(db: Reader) -> list[Charge]:
    """All that is remembered, in no order."""
    rows = db.execute("SELECT accused, accuser, since FROM charge").fetchall()
    return [Charge(*row) for row in rows]


def note_charges(db: RowWriter, new: Iterable[Charge]) -> None:
    """Remember new charges."""
    db.executemany("INSERT INTO charge (accused, accuser, since) VALUES (?, ?, ?)", new)


def forget_charges(db: RowWriter, over: Collection[tuple[bytes, bytes]]) -> None:
    """Forget these pairs of accused and accuser, which no longer hold."""
    db.executemany("DELETE FROM charge WHERE accused = ? AND accuser = ?", over)


# -- the last sighting of each device, kept in the database for the next start --------------------------


class SightingTable:
    """The table `sighting`, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def load(self) -> dict[bytes, Sighting]:
        """The stored sightings, by device."""
        rows = self._db.execute("SELECT device, head, seen FROM sighting").fetchall()
        return {device: Sighting(head, seen) for device, head, seen in rows}

    def store(self, sightings: Mapping[bytes, Sighting]) -> None:
        """Store these instead of earlier ones of the same devices."""
        self._db.executemany(
            "INSERT INTO sighting (device, head, seen) VALUES (?, ?, ?) "
            "ON CONFLICT (device) DO UPDATE SET head = excluded.head, seen = excluded.seen",
            [(device, one.head, one.seen_ns) for device, one in sightings.items()],
        )
