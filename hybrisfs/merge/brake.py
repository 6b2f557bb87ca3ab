"""The brake on mass deletion: when another device removes much of the volume, that waits for a person.

What it comes of may be a slip, a sick program or a thief. Until somebody here says yes, the update that goes
too far is not part of the log here, nor is anything that depends on it; this device shows what it showed, and
goes on working. A device that deletes a large tree signs many updates meanwhile, so what counts is all that
it has removed within `WINDOW` seconds, of what this device shows: what came and went before it got here is
missed by nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.filesystem.registers import Place, removed_place
from sync import SignedUpdate, Write

__all__ = ["WINDOW", "Brake", "Deletion", "removals"]

WINDOW: Final = 600.0
_FEW: Final = 50  # names; who removes no more than that is never held up

Removal = tuple[bytes, Place]
"""The key of a place register, and where the node was."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """An update that is held up, with all that its device has removed lately."""

    device: bytes
    time_ns: int
    of: int
    """How many names there were."""
    removals: list[Removal] = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Recent:
    at: float
    device: bytes
    removals: list[Removal]


class Brake:
    """The updates that wait. *share*: from which part of all names on; with 1 and more nothing ever waits."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._held: dict[bytes, Deletion] = {}
        self._confirmed: set[bytes] = set()
        self._recent: deque[_Recent] = deque()

    def holds(self, update: SignedUpdate, found: list[Removal], names: int, now: float) -> bool:
        """Whether the update, new here, has to wait; it is kept then. *found*: which of the *names* that are
        shown here it removes; *now*: seconds by a clock that never goes back."""
        if self.share >= 1 or not found or update.hash in self._confirmed:
            return False
        while self._recent and self._recent[0].at < now - WINDOW:
            self._recent.popleft()
        device = update.header.writer
        before = [one for recent in self._recent if recent.device == device for one in recent.removals]
        removed, total = len(before) + len(found), names + len(before)
        if removed <= _FEW or removed <= self.share * total:
            self._recent.append(_Recent(now, device, found))
            return False
        self._held[update.hash] = Deletion(
            device, update.header.time_ns, total, [*before, *found], update.data
        )
        return True

    def held(self) -> dict[bytes, Deletion]:
        """What waits, by the hashes of the updates."""
        return dict(self._held)

    def accepted(self, updates: Iterable[bytes]) -> None:
        """The updates with these hashes wait no more: the log holds them."""
        for update in updates:
            self._held.pop(update, None)

    def confirm(self, update: bytes) -> Deletion:
        """Let the update with this hash pass, and begin to count anew. Raises KeyError."""
        deletion = self._held.pop(update)
        self._confirmed.add(update)
        self._recent = deque(one for one in self._recent if one.device != deletion.device)
        return deletion


def removals(writes: Iterable[Write]) -> list[Removal]:
    """The names that an update removes."""
    return [
        (key, place)
        for key, value in writes
        if key[:1] == b"p" and (place := removed_place(value)) is not None
    ]
