"""Areas: the folders to which contributors are limited, and what belongs to them.

==========  ===============================  ============================================================
register    key                              value
==========  ===============================  ============================================================
assignment  ``g`` node id (16), area (4)     version u8 = 1
==========  ===============================  ============================================================

An area is 4 random bytes, which a full member chooses when it makes a device a contributor to a folder that
has no area yet; the register of the role names area and folder (`hybrisfs.members.roles`). To an area belongs

* a node that was made in it, as its id says (`hybrisfs.registers.node_id`): a device that makes a node below
  the folder gives it such an id, full members and contributors alike;
* a node of which a full member has said so in an assignment: what stood there when the folder was shared.

So the place of a node, and its moves, do not matter here: whether a contributor may write to
it does not depend on the tree, which follows from all that was written, in any order. The folder itself
belongs to the area in which it stands, or to none: a contributor puts things into it, and does not move,
remove or change it.

**A node belongs to its area for good.** Programs cannot rename or link across the border of an area to which
some device is limited now (EXDEV: they copy then, as between two disks), so what is moved out becomes another
node, which no contributor reaches, and what is moved in one that they do (`hybrisfs.tree.borders`).
When no device is limited to an area any more, it has no border, and the folder gets another area when it is
shared again.

That an assignment was there when a contributor signed an update is decided by what the update had seen. To
decide that by the latest values alone, as a device that began with a checkpoint has to, an assignment is
written once: a write to one that its writer knows does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from hybrisfs.kinds import AREA_SIZE
from hybrisfs.registers.node_id import born_in
from hybrisfs.registers.tree import assignment_key
from hybrisfs.state.database import Reader as StateReader
from hybrisfs.state.registers import stamps_of_keys
from sync import DecodeError, Reader, VersionVector, Writer

__all__ = [
    "NOWHERE",
    "Area",
    "Grounds",
    "check_assignment",
    "known_assignments",
    "new_assignment",
]

_VERSION: Final = 1


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
    """The keys, of a few assignments, of those that an update with the vector *seen* had seen; None: those
    that are known here."""
    found = stamps_of_keys(db, keys)
    return {key for key, stamp in found if seen is None or seen[stamp.writer] >= stamp.clock}


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
        """Those of the areas to which belongs what stands in a directory."""
        return self.of(directory) | {one.id for one in self._areas if one.folder == directory}


NOWHERE: Final = Grounds((), lambda keys: ())
"""That of a device which may write to no node, and of one for which nothing is asked."""
