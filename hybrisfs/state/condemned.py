"""Packs that may be discarded soon: nothing new relies on them, and what asks for one of them is noticed.

Between its promise not to use a pack again and the end of that pack (`hybrisfs.gc`), a device must
know whether anything of its own has come to need it, however briefly. So all that names chunks is noted here:
by the view when it shows them, and by the registers when an update of any device writes a content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hybrisfs.registers.tree import Content
from hybrisfs.state.database import Reader, RowWriter
from sync.codec import DecodeError

__all__ = ["Condemned", "is_condemned"]

_PLACES: Final = (
    "SELECT pack FROM chunk WHERE id = :id UNION ALL SELECT s.pack FROM chunk c "
    "JOIN spare s ON s.chunk = c.number WHERE c.id = :id "
    "AND CASE WHEN ifnull(c.pack, 0) = 0 THEN c.segment IS NULL ELSE NOT c.proven END"
)
"""Packs that a chunk is needed in: as long as it is not here, and has not been read in the first one, in all
of them."""


def is_condemned(db: Reader, pack: int) -> bool:
    """Whether a pack may be discarded soon."""
    return db.execute("SELECT 1 FROM condemned WHERE pack = ?", (pack,)).fetchone() is not None


class Condemned:
    """The `condemned` table, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database
        rows = database.execute("SELECT pack, wanted FROM condemned").fetchall()
        self._wanted: dict[int, bool] = {pack: bool(wanted) for pack, wanted in rows}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def __contains__(self, pack: object) -> bool:
        return pack in self._wanted

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._wanted))

    def add(self, packs: Iterable[int]) -> None:
        """From now on nothing new relies on these."""
        for pack in packs:
            if pack not in self._wanted:
                self._wanted[pack] = False
                self._db.execute("INSERT INTO condemned (pack, wanted) VALUES (?, 0)", (pack,))

    def release(self, packs: Iterable[int]) -> None:
        """These are packs like any other again, or gone."""
        for pack in packs:
            if self._wanted.pop(pack, None) is not None:
                self._db.execute("DELETE FROM condemned WHERE pack = ?", (pack,))
        if not self._wanted:
            self._db.execute("DELETE FROM unread_page")

    def want(self, pack: int) -> None:
        """Something needs a chunk of the pack."""
        if not self._wanted[pack]:
            self._wanted[pack] = True
            self._db.execute("UPDATE condemned SET wanted = 1 WHERE pack = ?", (pack,))

    def want_all(self) -> None:
        """The needed packs are unknown."""
        for pack in self._wanted:
            self.want(pack)

    def is_wanted(self, pack: int) -> bool:
        """Whether something has needed a chunk of this condemned pack since it was condemned."""
        return self._wanted[pack]

    def see(self, values: Iterable[bytes]) -> None:
        """Updates have written these values of content registers."""
        for value in values if self._wanted else ():
            self._see(value)

    def _see(self, value: bytes) -> None:
        try:
            content = Content.decode(value)
        except DecodeError:
            return  # it shows an empty file
        named = [run.chunk for run in content.runs if run.chunk is not None]
        self.see_chunks(named)
        if content.depth:
            self._db.executemany(
                "INSERT OR IGNORE INTO unread_page (id) VALUES (?)", [(identity,) for identity in named]
            )

    def see_chunks(self, named: Iterable[bytes]) -> None:
        """Something names the chunks with these ids."""
        for identity in named:
            for (pack,) in self._db.execute(_PLACES, {"id": identity}).fetchall():
                if pack in self._wanted:
                    self.want(pack)

    def unread_pages(self) -> list[bytes]:
        """Ids of the lists of chunks that have been named and not been read."""
        return [identity for (identity,) in self._db.execute("SELECT id FROM unread_page")]

    def page_read(self, identity: bytes) -> None:
        """It has been looked into this list of chunks."""
        self._db.execute("DELETE FROM unread_page WHERE id = ?", (identity,))
