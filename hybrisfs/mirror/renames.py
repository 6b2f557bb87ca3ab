"""Renames: something that is gone from one name and has come under another on the same side.

A rename is done as a rename on the other side, so that nothing is copied and all below a folder follows in
one step. A rename that is not recognised, or cannot be done so, becomes a copy and a removal, which comes to
the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hybrisfs.mirror.model import Agreed, Kind, Seen, Side, Trees, ancestors, parent_of
from hybrisfs.mirror.plan import Copy

__all__ = ["Rename", "recognise"]


@dataclass(frozen=True, slots=True)
class Rename:
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
