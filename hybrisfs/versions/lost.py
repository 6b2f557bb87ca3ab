"""Versions whose bytes are gone: overwritten before a cloud had got them, and given up to make room.

While the clouds cannot be reached, what is overwritten again and again would fill the disk until nothing can
be written any more. Then such chunks go (`ChunkStore.drop_unwanted`), and with them the versions that named
them: what cannot be read is not called kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.file_chunks import is_at_hand, is_known
from hybrisfs.state.versions import (
    forget_removals,
    forget_versions,
    unshipped_contents,
    unshipped_removed_contents,
)
from hybrisfs.versions.needs import chunks_of_page, named_chunks

__all__ = ["forget_lost", "is_readable"]


def forget_lost(db: RowWriter) -> None:
    """Forget versions that no cloud has and of which chunks are missing."""
    forget_versions(db, [number for number, value in unshipped_contents(db) if _is_lost(db, value)])
    forget_removals(db, [node for node, value in unshipped_removed_contents(db) if _is_lost(db, value)])


def is_readable(
    db: sqlite3.Connection, value: bytes | None, list_here: Callable[[bytes], bytes | None]
) -> bool:
    """Whether all bytes of a content are on this device or known to be on the clouds. *list_here* returns a
    list of chunks that is on this device; of others it is not known what they list."""
    chunks, lists = named_chunks(value or b"") if value is not None else (set[bytes](), False)
    for page in tuple(chunks) if lists else ():
        data = list_here(page)
        chunks |= chunks_of_page(data) if data is not None else set()
    return all(is_at_hand(db, chunk) for chunk in chunks)


def _is_lost(db: Reader, value: bytes) -> bool:
    return not all(is_known(db, chunk) for chunk in named_chunks(value)[0])
