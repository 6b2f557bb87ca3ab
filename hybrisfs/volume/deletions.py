"""Mass deletions by other devices that wait for a person: shown, accepted, undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hybrisfs.errors import UsageError
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.members import MemberTable
from hybrisfs.merge.registers import Registers
from hybrisfs.merge.rows import Change
from hybrisfs.merge.rules import is_removed
from hybrisfs.merge.signing import Signer
from hybrisfs.pipeline.receive import Receiver

__all__ = ["Deletions"]

_SHORT: Final = 12  # hexadecimal digits of an update's hash that people see


class Deletions:
    """What `merge.brake` holds up in one volume. Thread-safe. *show* hears of changes in the view,
    *signed* that there is something for the clouds."""

    def __init__(
        self,
        fs: FileSystem,
        receiver: Receiver,
        members: MemberTable,
        registers: Registers,
        arrivals: Arrivals,
        signer: Signer,
        show: Callable[[Sequence[Change]], None],
        signed: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._receiver = receiver
        self._members = members
        self._registers = registers
        self._arrivals = arrivals
        self._signer = signer
        self._show = show
        self._signed = signed

    def all(self) -> list[dict[str, object]]:
        """The deletions that wait, oldest first."""
        with self._fs.lock:
            held = sorted(self._receiver.held_up().items(), key=lambda one: one[1].time_ns)
            return [
                {
                    "id": update.hex()[:_SHORT],
                    "device": self._members.name_of(deletion.device),
                    "time": deletion.time_ns / 1e9,
                    "names": len(deletion.removals),
                    "of": deletion.of,
                }
                for update, deletion in held
            ]

    def accept(self, which: str) -> None:
        """Delete here, too. *which* is the beginning of an id. Raises UsageError."""
        self._receiver.confirm(self._held(which))

    def undo(self, which: str) -> None:
        """Bring back on all devices what was deleted. Raises UsageError."""
        deletion = self._receiver.confirm(self._held(which))
        with self._fs.cutting, self._fs.lock:
            back = [
                (key, place.restored().encode())
                for key, place in dict(deletion.removals).items()
                if is_removed(self._registers.values(key))
            ]
            if not back:
                return  # other devices have brought it all back
            self._signer.sign(back, 0)
            self._show(self._arrivals.reveal({key[1:17] for key, _ in back}))
        self._signed()

    def _held(self, which: str) -> bytes:
        found = [update for update in self._receiver.held_up() if update.hex().startswith(which.lower())]
        if len(found) != 1 or not which:
            raise UsageError(f"no deletion {which[:80]!r} waits", "", "hybrisfs deletions list shows them.")
        return found[0]
