"""Settings that hold on all devices of a volume: labels of its root (`hybrisfs.registers.labels`)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from hybrisfs.errors import UsageError
from hybrisfs.merge.signing import is_limited, only_reads
from hybrisfs.registers.labels import LEAST_ANNOUNCE, MERGE_OFF
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync.follow import ANNOUNCE_SECONDS

__all__ = ["Agreed"]

_LONGEST: Final = int(ANNOUNCE_SECONDS)


class Agreed:
    """Those of one volume. The methods may be called from any thread, without the volume's lock; those that
    change something raise HybrisError or OSError."""

    def __init__(self, fs: FileSystem, committer: Committer) -> None:
        self._fs = fs
        self._committer = committer

    @property
    def announce_seconds(self) -> int:
        """How often each device says at least that it is there."""
        with self._fs.state.transaction() as tx:
            return int(self._fs.labels.announce_seconds(tx))

    def announce_every(self, seconds: int) -> None:
        """Let each device say so often at least that it is there. Raises UsageError."""
        if not LEAST_ANNOUNCE <= seconds <= _LONGEST:
            raise UsageError(
                f"devices cannot announce themselves every {seconds} seconds",
                f"{LEAST_ANNOUNCE} to {_LONGEST} are possible",
            )
        self._change(lambda tx, root: self._fs.labels.ask_for_announcements(tx, root, seconds))

    @property
    def merge_texts(self) -> bool:
        """Whether texts that were changed in different places are merged unasked."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.may_merge(tx, self._fs.inodes.get(tx, ROOT_INO))

    def set_merge_texts(self, wanted: bool) -> None:
        """Let that be so, or not."""
        labels = self._fs.labels
        change = labels.remove if wanted else labels.add
        self._change(lambda tx, root: change(tx, root, [MERGE_OFF]))

    def _change(self, change: Callable[[Transaction, Inode], None]) -> None:
        if self._fs.read_only:
            raise only_reads()
        with self._fs.state.transaction() as tx:
            try:
                change(tx, self._fs.inodes.get(tx, ROOT_INO))
            except OSError as error:
                if error.errno == errno.EACCES:
                    raise is_limited() from None
                raise
        self._committer.commit_now()
