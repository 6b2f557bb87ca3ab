"""Content that other devices cannot be counted on to have: what must not be evicted here.

A folder for whose copies a label asks is *precious* here until enough other devices state that they have all
of it, as of some vector. Then a file in it is precious no more, if that vector covers each update that gave
the file its content and its place in the folder; those of the folders between the two included, which may
have been moved there. What the clouds have yet to hear of, nobody else has.

It is asked when bytes are to go, of the tree of that moment, so that no list can be out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from hybrisfs.kinds import CONTENT, PLACE, Kind
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import after, branches_by_number
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import nodes_shown_as
from sync import VersionVector

__all__ = ["Precious"]

_IS_PENDING: Final = "SELECT 1 FROM pending WHERE key >= ? AND key < ? LIMIT 1"
_UPDATES: Final = "SELECT writer, clock FROM register WHERE key >= ? AND key < ?"

_Updates: TypeAlias = frozenset[tuple[int, int]] | None
"""Writers and clocks; None when something is in no update that the clouds have."""


class Precious:
    """The precious content of the folders that are asked for, in one look at the tree."""

    def __init__(self, db: Reader, folders: Mapping[int, VersionVector | None]) -> None:
        """*folders*: by inode, up to which vector enough other devices have all of it; None: they have not.
        Inodes must have been flushed."""
        self._db = db
        branches = branches_by_number(db) if any(one is not None for one in folders.values()) else {}
        self._folders = {
            ino: None if vector is None else {number: vector[branch] for number, branch in branches.items()}
            for ino, vector in folders.items()
        }
        self._above: dict[int, tuple[_Updates, int]] = {}  # of a folder: how it came there, and where it is

    def __bool__(self) -> bool:
        return bool(self._folders)

    def has(self, ino: int, parent: int) -> bool:
        """Whether a file that stands in the folder *parent* is precious."""
        updates = self._updates(CONTENT, ino)
        if self._is_asked_for(ino, updates):
            return True
        updates, at = _together(updates, self._updates(PLACE, ino)), parent
        while not self._is_asked_for(at, updates):
            if at == ROOT_INO:
                return False
            moved, at = self._step(at)
            updates = _together(updates, moved)
        return True

    def _is_asked_for(self, ino: int, updates: _Updates) -> bool:
        """Whether what these updates made must stay for the sake of this folder, or file."""
        if ino not in self._folders:
            return False
        held = self._folders[ino]
        return updates is None or held is None or any(held.get(who, 0) < clock for who, clock in updates)

    def _step(self, folder: int) -> tuple[_Updates, int]:
        step = self._above.get(folder)
        if step is None:
            row = self._db.execute("SELECT parent FROM place WHERE ino = ?", (folder,)).fetchone()
            parent = ROOT_INO if row is None else int(row[0])
            step = self._above[folder] = self._updates(PLACE, folder), parent
        return step

    def _updates(self, kind: Kind, ino: int) -> _Updates:
        """What gave a node, and those that are merged with it, its content or its place."""
        found: set[tuple[int, int]] = set()
        for node in self._nodes(ino):
            first = kind.key(node)
            span = first, after(first)
            if self._db.execute(_IS_PENDING, span).fetchone() is not None:
                return None
            found.update(self._db.execute(_UPDATES, span))
        return frozenset(found)

    def _nodes(self, ino: int) -> list[bytes]:
        copied = self._db.execute("SELECT id FROM copy WHERE ino = ?", (ino,)).fetchall()
        return [*nodes_shown_as(self._db, ino), *(node for (node,) in copied)]


def _together(one: _Updates, other: _Updates) -> _Updates:
    return None if one is None or other is None else one | other
