"""The parts of an open volume, in the order in which it opens: each is made from earlier ones.

    LocalParts -> Ground -> Clouds -> Reading -> Checkpointing -> Publishing, Shipping -> Writing

The functions take `LocalParts` (`hybrisfs.local_parts`), and clouds as protocols: a volume
(`hybrisfs.volume.opening`), the tests' rig and the devices of the simulator open by the same ones. What works
on a volume takes those records that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from msgspec import Struct

from hybrisfs.checkpoint.checkpointer import Checkpointer
from hybrisfs.checkpoint.compaction import CloudCheckpoint, Compactor
from hybrisfs.checkpoint.deposit import CloudObjects, CloudStore, Depositor, Fetching, LinkedDevices
from hybrisfs.checkpoint.intake import Intake
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.dispersal.engine import Engine, Marker
from hybrisfs.dispersal.pack import PackClouds
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.exchange.following import Following
from hybrisfs.exchange.peering import Links
from hybrisfs.home import Home
from hybrisfs.kv.opening import KeyValues
from hybrisfs.local_parts import LocalParts
from hybrisfs.read.copies import Copies
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.read.pin import Pinner
from hybrisfs.receive.pull import Puller
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.settings.settings import Settings
from hybrisfs.settings.transfers import Transfers
from hybrisfs.sharing.agreement import Agreement
from hybrisfs.stages import IDLE, Pause
from hybrisfs.state.state import Transaction
from hybrisfs.tree.residency import CloudHealth, Residency
from hybrisfs.write.chunk import Chunker
from hybrisfs.write.grants import Grants
from hybrisfs.write.pack import DEFERRED_IN_FLIGHT, IN_FLIGHT, Packer, PackMaker
from hybrisfs.write.publish import Publisher
from hybrisfs.write.relayer import CloudsFollowed, Relayer, Uploads
from hybrisfs.write.ship import HeadSource, LogClouds, Shipper
from sync import CheckpointId, Head, Holdings, StateClaim, Statement
from sync.beacons import EarlierHeads

__all__ = [
    "Checkpointing",
    "Clouds",
    "Ground",
    "HeadSources",
    "Publishing",
    "Reading",
    "Shipping",
    "Writing",
    "open_checkpointing",
    "open_publishing",
    "open_reading",
    "open_shipping",
]

_HEAD_SECONDS: Final = 30.0
_SHIP_REST: Final = 0.1  # seconds: updates can come by the hundred, and wait for each other anyway


class Ground(LocalParts, frozen=True):
    """The local parts of a volume that has settings and keys on this disk."""

    home: Home
    settings: Settings
    folder: Path
    """Of the volume's state."""
    sealer: Sealer
    tables: TableSealer

    @property
    def config(self) -> VolumeConfig:
        """As it is now."""
        return self.settings.config

    @property
    def name(self) -> str:
        return self.settings.config.name


class Clouds(Struct, frozen=True):
    """The clouds, and what uses them without the tree."""

    ground: Ground
    engine: Engine
    marker: Marker
    packs: PackMaker
    grants: Grants
    key_values: KeyValues
    transfers: Transfers

    def copies(self) -> int:
        """On how many clouds small objects are kept."""
        return self.ground.config.f + self.ground.config.k

    def can_upload(self) -> bool:
        """Whether enough clouds are well for anything to leave this device."""
        if self.ground.signals.transfers_paused:
            return False
        return self.can_take(self.engine.in_use, self.copies())

    def can_take(self, among: Collection[int], shares: int) -> bool:
        """Whether so many of these clouds are well enough to take something."""
        usable = [one for one in self.engine.health() if one.number in among]
        return sum(one.state in ("ok", "slow", "lying") for one in usable) >= shares

    # As the log comes to them, see `ship.LogClouds`.

    def grant(self) -> None:
        self.grants.ensure()

    def put_object(self, name: str, data: bytes) -> tuple[int, ...]:
        return self.engine.put_object(name, data, self.copies())

    def put_head(self, name: str, data: bytes, clouds: Collection[int]) -> None:
        self.engine.put_everywhere(name, data, clouds)
        with self.ground.fs.state.transaction() as tx:
            # Also those that have acknowledged an earlier one late. Never before: they would be accused.
            tx.segments.head_acknowledged(self.engine.upkeep.holders(name), among=self.engine.numbers)


class Reading(Struct, frozen=True):
    """The way of content to this device."""

    links: Links
    fetcher: Fetcher
    room: Evictor
    copies: Copies
    pinner: Pinner
    residency: Residency


def open_reading(local: LocalParts, packs: PackClouds, clouds: CloudHealth, links: Links) -> Reading:
    fs, signals, committer = local.fs, local.signals, local.committer
    fetcher = Fetcher(fs, packs, signals, links)
    room = Evictor(fs, committer, signals, clouds)
    copies = Copies(fs)
    pinner = Pinner(fs, fetcher, room, copies, signals, committer)
    return Reading(links, fetcher, room, copies, pinner, Residency(fs, clouds, copies))


