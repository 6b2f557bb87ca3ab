"""An event, and its line in a file.

A line is a JSON object in ASCII: `version` (1), `number` (1 and up, never twice in a volume), `time` (seconds
since the epoch), `kind`, `topic`, `text`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct, field

__all__ = ["MAX_LINE", "Action", "Event", "Kind", "NoticeBoard", "Show", "Withdraw", "from_line", "to_line"]

Kind: TypeAlias = Literal["trouble", "over", "news"]

MAX_LINE: Final = 4096
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_VERSION: Final = 1
_MAX_TEXT: Final = 1000  # characters
_MAX_TOPIC: Final = 200
_MAX_NUMBER: Final = 1 << 53


class Event(Struct, frozen=True):
    """Trouble that began or changed, trouble that is over, or news. One `topic` has one trouble at a time."""

    number: int
    time: float
    kind: Kind
    topic: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """The fields by their names."""
        return {
            "number": self.number,
            "time": self.time,
            "kind": self.kind,
            "topic": self.topic,
            "text": self.text,
        }


def to_line(event: Event) -> bytes:
    """The event as a line, of at most MAX_LINE bytes; long texts are cut."""
    text, topic = event.text[:_MAX_TEXT], event.topic[:_MAX_TOPIC]
    while True:
        fields = {"version": _VERSION, **event.as_dict(), "topic": topic, "text": text}
        line = json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
        if len(line) <= MAX_LINE:
            return line
        text, topic = text[: len(text) // 2], topic[: len(topic) // 2]


def from_line(line: bytes) -> Event:
    """Raises ValueError when it is not an event."""
    if len(line) > MAX_LINE:
        raise ValueError("it is too long")
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise ValueError("it is not an event of this version")
    number, time, kind = fields.get("number"), fields.get("time"), fields.get("kind")
    topic, text = fields.get("topic"), fields.get("text")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < _MAX_NUMBER:
        raise ValueError("it has no number")
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not math.isfinite(time):
        raise ValueError("it has no time")
    known = next((one for one in _KINDS if one == kind), None)
    if known is None or not isinstance(topic, str) or not isinstance(text, str):
        raise ValueError("it has no kind, topic or text")
    return Event(number, float(time), known, topic, text)


# -- which trouble is worth interrupting a person for, and until when. Pure: times are given ------------


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


class Show(Struct, frozen=True):
    """Show this, in place of what is shown under the topic; who clicks on it wants to see the section of
    the dashboard."""

    topic: str
    text: str
    section: str


class Withdraw(Struct, frozen=True):
    """It is over."""

    topic: str


Action: TypeAlias = Show | Withdraw


class NoticeBoard(Struct):
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
