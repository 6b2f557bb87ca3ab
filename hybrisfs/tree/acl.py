"""POSIX access control lists (acl(5)), as extended attributes carry them (linux/posix_acl_xattr.h).

    version u32 = 2, then each entry: tag u16, permissions u16, id u32     little-endian, at most 4,096 bytes

Entries stand in the order USER_OBJ, USERs, GROUP_OBJ, GROUPs, MASK, OTHER. What a list says of the owner, of
the mask (or of the owning group, when there is no mask) and of others is also in the mode of the node. Here
the mode alone is believed: `Acl.with_mode` puts its bits into the list whenever a program reads it, so that
the two agree whatever chmod, or another device at the same time, does to one of them.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["ACCESS", "DEFAULT", "MAX_ACL", "NAMES", "Acl", "Entry"]

ACCESS: Final = b"system.posix_acl_access"
DEFAULT: Final = b"system.posix_acl_default"
NAMES: Final = frozenset({ACCESS, DEFAULT})
MAX_ACL: Final = 4096
"""Linux asks for no longer ones, nor sets them."""

_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")
_NOBODY: Final = 0xFFFFFFFF  # the id of entries that name neither a user nor a group
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_TAGS: Final = (USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER)  # in their order
_NAMED: Final = frozenset({USER, GROUP})


class Entry(NamedTuple):
    """What one class of users may do: *permissions* as one digit of a mode."""

    tag: int
    permissions: int
    id: int = _NOBODY


class Acl(NamedTuple):
    """An access control list that is valid (acl_valid(3))."""

    entries: tuple[Entry, ...]

    def encode(self) -> bytes:
        return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in self.entries)

    @staticmethod
    @lru_cache(maxsize=64)  # cp -a and tar set the same few lists on all files
    def decode(value: bytes) -> Acl:
        """Raises ValueError for an invalid list."""
        if not value.startswith(_VERSION) or len(value) > MAX_ACL or (len(value) - 4) % _ENTRY.size:
            raise ValueError("not the format of an access control list")
        entries = tuple(Entry(*fields) for fields in _ENTRY.iter_unpack(value[4:]))
        _require_valid(entries)
        return Acl(entries)

    @property
    def is_minimal(self) -> bool:
        """Whether it says no more than a mode does."""
        return len(self.entries) == 3

    @property
    def permissions(self) -> int:
        """The bits of the mode that go with it."""
        bits = {entry.tag: entry.permissions for entry in self.entries}
        return bits[USER_OBJ] << 6 | bits[self._group_tag] << 3 | bits[OTHER]

    def with_mode(self, mode: int) -> Acl:
        """The list that goes with the permission bits of *mode*."""
        bits = {USER_OBJ: mode >> 6 & 7, self._group_tag: mode >> 3 & 7, OTHER: mode & 7}
        return Acl(
            tuple(
                entry._replace(permissions=bits.get(entry.tag, entry.permissions)) for entry in self.entries
            )
        )

    def limit(self, mode: int) -> int:
        """The mode of something made with *mode* in a directory with this default list."""
        return mode & ~0o777 | mode & self.permissions

    @property
    def _group_tag(self) -> int:
        """The entry that the group's bits of the mode stand for."""
        return MASK if any(entry.tag == MASK for entry in self.entries) else GROUP_OBJ


def _require_valid(entries: tuple[Entry, ...]) -> None:
    tags = [entry.tag for entry in entries]
    if not set(tags).issubset(_TAGS) or tags != sorted(tags):
        raise ValueError("entries that do not exist, or out of order")
    if any(tags.count(tag) != 1 for tag in (USER_OBJ, GROUP_OBJ, OTHER)) or tags.count(MASK) > 1:
        raise ValueError("an entry that is missing, or there twice")
    if _NAMED.intersection(tags) and MASK not in tags:
        raise ValueError("entries of users or groups without a mask")
    for entry in entries:
        if entry.permissions > 7 or (entry.id == _NOBODY) == (entry.tag in _NAMED):
            raise ValueError("an entry with impossible permissions or id")
