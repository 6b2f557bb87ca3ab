"""Volumes that are recovered from clouds and a passphrase; no mounts, no links."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from hybrisfs.admit.join import join_volume, make_grant
from hybrisfs.admit.kit import KitCopy, decode_kit, kit_name
from hybrisfs.admit.recover import Recovered, recover_volume
from hybrisfs.api.maintenance import Kit, MadeKit
from hybrisfs.environment import Environment, Limits
from hybrisfs.home import Home
from hybrisfs.members.members import Member
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.session import Joined
from hybrisfs.recovery.sealed_key import Cost
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.volume.volume import Volume
from sync import DeviceKey
from tests.surroundings import Surroundings
from tests.volume.device import ALONE, NAME, PATIENCE, Device

__all__ = ["PASSPHRASE", "First", "New", "Second", "copies", "has", "kit_of", "recover", "waits"]

PASSPHRASE = "correct horse battery staple"


class First(Device):
    """The device that the volume was made on."""

    def __init__(self, root: Path, clouds: int = 3, limits: Sequence[object] = ()) -> None:
        super().__init__(root, clouds, limits=limits)
        self.volume.recovery.cost = Cost(1, 8)

    def reopen(self, *limits: object) -> None:
        super().reopen(*limits)
        self.volume.recovery.cost = Cost(1, 8)

    def make_kit(self) -> MadeKit:
        return self.volume.recovery.make(PASSPHRASE)


class Second(Device):
    """Another device of the volume, which was paired."""

    def __init__(self, root: Path, first: Device, name: str = "second") -> None:
        self.around = Surroundings(Environment(limits=first.around.environment.limits))
        self.home = Home.below(root / "home")
        self.clouds = first.clouds
        self.home.prepare()
        key, volume = DeviceKey.generate(), first.volume
        grant = make_grant(volume.config, volume.ring.keys, volume.sharing.key_holders(), None)
        volume.sharing.membership.admit(Member(key.public, name))
        joined = Joined(grant, Peer(volume.ring.keys.device.public, "first"))
        replace(join_volume(self.home, None, key, name, joined), links=ALONE).save(self.home)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True


class New(Device):
    """A device that was recovered."""

    def __init__(self, home: Home, clouds: Sequence[Path], limits: Sequence[object] = ()) -> None:
        self.around = Surroundings(Environment(limits=Limits(*limits)))
        self.home = home
        self.clouds = list(clouds)
        replace(VolumeConfig.load(home, NAME), links=ALONE).save(home)
        self.volume = Volume.open(home, NAME, self.around.environment)
        self._open = True


def recover(
    home: Home,
    clouds: Sequence[Path],
    passphrase: str = PASSPHRASE,
    own_name: str = "new",
    *,
    incomplete: bool = False,
) -> Recovered:
    urls = [one.as_uri() for one in clouds]
    return recover_volume(home, urls, passphrase, None, own_name, incomplete=incomplete)


def kit_of(device: Device) -> Kit:
    """What the device tells of the only kit."""
    [kit] = device.volume.recovery.all()
    return kit


def copies(device: Device, kit: str) -> list[KitCopy | None]:
    """What the folders that play the clouds hold of a kit."""
    name = kit_name(bytes.fromhex(kit))
    paths = [cloud / name for cloud in device.clouds]
    return [decode_kit(path.read_bytes(), name) if path.exists() else None for path in paths]


def has(device: Device, name: str) -> bool:
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, 1, name.encode()) is not None


def waits(device: Device, what: Callable[[], bool]) -> None:
    """Wait until the device has heard or done what makes this true."""

    def look() -> bool:
        device.volume.signals.look_around()
        return what()

    deadline = time.monotonic() + PATIENCE
    assert device.volume.signals.wait_until(look, deadline, step=0.2)
