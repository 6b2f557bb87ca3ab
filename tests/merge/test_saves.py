"""A program writes a file anew in place while others, who show what was there before, save it by a rename and
remove it: in whatever order all that is done, signed and taken in, what was saved is there on all devices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hybrisfs.tree.inodes import Inode
from hybrisfs.write.cut import FileSnapshot
from tests.merge.fleet import Device, Fleet
from tests.merge.view import check_view
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks

_BASE: Final = b"<base>" + bytes(range(256)) * 20  # more chunks than fit into one list
_EDIT, _SAVED = b"<edit>", b"<saved>"
_LONG_AGO: Final = 400 * 86400 * 10**9
_STEPS: Final = 3
_EDITOR, _SAVER, _REMOVER = range(3)


class _Begun(NamedTuple):
    """The devices as they were when all showed the base, and what the other two have signed since."""

    fleet: Fleet
    backups: list[Path]
    updates: dict[str, list[bytes]]


class _Editor:
    """A program that has the file open; `step` does the next thing of those that writing it anew takes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        device.read("file")
        self._handle = device.rig.fs.open(device.rig.tx, device.at("file").ino, os.O_RDWR)
        self._todo: list[Callable[[Inode], object]] = [
            lambda inode: device.rig.fs.truncate(device.rig.tx, inode, 0),
            lambda inode: device.rig.fs.write(device.rig.tx, inode, 0, _EDIT),
            lambda inode: device.rig.fs.release(device.rig.tx, self._handle),
        ]

    def step(self) -> None:
        fs = self._device.rig.fs
        with fs.state.transaction():
            self._todo.pop(0)(fs.handle(self._handle))


@pytest.fixture(params=["behind", "ahead"])
def begun(request: pytest.FixtureRequest) -> Iterator[_Begun]:
    """The clock by which the other two sign, and that of the machine that saves, are behind or ahead."""
    fleet = Fleet(3, environment=lambda _: limited(small_chunks(256), SMALL_BLOCKS))
    editor, saver, remover = fleet.devices
    saver.write("file", _BASE)
    fleet.meet()
    for _ in range(5):
        for device in (saver, remover) if request.param == "ahead" else (editor,):
            device.write("other " + device.name, os.urandom(8))
            device.sign()
    backups = [device.saved() for device in fleet.devices]
    before = [set(device.log()) for device in fleet.devices]
    if request.param == "behind":
        saver.rig.fs.inodes.now = lambda: time.time_ns() - _LONG_AGO
    saver.write("draft", _SAVED)
    saver.move("draft", "file")
    remover.remove("file")
    for device in (saver, remover):
        device.sign()
    updates = {
        kind: [one for one in device.log() if one not in before[0]]
        for kind, device in (("save", saver), ("removal", remover))
    }
    yield _Begun(fleet, backups, updates)
    fleet.discard()


def _play(begun: _Begun, batches: Sequence[tuple[int, str]], cut: tuple[str, int] | None) -> None:
    """*batches*: what is taken in after so many steps of the editor; *cut*: the publisher's round comes then,
    or with the step within it, while it cuts the file into chunks."""
    fleet = begun.fleet
    for device, backup in zip(fleet.devices, begun.backups, strict=True):
        device.restore(backup)
    device = fleet[_EDITOR]
    editor = _Editor(device)
    done = 0
    while done <= _STEPS:
        for kinds in [kinds for at, kinds in batches if at == done]:
            device.receive([one for kind in kinds.split() for one in begun.updates[kind]])
        if cut == ("before", done):
            device.rig.publish(everything=True)
        if done == _STEPS:
            break
        if cut == ("within", done):
            _publish_around(device, editor.step)
        else:
            editor.step()
        done += 1
    _check(begun)


def _publish_around(device: Device, step: Callable[[], None]) -> None:
    """A round with a step of the editor in it, if there is a file to cut; it is done in any case."""
    done: list[int] = []

    def act(_: FileSnapshot) -> None:
        if not done:
            done.append(1)
            step()

    device.rig.chunker.before = act
    device.rig.publish(everything=True)
    device.rig.chunker.before = lambda _: None
    if not done:
        step()


def _check(begun: _Begun) -> None:
    fleet = begun.fleet
    everything = begun.updates["save"] + begun.updates["removal"]
    for device in fleet.devices:
        device.receive(everything)
    fleet[_EDITOR].sign()
    for device in fleet.devices:
        device.receive(fleet[_EDITOR].log())
    trees = [device.tree() for device in fleet.devices]
    assert trees[0] == trees[1] == trees[2]
    check_view(fleet[_EDITOR])
    found = {entry.content for entry in trees[0].values()}
    assert {_EDIT, _SAVED} <= found


_CUTS: Final = [
    None,
    *(("before", at) for at in range(_STEPS + 1)),
    *(("within", at) for at in range(_STEPS)),
]


@pytest.mark.parametrize("kinds", [("save",), ("removal",), ("save removal",), ("removal save",)])
def test_what_comes_at_once(begun: _Begun, kinds: tuple[str]) -> None:
    for at, cut in product(range(_STEPS + 1), _CUTS):
        _play(begun, [(at, kinds[0])], cut)


@pytest.mark.parametrize("kinds", [("save", "removal"), ("removal", "save")])
def test_what_comes_one_after_the_other(begun: _Begun, kinds: tuple[str, str]) -> None:
    for places, cut in product(combinations_with_replacement(range(_STEPS + 1), 2), _CUTS):
        _play(begun, list(zip(places, kinds, strict=True)), cut)
