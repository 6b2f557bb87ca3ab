"""Is the view what was signed? Every register that is not waiting to be signed must be in the log as it is.

The stamps of the view tell which update wrote each value, so one pass over the log is enough, and nothing
of it need be remembered.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hybrisfs.filesystem.registers import Attr, Content, PackRecord, Place, Run, encode_runs
from hybrisfs.pipeline.cut import slot_of
from sync import DecodeError, Write
from sync.codec import Buffer

__all__ = ["ViewCheck"]

_OWN_WRITER: Final = 0
_NODE: Final = "ino, attr_stamp, content_stamp, size, mode, uid, gid, rdev, mtime, target"


class ViewCheck:
    """Compares the database *db* with the updates that it is shown, in order."""

    def __init__(self, db: sqlite3.Connection, chunk_id: Callable[[Buffer], bytes]) -> None:
        self._db = db
        self._chunk_id = chunk_id
        self._pending = {key for (key,) in db.execute("SELECT key FROM pending WHERE clock IS NULL")}
        self._orphans = {ino for (ino,) in db.execute("SELECT ino FROM orphan")}
        self._found = 0

    def compare(self, clock: int, writes: Iterable[Write]) -> Iterator[str]:
        """What the view shows otherwise than the update at *clock* says, in words."""
        stamp = clock << 16 | _OWN_WRITER
        for key, value in writes:
            wrong = None
            if key in self._pending or value is None:
                continue
            try:
                if key[:1] == b"k":
                    wrong = self._compare_pack(key[1:], PackRecord.decode(value))
                else:
                    wrong = self._compare_node(stamp, key, value)
            except DecodeError as error:
                wrong = f"its signed value makes no sense: {error}"
            if wrong is not None:
                yield f"{key[:1].decode('latin-1')} {key[1:].hex()}: {wrong}"

    def finish(self) -> Iterator[str]:
        """What the view shows and no update has said."""
        stamped: int = self._db.execute(
            "SELECT (SELECT count(*) FROM place WHERE stamp > 0) "
            "+ (SELECT total(attr_stamp > 0) + total(content_stamp > 0) FROM node "
            "WHERE ino NOT IN (SELECT ino FROM orphan))"
        ).fetchone()[0]
        missing = int(stamped) - self._found - sum(map(self._is_stamped, self._pending))
        if missing:
            yield f"{missing} names, attributes or contents are not as any update says"

    def _is_stamped(self, key: bytes) -> bool:
        node = self._node(key)
        if node is None or key[:1] == b"k":
            return False
        if key[:1] == b"p":
            place = self._place(node[0], key)
            return place is not None and place[2] > 0
        return bool(node[1 if key[:1] == b"a" else 2])

    def _node(self, key: bytes) -> tuple[int, ...] | None:
        row: tuple[int, ...] | None = self._db.execute(
            f"SELECT {_NODE} FROM node WHERE id = ?", (key[1:17],)
        ).fetchone()
        return row if row is not None and row[0] not in self._orphans else None

    def _place(self, ino: int, key: bytes) -> tuple[bytes, bytes, int] | None:
        row: tuple[bytes, bytes, int] | None = self._db.execute(
            "SELECT n.id, p.name, p.stamp FROM place p LEFT JOIN node n ON n.ino = p.parent "
            "WHERE p.ino = ? AND p.slot = ?",
            (ino, slot_of(key)),
        ).fetchone()
        return row

    def _compare_node(self, stamp: int, key: bytes, value: bytes) -> str | None:
        node = self._node(key)
        if node is None:
            return None
        ino, attr_stamp, content_stamp, size = node[:4]
        if key[:1] == b"p":
            place = self._place(ino, key)
            if place is None or place[2] != stamp:
                return None
            self._found += 1
            return None if Place(*place[:2]).encode() == value else "its name is not the one signed"
        if key[:1] == b"a" and attr_stamp == stamp:
            self._found += 1
            return None if self._attr(ino, node[4:]) == value else "its attributes are not those signed"
        if key[:1] == b"c" and content_stamp == stamp:
            self._found += 1
            same = self._is_content(ino, size, Content.decode(value))
            return None if same else "its content is not the one signed"
        return None

    def _attr(self, ino: int, facts: tuple[int, ...]) -> bytes:
        mode, uid, gid, rdev, mtime, target = facts
        xattrs = self._db.execute("SELECT name, value FROM xattr WHERE ino = ? ORDER BY name", (ino,))
        return Attr(mode, uid, gid, rdev, mtime, bytes(target or b""), tuple(xattrs.fetchall())).encode()

    def _is_content(self, ino: int, size: int, signed: Content) -> bool:
        runs = list(self._runs(ino, size))
        if signed.size != size or signed.depth == 0:
            return signed.size == size and list(signed.runs) == runs
        at = 0
        for page in signed.runs:
            first, left = at, page.length
            while left > 0 and at < len(runs):
                left -= runs[at].length
                at += 1
            if left != 0 or self._chunk_id(encode_runs(runs[first:at])) != page.chunk:
                return False
        return at == len(runs)

    def _runs(self, ino: int, size: int) -> Iterator[Run]:
        at = 0
        for offset, length, identity in self._db.execute(
            "SELECT f.offset, f.length, c.id FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
            "WHERE f.ino = ? ORDER BY f.offset",
            (ino,),
        ):
            if offset > at:
                yield Run(offset - at, None)
            yield Run(length, identity)
            at = offset + length
        if at < size:
            yield Run(size - at, None)

    def _compare_pack(self, pack: bytes, signed: PackRecord) -> str | None:
        row = self._db.execute("SELECT number, k, n, placement FROM pack WHERE id = ?", (pack,)).fetchone()
        if row is None:
            return "the pack is not on record"
        number, k, n, placement = row
        if (k, n, placement) != (signed.k, signed.n, signed.placement):
            return "the pack's place on the clouds is not the one signed"
        for chunk in signed.chunks:
            found = self._db.execute(
                "SELECT pack, offset, sealed, length FROM chunk WHERE id = ?", (chunk.id,)
            ).fetchone()
            if (
                found is not None
                and found[0] == number
                and found[1:]
                != (
                    chunk.offset,
                    chunk.sealed,
                    chunk.length,
                )
            ):
                return f"chunk {chunk.id.hex()} is not where the pack says"
        return None
