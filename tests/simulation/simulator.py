"""The scheduler: everything that happens, happens at a virtual time that follows from the seed alone."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import combinations, count
from random import Random
from typing import Final

from tests.merge.world import World
from tests.simulation.cloud import Cloud, Mood

__all__ = ["Simulation"]

_CLOUDS: Final = 3
_MOST_DEVICES: Final = 8
_PROGRAMS: Final = {
    "write": 6, "write_same": 2, "append": 14, "mkdir": 3, "symlink": 1, "remove": 4, "rename": 6, "link": 2,
    "chmod": 1, "xattr": 1, "open_file": 6, "read_open": 3, "write_open": 8, "close_file": 2, "look": 3,
}  # fmt: skip
# Mean virtual seconds between two events of a kind, for each device, link or cloud.
_PROGRAM_EVERY: Final = 4.0
_SIGN_EVERY: Final = 3.0
_TALK_EVERY: Final = 15.0
_CLOUD_EVERY: Final = 10.0
_LINK_CHANGES_EVERY: Final = 60.0
_MOOD_CHANGES_EVERY: Final = 40.0
_COMMIT_EVERY: Final = 5.0
_CRASH_EVERY: Final = 120.0
_RESTART_EVERY: Final = 200.0
_BACKUP_EVERY: Final = 150.0
_RESTORE_EVERY: Final = 250.0


class Simulation:
    """One life of a volume: two to eight devices, links that come and go, clouds with moods.

    `run` goes through *seconds* of it, heals everything, and lets the world check what must hold then.
    `trace` tells what was done, in order.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._count = min(2 + int(self._random.expovariate(0.7)), _MOST_DEVICES)
        self.world = World(self._count)
        self.trace: list[str] = []
        self._now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, float, Callable[[], None]]] = []
        self._clouds = [Cloud(Random(self._random.random())) for _ in range(_CLOUDS)]
        self._links = dict.fromkeys(combinations(range(self._count), 2), True)
        for device in range(self._count):
            self._plan_device(device)
        for pair in self._links:
            self._repeat(_TALK_EVERY, lambda pair=pair: self._talk(pair))  # type: ignore[misc]
            self._repeat(_LINK_CHANGES_EVERY, lambda pair=pair: self._change_link(pair))  # type: ignore[misc]
        for cloud in self._clouds:
            self._repeat(_MOOD_CHANGES_EVERY, lambda cloud=cloud: self._change_mood(cloud))  # type: ignore[misc]

    def _plan_device(self, device: int) -> None:
        world = self.world
        self._repeat(_PROGRAM_EVERY, lambda: self._program(device))
        self._repeat(_CLOUD_EVERY, lambda: self._visit(device))
        for every, name, action in (
            (_SIGN_EVERY, "sign", world.sign),
            (_COMMIT_EVERY, "commit", world.commit),
            (_CRASH_EVERY, "crash", world.crash),
            (_RESTART_EVERY, "reopen", world.reopen),
            (_BACKUP_EVERY, "back_up", world.back_up),
            (_RESTORE_EVERY, "restore", world.restore),
        ):
            self._repeat(every, lambda name=name, action=action: self._do(name, action, device))  # type: ignore[misc]

    def _repeat(self, every: float, action: Callable[[], None]) -> None:
        due = self._now + self._random.expovariate(1 / every)
        heapq.heappush(self._events, (due, next(self._order), every, action))

    def run(self, seconds: float) -> None:
        """Let it live, then heal."""
        while self._events and self._events[0][0] < seconds:
            self._now, _, every, action = heapq.heappop(self._events)
            action()
            self._repeat(every, action)
        self.trace.append(f"{self._now:8.2f} all is healed")
        self.world.settle()

    def end(self) -> None:
        self.world.end()

    # -- what happens ----------------------------------------------------------------------------

    def _do(self, name: str, action: Callable[..., None], *arguments: int) -> None:
        self.trace.append(f"{self._now:8.2f} {name}{arguments}")
        action(*arguments)

    def _program(self, device: int) -> None:
        name = self._random.choices(list(_PROGRAMS), list(_PROGRAMS.values()))[0]
        pick, other, few = self._random.randrange(30), self._random.randrange(30), self._random.randrange(4)
        arguments: tuple[int, ...]
        if name in ("read_open", "write_open", "close_file"):
            arguments = (pick,)
        elif name == "look":
            arguments = (device,)
        elif name == "write":
            arguments = (device, pick, few, self._random.choice((0, 0, 0, 1, 9, 14)))
        elif name in ("write_same", "symlink"):
            arguments = (device, pick, few, other % 2)
        elif name in ("rename", "link"):
            arguments = (device, pick, other, few)
        elif name in ("mkdir", "chmod", "xattr"):
            arguments = (device, pick, few)
        else:
            arguments = (device, pick)
        self._do(name, getattr(self.world, name), *arguments)

    def _talk(self, pair: tuple[int, int]) -> None:
        if not self._links[pair]:
            return
        for sender, receiver in (pair, pair[::-1]):
            seed = self._random.choice((0, 0, self._random.randrange(1, 1000)))
            self._do("send", self.world.send, sender, receiver, self._random.randrange(9), seed)

    def _change_link(self, pair: tuple[int, int]) -> None:
        self._links[pair] = not self._links[pair]
        self.trace.append(f"{self._now:8.2f} link {pair} {'up' if self._links[pair] else 'down'}")

    def _visit(self, device: int) -> None:
        """A device brings what it knows to a cloud, and takes in what the cloud tells."""
        at = self._random.randrange(_CLOUDS)
        cloud = self._clouds[at]
        self._do(f"cloud {at}, {cloud.mood.value},", lambda number: self._exchange(number, cloud), device)

    def _exchange(self, device: int, cloud: Cloud) -> None:
        self.world.commit(device)
        cloud.put(self.world.fleet[device].log())
        self.world.hand(device, cloud.get())

    def _change_mood(self, cloud: Cloud) -> None:
        cloud.mood = self._random.choice(list(Mood))
        self.trace.append(f"{self._now:8.2f} cloud {self._clouds.index(cloud)} is {cloud.mood.value}")
