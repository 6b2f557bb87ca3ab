"""The daemon's commands on single files and folders: what of them is kept on this device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from hybrisfs.api import content as api
from hybrisfs.api.request import Handler, Moved, extended
from hybrisfs.daemon.interfaces import ContentControl
from hybrisfs.daemon.slots import Slots

__all__ = ["ContentCommands"]


class _Target(NamedTuple):
    """A path as it was given, the volume it is in, and where in that."""

    path: str
    volume: str
    content: ContentControl
    relative: PurePath


class ContentCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.PinRequest.answered_by(self._pin),
                api.PinListRequest.answered_by(self._pin_list),
                api.UnpinRequest.answered_by(self._unpin),
                api.EvictRequest.answered_by(self._evict),
            ]
        )

    def _pin(self, asked: api.PinRequest, tell: Callable[[Moved], None]) -> api.PinnedPaths:
        targets = self._targets(asked.paths)
        paths = [
            extended(api.PinnedPath, one.content.pin(one.relative), path=one.path, volume=one.volume)
            for one in targets
        ]
        if not asked.wait:
            return api.PinnedPaths(paths, all(not one.missing_bytes for one in paths), None)
        done, problem = self._wait(targets, asked.timeout, tell)
        return api.PinnedPaths(paths, done, problem)

    def _wait(
        self, targets: list[_Target], timeout: float | None, tell: Callable[[Moved], None]
    ) -> tuple[bool, str | None]:
        by_volume: dict[str, list[_Target]] = {}
        for target in targets:
            by_volume.setdefault(target.volume, []).append(target)
        for group in by_volume.values():
            content = group[0].content
            if not content.wait(
                [one.relative for one in group],
                timeout,
                lambda done, total: tell(Moved(done, total)),
            ):
                return False, content.trouble
        return True, None

    def _pin_list(self, _: api.PinListRequest) -> api.Pins:
        return api.Pins(
            [
                api.ListedPin(
                    one.files,
                    one.bytes,
                    one.missing_bytes,
                    path=None if root is None else str(root / one.path),
                    volume=slot.name,
                    inside=one.path,
                )
                for slot, root in ((slot, slot.mountpoint()) for slot in self._slots.all())
                for one in slot.open().content.pins()
            ]
        )

    def _unpin(self, asked: api.UnpinRequest) -> api.Paths:
        targets = self._targets(asked.paths)
        for one in targets:
            one.content.unpin(one.relative)
        return api.Paths([api.VolumePath(one.path, one.volume) for one in targets])

    def _evict(self, asked: api.EvictRequest) -> api.EvictedPaths:
        return api.EvictedPaths(
            [
                extended(api.EvictedPath, one.content.evict(one.relative), path=one.path, volume=one.volume)
                for one in self._targets(asked.paths)
            ]
        )

    def _targets(self, paths: Sequence[str]) -> list[_Target]:
        """Where these are, all of which must be in mounted volumes. Raises HybrisError."""
        return [self._target(path) for path in paths]

    def _target(self, path: str) -> _Target:
        slot, relative = self._slots.containing(Path(path))
        return _Target(path, slot.name, slot.open().content, relative)
