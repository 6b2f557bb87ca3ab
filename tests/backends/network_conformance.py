"""What every driver must do when the network or the server misbehaves, and what HTTP drivers must do besides.

A driver's test module subclasses `NetworkConformance` or `HttpConformance` beside `Conformance` and gives the
fixture `server` and the method `open`.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from backends.body import Timing
from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    MissingError,
    MissingRootError,
    OversizeError,
    PermanentError,
    StoreError,
    ThrottledError,
    TransientError,
)
from backends.store import Store
from tests.backends.conformance import all_names
from tests.backends.faulty_server import Answer, AnsweringServer, FaultyProxy, Request
from tests.backends.servers import Server

QUICK = Timing(connect=2.0, stall=0.5)
DATA = Random(1).randbytes(1_000_000)
FEW = 300_000  # bytes, well in the middle of an object


def every_operation(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.put("dir/object", b"data"),
        lambda: store.put_if_absent("dir/object", b"data"),
        lambda: store.get("dir/object", limit=10),
        lambda: store.get_range("dir/object", 0, 1),
        lambda: store.get_range("dir/object", 0, 0),
        lambda: store.get_if_changed("dir/object", None, limit=10),
        lambda: store.delete("dir/object"),
        lambda: store.delete_many(["dir/object", "dir/other"]),
        lambda: store.list(""),
    ]


def _connections(address: tuple[str, int]) -> Iterator[socket.socket]:
    """This process's connections to an address, each as a socket of its own."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        try:
            descriptor = os.dup(int(name))
        except OSError:  # the one of the folder, which is closed again
            continue
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            continue
        with socket.socket(fileno=descriptor) as connection:
            try:
                peer = connection.getpeername()
            except OSError:
                continue  # it listens, or has ended
            if peer == address:
                yield connection


