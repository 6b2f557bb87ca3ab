"""The end of a pack in the view: what its chunks are then.

Where chunks stand besides is what members say. Nothing that is here is let go for that
(`hybrisfs.filesystem.chunks`).
"""

from __future__ import annotations

from collections.abc import Container

from hybrisfs.filesystem.filesystem import FileSystem

__all__ = ["discard_pack", "doubt_pack", "rely_on_spares"]

_NEEDED = (
    "EXISTS (SELECT 1 FROM file_chunk f WHERE f.chunk = c.number) "
    "OR EXISTS (SELECT 1 FROM content_page p WHERE p.chunk = c.number)"
)


def rely_on_spares(fs: FileSystem, pack: int, but: Container[int] = (), *, gone: bool = False) -> None:
    """Let chunks of a pack be read from other packs that hold them, too, and that are to stay; not from those
    of *but*. When the pack is *gone*, those that are not here are also looked for where members only say that
    they are."""
    rows = fs.db.execute(
        "SELECT s.chunk, s.pack, s.proven OR (? AND c.segment IS NULL) FROM chunk c "
        "JOIN spare s ON s.chunk = c.number JOIN pack p ON p.number = s.pack "
        "WHERE c.pack = ? AND c.pack > 0 AND p.n > 0 AND NOT p.doubted ORDER BY s.proven DESC, s.pack",
        (gone, pack),
    ).fetchall()
    moved = set[int]()
    for number, other, will_do in rows:
        if will_do and other not in fs.chunks.condemned and other not in but and number not in moved:
            moved.add(number)
            fs.chunks.rely_on_spare(number, other)


def doubt_pack(fs: FileSystem, pack: bytes, clock: int, branch: bytes) -> None:
    """It is said that the pack with this id has been discarded, and cannot be told here whether that is so.

    What is in it is still read from there, and what has been here stays as it is. But nothing new relies on
    it, no pack gets its name, and none of its shares is deleted by this device on that account.
    """
    row = fs.db.execute(
        "INSERT INTO pack (id, k, n, placement, clock, branch, doubted) VALUES (?, 0, 0, x'', ?, ?, 1) "
        "ON CONFLICT (id) DO UPDATE SET doubted = 1 WHERE n > 0 RETURNING number",
        (pack, clock, branch),
    ).fetchone()
    if row is not None:
        fs.chunks.doubted.add(row[0])


def discard_pack(fs: FileSystem, pack: bytes, clock: int, branch: bytes) -> None:
    """The pack with this id is gone from the clouds, or about to go, as the update at *clock* says.

    All devices have agreed that nobody needs its chunks. Should a file here name one all the same (after a
    restore from a backup), it goes to the clouds anew when its bytes are here, and else waits for another
    device that has them.
    """
    db = fs.db
    (number,) = db.execute(
        "INSERT INTO pack (id, k, n, placement, clock, branch) VALUES (?, 0, 0, x'', ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET k = 0, n = 0, placement = x'', doubted = 0, "
        "clock = max(clock, excluded.clock), "
        "branch = CASE WHEN excluded.clock >= clock THEN excluded.branch ELSE branch END RETURNING number",
        (pack, clock, branch),
    ).fetchone()
    fs.chunks.doubted.discard(number)
    rely_on_spares(fs, number, gone=True)
    for chunk, needed in db.execute(
        f"SELECT c.number, {_NEEDED} FROM chunk c WHERE c.pack = ? AND c.pack > 0", (number,)
    ).fetchall():
        if not needed and chunk not in fs.chunks.settling:
            db.execute("DELETE FROM spare WHERE chunk = ?", (chunk,))
            db.execute("DELETE FROM chunk WHERE number = ?", (chunk,))
            continue
        fs.chunks.give_up_pack(chunk)
    db.execute("DELETE FROM spare WHERE pack = ?", (number,))
    db.execute("DELETE FROM idle_pack WHERE pack = ?", (number,))
    fs.chunks.condemned.release([number])
