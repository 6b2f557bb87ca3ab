"""Nodes that are not known here, under names that no other node wants: made in bulk.

When a device brings a tree of thousands of files, nearly all nodes are of this kind, and `Refresh` would only
find out that there is nothing to settle about them. It gets all other nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hybrisfs.log.registers import Registers
from hybrisfs.merge.new_nodes import NewNode, NewNodes
from hybrisfs.merge.rules import decode_place
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import attr_key, beginning, content_key, place_key
from hybrisfs.registers.values import Value
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import known_nodes, lone_directory, name_of_node
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.view import Change

__all__ = ["Newcomers"]


class Newcomers:
    """One run; the view has been flushed. Use once: `settle`."""

    def __init__(self, fs: FileSystem, registers: Registers, only: Mapping[bytes, Value]) -> None:
        """*only*: the values of some registers that have no other."""
        self._fs = fs
        self._registers = registers
        self._only = only
        self._directories: dict[bytes, int | None] = {ROOT_ID: ROOT_INO}
        self._new = NewNodes(fs, registers)
        self.changes: list[Change] = []

    def settle(self, tx: Transaction, nodes: set[bytes]) -> set[bytes]:
        """Show the newcomers among *nodes*; the others."""
        waiting: dict[bytes, list[NewNode]] = {}
        rest = set(nodes)
        for newcomer in self._read_all(tx, nodes):
            rest.discard(newcomer.id)
            waiting.setdefault(newcomer.place.parent, []).append(newcomer)
        ready = [
            parent
            for parent in waiting
            if self._directory(tx, parent) is not None and (parent not in rest or self._stays(tx, parent))
        ]
        while ready:
            wanted = [
                (at, one)
                for parent in ready
                if (at := self._directory(tx, parent)) is not None
                for one in waiting.pop(parent, ())
            ]
            free = self._free(tx, wanted)
            rest.update(one.id for _, one in wanted if one.id not in free)
            made = self._new.add([pair for pair in wanted if pair[1].id in free])
            self._directories.update(made)
            ready = list(made)
        rest.update(one.id for others in waiting.values() for one in others)
        self._show(tx)
        return rest

    # -- which nodes are new ------------------------------------------------------------------------------

    def _read_all(self, tx: Transaction, nodes: set[bytes]) -> Iterator[NewNode]:
        """The newcomers among *nodes*, in ascending order of their ids."""
        unsigned = self._fs.changes.unsigned
        unknown = sorted(nodes.difference(known_nodes(tx, nodes), (ROOT_ID,)))
        if unsigned:  # that has been removed here
            unknown = [node for node in unknown if place_key(node, 0) not in unsigned]
        linked = self._registers.linked(unknown)
        keys = [(place_key(node, 0), attr_key(node), content_key(node)) for node in unknown]
        only = self._only
        others = self._registers.all_values([key for three in keys for key in three if key not in only])

        def one_value(key: bytes) -> Value | None:
            """The only value of a register; None when there are others, or none."""
            values = others.get(key, ())
            return values[0] if len(values) == 1 else None

        for node, (place, attr, content) in zip(unknown, keys, strict=True):
            if node in linked or len(others.get(content, ())) > 1:
                continue
            placed, attributes = only.get(place) or one_value(place), only.get(attr) or one_value(attr)
            if placed is None or attributes is None:
                continue
            stamp, written = only.get(content) or one_value(content) or (None, None)
            newcomer = NewNode.decode(node, placed.value, attributes.value, written, stamp)
            if newcomer is not None:
                yield newcomer

    def _directory(self, tx: Transaction, node: bytes) -> int | None:
        """The number of a directory that is one node and is seen; None otherwise."""
        if node not in self._directories:
            self._directories[node] = lone_directory(tx, node)
        return self._directories[node]

    def _stays(self, tx: Transaction, directory: bytes) -> bool:
        """Whether a directory that has changed still stands where it stood."""
        if directory == ROOT_ID:
            return True
        values = self._registers.values(place_key(directory, 0))
        place = decode_place(values[0]) if len(values) == 1 else None
        if place is None or place.removed:
            return False
        return (place.parent, place.name) == name_of_node(tx, directory)

    def _free(self, tx: Transaction, wanted: Sequence[tuple[int, NewNode]]) -> set[bytes]:
        """The ids of those whose name no other node wants, or has as a conflict name."""
        keys = [place_key(one.id, 0) for _, one in wanted]
        places = [beginning(one.place.parent, one.place.name) for _, one in wanted]
        contested = self._registers.contested(dict(zip(keys, places, strict=True)))
        taken = tx.places.taken([(at, one.place.name) for at, one in wanted])
        return {
            one.id
            for (at, one), key in zip(wanted, keys, strict=True)
            if key not in contested and (at, one.place.name) not in taken
        }

    def _show(self, tx: Transaction) -> None:
        names = self._new.write(tx)
        self.changes += [Change(at, name) for at, name in names]
        self.changes += [Change(at) for at in {at for at, _ in names}]
