"""What the next daemon knows of this one: did it end in good order, and how often did the last ones not?

RUNTIME/life.json is there from a daemon's start to its end in good order: {"boot": ID OF THE BOOT,
"started": SECONDS SINCE THE EPOCH, "died": THE SAME OR null, "quick_deaths": NUMBER IN A ROW}. It is not
synced: after a power cut nothing of it counts.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from hybrisfs.daemon.revival import Revival
from hybrisfs.home import Home

__all__ = ["Life", "begin", "end", "note_death"]

log = logging.getLogger(__name__)

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Life:
    """One daemon. Times in seconds since the epoch; `died` is None when nobody was there to see it."""

    boot: str
    started: float
    died: float | None
    quick_deaths: int


def begin(home: Home, now: float) -> tuple[Life | None, float]:
    """A daemon starts. The last one, if it died, and how long to wait before trouble is tried again."""
    last = _read(home)
    revival = Revival(last.quick_deaths if last else 0)
    pause = revival.delay_after((last.died or now) - last.started) if last else 0.0
    _write(home, Life(_boot(), now + pause, None, revival.quick_deaths if last else 0))
    return last, pause


def note_death(home: Home, now: float) -> None:
    """The daemon has just died, whatever of."""
    last = _read(home)
    if last is not None and last.died is None:
        _write(home, replace(last, died=now))


def end(home: Home) -> None:
    """The daemon ends in good order."""
    with contextlib.suppress(OSError):
        _path(home).unlink()


def _path(home: Home) -> Path:
    return home.runtime / "life.json"


def _read(home: Home) -> Life | None:
    """None as well when the machine was started since, or the record is damaged."""
    try:
        life = Life(**json.loads(_path(home).read_bytes()))
        # What is no number makes a TypeError here.
        sound = life.boot == _boot() and life.started + (life.died or 0.0) + life.quick_deaths > 0
    except (OSError, ValueError, TypeError):
        return None
    return life if sound else None


def _write(home: Home, life: Life) -> None:
    try:
        _path(home).write_text(json.dumps(asdict(life)) + "\n")
    except OSError as error:
        log.warning("%s cannot be written: %s", _path(home), error.strerror)


def _boot() -> str:
    return _BOOT.read_text().strip()
