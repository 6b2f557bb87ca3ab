"""What must hold between any two operations, whatever was done before."""

from __future__ import annotations

import stat
from collections import Counter
from itertools import pairwise

from hybrisfs.dispersal.pack import ChunkLocation
from hybrisfs.registers.tree import Place, attr_key, content_key, place_key
from hybrisfs.state.extents import ZEROS
from hybrisfs.state.nodes import NODE_COLUMNS
from hybrisfs.write.cut import FileSnapshot
from tests.tree.replay import Reader, read_content
from tests.tree.rig import SEALER, Rig

__all__ = ["check_accounts", "check_chunks", "check_published"]


def check_accounts(rig: Rig, snapshots: list[FileSnapshot], *, honest: bool = True) -> None:
    """Pins, rows, counters and the pending set agree with each other. *snapshots* are being cut into chunks.
    Unless all who write are *honest*, files may show more of a chunk than there is."""
    rig.fs.flush(rig.tx)
    _check_extents(rig, snapshots)
    _check_rows(rig, honest=honest)
    _check_nodes(rig)
    _check_pending(rig)


def _check_extents(rig: Rig, snapshots: list[FileSnapshot]) -> None:
    pieces: Counter[int] = Counter()
    rows = rig.db.rows.execute("SELECT ino, start, length, segment, position FROM extent ORDER BY ino, start")
    before: tuple[int, int] = (0, 0)
    stored: dict[int, list[tuple[int, int, int, int]]] = {}
    for ino, start, length, segment, position in rows.fetchall():
        assert length > 0
        assert ino != before[0] or start >= before[1], f"extents of node {ino} overlap at {start}"
        before = ino, start + length
        stored.setdefault(ino, []).append((start, start + length, segment, position))
        if segment != ZEROS:
            pieces[segment] += 1
    for inode in rig.fs.inodes._loaded.values():
        if inode.extents is not None:
            in_memory = [(one.start, one.end, one.segment, one.position) for one in inode.extents]
            assert in_memory == stored.get(inode.ino, []), f"extents of node {inode.ino}"
    for (segment,) in rig.db.rows.execute(
        "SELECT segment FROM chunk WHERE pack IS NULL OR pack = 0 AND segment IS NOT NULL"
    ).fetchall():
        pieces[segment] += 1
    for snapshot in snapshots:
        pieces.update(snapshot.segments())
    assert +rig.journal.dirty_pieces == pieces
    assert set(pieces) <= rig.journal.numbers()


def _check_rows(rig: Rig, *, honest: bool) -> None:
    rows = rig.db.rows.execute(
        "SELECT f.ino, f.offset, f.length, f.skip + f.length, c.length, n.size FROM file_chunk f "
        "LEFT JOIN chunk c ON c.number = f.chunk LEFT JOIN node n ON n.ino = f.ino ORDER BY f.ino, f.offset"
    ).fetchall()
    for ino, offset, shown, reach, whole, size in rows:
        assert size is not None, f"content of node {ino}, which does not exist"
        assert whole is not None and shown > 0
        assert reach <= whole or not honest
        assert offset + shown <= size
    for one, other in pairwise(rows):
        assert one[0] != other[0] or one[1] + one[2] <= other[1], f"chunks of node {one[0]} overlap"
    nowhere = rig.db.rows.execute(
        "SELECT number FROM chunk WHERE segment IS NULL AND pack IS NULL"
    ).fetchall()
    assert not nowhere


