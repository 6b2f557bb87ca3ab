"""Listing a directory into the kernel's buffer.

The dots are at offsets 0 and 1; the offset behind an entry is its number in the database + `_DOTS`, so that a
listing goes on where it was, whatever has come and gone meanwhile.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Final

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.fuse import Entry, Listing, ListingPlus

__all__ = ["list_entries", "list_names"]

_DOTS: Final = 2
_FEWEST_BYTES: Final = 40  # of an entry in a listing
_FEWEST_BYTES_PLUS: Final = 160


def list_names(fs: FileSystem, ino: int, offset: int, size: int) -> Listing:
    """Names and types, as far as they fit into *size* bytes. Called with the volume's lock held."""
    listing = Listing(size)
    _list(
        fs,
        ino,
        offset,
        size // _FEWEST_BYTES + 1,
        listing.add,
        lambda name, inode, next_offset: listing.add(name, inode.ino, inode.mode, next_offset),
    )
    return listing


def list_entries(
    fs: FileSystem, ino: int, offset: int, size: int, entry: Callable[[Inode], Entry]
) -> ListingPlus:
    """Likewise, with what *entry* tells of each node."""
    listing = ListingPlus(size)
    _list(
        fs,
        ino,
        offset,
        size // _FEWEST_BYTES_PLUS + 1,
        listing.add_name,
        lambda name, inode, next_offset: listing.add(name, entry(inode), next_offset),
    )
    return listing


def _list(
    fs: FileSystem,
    ino: int,
    offset: int,
    limit: int,
    add_dot: Callable[[bytes, int, int, int], bool],
    add: Callable[[bytes, Inode, int], bool],
) -> None:
    if offset == 0 and not add_dot(b".", ino, stat.S_IFDIR, 1):
        return
    if offset <= 1 and not add_dot(b"..", fs.names.parent_of(ino), stat.S_IFDIR, _DOTS):
        return
    for number, name, inode in fs.names.list(ino, max(offset - _DOTS, 0), limit):
        if not add(name, inode, number + _DOTS):
            return
