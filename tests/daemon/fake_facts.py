"""What several fakes answer with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["EXPIRES", "FakeFacts"]

EXPIRES: Final = 1_800_000_000
"""A moment, in seconds since the epoch."""


@dataclass
class FakeFacts:
    """A report that says what it was made with."""

    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return self.facts
