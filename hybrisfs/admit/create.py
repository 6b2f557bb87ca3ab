"""Creating a volume: keys, database, and a marker on every cloud."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from typing import Final

from backends.credentials import Credentials, CredentialStore
from backends.errors import StoreError
from backends.store import Store
from hybrisfs.admit.local_copy import require_free_name
from hybrisfs.api.clouds import named_url
from hybrisfs.environment import SYSTEM, make_directory, sync_directory
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.keys import VolumeKeys
from hybrisfs.registers.node_id import new_volume_id
from hybrisfs.settings.config import CloudConfig, VolumeConfig, choose_redundancy
from hybrisfs.state.database import Database
from hybrisfs.stores.cloud_names import name_clouds
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, marker, require_ready
from hybrisfs.stores.tryout import open_for_test, unusable

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


def create_volume(
    home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None, *, make: bool = False
) -> VolumeConfig:
    """Make the volume *name* over *clouds*: their URLs, each behind "NAME=" if it is to have that name. Local
    folders whose disk is not there are made only when a person says *make*.

    Raises HybrisError, leaving nothing behind.
    """
    home.prepare()
    require_free_name(home, name)
    named = [named_url(cloud) for cloud in clouds]
    urls = [url for _, url in named]
    if len(set(urls)) != len(urls):
        raise UsageError("a cloud is named twice", "two shares on one cloud would be lost together")
    f, k = choose_redundancy(len(clouds), f, k)
    names = name_clouds(named)
    for url in urls:
        require_ready(url, make=make)
    numbered = (CloudConfig(number, *one) for number, one in enumerate(zip(names, urls, strict=True)))
    config = VolumeConfig(name, new_volume_id(), f, k, tuple(numbered))
    state = home.volume_state(name)
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
    store = open_for_test(cloud.url, credentials, places)
    try:
        store.initialise()
        if not store.put_if_absent(MARKER_NAME, marker(volume)):
            raise UsageError(
                f"{cloud.url} holds another volume already",
                "",
                "Give each volume a folder or bucket of its own.",
            )
    except StoreError as error:
        raise unusable(error) from error
    return store


def _undo(marked: Sequence[Store]) -> None:
    for store in marked:
        try:
            store.delete(MARKER_NAME)
        except StoreError as error:
            log.warning("the marker of a volume that was not created stays behind: %s", error)
