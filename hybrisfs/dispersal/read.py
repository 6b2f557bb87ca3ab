"""A value to be read: where its parts are, how it is rebuilt from them, and which clouds owe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable

__all__ = ["Read", "Readable", "Target"]

T = TypeVar("T")


class Readable(Protocol):
    """What of a store it takes to read an object."""

    def get(self, name: str, *, limit: int) -> bytes:
        """See `Store.get`."""

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """See `Store.get_range`."""


class Target(NamedTuple):
    """An object at a cloud; `owed` when that cloud acknowledged it."""

    cloud: int
    name: str
    owed: bool


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A value to be rebuilt from what any `k` of the targets return.

    `rebuild` gets bytes by position and raises IntegrityError or ValueError when they are wrong. With k > 1
    `blame` then returns what is wrong by position, or None when that cannot be found out now; it may ask
    clouds itself within the seconds given. `recheck(position)` returns the size limit and the check of
    that cloud's whole object, for later. `absent` is how many clouds prove by their word that there is none;
    then those that are late are not waited for.
    `rounds` is how often all clouds are asked again when none has it; `eager` asks all from the start.
    `older`: whether older versions of the objects may be read when they are missing or wrong.
    `current` says whether the clouds still owe what is read, or may have been told to delete it. `subscribe`
    has a function called when they need not have it any more, as long as its result is entered.
    `hearsay`: that the clouds owe it is only said: nothing is held against any before another one has
    delivered it.
    """

    what: str
    k: int
    targets: Sequence[Target]
    size: int
    fetch: Callable[[Readable, str], bytes]
    rebuild: Callable[[Mapping[int, bytes]], T]
    recheck: Callable[[int], tuple[int, Callable[[bytes], object]]]
    failure: type[ChunkUnavailable] | type[CloudsUnavailable]
    blame: Callable[[Mapping[int, bytes], float], Mapping[int, str] | None] | None = None
    absent: int | None = None
    rounds: int = 2
    eager: bool = False
    older: bool = True
    current: Callable[[], bool] = lambda: True
    subscribe: Callable[[Callable[[], None]], AbstractContextManager[object]] | None = None
    hearsay: bool = False
