"""The daemon's commands about what waits for a person: conflicts, and deletions in mass."""

from __future__ import annotations

from hybrisfs.api import decisions as api
from hybrisfs.api.request import Handler, Named
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError

__all__ = ["DecisionCommands"]


class DecisionCommands:
    """Passes on what is asked, and what a person has decided."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                api.ConflictsListRequest.answered_by(self._conflicts),
                api.ConflictsKeepRequest.answered_by(
                    lambda asked: self._settle(asked.name, asked.path, keep_all=False)
                ),
                api.ConflictsKeepAllRequest.answered_by(
                    lambda asked: self._settle(asked.name, asked.path, keep_all=True)
                ),
                api.DeletionsListRequest.answered_by(self._deletions),
                api.DeletionsAcceptRequest.answered_by(
                    lambda asked: self._decide(asked.name, asked.id, undo=False)
                ),
                api.DeletionsUndoRequest.answered_by(
                    lambda asked: self._decide(asked.name, asked.id, undo=True)
                ),
            ]
        )

    def _conflicts(self, asked: api.ConflictsListRequest) -> api.Conflicts:
        volume = self._slots.get(asked.name).open()
        found, first, limit = volume.conflicts(), asked.first or 0, asked.limit
        if first < 0 or (limit is not None and limit < 0):
            raise UsageError("first and limit must not be negative")
        shown = found[first:] if limit is None else found[first : first + limit]
        return api.Conflicts(volume.name, shown, len(found))

    def _settle(self, name: str | None, path: str, *, keep_all: bool) -> Named:
        volume = self._slots.get(name).open()
        volume.settle_conflict(path, keep_all=keep_all)
        return Named(volume.name)

    def _deletions(self, asked: api.DeletionsListRequest) -> api.Deletions:
        volume = self._slots.get(asked.name).open()
        return api.Deletions(volume.name, volume.deletions())

    def _decide(self, name: str | None, which: str, *, undo: bool) -> Named:
        volume = self._slots.get(name).open()
        volume.decide_deletion(which, undo=undo)
        return Named(volume.name)
