"""A volume without a mount: the real thing but for FUSE."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hybrisfs.admit.create import create_volume
from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.dispersal.ranking import TimerBounds, Timing
from hybrisfs.environment import Environment, Limits
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.peers.settings import PeerSettings
from hybrisfs.receive.pull import PullLimits
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import Missing
from hybrisfs.verify.fsck import FsckReport
from hybrisfs.volume.unasked import UnaskedLimits
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from sync.follow import FollowLimits
from tests.surroundings import Surroundings

__all__ = ["ALONE", "NAME", "PATIENCE", "QUICK", "Device", "Second", "checkpoints_within", "two_devices"]

NAME: Final = "vol"
PATIENCE: Final = 60.0
_REFUSALS: Final = 100
QUICK: Final = (
    PullLimits(FollowLimits(shortest_pause=0.1)),
    Timing(timers=TimerBounds(first_pause=0.01)),
    UnaskedLimits(rest=86_400.0),
)
"""Devices look at the clouds more often than in real life, and ask sooner again for what is not there. They
merge nothing unasked."""
ALONE: Final = PeerSettings(discover=False)  # devices hear of each other through the clouds only


class Device:
    """A home below *root*, folders that play clouds beside it, and the volume, open."""

    def __init__(
        self,
        root: Path,
        clouds: int = 3,
        f: int | None = 1,
        k: int | None = 1,
        *,
        cloud_folders: Sequence[Path] = (),
        limits: Sequence[object] = (),
    ) -> None:
        """*limits*: records that differ from `QUICK`, also for devices that it lets in."""
        self.around = Surroundings(Environment(limits=Limits(*QUICK, *limits)))
        self.home = Home.below(root / "home")
        self.clouds = list(cloud_folders) or [root / f"cloud-{number}" for number in range(clouds)]
        config = create_volume(self.home, NAME, [cloud.as_uri() for cloud in self.clouds], f, k)
        replace(config, links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True

    @staticmethod
    def found(home: Path, clouds: Sequence[Path]) -> Device:
        """One that is on the disk already, with its home at *home*; its volume is opened."""
        device = Device.__new__(Device)
        device.home = Home.below(home)
        device.clouds = list(clouds)
        device.volume = Volume.open(device.home, NAME, device.around.environment)
        device._open = True
        return device

    @cached_property
    def around(self) -> Surroundings:
        """What the volume takes from its surroundings, whenever it is opened."""
        return Surroundings(Environment(limits=Limits(*QUICK)))

    @property
    def state(self) -> Path:
        return self.home.volume_state(NAME)

    def write(self, name: str, content: bytes) -> None:
        fs = self.volume.fs
        with fs.state.transaction() as tx:
            inode = fs.lookup(tx, ROOT_INO, name.encode())
            if inode is None:
                _, handle = fs.create(tx, ROOT_INO, name.encode(), 0o644, 1, 1, os.O_WRONLY)
            else:
                handle = fs.open(tx, inode.ino, os.O_WRONLY | os.O_TRUNC)
        self.write_at(handle, 0, content)
        with fs.state.transaction() as tx:
            fs.release(tx, handle)

    def write_at(self, handle: int, offset: int, content: bytes) -> None:
        """Like the mount: wait for room when there is none."""
        fs = self.volume.fs
        refusals = 0
        while True:
            try:
                with fs.state.transaction() as tx:
                    fs.write(tx, fs.handle(handle), offset, content)
                return
            except JournalFullError:
                refusals += 1
                if refusals > _REFUSALS or not self.volume.room.wait_for_room(len(content)):
                    raise

    def read(self, name: str) -> bytes:
        fs = self.volume.fs
        while True:
            with fs.state.transaction() as tx:
                inode = fs.lookup(tx, ROOT_INO, name.encode())
                assert inode is not None
                data = fs.read(tx, inode, 0, inode.size)
            if not isinstance(data, Missing):
                return data
            self.volume.fetcher.fetch(data.chunks)

    def sync(self) -> None:
        assert self.volume.sync(PATIENCE, lambda done, total: None)

    def has_signed(self) -> bool:
        """Whether an update holds all that was changed here."""
        fs = self.volume.fs
        with fs.state.transaction():
            return not fs.changes.unsigned_up_to(fs.changes.seq)

    def fsck(self, *, clouds: bool = False) -> FsckReport:
        return self.volume.fsck(clouds=clouds, progress=lambda stage, done, total: None)

    def close(self) -> None:
        if self._open:
            self._open = False
            self.volume.close()

    def reopen(self, *limits: object) -> None:
        """Open the volume again; if *limits* are given, with `QUICK` and these."""
        self.close()
        if limits:
            self.around = Surroundings(Environment(limits=Limits(*QUICK, *limits)))
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True


@contextmanager
def checkpoints_within(*volumes: Volume, **limits: float) -> Iterator[None]:
    """These limits of checkpoints hold for a while."""
    checkpointers = [volume.checkpoints.checkpointer for volume in volumes]
    before = [checkpointer.machine.limits for checkpointer in checkpointers]
    for checkpointer in checkpointers:
        checkpointer.machine.limits = replace(checkpointer.machine.limits, **limits)
    yield
    for checkpointer, usual in zip(checkpointers, before, strict=True):
        checkpointer.machine.limits = usual


class Second(Device):
    """Another device of the volume."""

    def __init__(self, root: Path, first: Device) -> None:
        self.around = Surroundings(Environment(limits=first.around.environment.limits))
        self.home = Home.below(root / "home")
        self.clouds = first.clouds
        self.home.prepare()
        key, volume = DeviceKey.generate(), first.volume
        grant = make_grant(volume.config, volume.ring.keys, volume.sharing.current_members(), None)
        volume.sharing.membership.admit(Member(key.public, "second"))
        joined = Joined(grant, Peer(volume.ring.keys.device.public, "first"))
        replace(join_volume(self.home, None, key, "second", joined), links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True


@contextmanager
def two_devices(root: Path) -> Iterator[tuple[Device, Device]]:
    """Two of one volume, over four folders that play clouds."""
    first = Device(root / "1", 4)
    try:
        second = Second(root / "2", first)
        try:
            yield first, second
        finally:
            second.close()
    finally:
        first.close()
