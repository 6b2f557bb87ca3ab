"""Histories of clients on two machines, with their metadata in a service of three nodes.

They are linearizable while a cloud lies, the leader is killed or stands still, and a machine is taken for
gone. Nothing hangs, and what is left on honest clouds is what the metadata name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from backends.store import Store
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.kv.collect import CollectLimits
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.service import Put, ServiceError
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.store import KeyValueLimits, KeyValueStore
from hybrisfs.kv.zookeeper_client import ZookeeperClient
from sync import EpochKey
from tests.adversary import READS, Fault, FaultyStore
from tests.backends.faulty_server import FaultyProxy
from tests.dispersal.fakes import SEALER, TABLES, FakeStore
from tests.kv.linearizability import is_linearizable
from tests.kv.rig import CONTAINER, KEY, new_database
from tests.kv.services import SERVICES, Servers, client_of, service_cluster
from tests.kv.test_histories import TIMING, Recorder
from tests.kv.test_seal import Epochs
from tests.kv.zookeeper_servers import ZookeeperCluster

PATIENCE = 120.0  # seconds; whatever takes longer hangs
CLIENTS = 3  # on each machine
OPERATIONS = 12  # of each client


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with service_cluster(request.param, tmp_path_factory.mktemp("service"), 3) as cluster:
        yield cluster


class Machines:
    """Two machines with stores over the same clouds, one of which lies, and the same service."""

    def __init__(
        self, folder: Path, urls: tuple[str, str], ends: ExitStack, repeat_after: tuple[int, ...] = ()
    ) -> None:
        """*urls*: how each reaches the service. *repeat_after*: seconds after which the objects of a write
        are deleted again."""
        self._collect_limits = CollectLimits(repeat_after=repeat_after)
        self.clouds = [FakeStore(number) for number in range(3)]
        self._root = f"{uuid4().hex}/"
        self.stores = [self._open(folder, url, device, ends) for device, url in enumerate(urls, 1)]
        self.stores[0].create_container(CONTAINER)

    def _open(self, folder: Path, url: str, device: int, ends: ExitStack) -> KeyValueStore:
        liar = FaultyStore(self.clouds[2], device, [Fault("corrupt", 0.5, READS)])
        stores: list[Store] = [*self.clouds[:2], liar]
        engine = Engine(
            [Cloud(i, f"c{i}", one) for i, one in enumerate(stores)],
            1,
            SEALER,
            TABLES,
            timing=TIMING,
            environment=SYSTEM,
        )
        own = folder / f"{device}"
        own.mkdir()
        metadata = ServiceMetadata(
            client_of(url, self._root, 5.0),
            DeviceMetadata(new_database(own), SYSTEM),
            bytes([device]) * 16,
            SYSTEM,
        )
        limits = KeyValueLimits(cache_bytes=2000, collect_seconds=0.01)
        store = KeyValueStore(
            metadata,
            engine.values,
            ValueSealer(KEY, metadata.store_id, Epochs(EpochKey(b"1st.", b"1" * 32))),
            Redundancy(1, 1),
            environment=Environment(limits=Limits(limits, self._collect_limits)),
        )
        ends.callback(store.close)
        ends.callback(engine.close)
        return store

    def run(self, seed: int, trouble: Callable[[], object]) -> None:
        """Run clients on both, with *trouble* in the middle, and check what they have seen."""
        clock, values = itertools.count(), itertools.count(1)
        recorders = [Recorder(store, clock=clock, values=values) for store in self.stores]
        half = threading.Barrier(2 * CLIENTS + 1)

        def client(number: int) -> None:
            random = Random(f"{seed}/{number}")
            for done in range(OPERATIONS):
                if done == OPERATIONS // 2:
                    half.wait(PATIENCE)
                recorders[number % 2].run(random)

        with ThreadPoolExecutor(2 * CLIENTS) as pool:
            clients = [pool.submit(client, number) for number in range(2 * CLIENTS)]
            half.wait(PATIENCE)
            trouble()
            for one in clients:
                one.result(PATIENCE)
        history = [one for recorder in recorders for one in recorder.history]
        assert len(history) > CLIENTS * OPERATIONS
        assert is_linearizable(history), sorted(history, key=lambda one: one.called)

    def assert_nothing_is_left(self) -> None:
        for _ in range(2):
            for store in self.stores:
                store.collector.collect()
        named = len(self.stores[0].list(CONTAINER))
        assert all(len(cloud.objects) <= named for cloud in self.clouds[:2])


@pytest.fixture
def machines(tmp_path: Path, service: Servers) -> Iterator[Machines]:
    with ExitStack() as ends:
        yield Machines(tmp_path, (service.url, service.url), ends)


def test_what_a_machine_has_written_every_other_one_reads(service: Servers) -> None:
    """Whichever server it asks."""
    scheme, root = service.url.partition("://")[0], f"{uuid4().hex}/"
    with ExitStack() as ends:
        clients = [
            ends.enter_context(closing(client_of(f"{scheme}://127.0.0.1:{node.port}", root)))
            for node in service.nodes
        ]
        for number in range(300):
            key = b"k/%016x/%d" % (number % 2, number)
            clients[number % 3].change([Put(b"n", b"%d" % number), Put(key, b"value")])
            for reader in (clients[(number + 1) % 3], clients[(number + 2) % 3]):
                (found, entry) = reader.get(b"n", key)
                assert found is not None
                assert entry is not None
                assert found.value == b"%d" % number


def test_a_deposed_leader_tells_nothing_old(service: Servers) -> None:
    """It stood still while the others chose another, and does not know when it is asked."""
    scheme, root, leader = service.url.partition("://")[0], f"{uuid4().hex}/", service.leader
    others = ",".join(f"127.0.0.1:{node.port}" for node in service.nodes if node is not leader)
    with (
        closing(client_of(f"{scheme}://{others}", root)) as near,
        closing(client_of(f"{scheme}://127.0.0.1:{leader.port}", root, 60.0)) as far,
        ThreadPoolExecutor(1) as pool,
    ):
        near.change([Put(b"n", b"1")])
        assert far.get(b"n")
        leader.pause()
        try:
            near.change([Put(b"n", b"2")])
            answer = pool.submit(far.get, b"n")
        finally:
            leader.resume()
        (found,) = answer.result(PATIENCE)
        assert found is not None
        assert found.value == b"2"
    leader.wait_until_ready()


@pytest.mark.parametrize("seed", range(3))
def test_in_quiet_times(machines: Machines, seed: int) -> None:
    machines.run(seed, lambda: None)
    machines.assert_nothing_is_left()


@pytest.mark.parametrize("seed", range(2))
def test_the_leader_is_killed(machines: Machines, service: Servers, seed: int) -> None:
    leader = service.leader

    machines.run(100 + seed, leader.kill)
    leader.start()
    leader.wait_until_ready()
    machines.assert_nothing_is_left()


def test_the_leader_stands_still_and_goes_on(machines: Machines, service: Servers) -> None:
    """A node that is cut off for a while: its connections stay, and nothing comes through them."""
    leader = service.leader

    machines.run(200, leader.pause)
    leader.resume()
    leader.wait_until_ready()
    machines.assert_nothing_is_left()


def test_all_nodes_start_again(machines: Machines, service: Servers) -> None:
    def restart() -> None:
        for node in service.nodes:
            node.kill()
        for node in service.nodes:
            node.start()
        for node in service.nodes:
            node.wait_until_ready()

    machines.run(300, restart)
    machines.assert_nothing_is_left()


def test_a_machine_is_taken_for_gone(machines: Machines) -> None:
    """The other one deletes what it takes for left behind; no value that a key names is lost."""

    def expire() -> None:
        sleeping, other = (store.metadata for store in machines.stores)
        assert isinstance(sleeping, ServiceMetadata)
        assert isinstance(other, ServiceMetadata)
        sleeping._client.withdraw()
        other.writes._adopted_at = float("-inf")
        machines.stores[1].collector.collect()

    machines.run(400, expire)


def test_a_machine_is_cut_off(tmp_path: Path, service: Servers) -> None:
    """Its connections stay, and nothing comes through them, until it has made others."""
    with ExitStack() as ends:
        proxies = [ends.enter_context(FaultyProxy(("127.0.0.1", node.port))) for node in service.nodes]
        scheme = service.url.partition("://")[0]
        far = f"{scheme}://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        machines = Machines(tmp_path, (service.url, far), ends)
        machines.stores[0].create_container("other")

        def cut_off() -> None:
            for proxy in proxies:
                proxy.fault, proxy.request_at_most, proxy.answer_at_most = "stall", 0, 0
            for number in range(20):
                machines.stores[0].put("other", f"{number}", b"value")
                machines.stores[0].delete("other", f"{number}")
            for proxy in proxies:
                proxy.heal()

        machines.run(500, cut_off)
        machines.assert_nothing_is_left()


@pytest.mark.parametrize("seed", range(2))
def test_sessions_expire(tmp_path: Path, service: Servers, seed: int) -> None:
    """That of each machine, and the other one takes it for gone: it deletes objects that are still on their
    way to the clouds, and has to delete these again."""
    if not isinstance(service, ZookeeperCluster):
        pytest.skip("it has no sessions")
    cluster = service

    def expire(machines: Machines) -> None:
        for store, other in (machines.stores, machines.stores[::-1]):
            metadata = store.metadata
            assert isinstance(metadata, ServiceMetadata)
            assert isinstance(metadata._client, ZookeeperClient)
            session = metadata._client._session._client.client_id
            if session is not None:
                cluster.expire(session)
            assert isinstance(other.metadata, ServiceMetadata)
            other.metadata.writes._adopted_at = float("-inf")
            with suppress(ServiceError):
                other.collector.collect()

    with ExitStack() as ends:
        machines = Machines(tmp_path, (service.url, service.url), ends, repeat_after=(0,))
        machines.run(600 + seed, partial(expire, machines))
        machines.assert_nothing_is_left()


def test_weaker_reads_count_what_other_machines_have_written(machines: Machines) -> None:
    here, there = machines.stores
    first = here.put(CONTAINER, "key", b"0")
    there.put(CONTAINER, "key", b"1")
    for _ in range(2):  # what a read finds is not kept in place of what it was asked for
        assert here.get(CONTAINER, "key", max_versions=1).value == b"0"
    assert here.get(CONTAINER, "key", at_least=first).value == b"0"
    there.put(CONTAINER, "key", b"2")
    assert here.get(CONTAINER, "key", max_versions=1).value == b"2"
    assert here.get(CONTAINER, "key").value == b"2"
