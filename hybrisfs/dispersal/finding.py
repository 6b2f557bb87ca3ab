"""What is wrong with one object at one cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "FindingKind"]

FindingKind: TypeAlias = Literal["missing", "stale", "corrupt", "unreadable"]
"""It is gone; an earlier version; not what was written; or the cloud does not answer, so nobody knows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is a sentence that names the object. `key`: CONTAINER/KEY, when it holds a share of a value."""

    kind: FindingKind
    what: str
    key: str | None = None
