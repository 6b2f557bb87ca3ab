"""All checks, in the order in which a person should read them."""

from __future__ import annotations

from collections.abc import Iterator

from backends.credentials import CredentialStore
from hybrisfs.daemon.only_one import answers
from hybrisfs.daemon.wanted import WantedMounts
from hybrisfs.doctor.clouds import examine_clouds
from hybrisfs.doctor.disk import examine_disk
from hybrisfs.doctor.finding import Finding, bad
from hybrisfs.doctor.fuse import examine_fuse
from hybrisfs.doctor.limits import examine_limits
from hybrisfs.doctor.links import examine_links
from hybrisfs.doctor.mounts import examine_mounts
from hybrisfs.doctor.roles import examine_roles
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.volume.config import VolumeConfig

__all__ = ["examine"]


def examine(home: Home) -> Iterator[Finding]:
    """What there is to say about this machine and the volumes on it."""
    wanted = WantedMounts(home.state).all()
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
    yield from examine_clouds(volumes, CredentialStore(home.credentials))
