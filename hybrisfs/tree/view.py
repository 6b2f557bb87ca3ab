"""What changes in the view otherwise than through the mount, as the kernel has to hear it."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

__all__ = ["Aspect", "Change"]


class Aspect(Enum):
    """What of an inode is another than it was."""

    CONTENT = auto()
    ATTRIBUTES = auto()
    TIMES = auto()
    """As they become with every change of the content."""


class Change(NamedTuple):
    """A name in a directory belongs to another node or to none (`name` given), or an inode has other
    attributes or content. *gone*: number and mode of the node that lost the name."""

    ino: int
    name: bytes | None = None
    gone: tuple[int, int] | None = None
    aspect: Aspect = Aspect.ATTRIBUTES
    """Says something of a change without a name."""
