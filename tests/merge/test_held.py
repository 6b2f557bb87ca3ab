"""Devices that hold on to all, or much, that others take away: whatever programs and people do, views are
sound meanwhile, and alike when all is decided."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.kinds import NODE
from hybrisfs.merge.losses import LossLimits, in_its_place
from hybrisfs.registers.tree import Content, Place, content_key, slot_of
from hybrisfs.state.shown_nodes import Name, name_of_slot, unmerged_ino
from hybrisfs.volume.examiner import Examiner
from tests.merge.world import World
from tests.tree.replay import read_content
from tests.tree.rig import SMALL_BLOCKS, small_chunks

_SEEDS: Final = int(os.environ.get("HYBRISFS_HELD_SEEDS", "12"))
_STEPS: Final = 150
ENVIRONMENT: Final = Environment(
    limits=Limits(
        LossLimits(few=-1, window=-1.0, young_ns=-(1 << 60), old_ns=-(1 << 60)),
        small_chunks(256),
        SMALL_BLOCKS,
    )
)
"""What is young, or was hardly seen, counts, too, and few names are many."""


class Holding(World):
    """In the end, people decide on all that waits."""

    holds = 0

    def __init__(self, devices: int, share: float) -> None:
        """*share*: see `Brake`."""
        super().__init__(devices, environment=lambda _: ENVIRONMENT)
        self._share = share
        for device in self.fleet.devices:
            device.rig.sharing.brake.share = share

    def reopen(self, number: int) -> None:
        super().reopen(number)
        self.fleet[number].rig.sharing.brake.share = self._share

    def empty(self, number: int, pick: int) -> None:
        """Save a file as an empty one."""
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None and device.at(path).is_file:
                self._gone |= self._tokens(device.read(path))
                device.write(path, b"")

    def encrypt(self, number: int, draw: random.Random) -> None:
        """Save all files as random bytes, some of them under longer names."""
        with self._program(number) as device:
            for path in [path for path, one in device.walk().items() if one.is_file]:
                self._gone |= self._tokens(device.read(path))
                device.write(path, draw.randbytes(200))
                if draw.random() < 0.3:
                    device.move(path, f"{path}.locked")

    def examine(self, number: int) -> None:
        """Look at samples of what is suspected."""
        rig = self.fleet[number].rig
        self._count_replaced(number)
        Examiner(rig.fs, rig.sharing.deletions, rig.fetcher).step()
        self.received(number)

    def decide(self, number: int, *, undo: bool) -> bool:
        """Decide on the oldest deletion that waits; False when there is none."""
        deletions = self.fleet[number].rig.sharing.deletions
        waiting = deletions.all()
        if waiting:
            self._count_replaced(number)
            if undo:
                self._count_replacing(number)
            (deletions.undo if undo else deletions.accept)(str(waiting[0].id))
            self.received(number)
        return bool(waiting)

    def _count_replaced(self, number: int) -> None:
        """Who has the former content of a file back lets go of what came in its place."""
        rig = self.fleet[number].rig
        rig.fs.flush(rig.tx)
        for (key,) in rig.db.rows.execute(
            "SELECT key FROM held WHERE key >= x'63' AND key < x'64'"
        ).fetchall():
            for one in rig.tx.registers.values(key):
                content = Content.decode(one.value or b"")
                self._gone |= self._tokens(read_content(content, rig.plaintexts.__getitem__))

    def _count_replacing(self, number: int) -> None:
        """Likewise of a file that has come in the place of another one."""
        rig = self.fleet[number].rig
        rows = rig.db.rows.execute("SELECT key, former FROM held WHERE key >= x'70' AND key < x'71'")
        for key, former in rows.fetchall():
            ino = unmerged_ino(rig.tx, key[NODE])
            name = name_of_slot(rig.tx, ino or 0, slot_of(key))
            if former is not None:
                place = Place.decode(former)
                name = Name(place.parent, place.name)
            other = in_its_place(rig.tx, *name) if name is not None else None
            for one in rig.tx.registers.values(content_key(other)) if other is not None else ():
                content = Content.decode(one.value or b"")
                self._gone |= self._tokens(read_content(content, rig.plaintexts.__getitem__))

    def received(self, number: int) -> None:
        super().received(number)
        device = self.fleet[number]
        waiting = device.rig.sharing.deletions.all()
        self.holds += bool(waiting)
        self._count_replaced(number)
        assert all(0 < int(str(one.names)) <= int(str(one.of)) for one in waiting)

    def _exchange(self) -> bool:
        signed = super()._exchange()
        for number, device in enumerate(self.fleet.devices):
            while self.decide(number, undo=False):
                signed = True
            assert not device.rig.fs.changes.held
            assert device.rig.db.rows.execute("SELECT count(*) FROM held").fetchone() == (0,)
        return signed


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_views_are_sound_and_come_to_be_alike(seed: int) -> None:
    draw = random.Random(seed)
    share = draw.choice([0.0, 0.2])
    world = Holding(draw.choice([2, 3]), share)
    try:
        for _ in range(_STEPS):
            _step(world, draw)
        world.settle()
        assert world.holds
    finally:
        world.end()


def _step(world: Holding, draw: random.Random) -> None:
    count = len(world.fleet.devices)
    number, other = draw.sample(range(count), 2)
    pick, folder, name = draw.randrange(31), draw.randrange(31), draw.randrange(4)
    match draw.choices(
        (
            "write",
            "mkdir",
            "remove",
            "empty",
            "rename",
            "save",
            "chmod",
            "link",
            "open",
            "send",
            "encrypt",
            "examine",
            "decide",
            "reopen",
        ),
        (12, 5, 14, 4, 5, 3, 3, 1, 1, 16, 0.4, 2, 2, 1),
    ):
        case ["write"]:
            world.write(number, pick, name, draw.choice([0, 0, 1, 9]))
        case ["mkdir"]:
            world.mkdir(number, pick, name)
        case ["remove"]:
            world.remove(number, pick)
        case ["empty"]:
            world.empty(number, pick)
        case ["rename"]:
            world.rename(number, pick, folder, name)
        case ["save"]:
            world.save(number, pick, 1)
        case ["chmod"]:
            world.chmod(number, pick, draw.randrange(8))
        case ["link"]:
            world.link(number, pick, folder, name)
        case ["open"]:
            world.open_file(number, pick)
            world.close_file(folder)
        case ["send"]:
            world.sign(number)
            world.send(number, other, draw.choice([0, 0, 3]), draw.choice([0, 0, 0, 1]))
        case ["encrypt"]:
            world.encrypt(number, draw)
        case ["examine"]:
            world.examine(number)
        case ["decide"]:
            world.decide(number, undo=draw.random() < 0.5)
        case _:
            world.reopen(number)
