"""The stores of the containers on the clouds: one for each set of clouds that the log of the volume names."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_place import CloudPlace, is_on_clouds
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import Authority
from hybrisfs.kv.shared import Owner, Services
from hybrisfs.quorums.runner import Runner

__all__ = ["CloudStores"]


class CloudStores:
    """Opens a store when it is first asked for. Thread-safe."""

    def __init__(self, engine: Engine, owner: Owner, services: Services, authority: Authority) -> None:
        """*services* has the places, see `CloudPlace`. *authority*: see `CloudStore`."""
        self._engine = engine
        self._runner = Runner(engine.clouds, engine.environment)
        self._owner = owner
        self._services = services
        self._authority = authority
        self._lock = threading.Lock()
        self._stores: dict[str, CloudStore] = {}
        self._closed = False

    def urls(self) -> list[str]:
        """The places that the volume uses."""
        return [url for url in self._services.urls() if is_on_clouds(url)]

    def wished(self, wish: str) -> str:
        """The place that a person means, with the clouds of now. Raises UsageError."""
        return CloudPlace.wished(wish, self._engine.in_use, self._engine.f).url

    def at(self, url: str) -> CloudStore:
        """The store at a place. Raises HybrisError."""
        place = CloudPlace.parse(url)
        with self._lock:
            if self._closed:
                raise HybrisError("the volume is being closed")
            if url not in self._stores:
                self._stores[url] = CloudStore(
                    place, self._runner, self._owner.names, self._owner.epochs, self._authority
                )
            return self._stores[url]

    def use(self, url: str) -> CloudStore:
        """The store at a place, which the volume uses from now on. Raises HybrisError."""
        store = self.at(url)
        if url not in self._services.urls():
            self._services.add(url)
        return store

    def all(self) -> Iterator[tuple[str, CloudStore | HybrisError]]:
        """All stores with their places, or why they cannot be used."""
        for url in self.urls():
            try:
                yield url, self.at(url)
            except HybrisError as error:
                yield url, error

    def holding(self, container: str) -> CloudStore | None:
        """The store that has a container; None when none has it. Raises HybrisError when too few clouds
        answer, and none of the others has it."""
        trouble: Exception | None = None
        for _, store in self.all():
            try:
                if isinstance(store, HybrisError):
                    raise store
                if store.has_container(container):
                    return store
            except (HybrisError, CloudsUnavailable) as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return None

    def keeping(self, cloud: int) -> list[str]:
        """The containers that keep their keys on a cloud, or have left them there in a move that has not
        ended. Raises HybrisError and CloudsUnavailable."""
        found: set[str] = set()
        for _, store in self.all():
            if isinstance(store, CloudStore) and cloud in store.place.clouds:
                found |= {name.partition("/")[0] for name in store.names()}
        return sorted(found)

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            self._closed = True
            stores = list(self._stores.values())
        for store in stores:
            store.close()
