"""What brings a device's updates to the clouds and those of others from there, without threads: the shipper,
the relayer and the puller of the daemon, one round at a time."""

from __future__ import annotations

from typing import Any, cast

from hybrisfs.pipeline.relay import Relayer
from hybrisfs.pipeline.ship import Shipper
from tests.filesystem.rig import Rig
from tests.simulation.cloud import Clouds

__all__ = ["Courier"]


class Courier:
    """One life of a device's daemon: it ends with its rig."""

    def __init__(self, rig: Rig, clouds: Clouds) -> None:
        self.rig = rig
        self.puller = rig.sharing.follow(cast("Any", clouds), lambda *_: False)
        heads, fetch = self.puller.heads, rig.fetcher.fetch_one
        relayer = Relayer(rig.fs, rig.updates, rig.signals, rig.ring.segments, heads, fetch)
        self._shipper = Shipper(
            rig.fs,
            rig.updates,
            rig.signals,
            rig.committer,
            rig.ring.keys.device,
            rig.ring.segments,
            clouds.put_object,
            clouds.put_everywhere,
            rig.sharing.has_looked,
            relayer=relayer,
        )
        self._rounds = self.puller.rounds()
        next(self._rounds)

    def pull(self) -> None:
        """Look at the clouds, as far as it is time to."""
        next(self._rounds)

    def look(self) -> None:
        """Look at all clouds."""
        self.puller.look_now()
        next(self._rounds)

    def ship(self) -> None:
        """Ship, relay and announce what is due."""
        self._shipper.ship_round()

    def flush(self) -> None:
        """Ship all that may be shipped."""
        self.rig.signals.begin_flush()
        try:
            self._shipper.ship_round()
        finally:
            self.rig.signals.end_flush()
