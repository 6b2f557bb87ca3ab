"""Background work that starts again when it fails."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from hybrisfs.errors import disk_trouble
from hybrisfs.pipeline.signals import Signals
from hybrisfs.store.journal import Journal
from hybrisfs.volume.damage import is_damage, rebuild_advice

__all__ = ["LastError", "start_threads"]

log = logging.getLogger(__name__)


class LastError:
    """The last thing that went wrong in the background, for status."""

    def __init__(self) -> None:
        self.text: str | None = None

    def note(self, text: str) -> None:
        self.text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"


def _run_guarded(
    volume: str, name: str, body: Callable[[], None], signals: Signals, journal: Journal, failures: LastError
) -> None:
    """Run a background thread's body; one that fails is started again, for its work is resumable."""
    said: str | None = None
    while True:
        try:
            body()
            return
        except Exception as error:
            trouble = disk_trouble(error)
            if trouble is None:
                log.exception("volume %s: background work %r failed; it is started again", volume, name)
            elif trouble != said:
                log.warning("volume %s: background work %r waits for the disk: %s", volume, name, trouble)
            said = trouble
            advice = f"; {rebuild_advice(volume)}" if is_damage(error) else ""
            failures.note(f"{name}: {error}{advice}")
        if journal.failure is not None and name != "commit":
            return  # nothing can be recorded; the committer goes on to say so
        if not signals.pause(1.0):
            return


def start_threads(
    volume: str,
    bodies: Mapping[str, Callable[[], None]],
    signals: Signals,
    journal: Journal,
    last_error: LastError,
) -> dict[str, threading.Thread]:
    """Start a thread for each body; one that fails is started again until *signals* say that all stop."""
    threads = {
        name: threading.Thread(
            target=_run_guarded,
            args=(volume, name, body, signals, journal, last_error),
            name=f"{volume}-{name}",
        )
        for name, body in bodies.items()
    }
    for thread in threads.values():
        thread.start()
    return threads
