"""A damaged database: what a person can do about it, and what can still be read of it.

Nothing is believed unless it can be checked: a member's key must have its id, a chunk's bytes must have the
chunk's id. What is asked for is asked for node by node, so that a page which cannot be read costs what is on
it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.errors import DamagedError
from hybrisfs.members.members import Member
from hybrisfs.registers.tree import Content, Run
from hybrisfs.state.damaged import DamagedRows, UnreadablePartError
from hybrisfs.state.extents import ZEROS
from hybrisfs.state.members import Membership
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import path_along, way_up
from sync import DEVICE_ID_SIZE, DecodeError, device_id_of

__all__ = ["NONSENSE", "DamagedDatabase", "StagedFile", "is_damage", "naming_damage", "rebuild_advice"]

_DEEPEST: Final = 4096
_MOST_ROWS: Final = 1 << 40
_KEY_SIZE: Final = 32


class StagedFile(Struct, frozen=True):
    """A file that has bytes no cloud is known to have."""

    ino: int
    path: PurePosixPath
    mode: int
    size: int


class DamagedDatabase:
    """The database at *path* and the journal that belongs to it, for reading. Close it in the end.

    What cannot be read is left out.
    """

    def __init__(self, path: Path, journal: Path, namer: ChunkNamer) -> None:
        self._journal = journal
        self._namer = namer
        self._rows = DamagedRows(path)

    def close(self) -> None:
        self._rows.close()

    def members(self) -> list[Member]:
        """The devices of the volume, as far as they can be read."""
        found: dict[bytes, Member] = {}
        for device, public, name, state in self._rows.members():
            if not isinstance(public, bytes) or len(public) != _KEY_SIZE or device_id_of(public) != device:
                continue
            shown = name.decode(errors="replace") if isinstance(name, bytes) else ""
            reserve = state == Membership.RESERVE
            found[device] = Member(public, shown, not reserve and state != Membership.MEMBER, reserve)
        return list(found.values())

    def inviter(self) -> bytes:
        """The id of the device that let this one in, empty when there is none or it cannot be read."""
        inviter = self._rows.inviter()
        return inviter if isinstance(inviter, bytes) and len(inviter) == DEVICE_ID_SIZE else b""

    def staged_files(self) -> Iterator[StagedFile]:
        """The files with bytes that no cloud is known to have, by number."""
        for ino in sorted(ino for ino in self._rows.files_only_here() if isinstance(ino, int)):
            for mode, size, nlink in self._rows.nodes(ino):
                if stat.S_ISREG(mode) and nlink > 0 and 0 <= size < _MOST_ROWS:
                    yield StagedFile(ino, self._path(ino), mode, size)

    def _path(self, ino: int) -> PurePosixPath:
        """Where the node was; names that cannot be read are left out."""

        def place_of(at: int) -> tuple[int, bytes] | None:
            rows = self._rows.places(at)
            return (rows[0][0], rows[0][1]) if rows and isinstance(rows[0][1], bytes) else None

        way = list(islice(way_up(ino, (ROOT_INO,), place_of), _DEEPEST))
        top = way[-1].folder if way else ino
        unknown = [] if top == ROOT_INO else [f"node {top}"]
        return PurePosixPath(*unknown, os.fsdecode(path_along(way)))

    def rest(self, file: StagedFile) -> bytes:
        """The file as a content register would name it, with holes for what `pieces` returns: what is left
        are chunks that are elsewhere. Raises UnreadablePartError unless all else can be read."""
        for _ in self.pieces(file):
            pass
        runs, at = list[Run](), 0
        try:
            for offset, length, skip, identity, _, segment, _, pack in self._rows.parts(file.ino):
                if _is_elsewhere(segment, pack):
                    runs += [*_hole(offset - at), Run(length, identity, skip)]
                    at = offset + length
            value = Content(file.size, 0, [*runs, *_hole(file.size - at)]).encode()
            Content.decode(value)
        except (DecodeError, *NONSENSE) as error:
            raise UnreadablePartError from error
        return value

    def pieces(self, file: StagedFile) -> Iterator[tuple[int, bytes]]:
        """What is here of the content of a file as (offset, bytes), without its holes; later ones replace
        earlier ones.

        Raises UnreadablePartError.
        """
        for offset, length, skip, identity, whole, segment, position, pack in self._rows.parts(file.ino):
            if _is_elsewhere(segment, pack):
                continue
            data = self._read(segment, position, whole)
            if self._namer.chunk_id(data) != identity:
                raise UnreadablePartError
            yield offset, data[skip : skip + length]
        for start, length, segment, position in self._rows.extents(file.ino):
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
        data = self._as_recorded(segment, position, data, length)
        if len(data) != length:
            raise UnreadablePartError
        return data

    def _as_recorded(self, segment: int, position: int, data: bytes, length: int) -> bytes:
        """Bytes of a segment as the redo log has them, where the disk may have lost them."""
        for number, start, written in self._rows.ranges:
            at, end = start - position, min(start - position + len(written), length)
            if number == segment and end > 0 and at <= len(data):
                data = data[: max(at, 0)] + written[max(-at, 0) : end - at] + data[end:]
        return data


def _is_elsewhere(segment: object, pack: object) -> bool:
    """Whether the bytes of a chunk with this segment and pack are not here, and not for this device to bring
    to the clouds: their id is enough to have them from there."""
    return segment is None and isinstance(pack, int)


def _hole(length: int) -> list[Run]:
    return [Run(length, None)] if length else []


# -- telling what to do about a damaged database --------------------------------------------------------


NONSENSE: Final = (sqlite3.DatabaseError, ArithmeticError, LookupError, TypeError, ValueError)
"""What becomes of rows whose bytes were altered."""


def rebuild_advice(volume: str) -> str:
    """What a person can do about a damaged database of the volume with this name."""
    return f"hybrisfs volume rebuild {volume} makes a new one from what the clouds have."


def is_damage(error: BaseException) -> bool:
    """Whether the error means that pages of the database are not what was written, not that it cannot be used
    just now."""
    return type(error) is sqlite3.DatabaseError


@contextmanager
def naming_damage(volume: str, database: Path) -> Iterator[None]:
    """Errors that come of a damaged database are raised as DamagedError, which says what to do about it."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(error.what, error.why, error.advice or rebuild_advice(volume)) from error
    except (*NONSENSE, DecodeError) as error:
        raise DamagedError(
            f"the database {database} is damaged", str(error), rebuild_advice(volume)
        ) from error
