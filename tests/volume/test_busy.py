"""Many programs at once, with everything that goes on in the background: nobody sees another's bytes."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from hybrisfs.state.journal import JournalLimits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import InodeLimits
from tests.tree.rig import small_chunks
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device

STEPS = 2000
NAMES = 6


class Program:
    """Works on files of its own, comparing all that it reads with what it wrote."""

    def __init__(self, device: Device, number: int, seed: int) -> None:
        self.device = device
        self.prefix = f"{number} "
        self.random = random.Random(f"{seed} {number}")
        self.files: dict[str, bytearray] = {}

    def run(self) -> None:
        for _ in range(STEPS):
            name = self.prefix + str(self.random.randrange(NAMES))
            action = self.random.choice(
                [self.rewrite, self.overwrite, self.cut, self.check, self.move, self.remove]
            )
            if name in self.files:
                action(name)
            else:
                self.rewrite(name)

    def rewrite(self, name: str) -> None:
        data = self.random.randbytes(self.random.choice([1, 100, 5000, 20_000]))
        self.device.write(name, data)
        self.files[name] = bytearray(data)

    def overwrite(self, name: str) -> None:
        data, fs = self.files[name], self.device.volume.fs
        with fs.state.transaction() as tx:
            handle = fs.open(tx, self.ino(name), os.O_RDWR)
        for _ in range(self.random.randrange(1, 8)):
            offset = self.random.randrange(len(data) + 5000)
            piece = self.random.randbytes(self.random.randrange(1, 3000))
            self.device.write_at(handle, offset, piece)
            data.extend(bytes(max(0, offset - len(data))))
            data[offset : offset + len(piece)] = piece
        with fs.state.transaction() as tx:
            fs.release(tx, handle)

    def cut(self, name: str) -> None:
        size = self.random.randrange(len(self.files[name]) + 1)
        with self.device.volume.fs.state.transaction() as tx:
            self.device.volume.fs.truncate(tx, self.device.volume.fs.get(tx, self.ino(name)), size)
        del self.files[name][size:]

    def check(self, name: str) -> None:
        assert self.device.read(name) == self.files[name], name

    def move(self, name: str) -> None:
        new = self.prefix + str(self.random.randrange(NAMES))
        with self.device.volume.fs.state.transaction() as tx:
            self.device.volume.fs.rename(tx, ROOT_INO, name.encode(), ROOT_INO, new.encode(), 0)
        self.files[new] = self.files.pop(name)

    def remove(self, name: str) -> None:
        with self.device.volume.fs.state.transaction() as tx:
            self.device.volume.fs.unlink(tx, ROOT_INO, name.encode())
        del self.files[name]

    def ino(self, name: str) -> int:
        inode = self.device.volume.fs.lookup(unlocked(self.device.volume.fs), ROOT_INO, name.encode())
        assert inode is not None
        return inode.ino


def disturb(device: Device, stop: threading.Event, seed: int) -> None:
    """Whatever else may be asked of a volume meanwhile."""
    chance = random.Random(seed)
    room, committer = device.volume.room, device.volume.committer
    while not stop.is_set():
        match chance.randrange(5):
            case 0:
                room.drop_all()
            case 1:
                room.evict(chance.randrange(100_000))
            case 2:
                device.volume.sync(0.05, lambda done, total: None)
            case 3:
                committer.commit_now()
            case 4:
                with device.volume.fs.state.transaction() as tx:
                    device.volume.fs.names.list(tx, ROOT_INO, 0, 100)


@pytest.mark.parametrize("budget", [1 << 30, 500_000], ids=["roomy", "tight"])
def test_programs_at_once(tmp_path: Path, budget: int) -> None:
    seed = int(os.environ.get("HYBRISFS_TEST_SEED") or int.from_bytes(os.urandom(4), "big"))
    print(f"HYBRISFS_TEST_SEED={seed}")
    stop = threading.Event()
    with (
        ThreadPoolExecutor(5) as pool,
        # Its end also ends the programs that are left when one has failed.
        closing(
            Device(tmp_path, limits=[InodeLimits(8), JournalLimits(64 << 10, 8), small_chunks()])
        ) as device,
    ):
        device.volume.fs.journal.budget = budget
        programs = [Program(device, number, seed) for number in range(4)]
        background = pool.submit(disturb, device, stop, seed)
        running = [pool.submit(program.run) for program in programs]
        try:
            for one in running:
                one.result(PATIENCE)
        finally:
            stop.set()
        background.result(PATIENCE)
        device.sync()
        assert device.fsck(clouds=True).problems == []
        device.volume.drop_cache()
        device.reopen()
        for program in programs:
            for name in program.files:
                program.check(name)
        with device.volume.fs.state.transaction() as tx:
            names = {name.decode() for _, name, _ in device.volume.fs.names.list(tx, ROOT_INO, 0, 1000)}
        assert names == {name for program in programs for name in program.files}
