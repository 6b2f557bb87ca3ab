"""The control socket, over a real one."""

from __future__ import annotations

import fcntl
import logging
import resource
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.api.request import Part
from hybrisfs.client import Client
from hybrisfs.daemon.control import ControlLimits, ControlServer, Handler, Progress
from hybrisfs.errors import DaemonError, HybrisError, InternalError, UnknownVolumeError, UsageError
from hybrisfs.home import Home
from hybrisfs.wire import PROTOCOL, Channel, ChannelError, Message, bind_socket, connect_socket
from tests.another_user import as_another_user, only_root
from tests.surroundings import impatient

Serve = Callable[..., ControlServer]


@pytest.fixture
def serve(home: Home) -> Iterator[Serve]:
    servers: list[ControlServer] = []

    def start(handle: Handler, commands: Collection[str] = (), **limits: Any) -> ControlServer:
        server = ControlServer(home.socket, handle, limits=ControlLimits(**limits), slow=commands)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def echo(command: str, arguments: Message, progress: Progress) -> Message:
    progress({"step": command})
    return {"command": command, **arguments}


def connect(home: Home) -> Client:
    return Client.connect(home, start=False)


def connect_at_once(home: Home) -> Client:
    """Whoever hangs up is not dialled again."""
    return Client.connect(home, start=False, environment=impatient())


def call_in_vain(client: Client) -> None:
    with pytest.raises(DaemonError):
        client.exchange("endless")


def test_a_command_gets_progress_and_a_result(home: Home, serve: Serve) -> None:
    serve(echo)
    heard: list[Message] = []
    with connect(home) as client:
        assert client.exchange("one", {"a": 1}, heard.append) == {"command": "one", "a": 1}
        assert client.exchange("two") == {"command": "two"}
    assert heard == [{"step": "one"}]


def test_a_command_may_fail_and_the_next_work(home: Home, serve: Serve) -> None:
    def handle(command: str, _: Message, __: Progress) -> Message:
        if command == "fail":
            raise UnknownVolumeError("there is no volume 'x'", "", "There are: a, b.")
        return {}

    serve(handle)
    with connect(home) as client:
        with pytest.raises(UnknownVolumeError, match="there is no volume 'x'\nThere are: a, b"):
            client.exchange("fail")
        assert client.exchange("work") == {}


def test_a_bug_is_logged_and_told_in_one_line(
    home: Home, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_: str, __: Message, ___: Progress) -> Message:
        raise ZeroDivisionError("secret detail")

    serve(handle)
    with connect(home) as client, caplog.at_level(logging.ERROR), pytest.raises(InternalError) as caught:
        client.exchange("anything")
    assert "secret detail" not in str(caught.value)
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    "request_", [{}, {"command": 1, "arguments": {}}, {"command": "x"}, {"command": "x", "arguments": []}]
)
def test_what_is_no_request_is_refused(home: Home, serve: Serve, request_: Message) -> None:
    serve(echo)
    channel = Channel(connect_socket(home.socket))
    assert channel.receive() is not None
    channel.send(request_)
    answer = channel.receive()
    assert answer is not None
    assert answer["error"]["kind"] == UsageError.kind
    channel.close()


def test_garbage_ends_the_conversation_and_nothing_else(home: Home, serve: Serve) -> None:
    serve(echo)
    with connect_socket(home.socket) as raw:
        raw.sendall(b"garbage\n")
        channel = Channel(raw)
        hello = channel.receive()
        assert hello is not None
        assert hello["hello"]["protocol"] == PROTOCOL
        assert channel.receive() is None
    with connect(home) as client:
        assert client.exchange("still there") == {"command": "still there"}


