"""Lists end while others write all the time; writers wait for them, and not for ever."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.quorums.register import Register
from hybrisfs.quorums.rounds import Answer, Pause, Protocol, Steps, Within
from hybrisfs.quorums.snapshot import LOOK_SECONDS, Holds, take_snapshot
from hybrisfs.quorums.thresholds import PASIS, POWERSTORE, Thresholds
from tests.quorums.schedule import NAMES, Cloud, Whole, divide

PLACES = [Thresholds(POWERSTORE, 4, 1, 1), Thresholds(PASIS, 5, 1, 1)]


class Adversary:
    """Clouds, one of which is silent, and writers on them that never stop: whatever a list sees next,
    something was written just before."""

    def __init__(self, thresholds: Thresholds, writers: int = 3) -> None:
        self.thresholds = thresholds
        self.clouds = [Cloud(Random(1)) for _ in range(thresholds.clouds)]
        self.codec = Whole(Random(1))
        self.now = 0.0
        self.written = 0
        self.writers = [self._write_for_ever(self.holds(), f"{number}") for number in range(writers)]

    def holds(self) -> Holds:
        return Holds(
            NAMES.of_holds("box"),
            range(len(self.clouds)),
            self.thresholds,
            Environment(boot_time=lambda: self.now),
        )

    def register_at(self, prefix: str) -> Register:
        return Register(NAMES.at(prefix), range(len(self.clouds)), self.thresholds, self.codec)

    def list(self) -> Protocol[Any]:
        return take_snapshot(self.register_at, NAMES.of_container("box"), divide, self.holds(), 7)

    def write(self, holds: Holds | None, key: str) -> Protocol[Any]:
        """Write a key, with the holds in mind, or knowing none."""
        self.written += 1
        draft = self.codec.draft(self.written, f"v{self.written}", self.thresholds.k)
        protocol = self.register_at(NAMES.of_register("box", key.encode()).prefix).write(draft)
        return protocol if holds is None else holds.waiting(protocol)

    def _write_for_ever(self, holds: Holds, key: str) -> Iterator[None]:
        """A writer, which yields when a write has ended, or waits."""
        while True:
            for _ in self.steps(self.write(holds, f"{key} {self.written % 5}")):
                yield
            yield

    def steps(self, protocol: Protocol[Any]) -> Generator[Steps, None, Any]:
        """Carry out a protocol; yield each pause."""
        try:
            steps = next(protocol)
            while True:
                if isinstance(steps, Pause | Within):
                    yield steps
                    steps = protocol.send(())
                else:
                    steps = protocol.send(self.answers(steps))
        except StopIteration as end:
            return end.value

    def answers(self, rounds: Steps) -> Sequence[Mapping[int, Answer]]:
        assert isinstance(rounds, Sequence)
        return [
            {cloud: self.clouds[cloud].answer(ask) for cloud, ask in list(one.asks.items())[:-1]}
            for one in rounds
        ]

    def run(self, protocol: Protocol[Any], *, seconds: float) -> Any:
        """Carry out a protocol whose rounds take so long; each writer goes as far as it can before each."""
        try:
            steps = next(protocol)
            while True:
                self.now += seconds
                for writer in self.writers:
                    next(writer)
                answers = () if isinstance(steps, Pause | Within) else self.answers(steps)
                steps = protocol.send(answers)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("thresholds", PLACES)
def test_a_list_ends_while_others_write_all_the_time(thresholds: Thresholds) -> None:
    world = Adversary(thresholds)
    found = world.run(world.list(), seconds=LOOK_SECONDS / 4)
    assert found.latest
    before = world.written
    for writer in world.writers:
        next(writer)  # ends the write that has waited
        next(writer)
    assert world.written > before, "the hold is gone"
    assert not any("/holds/" in name for cloud in world.clouds for name in cloud.objects)


@pytest.mark.parametrize("thresholds", PLACES)
def test_it_fails_when_they_do_not_wait(thresholds: Thresholds) -> None:
    """So it is the holds that let it end."""
    world = Adversary(thresholds, writers=0)

    def write_for_ever() -> Iterator[None]:
        while True:
            for _ in world.steps(world.write(None, "key")):
                pass
            yield

    world.writers.append(write_for_ever())
    with pytest.raises(HybrisError, match="others write to the container all the time"):
        world.run(world.list(), seconds=LOOK_SECONDS)


@pytest.mark.parametrize("thresholds", PLACES)
def test_a_lister_that_has_died_holds_each_device_up_once(thresholds: Thresholds) -> None:
    world = Adversary(thresholds, writers=0)
    for _ in world.steps(world.holds().put(7)):
        pass
    kept = {name: data for cloud in world.clouds for name, data in cloud.objects.items()}
    holds = world.holds()
    pauses = sum(isinstance(step, Pause) for step in world.steps(world.write(holds, "key")))
    assert 0 < pauses <= 20
    for cloud in world.clouds:
        assert not any("/holds/" in name for name in cloud.objects)
        cloud.objects |= kept  # a cloud that lies, or was away, shows it again
    world.now += LOOK_SECONDS
    assert list(world.steps(world.write(holds, "key"))) == []


def test_fewer_clouds_than_may_lie_hold_nobody_up() -> None:
    world = Adversary(PLACES[0], writers=0)
    world.clouds[1].put(NAMES.of_holds("box").of_hold(7), b"")
    assert list(world.steps(world.write(world.holds(), "key"))) == []


def test_a_device_looks_for_holds_once_in_a_while() -> None:
    world = Adversary(PLACES[0], writers=0)
    holds, asked = world.holds(), []
    for _ in range(2):
        for _ in range(3):
            first = next(world.write(holds, "key"))
            assert isinstance(first, Sequence)
            asked.append(len(first))
            list(world.steps(world.write(holds, "key")))
        world.now += LOOK_SECONDS
    assert asked == [2, 1, 1, 2, 1, 1]
