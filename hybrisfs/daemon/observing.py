"""Watches what becomes of the volumes: keeps their events, shows on the desktop what needs a person, and
writes a file for panels.

The file, `status.json` in the runtime folder, to which that of a session leads, is replaced whenever it
changes: an `hybrisfs.api.status.PanelFile` as JSON.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from hybrisfs.api.request import Handler, Waiting, message_of
from hybrisfs.api.status import (
    Events,
    EventsRequest,
    PanelFile,
    PanelVolume,
    VolumeEvent,
    VolumeStatus,
)
from hybrisfs.daemon.desktop import Desktop, PageOpener
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.daemon.supervisor import Life
from hybrisfs.environment import Environment, replace_file
from hybrisfs.events.conditions import Facts, Happening, Observer, summary
from hybrisfs.events.event import Event, NoticeBoard
from hybrisfs.events.record import EventRecord
from hybrisfs.home import Home

__all__ = ["Observing"]

log = logging.getLogger(__name__)

_EVERY: Final = 5.0  # seconds
_REOPEN: Final = 60.0  # seconds
_STEP: Final = 1.0  # seconds between two looks whether somebody who waits is still there
_MOST: Final = 1000  # events in one answer
_LONGEST: Final = 60.0  # seconds that a client may wait for events


class _Watched:
    """One volume."""

    def __init__(self, record: EventRecord) -> None:
        self.record = record
        self.observer = Observer()
        self.observer.remember(record.all())
        self.board = NoticeBoard()
        self.facts: Facts | None = None
        self.tried = float("-inf")  # when it was last opened, in vain


class Observing:
    """One thread that looks at all open volumes, from `start` to `stop`, and the command `events`."""

    def __init__(
        self,
        home: Home,
        slots: Slots,
        facts_of: Callable[[Slot], Facts],
        environment: Environment,
        desktop: Desktop | None = None,
    ) -> None:
        """*facts_of* is what `status` says of a volume, without asking its clouds."""
        self._home = home
        self._slots = slots
        self._facts_of = facts_of
        self._environment = environment
        self._pages = PageOpener(home, environment)
        self._desktop = desktop or Desktop(self._pages.open)
        self._watched: dict[str, _Watched] = {}
        slots.dropped.listen(self._forget)
        self._condition = threading.Condition()
        self._stopping = False
        self._shown = b""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self.commands: dict[str, Handler] = dict([EventsRequest.answered_by(self._events)])

    def note_death(self, last: Life, now: float) -> None:
        """Keep with every volume that the *last* daemon died; before all else, for this one may die, too."""
        when = "" if last.died is None else time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(last.died))
        news = Happening("news", "daemon", f"the daemon died{when} and was started again")
        for slot in self._slots.all():
            self._keep(slot.name, [news], now)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; let go of those that wait for events. Idempotent."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._desktop.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._home.panels.unlink(missing_ok=True)
        self._desktop.close()

    def date(self, facts: VolumeStatus) -> None:
        """Put into what `status` says since when clouds have been in trouble, as earlier daemons saw it."""
        with self._condition:
            self._of(facts.name).observer.date(facts)

    def look(self, now: float) -> None:
        """Look at all open volumes once; *now* in seconds since the epoch."""
        summaries = []
        for slot in self._slots.opened():
            facts = self._facts(slot, now)
            with self._condition:
                watched = self._of(slot.name)
                events = self._keep(slot.name, watched.observer.look(facts, now), now)
            if not isinstance(facts, VolumeStatus) or facts.notifications:
                for action in watched.board.take(events, now):
                    self._desktop.carry_out(slot.name, action)
            summaries.append(summary(facts))
        self._tell_panels(summaries)

    def _facts(self, slot: Slot, now: float) -> Facts:
        """What is known of a volume. One that cannot be opened is not tried again at every look."""
        with self._condition:
            watched = self._of(slot.name)
        if slot.volume is None:
            if watched.facts is not None and watched.tried <= now < watched.tried + _REOPEN:
                return watched.facts
            watched.tried = now
        watched.facts = self._facts_of(slot)
        return watched.facts

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.look(time.time())
            except Exception:
                log.exception("the volumes could not be looked at")
            self._desktop.wait(_EVERY)
            self._pages.reap()

    def _keep(self, name: str, happenings: list[Happening], now: float) -> list[Event]:
        """Keep what has happened to a volume, and tell the clients that wait for it."""
        with self._condition:
            events = self._of(name).record.add(happenings, now)
            if events:
                self._condition.notify_all()
        for event in events:
            log.info("%s: %s: %s", name, event.kind, event.text)
        return events

    def _forget(self, name: str) -> None:
        with self._condition:
            self._watched.pop(name, None)

    def _of(self, name: str) -> _Watched:
        if name not in self._watched:
            self._watched[name] = _Watched(EventRecord(self._home.volume_state(name)))
        return self._watched[name]

    def _tell_panels(self, summaries: list[PanelVolume]) -> None:
        try:
            self._home.link_session()
        except OSError as error:
            log.debug("%s leads to another place: %s", self._home.session, error)
        told = json.dumps(message_of(PanelFile(1, summaries))).encode("ascii")
        if told == self._shown:
            return
        try:
            replace_file(self._home.panels, told + b"\n", self._environment)
        except OSError as error:
            log.debug("%s cannot be written: %s", self._home.panels, error.strerror)
            return
        self._shown = told

    def _events(self, asked: EventsRequest, tell: Callable[[Waiting], None]) -> Events:
        """Those after some numbers, or the last ones; waits for some when told to."""
        slots = self._slots.all() if asked.name is None else [self._slots.get(asked.name)]
        names = [slot.name for slot in slots]
        limit = _MOST if asked.limit is None else max(0, min(asked.limit, _MOST))
        deadline = time.monotonic() + min(asked.wait or 0.0, _LONGEST)
        while not self._wait(names, asked.after, deadline):
            tell(Waiting())  # raises when nobody listens any more
        with self._condition:
            return self._answer(names, asked.after, limit)

    def _wait(self, names: list[str], after: dict[str, int] | None, deadline: float) -> bool:
        """Wait a little; whether there is no more to wait for."""
        with self._condition:
            left = min(_STEP, deadline - time.monotonic())
            self._condition.wait_for(lambda: self._stopping or self._any(names, after), max(0.0, left))
            return self._stopping or self._any(names, after) or time.monotonic() >= deadline

    def _any(self, names: list[str], after: dict[str, int] | None) -> bool:
        return any(self._of(name).record.last > (after or {}).get(name, 0) for name in names)

    def _answer(self, names: list[str], after: dict[str, int] | None, limit: int) -> Events:
        records = {name: self._of(name).record for name in names}
        seen = {name: (after or {}).get(name, 0) for name in names}
        found = [(event, name) for name in names for event in records[name].after(seen[name])]
        found.sort(key=lambda one: one[0].time)
        kept = found[:limit] if after is not None else found[max(0, len(found) - limit) :]
        for event, name in kept:
            seen[name] = max(seen[name], event.number)
        if after is None:
            seen = {name: record.last for name, record in records.items()}
        return Events([VolumeEvent(volume=name, **event.as_dict()) for event, name in kept], seen)
