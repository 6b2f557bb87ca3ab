"""Nodes that are shown for the first time, with nothing to be settled about them: their rows, in bulk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from hybrisfs.log.registers import Registers
from hybrisfs.registers.tree import Attr, Place
from hybrisfs.registers.values import Stamp
from hybrisfs.state.nodes import NodeRow
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError

__all__ = ["NewNode", "NewNodes"]


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
        """Give numbers to these, each given with the number of its directory; those of the directories among
        them, by id."""
        directories: dict[bytes, int] = {}
        for ino, (at, one) in zip(self._fs.inodes.reserve(len(wanted)), wanted, strict=True):
            self._gathered.append((ino, at, one))
            if S_ISDIR(one.attr.mode):
                directories[one.id] = ino
        return directories

    def write(self, tx: Transaction) -> list[tuple[int, bytes]]:
        """Show all that was gathered; the names, each with the number of its directory."""
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
