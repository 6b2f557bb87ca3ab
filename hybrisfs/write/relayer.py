"""The relayer: does what relaying asks for (`hybrisfs.write.relay`), for the shipper.

Updates are signed by their author and any member can seal segments, so this device makes segments under the
author's name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.signals import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unplaced import Unplaced
from hybrisfs.write.relay import Action, Claim, Forget, Path, Point, Relay, RelayMachine, Seen
from hybrisfs.write.relayable import RelayGate
from sync import NONCE_SIZE, Head, Relayed, SealKeys, SegmentId, encode_segment, segment_name
from sync.own_heads import EarlierHeads
from sync.segment import if_followed

__all__ = ["ChunkFetcher", "CloudsFollowed", "Links", "RelayLimits", "RelaySegment", "Relayer"]

log = logging.getLogger(__name__)

_Row: TypeAlias = tuple[int, bytes, bytes]  # clock, hash and bytes of an update


@dataclass(frozen=True, slots=True)
class RelaySegment:
    """A sealed segment of another device's updates, to be put on the clouds."""

    author: bytes
    first: int
    last: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """See `hybrisfs.environment.Limits`."""

    segment_bytes: int = 1 << 20
    """Of updates that make a segment full."""
    segment_updates: int = 1024
    """At most, in one segment."""


class CloudsFollowed(Protocol):
    """What clouds have shown."""

    def heads(self) -> Mapping[bytes, Head]:
        """The newest heads, by device."""

    def earlier_heads(self) -> EarlierHeads:
        """Of our own head."""


class Links(Protocol):
    """The devices that can be reached directly."""

    def linked(self) -> Collection[bytes]: ...

    def heads(self) -> Mapping[bytes, Head]:
        """By device: its newest head that came over a link."""


class ChunkFetcher(Protocol):
    """What brings chunks here."""

    def fetch_one(self, ref: ChunkRef) -> object:
        """Raises ChunkUnavailable, OSError."""


class Relayer:
    """What is relayed, decided in the transaction that `due` and `done` take. Used by one thread."""

    def __init__(
        self,
        fs: FileSystem,
        signals: Signals,
        segment_keys: SealKeys,
        clouds: CloudsFollowed,
        fetcher: ChunkFetcher,
        links: Links | None = None,
    ) -> None:
        self.limits = fs.environment.limits.of(RelayLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
        self._signals = signals
        self._keys = segment_keys
        self._clouds = clouds
        self._fetcher = fetcher
        self._links = links
        self._unplaced = Unplaced(fs)
        self._gate = RelayGate(fs, signals)
        self._machine = RelayMachine(read_only=fs.read_only)

    @property
    def is_lacking(self) -> bool:
        """See `RelayMachine.is_lacking`."""
        return self._machine.is_lacking

    def due(self, now: float, time_ns: int) -> RelaySegment | None:
        """A segment that should go to the clouds now. *now* is a clock that never goes back, *time_ns* the
        time of day."""
        with self._fs.state.transaction() as tx:
            unplaced = () if self._fs.read_only else self._unplaced.count(tx).devices
            seen = replace(self._seen(), linked=self._linked() if self._signals.flushing else None)
            actions = self._machine.due(tx, seen, unplaced, now, time_ns)
            batch = self._carry_out(tx, actions, now)
            unread, self._gate.unread = self._gate.unread, {}
        for ref in unread.values():
            try:
                self._fetcher.fetch_one(ref)
            except (ChunkUnavailable, OSError) as error:
                log.info("what another device wrote cannot be relayed yet: %s", error)
                self._gate.unreadable.add(ref.number)
        return self._sealed(*batch) if batch is not None else None

    def _seen(self) -> Seen:
        told = self._links.heads() if self._links is not None else {}
        return Seen(self._clouds.heads(), told, self._clouds.earlier_heads())

    def _linked(self) -> Collection[bytes]:
        return self._links.linked() if self._links is not None else ()

    def _carry_out(
        self, tx: Transaction, actions: list[Action], now: float
    ) -> tuple[Path, Point | None, list[_Row]] | None:
        """What is to be sealed."""
        for action in actions:
            match action:
                case Forget(name):
                    tx.segments.forget_relayed(name)
                case Claim(authors, branches):
                    if self._unplaced.claim(tx, authors, branches):
                        self._signals.chunks_made()
                case Relay(path, before, claim, forgo):
                    rows = self._after(tx, path, before.clock if before else 0)
                    count = self._gate.count(tx, [data for _, _, data in rows], claim=claim, forgo=forgo)
                    if count:
                        return path, before, rows[:count]
                    self._machine.held_back(path, now)
        return None

    def done(self, segment: RelaySegment, placement: bytes) -> None:
        """The clouds of *placement* hold the segment."""
        with self._fs.state.transaction() as tx:
            tx.segments.put_relayed(segment.name, segment.author, len(segment.data), placement)

    # -- what heads and commands ask -------------------------------------------------------------

    def frontier(self, tx: Transaction) -> list[tuple[bytes, int]]:
        """See `RelayMachine.frontier`."""
        return self._machine.frontier(tx)

    def unshipped_authors(
        self, tx: Transaction, through: Collection[tuple[bytes, int]] | None = None
    ) -> set[bytes]:
        """See `RelayMachine.unshipped_authors`."""
        return self._machine.unshipped_authors(tx, self._seen(), through)

    def listed(self, tx: Transaction, earlier_heads: EarlierHeads) -> tuple[Relayed, ...]:
        """What this device's head should name, given the own heads before it."""
        return self._machine.listed(tx, replace(self._seen(), earlier_heads=earlier_heads))

    # -- making segments -------------------------------------------------------------------------

    def _sealed(self, path: Path, before: Point | None, rows: list[_Row]) -> RelaySegment:
        (first, _, _), (last, identity, _) = rows[0], rows[-1]
        name = segment_name(path.author, SegmentId.of(first, identity))
        previous = if_followed(before.segment if before else None, rows[0][2])
        sealed = encode_segment(
            [data for _, _, data in rows], previous, self._keys, self._random_bytes(NONCE_SIZE)
        )
        return RelaySegment(path.author, first, last, name, sealed)

    def _after(self, tx: Transaction, path: Path, above: int) -> list[_Row]:
        """The next updates of *path* that are not bare, as many as a segment takes."""
        found: list[_Row] = []
        size = 0
        for clock, identity, data in tx.updates.after(path.steps, above):
            size += len(data or b"")
            full = size > self.limits.segment_bytes or len(found) == self.limits.segment_updates
            if found and (full or data is None):
                break
            if data is not None:
                found.append((clock, identity, data))
        return found
