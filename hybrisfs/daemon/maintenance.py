"""The daemon's commands that look after a volume: its clouds, its database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import OpenVolume
from hybrisfs.daemon.key_value import unnamed_values
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.wire import Message

__all__ = ["MaintenanceCommands"]

log = logging.getLogger(__name__)

_ALL: Final = 100.0


class MaintenanceCommands:
    """Passes on what is asked. A client that hangs up stops the work."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "scrub": self._scrub,
            "repair": self._repair,
            "gc": self._gc,
            "volume rebuild": self._rebuild,
        }

    def _scrub(self, arguments: Message, progress: Progress) -> Message:
        percent = _percent(arguments)
        slot = self._slots.get(read.optional_text(arguments, "name"))
        volume = slot.open()
        report = volume.maintenance.scrub(percent, _steps(progress))
        return {"name": slot.name, "sample": percent, **report.as_dict(), "values": _unnamed(volume)}

    def _repair(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        return {"name": slot.name, **slot.open().maintenance.repair(_steps(progress)).as_dict()}

    def _gc(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        dry_run = read.flag(arguments, "dry_run")
        volume = slot.open()
        collection = volume.collector.collect(_steps(progress), dry_run=dry_run)
        kept = volume.status(look=False)["checkpoint"]["log"]
        return {
            "name": slot.name,
            "dry_run": dry_run,
            **collection.as_dict(),
            "log": kept,
            "values": _unnamed(volume),
        }

    def _rebuild(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.text(arguments, "name"))
        return {"name": slot.name, **slot.rebuild(_steps(progress)).as_dict()}


def _unnamed(volume: OpenVolume) -> Message | None:
    """How many objects of values nothing names; None when that cannot be told."""
    try:
        return unnamed_values(volume.key_values.orphans(volume.maintenance.trusted).look())
    except HybrisError as error:
        log.warning("values of the key-value store cannot be told apart: %s", error)
        return None


def _percent(arguments: Message) -> float:
    percent = arguments.get("sample", _ALL)
    if not isinstance(percent, (int, float)) or isinstance(percent, bool) or not 0 < percent <= _ALL:
        raise UsageError("sample must be a number of per cent above 0, at most 100")
    return float(percent)


def _steps(progress: Progress) -> Callable[[str, int, int], None]:
    return lambda stage, done, total: progress({"stage": stage, "done": done, "total": total})
