"""Does the database have packs and chunks where the signed updates of all devices say?"""

from __future__ import annotations

import sqlite3

from hybrisfs.kinds import ID, PACK
from hybrisfs.registers.tree import PackRecord
from hybrisfs.registers.values import Stamp
from hybrisfs.state.chunk_checks import is_spare_in
from hybrisfs.state.condemned import is_condemned
from hybrisfs.state.file_chunks import chunk_named
from hybrisfs.state.packs import PackTable
from hybrisfs.verify.log_check import LogRow
from sync import DecodeError

__all__ = ["PackCheck"]


class PackCheck:
    """Compares `pack` and `chunk` in *db* with the updates that it is shown, in order."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._packs = PackTable(db)
        self._wrong: dict[bytes, str] = {}  # a later update may agree with the database
        self._right: set[bytes] = set()  # packs whose chunks are where an update says

    def compare(self, entry: LogRow) -> None:
        """Take note of what an update says of packs."""
        for key, value in entry.update.writes:
            if key[0] != PACK:
                continue
            try:
                record = PackRecord.decode(value or b"")
            except DecodeError:
                continue  # no correct device has written it, and none makes anything of it
            wrong = self._difference(key[ID], record, entry)
            if wrong is None:
                self._wrong.pop(key, None)
            elif wrong:
                self._wrong[key] = f"pack {key[ID].hex()}: {wrong}"

    def finish(self) -> list[str]:
        """Where the database differs from the last update of each pack, in words."""
        return list(self._wrong.values())

    def _difference(self, pack: bytes, signed: PackRecord, entry: LogRow) -> str | None:
        """How the database differs, in words; nothing when another update decides that."""
        found = self._packs.find(pack)
        if found is None:
            return "it is not on record"
        if not found.n:
            return None  # discarded, which is for good
        said = Stamp(entry.clock, entry.branch)
        if said > found.stamp and (found.k, found.n) != (signed.k, signed.n):
            return ""  # no pack ever has another code: it was passed over
        misplaced = None if pack in self._right else self._misplaced(found.number, signed)
        if misplaced is None:
            self._right.add(pack)  # who says something else of its chunks later is passed over
        if said < found.stamp:
            return ""
        if (found.k, found.n, found.placement) != (signed.k, signed.n, signed.placement):
            return "its place on the clouds is not the one signed"
        return misplaced

    def _misplaced(self, number: int, signed: PackRecord) -> str | None:
        for chunk in signed.chunks:
            found = chunk_named(self._db, chunk.id)
            if found is None:
                continue  # nobody needed it any more when the pack was recorded
            if found.is_elsewhere and not self._may_be_elsewhere(number, chunk.id):
                return f"chunk {chunk.id.hex()} is in it, but it is not known where that is"
            if found.pack == number and (found.offset, found.sealed) != (chunk.offset, chunk.sealed):
                return f"chunk {chunk.id.hex()} is not where the pack says"
        return None

    def _may_be_elsewhere(self, pack: int, chunk: bytes) -> bool:
        """Whether a chunk is not read from a pack, as that may be discarded or the clouds have lost it."""
        return is_condemned(self._db, pack) or is_spare_in(self._db, pack, chunk)
