"""Looking after the clouds when nothing else happens: is each there, and does it still have what it took?

A check-up reads the marker and a sample of one share, chosen at random, from every cloud. It is run
now and then, and when somebody asks for the status. Clouds that are not well are looked at more often. The
pauses keep an idle volume cheap: a few requests a minute are dollars a year.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from hybrisfs.dispersal.engine import Engine, Marker
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.pipeline.signals import Signals

__all__ = ["Checkup"]

log = logging.getLogger(__name__)

_INTERVAL: Final = 60.0  # between looks at the clouds that are not well
_CHECKUP_INTERVAL: Final = 1800.0  # between looks at all of them
_MARKER_LIMIT: Final = 4096


class Checkup:
    """One thread that looks now and then, and at once when asked."""

    def __init__(
        self,
        fs: FileSystem,
        engine: Engine,
        marker: Marker,
        signals: Signals,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        """*besides*: what else is to be done now and then."""
        self._besides = besides
        self._fs = fs
        self._engine = engine
        self._marker = marker
        self._signals = signals
        self._condition = threading.Condition()
        self._wanted = False
        self._stopping = False
        self._looked = 0.0  # when the last look began that has ended

    def run(self) -> None:
        """The thread's body."""
        due, besides_due = 0.0, time.monotonic() + _INTERVAL
        while True:
            with self._condition:
                left = max(0.0, besides_due - time.monotonic())
                self._condition.wait_for(lambda: self._wanted or self._stopping, left)
                if self._stopping:
                    return
                asked, self._wanted = self._wanted, False
            begun = time.monotonic()
            looks = asked or begun >= due
            if not self._signals.held:
                self._engine.probe(self._marker)
                if looks:
                    self._look()
                    due = time.monotonic() + _CHECKUP_INTERVAL
            if looks:
                with self._condition:
                    self._looked = begun
                    self._condition.notify_all()
            if time.monotonic() >= besides_due:  # however often somebody asks
                self._besides()
                besides_due = time.monotonic() + _INTERVAL

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def refresh(self, timeout: float) -> None:
        """Have the clouds looked at as they are from now on; wait at most *timeout* seconds."""
        with self._condition:
            asked = time.monotonic()
            self._wanted = True
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._looked >= asked or self._stopping, timeout)

    def _look(self) -> None:
        threads = [
            threading.Thread(target=self._look_at, args=(cloud,), name=f"checkup-{cloud}", daemon=True)
            for cloud in self._engine.numbers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look_at(self, cloud: int) -> None:
        wrong = self._engine.check_object(cloud, self._marker.name, _MARKER_LIMIT, self._marker.verify)
        share = self._random_share(cloud)
        if wrong is None and share is not None:
            wrong = self._engine.sample_share(cloud, *share)
        if wrong is not None:
            log.debug("cloud %d: %s", cloud, wrong)

    def _random_share(self, cloud: int) -> tuple[bytes, int] | None:
        """(pack id, index) of a share that this cloud acknowledged."""
        with self._fs.lock:
            highest = self._fs.db.execute("SELECT max(number) FROM pack").fetchone()[0]
            if highest is None:
                return None
            row = self._fs.db.execute(
                "SELECT id, placement FROM pack WHERE number >= ? AND instr(placement, ?) LIMIT 1",
                (random.randint(1, highest), bytes((cloud,))),
            ).fetchone()
        return (row[0], row[1].index(cloud)) if row else None
