"""New nodes about which nothing has to be decided: made in bulk, as is the first view of a volume.

When a device brings a tree of thousands of files, nearly all nodes are of this kind, and `Refresh` would only
find out that there is nothing to decide about them. It gets all other nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from stat import S_ISDIR, S_ISREG
from typing import Final, NamedTuple

from hybrisfs.kinds import NODE
from hybrisfs.log import Registers
from hybrisfs.merge.refresh import Refresh
from hybrisfs.merge.rules import Origins, decode_place
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import (
    Attr,
    Place,
    attr_key,
    beginning,
    beginning_of,
    content_key,
    place_key,
    removed_place,
)
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.nodes import NodeRow
from hybrisfs.state.registers import NodeValues
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import is_bare, known_nodes, lone_directory, name_of_node
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unseen import Change
from sync import DecodeError

__all__ = ["Newcomers", "build_view"]


class Newcomers:
    """One run; the view has been flushed. Use once: `show`."""

    def __init__(self, fs: FileSystem, registers: Registers, only: Mapping[bytes, Value]) -> None:
        """*only*: some registers with a single value, and these values."""
        self._fs = fs
        self._registers = registers
        self._only = only
        self._directories: dict[bytes, int | None] = {ROOT_ID: ROOT_INO}
        self._new = NewNodes(fs, registers)
        self.changes: list[Change] = []

    def show(self, tx: Transaction, nodes: set[bytes]) -> set[bytes]:
        """Show the newcomers among *nodes*. Returns the other nodes."""
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
        """The inode number of a visible directory that is not merged with others; None otherwise."""
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
        """The ids of the nodes whose name no other node wants or has as a conflict name."""
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


# -- the first view of a volume, made from all its registers at once ------------------------------------
# A device that begins with a checkpoint has the registers of the whole tree and shows nothing yet. This walks
# the tree from its root, folder by folder, and shows plain nodes: each register has one value, and no other
# node wants the name. `Refresh` would find the same for them at many times the cost. It gets the rest: nodes
# with several values, nodes that compete for a name, and all below such a folder; nodes that stand nowhere;
# removed nodes that may have to stay.
#
# Most removed nodes are *gone* whatever else there is, and compete for no name: files whose removal knew
# their content, and folders in which everything is gone.


_AT_ONCE: Final = 4096  # nodes whose rows are in memory


def build_view(tx: Transaction, fs: FileSystem, registers: Registers, origins: Origins) -> list[Change]:
    """Fill a view that shows only the root with what the table `register` says. Returns the changes for the
    kernel, which may know the root.

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
        """Show the plain nodes. Returns those that are neither plain nor gone."""
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


# -- nodes that are shown for the first time, with nothing to be decided about them ---------------------


class NewNode(NamedTuple):
    """A node of which each register has one value. *content_stamp*: None when it has no content register."""

    id: bytes
    place: Place
    attr: Attr
    content: bytes | None
    content_stamp: Stamp | None

    @classmethod
    def decode(
        cls, node: bytes, place: bytes | None, attr: bytes | None, content: bytes | None, stamp: Stamp | None
    ) -> NewNode | None:
        """The node whose registers have these values; None when it is removed, or a value malformed."""
        try:
            found = cls(node, Place.decode(place or b""), Attr.decode(attr or b""), content, stamp)
        except DecodeError:
            return None
        return None if found.place.removed else found


class NewNodes:
    """Gathers new nodes; they are not seen before `write`."""

    def __init__(self, fs: FileSystem, registers: Registers) -> None:
        self._fs = fs
        self._registers = registers
        self._gathered: list[tuple[int, int, NewNode]] = []  # its number, that of its directory

    def __len__(self) -> int:
        return len(self._gathered)

    def add(self, wanted: Sequence[tuple[int, NewNode]]) -> dict[bytes, int]:
        """Give inode numbers to these nodes, each given with the number of its directory. Returns the numbers
        of the directories among them, by id."""
        directories: dict[bytes, int] = {}
        for ino, (at, one) in zip(self._fs.inodes.reserve(len(wanted)), wanted, strict=True):
            self._gathered.append((ino, at, one))
            if S_ISDIR(one.attr.mode):
                directories[one.id] = ino
        return directories

    def write(self, tx: Transaction) -> list[tuple[int, bytes]]:
        """Show all that was gathered. Returns the names, each with the number of its directory."""
        fs, made = self._fs, self._gathered
        self._gathered = []
        files = {ino: one for ino, _, one in made if S_ISREG(one.attr.mode)}
        sizes = fs.received.show_all(
            tx, {ino: one.content for ino, one in files.items() if one.content_stamp is not None}
        )
        fs.total_files += len(files)
        now = fs.inodes.now()
        tx.nodes.insert([self._row(ino, one, sizes, now) for ino, _, one in made])
        tx.nodes.add_xattrs((ino, name, value) for ino, _, one in made for name, value in one.attr.xattrs)
        tx.places.insert_new((at, one.place.name, ino) for ino, at, one in made)
        subdirectories = Counter(at for _, at, one in made if S_ISDIR(one.attr.mode))
        for at in {at for _, at, _ in made}:
            directory = fs.inodes.get(tx, at)
            directory.nlink += subdirectories[at]
            fs.inodes.touch(directory)
        fs.flush(tx)
        return [(at, one.place.name) for _, at, one in made]

    def _row(self, ino: int, one: NewNode, sizes: Mapping[int, tuple[int, int]], now: int) -> NodeRow:
        attr = one.attr
        size, stored = sizes.get(ino, (len(attr.target), 0))
        stamp = self._registers.number_of(one.content_stamp) if ino in sizes and one.content_stamp else 0
        return (
            ino, one.id, attr.mode, attr.uid, attr.gid, attr.rdev, 2 if S_ISDIR(attr.mode) else 1,
            size, stored, attr.mtime, attr.mtime, now, attr.target or None, len(attr.xattrs), 1, stamp,
        )  # fmt: skip
