"""The other end of calls of gRPC: what a server makes of the bytes, and one that listens."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes, Settings

__all__ = ["ServerEnd", "listening"]

Headers = list[tuple[str, str]]


class ServerEnd:
    """A connection as a server sees it. Does no IO."""

    def __init__(self, window: int = 65_535) -> None:
        """*window*: how many bytes a client may send ahead."""
        self.http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        settings = {SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.http.local_settings = Settings(client=False, initial_values=settings)
        self.http.initiate_connection()
        self.received: dict[int, bytearray] = {}
        """By stream: what has come, with the five bytes before each message."""
        self.headers: dict[int, dict[str, str]] = {}
        self.ended: list[int] = []
        """The streams of which the client has sent all."""
        self.was_reset: list[int] = []

    def receive(self, data: bytes) -> None:
        """The client has sent this."""
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.headers[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                self.received[event.stream_id] = bytearray()
            elif isinstance(event, h2.events.DataReceived):
                self.received[event.stream_id] += event.data
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.append(event.stream_id)

    def answer(self, stream: int, *messages: bytes, trailers: Headers | None = None) -> None:
        """Answer with messages, and trailers at the end; without them it goes on."""
        self.http.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        self.send(stream, *messages)
        if trailers is not None:
            self.http.send_headers(stream, trailers, end_stream=True)

    def send(self, stream: int, *messages: bytes) -> None:
        """Send more messages."""
        data = b"".join(b"\0%b%b" % (len(one).to_bytes(4, "big"), one) for one in messages)
        for start in range(0, len(data), self.http.max_outbound_frame_size):
            self.http.send_data(stream, data[start : start + self.http.max_outbound_frame_size])

    def refuse(self, stream: int, headers: Headers) -> None:
        """Answer with headers alone."""
        self.http.send_headers(stream, headers, end_stream=True)


@contextmanager
def listening(serve: Callable[[socket.socket, ServerEnd], None]) -> Iterator[str]:
    """A server at the address, HOST:PORT. *serve* has each connection for itself, in a thread, and then it is
    closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads, accepted = [], []

        def served(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                serve(connection, ServerEnd())
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass  # were it closed with something unread, the client might lose what it was sent

        def accepting() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    accepted.append(connection)
                    threads.append(threading.Thread(target=served, args=(connection,), daemon=True))
                    threads[-1].start()

        accepter = threading.Thread(target=accepting, daemon=True)
        accepter.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for one in (listener, *accepted):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in (accepter, *threads):
                thread.join()
