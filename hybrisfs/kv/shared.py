"""The key-value stores that all devices of a volume use: their metadata are in a service.

The log of the volume says which services there are, so that every device knows. Passwords are each device's
own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from blake3 import blake3
from msgspec import Struct

from backends.credentials import Credentials, CredentialStore, Secrets
from backends.errors import AuthError
from hybrisfs.api.volumes import Secret, SecretsOfPlace, TriedPlace
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import SYSTEM, Environment, sync_directory
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_place import is_on_clouds
from hybrisfs.kv.containers import Authority
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.errors import NoSuchContainerError
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import STORE_ID_SIZE, ValueSealer
from hybrisfs.kv.service import MetadataService
from hybrisfs.kv.service_url import Access, ServiceUrl, servers_of
from hybrisfs.kv.store import KeyValueStore
from sync.seal import SealKeys

__all__ = [
    "Owner",
    "ServiceLimits",
    "Services",
    "SharedStores",
    "connect",
    "describe_secrets",
    "log_in",
]

log = logging.getLogger(__name__)


class ServiceLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    patience: float = 10.0
    """Seconds that a service has to answer: also one that is just electing another leader."""


class Services(Protocol):
    """Which services the volume uses, as its log says."""

    def urls(self) -> Sequence[str]:
        """Their URLs."""

    def add(self, url: str) -> None:
        """Use one more. Raises HybrisError when this device may not say so."""

    def forget(self, url: str) -> None:
        """Use one no longer. Raises HybrisError when this device may not say so."""


class Owner(NamedTuple):
    """Whose values a device stores, and with which keys."""

    volume: bytes
    device: bytes
    names: bytes
    """The key (32 bytes) that names and proves objects, the same for ever."""
    epochs: SealKeys
    """The keys that seal values."""


def connect(url: str, credentials: Credentials, environment: Environment, root: str = "") -> MetadataService:
    """The client for a service, all keys of which begin with *root*. Asks nothing yet. Raises UsageError, and
    HybrisError when the secrets cannot be read."""
    place = ServiceUrl.parse(url)
    try:
        secrets = credentials.lookup(servers_of(url))
    except AuthError as error:
        raise HybrisError(f"{url} cannot be used", error.reason, error.advice) from error
    authority, certificate = secrets.get("ca"), secrets.get("cert")
    access = Access(
        secrets.get("password"),
        None if authority is None else Path(authority),
        None if certificate is None else Path(certificate),
    )
    patience = environment.limits.of(ServiceLimits).patience
    # With the clients comes much that few volumes need.
    if place.service == "etcd":
        from hybrisfs.kv.etcd_client import EtcdClient

        return EtcdClient(place, access, patience, environment, root)
    from hybrisfs.kv.zookeeper_client import ZookeeperClient

    return ZookeeperClient(place, access, patience, environment, root)


class SharedStores:
    """Opens a store when it is first asked for. Thread-safe."""

    def __init__(
        self,
        state: Path,
        engine: Engine,
        owner: Owner,
        services: Services,
        credentials: Credentials,
        redundancy: Redundancy,
        authority: Authority,
    ) -> None:
        """*state* is the folder of the volume's state. *authority*: see `KeyValueStore`."""
        self._state = state
        self._values = engine.values
        self._environment = engine.environment
        self._owner = owner
        self._credentials = credentials
        self._redundancy = redundancy
        self._authority = authority
        self.services: Final = services
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._stores: dict[str, KeyValueStore] = {}
        self._homes: dict[str, str] = {}  # the URL by the name of a container, as it was last seen
        self._closed = False

    def at(self, url: str) -> KeyValueStore:
        """The store in the service at *url*. Raises HybrisError when that does not answer."""
        with self._lock:
            opening = self._opening.setdefault(url, threading.Lock())
        with opening:
            with self._lock:
                if self._closed:
                    raise HybrisError("the volume is being closed")
                store = self._stores.get(url)
            if store is None:
                store = self._open(url)
                with self._lock:
                    self._stores[url] = store
            return store

    def _open(self, url: str) -> KeyValueStore:
        from hybrisfs.kv.sealed_names import NameSealer, SealedService
        from hybrisfs.kv.service_metadata import ServiceMetadata, store_id_in

        owner, sealed = self._owner, ServiceUrl.parse(url).sealed
        # The other name keeps what is sealed apart from what machines have there as plain text.
        root = f"hybrisfs/{owner.volume.hex()}{'-sealed' if sealed else ''}/"
        client = connect(url, self._credentials, self._environment, root)
        path = self._database(url)
        if not path.exists():
            MetadataDatabase.create(path, bytes(STORE_ID_SIZE))
            sync_directory(path.parent, self._environment)
        debts = DeviceMetadata(path, self._environment)
        try:
            if sealed:
                sealer = NameSealer(owner.names, store_id_in(client), owner.epochs)
                client = SealedService(client, sealer, self._environment)
            metadata = ServiceMetadata(client, debts, owner.device, self._environment)
        except BaseException:
            debts.close()
            client.close()
            raise
        return KeyValueStore(
            metadata,
            self._values,
            ValueSealer(owner.names, metadata.store_id, owner.epochs),
            self._redundancy,
            environment=self._environment,
            authority=self._authority,
        )

    def _database(self, url: str) -> Path:
        return self._state / f"kv-{blake3(url.encode()).hexdigest()[:16]}.db"

    def urls(self) -> list[str]:
        """The URLs of the services that the volume uses."""
        return [url for url in self.services.urls() if not is_on_clouds(url)]

    def holding(self, container: str) -> KeyValueStore | None:
        """The store that has a container; None when none has it. Raises HybrisError when a service that may
        have it does not answer."""
        home = self._homes.get(container)
        urls = self.urls() if home is None or home not in self._stores else [home]
        trouble: HybrisError | None = None
        for url in urls:
            try:
                store = self.at(url)
                store.metadata.container(container)
            except NoSuchContainerError:
                if self._homes.pop(container, None) is not None:
                    return self.holding(container)
            except HybrisError as error:
                trouble = trouble or error
            else:
                self._homes[container] = url
                return store
        if trouble is not None:
            raise trouble
        return None

    def all(self, *, used: bool = False) -> Iterator[tuple[str, KeyValueStore | HybrisError]]:
        """All stores with their URLs, or why they cannot be used now; with *used* only those that a program
        on this device has used, for any member can name a service."""
        urls = [url for url in self.urls() if not used or self._database(url).exists()]
        with self._lock:
            gone = [url for url in self._stores if url not in urls]
            forgotten = [self._stores.pop(url) for url in gone]
        for store in forgotten:  # by another device
            store.close()
        for url in urls:
            try:
                yield url, self.at(url)
            except HybrisError as error:
                yield url, error

    def opened(self) -> list[KeyValueStore]:
        """Those that were asked for already."""
        with self._lock:
            return list(self._stores.values())

    def use(self, redundancy: Redundancy) -> None:
        """Store values like this from now on."""
        self._redundancy = redundancy
        for store in self.opened():
            store.uploader.redundancy = redundancy

    def forget(self, url: str) -> None:
        """Use a service no longer; what is in it stays there. Raises HybrisError."""
        self.services.forget(url)
        with self._lock:
            store = self._stores.pop(url, None)
        if store is not None:
            store.close()

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            self._closed = True
            stores = list(self._stores.values())
        for store in stores:
            store.close()


# -- passwords ------------------------------------------------------------------------------------------


def describe_secrets(url: str, store: CredentialStore) -> SecretsOfPlace:
    """What this device can be given for a service. Raises UsageError."""
    user = ServiceUrl.parse(url).user
    asked = [Secret("password", f"password of {user}", True)] if user else []
    return SecretsOfPlace(url, asked, bool(store.lookup(servers_of(url))))


def log_in(url: str, secrets: Mapping[str, str] | None, store: CredentialStore) -> TriedPlace:
    """Ask a service with these secrets, None: with those that there are, and keep them when it answers.
    Raises HybrisError."""
    client = connect(url, store if secrets is None else _Given(Secrets(secrets)), SYSTEM)
    with contextlib.closing(client):
        began = time.monotonic()
        client.check()
        seconds = time.monotonic() - began
    if secrets is not None:
        store.add(servers_of(url), secrets)
    return TriedPlace(url, {"get": seconds})


class _Given(NamedTuple):
    secrets: Secrets

    def lookup(self, url: str) -> Secrets:
        return self.secrets
