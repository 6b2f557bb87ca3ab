"""Bringing the view up to date with the registers of some nodes.

A name in a folder is settled as a whole: all nodes that want it are weighed (`rules.judge`), and each gets
the name, is joined with who has it, or stands beside it under a conflict name. Folders come before what is in
them, for which folders are one decides who meets whom inside.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.filesystem.registers import Attr, attr_key, content_key, place_key
from hybrisfs.merge.nodes import Nodes
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.resolver import Resolver, Standing
from hybrisfs.merge.rules import Author, Contender, Stamp, Value, judge, number_names
from hybrisfs.merge.unsigned import UnsignedView
from hybrisfs.store.schema import ROOT_ID, ROOT_INO
from sync.codec import Writer
from sync.hashing import digest

__all__ = ["Change", "Refresh", "copy_id"]

_COPY_CONTEXT = "hybrisfs.merge 2026-11 concurrent version"


class Change(NamedTuple):
    """What the kernel has to hear: a name in a directory is another node's or nobody's (`name` given), or
    an inode has other attributes or content."""

    ino: int
    name: bytes | None = None


class _Row(NamedTuple):
    """A row of `place`: where an inode is shown, and under which name its register wants it."""

    parent: int
    name: bytes
    wanted: bytes | None


@dataclass(frozen=True, slots=True)
class _Loser:
    """What needs a conflict name; *copy*: a concurrent content of the node, None: the node itself."""

    contender: Contender
    stamp: Stamp
    copy: Value | None


@dataclass(slots=True)
class _Work:
    """Names still to be settled, folders first: (depth, directory, name)."""

    heap: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    known: set[tuple[bytes, bytes]] = field(default_factory=set)

    def add(self, depth: int, directory: bytes, name: bytes) -> None:
        if (directory, name) not in self.known:
            self.known.add((directory, name))
            heapq.heappush(self.heap, (depth, directory, name))

    def take(self) -> tuple[int, bytes, bytes]:
        depth, directory, name = heapq.heappop(self.heap)
        self.known.discard((directory, name))
        return depth, directory, name


class Refresh:
    """One run, under the volume's lock; the view has been flushed. Use once: `run`."""

    def __init__(
        self,
        fs: FileSystem,
        registers: Registers,
        depends: Callable[[Stamp, Stamp], bool],
        author: Callable[[Stamp], Author],
    ) -> None:
        self._fs = fs
        self._db = fs.db
        self._registers = registers
        self._author = author
        self._nodes = Nodes(fs)
        self._resolver = Resolver(registers, UnsignedView(fs), depends)
        self._changes: list[Change] = []
        self._work = _Work()
        self._made: list[bytes] = []
        self._touched: set[int] = set()  # inodes that may have lost their last name

    def run(self, nodes: Iterable[bytes]) -> list[Change]:
        """Show *nodes*, and what depends on them, as the registers say; what the kernel must hear of."""
        nodes = list(nodes)
        affected = self._closure(nodes)
        for node in affected:
            self._queue(node)
        while self._work.heap:
            depth, directory, name = self._work.take()
            self._settle(depth, directory, name)
        for node in affected | set(self._made) | (set(nodes) & {ROOT_ID}):
            self._show(node)
        self._drop_nameless()
        return self._changes

    # -- what is affected ------------------------------------------------------------------------

    def _closure(self, nodes: Iterable[bytes]) -> set[bytes]:
        """The nodes themselves; removed folders that live or die with them; and folders in a circle."""
        waiting, affected = list(nodes), set[bytes]()
        while waiting:
            node = waiting.pop()
            if node in affected or node == ROOT_ID:
                continue
            affected.add(node)
            waiting += self._removed_parents(node)
            if self._resolver.is_directory(node):
                waiting += self._resolver.cycle(node)
        if any(self._resolver.is_directory(node) for node in affected):
            affected.update(node for (node,) in self._db.execute("SELECT id FROM moved"))
        return affected

    def _removed_parents(self, node: bytes) -> list[bytes]:
        parents = {one.place.parent for one in self._resolver.registered(node)}
        inode = self._nodes.find(node)
        if inode is not None:
            parents.update(
                identity
                for (identity,) in self._db.execute(
                    "SELECT n.id FROM place p JOIN node n ON n.ino = p.parent WHERE p.ino = ?", (inode.ino,)
                )
            )
        return [parent for parent in parents if self._resolver.removed(parent)]

    def _queue(self, node: bytes) -> None:
        """The names that the node has in the view, and those that it ought to have."""
        for ino in self._shown_as(node):
            for row in self._rows(ino):
                directory = self._fs.inodes.get(row.parent).id
                self._work.add(self._depth(directory), directory, row.wanted or row.name)
        joined = self._db.execute("SELECT ino FROM joined WHERE id = ?", (node,)).fetchone()
        if joined:
            for row in self._rows(joined[0]):
                directory = self._fs.inodes.get(row.parent).id
                self._work.add(self._depth(directory), directory, row.wanted or row.name)
        self._db.execute("DELETE FROM moved WHERE id = ?", (node,))
        for standing in self._resolver.names(node):
            directory = self._resolver.parent(node, standing)
            if directory != standing.place.parent:
                self._db.execute("INSERT OR REPLACE INTO moved VALUES (?, ?)", (node, directory))
            self._work.add(self._depth(directory), directory, standing.place.name)

    def _shown_as(self, node: bytes) -> list[int]:
        """The inodes of a node: its own, and those of concurrent versions of its content."""
        return [
            ino
            for (ino,) in self._db.execute(
                "SELECT ino FROM node WHERE id = ? UNION ALL SELECT ino FROM copy WHERE id = ?", (node, node)
            )
        ]

    def _depth(self, directory: bytes) -> int:
        depth, seen = 0, {directory}
        while directory != ROOT_ID:
            names = self._resolver.names(directory)
            directory = self._resolver.parent(directory, names[0]) if names else ROOT_ID
            if directory in seen:
                break
            seen.add(directory)
            depth += 1
        return depth

    # -- settling a name -------------------------------------------------------------------------

    def _settle(self, depth: int, directory: bytes, name: bytes) -> None:
        at = self._directory(directory)
        if at is None:
            return  # it is not seen any more, nor is anything in it
        contenders = self._contenders(at, name)
        current = self._rows_of(at, name, contenders)
        wanted: dict[tuple[int, int], _Row] = {}
        shown = judge(contenders.values())
        for rank, one in enumerate(shown):
            inode = self._own(depth, one.node, one.joined)
            self._join(depth, inode, one.joined)
            if rank == 0:
                wanted[inode.ino, one.node.slot] = _Row(at, name, None)
        losers = self._losers([one.node for one in shown])
        names = self._free_names(at, name, losers, current)
        for loser, free in zip(losers, names, strict=True):
            wanted[self._inode_of(loser)] = _Row(at, free, name)
        self._place(current, wanted)

    def _contenders(self, at: int, name: bytes) -> dict[tuple[bytes, int], Contender]:
        folders = self._folders(at)
        candidates: set[bytes] = set()
        for folder in folders:
            prefix = Writer().raw(folder).blob(name).getvalue()
            candidates.update(key[1:17] for key in self._registers.places_beginning(prefix))
            candidates.update(
                node for (node,) in self._db.execute("SELECT id FROM moved WHERE parent = ?", (folder,))
            )
        row = self._db.execute(
            "SELECT n.id, p.slot FROM place p JOIN node n ON n.ino = p.ino "
            "WHERE p.parent = ? AND p.name = ? AND p.wanted IS NULL",
            (at, name),
        ).fetchone()
        if row and place_key(*row) in self._fs.changes.unsigned:
            candidates.add(row[0])
        found: dict[tuple[bytes, int], Contender] = {}
        for node in candidates:
            for standing in self._resolver.names(node):
                if standing.place.name == name and self._resolver.parent(node, standing) in folders:
                    found[node, standing.slot] = self._contender(node, standing)
        return found

    def _contender(self, node: bytes, standing: Standing) -> Contender:
        attr = self._resolver.attr(node)
        assert attr is not None
        is_directory = self._resolver.is_directory(node)
        return Contender(
            node,
            standing.slot,
            standing.stamp,
            is_directory,
            None if is_directory else self._sameness(node, attr),
        )

    def _sameness(self, node: bytes, attr: Attr) -> bytes | None:
        """Equal for files that are the same to everybody who looks at them; None: like no other."""
        if content_key(node) in self._fs.changes.unsigned or len(self._resolver.names(node)) > 1:
            return None
        contents = self._resolver.contents(node)
        if len(contents) > 1:
            return None
        value = contents[0].value if contents else None
        return Writer().varint(attr.mode).varint(attr.rdev).blob(attr.target).raw(value or b"").getvalue()

    def _folders(self, at: int) -> list[bytes]:
        """The ids of the directories that are one directory in the view."""
        rows = self._db.execute("SELECT id FROM joined WHERE ino = ?", (at,))
        return [self._fs.inodes.get(at).id, *(node for (node,) in rows)]

    def _losers(self, contenders: list[Contender]) -> list[_Loser]:
        losers = [_Loser(one, one.stamp, None) for one in contenders[1:]]
        for one in contenders:
            if not one.is_directory and one.slot == self._first_slot(one.id):
                losers += [_Loser(one, copy.stamp, copy) for copy in self._copies(one.id)]
        return sorted(losers, key=lambda one: (one.stamp, one.contender.id, one.contender.slot))

    def _first_slot(self, node: bytes) -> int:
        return min(one.slot for one in self._resolver.names(node))

    def _copies(self, node: bytes) -> list[Value]:
        """Concurrent contents that lost against the one that is shown. What is unsigned here will supersede
        none of them: see `Settlement`."""
        return self._resolver.contents(node)[1:]

    def _free_names(
        self, at: int, name: bytes, losers: list[_Loser], current: dict[tuple[int, int], _Row]
    ) -> list[bytes]:
        if not losers:
            return []
        mine = {row.name for row in current.values() if row.parent == at}
        taken = {
            shown for (shown,) in self._db.execute("SELECT name FROM place WHERE parent = ?", (at,))
        } - mine
        return number_names(name, [self._author(loser.stamp) for loser in losers], taken)

    # -- inodes ----------------------------------------------------------------------------------

    def _directory(self, directory: bytes) -> int | None:
        if directory == ROOT_ID:
            return ROOT_INO
        row = self._db.execute(
            "SELECT ino FROM node WHERE id = ? UNION ALL SELECT ino FROM joined WHERE id = ?",
            (directory, directory),
        ).fetchone()
        return row[0] if row else None

    def _own(self, depth: int, contender: Contender, joined: Iterable[Contender] = ()) -> Inode:
        """The inode of a node, made when there is none. A folder takes over the inode of one joined with it,
        so that programs that are in it stay in it."""
        node = contender.id
        if self._db.execute("DELETE FROM joined WHERE id = ? RETURNING ino", (node,)).fetchone():
            self._queue_children(depth, node)
        inode = self._nodes.find(node)
        if inode is not None:
            return inode
        heir = next((found for one in joined if (found := self._nodes.find(one.id))), None)
        if contender.is_directory:
            self._queue_children(depth, node)
            if heir is not None:
                self._fs.inodes.identify(heir, node)
                self._fs.inodes.touch(heir)
                self._fs.inodes.flush()
                return heir
        attr = self._resolver.attr(node)
        assert attr is not None
        self._made.append(node)
        return self._nodes.make(node, attr)

    def _join(self, depth: int, inode: Inode, joined: Iterable[Contender]) -> None:
        """Let these nodes, and no others, be seen as one with *inode*."""
        before = {node for (node,) in self._db.execute("SELECT id FROM joined WHERE ino = ?", (inode.ino,))}
        after = {one.id for one in joined}
        self._db.executemany("DELETE FROM joined WHERE id = ?", [(node,) for node in before - after])
        for node in after - before:
            own = self._nodes.find(node)
            if own is not None:
                self._touched.add(own.ino)
                for slot, _ in self._slots(own.ino):
                    self._remove_row(own, slot)
            self._db.execute("INSERT OR REPLACE INTO joined VALUES (?, ?)", (node, inode.ino))
            self._queue_children(depth, node)
        self._fs.inodes.entangle(inode.ino, bool(after) or inode.derived or self._is_copied(inode.id))

    def _queue_children(self, depth: int, directory: bytes) -> None:
        for key in self._registers.places_beginning(directory):
            child = key[1:17]
            for standing in self._resolver.names(child):
                if standing.place.parent == directory:
                    self._work.add(depth + 1, self._resolver.parent(child, standing), standing.place.name)

    def _is_copied(self, node: bytes) -> bool:
        return self._db.execute("SELECT 1 FROM copy WHERE id = ?", (node,)).fetchone() is not None

    def _inode_of(self, loser: _Loser) -> tuple[int, int]:
        """The inode and slot of a loser; that of a copy is made when there is none."""
        node = loser.contender.id
        if loser.copy is None:
            inode = self._nodes.find(node)
            assert inode is not None
            return inode.ino, loser.contender.slot
        identity = copy_id(node, loser.copy)
        inode = self._nodes.find(identity)
        if inode is None:
            attr = self._resolver.attr(node)
            assert attr is not None
            inode = self._nodes.make(identity, attr)
            inode.derived = True
            self._nodes.set_content(inode, loser.copy.value, 1)
            self._db.execute("INSERT INTO copy VALUES (?, ?)", (inode.ino, node))
            original = self._nodes.find(node)
            self._fs.inodes.entangle(inode.ino, True)
            if original is not None:
                self._fs.inodes.entangle(original.ino, True)
        return inode.ino, 0

    # -- rows ------------------------------------------------------------------------------------

    def _slots(self, ino: int) -> list[tuple[int, _Row]]:
        rows = self._db.execute("SELECT slot, parent, name, wanted FROM place WHERE ino = ?", (ino,))
        return [(slot, _Row(parent, name, wanted)) for slot, parent, name, wanted in rows.fetchall()]

    def _rows(self, ino: int) -> list[_Row]:
        return [row for _, row in self._slots(ino)]

    def _rows_of(
        self, at: int, name: bytes, contenders: Iterable[tuple[bytes, int]]
    ) -> dict[tuple[int, int], _Row]:
        """What is shown under the name, or beside it for its sake; and where the contenders are shown."""
        rows = {
            (ino, slot): _Row(at, shown, wanted)
            for ino, slot, shown, wanted in self._db.execute(
                "SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND name = ? AND wanted IS NULL "
                "UNION ALL SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND wanted = ?",
                (at, name, at, name),
            )
        }
        for node, slot in contenders:
            for ino in self._shown_as(node):
                rows.update({(ino, one): row for one, row in self._slots(ino) if one == slot})
        return rows

    def _place(self, current: dict[tuple[int, int], _Row], wanted: dict[tuple[int, int], _Row]) -> None:
        """Make the rows so; names are given up before others take them."""
        for key, row in current.items():
            if wanted.get(key) != row:
                self._remove_row(self._fs.inodes.get(key[0]), key[1])
        for (ino, slot), row in wanted.items():
            if current.get((ino, slot)) != row:
                self._insert_row(self._fs.inodes.get(ino), slot, row)

    def _remove_row(self, inode: Inode, slot: int) -> None:
        row = self._db.execute(
            "DELETE FROM place WHERE ino = ? AND slot = ? RETURNING parent, name", (inode.ino, slot)
        ).fetchone()
        if row is None:
            return
        parent = self._fs.inodes.get(row[0])
        inode.nlink -= 0 if inode.is_directory else 1
        self._entries_changed(parent, inode, -1)
        self._touched.add(inode.ino)
        self._changes.append(Change(parent.ino, row[1]))

    def _insert_row(self, inode: Inode, slot: int, row: _Row) -> None:
        holder = self._db.execute(
            "SELECT ino, slot, wanted FROM place WHERE parent = ? AND name = ?", (row.parent, row.name)
        ).fetchone()
        if holder is not None:  # under a conflict name, which a node wants as its own: it gets another
            self._remove_row(self._fs.inodes.get(holder[0]), holder[1])
            directory = self._fs.inodes.get(row.parent).id
            self._work.add(self._depth(directory), directory, holder[2] or row.name)
        stamp = 0 if place_key(inode.id, slot) in self._fs.changes.unsigned else 1
        self._db.execute(
            "INSERT INTO place (parent, name, ino, slot, stamp, wanted) VALUES (?, ?, ?, ?, ?, ?)",
            (row.parent, row.name, inode.ino, slot, stamp, row.wanted),
        )
        inode.nlink += 0 if inode.is_directory else 1
        self._entries_changed(self._fs.inodes.get(row.parent), inode, 1)
        self._changes.append(Change(row.parent, row.name))

    def _entries_changed(self, parent: Inode, inode: Inode, by: int) -> None:
        if inode.is_directory:
            parent.nlink += by
        self._fs.inodes.touch(inode)
        self._fs.inodes.touch(parent)
        self._changes.append(Change(parent.ino))

    # -- attributes and contents -----------------------------------------------------------------

    def _show(self, node: bytes) -> None:
        """Attributes and content of a node that is seen."""
        inode = self._nodes.find(node)
        attr = self._resolver.attr(node)
        if inode is None or attr is None:
            return
        self._drop_copies(node)
        unsigned = self._fs.changes.unsigned
        if attr_key(node) not in unsigned and self._nodes.set_attr(inode, attr, 1):
            self._changes.append(Change(inode.ino))
        if not inode.is_file or content_key(node) in unsigned:
            return
        contents = self._resolver.contents(node)
        stamp = self._registers.number_of(contents[0].stamp) if contents else 0
        if stamp == inode.content_stamp:
            return
        if inode.handles:
            inode = self._displaced(inode)
        self._nodes.set_content(inode, contents[0].value if contents else None, stamp)
        self._changes.append(Change(inode.ino))

    def _displaced(self, inode: Inode) -> Inode:
        fresh = self._nodes.displace(inode)
        self._changes += [Change(row.parent, row.name) for row in self._rows(fresh.ino)]
        return fresh

    def _drop_copies(self, node: bytes) -> None:
        """Concurrent versions that have been superseded are not shown any more."""
        shown = {copy_id(node, copy) for copy in self._copies(node)}
        for (ino,) in self._db.execute("SELECT ino FROM copy WHERE id = ?", (node,)).fetchall():
            inode = self._fs.inodes.get(ino)
            if inode.id not in shown:
                self._remove_row(inode, 0)

    def _drop_nameless(self) -> None:
        for ino in self._touched:
            inode = self._fs.inodes.cached(ino) or self._fs.inodes.get(ino)
            if not inode.orphan and not self._rows(ino):
                self._db.execute("DELETE FROM copy WHERE ino = ?", (ino,))
                self._db.execute("DELETE FROM joined WHERE ino = ?", (ino,))
                self._fs.inodes.entangle(ino, False)
                self._nodes.unname(inode)
                self._changes.append(Change(ino))
                if not inode.handles:
                    self._fs.inodes.forget(ino)  # the kernel may not know it, and would never forget it


def copy_id(node: bytes, copy: Value) -> bytes:
    """The id in the view of a concurrent version of a node's content, the same on all devices."""
    return digest(_COPY_CONTEXT, node + (copy.value or b""), 16)
