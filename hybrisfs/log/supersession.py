"""What many updates do to registers, one after the other: which values come, and which are superseded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hybrisfs.kinds import NODE, PLACE
from hybrisfs.log.versions import Ended, VersionStore
from hybrisfs.registers.tree import removed_place
from hybrisfs.registers.values import Stamp, Value
from sync import VersionVector, Write

__all__ = ["Concurrent", "Supersession", "Written"]


class Written(NamedTuple):
    """What an update has written to registers that are kept here, with all that it depends on."""

    stamp: Stamp
    vector: VersionVector
    writes: Sequence[Write]


class Concurrent(NamedTuple):
    """A write of an update with *vector*, signed at the moment *until*, which left other values standing."""

    key: bytes
    until: int
    vector: VersionVector


class Supersession:
    """The values of registers while updates are taken in, in the order in which they were accepted."""

    def __init__(self, stored: Mapping[bytes, Sequence[Stamp]], versions: VersionStore | None = None) -> None:
        """*stored*: the latest values of the registers that are written to; *versions* says when an update
        counts as signed, should it matter."""
        self._stored = dict(stored)
        self._versions = versions
        self.come: dict[bytes, list[Value]] = {}
        """The latest values of each register among those that the updates have written."""
        self.superseded: list[tuple[bytes, Stamp]] = []
        """Values that were stored, and an update supersedes."""
        self.ended: list[Ended] = []
        """Them, and those of updates that a later one supersedes."""
        self.concurrent: list[Concurrent] = []
        self.removals: list[tuple[bytes, int]] = []
        """Nodes of which a name was removed, and the moment."""

    def take(self, updates: Iterable[Written]) -> None:
        """The next updates."""
        come, stored = self.come, self._stored
        for stamp, vector, writes in updates:
            moment = 0 if self._versions is None else self._versions.moment(stamp)
            for key, value in writes:
                new = Value(stamp, value)
                if key in come or key in stored:
                    come[key] = [*self._beside(key, vector, moment), new]
                else:
                    come[key] = [new]
                if key[0] == PLACE and removed_place(value) is not None:
                    self.removals.append((key[NODE], moment))

    def _beside(self, key: bytes, vector: VersionVector, moment: int) -> Sequence[Value]:
        """The values that came before and stand beside that of an update with *vector*."""
        come = self.come.get(key)
        latest = self._outliving(key, come, vector, moment) if come else ()
        if (key in self._stored and self._standing(key, vector, moment)) or latest:
            self.concurrent.append(Concurrent(key, moment, vector))
        return latest

    def _outliving(
        self, key: bytes, latest: Iterable[Value], vector: VersionVector, moment: int
    ) -> list[Value]:
        """Those of the values of earlier updates that one with *vector* does not supersede."""
        outliving = []
        for one in latest:
            if vector[one.stamp.writer] < one.stamp.clock:
                outliving.append(one)
            elif one.value is not None:
                self.ended.append(Ended(key, one.stamp, moment, one.value))
        return outliving

    def _standing(self, key: bytes, vector: VersionVector, moment: int) -> Sequence[Stamp]:
        """Those of the values stored that an update with *vector* does not supersede."""
        standing = []
        for stamp in self._stored[key]:
            if vector[stamp.writer] < stamp.clock:
                standing.append(stamp)
            else:
                self.superseded.append((key, stamp))
                self.ended.append(Ended(key, stamp, moment))
        self._stored[key] = standing
        return standing