class Checkpointing(Struct, frozen=True):
    """Checkpoints: here, from other devices, and on the clouds."""

    checkpointer: Checkpointer
    fetching: Fetching
    compactor: Compactor
    depositor: Depositor


def open_checkpointing(
    local: LocalParts,
    snapshots: LocalSnapshots,
    store: CloudStore,
    clouds: CloudObjects,
    links: LinkedDevices,
) -> Checkpointing:
    """They are put into *store*, and fetched from *links* and *clouds*."""
    fs, sharing, keys = local.fs, local.sharing, local.ring.segments
    fetching = Fetching(sharing.volume, keys, snapshots, clouds, links)
    depositor = Depositor(sharing.volume, keys, snapshots, store)
    compactor = Compactor(fs, sharing.device, store, local.committer, local.signals)
    cloud_checkpoint = CloudCheckpoint(fs, snapshots, fetching, depositor, compactor)
    intake = Intake(fs, sharing.arrivals, snapshots, fetching)
    intake.taken_in.listen(sharing.checkpoint_taken_in)
    key = local.ring.keys.device
    checkpointer = Checkpointer(fs, sharing.volume, key, snapshots, intake, cloud_checkpoint)
    return Checkpointing(checkpointer, fetching, compactor, depositor)


class Publishing(Struct, frozen=True):
    """The way of what programs change into the log, and of its bytes to the clouds."""

    publisher: Publisher
    packer: Packer
    deferred_packer: Packer


def open_publishing(
    local: LocalParts,
    chunker: Chunker,
    fetcher: Fetcher,
    packs: PackMaker,
    uploaders: Callable[[int], Executor],
) -> Publishing:
    """*uploaders*: makes what sends so many packs at a time."""
    fs, signals, sharing = local.fs, local.signals, local.sharing
    return Publishing(
        Publisher(fs, chunker, sharing.signer, sharing.receiver, signals),
        Packer(fs, sharing.signer, signals, packs, fetcher, uploaders(IN_FLIGHT)),
        Packer(fs, sharing.signer, signals, packs, fetcher, uploaders(DEFERRED_IN_FLIGHT), deferred=True),
    )


class Shipping(Struct, frozen=True):
    """The way of the log to the clouds."""

    relayer: Relayer
    uploads: Uploads
    shipper: Shipper


def open_shipping(
    local: LocalParts,
    fetcher: Fetcher,
    links: Links,
    clouds: LogClouds,
    followed: CloudsFollowed,
    source: HeadSource,
) -> Shipping:
    """To *clouds*; *source* tells what heads say, *followed* what others have brought there."""
    fs, signals = local.fs, local.signals
    relayer = Relayer(fs, signals, local.ring.segments, followed, fetcher, links)
    shipper = Shipper(fs, signals, local.committer, local.ring, clouds, relayer, source)
    shipper.told.listen(links.announce)
    return Shipping(relayer, Uploads(fs, signals, relayer, fetcher), shipper)


class HeadSources(Struct, frozen=True):
    """Tell what heads of this device say, see `ship.HeadSource`."""

    puller: Puller
    checkpointer: Checkpointer
    agreement: Agreement
    copies: Copies

    def earlier_heads(self) -> EarlierHeads:
        return self.puller.earlier_heads()

    def checkpoints(
        self, tx: Transaction, earlier_heads: EarlierHeads
    ) -> tuple[Statement | None, CheckpointId | None]:
        return self.checkpointer.statement(tx), self.checkpointer.newest(tx, earlier_heads.checkpoint)

    def state(self, tx: Transaction) -> StateClaim | None:
        return self.agreement.claim(tx)

    def holdings(self, tx: Transaction) -> Holdings | None:
        return self.copies.holdings(tx)

    def head_put(self, head: Head) -> None:
        self.checkpointer.machine.head_put(head.checkpoint)


class Writing(Shipping, frozen=True):
    """The way of what was signed to the clouds of a volume."""

    clouds: Clouds
    following: Following

    def ship(self) -> Pause:
        """The step of the stage that ships."""
        self.shipper.ship_round(may_ship=self.following.has_looked())
        return IDLE._replace(least=_SHIP_REST)

    def announce(self) -> bool:
        """Have our head put on all clouds again; False when that is not done after half a minute."""
        return self.shipper.announce_again(_HEAD_SECONDS)

    def look_at_clouds(self) -> None:
        """Ask every cloud whether it is there, also those that would not be asked again yet; and let those
        that are, as a cloud that has just been added, have our head."""
        engine = self.clouds.engine
        engine.probe(self.clouds.marker, everyone=True)
        well = [one.number for one in engine.health() if one.state == "ok"]
        used = frozenset(engine.in_use).intersection(well)
        if self.following.look_for_own_head(used, _HEAD_SECONDS):
            self.announce()
