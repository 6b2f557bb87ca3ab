"""Which node has which name in a folder: decides about one name as a whole.

All nodes that want the name are weighed (`rules.judge`), and each gets it, is merged with the one that has
it, or stands beside that under a conflict name.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from hybrisfs.kinds import NODE
from hybrisfs.log import Registers
from hybrisfs.merge.names import (
    MOST_NUMBER,
    is_conflict_name,
    is_kept,
    later_names,
    name_by_id,
    number_names,
)
from hybrisfs.merge.resolver import Resolver, ViewResolver
from hybrisfs.merge.rules import MOST_COPIES, MOST_SHOWN, Contender, Origins, copy_id, is_crowd, judge
from hybrisfs.merge.view_rows import Nodes, Rows
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key, place_key, slot_of
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.nodes import Holder, ShownPlace
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["Agenda", "Arranger"]

_Rows: TypeAlias = Mapping[tuple[int, int], ShownPlace]  # by inode and slot


class _Loser(Struct, frozen=True):
    """A node that needs a conflict name, or *copy*, a concurrent content of it."""

    contender: Contender
    stamp: Stamp
    copy: Value | None


class Arranger:
    """Decides names in one run of `Refresh`, and puts on its agenda the names that depend on these."""

    def __init__(
        self,
        fs: FileSystem,
        registers: Registers,
        origins: Origins,
        resolver: ViewResolver,
        rows: Rows,
        agenda: Agenda,
    ) -> None:
        self._fs = fs
        self._registers = registers
        self._origins = origins
        self._resolver = resolver
        self._rows = rows
        self._agenda = agenda
        self._nodes = Nodes(fs)
        self.made: set[bytes] = set()  # nodes that have got an inode: attributes and content are to follow

    def arrange(self, tx: Transaction, directory: bytes, name: bytes, nodes: Iterable[bytes]) -> None:
        """Show under the name, and beside it, what the registers say: of *nodes* and of those that the view
        shows there."""
        at = self._directory(tx, directory)
        if at is None:
            return  # it is not seen any more, nor is anything in it
        folders = self._folders(tx, at)
        found = self._contenders(folders, name, nodes)
        rows = tx.places.wanting(at, name, MOST_SHOWN + 1)
        if len(rows) > MOST_SHOWN:
            self._take_away(tx, at, name, nodes, found)
            rows = tx.places.wanting(at, name, MOST_SHOWN + 1)
            if len(rows) > MOST_SHOWN:
                self._arrange_in_crowd(tx, at, name, found)
                return
        found |= self._contenders(folders, name, self._shown_by(tx, rows))
        shown = judge(found.values())
        wanted: dict[tuple[int, int], ShownPlace] = {}
        first = shown[0].node if shown and not self._is_kept_from(tx, at, name) else None
        for one in shown:
            inode = self._own(tx, one.node, one.merged)
            self._merge(tx, inode, one.merged)
            if one.node is first:
                wanted[inode.ino, one.node.slot] = ShownPlace(at, name, None)
        losers = self._losers([one.node for one in shown], first, is_crowd(found))
        for loser, free in zip(losers, self._names(tx, at, name, losers, is_crowd(found)), strict=True):
            wanted[self._inode_of(tx, loser)] = ShownPlace(at, free, name)
        self._place(tx, rows, wanted)

    def _names(
        self, tx: Transaction, at: int, name: bytes, losers: Sequence[_Loser], crowd: bool
    ) -> list[bytes]:
        if crowd:
            return [name_by_id(name, one.contender.id, one.contender.slot) for one in losers]
        authors = [self._origins.author(loser.stamp) for loser in losers]
        return number_names(name, authors, lambda other: self._is_wanted(tx, at, other), MOST_NUMBER)

    def _is_kept_from(self, tx: Transaction, at: int, name: bytes) -> bool:
        """Whether a loser of another name has this one, and does not give it up."""
        return is_conflict_name(name) and is_kept(name) and self._wanted(tx, at, name) is not None

    def arrange_freed(self, tx: Transaction) -> None:
        """Arrange the names that have become free: losers may want them, or nodes that losers kept them
        from."""
        freed, self._rows.freed = self._rows.freed, []
        for at, name in freed:
            directory = self._fs.inodes.get(tx, at).id
            if is_kept(name):
                if tx.places.wanting(at, name, 1) and self._wanted(tx, at, name) is None:
                    self._agenda.add(directory, name)
            elif not self._is_wanted(tx, at, name):
                others = (self._wanted(tx, at, other) for other in later_names(name))
                found = next((other for other in others if other is not None), None)
                if found is not None:
                    self._agenda.add(directory, found)

    def _place(self, tx: Transaction, rows: _Rows, wanted: _Rows) -> None:
        """Change the rows to *wanted*; names are given up before others take them."""
        for (ino, slot), row in rows.items():
            if wanted.get((ino, slot)) != row:
                self._rows.remove(tx, self._fs.inodes.get(tx, ino), slot)
        for (ino, slot), row in wanted.items():
            self._rows.put(tx, self._fs.inodes.get(tx, ino), slot, row, self._evict)

    def _is_wanted(self, tx: Transaction, at: int, name: bytes) -> bool:
        """Whether some node has this very name there."""
        holder = tx.places.holder(at, name)
        return holder is not None and holder.shown.wanted is None

    def _wanted(self, tx: Transaction, at: int, name: bytes) -> bytes | None:
        """The other name for whose sake something is shown under this one, if it is."""
        holder = tx.places.holder(at, name)
        return None if holder is None else holder.shown.wanted

    def _evict(self, tx: Transaction, holder: Holder) -> None:
        """Take the name from the inode that has it, since another one needs it, and have a new one found."""
        ino, slot, shown = holder
        inode, directory = self._fs.inodes.get(tx, ino), self._fs.inodes.get(tx, shown.parent).id
        nodes = self._shown_by(tx, [(ino, slot)])
        for node in nodes:
            # Only the row tells an unsigned name: it is looked at now, and not forgotten in this run.
            self._resolver.registered(node)
        self._rows.remove(tx, inode, slot)
        self._agenda.add(directory, shown.plain, nodes)

    # -- crowds ----------------------------------------------------------------------------------

    def _take_away(
        self,
        tx: Transaction,
        at: int,
        name: bytes,
        nodes: Iterable[bytes],
        found: Container[tuple[bytes, int]],
    ) -> None:
        """Take the name from the *nodes* that no longer want it."""
        for node in nodes:
            inode = self._nodes.find(tx, node)
            if inode is None:
                continue
            for slot, row in tx.places.of(inode.ino, self._resolver.few(node)).items():
                if (row.parent, row.plain) == (at, name) and (node, slot) not in found:
                    self._rows.remove(tx, inode, slot)

    def _arrange_in_crowd(
        self, tx: Transaction, at: int, name: bytes, found: Mapping[tuple[bytes, int], Contender]
    ) -> None:
        """Arrange some nodes of a crowd, which is too large to look at as a whole: these, the holder of the
        name, and the next."""
        candidates = set[tuple[bytes, int, int]]()
        by_node = {one.id: one for one in found.values()}
        inodes = {node: self._own(tx, one, ()) for node, one in by_node.items()}
        for inode in inodes.values():
            self._merge(tx, inode, ())
        for node, slot in found:
            candidates.add((name_by_id(name, node, slot), inodes[node].ino, slot))
        for ino, slot in tx.places.wanting(at, name, 2):
            candidates.add((name_by_id(name, self._fs.inodes.get(tx, ino).id, slot), ino, slot))
        first = None if self._is_kept_from(tx, at, name) else min(candidates)
        wanted = {
            one[1:]: ShownPlace(at, name, None) if one == first else ShownPlace(at, one[0], name)
            for one in candidates
        }
        present = {(ino, slot): row for ino, slot in wanted if (row := tx.places.at(ino, slot)) is not None}
        self._place(tx, present, wanted)

    # -- what wants the name ----------------------------------------------------------------------

    def _shown_by(self, tx: Transaction, rows: Iterable[tuple[int, int]]) -> set[bytes]:
        """The nodes that these inodes (given with slots) show: their own node or the one that they are a
        version of, and the nodes merged with it."""
        found: set[bytes] = set()
        slots: dict[int, list[int]] = {}
        for ino, slot in rows:
            slots.setdefault(ino, []).append(slot)
        for ino in slots:
            inode = self._fs.inodes.get(tx, ino)
            for slot in slots[ino]:
                self._resolver.look_at(inode.id, slot)
            found.add(inode.id)
            if not inode.is_conflict_copy:
                found.update(tx.conflicts.merged_with(ino))
            elif (original := tx.conflicts.original(ino)) is not None:
                found.add(original)
        return found

    def _contenders(
        self, folders: Collection[bytes], name: bytes, nodes: Iterable[bytes]
    ) -> dict[tuple[bytes, int], Contender]:
        found: dict[tuple[bytes, int], Contender] = {}
        for node in nodes:
            for standing in self._resolver.called(node, name):
                if self._resolver.parent(node, standing) in folders:
                    found[node, standing.slot] = self._resolver.contender(standing)
        return found

    def _folders(self, tx: Transaction, at: int) -> list[bytes]:
        """The ids of the directories that are one directory in the view."""
        return [self._fs.inodes.get(tx, at).id, *tx.conflicts.merged_with(at)]

    def _losers(self, contenders: Iterable[Contender], first: Contender | None, crowd: bool) -> list[_Loser]:
        losers = [_Loser(one, one.stamp, None) for one in contenders if one is not first]
        if crowd:
            return losers
        copies = [
            _Loser(one, copy.stamp, copy) for one in contenders for copy in self._resolver.copies_beside(one)
        ]
        losers += sorted(copies, key=_order)[-MOST_COPIES:]
        return sorted(losers, key=_order)

    # -- inodes ----------------------------------------------------------------------------------

    def _directory(self, tx: Transaction, directory: bytes) -> int | None:
        if directory == ROOT_ID:
            return ROOT_INO
        inode = self._nodes.showing(tx, directory)
        return None if inode is None else inode.ino

    def _own(self, tx: Transaction, contender: Contender, merged: Iterable[Contender]) -> Inode:
        """The inode of a node, made when there is none. A folder takes over the inode of one merged with it,
        so that programs that are in it stay in it."""
        node = contender.id
        self._part(tx, node)
        inode = self._nodes.find(tx, node)
        if inode is not None:
            return inode
        self.made.add(node)
        if attr_key(node) in self._fs.changes.unsigned:
            # They were changed where it was merged with another, and is not any more.
            self._fs.changes.drop(attr_key(node))
            self._resolver.forget_attr(node)
        if contender.is_directory:
            self._queue_children(tx, node)
            heir = next((found for one in merged if (found := self._nodes.find(tx, one.id))), None)
            if heir is not None:
                self._fs.inodes.identify(tx, heir, node)
                return heir
        attr = self._resolver.attr(node)
        assert attr is not None
        return self._nodes.make(tx, node, attr)

    def _merge(self, tx: Transaction, inode: Inode, merged: Iterable[Contender]) -> None:
        """Merge these nodes, and no others, with *inode*."""
        before = set(tx.conflicts.merged_with(inode.ino))
        after = {one.id for one in merged}
        for node in before - after:
            self._part(tx, node)
        for node in after - before:
            self._part(tx, node)
            own = self._nodes.find(tx, node)
            if own is not None:
                for other in tx.conflicts.merged_with(own.ino):
                    self._part(tx, other)
                self._queue_unsigned_children(tx, own)
                self._rows.remove_all(tx, own)
            tx.conflicts.merge(node, inode.ino)
            self._queue_children(tx, node)
        self._nodes.note_conflict(tx, inode)

    def _part(self, tx: Transaction, node: bytes) -> None:
        """The node is not merged with another any more; neither are the nodes in it."""
        ino = tx.conflicts.part(node)
        if ino is not None:
            self._resolver.touch(node)
            for standing in self._resolver.names(node):
                self._agenda.add(self._resolver.parent(node, standing), standing.place.name, (node,))
            self._queue_children(tx, node, self._fs.inodes.get(tx, ino).id)

    def _queue_children(self, tx: Transaction, directory: bytes, *others: bytes) -> None:
        """Arrange again the names of all nodes in the directory, and the same names in *others*."""
        children = set[bytes]()
        for key in self._registers.places_beginning(directory):
            children.add(key[NODE])
            self._resolver.look_at(key[NODE], slot_of(key))
        for child in children.union(tx.conflicts.moved_to(directory)):
            for standing in self._resolver.names(child):
                at = self._resolver.parent(child, standing)
                if directory in (standing.place.parent, at):
                    for where in (at, *others):
                        self._agenda.add(where, standing.place.name, (child,))

    def _queue_unsigned_children(self, tx: Transaction, directory: Inode) -> None:
        """Nodes in the directory that no register names yet move along when it is merged with another."""
        for name, slot, child in list(tx.places.children(directory.ino)):
            if place_key(child, slot) in self._fs.changes.unsigned:
                self._agenda.add(directory.id, name, (child,))

    def _inode_of(self, tx: Transaction, loser: _Loser) -> tuple[int, int]:
        """The inode and slot of a loser; that of a copy is made when there is none."""
        node = loser.contender.id
        original = self._nodes.find(tx, node)
        assert original is not None
        if loser.copy is None:
            return original.ino, loser.contender.slot
        identity = copy_id(node, loser.copy.value)
        inode = self._nodes.find(tx, identity)
        if inode is None:
            attr = self._resolver.attr(node)
            assert attr is not None
            inode = self._nodes.make(tx, identity, attr)
            inode.is_conflict_copy = True
            self._nodes.set_content(tx, inode, loser.copy.value, 1)
            tx.conflicts.copy(inode.ino, node)
            self._nodes.note_conflict(tx, inode)
            self._nodes.note_conflict(tx, original)
        return inode.ino, 0


def _order(loser: _Loser) -> tuple[Stamp, bytes, int]:
    return loser.stamp, loser.contender.id, loser.contender.slot


# -- names that have to be arranged again, folders before their entries ----------------------------------


class _Names(Struct):
    """The names in a directory: a heap of them, and the nodes of each."""

    order: list[bytes] = field(default_factory=list)
    nodes: dict[bytes, set[bytes]] = field(default_factory=dict)


class Agenda:
    """A queue of names, each once and with the nodes that cause the look, ordered by depth in the tree. While
    there is no folder among these nodes, the depth does not matter and is not computed.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._folders: dict[bytes, _Names] = {}
        self._heap: list[tuple[int, bytes]] = []  # the directories, but for `_fresh`
        self._fresh: list[bytes] = []  # those of which the depth has not been asked for
        self._depths: dict[bytes, int] = {ROOT_ID: 0}
        self._has_folders = False

    def __bool__(self) -> bool:
        return bool(self._folders)

    def add(self, directory: bytes, name: bytes, nodes: Iterable[bytes] = ()) -> None:
        """*nodes* may want the name there, or may have given it up."""
        names = self._folders.get(directory)
        if names is None:
            names = self._folders[directory] = _Names()
            self._fresh.append(directory)
        if name not in names.nodes:
            names.nodes[name] = set()
            heapq.heappush(names.order, name)
        for node in nodes:
            names.nodes[name].add(node)
            self._has_folders = self._has_folders or self._resolver.is_directory(node)

    def take(self) -> tuple[bytes, bytes, set[bytes]]:
        """The directory and the name that come next, and the nodes."""
        if len(self._folders) == 1 or not self._has_folders:
            directory = next(iter(self._folders))
        else:
            for fresh in self._fresh:
                heapq.heappush(self._heap, (self._depth(fresh), fresh))
            self._fresh.clear()
            while (directory := self._heap[0][1]) not in self._folders:
                heapq.heappop(self._heap)
        names = self._folders[directory]
        name = heapq.heappop(names.order)
        nodes = names.nodes.pop(name)
        if not names.order:
            del self._folders[directory]
        return directory, name, nodes

    def _depth(self, directory: bytes) -> int:
        way: dict[bytes, None] = {}
        while directory not in self._depths and directory not in way:
            way[directory] = None
            names = self._resolver.names(directory)
            directory = self._resolver.parent(directory, names[0]) if names else ROOT_ID
        depth = self._depths.get(directory, 0)
        for one in reversed(way):
            depth += 1
            self._depths[one] = depth
        return self._depths[next(iter(way), directory)]
