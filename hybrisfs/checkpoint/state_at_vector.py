"""What log and registers held at an earlier vector: so that devices which never rest can state one state.

What another device has stated is an earlier state of a device that has gone on since. It is found again from
the last agreed checkpoint, which is in a local snapshot, and the updates since then, whose bodies are in the
log: only registers that these have written to can have held something else than they hold now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hybrisfs.checkpoint.snapshot import Header, Latest, read_snapshot
from hybrisfs.log import Supersession, Written, is_kept
from hybrisfs.members.role_table import Roles
from hybrisfs.merge.authority import counting
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.earlier_state import EarlierState
from sync import VersionVector, decode_signed

__all__ = ["MOST_BYTES", "Base", "look_back"]

MOST_BYTES: Final = 64 << 20
"""In bytes of updates since the last checkpoint. Their writes need a multiple of that in memory."""


class Base(NamedTuple):
    """The last agreed checkpoint: what it covers, and the slices of its snapshot."""

    vector: VersionVector
    pieces: Iterable[bytes]


def look_back(
    db: sqlite3.Connection, vector: VersionVector, base: Base | None, most_bytes: int = MOST_BYTES
) -> bool:
    """From now on, let `log` and `register` on *db* have the state in which only the updates that *vector*
    covers were accepted. False when that is unknown: not all of it is here, or it goes by other names here,
    or more than *most_bytes* of updates have come since the base.

    *db*: a read-only view of a volume's database, in a transaction. *base*: covered by *vector*; None when
    there never was a checkpoint. Raises DecodeError and OSError when it cannot be read.
    """
    covered = base.vector if base is not None else VersionVector()
    earlier = EarlierState(db, vector, covered)
    if not earlier.are_states():
        return False
    size = earlier.bytes_since_base()
    if size is None or size > most_bytes:
        return False
    touched: set[bytes] = set()
    updates = list(_updates_since(earlier, Roles(db), touched))
    before = {} if base is None else _values_at(earlier, base, touched)
    if before is None:
        return False
    change = Supersession({key: [one.stamp for one in values] for key, values in before.items()})
    change.take(updates)
    for key, stamp in change.superseded:
        before[key] = [one for one in before[key] if one.stamp != stamp]
    earlier.show(touched, (*before.items(), *change.come.items()))
    return True


def _updates_since(earlier: EarlierState, roles: Roles, touched: set[bytes]) -> Iterator[Written]:
    """The updates after the base up to the cut. The keys of registers that these and all later updates wrote
    join *touched*."""
    for branch, clock, vector, data, within in earlier.updates_since_base():
        writes = [one for one in counting(decode_signed(data), vector, roles).writes if is_kept(one[0])]
        touched.update(key for key, _ in writes)
        if within:
            yield Written(Stamp(clock, branch), VersionVector.decode(vector), writes)


def _values_at(earlier: EarlierState, base: Base, touched: set[bytes]) -> dict[bytes, list[Value]] | None:
    """The values of these registers at the base; None when the log here has other names for their updates."""
    stamps = earlier.stamps_of_base()
    found: dict[bytes, list[Value]] = {}
    for record in read_snapshot(base.pieces):
        if isinstance(record, Header) and record.updates != len(stamps):
            return None
        if isinstance(record, Latest) and record.key in touched:
            found.setdefault(record.key, []).append(Value(stamps[record.update], record.value))
    return found
