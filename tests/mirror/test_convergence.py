"""Random edits on both sides at any moment, and crashes at any step: both sides become equal and nothing is
lost."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.engine import Mirror, Outcome
from hybrisfs.mirror.model import Kind, depth, join, parent_of
from hybrisfs.mirror.plan import plan, recognise
from tests.mirror.memory import MemoryPlace, Node

_ROUNDS = 40
_NAMES = (b"a", b"b", b"c")


class _KilledError(Exception):
    """The mirror died here."""


class World:
    """Both sides, their users, and which contents nobody has removed or overwritten."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.local, self.volume = MemoryPlace(), MemoryPlace()
        self.agreed = AgreedTable.create(":memory:", Settings("0" * 32, Path("/nowhere"), "at", bytes(16)))
        self.mirror = Mirror(self.local, self.volume, self.agreed)  # type: ignore[arg-type]
        self.live: set[bytes] = set()
        self._contents = count(1)

    # -- users -------------------------------------------------------------------------------------

    def edit(self, place: MemoryPlace) -> None:
        action = self.random.choice(
            (self._write, self._write, self._make, self._move, self._remove, self._mode)
        )
        action(place)

    def _path(self, place: MemoryPlace) -> bytes:
        folders = [b"", *(path for path in place.tree if place.is_directory(path) and depth(path) < 3)]
        return join(self.random.choice(folders), self.random.choice(_NAMES))

    def _write(self, place: MemoryPlace) -> None:
        path = self._path(place)
        node = place.tree.get(path)
        if node is not None and node.kind is Kind.DIRECTORY:
            return
        content = next(self._contents).to_bytes(6)
        self.live.add(content)
        kind = self.random.choice((Kind.FILE, Kind.FILE, Kind.LINK))
        if node is not None:
            self.live.discard(node.content)
        if node is not None and node.kind is kind and self.random.random() < 0.5:
            node.content = content
            node.changed()
        else:
            place.tree[path] = Node(kind, content)

    def _make(self, place: MemoryPlace) -> None:
        path = self._path(place)
        if not place.exists(path):
            place.tree[path] = Node(Kind.DIRECTORY, mode=0o755)

    def _move(self, place: MemoryPlace) -> None:
        if not place.tree:
            return
        old, new = self.random.choice(list(place.tree)), self._path(place)
        if not place.exists(new) and not (new + b"/").startswith(old + b"/"):
            place.move(old, new)

    def _remove(self, place: MemoryPlace) -> None:
        if not place.tree:
            return
        path = self.random.choice(list(place.tree))
        for one in [path, *place.below(path)]:
            self.live.discard(place.tree.pop(one).content)

    def _mode(self, place: MemoryPlace) -> None:
        if place.tree:
            node = place.tree[self.random.choice(list(place.tree))]
            node.mode ^= 0o100
            node.changed()

    # -- the mirror --------------------------------------------------------------------------------

    def run(self, *, disturbed: bool) -> int:
        """One pass; how many steps were done. A disturbed one may be killed, and users go on meanwhile."""

        def tick() -> None:
            if disturbed and self.random.random() < 0.1:
                self.edit(self.random.choice((self.local, self.volume)))
            if disturbed and self.random.random() < 0.03:
                raise _KilledError

        done = 0
        try:
            while True:
                trees, _ = self.mirror.look([b""], deep=True, tick=tick)
                renames = recognise(trees)
                outcome = Outcome()
                self.mirror.carry_out(renames, tick, outcome)
                done += outcome.done
                if not outcome.done:
                    break
            outcome = Outcome()
            self.mirror.carry_out(plan(trees), tick, outcome)
            done += outcome.done
            self.agreed.commit(self.agreed.generation + 1)
        except _KilledError:
            self.agreed.undo()
        return done

    def settle(self) -> None:
        for _ in range(_ROUNDS):
            if not self.run(disturbed=False):
                return
        pytest.fail("the mirror never comes to rest")

    def check(self) -> None:
        assert self.local.shown() == self.volume.shown()
        assert all(self.local.is_directory(parent_of(path)) for path in self.local.tree)
        shown = {node.content for node in self.local.tree.values()}
        assert self.live <= shown, "content that nobody removed is gone"
        for path in self.local.tree:
            agreed = self.agreed.get(path)
            assert agreed is not None
        assert self.agreed.count() == len(self.local.tree)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 25), st.integers(1, 5))
@example(1030186, 21, 2)  # a folder becomes a file
def test_both_sides_become_equal_and_nothing_is_lost(seed: int, edits: int, phases: int) -> None:
    world = World(seed)
    for _ in range(phases):
        for _ in range(edits):
            world.edit(world.random.choice((world.local, world.volume)))
        world.run(disturbed=True)
    world.settle()
    world.check()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 30), st.booleans())
def test_what_one_side_does_is_what_both_show(seed: int, edits: int, on_local: bool) -> None:
    world = World(seed)
    one = world.local if on_local else world.volume
    for _ in range(3):
        for _ in range(edits):
            world.edit(one)
        before = one.shown()
        world.settle()
        assert one.shown() == before
        world.check()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_merging_two_full_sides_removes_nothing(seed: int, edits: int) -> None:
    world = World(seed)
    for place in (world.local, world.volume):
        for _ in range(edits):
            world.edit(place)
    contents = {node.content for place in (world.local, world.volume) for node in place.tree.values()}
    world.settle()
    world.check()
    assert contents <= {node.content for node in world.local.tree.values()}
