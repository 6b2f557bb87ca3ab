"""Changes of direct facets (`hybrisfs.state.shown_nodes`), whichever these are: by programs, by other devices
that write at the same time, and when nodes become others.

Of concurrent values the greatest counts. An unsigned change will be signed as one that has seen all that is
here by then. So when a greater value comes from another device, which the change has not seen, it gives way.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable
from typing import Final

from hybrisfs.errors import failure
from hybrisfs.kinds import KINDS, LABEL, NODE, Kind, Trait
from hybrisfs.registers.labels import (
    ADDED,
    MERGE_OFF,
    MOST_LABELS,
    TAKEN_AWAY,
    ArchiveAsked,
    announce_asked,
    announce_label,
    archive_asked,
    archive_label,
    as_text,
    copies_asked,
    copies_label,
    from_text,
    label_key,
    word_of,
)
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode, InodeTable, Intent
from sync.follow import ANNOUNCE_SECONDS

__all__ = ["LABELS_XATTR", "Facets", "Labels"]

_DIRECT: Final = [kind for kind in KINDS if Trait.DIRECT in kind.traits]
_BEYOND: Final = b"\xff" * 64


class Facets:
    """The direct facets of the nodes of one volume."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def of(self, tx: Transaction, kind: Kind, node: bytes) -> dict[bytes, bytes]:
        """What the registers of one kind say of a node here, by their keys."""
        return tx.direct.between(kind.key(node), kind.key(node, _BEYOND))

    def write(self, tx: Transaction, inode: Inode, key: bytes, value: bytes) -> None:
        """A program has changed a register of what is seen as this node."""
        tx.direct.put(key, value)
        self._changes.mark(key, inode.ino)

    def inherit(self, tx: Transaction, inode: Inode, node: bytes) -> None:
        """Let a node say what another one says, of which it was a version, or with which it was merged;
        where both say something, the greater value."""
        for kind in _DIRECT:
            own = self.of(tx, kind, inode.id)
            for key, value in self.of(tx, kind, node).items():
                mine = kind.key(inode.id, key[NODE.stop :])
                if value > own.get(mine, b""):
                    self.write(tx, inode, mine, value)

    def heard(self, tx: Transaction, key: bytes, value: bytes | None) -> None:
        """Another device has written this to the register of a direct facet."""
        if key not in self._changes.unsigned or value is None:
            return
        unsigned = tx.direct.unsigned(key)
        if unsigned is not None and value > unsigned:
            self._changes.drop(key)
            tx.direct.forget([key])


# -- labels of nodes as programs give, take and see them (`hybrisfs.registers.labels`) ------------------
# A label that is given to a node is written even if the node has it: a device that takes it away at the same
# time has not seen that, so the node keeps it.
#
# What is shown as one node has the labels of all the nodes that it is. A conflict copy has those of its node,
# and keeps them when it becomes a file of its own. A file without a name has none: no update names it.


LABELS_XATTR: Final = b"user.hybrisfs.labels"
_ALL: Final = LABEL.prefix, bytes((LABEL + 1,))


