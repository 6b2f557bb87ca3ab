"""Listing a directory into the kernel's buffer.

The dots are at offsets 0 and 1; the offset behind an entry is its number in the database + `_DOTS`, so that a
listing goes on where it was, whatever has come and gone since. It ends at the number that was the highest
when it began (`Listings`): a program that renames everything that it reads would otherwise never be done.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Final

from hybrisfs.fuse import Entry, Listing, ListingPlus
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import newest_name
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["KnownDirectories", "Listings", "list_entries", "list_names"]

_DOTS: Final = 2
_FEWEST_BYTES: Final = 40  # of an entry in a listing
_FEWEST_BYTES_PLUS: Final = 160


class KnownDirectories:
    """The directories that the kernel knows. It counts our answers about each, for we may answer again
    before we read that it has forgotten earlier answers."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}
        self._known = {ROOT_INO}

    def __contains__(self, ino: int) -> bool:
        return ino in self._known

    def told(self, ino: int, *, echo: bool = False) -> None:
        """The kernel was given the number; for an *echo*, which tells no program of the directory."""
        self._told[ino] = self._told.get(ino, 0) + 1
        if not echo:
            self._known.add(ino)

    def forgotten(self, ino: int, times: int) -> None:
        """The kernel has forgotten that it was told so many times."""
        left = self._told.pop(ino, 0) - times
        if left > 0:
            self._told[ino] = left
        elif ino != ROOT_INO:
            self._known.discard(ino)


class Listings:
    """Open directories, by handle, and where the listing of each ends that is under way. For one thread."""

    def __init__(self) -> None:
        self._opened = 0
        self._ends: dict[int, int] = {}

    def open(self) -> int:
        """A new handle."""
        self._opened += 1
        return self._opened

    def end(self, tx: Transaction, fs: FileSystem, handle: int, offset: int) -> int:
        """The last number to be listed; a listing that begins, or begins again, goes up to the highest
        number."""
        if offset == 0 or handle not in self._ends:
            self._ends[handle] = newest_name(tx)
        return self._ends[handle]

    def close(self, handle: int) -> None:
        self._ends.pop(handle, None)


def list_names(tx: Transaction, fs: FileSystem, ino: int, offset: int, size: int, end: int) -> Listing:
    """Names and types, as far as they fit into *size* bytes."""
    listing = Listing(size)
    _list(
        tx,
        fs,
        ino,
        (offset, end),
        size // _FEWEST_BYTES + 1,
        listing.add,
        lambda name, inode, next_offset: listing.add(name, inode.ino, inode.mode, next_offset),
    )
    return listing


def list_entries(
    tx: Transaction,
    fs: FileSystem,
    ino: int,
    offset: int,
    size: int,
    end: int,
    entry: Callable[[Inode], Entry],
    told: Callable[[Inode], None],
) -> ListingPlus:
    """Likewise, with the *entry* of each node, of which the kernel is *told* by that."""
    listing = ListingPlus(size)

    def add(name: bytes, inode: Inode, next_offset: int) -> bool:
        if not listing.add(name, entry(inode), next_offset):
            return False
        told(inode)
        return True

    _list(
        tx,
        fs,
        ino,
        (offset, end),
        size // _FEWEST_BYTES_PLUS + 1,
        listing.add_name,
        add,
    )
    return listing


def _list(
    tx: Transaction,
    fs: FileSystem,
    ino: int,
    between: tuple[int, int],
    limit: int,
    add_dot: Callable[[bytes, int, int, int], bool],
    add: Callable[[bytes, Inode, int], bool],
) -> None:
    offset, end = between
    if offset == 0 and not add_dot(b".", ino, stat.S_IFDIR, 1):
        return
    if offset <= 1 and not add_dot(b"..", tx.places.parent_of(ino), stat.S_IFDIR, _DOTS):
        return
    for number, name, inode in fs.names.list(tx, ino, max(offset - _DOTS, 0), limit):
        if number > end or not add(name, inode, number + _DOTS):
            return
