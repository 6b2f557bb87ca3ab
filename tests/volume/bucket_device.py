"""Devices over buckets of a real S3 server, with the credentials that each is given."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from backends.credentials import CredentialStore
from backends.s3 import S3Store
from hybrisfs.admit.create import create_volume
from hybrisfs.environment import Environment, Limits
from hybrisfs.home import Home
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.volume.volume import Volume
from tests.backends.buckets import allow
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.surroundings import Surroundings
from tests.volume.device import NAME, PATIENCE, Device, Second

__all__ = ["First", "Other", "everything", "keeping_buckets", "log_in", "wait_for"]


class First(Device):
    """The device that makes the volume."""

    def __init__(
        self,
        root: Path,
        urls: Sequence[str],
        f: int,
        k: int,
        secrets: Mapping[str, str] = ORDINARY,
        *,
        limits: Sequence[object] = (),
    ) -> None:
        self.around = Surroundings(Environment(limits=Limits(*limits)))
        self.home = Home.below(root / "home")
        self.clouds = []
        log_in(self.home, urls, secrets)
        create_volume(self.home, NAME, urls, f, k)
        self.volume = Volume.open(self.home, NAME, self.around.environment)
        self._open = True


class Other(Second):
    """Another device."""

    def __init__(self, root: Path, first: Device, secrets: Mapping[str, str] = ORDINARY) -> None:
        log_in(Home.below(root / "home"), [cloud.url for cloud in first.volume.config.clouds], secrets)
        super().__init__(root, first)


def log_in(home: Home, urls: Sequence[str], secrets: Mapping[str, str] = ORDINARY) -> None:
    """Give a machine the secrets of the clouds."""
    home.prepare()
    for url in urls:
        CredentialStore(home.credentials).add(url, secrets)


def keeping_buckets(server: Server, count: int, objects: Sequence[str]) -> list[str]:
    """Make buckets that keep what is deleted, and let `ORDINARY` do this with objects there."""
    urls = [server.url() for _ in range(count)]
    for url in urls:
        store = S3Store(url, FixedCredentials(server.secrets))
        store.initialise()
        store.versions.keep(30)
        store.close()
        allow(server, url, objects)
    return urls


def everything(store: S3Store, prefix: str = "") -> list[str]:
    """The names of all objects that are there."""
    names: list[str] = []
    while (page := store.list(prefix, after=names[-1] if names else "")).entries:
        names += page.names
    return names


def wait_for(device: Device, *names: str) -> None:
    """Wait until a device has heard of files."""
    fs = device.volume.fs

    def heard() -> bool:
        with fs.state.transaction() as tx:
            return all(fs.lookup(tx, ROOT_INO, name.encode()) is not None for name in names)

    assert device.volume.signals.wait_until(heard, time.monotonic() + PATIENCE)
