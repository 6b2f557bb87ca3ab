"""The daemon's commands on what may move between this device and the clouds."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.wire import Message

__all__ = ["TransferCommands"]


class TransferCommands:
    """Passes on what is asked of a volume's transfers; each command answers with what holds then."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "limit": self._limit,
            "pause": self._pause,
            "resume": self._resume,
        }

    def _limit(self, arguments: Message, _: Progress) -> Message:
        chosen = [read.optional_text(arguments, key) for key in ("up", "down", "on_metered")]
        slot = self._slot(arguments)
        if any(one is not None for one in chosen):
            slot.open().transfers.limit(*chosen)
        return _facts(slot)

    def _pause(self, arguments: Message, _: Progress) -> Message:
        seconds = read.seconds(arguments, "seconds")
        slot = self._slot(arguments)
        slot.open().transfers.pause(seconds)
        return _facts(slot)

    def _resume(self, arguments: Message, _: Progress) -> Message:
        slot = self._slot(arguments)
        slot.open().transfers.resume()
        return _facts(slot)

    def _slot(self, arguments: Message) -> Slot:
        return self._slots.get(read.optional_text(arguments, "name"))


def _facts(slot: Slot) -> Message:
    return {"name": slot.name, **slot.open().transfers.facts()}
