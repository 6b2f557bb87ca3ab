"""All that a volume has on its clouds, by kind: what should be there, how it looks, what puts it right."""

from __future__ import annotations

from collections.abc import Mapping

from hybrisfs.clouds.expected_checkpoint import ExpectedCheckpoint
from hybrisfs.clouds.expected_objects import ExpectedObjects
from hybrisfs.clouds.expected_values import ExpectedValues
from hybrisfs.clouds.others_log import OthersLog
from hybrisfs.clouds.pack_repair import PackMender
from hybrisfs.clouds.renew import PackRenewer
from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.parts import Writing
from hybrisfs.read.fetch import Fetcher

__all__ = ["CloudObjects"]


class CloudObjects:
    """The objects of an open volume. Thread-safe."""

    def __init__(self, writing: Writing, fetcher: Fetcher, checkpoint: ExpectedCheckpoint) -> None:
        ground, sharing, clouds = writing.clouds.ground, writing.sharing, writing.clouds
        fs, config, keys = ground.fs, ground.config, ground.ring.segments
        signer = sharing.signer
        self.upkeep = upkeep = clouds.engine.upkeep
        self.expected = ExpectedObjects(fs, upkeep, ground.ring, config.id)
        renewer = PackRenewer(fs, signer, ground.signals, clouds.packs, fetcher)
        self.packs = PackMender(fs, signer, ground.signals, upkeep, ground.tables, renewer)
        self.segments = SegmentMender(fs, config.id, keys, upkeep)
        self.others = OthersLog(fs, sharing.device, config.id, keys, upkeep, self.segments, clouds)
        self.checkpoint = checkpoint
        self.values = ExpectedValues(clouds.key_values)
        self.clouds: Mapping[int, str] = {one.number: one.name for one in config.clouds}
        """The clouds that are looked after, and their names."""
        self.names: Mapping[int, str] = self.clouds
        """What these and all others are called."""

    def use(self, clouds: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Look after these clouds from now on; *names* is what they and all others are called."""
        self.clouds, self.names = clouds, names

    def trusted(self) -> set[int]:
        """The clouds that are known to be this volume's, as their marker is right now."""
        return {cloud for cloud in self.clouds if self.expected.look_at_marker(cloud)[0] is None}
