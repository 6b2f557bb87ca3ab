"""What a device may do: all that members do, change what is in some folders, or only read.

========  =======================================  ======================================================
register  key                                      value
========  =======================================  ======================================================
role      ``o`` device id (16), random serial (8)  version u8 = 1, role u8: 0 full, 1 reader,
                                                   2 contributor, since u8: 0 from now on, 1 from its
                                                   first update on; of a contributor also count u8 (1 to
                                                   16), and of each folder area (4), node id (16), in
                                                   ascending order of the areas
========  =======================================  ======================================================

A device of which no register tells is a full member. What a reader may write, and a *contributor*, which is
limited to the areas of these folders, stands in the one table of rules
(`hybrisfs.merge.authority`); nothing else of what they sign counts. Full members say what others may do, and
no device says it of itself. What takes rights away counts for nothing while it is only proposed
(`hybrisfs.members.role_table`).

**Which role a device had when it signed an update is decided by what that update had seen**: of the registers
of the device that its dependency vector covers, and that count, those hold that no other of them depends on;
of several, the one that allows less, and of the folders of contributors those that are in all. Whether a
register of a role counts at all is decided in the same way; what a reader or a contributor says does not, by
what *it* had seen. Of an author only the newest words about a device count (`hybrisfs.members.role_table`).
So all devices decide alike, in whatever order updates come. A device that is made a reader while it works on
loses nothing: updates that it had signed before it got the word are those of a full member.

To decide by the past, one must know it, also when one begins with a checkpoint, which holds the latest values
of registers only. So each change of a role is a register of its own, with a serial of its own, and is written
once: a write to a register that its writer knows to have a value does not count.

To pretend that one has not heard must not help: `Roles.bounds` tells the log which updates the updates of a
reader or contributor are to depend on (`sync.log`). A recovery kit's key is always full.

Areas: the folders to which contributors are limited, and what belongs to them.

==========  ===============================  ============================================================
register    key                              value
==========  ===============================  ============================================================
assignment  ``g`` node id (16), area (4)     version u8 = 1
==========  ===============================  ============================================================

An area is 4 random bytes, which a full member chooses when it makes a device a contributor to a folder that
has no area yet; the register of the role names area and folder. To an area belongs

* a node that was made in it, as its id says (`hybrisfs.registers.node_id`): a device that makes a node below
  the folder gives it such an id, full members and contributors alike;
* a node of which a full member has said so in an assignment: what stood there when the folder was shared.

So the place of a node, and its moves, do not matter here: whether a contributor may write to
it does not depend on the tree, which follows from all that was written, in any order. The folder itself
belongs to the area in which it stands, or to none: a contributor puts things into it, and does not move,
remove or change it.

**A node belongs to its area for good.** Programs cannot rename or link across the border of an area to which
some device is limited now (EXDEV: they copy then, as between two disks), so what is moved out becomes another
node, which no contributor reaches, and what is moved in one that they do (`hybrisfs.tree.names`).
When no device is limited to an area any more, it has no border, and the folder gets another area when it is
shared again.

That an assignment was there when a contributor signed an update is decided by what the update had seen. To
decide that by the latest values alone, as a device that began with a checkpoint has to, an assignment is
written once: a write to one that its writer knows does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from hybrisfs.environment import SYSTEM
from hybrisfs.kinds import AREA_SIZE, NODE_ID_SIZE, ROLE, SERIAL_SIZE
from hybrisfs.registers.node_id import born_in
from hybrisfs.registers.tree import assignment_key
from hybrisfs.state.database import Reader as StateReader
from hybrisfs.state.registers import stamps_of_keys
from sync import DecodeError, Reader, VersionVector, Writer

__all__ = [
    "MAX_AREAS",
    "NOWHERE",
    "Area",
    "Grounds",
    "Rights",
    "Role",
    "RoleRecord",
    "check_assignment",
    "known_assignments",
    "new_assignment",
    "new_role_key",
    "whose_role",
]

MAX_AREAS: Final = 16
"""Folders to which one device is limited."""
_VERSION: Final = 1
_WHOSE: Final = ROLE.parts[0]


class Role(IntEnum):
    """What a device may do."""

    FULL = 0
    READER = 1
    CONTRIBUTOR = 2


class Rights(NamedTuple):
    """What a device may do, and as a contributor in which *areas*."""

    role: Role
    areas: frozenset[Area] = frozenset()


class RoleRecord(NamedTuple):
    """The value of a register."""

    role: Role
    from_first: bool = False
    """Whether the device got the role at its admission."""
    areas: tuple[Area, ...] = ()
    """Of a contributor, in ascending order."""

    @property
    def limits(self) -> bool:
        """Whether it allows less than all."""
        return self.role is not Role.FULL

    @property
    def rights(self) -> Rights:
        return Rights(self.role, frozenset(self.areas))

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).u8(self.role).u8(self.from_first)
        if self.role is Role.CONTRIBUTOR:
            out.u8(len(self.areas))
            for area in self.areas:
                out.raw(area.id).raw(area.folder)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> RoleRecord:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a role of another version")
        role, since = reader.u8(), reader.u8()
        if role > Role.CONTRIBUTOR or since > 1:
            raise DecodeError("a role that no machine has")
        areas: tuple[Area, ...] = ()
        if role == Role.CONTRIBUTOR:
            count = reader.u8()
            if not 1 <= count <= MAX_AREAS:
                raise DecodeError(f"a contributor to {count} folders")
            areas = tuple(Area(reader.raw(AREA_SIZE), reader.raw(NODE_ID_SIZE)) for _ in range(count))
            if any(one.id >= other.id for one, other in pairwise(areas)):
                raise DecodeError("areas out of order")
        reader.end()
        return RoleRecord(Role(role), bool(since), areas)


def new_role_key(device: bytes, random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes) -> bytes:
    """A register that says what the device may do from now on."""
    return ROLE.key(device, random_bytes(SERIAL_SIZE))


def whose_role(key: bytes) -> bytes:
    """The device that the register is about."""
    return key[_WHOSE]


# -- areas: the folders to which contributors are limited, and what belongs to them ---------------------


class Area(NamedTuple):
    """A *folder* (its node), and the *id* of what belongs to it."""

    id: bytes
    folder: bytes


def new_assignment(node: bytes, area: bytes) -> tuple[bytes, bytes]:
    """A register that says that the node belongs to the area, and its value."""
    return assignment_key(node, area), Writer().u8(_VERSION).getvalue()


def check_assignment(value: bytes) -> None:
    """Raises DecodeError."""
    reader = Reader(value)
    if reader.u8() != _VERSION:
        raise DecodeError("an assignment of another version")
    reader.end()


def known_assignments(db: StateReader, keys: Collection[bytes], seen: VersionVector | None) -> set[bytes]:
    """The keys of those among a few assignments that an update with the vector *seen* had seen; None: of
    those known here."""
    found = stamps_of_keys(db, keys)
    return {key for key, stamp in found if seen is None or seen[stamp.branch] >= stamp.clock}


class Grounds:
    """What a device that is limited to *areas* may write to, by what it had seen."""

    def __init__(
        self, areas: Collection[Area], known: Callable[[Collection[bytes]], Collection[bytes]]
    ) -> None:
        """*known* tells which assignments, by their keys, it had seen."""
        self._areas = areas
        self._known = known

    def of(self, node: bytes) -> set[bytes]:
        """Those of the areas to which the node belongs."""
        born = born_in(node)
        keys = [assignment_key(node, one.id) for one in self._areas if one.id != born]
        found = {key[-AREA_SIZE:] for key in self._known(keys)} if keys else set()
        return found.union(one.id for one in self._areas if one.id == born)

    def below(self, directory: bytes) -> set[bytes]:
        """The areas to which the children of a directory belong."""
        return self.of(directory) | {one.id for one in self._areas if one.folder == directory}


NOWHERE: Final = Grounds((), lambda keys: ())
"""The grounds of a device that may write to no node, and of one whose grounds do not matter."""
