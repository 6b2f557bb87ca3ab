"""The clouds on which other devices are followed: those in use, and those of which only signposts tell.

The latter are read and never written to: the log of the other devices may be there, which says whether they
are the volume's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.poll import Listing, Look, Polled

__all__ = ["FollowedClouds"]

T = TypeVar("T")


class FollowedClouds:
    """What `receive.pull.CloudReader` asks for, of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def in_use(self) -> tuple[int, ...]:
        """The numbers of the clouds that are looked at."""
        return (*self._engine.in_use, *sorted(self._engine.heard))

    @property
    def f(self) -> int:
        """See `Engine.f`."""
        return self._engine.f

    def poll_objects(self, looks: Sequence[Look], *, limit: int, timeout: float) -> dict[Look, Polled]:
        """See `Engine.poll_objects`."""
        return self._engine.poll_objects(looks, limit=limit, timeout=timeout)

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T:
        """See `Engine.get_object`."""
        return self._engine.get_object(name, limit, verify)

    def list_objects(self, prefix: str, *, most: int, timeout: float) -> Listing:
        """See `Engine.list_objects`."""
        return self._engine.list_objects(prefix, most=most, timeout=timeout)

    def accuse(
        self, cloud: int, name: str, reason: str, limit: int, recheck: Callable[[bytes], object]
    ) -> None:
        """See `Engine.accuse`."""
        self._engine.accuse(cloud, name, reason, limit, recheck)
