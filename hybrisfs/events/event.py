"""An event, and its line in a file.

A line is a JSON object in ASCII: `version` (1), `number` (1 and up, never twice in a volume), `time` (seconds
since the epoch), `kind`, `topic`, `text`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = ["MAX_LINE", "Event", "Kind", "from_line", "to_line"]

Kind: TypeAlias = Literal["trouble", "over", "news"]

MAX_LINE: Final = 4096
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_VERSION: Final = 1
_MAX_TEXT: Final = 1000  # characters
_MAX_TOPIC: Final = 200
_MAX_NUMBER: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Event:
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
    """Raises ValueError when it is no event."""
    if len(line) > MAX_LINE:
        raise ValueError("it is too long")
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise ValueError("it is no event of this version")
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
