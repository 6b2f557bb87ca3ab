"""The events of one volume on the disk: lines at the end of a file, which is put aside when it is full.

`events` is the newer file, `events.1` the one before. A line that a crash has torn, or a disk altered, is
left out. They are not synced: what a power cut takes of them is found out again at the next look.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hybrisfs.events.conditions import Happening
from hybrisfs.events.event import Event, from_line, to_line

__all__ = ["EventRecord"]

log = logging.getLogger(__name__)

_FILE_BYTES: Final = 1 << 20
_KEPT: Final = 10_000


class EventRecord:
    """One writer at a time; not thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there. A folder that cannot be read counts as empty."""
        self._path = folder / "events"
        self._older = folder / "events.1"
        self._events: deque[Event] = deque([*_read(self._older), *_read(self._path)], _KEPT)

    @property
    def last(self) -> int:
        """The number of the last event, 0 when there is none."""
        return self._events[-1].number if self._events else 0

    def add(self, happenings: Iterable[Happening], now: float) -> list[Event]:
        """Number and keep them; the file too, unless the disk refuses."""
        events = [Event(self.last + i, now, *one) for i, one in enumerate(happenings, 1)]
        if events:
            self._events.extend(events)
            self._write(b"".join(map(to_line, events)))
        return events

    def all(self) -> list[Event]:
        """Those that are known, in their order."""
        return list(self._events)

    def after(self, number: int) -> list[Event]:
        """Those after that number, in their order."""
        return [one for one in self._events if one.number > number]

    def _write(self, lines: bytes) -> None:
        try:
            if self._path.exists() and self._path.stat().st_size + len(lines) > _FILE_BYTES:
                self._path.replace(self._older)
            with self._path.open("ab") as file:
                # Ends a line that a crash has torn; an empty line is none.
                file.write(b"\n" + lines if _is_torn(self._path) else lines)
        except OSError as error:
            log.warning("events cannot be written to %s: %s", self._path, error.strerror)


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"


def _read(path: Path) -> list[Event]:
    try:
        with path.open("rb") as file:
            lines = file.read(2 * _FILE_BYTES).split(b"\n")
    except OSError:
        return []
    events: list[Event] = []
    for line in lines:
        try:
            event = from_line(line)
        except ValueError:
            continue
        if not events or event.number > events[-1].number:
            events.append(event)
    return events
