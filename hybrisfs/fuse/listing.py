"""Directory listings in the form that the kernel reads.

fuse_dirent      ino off (u64), namelen type (u32), name, zeros up to a multiple of 8
fuse_direntplus  fuse_entry_out (128 bytes), fuse_dirent
"""

from __future__ import annotations

from struct import Struct

from hybrisfs.fuse.records import Attributes, Entry, entry_answer

__all__ = ["Listing", "ListingPlus"]

_DIRENT = Struct("=QQII")
_HEADER = _DIRENT.size
_HEADER_PLUS = 128 + _HEADER
_PADDING = tuple(bytes(-length % 8) for length in range(8))
_UNKNOWN_ENTRY = Entry(Attributes(0, 0, 0))


class Listing:
    """The answer to readdir: names until `size` bytes are full."""

    __slots__ = ("_parts", "_room")

    def __init__(self, size: int) -> None:
        self._room = size
        self._parts: list[bytes] = []

    def add(self, name: bytes, ino: int, mode: int, next_offset: int) -> bool:
        """Append a name, unless it does not fit: then answer False.

        Of `mode` only the file type counts. `next_offset` (1 to 2**63-1) is where the listing goes on after
        this name: the kernel passes it back as the offset of the next readdir.
        """
        length = len(name)
        padding = _PADDING[length & 7]
        room = self._room - _HEADER - length - len(padding)
        if room < 0:
            return False
        self._room = room
        self._parts += (_DIRENT.pack(ino, next_offset, length, (mode >> 12) & 15), name, padding)
        return True

    def getvalue(self) -> bytes:
        """What was added so far, as the kernel reads it; empty means the end of the directory."""
        return b"".join(self._parts)


class ListingPlus:
    """The answer to readdirplus: names with their attributes until `size` bytes are full."""

    __slots__ = ("_parts", "_room")

    def __init__(self, size: int) -> None:
        self._room = size
        self._parts: list[bytes] = []

    def add(self, name: bytes, entry: Entry, next_offset: int) -> bool:
        """Append a name, unless it does not fit: then answer False.

        A name that was taken counts as one lookup of its inode (a forget will come), but `.` and `..` do not:
        add them with `add_name`.
        """
        attributes = entry[0]
        return self._add(name, entry_answer(entry), attributes[0], attributes[1], next_offset)

    def add_name(self, name: bytes, ino: int, mode: int, next_offset: int) -> bool:
        """Append a name without attributes: no lookup is counted."""
        return self._add(name, entry_answer(_UNKNOWN_ENTRY), ino, mode, next_offset)

    def _add(self, name: bytes, entry: bytes, ino: int, mode: int, next_offset: int) -> bool:
        length = len(name)
        padding = _PADDING[length & 7]
        room = self._room - _HEADER_PLUS - length - len(padding)
        if room < 0:
            return False
        self._room = room
        self._parts += (entry, _DIRENT.pack(ino, next_offset, length, (mode >> 12) & 15), name, padding)
        return True

    def getvalue(self) -> bytes:
        """What was added so far, as the kernel reads it; empty means the end of the directory."""
        return b"".join(self._parts)
