"""Histories of programs that use one container through the daemons of one machine, or of two.

Whatever place has its metadata: while a cloud lies, daemons are killed and stand still, and sessions end,
what programs have seen is linearizable; in the log it is causal, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
import urllib3
from kazoo.client import KazooClient

from hybrisfs.api.key_value import (
    Found,
    KeyNeed,
    KvContainersRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvListRequest,
    KvPutRequest,
    KvTputRequest,
    Need,
    Write,
)
from hybrisfs.api.request import Request
from hybrisfs.client import Client, NotRunningError
from hybrisfs.errors import ConditionError, DaemonError, HybrisError
from hybrisfs.home import Home
from hybrisfs.kv.containers import Key, KeyFacts, Versioned
from hybrisfs.kv.errors import ConditionNotMetError, NoSuchKeyError
from hybrisfs.kv.record import Condition, Timestamp
from hybrisfs.kv.service import OutcomeUnknownError
from tests.kv.etcd_servers import EtcdCluster, etcd_cluster
from tests.kv.linearizability import is_linearizable
from tests.kv.rig import CONTAINER
from tests.kv.services import SERVICES, Servers, service_cluster
from tests.kv.test_histories import Recorder
from tests.kv.zookeeper_servers import ZookeeperCluster, zookeeper_cluster
from tests.system.clouds import objects
from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import pair

PATIENCE = 180.0  # seconds; whatever takes longer hangs
CLIENTS = 6
OPERATIONS = 12  # of each client
LAST = 1000

A = TypeVar("A")


class Program:
    """One program: it uses the container through the daemon of a device. See `ContainerStore`.

    Raises OutcomeUnknownError when the daemon dies, or says that it cannot do what it was asked.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self._home = Home.below(device.home)
        self._volume = device.volume
        self._value = folder / "value"
        self._value.touch()
        self.troubles: list[str] = []
        """Why it has not heard what became of operations."""

    def _unknown(self, error: HybrisError) -> OutcomeUnknownError:
        self.troubles.append(str(error))
        return OutcomeUnknownError(str(error))

    def _ask(self, request: Request[A]) -> A:
        with _reached(self._home) as client:
            try:
                return client.call(request)
            except DaemonError as error:
                raise OutcomeUnknownError(str(error)) from error

    def get(self, container: str, key: str, *, max_age: float | None = None) -> Versioned:
        assert max_age is None
        try:
            found = self._ask(KvGetRequest(self._volume, container, key, str(self._value)))
        except HybrisError as error:
            if error.reported == NoSuchKeyError.kind:
                raise NoSuchKeyError(container, key) from error
            raise self._unknown(error) from error
        return Versioned(self._value.read_bytes(), _facts(key, found))

    def put(self, container: str, key: str, value: bytes, condition: Condition | None = None) -> Timestamp:
        self._value.write_bytes(value)
        need = None
        if condition is not None:
            need = Need(condition.version, None if condition.tag is None else condition.tag.tag)
        try:
            stored = self._ask(KvPutRequest(self._volume, container, key, str(self._value), need))
        except ConditionError as error:
            assert condition is not None
            raise ConditionNotMetError(key, condition, None) from error
        except HybrisError as error:
            raise self._unknown(error) from error
        return Timestamp.from_tag(stored.tag)

    def delete(self, container: str, key: str) -> object | None:
        try:
            return self._ask(KvDeleteRequest(self._volume, container, key)).existed or None
        except HybrisError as error:
            raise self._unknown(error) from error

    def tput(self, values: Mapping[Key, bytes | None]) -> object:
        writes = []
        for number, (name, value) in enumerate(values.items()):
            path = self._value.with_name(f"value-{number}")
            path.write_bytes(value or b"")
            writes.append(Write(name.container, name.key, None if value is None else str(path)))
        try:
            return self._ask(KvTputRequest(self._volume, writes, list[KeyNeed]()))
        except HybrisError as error:
            raise self._unknown(error) from error

    def list(self, container: str) -> Sequence[KeyFacts]:
        found: list[KeyFacts] = []
        with _reached(self._home) as client:
            try:
                client.call(
                    KvListRequest(self._volume, container),
                    lambda part: found.extend(
                        KeyFacts(one.key, one.size, Timestamp.from_tag(one.tag), 0, b"") for one in part.keys
                    ),
                )
            except HybrisError as error:
                raise self._unknown(error) from error
        return found


def _facts(key: str, found: Found) -> KeyFacts:
    return KeyFacts(key, found.size, Timestamp.from_tag(found.tag), 0, b"")


