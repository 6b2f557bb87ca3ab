"""What programs may see changed by updates that are about to be taken in.

Only an estimate, for the kernel's sake: it forgets these names before the view changes, so that programs
never see an update in part, one name as it was and another as it is (`mount.notifier`). Names that change by
the rules of merging alone, such as those of conflict copies, are not foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable

from hybrisfs.kinds import ATTRIBUTES, NODE, PLACE
from hybrisfs.merge.rows import Change
from hybrisfs.registers.tree import Place, is_of_tree
from hybrisfs.state.shown_nodes import ino_shown_for
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Write

__all__ = ["foreseen"]


def foreseen(fs: FileSystem, writes: Iterable[Write]) -> list[Change]:
    """The names and inodes of the view that *writes* are about; with the volume's lock held."""
    fs.inodes.flush()
    places = fs.places
    nodes: dict[bytes, bool] = {}  # and whether a name may stand for another inode afterwards
    found: dict[Change, None] = {}
    for key, value in writes:
        if not is_of_tree(key):
            continue
        nodes[key[NODE]] = nodes.get(key[NODE], False) or key[0] != ATTRIBUTES
        if key[0] == PLACE and value is not None:
            try:
                place = Place.decode(value)
            except DecodeError:  # whoever takes the update in refuses it
                continue
            parent = ino_shown_for(fs.db, place.parent)
            if parent is not None:
                found[Change(parent, place.name)] = None
    for node, renamed in nodes.items():
        ino = ino_shown_for(fs.db, node)
        if ino is None:
            continue
        found[Change(ino)] = None
        names = places.of(ino).values() if renamed else ()
        found.update((Change(one.parent, one.name), None) for one in names)
    return list(found)