@only_root
def test_strangers_are_not_heard(home: Home, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(echo)
    home.socket.parent.chmod(0o711)
    home.socket.chmod(0o666)
    monkeypatch.chdir(home.socket.parent)  # the folders above are root's alone
    with socket.socket(socket.AF_UNIX) as raw:
        with as_another_user():
            raw.connect(home.socket.name)
        assert Channel(raw).receive() is None
    connect(home).close()


def test_clients_are_served_side_by_side(home: Home, serve: Serve) -> None:
    barrier = threading.Barrier(5)

    def handle(_: str, __: Message, ___: Progress) -> Message:
        barrier.wait(30)
        return {}

    serve(handle)

    def call() -> None:
        with connect(home) as client:
            client.exchange("meet")

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    call()
    for thread in threads:
        thread.join()


def test_one_client_too_many_is_told_why(home: Home, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    serve(echo, clients=2, turned_away=1)
    with connect(home), connect(home), connect(home) as third:
        with pytest.raises(DaemonError, match="closed the connection"):  # this is one too many by far
            connect_at_once(home)
        with pytest.raises(DaemonError, match=r"2 clients are connected already\nTry again when"):
            third.exchange("x")
        with pytest.raises(DaemonError, match="connection"):
            third.exchange("x")
    assert "2 clients" in caplog.text


def test_clients_that_left_make_room(home: Home, serve: Serve) -> None:
    serve(echo, clients=1, turned_away=0)
    for _ in range(4):
        connect(home).close()


def test_who_is_turned_away_and_says_nothing_is_hung_up_on(home: Home, serve: Serve) -> None:
    serve(echo, clients=0, turned_away_seconds=0.01)
    with connect_socket(home.socket) as raw:
        channel = Channel(raw)
        hello = channel.receive()
        assert hello is not None and hello["hello"]["protocol"] == PROTOCOL
        assert channel.receive() is None


def test_clients_that_wait_long_leave_room_for_others(home: Home, serve: Serve) -> None:
    waiting, released = threading.Event(), threading.Event()

    def handle(command: str, _: Message, __: Progress) -> Message:
        if command == "wait":
            waiting.set()
            assert released.wait(30)
        return {}

    serve(handle, {"wait"}, slow=1)
    with connect(home) as first, connect(home) as second, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(first.exchange, "wait")
        assert waiting.wait(30)
        try:
            with pytest.raises(DaemonError, match="1 clients wait for clouds already"):
                second.exchange("wait")
            assert second.exchange("status") == {}
        finally:
            released.set()
        assert answer.result() == {}
        assert second.exchange("wait") == {}


@pytest.mark.parametrize(
    ("descriptors", "clients", "slow"),
    [(1 << 20, 512, 448), (resource.RLIM_INFINITY, 512, 448), (4096, 512, 448), (1024, 128, 112)],
)
def test_clients_leave_descriptors_to_the_volumes(descriptors: int, clients: int, slow: int) -> None:
    limits = ControlLimits.within(descriptors)
    assert (limits.clients, limits.slow) == (clients, slow)


def test_hundreds_of_clients_may_be_connected(home: Home, serve: Serve) -> None:
    serve(echo)
    with ExitStack() as clients:
        for _ in range(200):
            clients.enter_context(connect(home))
        assert connect(home).exchange("x") == {"command": "x"}


def test_progress_is_throttled(home: Home, serve: Serve) -> None:
    def handle(_: str, __: Message, progress: Progress) -> Message:
        for step in range(1000):
            progress({"step": step})
        return {}

    serve(handle, progress_every=1e9)
    heard: list[Message] = []
    with connect(home) as client:
        client.exchange("x", {}, heard.append)
    assert heard == [{"step": 0}]


def test_a_client_for_whom_there_is_no_thread_is_hung_up_on_and_the_next_one_served(
    home: Home, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serve(echo)
    usual = threading.stack_size(1 << 46)  # more than there is
    try:
        with pytest.raises(DaemonError, match="closed the connection"):
            connect_at_once(home)
    finally:
        threading.stack_size(usual)
    assert "cannot serve process" in caplog.text
    with connect(home) as client:
        assert client.exchange("x") == {"command": "x"}


def test_a_daemon_with_many_files_hears_its_clients(home: Home) -> None:
    listener = bind_socket(home.socket)
    high = socket.socket(fileno=fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500))
    listener.close()
    server = ControlServer(home.socket, echo, high)
    server.start()
    with connect(home) as client:
        assert client.exchange("x") == {"command": "x"}
    server.stop()


def test_parts_of_an_answer_all_arrive(home: Home, serve: Serve) -> None:
    def handle(_: str, __: Message, progress: Progress) -> Message:
        for number in range(100):
            progress(Part(number=number))
        return {}

    serve(handle, progress_every=1e9)
    heard: list[Message] = []
    with connect(home) as client:
        client.exchange("x", {}, heard.append)
    assert heard == [{"number": number} for number in range(100)]


def test_who_does_not_take_the_parts_of_an_answer_is_hung_up_on(home: Home, serve: Serve) -> None:
    """Whatever the command has open for it is closed."""
    stopped = threading.Event()

    def handle(_: str, __: Message, progress: Progress) -> Message:
        try:
            while True:
                progress(Part(text="x" * 100_000))
        except ChannelError:
            stopped.set()
            raise

    serve(handle, part_seconds=0.01)
    with connect_socket(home.socket) as raw:
        Channel(raw).send({"command": "x", "arguments": {}})
        assert stopped.wait(30)


def test_a_client_that_goes_stops_its_command_without_a_fuss(
    home: Home, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    started, stopped = threading.Event(), threading.Event()

    def handle(_: str, __: Message, progress: Progress) -> Message:
        try:
            while True:
                progress({})
                started.set()
        except ChannelError:
            stopped.set()
            raise

    server = serve(handle)
    client = connect(home)
    caller = threading.Thread(target=call_in_vain, args=(client,))
    caller.start()
    assert started.wait(30)
    client.close()
    assert stopped.wait(30)
    caller.join()
    server.stop()
    assert caplog.text == ""


def test_stopping_ends_conversations_and_frees_the_path(home: Home, serve: Serve) -> None:
    started = threading.Event()

    def handle(_: str, __: Message, progress: Progress) -> Message:
        while True:
            progress({})
            started.set()

    before = set(threading.enumerate())  # other tests may have left some that still end
    server = serve(handle)
    client = connect(home)
    caller = threading.Thread(target=call_in_vain, args=(client,))
    caller.start()
    assert started.wait(30)
    server.stop()
    caller.join()
    assert not home.socket.exists()
    assert set(threading.enumerate()) <= before
    server.stop()


def test_a_dead_daemons_socket_is_replaced(home: Home, serve: Serve) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    serve(echo)
    with connect(home) as client:
        assert client.exchange("x") == {"command": "x"}


def test_a_path_beyond_the_limit_of_unix_sockets(tmp_path: Path) -> None:
    home = Home.below(tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8))
    home.prepare()
    server = ControlServer(home.socket, echo)
    server.start()
    try:
        with connect(home) as client:
            assert client.exchange("x") == {"command": "x"}
    finally:
        server.stop()


def test_errors_keep_their_exit_code(home: Home, serve: Serve) -> None:
    def handle(_: str, __: Message, ___: Progress) -> Message:
        raise UsageError("wrong")

    serve(handle)
    with connect(home) as client, pytest.raises(HybrisError) as caught:
        client.exchange("x")
    assert caught.value.exit_code == 2
