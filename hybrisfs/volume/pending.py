"""Which files the clouds lack something of: what `hybrisfs pending` lists."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from hybrisfs.api.status import PendingFile, PendingFiles
from hybrisfs.errors import HybrisError
from hybrisfs.shown import shown
from hybrisfs.state.database import Reader
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import path_along, way_to_root
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import WaitingNode, waiting_nodes

if TYPE_CHECKING:
    from hybrisfs.volume.opened import Opened

__all__ = ["pending_files"]

_SECOND: Final = 10**9


def pending_files(volume: Opened, path: PurePath, limit: int) -> PendingFiles:
    """Up to *limit* of the files and folders at or below *path* that the clouds lack something of, and how
    many and much it is in all. Those that have waited longest come first. Raises HybrisError, OSError."""
    fs = volume.fs

    def top(tx: Transaction) -> tuple[int, set[int]]:
        inode = fs.locate(tx, [os.fsencode(name) for name in path.parts])
        if inode is None:
            raise HybrisError(f"there is no {shown(str(path))} in {shown(volume.name)}")
        return inode.ino, fs.ignored.nodes

    found, total, size = list[tuple[WaitingNode, str | None]](), 0, 0
    with fs.committed(top) as ((ino, aside), database):
        for node, where in _below(database, ino, aside):
            total, size = total + 1, size + node.size
            if len(found) < limit:
                found.append((node, where))
    with fs.state.transaction():
        opened = {node.ino for node, _ in found if _is_held_back(volume, node.ino)}
    files = [
        PendingFile(
            where,
            node.size,
            None if node.changed is None else node.changed / _SECOND,
            is_open=node.ino in opened,
        )
        for node, where in found
    ]
    return PendingFiles(volume.name, str(path), files, total, size)


def _below(database: Reader, top: int, aside: Container[int]) -> Iterator[tuple[WaitingNode, str | None]]:
    """The waiting nodes at or below a folder, but for those that stay here, with their paths from the root
    on; None for one that has no name any more, which is below the root only."""
    for node in (one for one in waiting_nodes(database) if one.ino not in aside):
        way = list(way_to_root(database, node.ino))
        ends = way[-1].folder if way else node.ino
        if ends != ROOT_INO:
            if top == ROOT_INO:
                yield node, None
        elif top in (node.ino, ROOT_INO) or any(step.folder == top for step in way):
            yield node, os.fsdecode(path_along(way))


def _is_held_back(volume: Opened, ino: int) -> bool:
    """Whether a program has it open for writing, and its content waits for that to end."""
    inode = volume.fs.inodes.cached(ino)
    return inode is not None and inode.writers > 0 and inode.dirty_since > 0
