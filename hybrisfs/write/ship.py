"""The shipper: puts the log of signed updates on the clouds, in sealed segments.

Data goes before the metadata that names it: an update is shipped when every chunk it names is in a pack
that the clouds hold. Updates are shipped in order, and only after they are durable on this device.
A segment must be acknowledged by f+k clouds, like the packs it names, and the head that announces it by f+1.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.keyring import KeyRing
from hybrisfs.stages import Signals, Wake
from hybrisfs.state.segments import OwnSegment
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import first_pending
from hybrisfs.topic import Topic
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.relayer import Relayer
from sync import (
    MAX_OWN_TIPS,
    NONCE_SIZE,
    CheckpointId,
    Head,
    Holdings,
    LogOnClouds,
    OwnTip,
    SegmentId,
    StateClaim,
    Statement,
    VersionVector,
    decode_signed_header,
    encode_head,
    encode_segment,
    head_name,
    segment_name,
)
from sync.beacons import EarlierHeads
from sync.segment import if_followed

__all__ = ["HeadSource", "LogClouds", "ShipLimits", "Shipper"]

log = logging.getLogger(__name__)


class _Batch(Struct, frozen=True):
    """Consecutive own updates that may be shipped now, by their clocks."""

    first: int
    last: int
    size: int


class _Shipment(Struct, frozen=True):
    """The segment of one batch. A failed attempt is repeated with the very same bytes, so that a cloud which
    stores the first one late stores nothing else under that name. *on_clouds*: the log on the clouds
    afterwards."""

    batch: _Batch
    name: str
    segment: bytes
    on_clouds: LogOnClouds


class _Said(NamedTuple):
    """What a head says beside how far the log goes."""

    state: StateClaim | None = None
    holdings: Holdings | None = None
    """Without the vector, which is another one after each update."""

    @staticmethod
    def by(state: StateClaim | None, holdings: Holdings | None) -> _Said:
        """What a head with these fields says."""
        return _Said(state, None if holdings is None else replace(holdings, vector=VersionVector()))

    def is_news(self, before: _Said) -> bool:
        """Whether a head is worth while that says this, after one that said *before*."""
        return self.state not in (None, before.state) or self.holdings != before.holdings


class ShipLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    linger_seconds: float = 5.0
    """How long an update waits for others to share its segment, ..."""
    awaited_seconds: float = 0.5
    """... when another device hears of changes through the clouds alone."""
    segment_bytes: int = 4 << 20
    """Of updates that make a segment full."""
    segment_updates: int = 4096
    """At most, in one segment."""
    tell_seconds: float = 20.0
    """Between two heads that go to linked devices though nothing is new."""
    state_seconds: float = 60.0
    """Between two heads that are put only to say what was made of the log, or what is kept here."""
    first_retry: float = 1.0
    """Seconds after which what the clouds did not take is put again, and then twice as many, ..."""
    last_retry: float = 30.0
    """... up to these."""
    relay_pause: float = 5.0
    """Seconds between two looks for what others have not shipped."""


class LogClouds(Protocol):
    """The clouds as the log comes to them."""

    def grant(self) -> None:
        """Make sure that other members can read what is sealed now. Raises CloudsUnavailable."""

    def put_object(self, name: str, data: bytes, /) -> Sequence[int]:
        """Store a small object on f+k clouds. Raises CloudsUnavailable."""

    def put_head(self, name: str, data: bytes, clouds: Collection[int], /) -> None:
        """Store our head on all of these that answer. Raises CloudsUnavailable."""


class HeadSource(Protocol):
    """Tells what heads of this device say, beside how far its log goes."""

    def earlier_heads(self) -> EarlierHeads:
        """The clouds searched since the start, and the heads of this device that they hold. A head must not
        be overwritten before: it may lead to updates that this device wrote before it was restored from a
        backup (`sync.beacons`)."""

    def checkpoints(
        self, tx: Transaction, earlier_heads: EarlierHeads, /
    ) -> tuple[Statement | None, CheckpointId | None]:
        """The checkpoint that this device has stated, and the newest one that it knows."""

    def state(self, tx: Transaction, /) -> StateClaim | None:
        """The state that followed from its log."""

    def holdings(self, tx: Transaction, /) -> Holdings | None:
        """What content this device keeps."""

    def head_put(self, head: Head, /) -> None:
        """The clouds have this head."""


class Shipper:
    """Ships, relays and announces, one round at a time."""

    def __init__(
        self,
        fs: FileSystem,
        signals: Signals,
        committer: Committer,
        ring: KeyRing,
        clouds: LogClouds,
        relayer: Relayer,
        source: HeadSource,
    ) -> None:
        self.limits = fs.environment.limits.of(ShipLimits)
        """They may be others at any moment."""
        self.told = Topic[[bytes]]()
        """Our sealed head, for devices that are linked directly."""
        self._put = _Said()  # what the head on the clouds says
        self._told = _Said()
        self._said_at = float("-inf")  # when a head was put for the sake of that
        self._source = source
        self._serial = 0
        self._relayer = relayer
        self._head_at = 0.0
        self._told_at = 0.0
        self._relay_at = 0.0
        self._unannounced = False  # something was relayed that no head on the clouds names
        self._again = False
        self._fs = fs
        environment = fs.environment
        self._monotonic = environment.monotonic
        self._time_ns = environment.time_ns
        self._random_bytes = environment.random_bytes
        self._signals = signals
        self._committer = committer
        self._device = ring.keys.device
        self._keys = ring.segments
        self._clouds = clouds
        self._waiting_since: float | None = None
        self._shipment: _Shipment | None = None
        self._delay = self.limits.first_retry

    def ship_round(self, *, may_ship: bool) -> None:
        """Ship, relay and announce what is due. *may_ship*: whether the clouds have been looked at since the
        start; otherwise heads go to linked devices only."""
        if self._signals.take(Wake.HEAD):
            self._wanted_again()
        if may_ship:
            if not self._signals.transfers_paused:
                self._ship()
            elif self._again:  # a person or a device waits for it
                self._announce()
        self._tell_devices()

    def _ship(self) -> None:
        while not self._signals.stopping and self._ship_one():
            if self._signals.transfers_paused:
                return
        if self._shipment is None:
            self._relay()
        self._announce()

    def _relay(self) -> None:
        """Ship what other devices wrote and have not brought to the clouds, and say so in our head."""
        if self._monotonic() < self._relay_at:
            return
        self._relay_at = self._monotonic() + self.limits.last_retry  # if it fails
        try:
            while not self._signals.stopping:
                segment = self._relayer.due(self._monotonic(), self._time_ns())
                if segment is None:
                    break
                # What the head will state must never be taken back by a crash.
                self._committer.commit_now()
                placement = bytes(self._clouds.put_object(segment.name, segment.data))
                self._relayer.done(segment, placement)
                self._unannounced = True
                log.info("shipped updates %d to %d of %s", segment.first, segment.last, segment.author.hex())
            if self._unannounced:
                self._put_head()
                self._unannounced = False
        except (CloudsUnavailable, OSError) as error:
            log.warning("what other machines wrote waits for the clouds: %s", error)
            return
        self._relay_at = self._monotonic() + self.limits.relay_pause

    def _announce(self) -> None:
        """Say now and then that this device is alive, though it has nothing to say (Depot 5.3)."""
        now = self._monotonic()
        with self._fs.state.transaction() as tx:
            every = self._fs.labels.announce_seconds(tx)
        due = self._again or now - self._head_at >= every
        if not due and self._signals.awaited and now - self._said_at >= self.limits.state_seconds:
            with self._fs.state.transaction() as tx:
                due = self._says(tx).is_news(self._put)
            self._said_at = now if due else self._said_at
        if not due or self._shipment is not None:
            return
        self._head_at = self._monotonic()  # also when it fails: the next change, or the next time, will do
        try:
            self._put_head()
        except (CloudsUnavailable, OSError) as error:
            log.info("no cloud takes the head: %s", error)
        self._again = False
        self._signals.progressed()

    def announce_again(self, timeout: float) -> bool:
        """Put the head on all clouds again, because one may have lost it; from any thread.

        False when that is not done after *timeout* seconds.
        """
        self._wanted_again()
        self._signals.packed()
        return self._signals.wait_until(lambda: not self._again, self._monotonic() + timeout)

    def _wanted_again(self) -> None:
        self._again = True
        self._told_at = float("-inf")

    def send_offline_beacon(self) -> None:
        """Say that this device goes offline, so that nobody suspects that its changes are withheld.

        Called when the thread has ended. Raises CloudsUnavailable.
        """
        if self._shipment is None and self._head_at:
            self._put_head(offline=True)

    def _put_head(self, on_clouds: LogOnClouds | None = None, *, offline: bool = False) -> None:
        """*on_clouds*: the log on the clouds, if it is longer than the rows of this device say."""
        earlier_heads = self._source.earlier_heads()
        with self._fs.state.transaction() as tx:
            head = replace(
                self._head(tx, on_clouds or tx.segments.on_clouds(), earlier_heads), offline=offline
            )
        # Otherwise it tells nothing.
        if head.on_clouds is not None or head.relayed or head.stated or head.holdings:
            self._committer.commit_now()
            self._clouds.grant()
            self._clouds.put_head(head_name(self._device.device_id), self._sealed(head), earlier_heads.clouds)
            self._head_at = self._monotonic()
            self._put = _Said.by(head.state, head.holdings)
            self._source.head_put(head)

    def _tell_devices(self) -> None:
        """Let devices that are linked directly know where this one stands."""
        with self._fs.state.transaction() as tx:
            said = self._says(tx)
            every = min(self.limits.tell_seconds, self._fs.labels.announce_seconds(tx))
        if not said.is_news(self._told) and self._monotonic() - self._told_at < every:
            return
        self._told_at, self._told = self._monotonic(), said
        with self._fs.state.transaction() as tx:
            head = self._head(tx, tx.segments.on_clouds(), self._source.earlier_heads())
        if head.own or head.stated or head.state or head.holdings:
            self._committer.commit_now()
            self.told(self._sealed(head))

    def _sealed(self, head: Head) -> bytes:
        return encode_head(head, self._device, self._keys, self._random_bytes(NONCE_SIZE))

    def _ship_one(self) -> bool:
        """Ship a batch if one is due; False when there is nothing more to do now."""
        try:
            if self._shipment is None:
                batch = self._shippable()
                if batch is None or not self._due(batch):
                    return False
                self._shipment = self._prepare(batch)
            self._send(self._shipment)
        except (CloudsUnavailable, OSError) as error:
            log.warning("the log waits for the clouds: %s", error)
            self._signals.wait_to_retry(self._delay)
            self._delay = min(self._delay * 2, self.limits.last_retry)
            return False
        self._shipment = None
        self._delay = self.limits.first_retry
        self._waiting_since = None
        self._signals.progressed()
        return True

    def _due(self, batch: _Batch) -> bool:
        now = self._monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            self._signals.flushing
            or batch.size >= self.limits.segment_bytes
            or now - self._waiting_since
            >= (self.limits.awaited_seconds if self._signals.awaited else self.limits.linger_seconds)
        )

    def _shippable(self) -> _Batch | None:
        with self._fs.state.transaction() as tx:
            lowest = self._lowest_pending(tx)
            rows = tx.updates.own_after(tx.shipped_clock(), self.limits.segment_updates)
            size = last = 0
            for clock, chunk_high, length in rows:
                if (lowest is not None and chunk_high >= lowest) or (
                    last and size + length > self.limits.segment_bytes
                ):
                    break
                size += length
                last = clock
            if last:
                tx.updates.go_on_through(last)
        return _Batch(rows[0][0], last, size) if last else None

    def _lowest_pending(self, tx: Transaction) -> int | None:
        """The first chunk that may still come to the clouds; neither lost ones nor deferred ones hold
        anything up. None for a reader,
        because other devices can get its chunks over a link. None for a suspended device: it cannot sign
        where chunks are, and its plea has to reach the members that can veto."""
        if self._fs.read_only or tx.is_suspended():
            return None
        return first_pending(tx, but=tx.chunks.lost | tx.chunks.deferred.keys())

    def _prepare(self, batch: _Batch) -> _Shipment:
        with self._fs.state.transaction() as tx:
            updates = tx.updates.own_between(batch.first, batch.last)
            identity = SegmentId.of(batch.first, decode_signed_header(updates[-1]).hash)
            before = tx.segments.on_clouds()
            previous = self._followed_by(updates[0], before)
        # What the segment holds must never be taken back by a crash.
        self._committer.commit_now()
        return _Shipment(
            batch,
            segment_name(self._device.device_id, identity),
            encode_segment(updates, previous, self._keys, self._random_bytes(NONCE_SIZE)),
            LogOnClouds(before.segments + 1 if before else 1, identity, batch.last),
        )

    def _followed_by(self, update: bytes, before: LogOnClouds | None) -> SegmentId | None:
        """The own segment that ends where *update* continues. After a checkpoint was taken in, only our
        earlier heads may name it."""
        own = self._device.device_id
        segments = [one.segment for one in self._source.earlier_heads().segments if one.author == own]
        followed = (if_followed(one, update) for one in (*([before.newest] if before else ()), *segments))
        return next((one for one in followed if one is not None), None)

    def _head(self, tx: Transaction, on_clouds: LogOnClouds | None, earlier_heads: EarlierHeads) -> Head:
        state, now_ns = tx.updates.state, self._time_ns()
        self._serial = max(earlier_heads.serial + 1, self._serial + 1, now_ns)
        tips = [OwnTip(tip.clock, tip.hash) for tip in tx.updates.own_tips()[:MAX_OWN_TIPS]]
        stated, checkpoint = self._source.checkpoints(tx, earlier_heads)
        return Head(
            state.volume,
            self._device.device_id,
            self._serial,
            now_ns,
            state.vector,
            tuple(tips),
            on_clouds,
            relayed=self._relayer.listed(tx, earlier_heads),
            stated=stated,
            checkpoint=checkpoint,
            state=self._source.state(tx),
            holdings=self._source.holdings(tx),
        )

    def _says(self, tx: Transaction) -> _Said:
        return _Said.by(self._source.state(tx), self._source.holdings(tx))

    def _send(self, shipment: _Shipment) -> None:
        self._clouds.grant()
        placement = bytes(self._clouds.put_object(shipment.name, shipment.segment))
        self._put_head(shipment.on_clouds)
        self._told_at = float("-inf")  # who is linked is to know that it is there
        batch = shipment.batch
        with self._fs.state.transaction() as tx:
            segment = OwnSegment(batch.first, batch.last, shipment.name, placement)
            tx.segments.put(segment, len(shipment.segment))
            tx.pending.ship(batch.last)
        log.debug("shipped updates %d to %d", batch.first, batch.last)
