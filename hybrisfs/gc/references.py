"""What of a pack is needed: by the view, by contents that registers hold and the view does not show, and by
versions that are kept.

Read from a snapshot of the database, so that programs do not wait. What the view does not show, and may show
again, is in `hidden_contents`. Contents of files that have been removed by all their names count only while
they are kept as versions (`hybrisfs.versions.needs`): a device that had not seen the removal refuses.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from hybrisfs.gc.pages import Pages
from hybrisfs.state.file_chunks import hidden_contents
from hybrisfs.state.pack_chunks import needs_of_pack
from hybrisfs.versions.needs import chunks_of_page, gather_kept, named_chunks

__all__ = ["Needed", "References"]


class Needed(NamedTuple):
    """Of one pack: bytes of sealed chunks that are needed and that are not, and the numbers of the former.

    `claimed` are the numbers of those needed as well that members say to be in another pack, which is where
    they are read: as long as this device has not read them there, they count as `live`.
    """

    live: int
    dead: int
    chunks: tuple[int, ...]
    claimed: tuple[int, ...] = ()


class References:
    """What was needed when the snapshot *db* was taken."""

    def __init__(self, db: sqlite3.Connection, lists: Pages) -> None:
        """Raises what `Pages.read` raises: then it cannot be told what is needed."""
        self._db = db
        self._hidden: set[bytes] = set()
        pages: set[bytes] = set()
        for value in hidden_contents(db):
            named, are_lists = named_chunks(value)
            self._hidden |= named
            if are_lists:
                pages |= named
        for page in pages:
            self._hidden |= chunks_of_page(lists.read(page))
        gather_kept(db, lists.read)

    def of(self, pack: int) -> Needed:
        """What is needed of the pack with this number. Chunks that stand in another pack, too, and have been
        read from there, are not; nor are those that go to the clouds again."""
        live = dead = 0
        chunks: list[int] = []
        claimed: list[int] = []
        for number, identity, sealed, elsewhere, dispensable, shown in needs_of_pack(self._db, pack):
            if not dispensable and (shown or identity in self._hidden):
                live += sealed
                (claimed if elsewhere else chunks).append(number)
            else:
                dead += sealed
        return Needed(live, dead, tuple(chunks), tuple(claimed))
