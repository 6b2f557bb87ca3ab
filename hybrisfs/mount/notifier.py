"""Notifies the kernel, and programs that watch, of changes by other devices.

A thread of its own does it: the kernel may hold a notice back until a handler has returned, so no handler,
and no thread that holds a lock which a handler takes, may give it. First the kernel drops what is stale, so
that no program gets it any more; then events are raised for directories that the kernel knows, see
`mount.echo`.

Programs must not see an update in part. If the kernel were notified only afterwards, a program could before
that look up one name as it is, and be served another one as it was. So it forgets what is about to change
*before* that, and keeps no answer until it has got all notices (`upcoming`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import stat
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from hybrisfs import fuse
from hybrisfs.environment import Environment
from hybrisfs.mount.adapter import Adapter
from hybrisfs.mount.echo import HIDDEN_INO, HIDDEN_NAME, Found
from hybrisfs.mount.hand import Hand
from hybrisfs.state.shown_nodes import names_of, path_of
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unseen import Aspect, Change

__all__ = ["MOST_WAITING", "Notifier"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 5.0
_TOGETHER: Final = 128  # arrivals that the hand gets at once
_MOST_PLACES: Final = 16
_OF_PAGES: Final = frozenset((Aspect.CONTENT, Aspect.ATTRIBUTES))
"""Changes after which the kernel reads a file again."""


class _Notice(NamedTuple):
    """What has changed, how many of the changes that were upcoming are over with that, and what has changed
    that the kernel knows of."""

    changes: list[Change]
    over: int = 0
    told: tuple[Change, ...] = ()


class _Name(NamedTuple):
    """A name in a directory, by the directory's number."""

    parent: int
    name: bytes


class _Step(NamedTuple):
    """A node that has come to have a name; `old` is the one that it had in a directory which is watched. It
    has lost that when there is no other."""

    name: _Name | None
    ino: int
    mode: int
    old: _Name | None = None


class _Named:
    """What events have been raised for."""

    def __init__(self) -> None:
        self.names: set[_Name] = set()
        """Those that nodes have moved to."""
        self.nodes: dict[int, bool] = {}
        """Of each that has a name: whether something was there before."""


