"""What a mirror knows of a name: on one side, and of both sides when they last were equal."""

from __future__ import annotations

import errno
import stat
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = [
    "PERMISSIONS",
    "Agreed",
    "ChangedError",
    "Facts",
    "Glimpse",
    "InUseError",
    "Kind",
    "Seen",
    "Side",
    "Trees",
    "ancestors",
    "depth",
    "join",
    "name_of",
    "own_bits",
    "parent_of",
]


PERMISSIONS: Final = 0o777
"""The bits of a mode that are mirrored. A user that runs a set-user-ID program has its owner's rights: on the
disk those of the user that mirrors. So set-ID bits, and the sticky bit with them, are each side's own."""


class ChangedError(Exception):
    """Something is not what the plan was made for; nothing was done, and it is to be looked at again."""


class InUseError(OSError):
    """A program has a file open for writing that was to lose its name or its content: what it writes after
    that would be lost."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "a program has it open for writing")


class Side(Enum):
    """Where something is: in the folder on the disk, or in the volume."""

    LOCAL = "local"
    VOLUME = "volume"

    @property
    def other(self) -> Side:
        return Side.VOLUME if self is Side.LOCAL else Side.LOCAL


class Kind(IntEnum):
    """What can be mirrored. The numbers are stored."""

    DIRECTORY = 1
    FILE = 2
    LINK = 3


class Facts(NamedTuple):
    """What is to be equal on both sides."""

    kind: Kind
    mode: int = 0
    """`PERMISSIONS`; 0 for symbolic links, which have none."""
    mtime: int = 0
    """Of files, ns since the epoch; 0 for the rest."""
    size: int = 0
    content: bytes | None = b""
    """Of a file: its identity (`ContentHash`), None while it has not been read; of a link: its target."""
    xattrs: bytes = b""
    """Digest of the extended attributes `user.*`; empty when there are none."""

    def same_content(self, other: Facts) -> bool:
        """Whether the two are the same but for attributes. What has not been read equals nothing."""
        return self.kind == other.kind and self.content is not None and self.content == other.content


class Glimpse(Struct, frozen=True):
    """What listing a directory says of a name. *identity* outlives renames; *stamp* changes whenever
    anything about it does."""

    kind: Kind
    identity: bytes
    stamp: bytes
    links: int = 1


class Seen(Struct, frozen=True):
    """Something on one side, as it was looked at."""

    identity: bytes
    stamp: bytes
    facts: Facts
    links: int = 1

    def changed_since(self, before: Seen) -> bool:
        return self.facts != before.facts

    def with_content(self, content: bytes | None) -> Seen:
        """The same, with the identity of its content as it has become known."""
        return replace(self, facts=self.facts._replace(content=content))


class Agreed(Struct, frozen=True):
    """What the two sides were when they last were equal. A filesystem need not keep all that it is given
    (FAT keeps no permissions), so each side is compared with what it showed itself."""

    local: Seen
    volume: Seen

    def on(self, side: Side) -> Seen:
        return self.local if side is Side.LOCAL else self.volume


class Trees(Struct):
    """What was looked at, by path from the mirror's root: all names of some directories."""

    local: dict[bytes, Seen] = field(default_factory=dict)
    volume: dict[bytes, Seen] = field(default_factory=dict)
    agreed: dict[bytes, Agreed] = field(default_factory=dict)
    held: dict[bytes, str | None] = field(default_factory=dict)
    """Names that are left alone, with all below them, and why if a person should know."""

    def on(self, side: Side) -> dict[bytes, Seen]:
        return self.local if side is Side.LOCAL else self.volume

    def is_held(self, path: bytes) -> bool:
        return path in self.held or any(above in self.held for above in ancestors(path))


def own_bits(mode: int) -> int:
    """The bits of a mode that are not mirrored."""
    return stat.S_IMODE(mode) & ~PERMISSIONS


def parent_of(path: bytes) -> bytes:
    """The directory that a path is in; the root is b""."""
    return path.rpartition(b"/")[0]


def name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0


def ancestors(path: bytes) -> list[bytes]:
    """The directories that a path is in, the nearest first, without the root."""
    found = []
    while path := parent_of(path):
        found.append(path)
    return found
