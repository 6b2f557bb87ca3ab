"""What the clouds should hold of the newest checkpoint, and whether they do: for scrub, repair and fsck.

Each part is to be on f+k clouds, any of them. So a part is *missing* when fewer have it right, and nothing is
amiss where a cloud does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hybrisfs.checkpoint.cloud_checkpoint import CloudCheckpoint
from hybrisfs.checkpoint.deposit import Depositor
from hybrisfs.checkpoint.fetching import NotToBeHadError
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.restoring import Repair
from sync import DecodeError
from sync.checkpoint import checkpoint_name

__all__ = ["ExpectedCheckpoint", "PartState"]

_UNREADABLE: Final = (CloudsUnavailable, NotToBeHadError, DecodeError)


@dataclass(slots=True)
class PartState:
    """What clouds have of one part: *right* copies, and *wrong* ones; *lacking* is a cloud that could have
    one more, when they are too few."""

    right: set[int] = field(default_factory=set)
    wrong: dict[int, Finding] = field(default_factory=dict)
    lacking: int | None = None
    what: str = ""

    def findings(self) -> Iterator[tuple[int, Finding | None]]:
        """Each cloud that was looked at, or should have been, and what is wrong there."""
        yield from ((cloud, None) for cloud in sorted(self.right))
        yield from sorted(self.wrong.items())
        if self.lacking is not None and not self.wrong:
            yield self.lacking, Finding("missing", self.what)


class ExpectedCheckpoint:
    """The checkpoint of one volume. Thread-safe; blocks while clouds are asked."""

    def __init__(self, cloud_checkpoint: CloudCheckpoint, depositor: Depositor) -> None:
        self._cloud_checkpoint = cloud_checkpoint
        self._depositor = depositor

    def looks(self) -> list[Callable[[], PartState]]:
        """What is to be run to look at each part. Reads the root, which tells the parts."""
        try:
            parts = self._cloud_checkpoint.parts()
        except _UNREADABLE as error:
            return [partial(self._nowhere, str(error))]
        listed = self._depositor.listed() if parts else {}
        return [partial(self._look, part, listed) for part in parts]

    def _nowhere(self, reason: str) -> PartState:
        in_use, _ = self._depositor.place
        return PartState(lacking=min(in_use, default=0), what=f"the root of the checkpoint: {reason}")

    def _look(self, part: bytes, listed: Mapping[int, frozenset[bytes]]) -> PartState:
        in_use, copies = self._depositor.place
        state = PartState()
        for cloud in sorted(cloud for cloud in in_use if part in listed.get(cloud, ())):
            finding = self._depositor.look(cloud, part)
            if finding is None:
                state.right.add(cloud)
            else:
                state.wrong[cloud] = finding
        unknown = [cloud for cloud in in_use if cloud not in listed]
        if len(state.right) + len(unknown) < copies:
            state.lacking = min(in_use - state.right, default=0)
            state.what = f"{checkpoint_name(part)} is on {len(state.right)} clouds, not on {copies}"
        # It may have been replaced, and removed, by now.
        return state if part in self._parts() else PartState()

    def _parts(self) -> list[bytes]:
        try:
            return self._cloud_checkpoint.parts()
        except _UNREADABLE:
            return []

    def mends(self) -> list[Callable[[], Sequence[Repair]]]:
        """What is to be run to put each part right; the slices come before the root."""
        try:
            parts = self._cloud_checkpoint.parts()
        except _UNREADABLE as error:
            state = self._nowhere(str(error))
            return [lambda: [Repair(cloud, one, None) for cloud, one in state.findings() if one is not None]]
        listed = self._depositor.listed() if parts else {}
        return [partial(self._mend, part, listed) for part in parts]

    def mend(self, part: bytes) -> list[Repair] | None:
        """Put one part right; None when it belongs to the checkpoint no more."""
        return self._mend(part, self._depositor.listed()) if part in self._parts() else None

    def _mend(self, part: bytes, listed: Mapping[int, frozenset[bytes]]) -> list[Repair]:
        state = self._look(part, listed)
        wrong = [(cloud, finding) for cloud, finding in state.findings() if finding is not None]
        if not wrong:
            return []
        right = set(state.right)
        try:
            for cloud in state.wrong:
                self._depositor.put_back(cloud, part, right, partial(self._cloud_checkpoint.fetched, part))
            self._depositor.spread(part, right, partial(self._cloud_checkpoint.fetched, part))
        except _UNREADABLE as error:
            return [
                Repair(cloud, finding, cloud if cloud in right else None, str(error))
                for cloud, finding in wrong
            ]
        elsewhere = min(right)
        return [Repair(cloud, finding, cloud if cloud in right else elsewhere) for cloud, finding in wrong]
