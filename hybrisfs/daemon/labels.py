"""The daemon's commands on labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from hybrisfs.api import labels as api
from hybrisfs.api.request import Handler
from hybrisfs.daemon.interfaces import LabelControl
from hybrisfs.daemon.slots import Slots

__all__ = ["LabelCommands"]


class LabelCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.LabelAddRequest.answered_by(self._add),
                api.LabelRemoveRequest.answered_by(self._remove),
                api.LabelShowRequest.answered_by(self._show),
                api.LabelListRequest.answered_by(self._list),
                api.LabelFindRequest.answered_by(self._find),
            ]
        )

    def _add(self, asked: api.LabelAddRequest) -> api.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.add(path, asked.labels))

    def _remove(self, asked: api.LabelRemoveRequest) -> api.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.remove(path, asked.labels))

    def _show(self, asked: api.LabelShowRequest) -> api.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.of(path))

    def _each(
        self, paths: Sequence[str], work: Callable[[LabelControl, PurePath], list[str]]
    ) -> api.LabelledPaths:
        """Do the work with each path. Raises HybrisError when a path is in no mounted volume."""
        targets = [(path, *self._slots.containing(Path(path))) for path in paths]
        return api.LabelledPaths(
            [
                api.LabelledPath(path, slot.name, work(slot.open().labels, relative))
                for path, slot, relative in targets
            ]
        )

    def _list(self, _: api.LabelListRequest) -> api.Labels:
        return api.Labels(
            [
                api.LabelCount(label, slot.name, count)
                for slot in self._slots.all()
                for label, count in sorted(slot.open().labels.counts().items())
            ]
        )

    def _find(self, asked: api.LabelFindRequest) -> api.LabelledNodes:
        return api.LabelledNodes(
            asked.label,
            [
                api.LabelledNode(None if root is None else str(root / path), slot.name, str(path))
                for slot, root in ((slot, slot.mountpoint()) for slot in self._slots.all())
                for path in slot.open().labels.find(asked.label)
            ],
        )
