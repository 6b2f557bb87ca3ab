"""Whatever programs on several devices do while packs are deleted, and however updates travel: no byte that
somebody can still see is ever gone from the clouds.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hybrisfs.gc.limits import GcLimits
from tests.gc.support import Collecting, check_shown, cut_short
from tests.merge.world import World
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_GC_EXAMPLES", "12"))
picks = st.integers(0, 30)
few = st.integers(0, 2)


class CollectingWorld(World):
    """Devices that look for packs which nobody needs, at any time and without any grace."""

    def collect(self, number: int) -> None:
        """Look, and propose what was found."""
        Collecting(self.fleet[number]).look()
        self._hear(number)

    def collect_orphans(self, number: int) -> None:
        """List the clouds, and propose what no register names."""
        Collecting(self.fleet[number]).look_for_orphans()
        self._hear(number)

    def cut_short(self, number: int) -> None:
        """An upload ends with a crash before it is on record."""
        cut_short(self.fleet[number])
        self._hear(number)
        self.commit(number)
        self.crash(number)

    def advance(self, number: int) -> None:
        """Answer, or end what all have agreed on; what is signed is on the clouds, and then deleted."""
        collecting = Collecting(self.fleet[number])
        collecting.step()
        self.commit(number)
        collecting.dispose()
        self._hear(number)

    def evict(self, number: int) -> None:
        """Let every byte go that the clouds have."""
        self.commit(number)
        self.fleet[number].rig.room.drop_all()

    def settle(self) -> None:
        """What all come to see is on the clouds."""
        super().settle()
        for number, device in enumerate(self.fleet.devices):
            check_shown(device)
            self.evict(number)
        self._check_agreement()


class CollectingOfMany(RuleBasedStateMachine):
    """Two or three devices."""

    world_of: type[CollectingWorld] = CollectingWorld

    @initialize(count=st.integers(2, 3))
    def begin(self, count: int) -> None:
        self.count = count
        environment = limited(GcLimits(least_dead=1), small_chunks(256), SMALL_BLOCKS)
        self.world = self.world_of(count, environment=lambda _: environment)

    @rule(device=few, pick=picks, name=few, size=st.sampled_from([1, 9, 90]))
    def write(self, device: int, pick: int, name: int, size: int) -> None:
        self.world.write(device % self.count, pick, name, size)

    @rule(device=few, pick=picks, name=few, same=st.integers(0, 1))
    def write_same(self, device: int, pick: int, name: int, same: int) -> None:
        self.world.write_same(device % self.count, pick, name, same)

    @rule(device=few, pick=picks)
    def append(self, device: int, pick: int) -> None:
        self.world.append(device % self.count, pick)

    @rule(device=few, pick=picks)
    def remove(self, device: int, pick: int) -> None:
        self.world.remove(device % self.count, pick)

    @rule(device=few, pick=picks, folder=picks, name=few)
    def rename(self, device: int, pick: int, folder: int, name: int) -> None:
        self.world.rename(device % self.count, pick, folder, name)

    @rule(device=few, pick=picks)
    def open_file(self, device: int, pick: int) -> None:
        self.world.open_file(device % self.count, pick)

    @rule(pick=picks)
    def read_open(self, pick: int) -> None:
        self.world.read_open(pick)

    @rule(pick=picks)
    def close_file(self, pick: int) -> None:
        self.world.close_file(pick)

    @rule(device=few)
    def sign(self, device: int) -> None:
        self.world.sign(device % self.count)

    @rule(sender=few, receiver=few, count=st.integers(0, 8))
    def send(self, sender: int, receiver: int, count: int) -> None:
        if sender % self.count != receiver % self.count:
            self.world.send(sender % self.count, receiver % self.count, count, 0)

    @rule(device=few)
    def crash(self, device: int) -> None:
        self.world.crash(device % self.count)

    @rule(device=few)
    def evict(self, device: int) -> None:
        self.world.evict(device % self.count)

    @rule(device=few)
    def collect(self, device: int) -> None:
        self.world.collect(device % self.count)

    @rule(device=few)
    def cut_short(self, device: int) -> None:
        self.world.cut_short(device % self.count)

    @rule(device=few)
    def collect_orphans(self, device: int) -> None:
        self.world.collect_orphans(device % self.count)

    @rule(device=few, again=st.booleans())
    def advance(self, device: int, again: bool) -> None:
        for _ in range(2 if again else 1):
            self.world.advance(device % self.count)

    @rule(device=few, pick=picks, name=few, same=st.integers(0, 1), told=st.booleans())
    def waste(self, device: int, pick: int, name: int, same: int, told: bool) -> None:
        """A file comes and goes."""
        writer, other = device % self.count, (device + 1) % self.count
        self.world.write_same(writer, pick, name, same)
        self.world.sign(writer)
        if told:
            self.world.send(writer, other, 0, 0)
        self.world.remove(writer, pick)

    @rule(first=few, steps=st.integers(1, 9), deaf=st.sampled_from([0, 1, 2, 9, 9, 9]), orphans=st.booleans())
    def confer(self, first: int, steps: int, deaf: int, orphans: bool) -> None:
        """One proposes; all answer in turn, each having heard of the one before; one may hear nothing."""
        self.world.sign(first % self.count)
        (self.world.collect_orphans if orphans else self.world.collect)(first % self.count)
        for step in range(steps):
            sender, receiver = (first + step) % self.count, (first + step + 1) % self.count
            if receiver != deaf:
                self.world.send(sender, receiver, 0, 0)
            self.world.advance(receiver)

    @rule()
    def settle(self) -> None:
        self.world.settle()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.settle()
        finally:
            self.world.end()


CollectingOfMany.TestCase.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCollectingOfMany = CollectingOfMany.TestCase
