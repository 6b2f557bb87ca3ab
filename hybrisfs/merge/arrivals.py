"""Taking in updates of other devices: log, registers, view.

Each update is applied whole or not at all, and nobody sees the view between the registers and the tree that
follows from them: a rename never appears without the content it brings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.filesystem.registers import PackRecord, attr_key, content_key, place_key
from hybrisfs.merge.members import MemberTable
from hybrisfs.merge.nodes import Nodes
from hybrisfs.merge.refresh import Change, Refresh
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.rules import Author, Stamp, number_names, winner
from hybrisfs.store.updates import UpdateLog
from sync import Accepted, DecodeError, Write, decode_signed_header

__all__ = ["Arrivals"]

_NODE_KINDS: Final = b"pac"


class Arrivals:
    """Applies accepted updates to the view of one volume; called with the volume's lock held."""

    def __init__(
        self, fs: FileSystem, updates: UpdateLog, registers: Registers, members: MemberTable
    ) -> None:
        self._fs = fs
        self._db = fs.db
        self._updates = updates
        self._registers = registers
        self._members = members
        self._nodes = Nodes(fs)
        self._waiting: set[bytes] = set()  # nodes whose registers have changed since the last refresh

    def take(self, accepted: Accepted) -> None:
        """Put the writes of an update just accepted by the log into the registers; `refresh` follows."""
        for rename in accepted.renames:
            self._registers.rename_branch(rename.old, rename.above, rename.new)
        writes = accepted.update.writes
        kept = [write for write in writes if write[0][:1] != b"k"]
        self._make_way(kept)
        stamp = Stamp(accepted.update.header.clock, accepted.branch)
        self._registers.write(stamp, accepted.dependencies, kept)
        for key, value in writes:
            if key[:1] == b"k":
                self._take_pack(key[1:], value)
            elif key[0] in _NODE_KINDS and len(key) >= 17:
                self._waiting.add(key[1:17])
            elif key[:1] == b"m":
                newest = winner(self._registers.values(key))
                if newest is not None and self._members.learn(key, newest.value):
                    self._updates.set_members(self._members.keys())

    def refresh(self, nodes: Iterable[bytes] = ()) -> list[Change]:
        """Let the view show what has been taken, and *nodes*; what the kernel must hear of."""
        waiting, self._waiting = self._waiting | set(nodes), set()
        if not waiting:
            return []
        self._fs.flush()
        return Refresh(self._fs, self._registers, self._depends, self._author).run(waiting)

    @property
    def is_odd(self) -> bool:
        """Whether the view shows anything but one node per name, so that own changes may change others."""
        (odd,) = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM joined) OR EXISTS (SELECT 1 FROM copy) "
            "OR EXISTS (SELECT 1 FROM moved) OR EXISTS (SELECT 1 FROM place WHERE wanted IS NOT NULL)"
        ).fetchone()
        return bool(odd)

    def _depends(self, later: Stamp, earlier: Stamp) -> bool:
        vector = self._updates.vector_of(later.writer, later.clock)
        return vector is not None and vector[earlier.writer] >= earlier.clock

    def _author(self, stamp: Stamp) -> Author:
        data = self._updates.update_at(stamp.writer, stamp.clock)
        if data is None:
            return self._myself()
        header = decode_signed_header(data)
        return Author(self._members.name_of(header.writer), header.time_ns)

    def _myself(self) -> Author:
        return Author(self._members.name_of(self._updates.device), time.time_ns())

    # -- packs -----------------------------------------------------------------------------------

    def _take_pack(self, pack: bytes, value: bytes | None) -> None:
        """Note where another device has put chunks."""
        try:
            record = PackRecord.decode(value or b"")
        except DecodeError:
            return
        (number,) = self._db.execute(
            "INSERT INTO pack (id, k, n, placement) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET placement = excluded.placement RETURNING number",
            (pack, record.k, record.n, record.placement),
        ).fetchone()
        for chunk in record.chunks:
            self._fs.chunks.packed_elsewhere(chunk.id, chunk.length, number, chunk.offset, chunk.sealed)

    # -- what is unsigned here -------------------------------------------------------------------

    def _make_way(self, writes: Iterable[Write]) -> None:
        """Edits here that are not signed yet were made without knowing of these: keep both."""
        unsigned = self._fs.changes.unsigned
        for key, _ in writes:
            if key[:1] != b"c":
                continue
            node = key[1:17]
            self._take_back_removal(node)
            if key in unsigned:
                inode = self._fs.inodes.get(unsigned[key][0])
                if not inode.orphan and inode.id == node:
                    self._split(inode)

    def _take_back_removal(self, node: bytes) -> None:
        """Whoever removed the node here had not seen this edit: the edit survives."""
        for key in self._registers.with_prefix(b"p" + node):
            entry = self._fs.changes.unsigned.get(key)
            if entry is not None and self._is_removed(entry[0], key):
                self._fs.changes.drop(key)

    def _is_removed(self, ino: int, key: bytes) -> bool:
        inode = self._fs.inodes.cached(ino)
        return inode is None or inode.orphan or inode.id != key[1:17]

    def _split(self, inode: Inode) -> None:
        """The unsigned version goes on as a file of its own, under a conflict name; whoever has it open keeps
        it. The node itself is made anew from its registers."""
        changes, node = self._fs.changes, inode.id
        self._fs.flush()
        rows = self._db.execute(
            "SELECT number, parent, ifnull(wanted, name), slot FROM place WHERE ino = ? ORDER BY slot",
            (inode.ino,),
        ).fetchall()
        for key in (attr_key(node), content_key(node), *(place_key(node, slot) for *_, slot in rows)):
            changes.drop(key)
        self._fs.inodes.identify(inode, os.urandom(16))
        inode.attr_stamp = inode.content_stamp = 0
        self._fs.inodes.touch(inode)
        (number, parent, name, _), *others = rows
        taken = {one for (one,) in self._db.execute("SELECT name FROM place WHERE parent = ?", (parent,))}
        [copy] = number_names(name, [self._myself()], taken)
        self._db.execute(
            "UPDATE place SET name = ?, wanted = NULL, slot = 0, stamp = 0 WHERE number = ?", (copy, number)
        )
        self._db.executemany("DELETE FROM place WHERE number = ?", [(row[0],) for row in others])
        inode.nlink -= len(others)
        for key in (place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)):
            changes.mark(key, inode.ino)
        self._fs.flush()
        self._waiting.add(node)
