"""Which chunks files show, and what of them is here or on the clouds."""

from __future__ import annotations

from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ChunkRef, Reader

__all__ = ["chunks_after"]


def chunks_after(db: Reader, number: int, limit: int) -> list[ChunkRef]:
    """Up to *limit* chunks that stand after this one in a file, of several files one."""
    rows = db.execute(
        f"SELECT {CHUNK_COLUMNS} FROM file_chunk f JOIN chunk c ON c.number = f.chunk, "
        "(SELECT ino, offset FROM file_chunk WHERE chunk = ? LIMIT 1) this "
        "WHERE f.ino = this.ino AND f.offset > this.offset ORDER BY f.offset LIMIT ?",
        (number, limit),
    ).fetchall()
    return [ChunkRef(*row) for row in rows]
