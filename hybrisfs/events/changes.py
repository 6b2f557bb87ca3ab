"""What has happened between two looks at a volume. Pure: times are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hybrisfs.api.status import UnusableVolume, VolumeStatus
from hybrisfs.events.conditions import Facts, conditions
from hybrisfs.events.event import Event, Kind
from hybrisfs.verdict import machines_only

__all__ = ["Happening", "Observer"]

_LONG: Final = 60.0  # seconds: whoever had to wait so long for the clouds is told when it is done
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400


class Happening(NamedTuple):
    """An event without number and time."""

    kind: Kind
    topic: str
    text: str


@dataclass(slots=True)
class _Trouble:
    state: str
    since: float
    ended: str


@dataclass(slots=True)
class Observer:
    """Looks at one volume again and again."""

    _troubles: dict[str, _Trouble] = field(default_factory=dict)
    _devices: dict[str, str] | None = None
    _pending_since: float | None = None
    _conflicts: int = 0

    def remember(self, events: Iterable[Event]) -> None:
        """Take trouble that was going on when the last daemon ended for known; *events* in their order."""
        for event in events:
            if event.kind == "trouble":
                self._troubles[event.topic] = _Trouble("", event.time, f"over: {event.text}")
            elif event.kind == "over":
                self._troubles.pop(event.topic, None)

    def look(self, facts: Facts, now: float) -> list[Happening]:
        """What has happened since the last look; *now* in seconds since the epoch."""
        return [
            *self._troubled(facts, now),
            *self._more_conflicts(facts),
            *self._members(facts),
            *self._safe(facts, now),
        ]

    def date(self, facts: VolumeStatus) -> None:
        """Make `since` of each cloud that is in trouble the moment at which that was first seen."""
        for cloud in facts.clouds:
            trouble = self._troubles.get(f"cloud/{cloud.name}")
            if trouble is not None and trouble.state in ("", cloud.state):
                cloud.since = min(cloud.since, round(trouble.since))

    def _troubled(self, facts: Facts, now: float) -> Iterable[Happening]:
        found = conditions(facts)
        for topic, condition in found.items():
            known = self._troubles.get(topic)
            if known is None or known.state not in ("", condition.state):
                yield Happening("trouble", topic, condition.text)
            since = now if known is None else known.since
            self._troubles[topic] = _Trouble(condition.state, since, condition.ended)
        for topic in [topic for topic in self._troubles if topic not in found]:
            over = self._troubles.pop(topic)
            yield Happening("over", topic, f"{over.ended}, after {_span(now - over.since)}")

    def _more_conflicts(self, facts: Facts) -> Iterable[Happening]:
        before, self._conflicts = self._conflicts, facts.conflicts or 0
        more = self._conflicts - before
        if before and more > 0:
            yield Happening("news", "conflicts", "1 more conflict" if more == 1 else f"{more} more conflicts")

    def _members(self, facts: Facts) -> Iterable[Happening]:
        if isinstance(facts, UnusableVolume):
            return
        devices = {one.id: one.name for one in facts.devices}
        before, self._devices = self._devices, devices
        if before is None:
            return
        for device in devices.keys() - before.keys():
            yield Happening("news", f"member/{device}", f"{devices[device]} belongs to the volume now")
        for device in before.keys() - devices.keys():
            yield Happening("news", f"member/{device}", f"{before[device]} belongs to the volume no longer")

    def _safe(self, facts: Facts, now: float) -> Iterable[Happening]:
        if isinstance(facts, UnusableVolume):
            return
        if facts.pending_files or facts.pending_bytes or machines_only(facts.machines_only):
            self._pending_since = self._pending_since or now
            return
        since, self._pending_since = self._pending_since, None
        if since is not None and now - since >= _LONG:
            yield Happening("news", "safe", f"everything is safe on the clouds, after {_span(now - since)}")


def _span(seconds: float) -> str:
    for length, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return "less than a minute"
