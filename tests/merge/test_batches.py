"""Updates that are taken in many at once have the effect that they have one by one."""

from __future__ import annotations

import os
import random
from copy import copy
from typing import Final

from hypothesis import HealthCheck, settings

from sync import DeviceKey
from tests.merge.beginner import past, shown, stored
from tests.merge.fleet import Device
from tests.merge.test_machine import TreeOfMany
from tests.tree.invariants import check_accounts
from tests.tree.rig import Rig

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TREE_EXAMPLES", "8"))
_STRANGER: Final = DeviceKey.from_seed(b"\x77" * 32)


def stranger(source: Device) -> Device:
    """A device that is about to hear of everything, and will write nothing."""
    other = copy(source)
    other.rig = Rig(clouds=source.rig.clouds, plaintexts=source.rig.plaintexts, device=_STRANGER)
    with other.rig.fs.state.transaction():
        other.rig.tx.members.admit(source.rig.tx.members.all())
        other.rig.updates.set_members(other.rig.tx.members.keys())
    return other


class Batches(TreeOfMany):
    """In the end, two further devices hear of everything: one at once, the other bit by bit."""

    def _compare(self) -> None:
        source = self.world.fleet[0]
        log = source.log()
        shuffled = random.Random(len(log)).sample(log, len(log))
        devices = [stranger(source) for _ in range(3)]
        try:
            devices[0].receive(log)
            devices[1].receive(shuffled)
            for update in log:
                devices[2].receive([update])
            first, *others = devices
            assert first.log() == log
            for other in others:
                assert other.registers() == first.registers()
                assert past(other.rig) == past(first.rig)
                assert other.tree() == first.tree()
                assert {key: value for key, value in shown(other.rig).items() if key != "nodes"} == {
                    key: value for key, value in shown(first.rig).items() if key != "nodes"
                }
                check_accounts(other.rig, [])
            assert shown(devices[2].rig) == shown(first.rig)
            assert stored(devices[2].rig) == stored(first.rig)
        finally:
            for device in devices:
                device.rig.abandon()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.settle()
                self._compare()
            finally:
                super().teardown()


Batches.TestCase.settings = settings(
    max_examples=_EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestBatches = Batches.TestCase