def _check_nodes(rig: Rig) -> None:
    rows = {row[0]: row for row in rig.db.rows.execute(f"SELECT {NODE_COLUMNS} FROM node").fetchall()}
    orphans = {row[0] for row in rig.db.rows.execute("SELECT ino FROM orphan").fetchall()}
    places = Counter(row[0] for row in rig.db.rows.execute("SELECT ino FROM place").fetchall())
    assert set(places) <= set(rows)
    for inode in rig.fs.inodes._loaded.values():
        if inode.orphan and not inode.handles:
            assert inode.ino not in rows
        else:
            assert inode.row() == rows[inode.ino], f"node {inode.ino} differs from its row"
    unlisted = {row[0] for row in rig.db.rows.execute("SELECT ino FROM unlisted").fetchall()}
    assert unlisted <= set(rows)
    files = size = 0
    for ino, row in rows.items():
        stored = rig.db.rows.execute("SELECT total(length) FROM file_chunk WHERE ino = ?", (ino,)).fetchone()[
            0
        ]
        assert ino in unlisted or row[8] == int(stored), f"bytes stored of node {ino}"
        inode = rig.fs.inodes.get(rig.tx, ino)
        assert inode.orphan == (ino in orphans)
        if not inode.is_directory:
            assert inode.nlink == places[ino]
        if inode.is_file:
            files += not inode.orphan
            size += inode.size
    assert rig.fs.total_files == files
    assert rig.fs.content.total_bytes == size


def _check_pending(rig: Rig) -> None:
    rows = rig.db.rows.execute("SELECT key, ino, seq, clock FROM pending").fetchall()
    unsigned = {key: (ino, seq) for key, ino, seq, clock in rows if clock is None}
    assert unsigned == rig.fs.changes.unsigned
    assert rig.fs.changes.seq >= max((row[2] for row in rows), default=0)


def check_chunks(rig: Rig) -> None:
    """What the database says is at a place is there: in the journal, or on the clouds."""
    packed = rig.db.rows.execute(
        "SELECT c.id, c.length, c.offset, c.sealed, p.id, p.k, p.n, p.placement "
        "FROM chunk c LEFT JOIN pack p ON p.number = c.pack WHERE c.pack IS NOT NULL"
    )
    for identity, length, offset, sealed, pack, k, n, placement in packed.fetchall():
        place = ChunkLocation(pack, k, n, tuple(placement), identity, length, offset, sealed)
        assert SEALER.chunk_id(rig.clouds.open(place)) == identity
    rows = rig.db.rows.execute("SELECT id, length, segment, position FROM chunk WHERE segment IS NOT NULL")
    for identity, length, segment, position in rows.fetchall():
        data = rig.journal.read(segment, position, length)
        assert data is not None and SEALER.chunk_id(data) == identity, f"chunk {identity.hex()}"


def check_published(rig: Rig, reader: Reader) -> None:
    """The view shows exactly what was signed, but for the registers that are still to be signed."""
    rig.fs.flush(rig.tx)
    unsigned = rig.fs.changes.unsigned
    expected: dict[bytes, bytes] = {}
    for ino, identity in rig.db.rows.execute("SELECT ino, id FROM node").fetchall():
        inode = rig.fs.inodes.get(rig.tx, ino)
        if inode.orphan:
            continue
        expected[attr_key(identity)] = rig.fs.attributes.record(rig.tx, inode).encode()
        for parent, name, slot in rig.db.rows.execute(
            "SELECT n.id, p.name, p.slot FROM place p JOIN node n ON n.ino = p.parent WHERE p.ino = ?", (ino,)
        ).fetchall():
            expected[place_key(identity, slot)] = Place(parent, name).encode()
        if stat.S_ISREG(inode.mode) and inode.size and content_key(identity) not in unsigned:
            content = reader.nodes[identity].content
            assert content is not None
            assert read_content(content, rig.plaintexts.__getitem__) == rig.read(inode)
    for key, value in expected.items():
        if key not in unsigned:
            assert _told(key, reader.registers.get(key)) == value, f"register {key!r}"
    for key, signed in reader.registers.items():
        if key[:1] == b"p" and _told(key, signed) is not None and key not in unsigned:
            assert key in expected, f"the name {key!r} was never withdrawn"


def _told(key: bytes, value: bytes | None) -> bytes | None:
    """What a register's value says of the node as it is now: not where it stood before."""
    if key[:1] != b"p" or value is None:
        return value
    place = Place.decode(value)
    return None if place.removed else Place(place.parent, place.name).encode()
