"""What of a volume's content is on this device: pinning, unpinning, evicting, by path."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from hybrisfs.api import content as api
from hybrisfs.api.request import extended
from hybrisfs.api.status import PinnedContent
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.read.evict import Evictor
from hybrisfs.read.pin import SHARE_OF_BUDGET, Hoarder
from hybrisfs.shown import shown
from hybrisfs.signals import Signals
from hybrisfs.state.shown_nodes import path_of
from hybrisfs.state.state import Transaction
from hybrisfs.state.subtree import Measure, Subtree
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.pins import Pinned
from hybrisfs.volume.mounting import Mounting

__all__ = ["OnDemand"]

_LOOK_EVERY: Final = 0.2
_LOOKING_SHARE: Final = 5  # of the time, at most one part in so many goes into looking how far it is


class OnDemand:
    """Carries out what people ask of single files and folders. Paths are relative to the volume's root.

    Its methods may be called from any thread, without the volume's lock. They raise HybrisError or OSError.
    """

    def __init__(
        self,
        fs: FileSystem,
        committer: Committer,
        hoarder: Hoarder,
        room: Evictor,
        signals: Signals,
        mounting: Mounting,
    ) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._committer = committer
        self._hoarder = hoarder
        self._room = room
        self._signals = signals
        self._mounting = mounting
        self._pinning = threading.Lock()  # so that two do not take the same room

    def _shown(self, path: PurePath) -> str:
        return shown(str(self._mounting.shown(path)))

    def pin(self, path: PurePath) -> api.Measured:
        """Keep a file, or a folder and all that is and comes below it; how much that is.

        Returns at once; what is missing comes in the background. Refused when there is no room for it.
        """
        with self._pinning:
            with self._fs.state.transaction() as tx:
                inode = self._locate(tx, path)
                if not (inode.is_file or inode.is_directory):
                    raise HybrisError(f"{self._shown(path)} has no content that could be kept")
                kept = self._fs.pins.roots(tx)
                known = self._fs.pins.standing(tx, inode) is Pinned.YES
            self._committer.commit_now()
            if not known:
                self._require_room(path, kept, inode.ino)
                with self._fs.state.transaction() as tx:
                    if inode.orphan:
                        raise self._no_such(path)
                    self._fs.pins.add(tx, inode)
                self._committer.commit_now()
        self._signals.content_wanted()
        return _described(self._hoarder.measure([inode.ino]))

    def _require_room(self, path: PurePath, kept: Sequence[int], added: int) -> None:
        journal = self._fs.journal
        before, after = self._hoarder.measure(kept), self._hoarder.measure([*kept, added])
        most = self._hoarder.most
        if after.bytes > most:
            raise HybrisError(
                f"cannot pin {self._shown(path)}: that would be {after.bytes:,} bytes of pinned content",
                f"{before.bytes:,} are pinned already and at most {most:,} may be, "
                f"{SHARE_OF_BUDGET:.0%} of the cache's budget",
                "Pin less, unpin something, or raise cache_bytes in the volume's volume.json.",
            )
        free = journal.free_bytes() + journal.bytes - (before.bytes - before.missing)
        if after.missing > free:
            raise HybrisError(
                f"cannot pin {self._shown(path)}: {after.missing:,} bytes are not here yet",
                f"the disk that holds {journal.directory} has room for {max(free, 0):,}",
                "Pin less, or make room on that disk.",
            )

    def wait(
        self, paths: Sequence[PurePath], timeout: float | None, progress: Callable[[int, int], None]
    ) -> bool:
        """Wait until nothing of these is missing; False when *timeout* seconds are over.

        *progress* is called with the bytes that are here and the bytes there are.
        """
        deadline = None if timeout is None else self._monotonic() + timeout
        pause = 0.0
        while True:
            if not self._signals.pause(pause):
                return False
            begun = self._monotonic()
            self._committer.commit_now()
            with self._fs.state.transaction() as tx:
                roots = [self._locate(tx, path).ino for path in paths]
            found = self._hoarder.measure(roots)
            progress(found.bytes - found.missing, found.bytes)
            if not found.missing:
                return True
            now = self._monotonic()
            if deadline is not None and now >= deadline:
                return False
            pause = max(_LOOK_EVERY, (now - begun) * _LOOKING_SHARE)
            if deadline is not None:
                pause = min(pause, deadline - now)

    @property
    def trouble(self) -> str | None:
        """Why not everything comes that is pinned and missing; None when all is well."""
        return self._hoarder.trouble

    def unpin(self, path: PurePath) -> None:
        """Let a pinned file or folder be evicted again when room is needed."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            standing = self._fs.pins.standing(tx, inode)
            if standing is not Pinned.YES:
                raise UsageError(
                    f"{self._shown(path)} is not pinned itself", *self._why_kept(tx, inode, standing)
                )
            self._fs.pins.remove(tx, inode)
        self._committer.commit_now()
        self._signals.content_wanted()  # what is known of the pins is to be counted again

    def _why_kept(self, tx: Transaction, inode: Inode, standing: Pinned) -> tuple[str, str]:
        keeper = self._fs.pins.keeper(tx, inode) if standing is Pinned.INHERITED else None
        if keeper is None:
            return "", "hybrisfs pin without a path lists what is."
        where = self._shown(PurePath(path_of(tx, keeper.ino)))
        return f"it is kept because {where} is pinned", "Unpin that folder."

    def evict(self, path: PurePath) -> api.Freed:
        """Drop the local bytes of a file, or of all files in a folder, that the clouds hold."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            kept = self._fs.pins.roots(tx)
        self._committer.commit_now()
        with self._fs.state.snapshot() as snapshot:
            tree, kept_here = Subtree(snapshot, [inode.ino]), Subtree(snapshot, kept, "kept")
            numbers, pending, pinned = tree.evictable(kept_here), tree.staged(), tree.shared_with(kept_here)
        freed = self._room.evict_chunks(numbers)
        return api.Freed(freed, pending, pinned)

    def pins(self) -> list[api.Pin]:
        """What is pinned itself."""
        with self._fs.state.transaction() as tx:
            self._fs.pins.follow(tx)
            named = {ino: PurePath(path_of(tx, ino)) for ino in self._fs.pins.roots(tx)}
        self._committer.commit_now()
        return [
            extended(api.Pin, _described(self._hoarder.measure([ino])), path=str(path))
            for ino, path in named.items()
        ]

    def summary(self) -> PinnedContent:
        """For status: what is pinned, as of the last look."""
        kept = self._hoarder.kept
        return PinnedContent(kept.files, kept.bytes, kept.missing, self.trouble)

    # -- paths -----------------------------------------------------------------------------------

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        """The node at a path. Raises HybrisError when there is none."""
        inode = self._fs.locate(tx, map(os.fsencode, path.parts))
        if inode is None:
            raise self._no_such(path)
        return inode

    def _no_such(self, path: PurePath) -> HybrisError:
        return HybrisError(f"{self._shown(path)}: {os.strerror(errno.ENOENT)}")


def _described(measure: Measure) -> api.Measured:
    return api.Measured(measure.files, measure.bytes, measure.missing)
