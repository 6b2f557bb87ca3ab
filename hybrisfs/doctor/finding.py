"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from hybrisfs.wire import Message

__all__ = ["Finding", "Level", "bad", "ok", "warn"]

Level: TypeAlias = Literal["ok", "warn", "bad"]
"""Fine; works, but something may go wrong later; something does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The `result` of one `check`, in a sentence (`what`), and what to do (`advice`, "" when nothing)."""

    check: str
    result: Level
    what: str
    advice: str = ""

    def as_dict(self) -> Message:
        return asdict(self)


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def warn(check: str, what: str, advice: str) -> Finding:
    return Finding(check, "warn", what, advice)


def bad(check: str, what: str, advice: str) -> Finding:
    return Finding(check, "bad", what, advice)
