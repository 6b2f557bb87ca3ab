"""Do the registers hold what the updates say? Each the latest values of all that was written to it.

One pass over the log is enough, and nothing of it need be remembered: a value that an update wrote is there,
or a value that is there depends on that update. Of bare updates nobody knows here what they wrote.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from hybrisfs.kinds import ATTRIBUTES, ID, KINDS, VOTE, Trait
from hybrisfs.log.registers import is_kept
from hybrisfs.members.members import Member, member_key
from hybrisfs.merge.authority import described, fault
from hybrisfs.registers.node_id import kind_of
from hybrisfs.state.members import Membership, member_rows
from hybrisfs.state.register_checks import (
    count_values,
    newest_value,
    rows_of_key,
    values_of_no_update,
    values_with_signers,
)
from hybrisfs.state.registers import branches_by_number
from hybrisfs.state.said import is_anything_said_of
from hybrisfs.verify.log_check import LogRow, Vectors
from sync import DecodeError

__all__ = ["RegisterCheck"]

_MOST_NAMED: Final = 20


class RegisterCheck:
    """Compares `register` in *db* with the updates that it is shown, in order."""

    def __init__(self, db: sqlite3.Connection, vectors: Vectors) -> None:
        self._db = db
        self._vectors = vectors
        self._branches = branches_by_number(db)
        self._numbers = {branch: number for number, branch in self._branches.items()}
        self._found = 0

    def compare(self, entry: LogRow) -> Iterator[str]:
        """What the registers hold otherwise than this update says, in words."""
        number = self._numbers.get(entry.branch)
        for key, value in entry.update.writes:
            if not is_kept(key):
                continue
            rows = rows_of_key(self._db, key)
            mine = next((row[2:] for row in rows if row[:2] == (entry.clock, number)), None)
            superseded = any(self._supersedes(row[0], row[1], entry) for row in rows)
            wrong = None
            if mine is None:
                if not superseded and not _may_be_twisted(key):
                    wrong = "the value that update {} of device {} wrote is missing"
            else:
                self._found += 1
                if mine != (value,):
                    wrong = "the value is not the one that update {} of device {} wrote"
                elif superseded:
                    wrong = "the value that update {} of device {} wrote was superseded and is still there"
            if wrong is not None:
                writer = entry.update.header.writer.hex()
                yield f"{described(key)}: {wrong.format(entry.clock, writer)}"

    def _supersedes(self, clock: int, writer: int, entry: LogRow) -> bool:
        """Whether a value with this stamp depends on the update."""
        branch = self._branches.get(writer)
        if branch is None or clock <= entry.clock:
            return False
        if branch == entry.branch:
            return True
        vector = self._vectors.of(branch, clock)
        return vector is not None and vector[entry.branch] >= entry.clock

    def finish(self) -> Iterator[str]:
        """What the registers hold though no update says so."""
        stored = count_values(self._db)
        extra = stored.values - stored.bare - self._found - self._count_void()
        if extra:
            yield from self._strangers()
            yield f"{extra} values of registers are not as any update says"
        yield from self._members()

    def _count_void(self) -> int:
        """Values that an earlier version took, and that break a rule of this one."""
        return sum(
            fault(device, key, value) is not None
            for kind in KINDS
            if Trait.TREE not in kind.traits
            for key, value, device in values_with_signers(self._db, kind)
        )

    def _strangers(self) -> Iterator[str]:
        """Some values of updates that are not in the log."""
        for key, clock in values_of_no_update(self._db, _MOST_NAMED):
            yield f"{described(key)}: its value is of an update {clock} that is not in the log"

    def _members(self) -> Iterator[str]:
        """Members whose rows are not what they made of themselves, or what the registers say."""
        for device, public, name, state, *_ in member_rows(self._db):
            if Member(public, name).device != device:
                yield f"member {device.hex()}: the public key is not that of the device"
                continue
            signed = _member(newest_value(self._db, member_key(device)))
            if signed is None or signed.device != device:
                continue
            if signed.name != name:
                yield f"member {device.hex()}: called {name!r} here, but {signed.name!r} by its register"
            left = state in (Membership.MEMBER, Membership.RESERVE)
            if signed.removed and left and not is_anything_said_of(self._db, VOTE, device):
                yield f"member {device.hex()}: belongs to the volume here, but was removed by its register"


def _may_be_twisted(key: bytes) -> bool:
    """Whether these may be attributes of another kind than the node has here, which do not count."""
    return key[0] == ATTRIBUTES and kind_of(key[ID]) is None


def _member(value: bytes | None) -> Member | None:
    try:
        return Member.decode(value or b"")
    except DecodeError:
        return None
