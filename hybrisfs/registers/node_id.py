"""The ids of nodes: 16 bytes, which tell the kind of the node and the area in which it was made, so that
nobody can make another of it.

=========  ===========================================================================================
bits       meaning
=========  ===========================================================================================
0          1; ids of earlier versions begin with 0, and tell neither kind nor area
1          1 when the node was made in an area (`hybrisfs.members.roles`)
2 to 47    the time when the node was made, in ms since the epoch, so that the rows about new nodes stand
           side by side in every index (the idea of UUIDv7: RFC 9562, 5.7)
48 to 79   the area, if it was made in one; else random
80 to 124  random
125 to 127 the kind, as `_KINDS` numbers it
=========  ===========================================================================================

The root has the id of 16 zero bytes in every volume.

The id of a volume (16 bytes) tells whether earlier versions may have made nodes in it: it begins with
``48 46 53 02`` where none has. All other bytes of it are random. So the form of an id decides whether there
can be such a node, whatever else a device knows of the volume.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Final

from hybrisfs.environment import SYSTEM
from hybrisfs.kinds import AREA_SIZE
from sync import VOLUME_ID_SIZE

__all__ = [
    "FIRST_OF_KINDS",
    "ROOT_ID",
    "born_in",
    "can_be",
    "kind_of",
    "made_at",
    "new_node_id",
    "new_volume_id",
]

_KINDS: Final = (
    stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK,
)  # fmt: skip
_NUMBERED: Final = (*_KINDS, 0)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
ROOT_ID: Final = bytes(16)
"""Of the root, in every volume. It has no place."""
FIRST_OF_KINDS: Final = b"\x80"
"""Ids that tell the kind are not below this; those of earlier versions are."""

_TELLS: Final = FIRST_OF_KINDS[0]
_KIND_MASK: Final = 0x07
_HAS_AREA: Final = 0x40  # of the first byte
_TIME_MASK: Final = (1 << 46) - 1
_AREA: Final = slice(6, 6 + AREA_SIZE)
_ALL_TELL: Final = b"HFS\x02"  # so begin the ids of volumes in which no earlier version made a node


def new_node_id(
    mode: int,
    now: int,
    area: bytes | None = None,
    random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes,
) -> bytes:
    """An id that no node ever had, of one with this *mode*, made in this *area* or in none; *now* in ns since
    the epoch."""
    time = (now // 1_000_000 & _TIME_MASK) | 1 << 47 | (area is not None) << 46
    tail = random_bytes(10)
    if area is not None:
        tail = area + tail[AREA_SIZE:]
    kind = _NUMBERS[stat.S_IFMT(mode)]
    return time.to_bytes(6) + tail[:9] + bytes((tail[9] & ~_KIND_MASK | kind,))


def new_volume_id(random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes) -> bytes:
    """An id that no volume ever had, of one in which the ids of all nodes tell their kinds."""
    return _ALL_TELL + random_bytes(VOLUME_ID_SIZE - len(_ALL_TELL))


def can_be(node: bytes, volume: bytes) -> bool:
    """Whether there can be a node with this id in a volume."""
    return node >= FIRST_OF_KINDS or node == ROOT_ID or not volume.startswith(_ALL_TELL)


def born_in(node: bytes) -> bytes | None:
    """The area in which the node was made, as its id says; None when it was made in none."""
    both = _TELLS | _HAS_AREA
    return node[_AREA] if node[0] & both == both else None


def made_at(node: bytes) -> int | None:
    """When the node was made, ns since the epoch, as its id says; None when that does not begin so."""
    if not node[0] & _TELLS:
        return None
    return (int.from_bytes(node[:6]) & _TIME_MASK) * 1_000_000


def kind_of(node: bytes) -> int | None:
    """The kind of a node (`stat.S_IFMT`) by its id, 0 for one that nothing can have; None when the id does
    not tell."""
    if node[0] & _TELLS:
        return _NUMBERED[node[-1] & _KIND_MASK]
    return stat.S_IFDIR if node == ROOT_ID else None
