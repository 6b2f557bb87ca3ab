"""The brake on mass deletion and overwriting: when another device takes away much of the volume, that waits.

What it comes of may be a slip, a sick program, ransomware or a thief. `hybrisfs.merge.losses` finds what is
lost to this device's view, by whatever register, and keeps it there until it is decided; this is the
arithmetic. One device has taken too much away, more than `FEW` in any case, when one of these holds:

* What it did within `WINDOW_NS`, by the moments of its updates (`hybrisfs.state.moments`), is more than the
  *share* of the names that were shown. So a week that arrives at once is a week.
* What arrived of it here within `WINDOW`, whatever its dates, is more than `MOST` of them. A liar may date
  one deletion as many small ones: of a moment it is certain only that it is no sooner than those of the
  causes. A device that was away while another deleted nearly everything bit by bit asks once: that is worth a
  question.

It has overwritten too much, by the moments, when one of these holds:

* Files that it overwrote are more than a tenth of the *share* of all files, or than `MANY` where that is
  less: `Cause.MANY`. Programs do that for good reasons, so samples decide whether a person is asked
  (`hybrisfs.merge.samples`).
* Files that it replaced *wholly*, as `hybrisfs.merge.losses` calls it, are more than the *share* of all
  files: `Cause.MUCH`. A person is asked unless samples show that the files are still what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.kinds import NODE, PLACE
from hybrisfs.registers.tree import place_key
from hybrisfs.state.decisions import Cause

__all__ = ["FEW", "MANY", "MOST", "WINDOW", "WINDOW_NS", "Brake", "Loss", "Shown", "Verdict"]

WINDOW: Final = 600.0
WINDOW_NS: Final = int(WINDOW) * 1_000_000_000
FEW: Final = 50
"""In names: the losses by a device are never held while they are no more than that."""
MANY: Final = 1000
"""Overwritten files that are looked at, whatever part they are of all."""
MOST: Final = 0.75
_TENTH: Final = 10


class Loss(NamedTuple):
    """A register whose new value loses something, and the value that was shown before, if that is known."""

    key: bytes
    former: bytes | None
    names: int = 1
    """How many names go with it; 0: none, other content has the name."""
    overwritten: bool = False
    """Whether other content is there in its stead, under the same name or beside it."""
    wholly: bool = False
    """Whether that has nothing of what was there, untouched for long."""

    @property
    def name(self) -> bytes:
        """The key of the place that the loss counts for, so that a file that is emptied and then removed
        counts once."""
        return self.key if self.key[0] == PLACE else place_key(self.key[NODE], 0)


class Verdict(NamedTuple):
    """These are too many."""

    cause: Cause
    losses: Sequence[Loss]
    total: int
    """How many names there were, or files."""
    before: dict[bytes, bytes]
    """Losses let go within the same time: keys of registers with their former values."""


class Shown(NamedTuple):
    """How many names the view shows, and regular files."""

    names: int
    files: int


class _Entry(Struct):
    when: float
    look: int
    held: bool
    names: int


class _Window(Struct):
    """Losses within some time; *when* is in the unit of its caller."""

    entries: dict[bytes, _Entry] = field(default_factory=dict)  # by name, in the order of time
    let_go: dict[bytes, Loss] = field(default_factory=dict)  # what `told` has not returned yet
    count: int = 0
    held: int = 0
    present: int = 0  # names of the present look: they are shown yet, as are those that are held
    look: int = 0

    def turn_to(self, look: int, since: float) -> None:
        """Forget losses before *since*. The view no longer shows those that earlier looks let go."""
        if look != self.look:
            self.look, self.present = look, 0
        while self.entries and self.entries[first := next(iter(self.entries))].when < since:
            self._pop(first)

    def add(self, losses: Iterable[Loss], when: float) -> None:
        if self.entries:
            when = max(when, next(reversed(self.entries.values())).when)
        for loss in losses:
            self._pop(loss.name)
            self.entries[loss.name] = _Entry(when, self.look, False, loss.names)
            self.let_go[loss.name] = loss
            self.count += loss.names
            self.present += loss.names

    def hold(self, losses: Iterable[Loss]) -> None:
        """These are not let go."""
        for loss in losses:
            entry = self.entries.get(loss.name)
            if entry is not None and not entry.held:
                self.let_go.pop(loss.name, None)
                entry.held = True
                self.held += entry.names
                self.present -= entry.names if entry.look == self.look else 0

    def _pop(self, name: bytes) -> None:
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        self.let_go.pop(name, None)
        self.count -= entry.names
        if entry.held:
            self.held -= entry.names
        elif entry.look == self.look:
            self.present -= entry.names

    def total(self, shown: int) -> int:
        """How many names there were of which *shown* are shown now."""
        return max(shown + self.count - self.held - self.present, self.count)

    def told(self) -> dict[bytes, bytes]:
        """The registers that were let go since the last call, with their former values."""
        let_go, self.let_go = self.let_go, {}
        return {one.key: one.former for one in let_go.values() if one.former is not None}


class _Removed(Struct):
    """What one device has taken away lately."""

    done: _Window = field(default_factory=_Window)  # when: ns since the epoch
    arrived: _Window = field(default_factory=_Window)  # when: seconds, monotonic


class _Overwritten(Struct):
    """What one device has overwritten lately, all of it and wholly; when: ns since the epoch."""

    all: _Window = field(default_factory=_Window)
    wholly: _Window = field(default_factory=_Window)


class Brake:
    """*share*: the part of all names from which on losses wait; with 1 and more nothing ever waits. *few*
    names, and fewer, are never held up."""

    def __init__(self, share: float, few: int = FEW) -> None:
        self.share = share
        self._few = few
        self._removed: dict[bytes, _Removed] = {}  # by device
        self._overwritten: dict[bytes, _Overwritten] = {}
        self._look = 0

    def begin(self) -> None:
        """From now on the view no longer shows the losses that were let go so far."""
        self._look += 1

    def judge(
        self, device: bytes, losses: Sequence[Loss], moment: int, now: float, shown: Callable[[], Shown]
    ) -> list[Verdict]:
        """What an update of *device* takes away or overwrites, and is too much. No loss is in two
        verdicts.

        *moment*: of the update, ns since the epoch. *now*: seconds by a clock that never goes back. *shown*
        counts what the view shows, which still includes the losses found since `begin`.
        """
        if self.share >= 1:
            return []
        gone = [loss for loss in losses if loss.names]
        verdicts = self._judge_removed(device, gone, moment, now, shown) if gone else []
        held = {loss.key for one in verdicts for loss in one.losses}
        overwritten = [loss for loss in losses if loss.overwritten and loss.key not in held]
        if overwritten:
            verdicts += self._judge_overwritten(device, overwritten, moment, shown)
        return verdicts

    def _judge_removed(
        self, device: bytes, losses: Sequence[Loss], moment: int, now: float, shown: Callable[[], Shown]
    ) -> list[Verdict]:
        recent = self._removed.setdefault(device, _Removed())
        recent.done.turn_to(self._look, moment - WINDOW_NS)
        recent.arrived.turn_to(self._look, now - WINDOW)
        recent.done.add(losses, moment)
        recent.arrived.add(losses, now)
        for window, share in ((recent.done, self.share), (recent.arrived, max(self.share, MOST))):
            if window.count <= self._few:
                continue
            total = window.total(shown().names)
            if window.count > share * total:
                recent.done.hold(losses)
                recent.arrived.hold(losses)
                return [Verdict(Cause.REMOVED, losses, total, window.told())]
        return []

    def _judge_overwritten(
        self, device: bytes, losses: Sequence[Loss], moment: int, shown: Callable[[], Shown]
    ) -> list[Verdict]:
        recent = self._overwritten.setdefault(device, _Overwritten())
        for window in (recent.all, recent.wholly):
            window.turn_to(self._look, moment - WINDOW_NS)
        files = [loss._replace(names=1) for loss in losses]
        recent.all.add(files, moment)
        recent.wholly.add([one for one in files if one.wholly], moment)
        if recent.all.count <= self._few and recent.wholly.count <= self._few:
            return []
        total = shown().files
        if recent.wholly.count > max(self._few, self.share * total):
            recent.all.hold(files)
            recent.wholly.hold(files)
            return [Verdict(Cause.MUCH, losses, total, recent.all.told() | recent.wholly.told())]
        if recent.all.count > max(self._few, min(self.share * total / _TENTH, MANY)):
            recent.all.hold(files)
            return [Verdict(Cause.MANY, losses, total, recent.all.told())]
        return []

    def forget(self, device: bytes, cause: Cause) -> None:
        """It is decided: count what the device takes away, or overwrites, from zero again. When samples have
        decided that overwritten files need not wait, what was replaced wholly counts on."""
        if cause is Cause.REMOVED:
            self._removed.pop(device, None)
        elif cause is Cause.MANY and device in self._overwritten:
            self._overwritten[device].all = _Window()
        else:
            self._overwritten.pop(device, None)
