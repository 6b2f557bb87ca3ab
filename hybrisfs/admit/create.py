"""Creating a volume: keys, database, and a marker on every cloud."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from typing import Final

from backends.address import scheme_of, short_name
from backends.credentials import Credentials, CredentialStore
from backends.errors import StoreError
from backends.registry import open_store
from backends.store import Store
from hybrisfs.environment import SYSTEM, make_directory, sync_directory
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.registers.node_id import new_volume_id
from hybrisfs.settings.config import CloudConfig, VolumeConfig, choose_redundancy
from hybrisfs.state.database import Database
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, marker
from hybrisfs.stores.tryout import unusable

__all__ = [
    "DATABASE_FILE",
    "JOURNAL_FOLDER",
    "KEYS_FILE",
    "create_volume",
]

log = logging.getLogger(__name__)

DATABASE_FILE: Final = "volume.db"
JOURNAL_FOLDER: Final = "journal"
KEYS_FILE: Final = "keys.json"


def create_volume(home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None) -> VolumeConfig:
    """Make the volume *name* over the clouds with these URLs. Raises HybrisError, leaving nothing behind."""
    home.prepare()
    if (home.volume_config(name) / "volume.json").exists():
        raise UsageError(f"there is a volume {name!r} already", "", "Choose another name.")
    if len(set(clouds)) != len(clouds):
        raise UsageError("a cloud is named twice", "two shares on one cloud would be lost together")
    f, k = choose_redundancy(len(clouds), f, k)
    config = VolumeConfig(name, new_volume_id(), f, k, _name_clouds(clouds))
    state = home.volume_state(name)
    if state.exists():
        raise HybrisError(
            f"{state} is in the way",
            "it holds the keys or data of a volume whose configuration is gone",
            "Move it away, or restore the configuration.",
        )
    marked: list[Store] = []
    try:
        credentials, places = CredentialStore(home.credentials), OwnPlaces(home, SYSTEM)
        marked.extend(_mark(cloud, config.id, credentials, places) for cloud in config.clouds)
        make_directory(state, SYSTEM)
        VolumeKeys.generate().save(state / KEYS_FILE, SYSTEM)
        Database.create(state / DATABASE_FILE, config.id)
        sync_directory(state, SYSTEM)
        config.save(home)
    except BaseException:
        _undo(marked)
        shutil.rmtree(state, ignore_errors=True)
        raise
    finally:
        for store in marked:
            store.close()
    return config


def _mark(cloud: CloudConfig, volume: bytes, credentials: Credentials, places: OwnPlaces) -> Store:
    try:
        store = places.guarded(open_store(cloud.url, credentials))
        places.require_apart(cloud.url)
        store.initialise()
        if not store.put_if_absent(MARKER_NAME, marker(volume)):
            raise UsageError(
                f"{cloud.url} holds another volume already",
                "",
                "Give each volume a folder or bucket of its own.",
            )
    except StoreError as error:
        raise unusable(error) from error
    except ValueError as error:
        raise HybrisError(f"the cloud {cloud.url} cannot be used", str(error)) from error
    return store


def _undo(marked: Sequence[Store]) -> None:
    for store in marked:
        try:
            store.delete(MARKER_NAME)
        except StoreError as error:
            log.warning("the marker of a volume that was not created stays behind: %s", error)


def _name_clouds(urls: Sequence[str]) -> tuple[CloudConfig, ...]:
    """Short names from the URLs, made different where they are not."""
    names: list[str] = []
    for url in urls:
        try:
            short = short_name(url) or scheme_of(url) or "cloud"
        except ValueError as error:
            raise UsageError(f"{url} is not the URL of a cloud", str(error)) from error
        count = 2
        name = short
        while name in names:
            name = f"{short}-{count}"
            count += 1
        names.append(name)
    return tuple(CloudConfig(number, names[number], url) for number, url in enumerate(urls))
