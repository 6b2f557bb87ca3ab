"""The client of ZooKeeper: passwords, certificates, limits, lists, connections and sessions that end."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.kv.metadata import Change, Garbage
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    OutcomeUnknownError,
    Put,
    Reading,
    Remove,
    ServiceError,
)
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_url import NO_ACCESS, ServiceUrl
from hybrisfs.kv.service_writes import WriteLostError
from hybrisfs.kv.shared import ServiceLimits, connect
from hybrisfs.kv.zookeeper_client import ZookeeperClient
from hybrisfs.kv.zookeeper_reads import _MultiRead
from tests.backends.faulty_server import Answer, AnsweringServer, FaultyProxy
from tests.backends.servers import FixedCredentials
from tests.kv.rig import new_database
from tests.kv.services import Passing
from tests.kv.zookeeper_servers import ZookeeperCluster, zookeeper_cluster

CONTAINER = b"%016x" % 7
ENTRIES = b"k/%b/" % CONTAINER, b"k/%b0" % CONTAINER


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperCluster]:
    with zookeeper_cluster(tmp_path_factory.mktemp("zookeeper")) as cluster:
        yield cluster


@pytest.fixture
def root() -> str:
    """What the keys of this test begin with."""
    return f"hybrisfs/{uuid4().hex}/"


@pytest.fixture
def client(zookeeper: ZookeeperCluster, root: str) -> Iterator[ZookeeperClient]:
    with contextlib.closing(client_of(zookeeper.url, root)) as client:
        yield client


@pytest.fixture
def raw(zookeeper: ZookeeperCluster) -> Iterator[KazooClient]:
    """A client that does as it likes."""
    raw = KazooClient(zookeeper.url.partition("://")[2])
    raw.start()
    yield raw
    raw.stop()
    raw.close()


def client_of(url: str, root: str, timeout: float = 10.0) -> ZookeeperClient:
    return ZookeeperClient(ServiceUrl.parse(url), NO_ACCESS, timeout, root=root, environment=SYSTEM)


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[MetadataService, int], ServiceMetadata]]:
    opened: list[ServiceMetadata] = []

    def open_for(client: MetadataService, device: int) -> ServiceMetadata:
        folder = tmp_path / f"{len(opened)}"
        folder.mkdir()
        debts = DeviceMetadata(new_database(folder), SYSTEM)
        opened.append(ServiceMetadata(client, debts, bytes([device]) * 16, SYSTEM))
        return opened[-1]

    yield open_for
    for store in opened:
        store.close()


def new_entry(store: ServiceMetadata) -> KeyMetadata:
    write = store.new_write()
    store.intend([Garbage(write, 1)])
    return KeyMetadata(0, write, 100, 129, 1, (0, 1), (b"c" * 16,))


def values(found: Sequence[KeyValue | None]) -> list[bytes | None]:
    return [None if one is None else one.value for one in found]


# -- who may ask ----------------------------------------------------------------------------------------


def test_a_user_has_a_password(zookeeper: ZookeeperCluster, root: str) -> None:
    url = zookeeper.url.replace("://", "://anna@") + f"/{uuid4().hex}"
    with contextlib.closing(
        connect(url, FixedCredentials({"password": "secret"}), root=root, environment=SYSTEM)
    ) as client:
        client.check()
        client.change([Put(b"s", b"value")])
        assert values(client.get(b"s")) == [b"value"]
        client.check()
    cases: list[tuple[str, dict[str, str]]] = [
        (url, {"password": "wrong"}),
        (url, {}),
        (url.replace("anna@", ""), {}),
    ]
    for wrong, secrets in cases:
        with contextlib.closing(
            connect(wrong, FixedCredentials(secrets), root=root, environment=SYSTEM)
        ) as client:
            with pytest.raises(ServiceError, match="does not let this machine in"):
                client.check()
            with pytest.raises(ServiceError, match="does not let this machine in"):
                client.get(b"s")
            with pytest.raises(ServiceError, match="does not let this machine in"):
                client.change([Put(b"s", b"other")])
            with pytest.raises(ServiceError, match="does not let this machine in"):
                client.announce(b"l/" + b"1" * 32, 60)
    # Another volume has another user, also where the first one has made what is above both.
    other = url.replace("anna@", "otto@")
    with contextlib.closing(
        connect(
            other, FixedCredentials({"password": "his"}), root=f"hybrisfs/{uuid4().hex}/", environment=SYSTEM
        )
    ) as client:
        client.change([Put(b"s", b"value")])


def test_servers_show_a_certificate(tmp_path: Path) -> None:
    for name in ("ours", "another"):
        names = ["-subj", "/CN=zookeeper", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt")]
        kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        subprocess.run(["openssl", *kind, *names, *files], check=True, capture_output=True)
        both = (tmp_path / f"{name}.key").read_text() + (tmp_path / f"{name}.crt").read_text()
        (tmp_path / f"{name}.pem").write_text(both)
    probe = socket.create_server(("127.0.0.1", 0))
    with probe as taken:
        port = taken.getsockname()[1]
    settings = [
        f"secureClientPort={port}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={tmp_path / 'ours.pem'}",
        "ssl.keyStore.type=PEM",
        f"ssl.trustStore.location={tmp_path / 'ours.crt'}",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=want",
    ]
    with zookeeper_cluster(tmp_path / "zookeeper", settings=settings):
        url = f"zookeepers://127.0.0.1:{port}"
        secrets = {"ca": str(tmp_path / "ours.crt"), "cert": str(tmp_path / "ours.pem")}
        with contextlib.closing(
            connect(url, FixedCredentials(secrets), root="a/", environment=SYSTEM)
        ) as client:
            client.change([Put(b"s", b"value")])
            assert values(client.get(b"s")) == [b"value"]
        hurried = Environment(limits=Limits(ServiceLimits(patience=2.0)))
        strange: list[dict[str, str]] = [{"ca": str(tmp_path / "another.crt")}, {}]
        for wrong in strange:
            with (
                contextlib.closing(connect(url, FixedCredentials(wrong), hurried)) as client,
                pytest.raises(ServiceError, match="certificate"),
            ):
                client.get(b"s")


# -- limits ---------------------------------------------------------------------------------------------


def test_what_is_too_large_is_refused_with_an_advice(client: ZookeeperClient) -> None:
    """ZooKeeper would only break the connection."""
    keys = [b"%b%d" % (ENTRIES[0], number) for number in range(200)]
    with pytest.raises(ServiceError, match="too large") as caught:
        client.transact((), [Put(key, bytes(6000)) for key in keys])
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert caught.value.advice
    assert client.transact((), [Put(key, bytes(4000)) for key in keys]).succeeded


def test_a_container_may_have_more_names_than_fit_into_an_answer(client: ZookeeperClient) -> None:
    count, size = 2400, 500  # 1.2 MB of names, of which ZooKeeper's own clients take 1 MiB
    keys = sorted(ENTRIES[0] + b"%04d" % number + b"k" * (size - 4) for number in range(count))
    for start in range(0, count, 600):
        client.transact((), [Put(key, b"%d" % start) for key in keys[start : start + 600]])
    reading = client.reading(*ENTRIES, 1000)
    assert [reading.catch_up() for _ in range(2)] == [False, True]
    assert [one.key for page in reading.pages() for one in page] == keys
    assert [one.key for one in client.scan(*ENTRIES, keys_only=True)] == keys
    # They go with their container, and nothing of it is left.
    assert client.transact((), [Remove(*ENTRIES)]).succeeded
    assert list(client.scan(*ENTRIES)) == []
    assert client.groups(b"k") == client.groups(b"t") == []


@pytest.mark.parametrize("operation", [22, 9999], ids=["together", "one by one"])
def test_many_keys_are_read_at_once(
    client: ZookeeperClient, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    """A server that does not know the operation says so, and gets a request for each key."""
    monkeypatch.setattr(_MultiRead, "type", operation)
    keys = [ENTRIES[0] + b"%04d" % number for number in range(250)]
    client.transact((), [Put(key, key[-4:] * (number % 3)) for number, key in enumerate(keys) if number % 5])
    client.transact((), [Put(keys[1], b"again")])
    found = client.get(*keys)
    assert found == [client.get(key)[0] for key in keys]
    assert values(found[:5]) == [None, b"again", b"00020002", b"", b"0004"]
    assert {one.revision for one in found if one is not None} == {1, 2}
    assert [one.key for one in client.scan(*ENTRIES)] == [
        key for one, key in zip(found, keys, strict=True) if one
    ]


@given(st.binary(max_size=400), st.integers(-1, 5), st.integers(-200, (1 << 31) - 1))
def test_an_answer_to_many_reads_is_decoded_strictly(rest: bytes, kind: int, number: int) -> None:
    header = struct.pack(">iBi", kind, 0, -1)
    for data in (rest, header + struct.pack(">i", number) + rest):
        with contextlib.suppress(ValueError, struct.error, KazooException, RuntimeError):
            assert len(_MultiRead.deserialize(data, 0)) <= len(data)


def test_what_a_dropped_container_has_left_is_removed_by_whoever_comes(
    client: ZookeeperClient, zookeeper: ZookeeperCluster, root: str, raw: KazooClient
) -> None:
    """The machine that dropped it was killed at once."""
    client.change([Put(ENTRIES[0] + b"key", b"value"), Put(ENTRIES[0] + b"other", b"value")])
    raw.create(f"/{root}t/{CONTAINER.decode()}")
    with contextlib.closing(client_of(zookeeper.url, root)) as other:
        other.announce(b"l/" + b"1" * 32, 60)
    assert raw.get_children(f"/{root}k") == raw.get_children(f"/{root}t") == []
    client.change([Put(b"k/%016x/key" % 8, b"value")])
    assert values(client.get(b"k/%016x/key" % 8)) == [b"value"]


def test_znodes_of_nobody_are_left_alone(client: ZookeeperClient, root: str, raw: KazooClient) -> None:
    client.change([Put(ENTRIES[0] + b"key", b"value"), Put(b"c/box", CONTAINER)])
    bucket = client._tree.bucket(ENTRIES[0] + b"key")
    for path in (
        f"/{root}k/what",
        f"/{root}k/{CONTAINER.decode()}/what",
        f"{bucket}/%ZZ",
        f"{bucket}/%6b",
        f"/{root}c/ä",
        f"/{root}b/..what",
    ):
        raw.create(path, b"\xff")
    assert [one.key for one in client.scan(b"k/", b"k0")] == [ENTRIES[0] + b"key"]
    assert [one.key for one in client.scan(b"c/", b"c0")] == [b"c/box"]
    assert client.groups(b"b") == []


# -- lists ----------------------------------------------------------------------------------------------


class Disturbed(Passing):
    """A client whose lists never come to rest by themselves."""

    def __init__(self, inner: MetadataService, disturb: Callable[[], object]) -> None:
        super().__init__(inner)
        self.disturb = disturb

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        reading = super().reading(first, end, size)
        client = self

        class Restless(Reading):
            def catch_up(self) -> bool:
                is_whole = reading.catch_up()
                client.disturb()
                return is_whole

            def pages(self) -> Iterator[Sequence[KeyValue]]:
                return reading.pages()

        return Restless()


def test_a_list_comes_to_an_end_while_others_write_all_the_time(
    zookeeper: ZookeeperCluster, root: str, open_store: Callable[[MetadataService, int], ServiceMetadata]
) -> None:
    """Writers wait for a moment, after which they go on. No transaction is seen half."""
    writer = open_store(client_of(zookeeper.url, root), 1)
    writer.create_container("box")
    box = writer.container("box")
    pair = [(box, b"a"), (box, b"b")]
    waiting: list[Future[object]] = []

    def write() -> object:
        return writer.update([Change(place, new_entry(writer)) for place in pair])

    with ThreadPoolExecutor(1) as pool:

        def disturb() -> None:
            """Write before each look, until that has to wait, as the container is held."""
            if not waiting or waiting[-1].done():
                waiting.append(pool.submit(write))
                (found,) = lister._client.get(b"c/box")
                if found is not None and b" listing " not in found.value:
                    waiting[-1].result()

        lister = open_store(Disturbed(client_of(zookeeper.url, root), disturb), 2)
        disturb()
        with lister.listing(box, b"", None, 1) as pages:
            found = [one for page in pages for one in page]
        assert [one.key for one in found] == [b"a", b"b"]
        assert len({one.entry.sn for one in found}) == 1
        assert waiting[-1].result(), "the last one has waited, and took place then"
    assert len(waiting) > 3
    assert values(writer._client.get(b"c/box")) == [b"%016x" % box]


# -- connections and sessions ---------------------------------------------------------------------------


def test_a_zookeeper_that_is_away_is_said_to_be() -> None:
    before = set(threading.enumerate())  # threads of an earlier test may still end
    with contextlib.closing(client_of("zookeeper://127.0.0.1:1", "a/", 0.5)) as client:
        with pytest.raises(ServiceError, match="has not answered: Connection refused") as caught:
            client.get(b"s")
        assert not isinstance(caught.value, OutcomeUnknownError)
        with pytest.raises(ServiceError, match="has not answered") as caught:
            client.transact((), [Put(b"s", b"value")])
        assert not isinstance(caught.value, OutcomeUnknownError), "it was never sent"
        client.withdraw()
    assert not set(threading.enumerate()) - before


def test_what_is_no_zookeeper_is_said_not_to_answer(zookeeper: ZookeeperCluster) -> None:
    with (
        AnsweringServer(Answer(body=b"hello" * 1000)) as server,
        contextlib.closing(client_of(f"zookeeper://127.0.0.1:{server.port}", "a/", 1.0)) as client,
        pytest.raises(ServiceError, match="has not answered"),
    ):
        client.get(b"s")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"\x7f\xff\xff\xff", "too long"),
        (b"\xff\xff\xff\xff" * 1000, "not answered"),
        (b"\0\0\0\x10" + bytes(1000), "not answered"),
        (b"", "not answered"),
    ],
)
def test_hostile_bytes_end_the_connection_only(answer: bytes, why: str) -> None:
    """They come instead of the answer to a request, after a session has begun in the ordinary way."""
    session = (0).to_bytes(4) + (10_000).to_bytes(4) + (7).to_bytes(8) + (16).to_bytes(4) + bytes(16) + b"\0"
    before = set(threading.enumerate())  # threads of an earlier test may still end
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(len(session).to_bytes(4) + session)
                        connection.recv(4096)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"zookeeper://127.0.0.1:{server.getsockname()[1]}"
        with contextlib.closing(client_of(url, "a/", 1.0)) as client:
            with pytest.raises(ServiceError, match=why):
                client.get(b"s")
            with pytest.raises(ServiceError):
                client.transact((), [Put(b"s", b"value")])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert not set(threading.enumerate()) - before


def test_too_few_servers_are_said_not_to_answer(tmp_path: Path) -> None:
    with (
        zookeeper_cluster(tmp_path / "zookeeper", 3) as cluster,
        contextlib.closing(client_of(cluster.url, "a/", 5.0)) as client,
    ):
        client.change([Put(b"s", b"value")])
        for node in cluster.nodes[:2]:
            node.kill()
        with pytest.raises(ServiceError, match="has not answered") as caught:
            client.get(b"s")
        assert "half of its servers" in caught.value.advice
        for node in cluster.nodes[:2]:
            node.start()
        for node in cluster.nodes:
            node.wait_until_ready()
        assert values(client.get(b"s")) == [b"value"], "the connection is made again"


def test_of_a_transaction_without_an_answer_nobody_knows_whether_it_took_place(
    zookeeper: ZookeeperCluster, root: str
) -> None:
    with (
        FaultyProxy(("127.0.0.1", zookeeper.nodes[0].port)) as proxy,
        contextlib.closing(client_of(f"zookeeper://127.0.0.1:{proxy.port}", root, 2.0)) as client,
    ):
        client.change([Put(b"s", b"first")])
        for fault in ("cut", "stall"):
            (before,) = client.get(b"s")
            assert before is not None
            proxy.fault, proxy.answer_at_most = fault, 0
            with pytest.raises(OutcomeUnknownError, match="has not answered"):
                client.transact([Compare(b"s", before.revision)], [Put(b"s", fault.encode())])
            proxy.heal()
            assert values(client.get(b"s")) == [fault.encode()], "it has taken place"


def test_nothing_hangs_at_the_end_while_nobody_answers(zookeeper: ZookeeperCluster, root: str) -> None:
    before = set(threading.enumerate())  # threads of an earlier test may still end
    with (
        FaultyProxy(("127.0.0.1", zookeeper.nodes[0].port)) as proxy,
        contextlib.closing(client_of(f"zookeeper://127.0.0.1:{proxy.port}", root, 1.0)) as client,
    ):
        client.announce(b"l/" + b"1" * 32, 60)
        proxy.fault, proxy.request_at_most, proxy.answer_at_most = "stall", 0, 0
        with pytest.raises(ServiceError):
            client.get(b"s")
    assert not set(threading.enumerate()) - before


def test_what_a_session_has_announced_goes_with_it(
    zookeeper: ZookeeperCluster, client: ZookeeperClient, root: str
) -> None:
    key = b"l/" + b"1" * 32
    client.announce(key, 60)
    with contextlib.closing(client_of(zookeeper.url, root)) as other:
        assert values(other.get(key)) == [b""]
        other.announce(key, 60)  # as the next process of the same machine does
        client.withdraw()
        assert values(client.get(key)) == [None]
        client.announce(key, 60)
        session = client._session._client.client_id
        zookeeper.expire(session)
        assert values(other.get(key)) == [None]
        client.announce(key, 60)
        assert values(other.get(key)) == [b""]
        assert client._session._client.client_id != session
    assert values(client.get(key)) == [b""]


def test_a_machine_whose_session_has_expired_writes_only_what_others_have_not_cleaned_up(
    zookeeper: ZookeeperCluster, root: str, open_store: Callable[[MetadataService, int], ServiceMetadata]
) -> None:
    sleeping = open_store(client := client_of(zookeeper.url, root), 1)
    other = open_store(client_of(zookeeper.url, root), 2)
    sleeping.create_container("box")
    place = (sleeping.container("box"), b"key")
    first, second = new_entry(sleeping), new_entry(sleeping)
    zookeeper.expire(client._session._client.client_id)
    made = sleeping.update([Change(place, first)])
    assert made is not None, "nobody has cleaned up"
    zookeeper.expire(client._session._client.client_id)
    assert second.write in {one.write for one in other.writes.garbage()}
    with pytest.raises(WriteLostError):
        sleeping.update([Change(place, second)])
    assert other.read(place) == made[0]
    assert sleeping.update([Change(place, new_entry(sleeping))]) is not None


def test_revisions_of_containers_do_not_come_back(client: ZookeeperClient) -> None:
    """A container that was dropped and made again is not the same, though its znode looks so."""
    client.change([Put(b"c/box", b"1")])
    (before,) = client.get(b"c/box")
    assert before is not None
    client.change([Remove(b"c/box")])
    client.change([Put(b"c/box", b"1")])
    (after,) = client.get(b"c/box")
    assert after is not None
    assert after.revision != before.revision
    assert not client.transact([Compare(b"c/box", before.revision)], [Put(b"s", b"1")]).succeeded
    assert client.transact([Compare(b"c/box", after.revision)], [Put(b"s", b"1")]).succeeded


def test_buckets_that_others_have_made_are_found_with_one_look(
    zookeeper: ZookeeperCluster, client: ZookeeperClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failed transaction names one of them only."""
    puts = [Put(b"k/%016x/%d" % (1, number), b"1") for number in range(20)]
    assert client.transact([], puts).succeeded
    tried: list[int] = []
    commit = ZookeeperClient._commit

    def counted(self: ZookeeperClient, *asked: Any) -> Any:
        tried.append(1)
        return commit(self, *asked)

    monkeypatch.setattr(ZookeeperClient, "_commit", counted)
    with contextlib.closing(client_of(zookeeper.url, root)) as other:
        assert other.transact([], puts).succeeded
    assert len(tried) == 3, "buckets are met, then keys"
