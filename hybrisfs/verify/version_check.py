"""Are the versions that are kept what updates said, and can they be read?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hybrisfs.kinds import Trait, having
from hybrisfs.log.registers import is_kept
from hybrisfs.members.role_table import Roles
from hybrisfs.merge.authority import counting, described
from hybrisfs.state.file_chunks import is_known
from hybrisfs.state.stored_log import body_of
from hybrisfs.state.versions import all_versions, kept_contents
from hybrisfs.versions.needs import named_chunks
from sync import decode_signed

__all__ = ["check_versions", "count_without_bytes"]

_VERSIONED = having(Trait.VERSIONED)


def check_versions(db: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with the versions in the snapshot *db*, in words."""
    writes: dict[bytes, bytes | None] | None = None
    update: tuple[bytes | None, int] = (None, -1)
    roles = Roles(db)
    for key, clock, branch, value, is_latest in all_versions(db):
        if key[0] not in _VERSIONED or not is_kept(key):
            yield f"{described(key)}: is noted as a version, and is nothing that has any"
            continue
        if (branch, clock) != update:
            update, writes = (branch, clock), _writes(db, roles, branch, clock)
        if is_latest:
            yield f"{described(key)}: what update {clock} wrote is noted as a version and is true still"
        elif writes is not None and writes.get(key) != value:
            yield f"{described(key)}: the version of update {clock} is not what that wrote"


def _writes(
    db: sqlite3.Connection, roles: Roles, branch: bytes | None, clock: int
) -> dict[bytes, bytes | None] | None:
    """What an update wrote; None when that is not known here."""
    body = body_of(db, branch, clock)
    if body is None:
        return {}
    return None if body.data is None else dict(counting(decode_signed(body.data), body.vector, roles).writes)


def count_without_bytes(db: sqlite3.Connection) -> int:
    """How many versions cannot be read any more. That is no error: they were overwritten before a cloud had
    them, and given up to make room; or a log that was read again names versions that were dropped long
    ago."""
    return sum(
        not all(is_known(db, chunk) for chunk in named_chunks(value)[0]) for (value,) in kept_contents(db)
    )
