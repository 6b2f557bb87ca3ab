"""Is the view what the registers say? Every name, attribute and content of it, and nothing is missing.

One pass goes over registers and view side by side, in the order of nodes. Attributes and contents follow from
the registers of their node alone, and so do the names of *plain* nodes: each register has one value, and the
view shows just what these say. All other nodes are *odd*: they, and all that they touch, are handed to the
rules (`hybrisfs.merge.rules.visible_tree`), some thousands at once, and the view must show the same. That is
enough: a name in a folder is one node's, so a plain node that should not have its name has it instead of
another one, which is not plain then.

A node touches the directories above it. An odd one also touches those that want its name in its folder, those
that have conflict names there, and what lives in it though it was removed.

A register that waits to be signed is as the view has it, whatever its values: it is not compared. What
follows from it for other nodes is shown when it is signed. So while any waits, the names of odd nodes are
compared in part: each must be one that a register says, but it does not matter in which folder it is, and
which of several nodes has the name itself; and a node that was removed may be there or not.
"""

from __future__ import annotations

import heapq
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.kinds import ATTRIBUTES, CONTENT, NODE, PLACE
from hybrisfs.merge.names import Author
from hybrisfs.merge.rules import (
    Located,
    Name,
    Tree,
    copy_id,
    decode_place,
    names_of_file,
    standing_attr,
    visible_tree,
    winner,
)
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import (
    Attr,
    Place,
    attr_key,
    beginning,
    content_key,
    place_key,
    slot_of,
)
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.checks import (
    bodies_by_stamp,
    copies,
    count_nodes,
    folders_alike,
    has_merged_name,
    merged_with,
    moved_to,
    names_by_node,
    names_of_node,
    names_shown_for,
    nodes_by_id,
    nodes_in_conflicts,
    rivals_marked,
    rivals_named,
    unsigned_keys,
)
from hybrisfs.state.nodes import NodeTable
from hybrisfs.state.registers import RegisterTable, rows_of_kind
from hybrisfs.state.stored_log import signer_of
from hybrisfs.verify.derived_check import ContentCheck
from hybrisfs.verify.log_check import Vectors
from sync import DecodeError, decode_signed

__all__ = ["ViewCheck"]

_PROGRESS_EVERY: Final = 256
_AT_ONCE: Final = 4096  # odd nodes, unless those that touch each other are more
_FOREIGN: Final = 1  # the stamp of what another device wrote
_MARK: Final = b" (conflict, "

_Values = Mapping[bytes, Sequence[Value]]


class _Shown(NamedTuple):
    """A name in the view: of node *id*, in the folder with the id *folder*."""

    id: bytes
    slot: int
    folder: bytes | None
    name: bytes
    wanted: bytes | None
    stamp: int = 0

    @property
    def told(self) -> bytes:
        """The name in the register."""
        return self.name if self.wanted is None else self.wanted

    def where(self) -> str:
        """The name and where it is, in words."""
        beside = "" if self.wanted is None else f", as another node has the name {self.wanted!r}"
        return f"{self.name!r} in the folder with id {_hex(self.folder)}{beside}"

    def __str__(self) -> str:
        return f"{self.where()} (node {self.id.hex()})"


class _Inode(NamedTuple):
    """A node in the view, its extended attributes left out."""

    id: bytes
    ino: int
    size: int
    xattrs: int
    attr_stamp: int
    content_stamp: int
    attr: Attr

    def __str__(self) -> str:
        return f"node {self.id.hex()} (inode {self.ino})"