class NetworkConformance(ABC):
    """Subclass and define the fixture `server`, and `open`."""

    many_keys = 2010
    guards_access = True  # whether the server tells right credentials from wrong ones

    @abstractmethod
    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        """Make a driver for the URL."""

    @pytest.fixture
    def store(self, server: Server) -> Iterator[Store]:
        store = self.open(server.url(), server.secrets)
        store.initialise()
        yield store
        store.close()

    @pytest.fixture
    def proxy(self, server: Server) -> Iterator[FaultyProxy]:
        with FaultyProxy(server.address) as proxy:
            yield proxy

    @pytest.fixture
    def far(self, server: Server, proxy: FaultyProxy) -> Iterator[Store]:
        """A store with one object behind the proxy, opened by an impatient driver."""
        store = self.open(server.url(authority=proxy.authority), server.secrets, QUICK)
        store.initialise()
        store.put("dir/object", DATA)
        yield store
        store.close()

    def test_wrong_credentials(self, server: Server) -> None:
        if not self.guards_access:
            pytest.skip("this server lets everybody in")
        url = server.url()
        self.open(url, server.secrets).initialise()
        store = self.open(url, server.wrong)
        for operation in (*every_operation(store), store.initialise):
            with pytest.raises(AuthError) as caught:
                operation()
            assert caught.value.url == url
            assert caught.value.advice
            assert not any(secret in str(caught.value) for secret in server.wrong.values())

    def test_a_missing_root_is_said_to_be_missing_and_not_made(self, server: Server) -> None:
        store = self.open(server.url(), server.secrets)
        for operation in every_operation(store):
            with pytest.raises(MissingRootError) as caught:
                operation()
            assert caught.value.advice
        with pytest.raises(MissingRootError):
            store.list("")

    def test_folders_of_one_bucket_do_not_see_each_other(self, server: Server) -> None:
        name = server.url("shared-bucket")
        base, mark, options = name.partition("?")
        self.open(name, server.secrets).initialise()
        folders = ["one", "one-more", "two/deep", "gr%C3%BC%C3%9Fe%20%26%20k%C3%BCsse", "100%25+%5B1%5D%23"]
        stores = [self.open(f"{base}/{folder}{mark}{options}", server.secrets) for folder in folders]
        for number, store in enumerate(stores):
            store.initialise()
            store.put("dir/object", b"%d" % number)
            store.put(f"own-{number}", b"")
        for number, store in enumerate(stores):
            assert store.get("dir/object", limit=1) == b"%d" % number
            assert all_names(store) == ["dir/object", f"own-{number}"]
            assert store.put_if_absent("dir/object", b"") is False
        stores[0].delete_many(all_names(stores[0]))
        assert all_names(stores[0]) == []
        assert len(all_names(stores[1])) == 2
        for store in stores[1:]:
            store.delete_many(all_names(store))

    def test_nobody_listens(self, server: Server) -> None:
        with AnsweringServer(Answer()) as gone:
            authority = gone.authority
        store = self.open(server.url(authority=authority), server.secrets, QUICK)
        for operation in (*every_operation(store), store.initialise):
            with pytest.raises(TransientError):
                operation()

    def test_a_slow_downlink_is_no_stall(self, far: Store, proxy: FaultyProxy) -> None:
        """What comes piece by piece must not count as hanging, however long the whole takes."""
        proxy.answer_rate = 400_000  # so that it takes five times as long as the driver waits for a piece
        assert far.get("dir/object", limit=len(DATA)) == DATA

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    def test_an_answer_that_ends_in_the_middle(self, far: Store, proxy: FaultyProxy, fault: str) -> None:
        reads: list[Callable[[], object]] = [
            lambda: far.get("dir/object", limit=len(DATA)),
            lambda: far.get_range("dir/object", 10, len(DATA) - 20),
            lambda: far.get_if_changed("dir/object", None, limit=len(DATA)),
        ]
        proxy.fault = fault
        for read in reads:
            proxy.answer_at_most = FEW
            with pytest.raises(TransientError):
                read()
            proxy.heal()
        assert far.get("dir/object", limit=len(DATA)) == DATA

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    def test_a_request_that_does_not_get_through(self, far: Store, proxy: FaultyProxy, fault: str) -> None:
        proxy.fault = fault
        for name in ("dir/object", "dir/new"):
            proxy.request_at_most = FEW
            with pytest.raises(TransientError):
                far.put(name, DATA[::-1])
            proxy.heal()
        assert all_names(far) == ["dir/object"]
        assert far.get("dir/object", limit=len(DATA)) == DATA

    @pytest.mark.parametrize("fault", ["cut", "stall"])
    def test_no_answer_at_all(self, far: Store, proxy: FaultyProxy, fault: str) -> None:
        proxy.fault = fault
        for operation in every_operation(far):
            proxy.answer_at_most = 0
            with pytest.raises(TransientError):
                operation()
            proxy.heal()

    def test_use_from_many_threads_through_a_flaky_network(self, far: Store, proxy: FaultyProxy) -> None:
        started = threading.Barrier(9)

        def work(number: int) -> None:
            started.wait()
            for _ in range(8):
                try:
                    assert far.get("dir/object", limit=len(DATA)) == DATA
                    far.put(f"dir/n{number}", DATA[: 1000 * number])
                except TransientError:
                    continue

        with ThreadPoolExecutor(8) as pool:
            done = [pool.submit(work, number) for number in range(8)]
            started.wait()
            while not all(one.done() for one in done):
                proxy.heal()
                threading.Event().wait(0.05)
            for one in done:
                one.result()
        proxy.heal()
        for entry in far.list("dir/n").entries:
            data = far.get(entry.name, limit=10_000)
            assert data == DATA[: 1000 * int(entry.name[len("dir/n") :])]


