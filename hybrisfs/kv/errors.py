"""What can go wrong with a key or a container, in words for people."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar, Final

from hybrisfs.errors import ConditionError, HybrisError
from hybrisfs.kv.record import Condition, Current, is_usable

__all__ = [
    "DAMAGE_ADVICE",
    "AmbiguousVersionError",
    "ConditionNotMetError",
    "ContainerExistsError",
    "ContainerInUseError",
    "ContainerMovingError",
    "NoSuchContainerError",
    "NoSuchKeyError",
]

_SHOWN: Final = 10  # containers

DAMAGE_ADVICE: Final = "Restore it from a backup, or run hybrisfs kv rebuild."


class NoSuchKeyError(HybrisError):
    """The container holds no such key."""

    kind: ClassVar[str] = "no such key"

    def __init__(self, container: str, key: str) -> None:
        super().__init__(f"there is no key {key!r} in the container {container!r}")


class ConditionNotMetError(ConditionError):
    """A write has not taken place because of the value that a *key*, CONTAINER/KEY, had instead."""

    def __init__(self, key: str, condition: Condition, found: Current | None) -> None:
        self.found = found
        if found is None or not found.live:
            why = f"{key} has no value"
        else:
            why = f"{key} has version {found.sn} (tag {found.timestamp.tag}, {found.size:,} bytes)"
        super().__init__("nothing was written", f"{why}, not {_wanted(condition)}")


class AmbiguousVersionError(ConditionError):
    """A write has not taken place, as two values of a key have had the version that it depends on."""

    def __init__(self, key: str, version: int) -> None:
        super().__init__(
            "nothing was written",
            f"{key} has had two values with version {version}, written at the same time",
            "kv put --if-match TAG names one value; kv list shows its tag.",
        )


def _wanted(condition: Condition) -> str:
    if condition.tag is not None:
        return f"the one with tag {condition.tag.tag}"
    if condition.version is None:
        return "any"
    return f"version {condition.version}" if condition.version else "none"


class NoSuchContainerError(HybrisError):
    """There is no such container, or, None, not any more; *others* are those that there are."""

    kind: ClassVar[str] = "no such container"

    def __init__(self, container: str | None, others: Iterable[str]) -> None:
        some = ", ".join(islice(sorted(filter(is_usable, others)), _SHOWN))
        there_are = f"There are: {some}. " if some else ""
        what = "the container has just been deleted or moved"
        if container is not None:
            what = f"there is no container {container!r}"
        super().__init__(
            what,
            "",
            f"{there_are}hybrisfs kv create VOLUME CONTAINER makes one.",
        )


class ContainerMovingError(HybrisError):
    """A container cannot be used for a moment."""

    kind: ClassVar[str] = "container is being moved"

    def __init__(self, container: str) -> None:
        super().__init__(
            f"the container {container!r} cannot be used now",
            "it is being moved to another place",
            "Try again. hybrisfs kv migrate goes on with a move that was cut short.",
        )


class ContainerExistsError(HybrisError):
    """There is a container of that name already."""

    kind: ClassVar[str] = "container exists"

    def __init__(self, container: str) -> None:
        super().__init__(f"there is a container {container!r} already")


class ContainerInUseError(HybrisError):
    """The container still holds keys."""

    kind: ClassVar[str] = "container in use"

    def __init__(self, container: str) -> None:
        super().__init__(f"the container {container!r} is not empty", "", "Delete its keys first.")
