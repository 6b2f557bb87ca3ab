"""Errors of the data plane. Each message names what failed, why, and what is affected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "ChunkUnavailable",
    "CloudsUnavailable",
    "DispersalError",
    "EarlierVersionError",
    "Expected",
    "Finding",
    "FindingKind",
    "IntegrityError",
    "NewerVersionError",
    "ObjectMissing",
    "Superseded",
    "UnreadableHereError",
]


class DispersalError(Exception):
    """Base of everything that dispersal raises."""


class IntegrityError(DispersalError):
    """Bytes that came back from a cloud are not the bytes that were written."""


class UnreadableHereError(IntegrityError):
    """The bytes may be right, but this device cannot tell; nothing of them was used. When all clouds return
    the same, none of them lies."""


class NewerVersionError(UnreadableHereError):
    """The bytes announce a format that this version does not know."""


class EarlierVersionError(UnreadableHereError):
    """The bytes were right once. A cloud that got the next version late returns them too, so this is not a
    lie, even when another cloud has that version."""


class _PerCloudError(DispersalError):
    """A failure explained cloud by cloud: `reasons` maps the cloud's name to a sentence."""

    def __init__(self, what: str, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        detail = "; ".join(f"{cloud}: {reason}" for cloud, reason in self.reasons.items())
        super().__init__(f"{what} ({detail})" if detail else what)


class CloudsUnavailable(_PerCloudError):  # noqa: N818 - a state of the world, waited out by callers
    """Too few clouds acknowledged a write, or none had an object; try again when they are back."""


class ObjectMissing(CloudsUnavailable):
    """So many clouds say that there is no such object that it was never completely written."""


class Superseded(DispersalError):  # noqa: N818 - no failure: there is something newer to be read
    """The object has been written again while it was read."""


class ChunkUnavailable(_PerCloudError):  # noqa: N818 - a state of the world, waited out by callers
    """A chunk cannot be rebuilt from what the clouds answer now; try again when they are back."""


# -- what is wrong with one object at one cloud ---------------------------------------------------------


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
