"""The slow lines carry bytes unchanged, count them, and hold them up when told to."""

from __future__ import annotations

import os
import socket
import threading

from benchmarks.shaping import Line, ShapedLines, Traffic


def _echo(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (data := connection.recv(1 << 16)):
        received += data
    return received


def test_bytes_pass_unchanged_and_counted_and_only_when_they_may() -> None:
    data = os.urandom(300_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        line = Line(server.getsockname()[1], delay=0.001, rate=1e8)
        with ShapedLines([line]) as lines, socket.create_connection(("127.0.0.1", lines.ports[0])) as client:
            client.sendall(data)
            assert _receive(client, len(data)) == data
            assert lines.traffic() == [Traffic(len(data), len(data))]
            lines.stall(0, stalled=True)
            client.sendall(b"held up")
            client.settimeout(0.1)
            try:
                early = client.recv(100)
            except TimeoutError:
                early = b""
            assert early == b""
            lines.stall(0, stalled=False)
            client.settimeout(30)
            assert _receive(client, 7) == b"held up"
        server.close()
