"""What several fakes answer with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

__all__ = ["EXPIRES", "FakeCollection", "FakeFacts"]

_Facts = TypeVar("_Facts")

_NOTHING: Final = {"clouds": [], "problems": [], "wrong": 0, "older": 0, "repaired": 0, "failed": 0}
EXPIRES: Final = 1_800_000_000
"""A moment, in seconds since the epoch."""


@dataclass
class FakeCollection:
    """What no file needs, as it was made."""

    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return self.facts


@dataclass
class FakeFacts(Generic[_Facts]):
    """A report that says what it was made with, and else that nothing was wrong."""

    told: dict[str, Any]
    kind: type[_Facts]

    def facts(self) -> _Facts:
        return msgspec.convert({**_NOTHING, **self.told}, self.kind)
