"""All checks, in the order in which a person should read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from backends.credentials import CredentialStore
from hybrisfs.admit.create import DATABASE_FILE, KEYS_FILE
from hybrisfs.daemon.only_one import answers
from hybrisfs.daemon.wanted_mounts import WantedMounts
from hybrisfs.doctor.check import Finding, bad, ok
from hybrisfs.doctor.clouds import examine_clouds
from hybrisfs.doctor.machine import examine_disk, examine_limits, examine_links
from hybrisfs.doctor.mounts import examine_fuse, examine_mounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.members.role_table import Roles
from hybrisfs.members.roles import Role
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.database import committed
from hybrisfs.stores.own_places import OwnPlaces
from sync import DecodeError

__all__ = ["examine", "examine_roles"]


def examine(home: Home) -> Iterator[Finding]:
    """What there is to say about this machine and the volumes on it."""
    wanted = WantedMounts(home.state, SYSTEM).all()
    places = [mount.directory for mount in wanted.values()] or [home.default_mountpoint]
    for_others = any(mount.allow_other for mount in wanted.values())
    yield from examine_fuse(places, home.default_mountpoint.parent, for_others=for_others)
    yield from examine_disk({"state": home.state, "configuration": home.config})
    yield from examine_limits()
    yield from examine_mounts(home, wanted)
    volumes = []
    for name in home.volume_names():
        try:
            volumes.append(VolumeConfig.load(home, name))
        except HybrisError as error:
            yield bad(f"volume {name}", f"{error.what}: {error.why}", error.advice)
    yield from examine_roles(home, [volume.name for volume in volumes])
    ports = {volume.name: volume.links.port for volume in volumes}
    yield from examine_links(ports, daemon_runs=answers(home.socket))
    yield from examine_clouds(volumes, CredentialStore(home.credentials), OwnPlaces(home, SYSTEM))


_LIMITS: Final = {
    Role.READER: "this machine only reads it, so that nothing can be changed here",
    Role.CONTRIBUTOR: "this machine may only change what is in the folders that hybrisfs device list names",
}


def examine_roles(home: Home, volumes: Iterable[str]) -> Iterator[Finding]:
    """One finding for each of these volumes of which this device is not a full member: programs cannot save
    there, or not everywhere. Their databases are looked at as they are on the disk; what is wrong with these
    is for others to tell."""
    for name in volumes:
        role = _role(home.volume_state(name))
        if role is not Role.FULL:
            yield ok(
                f"volume {name}",
                f"{_LIMITS[role]}; on a full member, hybrisfs device role NAME full lets it write",
            )


def _role(state: Path) -> Role:
    """What this device may do in the volume with this state folder; all when that is unknown."""
    try:
        device = VolumeKeys.load(state / KEYS_FILE).device.device_id
        with committed(state / DATABASE_FILE) as database:
            roles = Roles(database)
            return Role.READER if roles.are_awaited(device) else roles.stored_role(device)
    except (HybrisError, OSError, DecodeError, sqlite3.Error):
        return Role.FULL
