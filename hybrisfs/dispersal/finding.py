"""What is wrong with one object at one cloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Expected", "Finding", "FindingKind"]

FindingKind: TypeAlias = Literal["missing", "stale", "corrupt", "unreadable"]
"""It is gone; an earlier version; not what was written; or the cloud does not answer, so nobody knows."""


class Expected(NamedTuple):
    """What should be there: an object of at most `limit` bytes, for which `verify` raises nothing."""

    name: str
    limit: int
    verify: Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is a sentence that names the object. `key`: CONTAINER/KEY, when it holds a share of a value.
    `older`: the cloud is known to keep the right object, as an older version of this one."""

    kind: FindingKind
    what: str
    key: str | None = None
    expected: Expected | None = field(default=None, compare=False, repr=False)
    older: bool = field(default=False, compare=False)
