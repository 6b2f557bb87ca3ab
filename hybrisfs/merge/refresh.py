"""Bringing the view up to date with the registers of some nodes.

First the nodes that hang on these are found. Then their names are arranged one by one (`Arranger`), folders
before what is in them: which folders are one decides which names meet inside. Then attributes and contents
are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from hybrisfs.log import Registers
from hybrisfs.merge.arrange import Agenda, Arranger
from hybrisfs.merge.resolver import ViewResolver
from hybrisfs.merge.rules import Origins, copy_id
from hybrisfs.merge.unsigned import UnsignedView
from hybrisfs.merge.view_rows import Nodes, Rows
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, attr_key, content_key
from hybrisfs.state.shown_nodes import ino_of, inos_showing
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Aspect, Change

__all__ = ["Change", "Refresh", "RefreshLimits"]


class RefreshLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    many_names: int = 32
    """If a file has more names than that, a change of one does not cause a look at all."""


class Refresh:
    """One run; the view has been flushed. Use once: `run`."""

    def __init__(self, tx: Transaction, fs: FileSystem, registers: Registers, origins: Origins) -> None:
        self._fs = fs
        self._limits = fs.environment.limits.of(RefreshLimits)
        self._registers = registers
        self._nodes = Nodes(fs)
        self._resolver = ViewResolver(registers, UnsignedView(tx, fs), origins)
        self._rows = Rows(fs, registers)
        self._agenda = Agenda(self._resolver)
        self._arranger = Arranger(fs, registers, origins, self._resolver, self._rows, self._agenda)

    def run(
        self,
        tx: Transaction,
        nodes: Iterable[bytes],
        disturbed: Iterable[tuple[int, bytes]] = (),
        slots: Mapping[bytes, set[int]] = MappingProxyType({}),
    ) -> list[Change]:
        """Show *nodes*, and what depends on them, as the registers say. Returns the changes to report to the
        kernel.

        *disturbed*: names that have come or gone in other ways, by directory. *slots*: for nodes of which
        only places have changed, the slots of these.
        """
        nodes = set(nodes)
        for node in nodes & slots.keys():
            if self._has_many(tx, node, slots[node]):
                self._resolver.look_only_at(node, slots[node])
        affected = self._closure(tx, sorted(nodes))
        for node in sorted(affected):
            self._queue(tx, node)
        for ino, name in sorted(disturbed):
            self._arrange_again(tx, ino, name)
        while self._agenda:
            self._arranger.arrange(tx, *self._agenda.take())
            if not self._agenda:
                self._arranger.arrange_freed(tx)
        for node in sorted(affected | self._arranger.made | (nodes & {ROOT_ID})):
            self._show(tx, node)
        self._drop_nameless(tx)
        return self._rows.changes

    def _has_many(self, tx: Transaction, node: bytes, slots: set[int]) -> bool:
        """Whether the node is a file with so many more names than these that the others are left alone."""
        inode = self._nodes.find(tx, node)
        if inode is None or not inode.is_file or inode.ino in self._fs.inodes.in_conflict:
            return False
        return inode.nlink - len(slots) >= self._limits.many_names and not tx.conflicts.is_moved(node)

    def _arrange_again(self, tx: Transaction, ino: int, name: bytes) -> None:
        """Decide again a conflict about this name in directory *ino*. If a program has renamed a file, its
        copies there follow it."""
        directory = self._fs.inodes.find(tx, ino)
        if directory is None:
            return  # it has gone since
        self._rows.freed.append((ino, name))
        self._agenda.add(directory.id, name)
        for node in tx.conflicts.originals_beside(ino, name):
            self._queue(tx, node)

    # -- what is affected ------------------------------------------------------------------------

    def _closure(self, tx: Transaction, nodes: Iterable[bytes]) -> set[bytes]:
        """The nodes themselves, the removed folders that live or die with them, the nodes that a folder
        causes to stand elsewhere, and the one that yields in its circle. All others in the circle stand where
        their registers say."""
        affected = set[bytes]()
        self._touch(tx, nodes, affected)
        waiting = sorted(affected)
        while waiting:
            node = waiting.pop()
            if not self._resolver.is_directory(node):
                continue
            others = tx.conflicts.moved_for(node)
            if self._stands_still(tx, node):
                if not others:
                    continue
                others = []  # it matters to a circle only in which it is, and when it was put there
            yields = self._resolver.yields(node)
            if yields is not None:
                others.append(yields)
            waiting += self._touch(tx, others, affected)
        return affected

    def _touch(self, tx: Transaction, nodes: Iterable[bytes], affected: set[bytes]) -> list[bytes]:
        """Add nodes, and the removed folders that live or die with them, to *affected*. Returns the new ones
        among them."""
        waiting, new = list(nodes), list[bytes]()
        while waiting:
            node = waiting.pop()
            if node in affected or node == ROOT_ID:
                continue
            affected.add(node)
            new.append(node)
            self._resolver.touch(node)
            waiting += self._removed_parents(tx, node)
        return new

    def _stands_still(self, tx: Transaction, directory: bytes) -> bool:
        """Whether the view shows the directory where its register says. If so, it is in no circle, except one
        that another directory closes. False in a merged directory, because a place there may name any of the
        merged ones."""
        inode = self._nodes.find(tx, directory)
        names = self._resolver.names(directory)
        if inode is None or len(names) != 1:
            return False
        if tx.conflicts.is_moved(directory):
            return False
        place = names[0].place
        return any(
            (self._fs.inodes.get(tx, row.parent).id, row.plain) == (place.parent, place.name)
            and not tx.conflicts.is_merged(row.parent)
            for row in tx.places.of(inode.ino).values()
        )

    def _removed_parents(self, tx: Transaction, node: bytes) -> list[bytes]:
        parents = {one.place.parent for one in self._resolver.registered(node)}
        ino = ino_of(tx, node)
        if ino is not None:
            shown = tx.places.of(ino, self._resolver.few(node)).values()
            parents.update(self._fs.inodes.get(tx, row.parent).id for row in shown)
        parents.update(tx.conflicts.causes(node))
        return [parent for parent in parents if self._resolver.removed(parent)]

    def _queue(self, tx: Transaction, node: bytes) -> None:
        """The names that the node has in the view, and those that it should have."""
        for ino in inos_showing(tx, node):
            for row in tx.places.of(ino, self._resolver.few(node)).values():
                self._agenda.add(self._fs.inodes.get(tx, row.parent).id, row.plain, (node,))
        tx.conflicts.move_back(node)
        for standing in self._resolver.names(node):
            directory = self._resolver.parent(node, standing)
            if directory != standing.place.parent:
                tx.conflicts.move(node, directory, self._resolver.reasons(node, standing))
            self._agenda.add(directory, standing.place.name, (node,))

    # -- attributes and contents -----------------------------------------------------------------

    def _show(self, tx: Transaction, node: bytes) -> None:
        """Attributes and content of a node that is seen."""
        inode = self._nodes.find(tx, node)
        attr = self._resolver.attr(node)
        if inode is None or attr is None:
            return
        if inode.is_file:
            self._show_copies(tx, node, attr)
        unsigned = self._fs.changes.unsigned
        if attr_key(node) not in unsigned:
            self._show_attr(tx, inode, attr)
        elif not inode.attr_stamp and node != ROOT_ID and self._registers.values(attr_key(node)):
            inode.attr_stamp = 1  # made here before a backup, signed after it, and received again
            self._fs.inodes.touch(inode)
        if inode.is_file and content_key(node) not in unsigned:
            inode = self._show_content(tx, inode)
        self._nodes.note_conflict(tx, inode)

    def _show_attr(self, tx: Transaction, inode: Inode, attr: Attr) -> None:
        before = self._nodes.set_attr(tx, inode, attr)
        if before is not None:
            only_times = before._replace(mtime=attr.mtime) == attr
            aspect = Aspect.TIMES if only_times else Aspect.ATTRIBUTES
            self._rows.changes.append(Change(inode.ino, aspect=aspect))

    def _show_content(self, tx: Transaction, inode: Inode) -> Inode:
        contents = self._resolver.contents(inode.id)
        stamp = self._registers.number_of(contents[0].stamp) if contents else 0
        if stamp == inode.content_stamp:
            return inode
        if not tx.places.is_shown(inode.ino):
            return inode  # it has just lost its last name
        if inode.handles:
            gone = inode.ino, inode.mode
            inode = self._nodes.move_names(tx, inode)
            rows = tx.places.of(inode.ino).values()
            self._rows.changes += [Change(row.parent, row.name, gone) for row in rows]
        self._nodes.set_content(tx, inode, contents[0].value if contents else None, stamp)
        if inode.id not in self._arranger.made:
            self._fs.unseen.content_changed(inode.ino)
        self._rows.changes.append(Change(inode.ino, aspect=Aspect.CONTENT))
        return inode

    def _show_copies(self, tx: Transaction, node: bytes, attr: Attr) -> None:
        """Concurrent versions look like their node; those that have been superseded are shown no more."""
        shown = {copy_id(node, copy.value) for copy in self._resolver.copies(node)}
        for ino in tx.conflicts.copies_of(node):
            inode = self._fs.inodes.get(tx, ino)
            if inode.id in shown:
                self._show_attr(tx, inode, attr)
            else:
                self._rows.remove(tx, inode, 0)
                tx.conflicts.end_copy(ino)

    def _drop_nameless(self, tx: Transaction) -> None:
        dropped = set[int]()
        for ino in self._rows.lost:  # it grows on the way
            if ino in dropped:
                continue
            inode = self._fs.inodes.get(tx, ino)
            if not inode.orphan and not tx.places.is_shown(ino):
                self._drop(tx, inode)
                dropped.add(ino)

    def _drop(self, tx: Transaction, inode: Inode) -> None:
        # What is still in a directory that was merged with another has been taken out of that one.
        for ino, slot in tx.places.within(inode.ino):
            self._rows.remove(tx, self._fs.inodes.get(tx, ino), slot)
        self._nodes.unname(tx, inode, self._rows.last.get(inode.ino))
        self._rows.changes.append(Change(inode.ino))
        if not inode.handles:
            self._fs.inodes.forget(inode.ino)  # the kernel may not know it, and would never forget it
