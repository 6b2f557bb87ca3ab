"""Which trouble is worth interrupting a person for, and until when. Pure: times are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from hybrisfs.events.event import Event

__all__ = ["Action", "NoticeBoard", "Show", "Withdraw"]


class _Rule(NamedTuple):
    patience: float  # seconds that the trouble has to last
    section: str  # of the dashboard, where one sees more of it and can do something


# By the beginning of the topic. The rest is for `hybrisfs events` only.
_RULES: Final = {
    "volume": _Rule(0.0, "overview"),
    "mount": _Rule(60.0, "overview"),
    "removed": _Rule(0.0, "overview"),
    "clouds": _Rule(60.0, "clouds"),
    "cloud/": _Rule(1800.0, "clouds"),
    "fork/": _Rule(0.0, "devices"),
    "conflicts": _Rule(0.0, "conflicts"),
    "warning/": _Rule(60.0, "overview"),
    "error": _Rule(60.0, "overview"),
}
_PAUSE: Final = 600.0  # seconds until the same topic is shown again: what comes and goes is shown once


@dataclass(frozen=True, slots=True)
class Show:
    """Show this, in place of what is shown under the topic; who clicks on it wants to see the section of
    the dashboard."""

    topic: str
    text: str
    section: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """It is over."""

    topic: str


Action: TypeAlias = Show | Withdraw


@dataclass(slots=True)
class NoticeBoard:
    """What is shown to a person about one volume."""

    _waiting: dict[str, tuple[float, Show]] = field(default_factory=dict)  # topic: when it is due
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
            elif (rule := _rule(event)) is not None:
                due = max(event.time + rule.patience, self._last.get(event.topic, -_PAUSE) + _PAUSE)
                self._waiting[event.topic] = (due, Show(event.topic, event.text, rule.section))
        for topic in [topic for topic, (due, _) in self._waiting.items() if due <= now]:
            _, show = self._waiting.pop(topic)
            self._shown.add(topic)
            self._last[topic] = now
            actions.append(show)
        return actions


def _rule(event: Event) -> _Rule | None:
    if event.kind == "news" and event.topic != "conflicts":
        return None
    for beginning, rule in _RULES.items():
        if event.topic == beginning or (beginning.endswith("/") and event.topic.startswith(beginning)):
            return rule
    return None
