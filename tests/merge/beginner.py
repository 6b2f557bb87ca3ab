"""Devices that begin with what others have, and what their views say."""

from __future__ import annotations

from typing import Any, Final

from hybrisfs.merge.authority import lawful
from hybrisfs.merge.packs import Packs, Placement
from hybrisfs.registers.values import Stamp
from sync import decode_signed
from tests.merge.fleet import Device
from tests.tree.rig import Rig

__all__ = ["filled_like", "past", "shown", "stored"]

_COPIED: Final = ("member", "writer", "register", "log", "log_branch")


def filled_like(source: Device) -> Rig:
    """A device that has the registers of another, its log and its packs, and shows nothing yet."""
    source.rig.fs.flush(source.rig.tx)
    rig = Rig(clouds=source.rig.clouds, plaintexts=source.rig.plaintexts)
    for table in _COPIED:
        rows = source.rig.db.rows.execute(f"SELECT * FROM {table}").fetchall()
        rig.db.rows.execute(f"DELETE FROM {table}")
        if rows:
            rig.db.rows.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    rig = rig.reopen()
    placements: list[Placement] = []
    for branch, clock, data in rig.db.rows.execute("SELECT branch, clock, bytes FROM log ORDER BY number"):
        placements += [
            Placement(key[1:], value, Stamp(clock, branch))
            for key, value in lawful(decode_signed(data)).writes
            if key[:1] == b"k"
        ]
    Packs(rig.fs).take(rig.tx, placements)
    return rig


def shown(rig: Rig) -> dict[str, Any]:
    """All that the view says, without numbers that are this device's own."""
    rig.fs.flush(rig.tx)
    rows = rig.db.rows.execute(
        "SELECT d.id, p.name, p.wanted, p.slot, p.stamp, n.id FROM place p "
        "JOIN node d ON d.ino = p.parent JOIN node n ON n.ino = p.ino"
    ).fetchall()
    nodes = rig.db.rows.execute(
        "SELECT id, mode, uid, gid, rdev, nlink, size, stored, target, xattrs, "
        "attr_stamp, content_stamp FROM node"
    ).fetchall()
    contents = rig.db.rows.execute(
        "SELECT n.id, f.offset, f.length, c.id FROM file_chunk f "
        "JOIN node n ON n.ino = f.ino JOIN chunk c ON c.number = f.chunk"
    ).fetchall()
    pages = rig.db.rows.execute(
        "SELECT n.id, u.value FROM unlisted u JOIN node n ON n.ino = u.ino"
    ).fetchall()
    xattrs = rig.db.rows.execute("SELECT n.id, x.name, x.value FROM xattr x JOIN node n ON n.ino = x.ino")
    seen_as = "SELECT o.id, n.id FROM {} o JOIN node n ON n.ino = o.ino"
    return {
        "places": sorted(rows, key=repr),
        "nodes": {row[0]: row[1:] for row in nodes},
        "contents": sorted(contents),
        "unlisted": dict(pages),
        "xattrs": sorted(xattrs.fetchall()),
        "joined": dict(rig.db.rows.execute(seen_as.format("joined")).fetchall()),
        "copies": sorted(rig.db.rows.execute(seen_as.format("copy")).fetchall()),
        "moved": dict(rig.db.rows.execute("SELECT id, parent FROM moved").fetchall()),
        "in_conflict": {rig.fs.inodes.get(rig.tx, ino).id for ino in rig.fs.inodes.in_conflict},
        "totals": (rig.fs.total_files, rig.fs.content.total_bytes),
    }


def past(rig: Rig) -> dict[str, Any]:
    """What registers held once, and when, without numbers that are the device's own."""
    rows = rig.db.rows.execute(
        "SELECT p.key, p.clock, w.branch, p.value, p.since, p.until FROM past p "
        "JOIN writer w ON w.number = p.writer ORDER BY p.key, p.clock, w.branch"
    )
    removals = rig.db.rows.execute("SELECT node, moment FROM removal")
    return {"past": rows.fetchall(), "removals": dict(removals.fetchall())}


def stored(rig: Rig) -> dict[str, Any]:
    """The log and the places of chunks, without numbers that are the device's own."""
    return {
        "log": rig.db.rows.execute("SELECT branch, clock, hash, vector FROM log ORDER BY hash").fetchall(),
        "branches": rig.db.rows.execute("SELECT * FROM log_branch ORDER BY id").fetchall(),
        "packs": rig.db.rows.execute(
            "SELECT id, k, n, placement, clock, branch FROM pack ORDER BY id"
        ).fetchall(),
        "chunks": rig.db.rows.execute(
            "SELECT c.id, c.length, p.id, c.offset, c.sealed FROM chunk c "
            "LEFT JOIN pack p ON p.number = c.pack ORDER BY c.id"
        ).fetchall(),
        "spares": rig.db.rows.execute(
            "SELECT c.id, p.id, s.offset FROM spare s JOIN chunk c ON c.number = s.chunk "
            "JOIN pack p ON p.number = s.pack ORDER BY c.id, p.id"
        ).fetchall(),
    }
