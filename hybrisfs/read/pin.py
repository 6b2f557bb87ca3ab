"""The pinner: brings what is to be kept here and is not here yet.

It looks when something was pinned, when updates of other devices came in, and now and then. What it keeps for
the sake of copies that labels ask for is decided with each look (`hybrisfs.read.copies`). What is missing
is found in a snapshot of the database, so that nobody waits for a look through a large folder.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from msgspec import Struct

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.read.copies import AskedFolder, Copies, Looked
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher, asked_at_once
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.stages import Pause, Signals, Wake
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.database import Snapshot
from hybrisfs.state.pins import Measure, Subtree
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from sync import Hoard, VersionVector

__all__ = ["SHARE_OF_BUDGET", "PinLimits", "Pinner"]

log = logging.getLogger(__name__)

SHARE_OF_BUDGET: Final = 0.8
"""The part of the cache's budget that may be pinned. The rest is for writes and occasional reads."""

_ROOM: Final = 8 << 20  # bytes that a fetch may bring
_LOOK_AHEAD: Final = 16  # pieces of work; before the last ones are done it is seen what has come to be wanted
_LOOK_EVERY: Final = 30.0
_RETRY_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 8  # then the round ends: the clouds are probably out of reach
_COMMITTED_SECONDS: Final = 2.0  # within which what is done now is committed


class _Piece(Struct, frozen=True):
    """Work for one fetcher: inodes of files whose lists of chunks it brings, or numbers of chunks."""

    bring: Callable[[], None]
    files: Sequence[int] = ()
    chunks: Sequence[int] = ()


class PinLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    fetchers: int = 4
    slice_chunks: int = 64
    """How many one fetcher brings in a row, so that reading ahead pays."""
    commit_every: float = 0.25
    """Seconds, at most."""
    looking_share: float = 10.0
    """At most one part in so many of the time is spent on looking."""


