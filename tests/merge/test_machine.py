"""Whatever programs on several devices do, and however their updates travel: all come to see the same tree,
and nobody loses work.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hybrisfs.merge.refresh import RefreshLimits
from tests.merge.world import World
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks

_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TREE_EXAMPLES", "60"))
picks = st.integers(0, 30)
few = st.integers(0, 3)


class TreeOfMany(RuleBasedStateMachine):
    """Up to four devices."""

    @initialize(count=st.integers(2, 4), many=st.sampled_from([2, 32]))
    def begin(self, count: int, many: int) -> None:
        environment = limited(RefreshLimits(many_names=many), small_chunks(256), SMALL_BLOCKS)
        self.count = count
        self.world = World(count, environment=lambda _: environment)

    @rule(device=few, pick=picks, name=few, size=st.sampled_from([0, 0, 0, 1, 9, 14]))
    def write(self, device: int, pick: int, name: int, size: int) -> None:
        self.world.write(device % self.count, pick, name, size)

    @rule(device=few, pick=picks, name=few, same=st.integers(0, 1))
    def write_same(self, device: int, pick: int, name: int, same: int) -> None:
        self.world.write_same(device % self.count, pick, name, same)

    @rule(device=few, pick=picks)
    def append(self, device: int, pick: int) -> None:
        self.world.append(device % self.count, pick)

    @rule(device=few, pick=picks, name=few)
    def mkdir(self, device: int, pick: int, name: int) -> None:
        self.world.mkdir(device % self.count, pick, name)

    @rule(device=few, pick=picks, name=few, to=few)
    def symlink(self, device: int, pick: int, name: int, to: int) -> None:
        self.world.symlink(device % self.count, pick, name, to)

    @rule(device=few, pick=picks)
    def remove(self, device: int, pick: int) -> None:
        self.world.remove(device % self.count, pick)

    @rule(device=few, pick=picks, folder=picks, name=few)
    def rename(self, device: int, pick: int, folder: int, name: int) -> None:
        self.world.rename(device % self.count, pick, folder, name)

    @rule(device=few, pick=picks, signed=st.integers(0, 2))
    def save(self, device: int, pick: int, signed: int) -> None:
        self.world.save(device % self.count, pick, signed)

    @rule(device=few, pick=picks, act=st.integers(0, 2))
    def unaware(self, device: int, pick: int, act: int) -> None:
        self.world.unaware(device % self.count, pick, act)

    @rule(device=few, pick=picks, folder=picks, name=few)
    def link(self, device: int, pick: int, folder: int, name: int) -> None:
        self.world.link(device % self.count, pick, folder, name)

    @rule(device=few, pick=picks, mode=few)
    def chmod(self, device: int, pick: int, mode: int) -> None:
        self.world.chmod(device % self.count, pick, mode)

    @rule(device=few, pick=picks, value=few)
    def xattr(self, device: int, pick: int, value: int) -> None:
        self.world.xattr(device % self.count, pick, value)

    @rule(device=few, pick=picks, word=few)
    def label(self, device: int, pick: int, word: int) -> None:
        self.world.label(device % self.count, pick, word)

    @rule(device=few, pick=picks, word=few)
    def unlabel(self, device: int, pick: int, word: int) -> None:
        self.world.unlabel(device % self.count, pick, word)

    @rule(device=few, name=few, there=few)
    def ignore(self, device: int, name: int, there: int) -> None:
        self.world.ignore(device % self.count, name, there)

    @rule(device=few, pick=few, other=few)
    def put(self, device: int, pick: int, other: int) -> None:
        self.world.put(device % self.count, pick, other)

    @rule(device=few, pick=few)
    def delete(self, device: int, pick: int) -> None:
        self.world.delete(device % self.count, pick)

    @rule(device=few, pick=picks)
    def open_file(self, device: int, pick: int) -> None:
        self.world.open_file(device % self.count, pick)

    @rule(pick=picks)
    def read_open(self, pick: int) -> None:
        self.world.read_open(pick)

    @rule(pick=picks)
    def write_open(self, pick: int) -> None:
        self.world.write_open(pick)

    @rule(pick=picks)
    def close_file(self, pick: int) -> None:
        self.world.close_file(pick)

    @rule(device=few)
    def look(self, device: int) -> None:
        self.world.look(device % self.count)

    @rule(device=few)
    def sign(self, device: int) -> None:
        self.world.sign(device % self.count)

    @rule(sender=few, receiver=few, count=st.integers(0, 8), seed=few)
    def send(self, sender: int, receiver: int, count: int, seed: int) -> None:
        if sender % self.count != receiver % self.count:
            self.world.send(sender % self.count, receiver % self.count, count, seed)

    @rule(device=few)
    def commit(self, device: int) -> None:
        self.world.commit(device % self.count)

    @rule(device=few)
    def reopen(self, device: int) -> None:
        self.world.reopen(device % self.count)

    @rule(device=few)
    def crash(self, device: int) -> None:
        self.world.crash(device % self.count)

    @rule(device=few)
    def back_up(self, device: int) -> None:
        self.world.back_up(device % self.count)

    @rule(device=few)
    def restore(self, device: int) -> None:
        self.world.restore(device % self.count)

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


TreeOfMany.TestCase.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTreeOfMany = TreeOfMany.TestCase
