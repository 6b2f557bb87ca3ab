"""The key-value stores of a volume: that of this device, and those that all devices use."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hybrisfs.api.key_value import IN_LOG, ON_DEVICE, Place
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import sync_directory
from hybrisfs.errors import DamagedError, HybrisError, UsageError
from hybrisfs.keys import VolumeKeys
from hybrisfs.kv.cloud_place import is_on_clouds
from hybrisfs.kv.cloud_store import CloudStore, CloudStores
from hybrisfs.kv.containers import Authority, Key
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.errors import (
    DAMAGE_ADVICE,
    ContainerExistsError,
    ContainerMovingError,
    NoSuchContainerError,
)
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.mend import CloudMender, ValueMender
from hybrisfs.kv.migrate import Moved, Store, finish, give_up, left_behind, migrate
from hybrisfs.kv.record import check_container, container_of, is_leaving, is_usable
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.seal import new_store_id
from hybrisfs.kv.service_url import is_service
from hybrisfs.kv.shared import SharedStores
from hybrisfs.kv.store import KeyValueStore

if TYPE_CHECKING:
    from hybrisfs.kv.rebuild import Orphans, RebuiltMetadata

__all__ = ["KeyValues", "ValueFacts"]

log = logging.getLogger(__name__)

_FILE: Final = "kv.db"


class ValueFacts(NamedTuple):
    """Of how many values too little can be read now, as far as anybody has tried, and since when (seconds
    since the epoch) which clouds have had something to delete."""

    unreadable: int
    owing: Mapping[int, int]


class KeyValues:
    """The store of this device and those that all devices use, as one. Thread-safe.

    The store of this device is opened when it is first asked for, and at once when it was made before.
    """

    def __init__(
        self,
        state: Path,
        engine: Engine,
        keys: VolumeKeys,
        redundancy: Redundancy,
        shared: SharedStores,
        on_clouds: CloudStores,
        in_log: LogStore,
        authority: Authority,
    ) -> None:
        """*shared* and *on_clouds* are closed with this. *authority*: see `KeyValueStore`."""
        self.shared: Final = shared
        self.on_clouds: Final = on_clouds
        self._in_log = in_log
        self._path = state / _FILE
        self._values = engine.values
        self._environment = engine.environment
        self._upkeep = engine.upkeep
        self._key = keys.values
        self._redundancy = redundancy
        self._lock = threading.Lock()
        self._store: DeviceStore | None = None
        self._under_way: set[str] = set()  # containers that are being moved
        self._closed = False
        self._trouble = ""
        self._authority = authority
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
        self.shared.use(redundancy)

    # -- containers, whichever store has them ----------------------------------------------------

    def of(self, container: str) -> Store:
        """The store that has a container. Raises NoSuchContainerError, ContainerMovingError, and HybrisError
        or CloudsUnavailable when a service or clouds that may have it do not answer.

        Of several that have one of that name, the first that is asked: this device's before that in the log,
        for another machine may have made that one without knowing of it.
        """
        check_container(container)
        device = self.existing()
        if device is not None and device.metadata.has_container(container):
            return device
        if self._in_log.has_container(container):
            return self._in_log
        found = self.on_clouds.holding(container) or self.shared.holding(container)
        if found is not None:
            return found
        self._require_rest(container)
        raise NoSuchContainerError(container, self._names())

    def create_container(self, container: str, place: str | None) -> str:
        """Make a container whose metadata are in *place*: ON_DEVICE, IN_LOG, IN_CLOUDS (see
        `CloudPlace.wished`), or the URL of a service. None: in the log when the volume has several devices.
        Returns where they are.

        Raises ContainerExistsError, also when another store has one of that name, UsageError, and HybrisError
        or CloudsUnavailable when a service or clouds do not answer.
        """
        check_container(container)
        self._authority.require_writer()
        device = self.existing()
        if device is not None and device.metadata.has_container(container):
            raise ContainerExistsError(container)
        if self._in_log.has_container(container):
            raise ContainerExistsError(container)
        if self.on_clouds.holding(container) is not None or self.shared.holding(container) is not None:
            raise ContainerExistsError(container)
        self._require_rest(container)
        if place is None:
            place = IN_LOG if self._in_log.is_shared() else ON_DEVICE
        if place == IN_LOG:
            self._in_log.create_container(container)
        elif is_on_clouds(place):
            place = self.on_clouds.wished(place)
            self.on_clouds.use(place).create_container(container)
        else:
            self._at(place).create_container(container)
        return place

    def _at(self, service: str) -> KeyValueStore:
        """The store of this device, or the one in a service, which all devices use from now on. Raises
        UsageError."""
        if service == ON_DEVICE:
            return self.open()
        if not is_service(service):
            raise UsageError(
                f"metadata cannot be kept at {service!r}",
                "",
                "It is device, log, clouds, or the URL of an etcd or a ZooKeeper, as etcd://db1,db2,db3",
            )
        store = self.shared.at(service)
        if service not in self.shared.services.urls():
            self.shared.services.add(service)
        return store

    def migrate(self, container: str, place: str, step: Callable[[str, int, int], None]) -> Moved:
        """Move a container to the store of this device, ON_DEVICE, to the log, IN_LOG, to the clouds (see
        `CloudPlace.wished`), or to the store in a service, by its URL, or go on with a move that was cut
        short. Brings what was written late to a container that has left the log, also to where it is already.

        See `hybrisfs.kv.migrate`. Raises UsageError when it is there already, there is no room, or keys have
        several values, NoSuchContainerError, and HybrisError when a service does not answer, or another call
        moves it.
        """
        check_container(container)
        self._authority.require_writer()
        with self._moving(container):
            if place == IN_LOG:
                target: Store = self._in_log
            elif is_on_clouds(place):
                target = self.on_clouds.use(self.on_clouds.wished(place))
            else:
                target = self._at(place)
            others = [store for store in self._stores() if store is not target]
            late = self._in_log.moves.rejoin(container)
            using = _holding(others, container)
            if _holding([target], container) is not None:
                if using is not None:
                    raise ContainerExistsError(container)
                finished = [
                    done for store in others if (done := finish(container, store, target)) is not None
                ]
                if finished or (late and target is self._in_log):
                    return Moved(0, [key for done in finished for key in done.beside])
                for store in others:  # a move to another place was not brought to its end
                    give_up(container, store)
                raise UsageError(f"the container {container!r} is there already")
            beside: list[str] = []
            if using is not None:
                for store in (target, *others):
                    done = finish(container, store, using)
                    beside += done.beside if done is not None else ()
            source = using or next((one for one in others if left_behind(container, one)), None)
            if source is None:
                self._require_rest(container)
                raise NoSuchContainerError(container, self._names())
            moved = migrate(container, source, target, step)
            return moved._replace(beside=[*beside, *moved.beside])

    def delete_container(self, container: str) -> None:
        """Remove a container that holds no keys. Raises NoSuchContainerError and ContainerInUseError."""
        store = self.of(container)
        with suppress(HybrisError):  # a service that is away may have what an earlier move has left
            for other in self._stores():
                if other is not store:
                    finish(container, other, store)
        store.delete_container(container)
        self._in_log.moves.settle(container)

    @contextmanager
    def _moving(self, container: str) -> Iterator[None]:
        with self._lock:
            if container in self._under_way:
                raise ContainerMovingError(container)
            self._under_way.add(container)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(container)

    def _stores(self) -> Iterator[Store]:
        """All stores. Raises HybrisError when one cannot be opened."""
        device = self.existing()
        if device is not None:
            yield device
        yield self._in_log
        for _, store in chain(self.on_clouds.all(), self.shared.all()):
            if isinstance(store, HybrisError):
                raise store
            yield store

    def _names(self) -> set[str]:
        return {name for place in self.containers() for name in place.containers}

    def _require_rest(self, container: str) -> None:
        """Raise ContainerMovingError while a container is on its way from one store to another."""
        if any(left_behind(container, store) for store in self._stores()):
            raise ContainerMovingError(container)

    def containers(self) -> list[Place]:
        """All containers, by where their metadata are: first those of this device."""
        device = self.existing()
        found = [Place(ON_DEVICE, list(device.containers()) if device is not None else [], "")]
        if in_log := list(self._in_log.containers()):
            found.append(Place(IN_LOG, in_log, ""))
        for url, one in chain(self.on_clouds.all(), self.shared.all()):
            try:
                if isinstance(one, HybrisError):
                    raise one
                found.append(Place(url, list(one.containers()), ""))
            except (HybrisError, CloudsUnavailable) as error:
                found.append(Place(url, [], str(error).splitlines()[0]))
        return found

    def only_here(self) -> list[str]:
        """The containers whose keys only this device knows, those on their way to another place included.
        Raises HybrisError when its store cannot be opened."""
        device = self.existing()
        names = [] if device is None else device.metadata.containers()
        return sorted({container_of(name) for name in names if is_usable(name) or is_leaving(name)})

    def session(self, seen: str | None, patience: float) -> str:
        """A session token, see `LogStore`: what this device has seen, and all of *seen*, for which it waits
        so many seconds. Raises UsageError, and HybrisError when it has not seen that in time."""
        if seen is not None:
            self._in_log.catch_up(seen, patience)
        return self._in_log.session()

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        """The keys that have several values, and how many: machines have written them without knowing of each
        other."""
        return self._in_log.conflicts()

    def moved(self) -> Sequence[MovedContainer]:
        """The containers that have left the log, and that a person should look at."""
        return self._in_log.moved()

    def forget_service(self, url: str) -> None:
        """Use a service no longer, on all devices; what is in it stays there. Raises UsageError."""
        self.shared.forget(url)

    def menders(self, *, used: bool = True) -> Iterator[tuple[KeyValueStore, ValueMender]]:
        """The stores that this device has used, or all, and what looks after the values of each. Raises
        HybrisError when one cannot be opened, after those that can."""
        trouble: HybrisError | None = None
        device = self.existing()
        if device is not None:
            yield device, ValueMender(device, self._upkeep)
        for _, store in self.shared.all(used=used):
            if isinstance(store, HybrisError):
                trouble = trouble or store
            else:
                yield store, ValueMender(store, self._upkeep)
        if trouble is not None:
            raise trouble

    def cloud_menders(self) -> Iterator[CloudMender]:
        """What looks after the values of the containers on the clouds."""
        for _, store in self.on_clouds.all():
            if isinstance(store, CloudStore):
                yield CloudMender(store)

    # -- the store of this device ----------------------------------------------------------------

    def existing(self) -> DeviceStore | None:
        """The store; None when none was ever made. Raises HybrisError when it cannot be opened."""
        if not self.exists:
            return None
        try:
            return self.open()
        except (OSError, sqlite3.Error) as error:
            raise DamagedError(f"{self._path} cannot be opened", str(error), DAMAGE_ADVICE) from error

    def held(self, cloud: int, unknown: int = 1) -> int:
        """How many values a cloud should hold; so many of each shared store of which that is *unknown*, and 1
        of the device's. Does not wait."""
        store = self._store
        here = store.metadata.held(cloud) if store is not None else int(self.exists)
        opened = [one.metadata.held(cloud) for one in self.shared.opened()]
        closed = max(0, len(self.shared.urls()) - len(opened))
        return here + sum(unknown if one is None else one for one in opened) + unknown * closed

    def refuses_deletion(self, cloud: int) -> bool:
        """Whether a cloud has lately refused to let this device delete anything."""
        return self._upkeep.refused_deletion(cloud) is not None

    def facts(self) -> ValueFacts:
        """What `status` tells. Asks no cloud, and no service."""
        owing: dict[int, int] = {}
        for one in self.shared.opened():
            owing |= one.metadata.owing()
        store = self._store
        if store is None:
            return ValueFacts(0, owing)
        return ValueFacts(ValueMender(store, self._upkeep).unreadable(), {**owing, **store.metadata.owing()})

    def open(self) -> DeviceStore:
        """The store, made if there is none yet. Raises HybrisError or OSError."""
        with self._lock:
            if self._closed:
                raise HybrisError("the volume is being closed")
            if self._store is None:
                if not self._path.exists():
                    MetadataDatabase.create(self._path, new_store_id(self._key))
                    sync_directory(self._path.parent, self._environment)
                self._store = DeviceStore(
                    self._path,
                    self._values,
                    self._key,
                    self._redundancy,
                    environment=self._environment,
                    authority=self._authority,
                )
            return self._store

    def orphans(self, trusted: Collection[int]) -> Orphans:
        """What looks for values that nothing names on the clouds that are *trusted*. See `existing`."""
        from hybrisfs.kv.rebuild import Orphans

        return Orphans(self.existing(), self._key, self._upkeep, trusted)

    def rebuild(self) -> tuple[Path, RebuiltMetadata]:
        """Set damaged metadata aside, and make new ones of what can be read of them.

        Returns where the former ones are and what was taken over. Raises UsageError when nothing is wrong
        with them. When it is interrupted, run it again; what is set aside stays.
        """
        from hybrisfs.kv.rebuild import rebuild

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
            fresh = self._path.with_name(f"{_FILE}.rebuilt")
            for file in self._path.parent.glob(f"{fresh.name}*"):
                file.unlink()
            rebuilt = rebuild(aside / _FILE, fresh, new_store_id(self._key), self._environment)
            for file in self._files()[1:]:
                file.unlink()  # they would be taken for the log of the new database
            fresh.rename(self._path)
            sync_directory(self._path.parent, self._environment)
        return aside, rebuilt

    def _files(self) -> list[Path]:
        """The database, and SQLite's files beside it."""
        beside = [self._path.with_name(_FILE + suffix) for suffix in ("-wal", "-shm")]
        return [self._path, *(one for one in beside if one.exists())]

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            self._closed = True
            if self._store is not None:
                self._store.close()
        self.shared.close()
        self.on_clouds.close()


def _holding(stores: Iterable[Store], name: str) -> Store | None:
    """The first of the stores that has a container of that name."""
    return next((store for store in stores if name in store.containers()), None)


def _is_sound(store: KeyValueStore) -> bool:
    if store.metadata.failed or store.metadata.problems():
        return False
    try:
        return all(found.entry is not None for found in store.metadata.values())
    except sqlite3.Error:
        return False