class HttpConformance(NetworkConformance):
    """Besides, for drivers that speak HTTP."""

    clock_skew = Answer(403)  # how the service refuses a request with a wrong time
    answering: Callable[[Answer | Callable[[Request], Answer]], AnsweringServer] = AnsweringServer

    @pytest.fixture
    def prepared(self) -> Iterator[AnsweringServer]:
        with self.answering(Answer()) as prepared:
            yield prepared

    @pytest.fixture
    def dubious(self, server: Server, prepared: AnsweringServer) -> Iterator[Store]:
        """A store whose every answer is prepared."""
        store = self.open(server.url(authority=prepared.authority), server.secrets, QUICK)
        yield store
        store.close()

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (Answer(500), TransientError),
            (Answer(502, body=b"<html>Bad gateway"), TransientError),
            (Answer(503), TransientError),
            (Answer(504), TransientError),
            (Answer(408), TransientError),
            (Answer(401), AuthError),
            (Answer(403), AuthError),
            (Answer(507), FullError),
            (Answer(400), PermanentError),
            (Answer(405), PermanentError),
            (Answer(301, {"Location": "http://127.0.0.1:9/"}), PermanentError),
        ],
    )
    def test_a_refusal_is_sorted(
        self, dubious: Store, prepared: AnsweringServer, answer: Answer, expected: type[StoreError]
    ) -> None:
        prepared.answer = answer
        for operation in every_operation(dubious):
            with pytest.raises(StoreError) as caught:
                operation()
            assert isinstance(caught.value, expected), caught.value
            assert not isinstance(caught.value, ThrottledError | MissingRootError), caught.value
            assert caught.value.url == dubious.url

    @pytest.mark.parametrize("status", [429, 503])
    def test_throttling_says_how_long(self, dubious: Store, prepared: AnsweringServer, status: int) -> None:
        prepared.answer = Answer(status, {"Retry-After": "7"})
        for operation in every_operation(dubious):
            before = len(prepared.requests)
            with pytest.raises(ThrottledError) as caught:
                operation()
            assert caught.value.retry_after == 7
            assert len(prepared.requests) == before + 1, f"tried again: {prepared.requests[before:]}"

    def test_a_wrong_clock_is_told(self, dubious: Store, prepared: AnsweringServer) -> None:
        prepared.answer = self.clock_skew
        for operation in every_operation(dubious):
            with pytest.raises(AuthError, match="clock"):
                operation()

    @pytest.mark.parametrize("declared", [-1, None, 10])
    def test_an_endless_body_is_not_read(
        self, dubious: Store, prepared: AnsweringServer, declared: int | None
    ) -> None:
        """Whatever length it announces, no more than the limit is taken."""
        headers = {"ETag": '"x"', "Content-Range": "bytes 0-9/10"}
        prepared.answer = Answer(200, headers, b"x" * 65536, declared, endless=declared != -1)
        with pytest.raises(CorruptError) as caught:
            dubious.get("object", limit=9)
        assert isinstance(caught.value, OversizeError)
        with pytest.raises(OversizeError):
            dubious.get_if_changed("object", None, limit=9)
        with pytest.raises(CorruptError):
            dubious.get_range("object", 0, 9)

    def test_an_endless_listing_ends(self, dubious: Store, prepared: AnsweringServer) -> None:
        prepared.answer = Answer(200, {"Content-Type": "text/xml"}, b" " * (1 << 20), None, endless=True)
        with pytest.raises(StoreError):
            dubious.list("")
        prepared.answer = Answer(500, {}, b" " * (1 << 20), None, endless=True)
        with pytest.raises(StoreError):
            dubious.list("")

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"[]", b"<", b"<a/>", b"\xff\xfe", b'{"items": 7}', b"<?xml version='1.0'?><x>&y;</x>"],
    )
    @pytest.mark.parametrize("status", [200, 206, 207, 404])
    def test_answers_without_sense_are_errors_of_ours(
        self, dubious: Store, prepared: AnsweringServer, body: bytes, status: int
    ) -> None:
        prepared.answer = Answer(status, {"Content-Type": "application/octet-stream"}, body)
        for operation in (*every_operation(dubious), dubious.initialise):
            try:
                operation()
            except StoreError:
                continue

    def test_a_missing_object_needs_a_root(self, store: Store) -> None:
        with pytest.raises(MissingError):
            store.get("missing", limit=1)

    def test_a_small_body_does_not_wait_until_its_headers_are_acknowledged(
        self, store: Store, server: Server
    ) -> None:
        store.put("small", b"body")
        at_once = [
            one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in _connections(server.address)
        ]
        assert at_once, "the connection is kept"
        assert all(at_once)

    def test_a_slow_uplink_is_no_stall(self, server: Server) -> None:
        """What a server takes piece by piece must not count as hanging, however long the whole takes."""
        got = threading.Event()

        def answer(request: Request) -> Answer:
            got.set()
            return Answer(503)

        with self.answering(answer) as slow:
            slow.bytes_per_second = 4 << 20
            store = self.open(
                server.url(authority=slow.authority), server.secrets, Timing(connect=0.4, stall=5.0)
            )
            with pytest.raises(TransientError, match="503"):
                store.put("object", bytes(6 << 20))
            assert got.is_set()
