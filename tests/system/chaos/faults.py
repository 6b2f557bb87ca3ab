"""What happens to cables, machines and one cloud while programs work.

Each of the three has its own thread and its own random choices, so that faults overlap. At most one cloud is
wrong, which is as many as the volume is made for, until all clouds have been repaired.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.chaos.record import Record
from tests.system.chaos.world import NAMES, World, copy_cloud, remove_objects
from tests.system.clouds import away

__all__ = ["CloudFaults", "Faults", "LinkFaults", "MachineFaults"]


class Faults(threading.Thread):
    """One fault after the other until `stop` is set; what was begun is ended then."""

    pause = 5.0  # seconds between two faults, on average

    def __init__(self, world: World, kind: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"{kind} faults", daemon=True)
        self.world, self.stop_word = world, stop
        self.record: Record = world.record
        self.choose = random.Random(f"{seed} {kind} faults")
        self.error: BaseException | None = None

    def kinds(self) -> dict[Callable[[], None], float]:
        """The faults, and how often each happens in relation to the others."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            while not self.stop_word.wait(self.choose.expovariate(1 / self.pause)):
                kinds = self.kinds()
                [fault] = self.choose.choices(list(kinds), list(kinds.values()))
                self.record.count(f"fault {fault.__name__}")
                fault()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the thread raises it
            self.error = error

    def for_a_while(self, seconds: float) -> None:
        """Let the fault last, but no longer than chaos does."""
        self.stop_word.wait(self.choose.uniform(0.3, 1.0) * seconds)

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        self.record.fault(what)
        try:
            yield
        finally:
            self.record.fault(what, "- over")


class LinkFaults(Faults):
    """Cables are pulled, and packets get lost without anybody being told."""

    pause = 6.0

    def kinds(self) -> dict[Callable[[], None], float]:
        return {self.pull: 3, self.pull_all: 1, self.swallow: 2}

    def pull(self) -> None:
        name = self.choose.choice(NAMES)
        with self.world.cables, self.told(f"pull {name}"), self.world.network.without(name):
            self.for_a_while(8)

    def pull_all(self) -> None:
        with self.world.cables, self.told("pull all"), self.world.network.without():
            self.for_a_while(8)

    def swallow(self) -> None:
        name = self.choose.choice(NAMES)
        with self.world.cables, self.told(f"swallow {name}"):
            self.world.network.swallow(name)
            try:
                self.for_a_while(8)
            finally:
                self.world.network.deliver(name)


class MachineFaults(Faults):
    """Daemons are killed and frozen, caches dropped, devices backed up and restored."""

    pause = 4.0

    def kinds(self) -> dict[Callable[[], None], float]:
        return {
            self.kill_daemon: 3,
            self.kill_machine: 1.5,
            self.freeze: 2,
            self.drop_cache: 2,
            self.back_up: 1,
            self.restore: 2,
        }

    def kill_daemon(self) -> None:
        name = self.choose.choice(NAMES)
        with self.told(f"kill daemon {name}"):
            self.world.kill_daemon(name)

    def kill_machine(self) -> None:
        name = self.choose.choice(NAMES)
        with self.told(f"kill machine {name}"):
            self.world.kill_machine(name)

    def freeze(self) -> None:
        name = self.choose.choice(NAMES)
        with self.told(f"freeze {name}"):
            self.world.freeze(name)
            try:
                self.for_a_while(6)
            finally:
                self.world.thaw(name)

    def drop_cache(self) -> None:
        name = self.choose.choice(NAMES)
        with self.told(f"drop cache {name}"):
            self.world.drop_cache(name)

    def back_up(self) -> None:
        """Always the last device: one that forks is enough."""
        with self.told(f"back up {NAMES[-1]}"):
            self.world.back_up(NAMES[-1])

    def restore(self) -> None:
        name = NAMES[-1]
        if not self.world.has_backup(name):
            self.back_up()
            return
        with self.told(f"restore {name}"):
            self.world.restore(name)


class CloudFaults(Faults):
    """One cloud is away, loses its objects or goes back to an older copy."""

    pause = 6.0

    def __init__(self, world: World, kind: str, seed: int, stop: threading.Event) -> None:
        super().__init__(world, kind, seed, stop)
        self.victim: Path = self.choose.choice(world.clouds)
        self._copy = world.root / "older cloud"
        self._has_copy = False

    def kinds(self) -> dict[Callable[[], None], float]:
        return {self.go_away: 3, self.empty: 1, self.copy: 2, self.roll_back: 2}

    def go_away(self) -> None:
        with self.told(f"{self.victim.name} away"), away(self.victim):
            self.for_a_while(10)

    def empty(self) -> None:
        with self.told(f"{self.victim.name} emptied"), contextlib.suppress(FileNotFoundError):
            remove_objects(self.victim)

    def copy(self) -> None:
        with self.told(f"{self.victim.name} copied"):
            copy_cloud(self.victim, self._copy)
            self._has_copy = True

    def roll_back(self) -> None:
        if not self._has_copy:
            return
        with self.told(f"{self.victim.name} rolled back"):
            gone = self.victim.with_name("gone")
            self.victim.rename(gone)
            copy_cloud(self._copy, self.victim)
            shutil.rmtree(gone, ignore_errors=True)
