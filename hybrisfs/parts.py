"""The parts of an open volume, in the order in which it opens: each is made from earlier ones.

    Core -> Ground -> Clouds -> Reading -> Writing

`hybrisfs.volume.opened` makes them. What works on a volume takes those of them that it needs. The tests' rig
and the devices of the simulator open the same `Core`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.checkpoint.checkpointer import Checkpointer
from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.dispersal.engine import Engine, Marker
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.home import Home
from hybrisfs.keyring import KeyRing
from hybrisfs.kv.opening import KeyValues
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.read.pin import Pinner
from hybrisfs.receive.pull import Puller
from hybrisfs.receive.take import Upcoming, unprepared
from hybrisfs.settings.config import DEFAULT_DELETION_SHARE, VolumeConfig
from hybrisfs.settings.settings import Settings
from hybrisfs.settings.transfers import Transfers
from hybrisfs.sharing.agreement import Agreement
from hybrisfs.sharing.awaited_log import AwaitedLog
from hybrisfs.sharing.sharing import Sharing
from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.database import Database
from hybrisfs.state.journal import Journal
from hybrisfs.state.state import State, Transaction
from hybrisfs.state.unplaced import remove_unnamed_segments
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.residency import Residency
from hybrisfs.versions.contents import forget_lost
from hybrisfs.write.grants import Grants
from hybrisfs.write.pack import PackMaker
from hybrisfs.write.relayer import Relayer, Uploads
from hybrisfs.write.ship import Shipper
from sync import CheckpointId, Head, StateClaim, Statement
from sync.beacons import EarlierHeads

__all__ = ["Clouds", "Core", "Ground", "HeadSources", "Reading", "Writing"]

_HEAD_SECONDS: Final = 30.0
_SHIP_REST: Final = 0.1  # seconds: updates can come by the hundred, and wait for each other anyway


class Core:
    """What works on the state of a volume alone: no cloud, no link, no face, no thread."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        namer: ChunkNamer,
        ring: KeyRing,
        owner: tuple[int, int],
        *,
        deletion_share: float = DEFAULT_DELETION_SHARE,
        awaited_log: AwaitedLog | None = None,
        upcoming: Upcoming = unprepared,
    ) -> None:
        """*owner*: user and group of what other devices make. The rest: see `Sharing`."""
        self.ring: Final = ring
        self.state: Final = State(database, journal, namer, ring.keys.device)
        self.signals: Final = Signals(database.environment)
        with self.state.transaction() as tx:
            self.fs: Final = FileSystem(tx, self.state, owner=owner)
            remove_unnamed_segments(tx, journal)
            tx.chunks.dropped.listen(forget_lost)
            self.sharing: Final = Sharing(
                tx, self.fs, ring, self.signals, deletion_share, awaited_log, upcoming
            )
        self.committer: Final = Committer(self.fs, self.signals)
        self.fs.changes.begun.listen(self.signals.changes_made)


@dataclass(frozen=True)
class Ground:
    """Settings, keys, and the tree on this disk."""

    home: Home
    settings: Settings
    state: Path
    """The folder of the volume's state."""
    ring: KeyRing
    sealer: Sealer
    tables: TableSealer
    fs: FileSystem
    signals: Signals
    committer: Committer

    @property
    def config(self) -> VolumeConfig:
        """As it is now."""
        return self.settings.config

    @property
    def name(self) -> str:
        return self.settings.config.name


@dataclass(frozen=True)
class Clouds:
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
        usable = [one for one in self.engine.health() if one.number in self.engine.in_use]
        return sum(one.state in ("ok", "slow", "lying") for one in usable) >= self.copies()

    # As the log comes to them, see `ship.LogClouds`.

    def grant(self) -> None:
        self.grants.ensure()

    def put_object(self, name: str, data: bytes) -> tuple[int, ...]:
        return self.engine.put_object(name, data, self.copies())

    def put_everywhere(self, name: str, data: bytes, clouds: Collection[int]) -> tuple[int, ...]:
        return self.engine.put_everywhere(name, data, clouds)


@dataclass(frozen=True)
class Reading:
    """The way of content to this device."""

    fetcher: Fetcher
    room: Evictor
    pinner: Pinner
    residency: Residency


@dataclass(frozen=True)
class HeadSources:
    """Tell what heads of this device say, see `ship.HeadSource`."""

    puller: Puller
    checkpointer: Checkpointer
    agreement: Agreement

    def earlier_heads(self) -> EarlierHeads:
        return self.puller.earlier_heads()

    def checkpoints(
        self, tx: Transaction, earlier_heads: EarlierHeads
    ) -> tuple[Statement | None, CheckpointId | None]:
        return self.checkpointer.statement(tx), self.checkpointer.newest(tx, earlier_heads.checkpoint)

    def state(self, tx: Transaction) -> StateClaim | None:
        return self.agreement.claim(tx)

    def head_put(self, head: Head) -> None:
        self.checkpointer.machine.head_put(head.checkpoint)


@dataclass(frozen=True)
class Writing:
    """The way of what was signed to the clouds."""

    clouds: Clouds
    sharing: Sharing
    relayer: Relayer
    uploads: Uploads
    shipper: Shipper

    def ship(self) -> Pause:
        """The step of the stage that ships."""
        self.shipper.ship_round(may_ship=self.sharing.has_looked())
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
        if self.sharing.look_for_own_head(used, _HEAD_SECONDS):
            self.announce()
