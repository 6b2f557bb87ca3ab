"""Files and folders of a volume, by path: looked at, labelled, pinned, evicted."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from hybrisfs.api import files as api
from hybrisfs.api.files import Entry
from hybrisfs.api.request import extended
from hybrisfs.api.status import PinnedContent
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.signing import explaining_refusal
from hybrisfs.parcels.parcels import Contents
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.read.pin import SHARE_OF_BUDGET, Pinner
from hybrisfs.registers.labels import MOST_LABELS, parse_label
from hybrisfs.shown import shown
from hybrisfs.stages import Signals
from hybrisfs.state.pins import Measure, Subtree
from hybrisfs.state.shown_nodes import names_in_folder, shown_path
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.pins import Pinned
from hybrisfs.tree.residency import Residency, State
from hybrisfs.volume.mounting import Mounting

__all__ = ["Browsing", "Labelling", "Pinning", "node_at"]

_LOOK_EVERY: Final = 0.2
_LOOKING_SHARE: Final = 5  # of the time, at most one part in so many goes into looking how far it is


class Pinning:
    """Pins and evicts single files and folders, as people ask. Paths are relative to the volume's root.

    Its methods may be called from any thread, without the volume's lock. They raise HybrisError or OSError.
    """

    def __init__(
        self,
        fs: FileSystem,
        committer: Committer,
        pinner: Pinner,
        room: Evictor,
        signals: Signals,
        mounting: Mounting,
    ) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._committer = committer
        self._pinner = pinner
        self._room = room
        self._signals = signals
        self._mounting = mounting
        self._pinning = threading.Lock()  # so that two do not take the same room

    def _shown(self, path: PurePath) -> str:
        return shown(str(self._mounting.shown(path)))

    def pin(self, path: PurePath) -> api.Measured:
        """Keep a file, or a folder with everything that is or will be in it. Returns the amount at once, and
        brings what is missing in the background. Refused when there is no room for it.
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
                        raise HybrisError(f"{self._shown(path)}: {os.strerror(errno.ENOENT)}")
                    self._fs.pins.add(tx, inode)
                self._committer.commit_now()
        self._signals.content_wanted()
        return _described(self._pinner.measure([inode.ino]))

    def _require_room(self, path: PurePath, kept: Sequence[int], added: int) -> None:
        journal = self._fs.journal
        before, after = self._pinner.measure(kept), self._pinner.measure([*kept, added])
        most = self._pinner.most
        if after.bytes > most:
            raise HybrisError(
                f"cannot pin {self._shown(path)}: that would be {after.bytes:,} bytes of pinned content",
                f"{before.bytes:,} are pinned already and at most {most:,} may be, "
                f"{SHARE_OF_BUDGET:.0%} of the cache's budget",
                "Pin less, unpin something, or give the cache more room: hybrisfs volume set --cache SIZE.",
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
            found = self._pinner.measure(roots)
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
        """Why pinned content that is missing does not come; None when all is well."""
        return self._pinner.trouble

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
        where = self._shown(PurePath(shown_path(tx, keeper.ino)))
        return f"it is kept because {where} is pinned", "Unpin that folder."

    def evict(self, path: PurePath) -> api.Freed:
        """Drop the local bytes of a file, or of all files in a folder, that the clouds hold."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            pinned, copied = self._fs.pins.roots(tx), self._fs.pins.copied(tx)
        self._committer.commit_now()
        with self._fs.state.snapshot() as snapshot:
            tree, precious = Subtree(snapshot, [inode.ino]), self._fs.pins.precious(snapshot)
            copied += {ino for ino, parent in tree.files() if precious.has(ino, parent)} if precious else ()
            kept = Subtree(snapshot, [*pinned, *copied], "kept")
            numbers, pending = tree.evictable(kept), tree.staged()
            pinned_bytes = tree.shared_with(Subtree(snapshot, pinned, "pinned"))
            copies_bytes = tree.shared_with(kept) - pinned_bytes
        freed = self._room.evict_chunks(numbers)
        return api.Freed(freed, pending, pinned_bytes, copies_bytes)

    def pins(self) -> list[api.Pin]:
        """What is pinned itself."""
        with self._fs.state.transaction() as tx:
            self._fs.pins.follow(tx)
            named = {ino: PurePath(shown_path(tx, ino)) for ino in self._fs.pins.roots(tx)}
        self._committer.commit_now()
        return [
            extended(api.Pin, _described(self._pinner.measure([ino])), path=str(path))
            for ino, path in named.items()
        ]

    def summary(self) -> PinnedContent:
        """For status: what is pinned, as of the last look."""
        kept = self._pinner.kept
        return PinnedContent(kept.files, kept.bytes, kept.missing, self.trouble)

    # -- paths -----------------------------------------------------------------------------------

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        return node_at(self._fs, tx, path, self._shown(path))


def node_at(fs: FileSystem, tx: Transaction, path: PurePath, name: str) -> Inode:
    """The node at a path, which people know by *name*. Raises HybrisError when there is none."""
    inode = fs.locate(tx, map(os.fsencode, path.parts))
    if inode is None:
        raise HybrisError(f"{name}: {os.strerror(errno.ENOENT)}")
    return inode


def _described(measure: Measure) -> api.Measured:
    return api.Measured(measure.files, measure.bytes, measure.missing)


# -- looking at the files of a volume without a mount: what is in a folder, and what is in a file -------


_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Browsing:
    """Paths are relative to the volume's root. Methods may be called from any thread, without the volume's
    lock; they raise HybrisError or OSError."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, residency: Residency) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._residency = residency

    def folder(self, path: PurePath, after: str, limit: int) -> tuple[list[Entry], bool]:
        """The first *limit* names in a folder that sort behind *after*, by their bytes, and whether others
        follow."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            if not inode.is_directory:
                raise UsageError(f"{shown(str(path))} is not a folder")
            self._fs.flush(tx)
            names = names_in_folder(tx, inode.ino, os.fsencode(after), limit + 1)
            entries = [self._described(tx, *one) for one in names[:limit]]
        return entries, len(names) > limit

    def _described(self, tx: Transaction, name: bytes, ino: int, wanted: bytes | None) -> Entry:
        inode = self._fs.inodes.get(tx, ino)
        return Entry(
            name=os.fsdecode(name),
            kind=_KINDS.get(stat.S_IFMT(inode.mode), "other"),
            size=inode.size,
            modified=inode.mtime / 1e9,
            state=self._state_of(tx, inode),
            pinned=self._fs.pins.standing(tx, inode).value,
            conflict=None if wanted is None else os.fsdecode(wanted),
            labels=self._fs.labels.of(tx, inode),
        )

    def _state_of(self, tx: Transaction, inode: Inode) -> str | None:
        if inode.is_file:
            return self._residency.state(tx, inode).value
        return State.IGNORED.value if self._fs.ignored.covers(tx, inode) else None

    def read(self, path: PurePath, offset: int, length: int) -> tuple[int, bytes]:
        """The size of a file, and a part of it, fetched from the clouds if need be."""
        with self._fs.state.transaction() as tx:
            ino = self._file(tx, path).ino
        while True:
            with self._fs.state.transaction() as tx:
                inode = self._file(tx, path)
                if inode.ino != ino:
                    raise HybrisError(f"{shown(str(path))} was replaced while it was read", "", "Try again.")
                lacking = self._fs.received.lacking(tx, inode)
                data = self._fs.read(tx, inode, offset, length) if lacking is None else lacking
                size = inode.size
            if not isinstance(data, Missing):
                return size, data
            self._fetcher.fetch(data.chunks)

    def contents(self, path: PurePath, length: int) -> Contents:
        """The size of a file, and all of it in pieces of *length* bytes, fetched from the clouds if need be.
        They raise HybrisError when somebody writes to it, and what `read` does."""
        with self._fs.state.transaction() as tx:
            state = self._state(tx, path)
        return Contents(state[-1], self._pieces(path, length, state))

    def _pieces(self, path: PurePath, length: int, state: tuple[int, ...]) -> Iterator[bytes]:
        for offset in range(0, state[-1], length):
            _, data = self.read(path, offset, length)
            with self._fs.state.transaction() as tx:
                if self._state(tx, path) != state:
                    raise HybrisError(f"{shown(str(path))} was changed while it was read", "", "Try again.")
            yield data

    def _state(self, tx: Transaction, path: PurePath) -> tuple[int, ...]:
        """What is another one when somebody has written to the file; its size last."""
        inode = self._file(tx, path)
        return inode.ino, inode.mtime, inode.ctime, inode.size

    def _file(self, tx: Transaction, path: PurePath) -> Inode:
        inode = self._locate(tx, path)
        if not inode.is_file:
            raise UsageError(f"{shown(str(path))} is not a regular file")
        return inode

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        return node_at(self._fs, tx, path, shown(str(path)))


# -- labels of files and folders, by path ---------------------------------------------------------------


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
        """Give labels to what is at a path. Returns the labels that it has then."""
        return self._change(path, words, self._fs.labels.add)

    def remove(self, path: PurePath, words: Sequence[str]) -> list[str]:
        """Take labels from what is at a path. Returns the labels that it has then."""
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
            try:
                with explaining_refusal(read_only=self._fs.read_only):
                    change(tx, inode, wanted)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                where = shown(str(self._mounting.shown(path)))
                why = f"{MOST_LABELS} are the most"
                raise HybrisError(f"{where} would have too many labels", why) from None
            labels = self._fs.labels.of(tx, inode)
        self._committer.commit_now()
        return labels

    def counts(self) -> Mapping[str, int]:
        """How many files and folders have each label."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.counts(tx)

    def find(self, word: str) -> list[PurePath]:
        """The files and folders with a label, ordered by path."""
        wanted = _parsed(word)
        with self._fs.state.transaction() as tx:
            paths = [shown_path(tx, ino) for ino in self._fs.labels.labelled(tx, wanted)]
        return sorted(PurePath(path) for path in paths)

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        return node_at(self._fs, tx, path, shown(str(self._mounting.shown(path))))


def _parsed(word: str) -> str:
    try:
        return parse_label(word)
    except ValueError as error:
        raise UsageError(f"{shown(word)} is not a label", str(error)) from None