class Pinner:
    """A stage that finds what is missing, and a few threads that fetch it."""

    def __init__(
        self,
        fs: FileSystem,
        fetcher: Fetcher,
        room: Evictor,
        copies: Copies,
        signals: Signals,
        committer: Committer,
    ) -> None:
        self._limits = fs.environment.limits.of(PinLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._committer = committer
        self._may_commit_at = 0.0
        self._fetcher = fetcher
        self._room = room
        self._copies = copies
        self._signals = signals
        self._trouble: str | None = None
        self._guard = threading.Lock()
        self._failures = self._fetched = 0  # in this round
        self._room_left = 0  # bytes that this round may bring
        self._stale = False  # the last look saw only what had been committed
        self._look_after = 0.0  # when the next look may be
        self._in_vain: set[int] = set()  # chunks that this round could not have
        self.kept = Measure(0, 0, 0)
        """What was pinned, and how much of it was missing, at the last look."""

    @property
    def trouble(self) -> str | None:
        """Why something that is missing does not come, for people; None when all is well."""
        return "transfers with the clouds are paused" if self._signals.transfers_paused else self._trouble

    def step(self) -> Pause:
        """Bring what is missing. Returns how long the next look can wait if no request comes before."""
        complete = self.pin_round()
        rest = min(max(0.0, self._look_after - self._monotonic()), _LOOK_EVERY)
        wait = _RETRY_SECONDS if not complete else _COMMITTED_SECONDS if self._stale else _LOOK_EVERY
        return Pause(rest + wait, least=rest)

    def pin_round(self) -> bool:
        """Bring what is missing, also what becomes missing during the round; False when something was not
        available."""
        self._failures = self._fetched = 0
        self._in_vain.clear()
        with ThreadPoolExecutor(self._limits.fetchers, thread_name_prefix="pin") as pool:
            under_way: deque[tuple[Future[None], _Piece]] = deque()

            def look() -> None:
                for piece in self._look([piece for _, piece in under_way]):
                    under_way.append((pool.submit(self._guarded, piece.bring), piece))

            look()
            while under_way:
                under_way.popleft()[0].result()
                if len(under_way) < _LOOK_AHEAD and self._may_look() and self._signals.take(Wake.CONTENT):
                    look()
        if self._fetched and not self._failures:
            self._signals.content_wanted()  # more may be known to be missing now
        if not self._failures:
            self._trouble = None
        return not self._failures

    def _may_look(self) -> bool:
        return self._monotonic() >= self._look_after and not self._is_hopeless()

    def _look(self, under_way: Sequence[_Piece]) -> list[_Piece]:
        """Find what is missing, except what is under way or was tried in vain in this round."""
        self._commit_news()
        begun = self._monotonic()
        self._decide()
        with self._fs.state.transaction() as tx:
            self._stale = self._fs.is_uncommitted(tx)
            rules = list(self._fs.ignored.unread_files)
            if not (self._fs.pins or rules):
                self.kept = Measure(0, 0, 0)
                self._looked_since(begun)
                return []
            self._fs.pins.follow(tx)
            roots = [*self._fs.pins.roots(tx), *self._fs.pins.copied(tx)]
        with self._fs.state.snapshot() as snapshot:
            tree = Subtree(snapshot, roots)
            self.kept = tree.measure()
            missing, unlisted = tree.missing(), tree.unlisted()
            if rules:
                wanted_rules = Subtree(snapshot, rules, "rules")
                missing, unlisted = wanted_rules.missing() + missing, wanted_rules.unlisted() + unlisted
        self._looked_since(begun)
        with self._guard:
            self._room_left = self.most - (self.kept.bytes - self.kept.missing)
        if self._room_left < 0:
            self._fail(f"more is pinned than {SHARE_OF_BUDGET:.0%} of the cache's budget", hopeless=True)
        listed = {one for piece in under_way for one in piece.files}
        handed_out = self._in_vain.union(*(piece.chunks for piece in under_way))
        wanted = [one for one in missing if one not in handed_out] if handed_out else missing
        size = self._limits.slice_chunks
        slices = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        return [
            *(_Piece(partial(self._list, ino), files=(ino,)) for ino in unlisted if ino not in listed),
            *(_Piece(partial(self._keep_all, one), chunks=one) for one in slices),
        ]

    def _looked_since(self, begun: float) -> None:
        now = self._monotonic()
        self._look_after = begun + self._limits.looking_share * (now - begun)

    def _decide(self) -> None:
        """Look how the folders are for whose copies labels ask, and decide what of them is kept here."""
        with self._fs.state.transaction() as tx:
            if not self._copies.asked_for(tx) and not self._copies.is_busy:
                return
        try:
            with self._consistent() as ((folders, roots, vector), snapshot):
                wanted = {one.node: one.ino for one in folders}
                if self._copies.hoard is Hoard.ALL:
                    wanted[ROOT_ID] = ROOT_INO
                measures = {
                    node: Subtree(snapshot, [ino], f"asked{number}").measure()
                    for number, (node, ino) in enumerate(wanted.items())
                }
                pinned = Subtree(snapshot, roots, "pinned").measure().bytes
        except OSError as error:  # the committer meets it, too, and sees to it
            log.debug("what is kept for the sake of copies stays as it was: %s", error)
            return
        with self._fs.state.transaction() as tx:
            self._copies.decide(tx, Looked(folders, measures, pinned, self.most, vector))

    @contextmanager
    def _consistent(
        self,
    ) -> Iterator[tuple[tuple[list[AskedFolder], list[int], VersionVector], Snapshot]]:
        """What labels ask for, what is pinned and the vector of the log, with a snapshot of a tree that has
        all that the vector covers."""

        def look(tx: Transaction) -> tuple[list[AskedFolder], list[int], VersionVector]:
            return self._copies.asked_for(tx), self._fs.pins.roots(tx), tx.updates.state.vector

        self._fs.journal.sync()
        with ExitStack() as reading:
            with self._fs.state.log_transaction():  # no update is in the log and not yet in the tree
                found = reading.enter_context(self._fs.committed(look))
            yield found

    def _commit_news(self) -> None:
        """Commit what other devices have sent, because a snapshot shows committed rows only."""
        now = self._monotonic()
        if not self._signals.brisk or now < self._may_commit_at:
            return
        with self._fs.state.transaction() as tx:
            wanted = self._fs.pins or self._copies.is_busy or self._fs.ignored.unread_files
            if not wanted or not self._fs.is_uncommitted(tx):
                return
        self._may_commit_at = now + self._limits.commit_every
        try:
            self._committer.commit_now()
        except OSError as error:  # the committer meets it, too, and sees to it
            log.debug("what is pinned is looked for among what was committed before: %s", error)

    @property
    def most(self) -> int:
        """Bytes that may be pinned."""
        return int(self._fs.journal.budget * SHARE_OF_BUDGET)

    def measure(self, roots: Sequence[int]) -> Measure:
        """What is at and below these inodes, as committed last."""
        with self._fs.state.snapshot() as snapshot:
            return Subtree(snapshot, roots).measure()

    # -- fetching --------------------------------------------------------------------------------

    def _guarded(self, piece: Callable[[], None]) -> None:
        if not self._is_hopeless():
            try:
                piece()
            except OSError as error:
                self._fail(error.strerror or str(error))

    def _list(self, ino: int) -> None:
        """Find out which chunks a file is made of."""
        while not self._is_hopeless():
            with self._fs.state.transaction() as tx:
                inode = self._fs.inodes.find(tx, ino)
                lacking = self._fs.received.lacking(tx, inode) if inode else None
            if lacking is None:
                return
            for ref in lacking.chunks:
                if not self._fetch(ref):
                    return

    def _keep_all(self, numbers: Sequence[int]) -> None:
        if self._signals.brisk:
            self._bring_from_devices(numbers)
        with self._fs.state.transaction() as tx:
            lacking = [ref.number for ref in tx.chunks.missing(numbers)]
        for number in lacking:
            if self._is_hopeless():
                return
            ref = self._find(number)
            if ref is not None and not ref.is_here and self._fetch(ref):
                ref = self._find(number)
                if ref is not None and not ref.is_here:
                    self._fail("what came could not be kept", hopeless=True)

    def _bring_from_devices(self, numbers: Sequence[int]) -> None:
        """Bring many at once, as far as linked devices have them."""
        with self._fs.state.transaction() as tx:
            missing = tx.chunks.missing(numbers)
        for refs in asked_at_once(missing, self._fetcher.limits.asked_bytes):
            size = sum(ref.length for ref in refs)
            if self._is_hopeless() or self._room_left < size or not self._wait_for_room():
                return
            came = self._fetcher.fetch_from_devices(refs)
            with self._guard:
                self._fetched += came
                self._room_left -= size if came else 0
            if not came:
                return

    def _wait_for_room(self) -> bool:
        return self._room.wait_for_room(min(_ROOM, self._fs.journal.budget // 8))

    def _find(self, number: int) -> ChunkRef | None:
        """The chunk, unless no file shows it any more and it has been dropped."""
        with self._fs.state.transaction() as tx:
            return tx.chunks.get_if_known(number)

    def _fetch(self, ref: ChunkRef) -> bool:
        if ref.is_elsewhere and not self._signals.brisk:
            return False  # it can be had when its maker has told where it is, which is a reason to look again
        with self._guard:
            self._room_left -= ref.length
        if self._room_left < 0:
            self._fail(f"more is pinned than {SHARE_OF_BUDGET:.0%} of the cache's budget", hopeless=True)
            return False
        if not self._wait_for_room():
            self._fail("the cache and the disk have no room for it", hopeless=True)
            return False
        try:
            self._fetcher.fetch_one(ref)
        except ChunkUnavailable as error:
            self._in_vain.add(ref.number)
            self._fail(str(error))
            return False
        with self._guard:
            self._fetched += 1
        return True

    # -- failures --------------------------------------------------------------------------------

    def _is_hopeless(self) -> bool:
        return self._signals.stopping or self._signals.transfers_paused or self._failures >= _MOST_FAILURES

    def _fail(self, why: str, *, hopeless: bool = False) -> None:
        with self._guard:
            self._failures += _MOST_FAILURES if hopeless else 1
            if self._trouble != why:
                log.warning("not all that is pinned is here yet: %s", why)
            self._trouble = why
