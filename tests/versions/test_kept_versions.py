"""Whatever programs do while packs are deleted: no byte of a version that somebody keeps is ever gone."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.state.versions import kept_contents
from hybrisfs.versions.contents import chunks_of_page, named_chunks
from hybrisfs.versions.retention import DEFAULT_RETENTION, RetentionRule
from hybrisfs.versions.thinning import Thinner
from tests.gc.support import Collecting, check_placed
from tests.gc.test_machine import CollectingOfMany, CollectingWorld
from tests.merge.fleet import Device

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_GC_EXAMPLES", "6"))
_OFF: Final = RetentionRule(0, 0, 0, 0)


def check_kept(device: Device) -> None:
    """The bytes of all versions that the device keeps are on the clouds, or here and on their way."""
    pages = Collecting(device).pages
    for (value,) in list(kept_contents(device.rig.db.rows)):
        chunks, are_lists = named_chunks(value)
        check_placed(device, chunks)
        if are_lists:
            for page in chunks:
                check_placed(device, chunks_of_page(pages.read(page)))


class KeepingWorld(CollectingWorld):
    """Devices that keep versions, each for as long as it likes."""

    def thin(self, number: int, rule: RetentionRule) -> None:
        """Let go of what a rule does not keep."""
        device = self.fleet[number]
        self.commit(number)
        try:
            Thinner(device.rig.fs, rule, Collecting(device).pages).thin(device.rig.environment.time_ns())
        except ChunkUnavailable:
            return  # a list of chunks cannot be had now
        self.commit(number)

    def settle(self) -> None:
        super().settle()
        for device in self.fleet.devices:
            check_kept(device)

    def _versions(self, device: Device) -> object:
        return None  # each keeps what it likes


class KeepingOfMany(CollectingOfMany):
    """The same with versions."""

    world_of = KeepingWorld
    world: KeepingWorld

    @rule(device=st.integers(0, 2), off=st.booleans())
    def thin(self, device: int, off: bool) -> None:
        self.world.thin(device % self.count, _OFF if off else DEFAULT_RETENTION)


KeepingOfMany.TestCase.settings = settings(
    max_examples=_EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKeeping = KeepingOfMany.TestCase
