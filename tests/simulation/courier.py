"""What brings a device's updates to the clouds and those of others from there, without threads: the shipper,
the relayer, the puller and the checkpointer of checkpoints of the daemon, one round at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.exchange.following import Following
from hybrisfs.gc.disposal import Orphans
from hybrisfs.gc.rewrite import NeededOrphans
from hybrisfs.members.epochs import grant_name
from hybrisfs.parts import HeadSources, open_checkpointing, open_shipping
from hybrisfs.write.grants import Grants
from sync import Head, VersionVector
from tests.gc.support import FakeUpkeep
from tests.simulation.cloud import Clouds
from tests.tree.rig import SEALER, VOLUME, Rig

__all__ = ["Courier"]

_MOST_ANNOUNCEMENTS: Final = 30


class Courier:
    """One life of a device's daemon: it ends with its rig."""

    def __init__(self, rig: Rig, clouds: Clouds) -> None:
        self.rig = rig
        self._clouds = clouds
        self.grants = Grants(rig.ring, VOLUME, rig.sharing, cast("Any", clouds))
        self._following = Following(rig.local, cast("Any", clouds), self)
        self.puller = self._following.puller
        self.linked: Courier | None = None  # the device that can be asked directly
        self.at_hand: Mapping[bytes, bytes] = {}
        """Parts of checkpoints that some linked device has, too."""
        self.asked: set[bytes] = set()
        """Those that this device has asked for."""
        self._announced: Counter[VersionVector] = Counter()  # by what had been accepted
        snapshots = LocalSnapshots(rig.directory / "checkpoints", SEALER, rig.environment)
        self.checkpointer = open_checkpointing(rig.local, snapshots, clouds, clouds, self).checkpointer
        self.checkpointer.news.listen(self._announce)
        upkeep = FakeUpkeep(rig.clouds)
        self._orphans = Orphans(rig.fs, cast("Any", upkeep), upkeep)
        self._needed = NeededOrphans(rig.fs, upkeep, rig.clouds, rig.signals)
        source = HeadSources(self.puller, self.checkpointer, rig.sharing.agreement, rig.reading.copies)
        shipping = open_shipping(rig.local, rig.fetcher, rig.links, self, self.puller, source)
        self._relayer, self._shipper = shipping.relayer, shipping.shipper
        self.told = shipping.shipper.told

    # -- the clouds, as the shipper takes them -----------------------------------------------------

    def grant(self) -> None:
        self.grants.ensure()

    def put_object(self, name: str, data: bytes) -> Sequence[int]:
        return self._clouds.put_object(name, data)

    def put_head(self, name: str, data: bytes, clouds: Collection[int]) -> None:
        self._clouds.put_everywhere(name, data, clouds)

    # ----------------------------------------------------------------------------------------------

    @property
    def is_shut_out(self) -> bool:
        return self.grants.is_shut_out

    def fetch(self, writer: bytes, epoch: bytes) -> bool:
        """Ask for a grant as the engine does, which finds it wherever it is; look first, which is quicker."""
        name = grant_name(epoch, writer)
        return any(cloud.first(name) for cloud in self._clouds.all) and self.grants.fetch(writer, epoch)

    def fetch_chunk(self, identity: bytes, patience: float) -> bytes | None:
        """A part of a checkpoint, from the device that is linked."""
        self.asked.add(identity)
        if identity in self.at_hand:
            return self.at_hand[identity]
        return self.linked.checkpointer.cloud_checkpoint.part(identity) if self.linked is not None else None

    def _announce(self) -> None:
        """There is another statement or checkpoint. Who hears of nothing new has nothing to say at last."""
        with self.rig.fs.state.transaction():
            vector = self.rig.updates.state.vector
        self._announced[vector] += 1
        assert self._announced[vector] <= _MOST_ANNOUNCEMENTS, "it states the same again and again"
        self.rig.signals.announce()

    def head(self) -> Head:
        """What the device would tell of itself over a link."""
        with self.rig.fs.state.transaction() as tx:
            return self._shipper._head(tx, None, self.puller.earlier_heads())

    def hear(self, device: bytes, head: Head) -> None:
        """A linked device has told where it stands."""
        self._following.heard(device, head)

    def believe_shipped(self) -> None:
        """Have the device believe that the clouds have all that it has signed."""
        with self.rig.fs.state.transaction() as tx:
            tip = self.rig.updates.own_tip()
            if tip is not None:
                tx.pending.ship(tip.clock)

    def look_at_checkpoints(self) -> None:
        """State, agree, deposit, take in, as far as it is time to."""
        self.checkpointer.look(self.puller.heads(), self.rig.environment.monotonic())

    def take_over(self, other: Courier) -> None:
        """*other* has not got some of what is lacking here but through a checkpoint."""
        with other.rig.fs.state.transaction():
            root = other.checkpointer.root()
        if root is None:
            return
        self.linked = other
        self.checkpointer.intake.offered(root)
        self.look_at_checkpoints()
        self.linked = None

    def pull(self) -> float:
        """Look at the clouds, as far as it is time to. Seconds until it is again, if nothing happens."""
        self.puller.step()
        follow = self.puller._follow
        return 0.0 if follow is None else max(0.0, follow.next_due() - self.rig.environment.monotonic())

    def look(self) -> None:
        """Look at all clouds."""
        self.puller.look_now()
        self.puller.step()

    def ship(self) -> None:
        """Ship, relay and announce what is due; look for what nobody is expected to bring."""
        self._shipper.ship_round(may_ship=self._following.has_looked())
        if self._relayer.is_lacking:
            self.look_for_lacking()

    def look_for_lacking(self) -> None:
        """Look in the packs that no register names for what is lacking."""
        found, _ = self._orphans.look(
            self.rig.committer.commit_now, self.rig.environment.time_ns(), 0, lambda: True
        )
        self._needed.look(found.orphans)

    def flush(self) -> None:
        """Ship all that may be shipped."""
        self.rig.signals.begin_flush()
        try:
            self.ship()
        finally:
            self.rig.signals.end_flush()
