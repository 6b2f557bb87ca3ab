"""Which trouble is worth interrupting somebody for, and until when. Pure: times are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hybrisfs.events.event import Event

__all__ = ["Action", "NoticeBoard", "Show", "Withdraw"]

# Seconds that trouble has to last, by the beginning of its topic. The rest is for `hybrisfs events` only.
_AFTER: Final = {
    "volume": 0.0,
    "clouds": 60.0,
    "cloud/": 1800.0,
    "fork/": 0.0,
    "conflicts": 0.0,
    "warning/": 60.0,
    "error": 60.0,
}
_PAUSE: Final = 600.0  # seconds until the same topic is shown again: what comes and goes is shown once


@dataclass(frozen=True, slots=True)
class Show:
    """Show this, in place of what is shown under the topic."""

    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """It is over."""

    topic: str


Action: TypeAlias = Show | Withdraw


@dataclass(slots=True)
class NoticeBoard:
    """What is shown to a person about one volume."""

    _waiting: dict[str, tuple[float, str]] = field(default_factory=dict)  # topic: when it is due, text
    _shown: set[str] = field(default_factory=set)
    _last: dict[str, float] = field(default_factory=dict)

    def take(self, events: Iterable[Event], now: float) -> list[Action]:
        """What is to be done now, in the light of new events; *now* as in these."""
        actions: list[Action] = []
        for event in events:
            if event.kind == "over":
                self._waiting.pop(event.topic, None)
                if event.topic in self._shown:
                    self._shown.remove(event.topic)
                    actions.append(Withdraw(event.topic))
            elif (patience := _patience(event)) is not None:
                due = max(event.time + patience, self._last.get(event.topic, -_PAUSE) + _PAUSE)
                self._waiting[event.topic] = (due, event.text)
        for topic in [topic for topic, (due, _) in self._waiting.items() if due <= now]:
            _, text = self._waiting.pop(topic)
            self._shown.add(topic)
            self._last[topic] = now
            actions.append(Show(topic, text))
        return actions


def _patience(event: Event) -> float | None:
    if event.kind == "news" and event.topic != "conflicts":
        return None
    for beginning, patience in _AFTER.items():
        if event.topic == beginning or (beginning.endswith("/") and event.topic.startswith(beginning)):
            return patience
    return None
