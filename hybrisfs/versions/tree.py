"""The tree as it was at a moment: by the same rules as the view (`hybrisfs.merge`), but one folder at a time
and without rows of its own.

The labels that a node had are among its extended attributes, as programs see them.

A folder that stood elsewhere because it would have contained itself, or as its own folder was unknown, is
looked for among those that do so now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hybrisfs.kinds import LABEL, NODE
from hybrisfs.merge.resolver import Resolver
from hybrisfs.merge.rules import Contender, Entry, copy_id, entries
from hybrisfs.registers.labels import ADDED, as_text, word_of
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr
from hybrisfs.state.direct import has_any
from hybrisfs.state.shown_nodes import moved_nodes
from hybrisfs.tree.labels import LABELS_XATTR
from hybrisfs.versions.past import NothingUnsigned, PastRegisters

__all__ = ["PastNode", "PastTree", "as_one"]

_FOLDER_MODE = 0o40755


class PastNode(NamedTuple):
    """A file or folder as it was. *ids*: of the nodes that were seen as one, the shown one first. *content*:
    the value of its content register. *links*: how many names it had; 1 for folders. *copy_of*: the node of
    which this is a concurrent version."""

    ids: tuple[bytes, ...]
    attr: Attr
    content: bytes | None
    links: int
    copy_of: bytes | None = None

    @property
    def id(self) -> bytes:
        """The node's name on all devices; that of a concurrent version, see `merge.rules.copy_id`."""
        return self.ids[0]


def as_one(folders: Iterable[bytes]) -> PastNode:
    """Folders, given by their ids, that are looked at as one."""
    return PastNode(tuple(folders), Attr(_FOLDER_MODE, 0, 0, 0, 0), None, 1)


class PastTree:
    """Answers about the tree at *moment* (ns since the epoch) from the snapshot *db*."""

    def __init__(self, db: sqlite3.Connection, moment: int) -> None:
        self._db = db
        self._registers = PastRegisters(db, moment)
        self._resolver = Resolver(self._registers, NothingUnsigned(), self._registers)
        self._has_labels = has_any(db, LABEL)

    def root(self) -> PastNode:
        """The volume's own folder."""
        attr = self.attr(ROOT_ID)
        return as_one((ROOT_ID,)) if attr is None else PastNode((ROOT_ID,), attr, None, 1)

    def attr(self, node: bytes) -> Attr | None:
        """The attributes that a node had; None when it was unknown."""
        attr = self._resolver.attr(node)
        return attr if attr is None else self._with_labels(attr, (node,))

    def _with_labels(self, attr: Attr, nodes: Iterable[bytes]) -> Attr:
        """The attributes of what is seen as these nodes, and the labels that they had."""
        if not self._has_labels:
            return attr
        words = {
            word_of(key)
            for node in nodes
            for key, values in self._registers.with_prefix(LABEL.key(node)).items()
            if any(one.value == ADDED for one in values)
        }
        if not words:
            return attr
        labels = LABELS_XATTR, as_text(sorted(words, key=str.encode))
        return attr._replace(xattrs=(*attr.xattrs, labels))

    def lives(self, node: bytes) -> bool:
        """Whether a node had a name."""
        return bool(self._resolver.names(node))

    def find(self, path: Iterable[bytes]) -> PastNode | None:
        """What was at a path, given by its names."""
        at: PastNode | None = self.root()
        for name in path:
            if at is None or not self._resolver.is_directory(at.id):
                return None
            at = self.children(at).get(name)
        return at

    def children(self, folder: PastNode) -> dict[bytes, PastNode]:
        """What was in a folder, by name, in the order of names."""
        found = entries(self._contenders(folder.ids), self._resolver.copies_beside, self._registers.author)
        return {name: self._node(entry) for name, entry in sorted(found.items())}

    def _contenders(self, folders: Sequence[bytes]) -> dict[bytes, list[Contender]]:
        candidates = moved_nodes(self._db)
        for folder in folders:
            candidates.update(key[NODE] for key in self._registers.places_beginning(folder))
        found: dict[bytes, list[Contender]] = {}
        for node in candidates:
            for standing in self._resolver.names(node):
                if self._resolver.parent(node, standing) in folders:
                    found.setdefault(standing.place.name, []).append(self._resolver.contender(standing))
        return found

    def _node(self, entry: Entry) -> PastNode:
        node = entry.node.id
        ids = node, *(one.id for one in entry.merged)
        attr = self._resolver.attr(node)
        assert attr is not None
        attr = self._with_labels(attr, ids)
        if entry.copy is not None:
            return PastNode((copy_id(node, entry.copy.value),), attr, entry.copy.value, 1, node)
        if entry.node.is_directory:
            return PastNode(ids, attr, None, 1)
        contents = self._resolver.contents(node)
        value = contents[0].value if contents else None
        return PastNode((node,), attr, value, len(self._resolver.names(node)))
