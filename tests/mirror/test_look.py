"""Looking at folders while somebody moves them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.engine import Listing, Mirror, Outcome
from hybrisfs.mirror.model import Kind
from hybrisfs.mirror.plan import Remove, plan, recognise
from tests.mirror.memory import MemoryPlace, Node


class Moving(MemoryPlace):
    """Somebody moves `old` to `new` once this directory has been listed."""

    after: bytes | None = None

    def names(self, path: bytes) -> Listing | None:
        found = super().names(path)
        if path == self.after:
            self.after = None
            self.move(b"old", b"new")
        return found


def nothing() -> None:
    pass


def look_and_do(mirror: Mirror, directories: Iterable[bytes], *, deep: bool = False) -> set[bytes]:
    """One pass over these; what is to be looked at again."""
    trees, again = mirror.look(directories, deep=deep, tick=nothing)
    outcome = Outcome()
    mirror.carry_out(recognise(trees), nothing, outcome)
    if not outcome.done:
        steps = plan(trees)
        assert not any(isinstance(step, Remove) and step.path == b"old/file" for step in steps)
        mirror.carry_out(steps, nothing, outcome)
    return again | outcome.again | ({b""} if outcome.done else set())


@pytest.mark.parametrize(
    ("after", "dirty", "deep"),
    [(b"", {b""}, False), (b"", {b""}, True), (b"old", {b""}, True), (b"old", {b"", b"old"}, False)],
    ids=["not looked into", "before it is looked into", "after that", "after that, and then above"],
)
def test_a_folder_that_is_moved_while_it_is_looked_at_keeps_what_is_in_it(
    after: bytes, dirty: set[bytes], deep: bool
) -> None:
    local, volume = Moving(), MemoryPlace()
    table = AgreedTable.create(":memory:", Settings("0" * 32, Path("/nowhere"), "at", bytes(16)))
    mirror = Mirror(local, volume, table)  # type: ignore[arg-type]
    local.tree[b"old"] = Node(Kind.DIRECTORY, mode=0o755)
    local.tree[b"old/file"] = Node(Kind.FILE, b"content")
    while look_and_do(mirror, {b""}):
        pass
    node = volume.tree[b"old/file"]
    local.after = after
    again = look_and_do(mirror, dirty, deep=deep) | {b""}  # where an event tells of the move
    assert local.after is None
    for _ in range(9):
        again = look_and_do(mirror, again)
        if not again:
            break
    assert local.shown() == volume.shown()
    assert volume.tree[b"new/file"] is node


class Unreadable(MemoryPlace):
    """Nobody may list `folder`."""

    def names(self, path: bytes) -> Listing | None:
        if path == b"folder":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super().names(path)


def test_a_folder_that_cannot_be_listed_is_held_with_all_that_is_in_it() -> None:
    local, volume = MemoryPlace(), MemoryPlace()
    table = AgreedTable.create(":memory:", Settings("0" * 32, Path("/nowhere"), "at", bytes(16)))
    local.tree[b"folder"] = Node(Kind.DIRECTORY, mode=0o755)
    local.tree[b"folder/file"] = Node(Kind.FILE, b"content")
    while look_and_do(Mirror(local, volume, table), {b""}):  # type: ignore[arg-type]
        pass
    unreadable = Unreadable()
    unreadable.tree = local.tree
    mirror = Mirror(unreadable, volume, table)  # type: ignore[arg-type]
    trees, _ = mirror.look({b""}, deep=True, tick=nothing)
    assert trees.held == {b"folder": "Permission denied"}
    assert plan(trees) == []


@pytest.mark.parametrize("on_local", [True, False])
def test_all_folders_below_a_renamed_one_are_looked_into(*, on_local: bool) -> None:
    """Until then events of these go by the former paths."""
    local, volume = MemoryPlace(), MemoryPlace()
    table = AgreedTable.create(":memory:", Settings("0" * 32, Path("/nowhere"), "at", bytes(16)))
    mirror = Mirror(local, volume, table)  # type: ignore[arg-type]
    for path in (b"old", b"old/a", b"old/a/b"):
        local.tree[path] = Node(Kind.DIRECTORY, mode=0o755)
    local.tree[b"old/a/b/file"] = Node(Kind.FILE, b"content")
    while look_and_do(mirror, {b""}):
        pass
    (local if on_local else volume).move(b"old", b"new")
    assert {b"new", b"new/a", b"new/a/b"} <= look_and_do(mirror, {b""})
    assert local.shown() == volume.shown()