@contextmanager
def _reached(home: Home) -> Iterator[Client]:
    """A conversation with the daemon, once it runs."""

    def connect() -> Client | None:
        with suppress(NotRunningError, DaemonError):
            return Client.connect(home, start=False)
        return None

    client = until(connect, "the daemon to run", PATIENCE)
    assert client is not None
    with client:
        yield client


@contextmanager
def lying(cloud: Path, seed: int) -> Iterator[None]:
    """Within the block a cloud changes, loses and mixes up the values that it has."""
    over, random = threading.Event(), Random(seed)

    def lie() -> None:
        before: list[bytes] = []
        while not over.wait(0.01):
            found = [path for path in objects(cloud) if path.relative_to(cloud).parts[0] in ("kv", "atomic")]
            if not found:
                continue
            path = random.choice(found)
            with suppress(FileNotFoundError):
                before.append(path.read_bytes())
                match random.randrange(4):
                    case 0:
                        path.unlink()
                    case 1:
                        path.write_bytes(random.randbytes(len(before[-1])))
                    case 2:
                        path.write_bytes(random.choice(before))
                    case _:
                        path.write_bytes(before[-1][:-1])

    thread = threading.Thread(target=lie)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def live(programs: Sequence[Program], seed: int, trouble: Callable[[], object]) -> None:
    """Have programs work at the same time, and *trouble* come when each has done half of it; check what they
    have seen."""
    clock, values = itertools.count(), itertools.count(1)
    recorders = [Recorder(program, clock=clock, values=values) for program in programs]
    half = threading.Barrier(len(recorders) + 1)

    def work(number: int) -> None:
        random = Random(f"{seed}/{number}")
        for done in range(OPERATIONS):
            if done == OPERATIONS // 2:
                half.wait(PATIENCE)
            recorders[number].run(random)

    with ThreadPoolExecutor(len(recorders)) as pool:
        working = [pool.submit(work, number) for number in range(len(recorders))]
        half.wait(PATIENCE)
        trouble()
        for one in working:
            one.result(PATIENCE)
    history = [one for recorder in recorders for one in recorder.history]
    told = sum(one.returned is not None for one in history)
    troubles = Counter(one for program in programs for one in program.troubles)
    assert told > len(programs) * OPERATIONS // 2, troubles
    assert is_linearizable(history), sorted(history, key=lambda one: one.called)


def programs_of(devices: Sequence[Device], folder: Path) -> list[Program]:
    made = []
    for number in range(CLIENTS):
        (own := folder / f"program-{number}").mkdir()
        made.append(Program(devices[number % len(devices)], own))
    return made


def restart(device: Device) -> None:
    device.kill()
    device.run("status")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


def two_machines(make_device: MakeDevice, place: str, clouds: int = 3) -> tuple[Device, Device]:
    """Both have the container, with its metadata in that place."""
    one, other = make_device("one").create(clouds), make_device("other")
    pair(one, other, "other")
    one.run("kv", "create", one.volume, CONTAINER, "--metadata", place)

    def has_it() -> bool:
        with _reached(Home.below(other.home)) as client:
            return CONTAINER in client.call(KvContainersRequest(other.volume)).containers

    until(has_it, "the container to be there", PATIENCE)
    return one, other


def test_one_machine_whose_daemon_is_killed(make_device: MakeDevice, tmp_path: Path, seed: int) -> None:
    device = make_device().create(3)
    device.run("kv", "create", device.volume, CONTAINER, "--metadata", "device")
    with lying(device.clouds[2], seed):
        live(programs_of([device], tmp_path), seed, lambda: restart(device))


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with service_cluster(request.param, tmp_path_factory.mktemp(request.param), 3) as servers:
        yield servers


def test_two_machines_whose_daemons_are_killed(
    make_device: MakeDevice, tmp_path: Path, service: Servers, seed: int
) -> None:
    devices = two_machines(make_device, service.url)

    def trouble() -> None:
        leader = service.leader
        leader.kill()
        for device in devices:
            restart(device)
        leader.start()
        leader.wait_until_ready()

    with lying(devices[0].clouds[2], seed):
        live(programs_of(devices, tmp_path), seed, trouble)


