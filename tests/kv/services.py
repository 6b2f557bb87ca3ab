"""The services that can keep metadata, as tests use them: real servers, and clients that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.kv.etcd_client import EtcdClient
from hybrisfs.kv.sealed_names import NameSealer, SealedService
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    OutcomeUnknownError,
    Put,
    Reading,
    Remove,
)
from hybrisfs.kv.service_metadata import store_id_in
from hybrisfs.kv.service_url import NO_ACCESS, ServiceUrl
from hybrisfs.kv.zookeeper_client import ZookeeperClient
from sync import OneKey
from tests.kv.etcd_servers import etcd_cluster
from tests.kv.zookeeper_servers import zookeeper_cluster

__all__ = [
    "FORMS",
    "SERVICES",
    "Forgetful",
    "Node",
    "Passing",
    "Servers",
    "client_of",
    "in_form",
    "sealer_of",
    "service_cluster",
]

SERVICES: Final = ("etcd", "zookeeper")
FORMS: Final = ("plain", "sealed")
"""How names are in a service."""


class Node(Protocol):
    """A server."""

    @property
    def port(self) -> int: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def wait_until_ready(self) -> None: ...


class Servers(Protocol):
    """The servers of a service."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def url(self) -> str: ...
    @property
    def leader(self) -> Node: ...


@contextmanager
def service_cluster(service: str, folder: Path, size: int = 1) -> Iterator[Servers]:
    """Servers that are ready; they end with the context."""
    if service == "etcd":
        with etcd_cluster(folder, size) as etcd:
            yield etcd
    else:
        with zookeeper_cluster(folder, size) as zookeeper:
            yield zookeeper


def client_of(
    url: str, root: str, timeout: float = 10.0, environment: Environment = SYSTEM
) -> EtcdClient | ZookeeperClient:
    """A client of servers that ask for no password."""
    place = ServiceUrl.parse(url)
    kind = EtcdClient if place.service == "etcd" else ZookeeperClient
    return kind(place, NO_ACCESS, timeout, environment, root)


def in_form(form: str, client: MetadataService, environment: Environment = SYSTEM) -> MetadataService:
    """What a store uses whose names are in this form."""
    return client if form == "plain" else SealedService(client, sealer_of(client), environment)


def sealer_of(client: MetadataService) -> NameSealer:
    """Of the store that the service has."""
    return NameSealer(b"n" * 32, store_id_in(client), OneKey(b"e" * 32))


class Passing(MetadataService):
    """A client that passes everything on to another one."""

    def __init__(self, inner: MetadataService) -> None:
        super().__init__(SYSTEM)
        self.inner = inner

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        return self.inner.get(*keys)

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        return self.inner.scan(first, end, keys_only=keys_only)

    def groups(self, kind: bytes) -> Sequence[bytes]:
        return self.inner.groups(kind)

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        return self.inner.reading(first, end, size)

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        return self.inner.transact(compare, then, otherwise)

    def announce(self, key: bytes, seconds: int) -> None:
        self.inner.announce(key, seconds)

    def withdraw(self) -> None:
        self.inner.withdraw()

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> AbstractContextManager[object]:
        return self.inner.watch(key, revision, changed)

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()


class Forgetful(Passing):
    """A client whose answers to transactions get lost, as often as it is told."""

    lose = 0
    before: Callable[[], object] | None = None
    """Called once, before the first transaction of which the answer does not get lost."""

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        if not self.lose and self.before is not None:
            before, self.before = self.before, None
            before()
        answer = super().transact(compare, then, otherwise)
        if self.lose:
            self.lose -= 1
            raise OutcomeUnknownError("the service has not answered")
        return answer
