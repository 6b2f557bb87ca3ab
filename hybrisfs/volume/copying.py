"""Copies of folders on several devices, by path: what people ask for, and how it is."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from hybrisfs.api import copies as api
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.signing import explaining_refusal
from hybrisfs.read.copies import MOST_FOLDERS, Copies
from hybrisfs.shown import shown
from hybrisfs.stages import Signals
from hybrisfs.state.shown_nodes import shown_path
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.residency import Residency
from hybrisfs.volume.files import node_at
from hybrisfs.volume.mounting import Mounting

__all__ = ["Copying"]

_OVERFULL: Final = (
    "this machine is to keep everything, which is more than 80 % of its cache: it keeps what copies are "
    "asked of, until hybrisfs volume set NAME --cache SIZE gives it more room"
)


class Copying:
    """Those of one volume. Paths are relative to its root. The methods may be called from any thread, without
    the volume's lock; they raise HybrisError or OSError."""

    def __init__(
        self,
        fs: FileSystem,
        committer: Committer,
        copies: Copies,
        signals: Signals,
        mounting: Mounting,
        residency: Residency,
    ) -> None:
        self._fs = fs
        self._committer = committer
        self._copies = copies
        self._signals = signals
        self._mounting = mounting
        self._residency = residency

    def ask(self, path: PurePath, copies: int) -> None:
        """Have a file or folder kept on at least so many devices; 0: on those that use it."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            with explaining_refusal(read_only=self._fs.read_only):
                asked = self._fs.labels.asking_for_copies(tx)
                if copies and inode.id not in asked and len(asked) >= MOST_FOLDERS:
                    raise HybrisError(
                        f"{self._shown(path)} cannot be kept on several machines, too",
                        f"that is asked for {MOST_FOLDERS} files and folders, which are the most",
                        "Ask for a folder above some of them, or use hybrisfs copies remove.",
                    )
                self._fs.labels.ask_for_copies(tx, inode, copies)
        self._committer.commit_now()
        self._signals.content_wanted()

    def all(self) -> list[api.FolderCopies]:
        """What is to be on several devices, by path."""
        with self._fs.state.transaction() as tx:
            found = [
                api.FolderCopies(
                    inside=shown_path(tx, one.folder.ino),
                    copies=one.folder.copies,
                    on=[tx.members.name_of(device) for device in one.whole],
                    fetching=[tx.members.name_of(device) for device in one.coming],
                    short=one.short,
                    bytes=one.measure.bytes,
                    missing_bytes=one.measure.missing,
                )
                for one in self._copies.folders
                if self._fs.inodes.find(tx, one.folder.ino) is not None
            ]
        return sorted(found, key=lambda one: one.inside)

    def of(self, path: PurePath) -> api.FileCopies:
        """Where the content of a file is."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            if not inode.is_file:
                raise UsageError(f"{self._shown(path)} is not a file", "", "Name the files in it.")
            clouds, devices = self._residency.places(tx, inode)
            return api.FileCopies(clouds, [tx.members.name_of(device) for device in devices])

    def warnings(self) -> list[str]:
        """What has too few copies, in sentences. They do not vary, because a new sentence would be reported
        as news."""
        full = [_OVERFULL] if self._copies.is_overfull else []
        return full + [
            f"{shown(one.inside) if one.inside else 'everything'} is to be on {one.copies} machines, and is "
            "on fewer: hybrisfs copies list. Each needs room, see hybrisfs volume set NAME --cache SIZE"
            for one in self.all()
            if one.short
        ]

    def _shown(self, path: PurePath) -> str:
        return shown(str(self._mounting.shown(path)))

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        return node_at(self._fs, tx, path, self._shown(path))
