"""The key-value store of a volume on this device: made when it is first used."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import sync_directory
from hybrisfs.errors import DamagedError, HybrisError, UsageError
from hybrisfs.keys import VolumeKeys
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.errors import DAMAGE_ADVICE
from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.salvage import Orphans, Salvaged, salvage
from hybrisfs.kv.seal import new_store_id
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.settings.config import VolumeConfig

__all__ = ["KeyValues", "ValueFacts"]

log = logging.getLogger(__name__)

_FILE: Final = "kv.db"


class ValueFacts(NamedTuple):
    """Of how many values too little can be read now, as far as anybody has tried, and since when (seconds
    since the epoch) which clouds have had something to delete."""

    unreadable: int
    owing: Mapping[int, int]


class KeyValues:
    """Opens the store when it is first asked for; at once when it was made before. Thread-safe."""

    def __init__(
        self,
        state: Path,
        engine: Engine,
        keys: VolumeKeys,
        config: VolumeConfig,
        permit: Callable[[], None],
    ) -> None:
        """*permit*: see `KeyValueStore`."""
        self._path = state / _FILE
        self._values = engine.values
        self._environment = engine.environment
        self._upkeep = engine.upkeep
        self._key = keys.values
        self._redundancy = Redundancy(config.f, config.k)
        self._lock = threading.Lock()
        self._store: KeyValueStore | None = None
        self._closed = False
        self._trouble = ""
        self._permit = permit
        if self._path.exists():  # it may have something to delete from the clouds
            try:
                self.open()
            except (HybrisError, OSError, sqlite3.OperationalError) as error:
                log.error("the key-value store cannot be opened: %s", error)  # its users get the error, too
                self._trouble = "; ".join(str(error).splitlines())

    @property
    def exists(self) -> bool:
        """Whether there is a store: its values may be on any cloud."""
        return self._path.exists()

    @property
    def trouble(self) -> str:
        """Why what was stored cannot be used now; empty when it can, or nothing ever was."""
        return self._trouble if self._store is None and self.exists else ""

    def use(self, redundancy: Redundancy) -> None:
        """Store values like this from now on."""
        with self._lock:
            self._redundancy = redundancy
            if self._store is not None:
                self._store.uploader.redundancy = redundancy

    def existing(self) -> KeyValueStore | None:
        """The store; None when none was ever made. Raises HybrisError when it cannot be opened."""
        if not self.exists:
            return None
        try:
            return self.open()
        except (OSError, sqlite3.Error) as error:
            raise DamagedError(f"{self._path} cannot be opened", str(error), DAMAGE_ADVICE) from error

    def mender(self) -> tuple[KeyValueStore, ValueMender] | None:
        """The store, and what looks after its values. See `existing`."""
        store = self.existing()
        return None if store is None else (store, ValueMender(store, self._upkeep))

    def held(self, cloud: int) -> int:
        """How many values a cloud should hold; 1 when that is not known. Does not wait."""
        store = self._store
        return store.metadata.held(cloud) if store is not None else int(self.exists)

    def refuses_deletion(self, cloud: int) -> bool:
        """Whether a cloud has lately refused to let this device delete anything."""
        return self._upkeep.refused_deletion(cloud) is not None

    def facts(self) -> ValueFacts:
        """What `status` tells. Asks no cloud."""
        store = self._store
        if store is None:
            return ValueFacts(0, {})
        return ValueFacts(ValueMender(store, self._upkeep).unreadable(), store.metadata.owing())

    def open(self) -> KeyValueStore:
        """The store, made if there is none yet. Raises HybrisError or OSError."""
        with self._lock:
            if self._closed:
                raise HybrisError("the volume is being closed")
            if self._store is None:
                if not self._path.exists():
                    MetadataDatabase.create(self._path, new_store_id(self._key))
                    sync_directory(self._path.parent)
                self._store = KeyValueStore(
                    self._path,
                    self._values,
                    self._key,
                    self._redundancy,
                    environment=self._environment,
                    permit=self._permit,
                )
            return self._store

    def orphans(self, trusted: Callable[[], Collection[int]]) -> Orphans:
        """What looks for values that nothing names on the clouds that are *trusted*. See `existing`."""
        return Orphans(self.existing(), self._key, self._upkeep, trusted)

    def rebuild(self) -> tuple[Path, Salvaged]:
        """Set damaged metadata aside, and make new ones of what can be read of them.

        Returns where the former ones are and what was taken over. Raises UsageError when nothing is wrong
        with them. When it is interrupted, run it again; what is set aside stays.
        """
        with self._lock:
            if not self._path.exists():
                raise UsageError("there is nothing to be rebuilt", "nothing was ever stored by key here")
            if self._store is not None:
                if _is_sound(self._store):
                    raise UsageError("nothing was rebuilt", f"{self._path} is not damaged")
                self._store.close()
                self._store = None
            aside = self._path.with_name(time.strftime(f"{_FILE}.damaged-%Y%m%d-%H%M%S"))
            aside.mkdir(mode=0o700)
            for file in self._files():
                os.link(file, aside / file.name)
            rebuilt = self._path.with_name(f"{_FILE}.rebuilt")
            for file in self._path.parent.glob(f"{rebuilt.name}*"):
                file.unlink()
            salvaged = salvage(aside / _FILE, rebuilt, new_store_id(self._key))
            for file in self._files()[1:]:
                file.unlink()  # they would be taken for the log of the new database
            rebuilt.rename(self._path)
            sync_directory(self._path.parent)
        return aside, salvaged

    def _files(self) -> list[Path]:
        """The database, and SQLite's files beside it."""
        beside = [self._path.with_name(_FILE + suffix) for suffix in ("-wal", "-shm")]
        return [self._path, *(one for one in beside if one.exists())]

    def close(self) -> None:
        """Close the store. Idempotent."""
        with self._lock:
            self._closed = True
            if self._store is not None:
                self._store.close()


def _is_sound(store: KeyValueStore) -> bool:
    if store.metadata.failed or store.metadata.problems():
        return False
    try:
        return all(found.entry is not None for found in store.metadata.values())
    except sqlite3.Error:
        return False
