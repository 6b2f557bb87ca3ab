"""Histories of clients on two machines, with their metadata in an etcd of three nodes.

They are linearizable while a cloud lies, the leader is killed or stands still, and a machine loses its lease.
Nothing hangs, and what is left on honest clouds is what the metadata name.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from backends.store import Store
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.environment import Environment, Limits
from hybrisfs.kv.collect import CollectLimits
from hybrisfs.kv.etcd_client import EtcdClient, EtcdSettings
from hybrisfs.kv.etcd_metadata import EtcdMetadata
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.store import KeyValueLimits, KeyValueStore
from sync import EpochKey
from tests.adversary import READS, Fault, FaultyStore
from tests.dispersal.fakes import SEALER, TABLES, FakeStore
from tests.kv.etcd_servers import EtcdCluster, etcd_cluster
from tests.kv.linearizability import is_linearizable
from tests.kv.rig import CONTAINER, KEY, new_database
from tests.kv.test_histories import TIMING, Recorder
from tests.kv.test_seal import Epochs

PATIENCE = 120.0  # seconds; whatever takes longer hangs
CLIENTS = 3  # on each machine
OPERATIONS = 12  # of each client


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


class Machines:
    """Two machines with stores over the same clouds, one of which lies, and the same etcd."""

    def __init__(self, folder: Path, url: str, ends: ExitStack) -> None:
        self.clouds = [FakeStore(number) for number in range(3)]
        self._root = f"{uuid4().hex}/".encode()
        self.stores = [self._open(folder, url, device, ends) for device in (1, 2)]
        self.stores[0].create_container(CONTAINER)

    def _open(self, folder: Path, url: str, device: int, ends: ExitStack) -> KeyValueStore:
        liar = FaultyStore(self.clouds[2], device, [Fault("corrupt", 0.5, READS)])
        stores: list[Store] = [*self.clouds[:2], liar]
        engine = Engine(
            [Cloud(i, f"c{i}", one) for i, one in enumerate(stores)], 1, SEALER, TABLES, timing=TIMING
        )
        own = folder / f"{device}"
        own.mkdir()
        metadata = EtcdMetadata(
            EtcdClient(EtcdSettings.parse(url), None, 5.0),
            self._root,
            DeviceMetadata(new_database(own)),
            bytes([device]) * 16,
        )
        limits = KeyValueLimits(cache_bytes=2000, collect_seconds=0.01)
        store = KeyValueStore(
            metadata,
            engine.values,
            ValueSealer(KEY, metadata.store_id, Epochs(EpochKey(b"1st.", b"1" * 32))),
            Redundancy(1, 1),
            environment=Environment(limits=Limits(limits, CollectLimits(repeat_after=()))),
        )
        ends.callback(store.close)
        ends.callback(engine.close)
        return store

    def run(self, seed: int, trouble: Callable[[], object]) -> None:
        """Run clients on both, and *trouble* meanwhile, and check what they have seen."""
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
def machines(tmp_path: Path, etcd: EtcdCluster) -> Iterator[Machines]:
    with ExitStack() as ends:
        yield Machines(tmp_path, etcd.url, ends)


@pytest.mark.parametrize("seed", range(3))
def test_in_quiet_times(machines: Machines, seed: int) -> None:
    machines.run(seed, lambda: None)
    machines.assert_nothing_is_left()


@pytest.mark.parametrize("seed", range(2))
def test_the_leader_is_killed(machines: Machines, etcd: EtcdCluster, seed: int) -> None:
    leader = etcd.leader

    machines.run(100 + seed, leader.kill)
    leader.start()
    leader.wait_until_ready()
    machines.assert_nothing_is_left()


def test_the_leader_stands_still_and_goes_on(machines: Machines, etcd: EtcdCluster) -> None:
    """A node that is cut off for a while: its connections stay, and nothing comes through them."""
    leader = etcd.leader

    machines.run(200, leader.pause)
    leader.resume()
    leader.wait_until_ready()
    machines.assert_nothing_is_left()


def test_all_nodes_start_again(machines: Machines, etcd: EtcdCluster) -> None:
    def restart() -> None:
        for node in etcd.nodes:
            node.kill()
        for node in etcd.nodes:
            node.start()
        for node in etcd.nodes:
            node.wait_until_ready()

    machines.run(300, restart)
    machines.assert_nothing_is_left()


def test_a_machine_loses_its_lease(machines: Machines) -> None:
    """The other one deletes what it takes for left behind; no value that a key names is lost."""

    def expire() -> None:
        sleeping, other = (store.metadata for store in machines.stores)
        assert isinstance(sleeping, EtcdMetadata)
        assert isinstance(other, EtcdMetadata)
        lease = sleeping.writes._lease
        assert lease is not None
        sleeping._client.end_lease(lease)
        other.writes._adopted_at = float("-inf")
        machines.stores[1].collector.collect()

    machines.run(400, expire)


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