@pytest.mark.parametrize(("place", "clouds"), [("clouds", 4), ("clouds:pasis", 5)])
def test_two_machines_with_all_of_it_on_the_clouds(
    make_device: MakeDevice, tmp_path: Path, place: str, clouds: int, seed: int
) -> None:
    """There is no server. One cloud lies, later another one is gone for a while."""
    devices = two_machines(make_device, place, clouds)
    programs = programs_of(devices, tmp_path)
    away = devices[0].clouds[1]

    def trouble() -> None:
        for device in devices:
            restart(device)

    with lying(devices[0].clouds[2], seed):
        live(programs, seed, trouble)
    (hidden := away.with_name("hidden")).parent.mkdir(exist_ok=True)
    away.rename(hidden)
    programs[0].put(CONTAINER, "without", b"it")
    assert programs[1].get(CONTAINER, "without").value == b"it"
    hidden.rename(away)
    assert "without" in [one.key for one in programs[1].list(CONTAINER)]


def test_a_machine_sleeps_until_its_session_has_ended(
    make_device: MakeDevice, tmp_path: Path, etcd: EtcdCluster, seed: int
) -> None:
    """What it had begun must fail then: others delete what it has left behind."""
    devices = two_machines(make_device, f"{etcd.url}/asleep")
    sleeping, other = devices

    def trouble() -> None:
        sleeping.freeze()
        end_sessions(etcd)
        restart(other)
        for pid in sleeping.daemon_pids():
            os.kill(pid, signal.SIGCONT)

    with lying(sleeping.clouds[2], seed):
        live(programs_of(devices, tmp_path), seed, trouble)


def test_a_machine_sleeps_until_its_session_with_a_zookeeper_has_ended(
    make_device: MakeDevice, tmp_path: Path, seed: int
) -> None:
    """The same, where the servers notice by themselves that it is silent."""
    with zookeeper_cluster(tmp_path / "zookeeper", 3, ["maxSessionTimeout=2000"]) as servers:
        devices = two_machines(make_device, servers.url)
        sleeping, other = devices

        def trouble() -> None:
            sleeping.freeze()
            restart(other)
            # The one of *other* is new: what was there before is of a daemon that is gone, or asleep.
            until(lambda: len(announced(servers)) <= 1, "the session to end", PATIENCE)
            for pid in sleeping.daemon_pids():
                os.kill(pid, signal.SIGCONT)

        with lying(sleeping.clouds[2], seed):
            live(programs_of(devices, tmp_path), seed, trouble)


def announced(servers: ZookeeperCluster) -> Sequence[str]:
    """The machines that are at work, as a ZooKeeper has it."""
    client = KazooClient(servers.url.removeprefix("zookeeper://"))
    client.start(PATIENCE)
    try:
        (volume,) = client.get_children("/hybrisfs")
        names: Sequence[str] = client.get_children(f"/hybrisfs/{volume}/l")
        return names
    finally:
        client.stop()
        client.close()


def end_sessions(etcd: EtcdCluster) -> None:
    """End the leases of all machines."""
    pool, node = urllib3.PoolManager(), f"http://127.0.0.1:{etcd.nodes[0].port}"
    leases = pool.request("POST", f"{node}/v3/lease/leases", json={}).json().get("leases", [])
    assert leases
    for lease in leases:
        assert pool.request("POST", f"{node}/v3/lease/revoke", json={"ID": lease["ID"]}).status == 200


def test_in_the_log_nobody_goes_back_and_nothing_acknowledged_is_lost(
    make_device: MakeDevice, tmp_path: Path, seed: int
) -> None:
    """Each program counts in a key of its own, and watches the counter of one on the other machine."""
    devices = two_machines(make_device, "log")
    programs = programs_of(devices, tmp_path)
    half = threading.Barrier(CLIENTS + 1)

    def work(number: int) -> None:
        program, seen = programs[number], 0
        for count in range(1, OPERATIONS + 1):
            if count == OPERATIONS // 2:
                half.wait(PATIENCE)
            with suppress(OutcomeUnknownError):
                program.put(CONTAINER, f"{number}", b"%d" % count)
            with suppress(NoSuchKeyError, OutcomeUnknownError):
                found = int(program.get(CONTAINER, f"{number ^ 1}").value)
                assert found >= seen
                seen = found
        program.put(CONTAINER, f"{number}", b"%d" % LAST)

    with ThreadPoolExecutor(CLIENTS) as pool:
        working = [pool.submit(work, number) for number in range(CLIENTS)]
        half.wait(PATIENCE)
        for device in devices:
            restart(device)
        for one in working:
            one.result(PATIENCE)
    last = {f"{number}": b"%d" % LAST for number in range(CLIENTS)}
    for program in programs[:2]:
        until(
            lambda: {key: program.get(CONTAINER, key).value for key in last} == last,  # noqa: B023
            "all last values to arrive",
            PATIENCE,
        )
