"""Rebuilding the shares of a pack from what is good in the others (PASIS 4.2, Pond 4.5).

The pack id proves the table and the table proves every fragment, so a share that is damaged in one place
still gives what is good in it: a pack can be rebuilt when every chunk has k good fragments anywhere.
"""

from __future__ import annotations

from hybrisfs.dispersal.erasure import fragment_length, join, split
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.share import (
    INDEX_OFFSET,
    PREFIX_SIZE,
    Table,
    TableEntry,
    TableSealer,
    hash_fragment,
    parse_header,
    verify_share,
)
from sync.codec import Buffer

__all__ = ["PackRebuild"]


class PackRebuild:
    """Takes the shares of one pack as clouds return them, until all others follow. Not thread-safe.

    Holds the shares that it was given and needs: at most n of them, of a pack that was bounded when made.
    """

    def __init__(self, pack_id: bytes, tables: TableSealer) -> None:
        self._pack_id = pack_id
        self._tables = tables
        self._table: Table | None = None
        self._header = b""
        self._good: dict[int, dict[int, memoryview]] = {}  # fragments by entry number, then by index

    @property
    def table(self) -> Table | None:
        """What the pack holds, once a share has proved it."""
        return self._table

    @property
    def complete(self) -> bool:
        """Whether every share can be made from what is here."""
        table = self._table
        return table is not None and all(
            len(self._good.get(number, {})) >= table.k for number in range(len(table.entries))
        )

    def take(self, index: int, data: bytes) -> None:
        """Keep what is good in share `index`. Raises IntegrityError when anything of it is wrong."""
        problems = verify_share(data, self._pack_id, index, self._tables)
        prefix, table = parse_header(data, self._tables, self._pack_id)
        if index >= table.n:
            raise IntegrityError(f"a pack of {table.n} shares has no share {index}")
        if self._table is None:
            self._table, self._header = table, data[: PREFIX_SIZE + prefix.table_size]
        # The fragments tell by their hashes which share they belong to, whatever the prefix claims.
        position = 0 if table.k == 1 else index
        view = memoryview(data)
        for number, entry in enumerate(table.entries):
            fragment = view[entry.offset : entry.offset + fragment_length(table.k, entry.sealed_length)]
            if hash_fragment(fragment) == table.fragment_hash(entry, position):
                self._good.setdefault(number, {})[position] = fragment
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise IntegrityError(problems[0] + more)

    def share(self, index: int) -> bytes:
        """Return share `index`, proven. Raises IntegrityError when too little is known of the pack."""
        table = self._table
        position = 0 if table is None or table.k == 1 else index
        if table is None or index >= table.n or not (self.complete or self._holds(table, position)):
            raise IntegrityError(f"too little of pack {self._pack_id.hex()[:16]} is left to rebuild a share")
        header = bytearray(self._header)
        header[INDEX_OFFSET] = position
        fragments = [
            self._fragment(table, number, entry, position) for number, entry in enumerate(table.entries)
        ]
        return b"".join((header, *fragments))

    def _holds(self, table: Table, position: int) -> bool:
        """Whether every fragment of that share is here as it was written."""
        return all(position in self._good.get(number, {}) for number in range(len(table.entries)))

    def _fragment(self, table: Table, number: int, entry: TableEntry, position: int) -> Buffer:
        good = self._good[number]
        if position in good:
            return good[position]
        sealed = join(table.k, table.n, good, entry.sealed_length)
        fragment = split(table.k, table.n, sealed)[position]
        if hash_fragment(fragment) != table.fragment_hash(entry, position):
            raise IntegrityError(f"pack {self._pack_id.hex()[:16]} was written with fragments that disagree")
        return fragment
