"""The first view of a volume, made from all its registers at once.

A device that begins with a checkpoint has the registers of the whole tree and shows nothing yet. This walks
the tree from its root, folder by folder, and shows plain nodes: each register has one value, and no other
node wants the name. `Refresh` would find the same for them at many times the cost. It gets the rest: nodes
with several values, nodes that compete for a name, and all below such a folder; nodes that stand nowhere;
removed nodes that may have to stay.

Most removed nodes are *gone* whatever else there is, and compete for no name: files whose removal knew their
content, and folders in which everything is gone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from stat import S_ISDIR
from typing import Final

from hybrisfs.kinds import NODE
from hybrisfs.log.registers import Registers
from hybrisfs.merge.new_nodes import NewNode, NewNodes
from hybrisfs.merge.refresh import Refresh
from hybrisfs.merge.rules import Origins
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, beginning_of, removed_place
from hybrisfs.registers.values import Stamp
from hybrisfs.state.registers import NodeValues
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import is_bare
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.view import Change
from sync.codec import DecodeError

__all__ = ["build_view"]

_AT_ONCE: Final = 4096  # nodes whose rows are in memory


def build_view(tx: Transaction, fs: FileSystem, registers: Registers, origins: Origins) -> list[Change]:
    """Show in a view that shows nothing yet but the root what the table `register` says; the changes for the
    kernel, should it know the root.

    The tables that it reads must be filled before: `register`, `writer` (and *registers* made after that),
    `member`, `log` as far as *origins* ask it; and `pack` and `chunk` by `Packs.take`, which finds out which
    chunks no device has placed yet.
    Raises ValueError when the view shows something.
    """
    if not is_bare(tx):
        raise ValueError("the view shows something already")
    fs.flush(tx)
    builder = _Builder(fs, registers, origins)
    rest = builder.run(tx)
    return builder.changes + Refresh(tx, fs, registers, origins).run(tx, {*rest, ROOT_ID})


class _Builder:
    """One run; use once."""

    def __init__(self, fs: FileSystem, registers: Registers, origins: Origins) -> None:
        self._fs = fs
        self._registers = registers
        self._origins = origins
        self._new = NewNodes(fs, registers)
        self.changes: list[Change] = []
        self._odd = registers.with_several().union((ROOT_ID,), (key[NODE] for key in fs.changes.unsigned))
        self._gone = self._find_gone()

    def run(self, tx: Transaction) -> Iterable[bytes]:
        """Show the plain nodes; those that are neither plain nor gone."""
        waiting = deque([(ROOT_INO, ROOT_ID)])
        while waiting:
            ino, directory = waiting.popleft()
            found = [(ino, one) for one in self._plain_in(directory)]
            waiting.extend((number, node) for node, number in self._new.add(found).items())
            if len(self._new) >= _AT_ONCE:
                self._write(tx)
        self._write(tx)
        return (node for node in self._registers.not_shown() if node not in self._gone)

    def _write(self, tx: Transaction) -> None:
        # Below the root the kernel knows nothing.
        names = [Change(at, name) for at, name in self._new.write(tx) if at == ROOT_INO]
        self.changes += [*names, Change(ROOT_INO)] if names else ()

    def _plain_in(self, directory: bytes) -> Iterator[NewNode]:
        rows = self._registers.children(directory)
        for _, group in groupby(rows, key=lambda row: beginning_of(row.value)):
            contenders = [row for row in group if row.key[NODE] not in self._gone]
            if len(contenders) == 1:
                newcomer = self._newcomer(contenders[0])
                if newcomer is not None:
                    yield newcomer

    def _newcomer(self, row: NodeValues) -> NewNode | None:
        node = row.key[NODE]
        if node in self._odd:
            return None
        return NewNode.decode(node, row.value, row.attr, row.content, self._written(row))

    def _written(self, row: NodeValues) -> Stamp | None:
        if row.content_clock is None or row.content_writer is None:
            return None
        return self._registers.stamp(row.content_clock, row.content_writer)

    # -- what has been removed -------------------------------------------------------------------

    def _find_gone(self) -> set[bytes]:
        gone = set[bytes]()
        within = Counter[bytes]()  # how many of those that are gone stood in a directory
        folders: dict[bytes, bytes] = {}  # removed ones, with the directories in which they stood
        for row in self._registers.removals():
            node = row.key[NODE]
            place = removed_place(row.value)
            if node in self._odd or place is None:
                continue
            if _is_directory(row.attr):
                folders[node] = place.parent
            elif self._ends(row):
                gone.add(node)
                within[place.parent] += 1
        everything = self._registers.count_beginning(folders)
        ready = [node for node in folders if everything.get(node, 0) == within[node]]
        while ready:
            node = ready.pop()
            gone.add(node)
            parent = folders[node]
            within[parent] += 1
            if parent in folders and parent not in gone and everything.get(parent, 0) == within[parent]:
                ready.append(parent)
        return gone

    def _ends(self, row: NodeValues) -> bool:
        """Whether the removal of a file knew its content."""
        removal, written = self._registers.stamp(row.clock, row.writer), self._written(row)
        return written is None or written == removal or self._origins.depends(removal, written)


def _is_directory(attr: bytes | None) -> bool:
    try:
        return S_ISDIR(Attr.decode(attr or b"").mode)
    except DecodeError:
        return False
