"""What can still be read of a damaged metadata database, as a new one (`hybrisfs kv rebuild`).

Keys are taken over whose records can be decoded, into containers of their former names as far as these can
be read. What waited for its deletion is not: a number that damage has made of another one would delete a
value. It is left on the clouds, unnamed (see `orphans.py`). Writes are numbered far above all that were
ever made.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from hybrisfs.errors import HybrisError
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.names import check_container, encode_key
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.rmds import MetadataStore
from hybrisfs.kv.seal import STORE_ID_SIZE
from sync.codec import DecodeError

__all__ = ["Salvaged", "salvage"]

_MOST_ROWS: Final = 1 << 32
_SCANS: Final = ("ASC", "DESC")  # a page that cannot be read ends a scan: both ends are gone over


class Salvaged(NamedTuple):
    """What was taken over; `same_store` when it is the same store, else nothing could be."""

    same_store: bool
    keys: int
    damaged: int
    """Records that could be found, but not read."""


def salvage(damaged: Path, target: Path, fresh_store: bytes) -> Salvaged:
    """Make a new database at *target* of what can be read of *damaged*.

    When not even the id of its store can be, it is an empty one with the id *fresh_store*.
    """
    with contextlib.closing(_Damaged(damaged)) as old:
        store = old.store()
        MetadataDatabase.create(target, store or fresh_store)
        entries, lost = old.entries() if store else ({}, 0)
        names = old.containers() if store else {}
    _fill(target, names, entries)
    metadata = MetadataStore(target)
    try:
        metadata.skip_writes()
    finally:
        metadata.close()
    return Salvaged(bool(store), sum(entry.live for entry in entries.values()), lost)


def _fill(target: Path, names: dict[int, str], entries: dict[tuple[int, bytes], KeyMetadata]) -> None:
    highest = max((entry.objects for entry in entries.values()), default=0)
    held = Counter[int]()
    for entry in entries.values():
        held.update(entry.placement)
    taken = set(names.values())
    for number in sorted({number for number, _ in entries} - names.keys()):
        name = f"recovered-{number}"
        while name in taken:
            name += "-"
        names[number] = name
        taken.add(name)
    with contextlib.closing(MetadataDatabase(target)) as database:
        connection = database.writer
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO container VALUES (?, ?)", names.items())
        connection.executemany(
            "INSERT INTO entry VALUES (?, ?, ?)",
            [(*place, entry.encode()) for place, entry in sorted(entries.items())],
        )
        connection.executemany("INSERT INTO held VALUES (?, ?)", held.items())
        connection.execute("UPDATE meta SET value = ? WHERE key = 'write'", (highest,))
        connection.execute("COMMIT")


class _Damaged:
    """The database at *path*, for reading. What cannot be read is left out."""

    def __init__(self, path: Path) -> None:
        self._db: sqlite3.Connection | None = None
        with contextlib.suppress(sqlite3.Error):
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            self._db.text_factory = bytes

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _rows(self, query: str) -> Iterator[Any]:
        if self._db is None:
            return
        with contextlib.suppress(sqlite3.Error, OverflowError):
            yield from self._db.execute(query)

    def store(self) -> bytes | None:
        """The id of the store."""
        for (value,) in self._rows("SELECT value FROM meta WHERE key = 'store'"):
            if isinstance(value, bytes) and len(value) == STORE_ID_SIZE:
                return value
        return None

    def containers(self) -> dict[int, str]:
        """Names by number; each name once."""
        found: dict[str, int] = {}
        for number, name in self._rows("SELECT number, name FROM container"):
            with contextlib.suppress(HybrisError, UnicodeDecodeError, AttributeError):
                if _is_number(number):
                    found.setdefault(check_container(name.decode()), number)
        return {number: name for name, number in found.items()}

    def entries(self) -> tuple[dict[tuple[int, bytes], KeyMetadata], int]:
        """The newest record of each key, and how many could not be decoded."""
        found: dict[tuple[int, bytes], KeyMetadata] = {}
        lost = set[tuple[object, object]]()
        for order in _SCANS:
            query = f"SELECT container, key, record FROM entry ORDER BY container {order}, key {order}"
            for container, key, record in self._rows(query):
                try:
                    if not _is_number(container):
                        raise DecodeError("no container")
                    place, entry = (container, encode_key(key.decode())), KeyMetadata.decode(record)
                except (HybrisError, DecodeError, UnicodeDecodeError, AttributeError, TypeError):
                    lost.add((container, key))
                    continue
                if entry.newer_than(found.get(place)):
                    found[place] = entry
        return found, len(lost)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 0 < value < _MOST_ROWS
