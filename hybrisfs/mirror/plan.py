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

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs.mirror.model import Agreed, Kind, Seen, Side, Trees, ancestors, depth, parent_of

__all__ = [
    "Action",
    "Agree",
    "Brake",
    "Copy",
    "Forget",
    "Remove",
    "Rename",
    "SetAside",
    "SetAttributes",
    "plan",
    "recognise",
    "removals",
]


class Copy(Struct, frozen=True):
    """Put what the other side has to *path*, in place of *replaces* (None: of nothing)."""

    to: Side
    path: bytes
    source: Seen
    replaces: Seen | None


class SetAttributes(Struct, frozen=True):
    """Give *target* the attributes of *source*: permissions, time, extended attributes."""

    to: Side
    path: bytes
    source: Seen
    target: Seen


class Remove(Struct, frozen=True):
    """Remove *target*: a file, a link, or a directory that is empty by then."""

    to: Side
    path: bytes
    target: Seen


class SetAside(Struct, frozen=True):
    """Give the file or folder that the disk has at *path* a conflict name."""

    path: bytes
    target: Seen


class Agree(Struct, frozen=True):
    """Both sides are equal: take note."""

    path: bytes
    local: Seen
    volume: Seen


class Forget(Struct, frozen=True):
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


# -- renames: something that is gone from one name and has come under another on the same side ----------
# A rename is done as a rename on the other side, so that nothing is copied and all below a folder follows in
# one step. A rename that is not recognised, or cannot be done so, becomes a copy and a removal, which comes
# to the same.


class Rename(Struct, frozen=True):
    """Rename *target* on one side; what was agreed of *known_as* holds for *new* from then on."""

    to: Side
    old: bytes
    new: bytes
    target: Seen
    known_as: bytes


def recognise(trees: Trees) -> list[Rename | Copy]:
    """Renames that can be done now, none of them within another, each after the directories that it needs. To
    be called again after they were done, until there are none."""
    moved = {side: _moved(trees, side) for side in Side}
    steps: list[Rename | Copy] = []
    taken: set[bytes] = set()
    for side in (Side.VOLUME, Side.LOCAL):
        for old, new in moved[side].items():
            if any(path in taken for one in (old, new) for path in (one, *ancestors(one))):
                continue
            found = _follow(trees, side, old, new, moved)
            if found:
                steps += found
                taken |= {old, new, *(step.path for step in found if isinstance(step, Copy))}
    return steps


def _follow(
    trees: Trees, side: Side, old: bytes, new: bytes, moved: dict[Side, dict[bytes, bytes]]
) -> list[Rename | Copy]:
    """How the other side follows, or nothing when it cannot."""
    agreed, other = trees.agreed[old], trees.on(side.other)
    at = old
    if side is Side.VOLUME and old in moved[Side.LOCAL]:
        at = moved[Side.LOCAL][old]  # both have moved it: the volume's name counts
    target = other.get(at)
    if target is None or target.identity != agreed.on(side.other).identity:
        return []
    if new in other or new.startswith(at + b"/"):
        return []
    missing: list[Rename | Copy] = []
    for above in reversed(ancestors(new)):
        if above in other:
            if other[above].facts.kind is not Kind.DIRECTORY:
                return []
        elif above in trees.agreed:
            return []  # removed there: what is put into it is copied
        else:
            missing.append(Copy(side.other, above, trees.on(side)[above], None))
    return [*missing, Rename(side.other, at, new, target, old)]


def _moved(trees: Trees, side: Side) -> dict[bytes, bytes]:
    """Old and new names on one side; of what moved with a directory, the directory only."""
    own = trees.on(side)
    gone: dict[bytes, bytes] = {}
    children: dict[bytes, set[bytes]] = defaultdict(set)
    for path, agreed in trees.agreed.items():
        children[parent_of(path)].add(agreed.on(side).identity)
        if _is_another(own.get(path), agreed, side) and not trees.is_held(path):
            gone[agreed.on(side).identity] = path
    shown: dict[bytes, set[bytes]] = defaultdict(set)
    for path, seen in own.items():
        shown[parent_of(path)].add(seen.identity)
    found: dict[bytes, bytes] = {}
    for path, seen in own.items():
        old = gone.get(seen.identity)
        if old is None or old in found or path in trees.agreed or trees.is_held(path):
            continue
        before = trees.agreed[old].on(side)
        if seen.facts.kind is Kind.DIRECTORY:
            same = not children[old] or bool(children[old] & shown[path])
        else:
            same = seen.facts.mtime == before.facts.mtime and seen.facts.size == before.facts.size
        if same and seen.facts.kind == before.facts.kind:
            found[old] = path
    return {
        old: new
        for old, new in found.items()
        if not any(found.get(above) in ancestors(new) for above in ancestors(old))
    }


def _is_another(seen: Seen | None, agreed: Agreed, side: Side) -> bool:
    return seen is None or seen.identity != agreed.on(side).identity


# -- the brake on mass deletion: a person that removes much of one side within a while has to say so ----
# What it comes of may be a slip, a sick program, or a disk that shows nothing. Pure, but for what it
# remembers.


_WINDOW: Final = 600.0  # seconds: removing bit by bit counts together
_FEW: Final = 50  # names; fewer removals are not held up, unless nothing is left
_SOME: Final = 10  # names; removing the last of fewer is not held up


def removals(steps: Iterable[Action]) -> dict[Side, list[bytes]]:
    """What would be removed from each side, by path."""
    found: dict[Side, list[bytes]] = {side: [] for side in Side}
    for step in steps:
        if isinstance(step, Remove):
            found[step.to].append(step.path)
    return found


class Brake:
    """*share*: from which part of all names on removing waits; 1 and more: only when nothing would be
    left."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._recent: deque[tuple[float, Side, int]] = deque()

    def holds(self, side: Side, count: int, names: int, now: float) -> bool:
        """Whether removing *count* of *names* from a side has to wait. *now*: seconds, monotonic."""
        while self._recent and now - self._recent[0][0] > _WINDOW:
            self._recent.popleft()
        before = sum(number for _, where, number in self._recent if where is side)
        removed, of = before + count, before + names
        return count > 0 and (
            (removed > _FEW and removed > self.share * of) or (removed >= of and of >= _SOME)
        )

    def note(self, side: Side, count: int, now: float) -> None:
        """So much was removed."""
        if count:
            self._recent.append((now, side, count))

    def release(self) -> None:
        """A person has said yes: what was removed before does not count any more."""
        self._recent.clear()
