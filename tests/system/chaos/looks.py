"""What a device sees of the work of the others, at random moments while they work."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
from pathlib import Path

from tests.system.chaos.bank import look_at_bank
from tests.system.chaos.repository import look_at_repository
from tests.system.chaos.world import NAMES, World

__all__ = ["Visitor"]

_PAUSE = 0.8  # seconds between looks, on average


class Visitor(threading.Thread):
    """Looks at the databases and repositories of the other devices until `stop` is set."""

    def __init__(self, world: World, name: str, seed: int, scratch: Path, stop: threading.Event) -> None:
        super().__init__(name=f"visitor {name}", daemon=True)
        self._world, self._device, self._scratch, self._stop_word = world, name, scratch, stop
        self._choose = random.Random(f"{seed} visitor {name}")

    def run(self) -> None:
        others = [name for name in NAMES if name != self._device]
        while not self._stop_word.wait(self._choose.expovariate(1 / _PAUSE)):
            owner = self._choose.choice(others)
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if self._choose.random() < 0.75:
                    look_at_bank(self._world, self._device, owner, self._scratch, self._stop_word)
                else:
                    look_at_repository(self._world, self._device, owner)
