"""The thread that takes down, every ten seconds, how the clouds of all open volumes do."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from hybrisfs.api.figures import Series
from hybrisfs.daemon.slots import Slots
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.history.cloud import SPANS, Month
from hybrisfs.history.volume import FILE, HealthRecord
from hybrisfs.home import Home

__all__ = ["Recorder"]

log = logging.getLogger(__name__)

_EVERY: Final = float(SPANS["hour"][0])  # seconds
_SAVED_EVERY: Final = 300.0  # seconds; so much is lost when the daemon is killed


class Recorder:
    """Keeps a `HealthRecord` for each volume, from `start` to `stop`. Thread-safe."""

    def __init__(self, home: Home, slots: Slots, environment: Environment = SYSTEM) -> None:
        self._home = home
        self._slots = slots
        self._clock = environment.time
        self._lock = threading.Lock()
        self._histories: dict[str, HealthRecord] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take down the last moments, keep everything; called before volumes are closed. Idempotent."""
        if self._stopping.is_set() or not self._thread.ident:
            return
        self._stopping.set()
        self._thread.join()
        self.look()
        self.save()

    def _run(self) -> None:
        saved = time.monotonic()
        while not self._stopping.wait(_EVERY):
            self.look()
            if time.monotonic() - saved >= _SAVED_EVERY:
                self.save()
                saved = time.monotonic()

    def look(self) -> None:
        """Take down what was counted since the last look."""
        for slot in self._slots.opened():
            volume = slot.volume
            if volume is None:
                continue
            clouds = {one.number: one for one in volume.clouds.traffic()}
            with self._lock:
                history = self._history(slot.name)
                history.keep_only(clouds)
                for one in clouds.values():
                    history.count(self._clock(), one.number, one.name, one.counters, one.state)

    def save(self) -> None:
        """Write everything to the disk. Failures are logged: it is only for plots."""
        with self._lock:
            for name, history in self._histories.items():
                path = self._file(name)
                try:
                    if path.parent.is_dir():
                        history.save(path)
                except OSError as error:
                    log.warning("cannot keep the history of %s: %s", name, error)

    def series(self, name: str, span: str) -> Series:
        """What plots of a volume's clouds show."""
        now, step = self._clock(), SPANS[span][0]
        with self._lock:
            clouds = self._history(name).clouds
            return Series(
                step, now // step * step, [one.series(span, now, n) for n, one in sorted(clouds.items())]
            )

    def months(self, name: str) -> dict[int, list[Month]]:
        """What was counted in this month and the one before, by the clouds' numbers."""
        self.look()
        with self._lock:
            return {number: list(one.months) for number, one in self._history(name).clouds.items()}

    def _history(self, name: str) -> HealthRecord:
        if name not in self._histories:
            path = self._file(name)
            try:
                self._histories[name] = HealthRecord.load(path)
            except (OSError, ValueError) as error:
                log.warning("the history of %s begins anew: %s: %s", name, path, error)
                self._histories[name] = HealthRecord()
        return self._histories[name]

    def _file(self, name: str) -> Path:
        return self._home.volume_state(name) / FILE
