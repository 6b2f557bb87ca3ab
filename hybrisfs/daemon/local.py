"""The volumes that are really there: `hybrisfs.volume` as the daemon wants to see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.credentials import CredentialStore
from hybrisfs.api.places import SecretsOfPlace, TriedPlace
from hybrisfs.api.volumes import Rebuilt
from hybrisfs.daemon.interfaces import Cloud, Config, OpenVolume, Recovered
from hybrisfs.errors import HybrisError, UnknownVolumeError
from hybrisfs.home import Home
from hybrisfs.pairing import Dialogue
from hybrisfs.volume.cloud_login import describe_secrets, log_in, try_place
from hybrisfs.volume.config import VolumeConfig
from hybrisfs.volume.create import create_volume
from hybrisfs.volume.own_places import OwnPlaces
from hybrisfs.volume.pairing import Joining
from hybrisfs.volume.rebuild import rebuild_volume
from hybrisfs.volume.recover import recover_volume
from hybrisfs.volume.sharing import default_device_name
from hybrisfs.volume.volume import Volume

__all__ = ["LocalVolumes"]


@dataclass(frozen=True, slots=True)
class _Damaged:
    """Stands for a volume of which only the name is known."""

    name: str
    clouds: Sequence[Cloud] = ()
    f: int = 0
    k: int = 0


class LocalVolumes:
    """A `hybrisfs.daemon.interfaces.VolumeKind`."""

    def create(self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None) -> Config:
        return create_volume(home, name, clouds, f, k)

    def join(
        self, home: Home, code: str, name: str | None, own_name: str | None
    ) -> Callable[[Dialogue, threading.Event], Callable[[], Config]]:
        return Joining(home, code, name, own_name or default_device_name()).run

    def describe_secrets(self, home: Home, url: str) -> SecretsOfPlace:
        return describe_secrets(url, CredentialStore(home.credentials))

    def try_place(self, home: Home, url: str, secrets: Mapping[str, str] | None) -> TriedPlace:
        home.prepare()
        store, places = CredentialStore(home.credentials), OwnPlaces(home)
        return try_place(url, store, places) if secrets is None else log_in(url, secrets, store, places)

    def recover(
        self,
        home: Home,
        clouds: Sequence[str],
        passphrase: str,
        name: str | None,
        own_name: str | None,
        *,
        incomplete: bool,
        tell: Callable[[str], None],
    ) -> Recovered:
        own_name = own_name or default_device_name()
        return recover_volume(home, clouds, passphrase, name, own_name, incomplete=incomplete, tell=tell)

    def open(self, home: Home, name: str) -> OpenVolume:
        return Volume.open(home, name)

    def rebuild(self, home: Home, name: str, step: Callable[[str, int, int], None]) -> Rebuilt:
        return rebuild_volume(home, name, step)

    def list(self, home: Home) -> Sequence[Config]:
        """All volumes, with those whose configuration is damaged: opening them says what is wrong."""
        configs: list[Config] = []
        for name in home.volume_names():
            try:
                configs.append(VolumeConfig.load(home, name))
            except UnknownVolumeError:
                continue  # one that was not created to the end
            except HybrisError:
                configs.append(_Damaged(name))
        return configs
