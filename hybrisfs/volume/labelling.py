"""Labels of files and folders, by path."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.signing import is_limited, only_reads
from hybrisfs.registers.labels import MOST_LABELS, parse_label
from hybrisfs.shown import shown
from hybrisfs.state.shown_nodes import path_of
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.volume.mounting import Mounting

__all__ = ["Labelling"]


class Labelling:
    """Carries out what people ask of labels. Paths are relative to the volume's root.

    Its methods may be called from any thread, without the volume's lock. They raise HybrisError or OSError.
    """

    def __init__(self, fs: FileSystem, committer: Committer, mounting: Mounting) -> None:
        self._fs = fs
        self._committer = committer
        self._mounting = mounting

    def of(self, path: PurePath) -> list[str]:
        """The labels of what is at a path."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.of(tx, self._locate(tx, path))

    def add(self, path: PurePath, words: Sequence[str]) -> list[str]:
        """Give labels to what is at a path; those that it has then."""
        return self._change(path, words, self._fs.labels.add)

    def remove(self, path: PurePath, words: Sequence[str]) -> list[str]:
        """Take labels from what is at a path; those that it has then."""
        return self._change(path, words, self._fs.labels.remove)

    def _change(
        self,
        path: PurePath,
        words: Sequence[str],
        change: Callable[[Transaction, Inode, Sequence[str]], None],
    ) -> list[str]:
        wanted = [_parsed(word) for word in words]
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            if self._fs.read_only:
                raise only_reads()
            try:
                change(tx, inode, wanted)
            except OSError as error:
                raise self._explained(path, error) from None
            labels = self._fs.labels.of(tx, inode)
        self._committer.commit_now()
        return labels

    def _explained(self, path: PurePath, error: OSError) -> HybrisError | OSError:
        if error.errno == errno.EACCES:
            return is_limited()
        if error.errno == errno.ENOSPC:
            where = shown(str(self._mounting.shown(path)))
            return HybrisError(f"{where} would have too many labels", f"{MOST_LABELS} are the most")
        return error

    def counts(self) -> Mapping[str, int]:
        """How many files and folders have each label."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.counts(tx)

    def find(self, word: str) -> list[PurePath]:
        """Where what has a label is, in the order of paths."""
        wanted = _parsed(word)
        with self._fs.state.transaction() as tx:
            paths = [path_of(tx, ino) for ino in self._fs.labels.labelled(tx, wanted)]
        return sorted(PurePath(path) for path in paths)

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        inode = self._fs.locate(tx, map(os.fsencode, path.parts))
        if inode is None:
            raise HybrisError(f"{shown(str(self._mounting.shown(path)))}: {os.strerror(errno.ENOENT)}")
        return inode


def _parsed(word: str) -> str:
    try:
        return parse_label(word)
    except ValueError as error:
        raise UsageError(f"{shown(word)} is no label", str(error)) from None
