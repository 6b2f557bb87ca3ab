"""Which chunks versions need: those of contents that are kept, and of files of which a name was removed.

They are gathered in a temporary table of a snapshot of the database, so that the queries which look through
packs can ask for them. What counts is what is kept now, whatever the retention rule says by now: so a
device never agrees that a pack is not needed and then finds that it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import islice
from typing import Final

from hybrisfs.registers.tree import Content, decode_runs
from hybrisfs.state.versions import add_kept_chunks, begin_kept_chunks, kept_contents
from sync.codec import DecodeError

__all__ = ["chunks_of_page", "gather_kept", "named_chunks"]

_BATCH: Final = 1000


def gather_kept(db: sqlite3.Connection, read_page: Callable[[bytes], bytes]) -> None:
    """Make the table `kept_chunk (id)` in the snapshot *db*. *read_page* brings a list of chunks by its id.

    Raises what *read_page* raises: then it cannot be told what is needed.
    """
    begin_kept_chunks(db)
    pages: set[bytes] = set()
    rows = kept_contents(db)
    while batch := list(islice(rows, _BATCH)):
        named: set[bytes] = set()
        for (value,) in batch:
            chunks, lists = named_chunks(value)
            named |= chunks
            if lists:
                pages |= chunks
        add_kept_chunks(db, named)
    for page in pages:
        add_kept_chunks(db, chunks_of_page(read_page(page)))


def named_chunks(value: bytes) -> tuple[set[bytes], bool]:
    """The chunks that a content names, and whether they hold lists of chunks."""
    try:
        content = Content.decode(value)
    except DecodeError:
        return set(), False  # it shows an empty file
    return {run.chunk for run in content.runs if run.chunk is not None}, bool(content.depth)


def chunks_of_page(data: bytes) -> set[bytes]:
    """The ids of the chunks that a list of chunks names; none when it is no such list."""
    try:
        return {run.chunk for run in decode_runs(data) if run.chunk is not None}
    except DecodeError:
        return set()
