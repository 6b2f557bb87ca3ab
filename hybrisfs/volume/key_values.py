"""The key-value store of a volume on this device: made when it is first used."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.keys import VolumeKeys
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.seal import STORE_ID_SIZE
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.store.files import sync_directory
from hybrisfs.volume.config import VolumeConfig

__all__ = ["KeyValues"]

log = logging.getLogger(__name__)

_FILE: Final = "kv.db"
_CACHE_BYTES: Final = 32 << 20


class KeyValues:
    """Opens the store when somebody asks for it; at once when it was made before. Thread-safe."""

    def __init__(self, state: Path, engine: Engine, keys: VolumeKeys, config: VolumeConfig) -> None:
        self._path = state / _FILE
        self._values = engine.values
        self._upkeep = engine.upkeep
        self._key = keys.values
        self._redundancy = Redundancy(config.f, config.k)
        self._lock = threading.Lock()
        self._store: KeyValueStore | None = None
        self._closed = False
        if self._path.exists():  # it may have something to delete from the clouds
            try:
                self.open()
            except (HybrisError, OSError, sqlite3.OperationalError) as error:
                log.error("the key-value store cannot be opened: %s", error)  # whoever uses it is told, too

    @property
    def exists(self) -> bool:
        """Whether there is a store: its values may be on any cloud."""
        return self._path.exists()

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
            raise DamagedError(
                f"{self._path} cannot be opened", str(error), "Restore it from a backup."
            ) from error

    def mender(self) -> tuple[KeyValueStore, ValueMender] | None:
        """The store, and what looks after its values. See `existing`."""
        store = self.existing()
        return None if store is None else (store, ValueMender(store, self._upkeep))

    def held(self, cloud: int) -> int:
        """How many values are on record at a cloud; 1 when that cannot be told. Waits for nobody."""
        store = self._store
        return store.metadata.held(cloud) if store is not None else int(self.exists)

    def open(self) -> KeyValueStore:
        """The store, made if there is none yet. Raises HybrisError or OSError."""
        with self._lock:
            if self._closed:
                raise HybrisError("the volume is being closed")
            if self._store is None:
                if not self._path.exists():
                    MetadataDatabase.create(self._path, os.urandom(STORE_ID_SIZE))
                    sync_directory(self._path.parent)
                self._store = KeyValueStore(
                    self._path, self._values, self._key, self._redundancy, cache_bytes=_CACHE_BYTES
                )
            return self._store

    def close(self) -> None:
        """Close the store. Idempotent."""
        with self._lock:
            self._closed = True
            if self._store is not None:
                self._store.close()
