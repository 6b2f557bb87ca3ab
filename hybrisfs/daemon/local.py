"""How volumes are made, found and opened, as the daemon wants it.

Only the daemon itself imports this. The process that watches over it stays small.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import asdict

from backends.address import without_secrets
from backends.credentials import CredentialStore
from hybrisfs.admit.create import create_volume
from hybrisfs.admit.local_copy import (
    Deletion,
    finish_copies,
    forget_copy,
    is_half_forgotten,
    rename_copy,
    require_kept,
)
from hybrisfs.api.maintenance import Recovered
from hybrisfs.api.volumes import CloudUrl, DeletedCloud, Rebuilt, SecretsOfPlace, TriedPlace, Volume
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UnknownVolumeError
from hybrisfs.home import Home
from hybrisfs.kv import shared
from hybrisfs.kv.service_url import is_service
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.sharing.sharing import default_device_name
from hybrisfs.stores.own_places import OwnPlaces
from hybrisfs.stores.tryout import describe_secrets, log_in, try_place
from hybrisfs.volume.volume import Volume as OpenVolume

if TYPE_CHECKING:
    from hybrisfs.pairing.exchange import Dialogue

__all__ = ["LocalVolumes"]


class LocalVolumes:
    """The volumes of a home. Methods raise `HybrisError` and `OSError`."""

    def create(
        self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None, *, make: bool
    ) -> Volume:
        """See `create_volume`."""
        return _described(create_volume(home, name, clouds, f, k, make=make))

    def join(
        self, home: Home, code: str, name: str | None, own_name: str | None
    ) -> Callable[[Dialogue, threading.Event], Callable[[], Volume]]:
        """What has this device let in by *code*, and then makes the volume. Raises HybrisError for a bad
        code."""
        from hybrisfs.admit.invitation import Joining  # pairing takes long to import

        joining = Joining(home, code, name, own_name or default_device_name())

        def join(dialogue: Dialogue, stop: threading.Event) -> Callable[[], Volume]:
            make = joining.run(dialogue, stop)
            return lambda: _described(make())

        return join

    def describe_secrets(self, home: Home, url: str) -> SecretsOfPlace:
        """What the place at *url* can be given."""
        store = CredentialStore(home.credentials)
        return shared.describe_secrets(url, store) if is_service(url) else describe_secrets(url, store)

    def try_place(self, home: Home, url: str, secrets: Mapping[str, str] | None, *, make: bool) -> TriedPlace:
        """Try out what may become a cloud. Secrets are kept when it answers; without any it is asked with
        those that there are. *make*: make its folder even if its disk is not there."""
        home.prepare()
        store, places = CredentialStore(home.credentials), OwnPlaces(home, SYSTEM)
        if is_service(url):
            return shared.log_in(url, secrets, store)
        if secrets is not None:
            return log_in(url, secrets, store, places)
        return try_place(url, store, places, SYSTEM, make=make)

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
        """Make a volume on this device of what its clouds hold."""
        from hybrisfs.admit.recover import recover_volume

        own_name = own_name or default_device_name()
        found = recover_volume(home, clouds, passphrase, name, own_name, incomplete=incomplete, tell=tell)
        few_named = True if found.agreed and not found.by_named else UNSET
        return Recovered(_described(found.config), list(found.missing), found.agreed, few_named)

    def open(self, home: Home, name: str) -> OpenVolume:
        """Open a volume and start its background work."""
        require_kept(home, name)
        return OpenVolume.open(home, name, SYSTEM)

    def rebuild(self, home: Home, name: str, step: Callable[[str, int, int], None]) -> Rebuilt:
        """Rebuild the database of a closed volume. *step* gets stage, done and total."""
        from hybrisfs.admit.rebuild import rebuild_volume

        require_kept(home, name)
        return rebuild_volume(home, name, step)

    def empty_clouds(self, home: Home, name: str, tell: Callable[[int], None]) -> Sequence[DeletedCloud]:
        """Delete everything of a closed volume on its clouds; *tell* hears how many objects are deleted."""
        from hybrisfs.clouds.emptying import empty_clouds

        found = empty_clouds(home, VolumeConfig.load(home, name), Deletion(home, name), tell)
        return [DeletedCloud(cloud.name, without_secrets(cloud.url), **asdict(one)) for cloud, one in found]

    def keep_closed(self, home: Home, name: str) -> None:
        """Let the volume be opened no more, because it is about to be deleted."""
        Deletion(home, name).begin()

    def is_going(self, home: Home, name: str) -> bool:
        """Whether the volume was being given up when the program ended."""
        return is_half_forgotten(home, name)

    def forget(self, home: Home, name: str) -> None:
        """Delete what this device has of a closed volume."""
        forget_copy(home, name)

    def rename(self, home: Home, old: str, new: str, renamed: Callable[[str, str], None]) -> None:
        """Call a closed volume otherwise. *renamed* gets both names, maybe again after a crash."""
        rename_copy(home, old, new, renamed)

    def finish(self, home: Home, renamed: Callable[[str, str], None]) -> None:
        """Finish what `forget` and `rename` had begun when the program ended."""
        finish_copies(home, renamed)

    def list(self, home: Home) -> Sequence[Volume]:
        """All volumes, with those whose configuration is damaged: opening them says what is wrong."""
        configs: list[Volume] = []
        for name in home.volume_names():
            try:
                configs.append(_described(VolumeConfig.load(home, name)))
            except UnknownVolumeError:
                continue  # one that was not created to the end
            except HybrisError:
                configs.append(Volume(name, [], 0, 0))  # only its name is known
        return configs


def _described(config: VolumeConfig) -> Volume:
    clouds = [CloudUrl(cloud.name, cloud.url) for cloud in config.clouds]
    return Volume(config.name, clouds, config.f, config.k)
