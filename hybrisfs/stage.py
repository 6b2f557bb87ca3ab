"""The one background loop: each piece of background work of a volume is a stage, and all run in the same way.

A stage does what is due, and returns when it is due again. The loop waits, holds the stage while transfers
are held, and goes on after a failure:

    wait until it is due, or woken  ->  wait while transfers are held  ->  step  ->  wait ...

A step that fails is repeated a second later: all background work is resumable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hybrisfs.errors import disk_trouble
from hybrisfs.signals import Pause, Signals

__all__ = ["LastError", "Stage", "start_stages"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = Pause(0.0)
_AFTER_FAILURE: Final = 1.0


@dataclass(frozen=True)
class Stage:
    """A piece of background work.

    *step* does what is due and returns the pause before the next step. *wait* waits that long, or until
    there is work; it returns False when the stage is to end. *moves*: no step begins while transfers with
    the clouds are held. *outlives*: it goes on when nothing can be recorded any more, to say so. *finish* is
    called at the end.
    """

    name: str
    step: Callable[[], Pause]
    wait: Callable[[Pause], bool]
    first: Pause = _AT_ONCE
    moves: bool = False
    outlives: bool = False
    finish: Callable[[], None] = lambda: None

    def run(self, signals: Signals, may_go_on: Callable[[Exception], bool]) -> None:
        """Do the steps until the stage is to end. *may_go_on* is asked after a failure."""
        pause = self.first
        while self.wait(pause) and (not self.moves or signals.wait_until_free()):
            try:
                pause = self.step()
            except Exception as error:  # noqa: BLE001 - reported by whom is asked
                if not may_go_on(error) or not signals.pause(_AFTER_FAILURE):
                    break
                pause = _AT_ONCE
        self.finish()


class LastError:
    """The last thing that went wrong in the background, for status."""

    def __init__(self) -> None:
        self.text: str | None = None

    def note(self, text: str) -> None:
        self.text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"


class _Failures:
    """Reports the failures of one stage."""

    def __init__(
        self, volume: str, stage: str, advice: Callable[[Exception], str], last_error: LastError
    ) -> None:
        self._volume = volume
        self._stage = stage
        self._advice = advice
        self._last_error = last_error
        self._trouble: str | None = None  # of the disk, as it was logged last

    def report(self, error: Exception) -> None:
        """Log the failure, and keep it for status; trouble that lasts is logged once."""
        trouble = disk_trouble(error)
        where = f"volume {self._volume}: background work {self._stage!r}"
        if trouble is None:
            log.error("%s failed; it is started again", where, exc_info=error)
        elif trouble != self._trouble:
            log.warning("%s waits for the disk: %s", where, trouble)
        self._trouble = trouble
        self._last_error.note(f"{self._stage}: {error}{self._advice(error)}")


def start_stages(
    volume: str,
    stages: Iterable[Stage],
    signals: Signals,
    has_failed: Callable[[], bool],
    advice: Callable[[Exception], str],
    last_error: LastError,
) -> dict[str, threading.Thread]:
    """Start a thread for each stage; the threads by the names of the stages. *has_failed*: nothing can be
    recorded any more. *advice* says what to do about an error, after a semicolon, or nothing."""

    def may_go_on(stage: Stage, failures: _Failures, error: Exception) -> bool:
        failures.report(error)
        return stage.outlives or not has_failed()

    threads = {
        stage.name: threading.Thread(
            target=stage.run,
            args=(signals, partial(may_go_on, stage, _Failures(volume, stage.name, advice, last_error))),
            name=f"{volume}-{stage.name}",
        )
        for stage in stages
    }
    for thread in threads.values():
        thread.start()
    return threads
