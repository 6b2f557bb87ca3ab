"""What can still be read of a damaged database: who the members are, and the files that no cloud has yet.

Nothing is believed unless it can be checked: a member's key must have its id, a chunk's bytes must have the
chunk's id. What is asked for is asked for node by node, so that a page which cannot be read costs what is on
it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from hybrisfs.kinds import CONTENT
from hybrisfs.members.members import Member
from hybrisfs.state.chunk_checks import FILES_HELD_WHOLE, FILES_PENDING, PARTS_OF_FILE
from hybrisfs.state.members import Membership
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.extents import ZEROS
from sync import DEVICE_ID_SIZE, device_id_of
from sync.codec import Buffer

__all__ = ["DamagedDatabase", "StagedFile", "UnreadablePartError"]

_DEEPEST: Final = 4096
_MOST_ROWS: Final = 1 << 40
_KEY_SIZE: Final = 32
_SELECT_STAGED: Final = (
    f"SELECT DISTINCT ino FROM pending WHERE substr(key, 1, 1) = {CONTENT.sql_prefix}",
    "SELECT DISTINCT ino FROM extent WHERE segment > 0",
    FILES_PENDING,
    # Of what another device made and no cloud is known to have, only what is here as a whole: the rest comes
    # from that device, or is lost with it.
    FILES_HELD_WHOLE,
)


class UnreadablePartError(Exception):
    """A part of a file is neither in the journal nor zeros."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that has bytes no cloud is known to have."""

    ino: int
    path: PurePosixPath
    mode: int
    size: int


class DamagedDatabase:
    """The database at *path* and the journal that belongs to it, for reading. Close it in the end.

    No method raises sqlite3.Error: what cannot be read is left out.
    """

    def __init__(self, path: Path, journal: Path, chunk_id: Callable[[Buffer], bytes]) -> None:
        self._journal = journal
        self._chunk_id = chunk_id
        self._db: sqlite3.Connection | None = None
        if path.is_file():
            with contextlib.suppress(sqlite3.Error):
                self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
                self._db.text_factory = bytes

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        if self._db is None:
            return []
        rows: list[Any] = []
        with contextlib.suppress(sqlite3.Error):
            rows.extend(self._db.execute(query, parameters))
        return rows

    def _all_rows(self, query: str, *parameters: object) -> list[Any]:
        """Raises UnreadablePartError unless all can be read."""
        if self._db is None:
            raise UnreadablePartError
        try:
            return self._db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise UnreadablePartError from error

    def members(self) -> list[Member]:
        """The devices of the volume, as far as they can be read."""
        found: dict[bytes, Member] = {}
        for device, public, name, state in self._rows("SELECT device, public, name, state FROM member"):
            if not isinstance(public, bytes) or len(public) != _KEY_SIZE or device_id_of(public) != device:
                continue
            shown = name.decode(errors="replace") if isinstance(name, bytes) else ""
            reserve = state == Membership.RESERVE
            found[device] = Member(public, shown, not reserve and state != Membership.MEMBER, reserve)
        return list(found.values())

    def inviter(self) -> bytes:
        """The id of the device that let this one in, empty when there is none or it cannot be read."""
        values = [value for (value,) in self._rows("SELECT value FROM meta WHERE key = 'inviter'")]
        known = values and isinstance(values[0], bytes) and len(values[0]) == DEVICE_ID_SIZE
        return values[0] if known else b""

    def staged_files(self) -> Iterator[StagedFile]:
        """The files with bytes that no cloud is known to have, by number."""
        inos = {ino for query in _SELECT_STAGED for (ino,) in self._rows(query) if isinstance(ino, int)}
        for ino in sorted(inos):
            for mode, size, nlink in self._rows("SELECT mode, size, nlink FROM node WHERE ino = ?", ino):
                if stat.S_ISREG(mode) and nlink > 0 and 0 <= size < _MOST_ROWS:
                    yield StagedFile(ino, self._path(ino), mode, size)

    def _path(self, ino: int) -> PurePosixPath:
        """Where the node was; names that cannot be read are left out."""
        names: list[str] = []
        at = ino
        while at != ROOT_INO and len(names) < _DEEPEST:
            rows = self._rows("SELECT parent, name FROM place WHERE ino = ? LIMIT 1", at)
            if not rows or not isinstance(rows[0][1], bytes):
                names.append(f"node {at}")
                break
            at, name = rows[0]
            names.append(os.fsdecode(name))
        return PurePosixPath(*reversed(names))

    def check(self, file: StagedFile) -> None:
        """Raises UnreadablePartError unless all of the file's content can be read."""
        for _ in self.pieces(file):
            pass

    def pieces(self, file: StagedFile) -> Iterator[tuple[int, bytes]]:
        """The content of a file as (offset, bytes), without its holes; later ones replace earlier ones.

        Raises UnreadablePartError.
        """
        for offset, length, identity, whole, segment, position in self._all_rows(PARTS_OF_FILE, file.ino):
            data = self._read(segment, position, whole)
            if self._chunk_id(data) != identity:
                raise UnreadablePartError
            yield offset, data[:length]
        for start, length, segment, position in self._all_rows(
            "SELECT start, length, segment, position FROM extent WHERE ino = ? ORDER BY start", file.ino
        ):
            yield start, bytes(length) if segment == ZEROS else self._read(segment, position, length)

    def _read(self, segment: object, position: object, length: object) -> bytes:
        if not (isinstance(segment, int) and isinstance(position, int) and isinstance(length, int)):
            raise UnreadablePartError
        try:
            descriptor = os.open(self._journal / f"{segment:08d}.segment", os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(descriptor, length, position)
            finally:
                os.close(descriptor)
        except (OSError, OverflowError, ValueError) as error:
            raise UnreadablePartError from error
        if len(data) != length:
            raise UnreadablePartError
        return data
