"""The control protocol: whole messages, bounded lines, sockets at paths of any length."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.wire import MAX_LINE, Channel, ChannelError, Message, bind_socket, connect_socket


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.lists(st.booleans())), max_size=5
    )
)
def test_messages_arrive_as_they_were_sent(messages: list[Message]) -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Channel(ours), Channel(theirs)
    for message in messages:
        sender.send(message)
    sender.close()
    assert [receiver.receive() for _ in messages] == messages
    assert receiver.receive() is None
    receiver.close()


def test_paths_that_are_no_utf8_travel(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    path = os.fsdecode(b"/mnt/\xff\xfe")
    Channel(theirs).send({"directory": path})
    assert channel.receive() == {"directory": path}


def test_messages_may_arrive_in_any_pieces(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    for byte in b'{"a": 1}\n{"b"':
        theirs.send(bytes([byte]))
    assert channel.receive() == {"a": 1}
    theirs.send(b": 2}\n")
    assert channel.receive() == {"b": 2}


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b"nonsense", b"\xff", b'{"a":', b"[" * 100_000])
def test_a_line_that_is_no_message_is_refused(pair: tuple[Channel, socket.socket], line: bytes) -> None:
    channel, theirs = pair
    theirs.sendall(line + b"\n")
    with pytest.raises(ChannelError, match="not a message"):
        channel.receive()


def test_a_conversation_that_breaks_off_in_a_message(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(b'{"a": 1')
    theirs.close()
    with pytest.raises(ChannelError, match="middle"):
        channel.receive()


def test_a_line_without_end_does_not_fill_the_memory(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair

    def flood() -> None:
        try:
            while True:
                theirs.sendall(b"x" * 65536)
        except OSError:
            return

    flooder = threading.Thread(target=flood)
    flooder.start()
    with pytest.raises(ChannelError, match="too long"):
        channel.receive()
    channel.close()
    flooder.join()


def test_too_long_a_message_is_not_sent(pair: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(ValueError, match="message of"):
        pair[0].send({"a": "x" * MAX_LINE})


def test_closing_ends_a_receive_in_another_thread(pair: tuple[Channel, socket.socket]) -> None:
    channel, _ = pair
    ended = threading.Event()

    def receive() -> None:
        with contextlib.suppress(ChannelError):  # when it was closed before
            assert channel.receive() is None
        ended.set()

    threading.Thread(target=receive, daemon=True).start()
    channel.close()
    assert ended.wait(10)


@pytest.mark.parametrize("depth", [1, 40])
def test_sockets_at_paths_of_any_length(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["long-folder-name"] * depth)
    folder.mkdir(parents=True)
    path = folder / "daemon.sock"
    with bind_socket(path) as listener, connect_socket(path) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"hello")
            assert server.recv(5) == b"hello"


def test_no_descriptor_is_leaked_when_nobody_listens(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        connect_socket(tmp_path / "daemon.sock")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
