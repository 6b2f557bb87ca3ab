"""Volumes that this device only reads: nothing is wrong with them, but no program can save anything there.

The log of the volume says it. Its database is looked at as it is on the disk, whether a daemon has it open or
not; what is wrong with that is for others to tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from hybrisfs.doctor.finding import Finding, ok
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.merge.roles import Role, Roles
from hybrisfs.volume.create import DATABASE_FILE, KEYS_FILE
from sync import DecodeError, VersionVector

__all__ = ["examine_roles"]


def examine_roles(home: Home, volumes: Iterable[str]) -> Iterator[Finding]:
    """One finding for each of these volumes that this device only reads."""
    for name in volumes:
        if _only_reads(home.volume_state(name)):
            yield ok(
                f"volume {name}",
                "this device only reads it, so that nothing can be changed here; "
                "on a full member, hybrisfs device role NAME full lets it write",
            )


def _only_reads(state: Path) -> bool:
    """Whether the volume with this state folder is only read here; False as well when that cannot be told."""
    try:
        device = VolumeKeys.load(state / KEYS_FILE).device.device_id
        address = f"{(state / DATABASE_FILE).as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
            database.execute("BEGIN")
            return _role_in(database, device) is not Role.FULL
    except (HybrisError, OSError, DecodeError, sqlite3.Error):
        return False


def _role_in(database: sqlite3.Connection, device: bytes) -> Role:
    """What the device may do, for all that the log holds."""
    roles = Roles(database)
    if roles.are_awaited(device):
        return Role.READER
    if not roles:
        return Role.FULL
    newest = database.execute("SELECT branch, max(clock) FROM log GROUP BY branch").fetchall()
    return roles.role(device, VersionVector(dict(newest)), roles.vector_of)