class Notifier:
    """One thread per mount, from construction to `stop`."""

    def __init__(self, session: fuse.MountedSession, adapter: Adapter, fs: FileSystem) -> None:
        self._session = session
        self._adapter = adapter
        self._fs = fs
        self._hand = Hand(session.mountpoint, session.device, fs.environment.start)
        self._queue: SimpleQueue[_Notice | None] = SimpleQueue()
        self._pages = Pages(self, fs.environment)
        self._working = threading.Lock()
        self._forgetting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def notify(self, changes: Iterable[Change]) -> None:
        """Have the kernel told; returns at once, from any thread."""
        self._queue.put(_Notice(list(changes)))

    @contextlib.contextmanager
    def upcoming(self, changes: Iterable[Change]) -> Iterator[None]:
        """The view changes while the block lasts, presumably like that; `notify` is called within it. The
        caller holds no lock that a handler takes."""
        self._adapter.begin_change()
        try:
            with self._forgetting:
                self._forget(changes)
            yield
        finally:
            self._queue.put(_Notice([], over=1))

    def _forget(self, changes: Iterable[Change]) -> None:
        try:
            for ino, name, *_ in changes:
                if name is None:
                    self._session.notify_inval_inode(ino, offset=-1)
                elif self._adapter.knows(ino):
                    self._session.notify_inval_entry(ino, name)
        except fuse.FuseError as error:
            log.debug("the kernel was not told of upcoming changes: %s", error)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """While the block lasts nothing is done with the mount, which could not be unmounted then."""
        with self._working, self._forgetting:
            yield

    def stop(self) -> None:
        """End the thread; pending notices are of no use any more."""
        self._queue.put(None)
        self._pages.stop()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._hand.close()

    def _serve(self) -> None:
        while (notice := self._queue.get()) is not None:
            changes, over, told = notice
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    return
                changes += more.changes
                over += more.over
                told += more.told
            with self._working:
                try:
                    try:
                        self._drop_stale(changes)
                    finally:
                        for _ in range(over):
                            self._adapter.end_change()
                    self._raise_events([*changes, *told])
                except fuse.FuseError as error:
                    log.debug("the kernel was not told of changes: %s", error)

    def _drop_stale(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        with self._fs.state.transaction():
            nodes = [self._fs.inodes.cached(change.ino) for change in changes if change.name is None]
            files = {inode.ino for inode in nodes if inode is not None and inode.is_file}
        changed = {change.ino: None for change in changes if change.aspect in _OF_PAGES}
        for ino, name in dict.fromkeys((change.ino, change.name) for change in changes):
            if name is not None:
                self._session.notify_inval_entry(ino, name)
            else:
                # The pages of a file come last, and nothing waits for them: a program may be reading them.
                self._session.notify_inval_inode(ino, offset=-1 if ino in files else 0)
        self._pages.drop([ino for ino in changed if ino in files])

    def drop_pages(self, ino: int) -> None:
        with contextlib.suppress(fuse.FuseError):  # nothing is mounted any more
            self._session.notify_inval_inode(ino)

    def dropped_late(self, ino: int) -> None:
        """Programs that watch the file get an event now: any look at it would have waited for the read,
        too."""
        self._queue.put(_Notice([], told=(Change(ino, aspect=Aspect.CONTENT),)))

    # -- events ----------------------------------------------------------------------------------

    def _raise_events(self, changes: Iterable[Change]) -> None:
        """Events for each name that is another node's now, and for each node that has changed."""
        gone: dict[_Name, tuple[int, int]] = {}
        names: dict[_Name, None] = {}
        aspects: dict[int, set[Aspect]] = {}
        for change in changes:
            if change.name is None:
                aspects.setdefault(change.ino, set()).add(change.aspect)
            elif self._adapter.knows(change.ino):
                names[_Name(change.ino, change.name)] = None
                if change.gone is not None:
                    gone.setdefault(_Name(change.ino, change.name), change.gone)
        named = _Named()
        for parent, steps in groupby(self._steps(names, gone, named), _arrives_in):
            if parent is not None:
                self._arrive(parent, list(steps))
                continue
            for step in steps:
                with _left_out("a name"):
                    self._take_away(step)
        late = self._pages.late
        for ino, changed in aspects.items():
            if ino in late:
                continue
            if ino in named.nodes:
                changed &= {Aspect.CONTENT} if named.nodes[ino] else set()
            if changed:
                with _left_out("a node"):
                    self._node_changed(ino, changed)

    def _steps(
        self, names: Collection[_Name], gone: Mapping[_Name, tuple[int, int]], named: _Named
    ) -> Iterator[_Step]:
        """What is to be repeated, in order; the names and nodes that this shows are added to *named*."""
        for name in names:
            with self._fs.state.transaction() as tx:
                inode = self._fs.lookup(tx, *name)
                now = None if inode is None else (inode.ino, inode.mode)
                places = self._places_of(tx, gone[name][0]) if now is None and name in gone else []
            if now is not None:
                before = gone.get(name)
                is_shown = name in named.names or (stat.S_ISDIR(now[1]) and now[0] in named.nodes)
                named.nodes.setdefault(now[0], before is not None)
                if not is_shown and (before is None or before[0] != now[0]):
                    yield _Step(name, *now)
            elif name in gone:
                ino, mode = gone[name]
                moved_to = next((at for at in places if at in names and at not in named.names), None)
                if moved_to is not None:
                    named.names.add(moved_to)
                    named.nodes[ino] = True
                if moved_to is not None or not places or not stat.S_ISDIR(mode):
                    yield _Step(moved_to, ino, mode, name)

    def _places_of(self, tx: Transaction, ino: int) -> list[_Name]:
        """Where the node is shown; some of the places when there are very many."""
        return [_Name(*one) for one in names_of(tx, ino, _MOST_PLACES)]

    def _arrive(self, parent: int, steps: Sequence[_Step]) -> None:
        """Let nodes appear in a directory, many at a time."""
        for start in range(0, len(steps), _TOGETHER):
            found: dict[tuple[int, bytes], Found] = {}
            arrivals: list[tuple[int, bytes, int]] = []
            for step in steps[start : start + _TOGETHER]:
                assert step.name is not None
                found[step.name] = fuse.Entry.negative(0.0)
                if stat.S_ISDIR(step.mode):
                    # The kernel shows a folder in one place only: a program that looks it up while it were in
                    # another, and something is being moved, would get ESTALE.
                    found[HIDDEN_INO, b"%d" % step.ino] = self._adapter.echoes.ghost(stat.S_IFDIR | 0o700)
                arrivals.append((step.ino, step.name.name, step.mode))
            with _left_out("names"), self._making(found):
                self._hand.arrive(HIDDEN_NAME, self._path(parent), arrivals)

    def _take_away(self, step: _Step) -> None:
        """Move a name to another, or remove it."""
        assert step.old is not None
        source = self._path(step.old.parent)
        if step.name is not None:
            target = self._path(step.name.parent)
            found: dict[tuple[int, bytes], Found] = {
                step.old: step.ino,
                step.name: fuse.Entry.negative(0.0),
            }
            try:
                with self._making(found):
                    self._hand.rename(source, step.old.name, target, step.name.name)
            except OSError as error:
                if error.errno != errno.ESTALE or not stat.S_ISDIR(step.mode):
                    raise
                # A program has found it under its new name, and the kernel shows it nowhere else.
                found[step.old] = self._adapter.echoes.ghost(stat.S_IFDIR | 0o700)
                with self._making(found):
                    self._hand.rename(source, step.old.name, target, step.name.name)
            return
        with self._making({step.old: self._adapter.echoes.ghost(step.mode)}):
            remove = self._hand.rmdir if stat.S_ISDIR(step.mode) else self._hand.unlink
            remove(source, step.old.name)

    def _node_changed(self, ino: int, changed: Collection[Aspect]) -> None:
        """Raise events for programs that watch a file: it was written, or has other attributes."""
        with self._fs.state.transaction() as tx:
            places = self._places_of(tx, ino)
            inode = self._fs.inodes.cached(ino)
            if not places or inode is None or not self._adapter.knows(places[-1].parent):
                return
            is_written, size = inode.is_file and Aspect.CONTENT in changed, inode.size
        place, directory = places[-1], self._path(places[-1].parent)
        with self._making({}):
            if is_written:
                try:
                    self._hand.write(directory, place.name, size)
                except OSError as error:  # this user may not write to it
                    log.debug("a file is not shown as written: %s", error)
                    is_written = False
            if not is_written or Aspect.ATTRIBUTES in changed:
                self._hand.touch(directory, place.name)

    # -- ways into the mount ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _making(self, found: dict[tuple[int, bytes], Found]) -> Iterator[None]:
        with self._adapter.echoes.making(self._hand.pid, found):
            # The hand is to ask for these: the kernel may have heard of them since they were dropped. Were a
            # folder there that it knows, it would take it for replaced, and let no program into it any more.
            for directory, name in found:
                if directory != HIDDEN_INO:
                    self._session.notify_inval_entry(directory, name)
            yield

    def _path(self, ino: int) -> bytes:
        """The path of a directory within the mount. Raises FileNotFoundError."""
        with self._fs.state.transaction() as tx:
            path = path_of(tx, ino)
        if path is None:
            raise FileNotFoundError(ino)
        return path


def _arrives_in(step: _Step) -> int | None:
    """The directory in which the node has just appeared, None when it had a name before."""
    return step.name.parent if step.name is not None and step.old is None else None


@contextlib.contextmanager
def _left_out(what: str) -> Iterator[None]:
    """The directory may be gone, too, or closed to this user."""
    try:
        yield
    except OSError as error:
        log.debug("no event was raised for %s: %s", what, error)


# -- has the kernel drop the pages that it keeps of files -----------------------------------------------
# For that it waits for pages that are being read, and a read may wait for a cloud that does not answer. So
# this is done by threads: when one does not come back in a moment, another goes on with the other files.


MOST_WAITING: Final = 8
"""Files with slow reads that are waited for side by side; further ones wait for these."""
_MOMENT: Final = 0.05  # seconds without any progress, after which a thread counts as one that waits


class Kernel(Protocol):
    """The kernel's caches of one mount."""

    def drop_pages(self, ino: int, /) -> None:
        """Have the pages of a file dropped; that waits for reads of it that are under way."""

    def dropped_late(self, ino: int, /) -> None:
        """The pages of a file are gone that `drop` has not waited for."""


class Pages:
    """Has *kernel* drop the pages of files, by their numbers, in threads of its own. Thread-safe."""

    def __init__(self, kernel: Kernel, environment: Environment) -> None:
        self._kernel = kernel
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._condition = threading.Condition()
        self._due: deque[int] = deque()
        self._left: Counter[int] = Counter()  # how often each is due, or being dropped
        self._late: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._progress = self._monotonic()
        self._stopping = False

    @property
    def late(self) -> frozenset[int]:
        """The files of which the kernel has pages still that it is to drop."""
        with self._condition:
            return frozenset(self._late)

    def drop(self, files: Collection[int]) -> None:
        """Have the pages of these files dropped; returns when that is done, but for files with slow reads."""
        with self._condition:
            self._due.extend(files)
            self._left.update(files)
            if files and not self._threads:
                self._begin()
            self._progress = self._monotonic()
            self._condition.notify_all()
            while not self._is_over(files):
                self._wait(self._condition, lambda: self._is_over(files), _MOMENT)
                if self._monotonic() - self._progress < _MOMENT:
                    continue
                if not self._due or len(self._threads) >= MOST_WAITING:
                    break
                self._begin()
                self._progress = self._monotonic()
            self._late.update(one for one in files if one in self._left)

    def _is_over(self, files: Collection[int]) -> bool:
        return self._stopping or not any(one in self._left for one in files)

    def stop(self) -> None:
        """End the threads; those that wait for the kernel are waited for no longer than some seconds."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        deadline = self._monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._monotonic()))

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="notify-pages", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (ino := self._next()) is not None:
            try:
                self._kernel.drop_pages(ino)
            finally:
                if self._done(ino):
                    self._kernel.dropped_late(ino)

    def _next(self) -> int | None:
        with self._condition:
            self._condition.wait_for(lambda: self._due or self._stopping)
            return None if self._stopping else self._due.popleft()

    def _done(self, ino: int) -> bool:
        """Whether a callback is due when the last of its pages are gone."""
        with self._condition:
            self._left[ino] -= 1
            self._progress = self._monotonic()
            self._condition.notify_all()
            if self._left[ino]:
                return False
            del self._left[ino]
            is_late = ino in self._late
            self._late.discard(ino)
            return is_late