class ViewCheck:
    """Compares the view in *db*, a snapshot of a volume's database, with the registers in it."""

    def __init__(self, db: sqlite3.Connection, namer: ChunkNamer, vectors: Vectors) -> None:
        self._db = db
        self._contents = ContentCheck(db, namer)
        self._vectors = vectors
        self._registers = RegisterTable(db)
        self._unsigned = unsigned_keys(db)
        self._copies = copies(db)
        self._nodes = NodeTable(db)
        self._nameless = set(self._nodes.nameless())
        self._odd = nodes_in_conflicts(db)

    def run(self, progress: Callable[[int, int], None]) -> Iterator[str]:
        """What differs, in words."""
        total = count_nodes(self._db)
        for count, (node, rows) in enumerate(groupby(self._rows(), key=itemgetter(0))):
            yield from self._check(node, [one for _, one in rows])
            if count % _PROGRESS_EVERY == 0:
                progress(min(count, total), total)
        yield from self._check_odd()
        progress(total, total)

    def _rows(self) -> Iterator[tuple[bytes, _Inode | _Shown | tuple[bytes, Value]]]:
        """What registers and the view tell of nodes, in ascending order of their ids: first the values."""
        stamp = self._registers.stamp
        inodes = ((row[0], _Inode._make((*row[:6], Attr(*row[6:])))) for row in nodes_by_id(self._db))
        names = ((row[0], _Shown._make(row)) for row in names_by_node(self._db))
        values = (
            ((key[NODE], (key, Value(stamp(*at), value))) for key, *at, value in rows)
            for rows in [rows_of_kind(self._db, kind) for kind in (PLACE, ATTRIBUTES, CONTENT)]
        )
        return heapq.merge(*values, inodes, names, key=itemgetter(0))

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        """See `rules.Origins`."""
        vector = self._vectors.of(later.branch, later.clock)
        return vector is not None and vector[earlier.branch] >= earlier.clock

    def author(self, stamp: Stamp) -> Author:
        """See `rules.Origins`."""
        signer = signer_of(self._db, stamp.branch, stamp.clock)
        return Author("", 0) if signer is None else Author(signer.shown_name, signer.time_ns)

    # -- one node --------------------------------------------------------------------------------

    def _check(self, node: bytes, rows: Iterable[_Inode | _Shown | tuple[bytes, Value]]) -> Iterator[str]:
        values: dict[bytes, list[Value]] = {}
        names: list[_Shown] = []
        for one in rows:
            if isinstance(one, _Inode):
                yield from self._check_inode(one, values)
                if one.ino in self._copies:
                    return  # its original is odd, and touches it
            elif not isinstance(one, _Shown):
                values.setdefault(one[0], []).append(one[1])
            elif place_key(node, one.slot) not in self._unsigned:
                names.append(one)
        for name in names:
            yield from self._check_stamp(name, values.get(place_key(node, name.slot), ()))
        if node != ROOT_ID and not self._is_plain(node, values, names):
            self._odd.add(node)

    def _is_plain(self, node: bytes, values: _Values, shown: Iterable[_Shown]) -> bool:
        """Whether the view shows just the names that the registers say, of which each has one value."""
        names: list[Name] = []
        for key in values.keys() - self._unsigned:
            place = decode_place(values[key][0]) if key[0] == PLACE else None
            if len(values[key]) > 1 or (place is None and key[0] == PLACE):
                return False
            if place is not None:
                names.append(Name(node, slot_of(key), values[key][0].stamp, place))
        if any(one.place.removed for one in names):
            attr = standing_attr(values.get(attr_key(node), ()))
            if attr is None or stat.S_ISDIR(attr[1].mode):
                return False
            names = names_of_file(names, values.get(content_key(node), ()), self.depends)
        return {(one.slot, one.folder, one.name, one.wanted) for one in shown} == {
            (one.slot, one.place.parent, one.place.name, None) for one in names
        }

    def _check_stamp(self, name: _Shown, values: Iterable[Value]) -> Iterator[str]:
        newest = max((one.stamp.clock for one in values), default=0)
        if name.stamp == 0:
            yield f"{name}: it is in no signed update and does not wait for one"
        elif name.stamp != _FOREIGN and name.stamp >> 16 > newest and not self._withdrew(name.stamp):
            yield f"{name}: its stamp is not of an update that wrote it"

    def _withdrew(self, stamp: int) -> bool:
        """Whether the update wrote places, maybe of nodes that were merged with this one."""
        bodies = bodies_by_stamp(self._db, stamp)
        return any(data is None or self._wrote_places(data) for data in bodies)  # of a bare one nobody knows

    @staticmethod
    def _wrote_places(update: bytes) -> bool:
        try:
            return any(key[0] == PLACE for key, _ in decode_signed(update).writes)
        except DecodeError:
            return False

    # -- attributes and contents -----------------------------------------------------------------

    def _check_inode(self, inode: _Inode, values: _Values) -> Iterator[str]:
        original = self._copies.get(inode.ino)
        if original is not None:
            yield from self._check_copy(inode, original)
        elif inode.ino not in self._nameless:
            if attr_key(inode.id) not in self._unsigned:
                yield from self._check_attributes(inode, values.get(attr_key(inode.id), ()))
            if content_key(inode.id) not in self._unsigned and stat.S_ISREG(inode.attr.mode):
                yield from self._check_content(inode, values.get(content_key(inode.id), ()))

    def _check_attributes(self, inode: _Inode, values: Iterable[Value]) -> Iterator[str]:
        standing, stamp = standing_attr(values), inode.attr_stamp
        xattrs = tuple(self._nodes.xattrs(inode.ino)) if inode.xattrs else ()
        if standing is None:
            yield f"{inode}: no update says what its attributes are"
        elif standing[1] != inode.attr._replace(xattrs=xattrs):
            yield f"{inode}: its attributes are not those signed"
        elif stamp == 0 or (stamp != _FOREIGN and stamp >> 16 > standing[0].clock):
            yield f"{inode}: the stamp of its attributes is not of an update that wrote them"

    def _check_content(self, inode: _Inode, values: Iterable[Value]) -> Iterator[str]:
        content = winner(list(values)) or Value(Stamp(0, b""), None)
        problem = self._contents.problem(inode.ino, inode.size, content.value)
        if problem is None and inode.content_stamp >> 16 > content.stamp.clock:
            problem = "the stamp of its content is not of an update that wrote it"
        if problem is not None:
            yield f"{inode}: {problem}"

    def _check_copy(self, inode: _Inode, original: bytes) -> Iterator[str]:
        """A concurrent content, shown as a file of its own."""
        if content_key(original) in self._unsigned:
            return
        values = self._registers.values(content_key(original))
        contents = {copy_id(original, one.value): one.value for one in values}
        if inode.id not in contents or not stat.S_ISREG(inode.attr.mode):
            problem: str | None = "no update has left such a version"
        else:
            problem = self._contents.problem(inode.ino, inode.size, contents[inode.id])
        if problem is not None:
            yield f"{inode}, a version of node {original.hex()}: {problem}"

    # -- odd nodes, and what they touch ----------------------------------------------------------

    def _check_odd(self) -> Iterator[str]:
        left = dict.fromkeys(sorted(self._odd))
        while left:
            registers: dict[bytes, list[Value]] = {}
            nodes = self._gather(left, registers)
            for node in nodes:
                left.pop(node, None)
            tree = visible_tree(registers, self)
            if self._unsigned:
                for node in nodes:
                    yield from self._compare_in_part(node, registers, tree)
            else:
                yield from self._compare(nodes, tree)

    def _gather(self, seeds: Iterable[bytes], registers: dict[bytes, list[Value]]) -> set[bytes]:
        """Some of the *seeds*, and all nodes that they affect; fills in their *registers*."""
        found: set[bytes] = set()
        folders: dict[bytes | None, list[bytes]] = {None: []}
        for seed in seeds:
            if len(found) >= _AT_ONCE:
                break
            waiting = {seed} - found
            while waiting:
                node = waiting.pop()
                found.add(node)
                registers.update(self._registers.all_values((attr_key(node), content_key(node))))
                placed = self._registers.with_prefix(PLACE.key(node))
                registers.update(placed)
                places = _decoded(one for values in placed.values() for one in values)
                touched = {directory for one in places for directory in (one.parent, one.former) if directory}
                if node in self._odd:
                    touched.update(self._others(node, folders))
                    if any(one.removed for one in places):
                        touched |= self._registers.shown_beginning(node)
                waiting |= touched - found
        return found

    def _others(self, node: bytes, folders: dict[bytes | None, list[bytes]]) -> Iterator[bytes]:
        """The folders in which an odd node is shown, and the nodes that want its name or have conflict names
        there; those only of folders that are not among *folders* yet."""
        for name in map(_Shown._make, names_shown_for(self._db, node)):
            if name.folder not in folders:
                folders[name.folder] = folders_alike(self._db, name.folder) if name.folder else []
                yield from rivals_marked(self._db, name.folder, _MARK)
            yield from rivals_named(self._db, name.folder, name.told)
            for folder in folders[name.folder]:
                yield folder
                for key in self._registers.places_beginning(beginning(folder, name.told)):
                    yield key[NODE]

    def _names(self, node: bytes) -> list[_Shown]:
        return [_Shown._make(row) for row in names_of_node(self._db, node)]

    # -- all is signed ---------------------------------------------------------------------------

    def _compare(self, nodes: Iterable[bytes], tree: Tree) -> Iterator[str]:
        """What the view shows of the nodes, and the tree."""
        shown = {(one.id, one.slot): one for node in nodes for one in self._names(node)}
        merged: dict[bytes, bytes] = {}
        for folder, names in tree.folders.items():
            for name, seen in names.items():
                merged.update(dict.fromkeys(seen.merged, seen.node))
                right = _Shown(seen.node, seen.slot, folder, name, seen.beside)
                if seen.is_copy:
                    right = right._replace(id=copy_id(seen.node, seen.content), slot=0)
                found = shown.pop((right.id, right.slot), None)
                if found is None:
                    what = "a concurrent version, " if seen.is_copy else ""
                    yield f"node {seen.node.hex()}: {what}{right.where()}, is missing"
                elif found.told != right.told:
                    yield f"{found}: its name is not the one signed, {right.told!r}"
                elif found[:-1] != right[:-1]:
                    yield f"{found}: it should be {right.where()}"
        for found in shown.values():
            yield f"{found}: no update says that it has this name"
        for node in nodes:
            yield from self._compare_merged(node, merged.get(node))
            yield from self._compare_moved(node, tree.names.get(node, ()))

    def _compare_merged(self, node: bytes, other: bytes | None) -> Iterator[str]:
        """Compare whether the node is merged with *other*."""
        merged = merged_with(self._db, node)
        if (None if merged is None else merged.other) != other:
            is_seen = "" if merged is None else f"is merged with node {_hex(merged.other)}, and "
            should = f"merged with node {other.hex()}" if other else "shown by itself, or not at all"
            yield f"node {node.hex()}: it {is_seen}should be {should}"

    def _compare_moved(self, node: bytes, names: Iterable[Located]) -> Iterator[str]:
        """Compare the note that a node stands elsewhere than in its place."""
        elsewhere = {one.directory for one in names if one.directory != one.place.parent}
        moved = moved_to(self._db, node)
        if moved is None and elsewhere:
            yield f"node {node.hex()}: it is shown in another folder than signed, without a note of that"
        elif moved is not None and moved not in elsewhere:
            yield f"node {node.hex()}: it is noted as shown in the folder {moved.hex()}, where it is not"

    # -- something is not signed yet -------------------------------------------------------------

    def _compare_in_part(self, node: bytes, registers: _Values, tree: Tree) -> Iterator[str]:
        """The names of one node, but for those that are unsigned, and those that were removed."""
        names = self._names(node)
        signed = {one.slot: one for one in tree.names.get(node, ())}
        shown = {one.slot: one for one in names if one.id == node}
        for slot in sorted(signed.keys() | shown.keys()):
            key = place_key(node, slot)
            if key in self._unsigned or any(one.removed for one in _decoded(registers.get(key, ()))):
                continue
            right, found = signed.get(slot), shown.get(slot)
            if right is None:
                yield f"{found}: no update says that it has this name"
            elif found is None and self._is_to_be_shown(node, right):
                name = f"{right.place.name!r} in the folder with id {right.directory.hex()}"
                yield f"node {node.hex()}: {name}, is missing"
            elif found is not None and found.told != right.place.name:
                yield f"{found}: its name is not the one signed, {right.place.name!r}"
        beside = {(one.folder, one.told) for one in shown.values()}
        keys = {content_key(node), *(place_key(node, slot) for slot in shown)}
        for copy in names if self._unsigned.isdisjoint(keys) else ():
            if copy.id != node and (copy.folder, copy.told) not in beside:
                yield f"{copy}: it is a version of node {node.hex()}, but does not stand beside that"

    def _is_to_be_shown(self, node: bytes, name: Located) -> bool:
        """Whether the view shows the directory, and does not merge the node with another of this name
        there."""
        return has_merged_name(self._db, name.directory, name.place.name, node) is False


def _decoded(values: Iterable[Value]) -> list[Place]:
    return [place for one in values if (place := decode_place(one)) is not None]


def _hex(node: bytes | None) -> str:
    return "(unknown)" if node is None else node.hex()
