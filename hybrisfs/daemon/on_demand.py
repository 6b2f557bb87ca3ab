"""The daemon's commands on single files and folders: what of them is kept on this device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.interfaces import ContentControl
from hybrisfs.daemon.slots import Slots
from hybrisfs.wire import Message

__all__ = ["ContentCommands"]


class _Target(NamedTuple):
    """A path as it was given, the volume it is in, and where in that."""

    path: Path
    volume: str
    content: ContentControl
    relative: PurePath


class ContentCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Callable[[Message, Progress], Message]] = {
            "pin": self._pin,
            "pin list": self._pin_list,
            "unpin": self._unpin,
            "evict": self._evict,
        }

    def _pin(self, arguments: Message, progress: Progress) -> Message:
        targets = self._targets(arguments)
        paths = [{**_named(one), **one.content.pin(one.relative)} for one in targets]
        timeout = read.seconds(arguments, "timeout") if read.flag(arguments, "wait") else None
        if not read.flag(arguments, "wait"):
            return {"paths": paths, "done": all(not one["missing_bytes"] for one in paths), "problem": None}
        done, problem = self._wait(targets, timeout, progress)
        return {"paths": paths, "done": done, "problem": problem}

    def _wait(
        self, targets: list[_Target], timeout: float | None, progress: Progress
    ) -> tuple[bool, str | None]:
        by_volume: dict[str, list[_Target]] = {}
        for target in targets:
            by_volume.setdefault(target.volume, []).append(target)
        for group in by_volume.values():
            content = group[0].content
            if not content.wait(
                [one.relative for one in group],
                timeout,
                lambda done, total: progress({"done": done, "total": total}),
            ):
                return False, content.trouble
        return True, None

    def _pin_list(self, _: Message, __: Progress) -> Message:
        pins: list[Message] = []
        for slot in self._slots.all():
            root = slot.mountpoint()
            for one in slot.open().content.pins():
                where = None if root is None else str(root / str(one["path"]))
                pins.append({**one, "volume": slot.name, "inside": one["path"], "path": where})
        return {"pins": pins}

    def _unpin(self, arguments: Message, _: Progress) -> Message:
        return {
            "paths": [{**_named(one), **one.content.unpin(one.relative)} for one in self._targets(arguments)]
        }

    def _evict(self, arguments: Message, _: Progress) -> Message:
        return {
            "paths": [{**_named(one), **one.content.evict(one.relative)} for one in self._targets(arguments)]
        }

    def _targets(self, arguments: Message) -> list[_Target]:
        """The targets of "paths", all of which must be in mounted volumes. Raises HybrisError."""
        return [self._target(read.folder({"path": path}, "path")) for path in read.texts(arguments, "paths")]

    def _target(self, path: Path) -> _Target:
        slot, relative = self._slots.containing(path)
        return _Target(path, slot.name, slot.open().content, relative)


def _named(target: _Target) -> dict[str, Any]:
    return {"path": str(target.path), "volume": target.volume}
