"""A cloud that keeps the devices' signed updates, or does not: it may be down, forget, and lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

__all__ = ["Cloud", "Mood"]


class Mood(Enum):
    """How a cloud behaves now."""

    WELL = "well"
    DOWN = "down"
    OLD = "old"  # it hides what came last
    MIXED = "mixed"  # it answers in any order, with gaps
    GARBLED = "garbled"  # it changes bytes


@dataclass(slots=True)
class Cloud:
    """What it was given, in order."""

    random: Random
    mood: Mood = Mood.WELL
    updates: list[bytes] = field(default_factory=list)
    _known: set[bytes] = field(default_factory=set)

    def put(self, updates: list[bytes]) -> None:
        """Take updates in, unless it is down."""
        if self.mood is not Mood.DOWN:
            self.updates += [update for update in updates if update not in self._known]
            self._known.update(updates)

    def get(self) -> list[bytes]:
        """What it says that it has."""
        if self.mood is Mood.DOWN:
            return []
        found = list(self.updates)
        if self.mood is Mood.OLD:
            return found[: self.random.randrange(len(found) + 1)]
        if self.mood is Mood.MIXED:
            return self.random.sample(found, self.random.randrange(len(found) + 1))
        if self.mood is Mood.GARBLED:
            return [self._garbled(update) for update in found]
        return found

    def _garbled(self, update: bytes) -> bytes:
        if self.random.random() < 0.5:
            return update
        at = self.random.randrange(len(update))
        kind = self.random.randrange(3)
        if kind == 0:
            return update[:at]
        if kind == 1:
            return update + update[at:]
        return update[:at] + bytes((update[at] ^ 1 << self.random.randrange(8),)) + update[at + 1 :]
