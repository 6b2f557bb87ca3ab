"""The steps that make both sides equal: a pure function of what both sides show.

| since they were equal | what is done |
|---|---|
| one side changed, made or renamed something | the other side follows |
| both changed a file in the same way | nothing: they are equal |
| both changed a file | the volume's version keeps the name, the local one gets a conflict name; both go on |
| both changed attributes only | the volume's count |
| one side removed what the other changed | it is put back |
| one side removed a folder in which the other put something | the folder is put back |
| a file here, a folder there | the local one gets a conflict name |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from hybrisfs.mirror.model import Agreed, Kind, Seen, Side, Trees, depth, parent_of

__all__ = ["Action", "Agree", "Copy", "Forget", "Remove", "SetAside", "SetAttributes", "plan"]


@dataclass(frozen=True, slots=True)
class Copy:
    """Put what the other side has to *path*, in place of *replaces* (None: of nothing)."""

    to: Side
    path: bytes
    source: Seen
    replaces: Seen | None


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """Give *target* the attributes of *source*: permissions, time, extended attributes."""

    to: Side
    path: bytes
    source: Seen
    target: Seen


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove *target*: a file, a link, or a directory that is empty by then."""

    to: Side
    path: bytes
    target: Seen


@dataclass(frozen=True, slots=True)
class SetAside:
    """Give the file or folder that the disk has at *path* a conflict name."""

    path: bytes
    target: Seen


@dataclass(frozen=True, slots=True)
class Agree:
    """Both sides are equal: take note."""

    path: bytes
    local: Seen
    volume: Seen


@dataclass(frozen=True, slots=True)
class Forget:
    """Both sides have removed it: take note."""

    path: bytes


Action: TypeAlias = Copy | SetAttributes | Remove | SetAside | Agree | Forget

_ORDER: Final[dict[type, int]] = {SetAside: 0, Forget: 1, Remove: 2, Copy: 3, SetAttributes: 4, Agree: 5}


def plan(trees: Trees) -> list[Action]:
    """The steps, in an order in which each finds what it needs."""
    return _Planner(trees).planned()


class _Planner:
    """Looks at all names, those of a directory before the directory itself."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._actions: dict[bytes, list[Action]] = {}
        self._inhabited: set[bytes] = set()  # directories in which something will be

    def planned(self) -> list[Action]:
        trees = self._trees
        paths = {*trees.local, *trees.volume, *trees.agreed}
        for path in trees.held:
            self._inhabited.add(parent_of(path))
        for path in sorted(paths, key=depth, reverse=True):
            if trees.is_held(path) or self._decide(path):
                self._inhabited.add(parent_of(path))
        actions = [action for group in self._actions.values() for action in group]
        return sorted(actions, key=_order)

    def _decide(self, path: bytes) -> bool:
        """Plan for one name; whether there will be something."""
        trees = self._trees
        local, volume, agreed = trees.local.get(path), trees.volume.get(path), trees.agreed.get(path)
        if local is not None and volume is not None:
            self._both(path, local, volume, agreed)
            return True
        if local is not None:
            return self._one(path, Side.LOCAL, local, agreed)
        if volume is not None:
            return self._one(path, Side.VOLUME, volume, agreed)
        self._do(path, Forget(path))
        return False

    def _do(self, path: bytes, *actions: Action) -> None:
        self._actions[path] = list(actions)

    def _one(self, path: bytes, side: Side, seen: Seen, agreed: Agreed | None) -> bool:
        """It is on one side only: new there, or removed on the other."""
        is_folder = seen.facts.kind is Kind.DIRECTORY
        changed = agreed is None or (not is_folder and seen.changed_since(agreed.on(side)))
        kept_kind = agreed is None or agreed.on(side).facts.kind == seen.facts.kind
        if changed or not kept_kind or path in self._inhabited:
            self._do(path, Copy(side.other, path, seen, None))
            return True
        self._do(path, Remove(side, path, seen))
        return False

    def _both(self, path: bytes, local: Seen, volume: Seen, agreed: Agreed | None) -> None:
        if Kind.DIRECTORY in (local.facts.kind, volume.facts.kind) and local.facts.kind != volume.facts.kind:
            self._folder_and_other(path, local, volume, agreed)
            return
        here = agreed is None or local.changed_since(agreed.local)
        there = agreed is None or volume.changed_since(agreed.volume)
        if not (here or there) or local.facts == volume.facts:
            if agreed != Agreed(local, volume):
                self._do(path, Agree(path, local, volume))
            return
        new_here = agreed is None or not local.facts.same_content(agreed.local.facts)
        new_there = agreed is None or not volume.facts.same_content(agreed.volume.facts)
        if local.facts.same_content(volume.facts) or not (new_here or new_there):
            to, source, target = (Side.LOCAL, volume, local) if there else (Side.VOLUME, local, volume)
            self._do(path, SetAttributes(to, path, source, target))
        elif new_here and new_there:
            self._set_aside(path, local)
        elif new_here:
            self._do(path, Copy(Side.VOLUME, path, local, volume))
        else:
            self._do(path, Copy(Side.LOCAL, path, volume, local))

    def _folder_and_other(self, path: bytes, local: Seen, volume: Seen, agreed: Agreed | None) -> None:
        """A directory on one side only. A side that kept the agreed state gives way, if nothing is left in
        it."""
        for side, kept, new in ((Side.LOCAL, local, volume), (Side.VOLUME, volume, local)):
            as_agreed = agreed is not None and not kept.changed_since(agreed.on(side))
            if as_agreed and not (kept.facts.kind is Kind.DIRECTORY and path in self._inhabited):
                self._do(path, Remove(side, path, kept), Copy(side, path, new, None))
                return
        self._set_aside(path, local)

    def _set_aside(self, path: bytes, local: Seen) -> None:
        below = path + b"/"
        for other in [one for one in self._actions if one.startswith(below)]:
            del self._actions[other]
        self._do(path, SetAside(path, local))


def _order(action: Action) -> tuple[int, int, bytes]:
    deep = depth(action.path)
    return _ORDER[type(action)], -deep if isinstance(action, (Remove, Forget)) else deep, action.path