class Labels:
    """Those of one volume. Changes raise OSError: EINVAL for an invalid label, ENOSPC for too
    many, EOPNOTSUPP for a node without a name, and what a node raises that this device may not change."""

    def __init__(self, inodes: InodeTable, facets: Facets) -> None:
        self._inodes = inodes
        self._facets = facets

    def of(self, tx: Transaction, inode: Inode) -> list[str]:
        """The labels of a node, in the order of their bytes."""
        nodes = self._inodes.shown_as(tx, inode)
        found = {word for node in nodes for word in self._of_node(tx, node)}
        return sorted(found, key=str.encode)

    def _of_node(self, tx: Transaction, node: bytes) -> list[str]:
        return [word_of(key) for key, value in self._facets.of(tx, LABEL, node).items() if value == ADDED]

    def text(self, tx: Transaction, inode: Inode) -> bytes | None:
        """The labels as an extended attribute has them; None when there are none. Of more than a device here
        gives, the first: a member that gives thousands keeps no program from copying the file."""
        words = self.of(tx, inode)[:MOST_LABELS]
        return as_text(words) if words else None

    def set_text(self, tx: Transaction, inode: Inode, text: bytes) -> None:
        """Let the node have the labels that an extended attribute names, and of `text` no others."""
        try:
            wanted = from_text(text)
        except ValueError:
            raise failure(errno.EINVAL) from None
        before = self.of(tx, inode)[:MOST_LABELS]
        added = [word for word in wanted if word not in before]
        self._change(tx, inode, added, [word for word in before if word not in wanted])

    def add(self, tx: Transaction, inode: Inode, words: Iterable[str]) -> None:
        """Give labels to a node."""
        self._change(tx, inode, list(words), [])

    def remove(self, tx: Transaction, inode: Inode, words: Iterable[str]) -> None:
        """Take labels from a node; those that it does not have do not matter."""
        before = self.of(tx, inode)
        self._change(tx, inode, [], [word for word in words if word in before])

    def _change(self, tx: Transaction, inode: Inode, added: list[str], removed: list[str]) -> None:
        if not (added or removed):
            return
        if inode.orphan:
            raise failure(errno.EOPNOTSUPP)
        if added and len({*self.of(tx, inode), *added} - {*removed}) > MOST_LABELS:
            raise failure(errno.ENOSPC)
        self._inodes.intend(tx, inode, Intent.CHANGE)
        for word in removed:
            for node in self._inodes.shown_as(tx, inode):
                if word in self._of_node(tx, node):
                    self._facets.write(tx, inode, label_key(node, word), TAKEN_AWAY)
        for word in added:
            self._facets.write(tx, inode, label_key(inode.id, word), ADDED)
        inode.ctime = self._inodes.now()
        self._inodes.touch(inode)

    def ask_for_copies(self, tx: Transaction, inode: Inode, copies: int) -> None:
        """Let the label of a node ask for so many copies, and no other label for another number; 0: for
        none."""
        asking = [word for word in self.of(tx, inode) if copies_asked([word])]
        added = [copies_label(copies)] if copies else []
        self._change(tx, inode, added, [word for word in asking if word not in added])

    def announce_seconds(self, tx: Transaction) -> float:
        """How often devices of this volume announce themselves at least, in seconds."""
        asked = announce_asked(self._of_node(tx, ROOT_ID))
        return ANNOUNCE_SECONDS if asked is None else float(asked)

    def ask_for_announcements(self, tx: Transaction, root: Inode, seconds: int) -> None:
        """Let a label of the root ask for that, and no other label for another pause."""
        asking = [word for word in self.of(tx, root) if announce_asked([word]) is not None]
        added = [announce_label(seconds)] if seconds != ANNOUNCE_SECONDS else []
        self._change(tx, root, added, [word for word in asking if word not in added])

    def archive_asked(self, tx: Transaction) -> ArchiveAsked | None:
        """What is to be archived; None when nobody ever asked for it."""
        return archive_asked(self._of_node(tx, ROOT_ID))

    def ask_for_archive(self, tx: Transaction, root: Inode, asked: ArchiveAsked) -> None:
        """Let a label of the root ask for that, and no other label for anything else."""
        added = archive_label(asked)
        asking = [word for word in self.of(tx, root) if archive_asked([word]) is not None]
        self._change(tx, root, [added], [word for word in asking if word != added])

    def may_merge(self, tx: Transaction, inode: Inode) -> bool:
        """Whether no label of the node, or of a folder above it, forbids that versions are merged unasked."""
        at: Inode | None = inode
        while at is not None:
            if MERGE_OFF in self.of(tx, at):
                return False
            place = tx.places.first(at.ino) if at.ino != ROOT_INO else None
            at = self._inodes.get(tx, place.parent) if place is not None else None
        return True

    # -- all of them -----------------------------------------------------------------------------

    def asking_for_copies(self, tx: Transaction) -> dict[bytes, tuple[int, int]]:
        """The nodes for whose copies labels ask: for each its inode, and how many."""
        words: dict[tuple[bytes, int], list[str]] = {}
        self._inodes.flush(tx)
        for one in tx.direct.shown(*_ALL):
            if one.value == ADDED:
                words.setdefault((one.key[NODE], one.ino), []).append(word_of(one.key))
        return {
            node: (ino, copies) for (node, ino), found in words.items() if (copies := copies_asked(found))
        }

    def counts(self, tx: Transaction) -> Counter[str]:
        """How many nodes that are shown have each label."""
        return Counter(word for word, _ in self._shown(tx))

    def labelled(self, tx: Transaction, word: str) -> list[int]:
        """The inodes of the nodes that have a label."""
        return sorted({ino for one, ino in self._shown(tx) if one == word})

    def _shown(self, tx: Transaction) -> set[tuple[str, int]]:
        self._inodes.flush(tx)
        return {(word_of(one.key), one.ino) for one in tx.direct.shown(*_ALL) if one.value == ADDED}
