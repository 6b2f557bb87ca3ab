"""Metered networks, asked of a fake bus: a socket that answers as NetworkManager would."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jeepney import HeaderFields, Message, Parser, new_error, new_method_return

from hybrisfs.settings.transfers import is_metered


def _answer(message: Message, metered: int | str | None) -> Message:
    if message.header.fields[HeaderFields.member] == "Hello":
        return new_method_return(message, "s", (":1.7",))
    if metered is None:
        return new_error(message, "org.freedesktop.DBus.Error.ServiceUnknown", "s", ("no such name",))
    assert message.header.fields[HeaderFields.destination] == "org.freedesktop.NetworkManager"
    assert message.body == ("org.freedesktop.NetworkManager", "Metered")
    return new_method_return(message, "v", (("s" if isinstance(metered, str) else "u", metered),))


def _serve(listener: socket.socket, metered: int | str | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # shut down
            return
        with connection:
            _talk(connection, metered)


def _talk(connection: socket.socket, metered: int | str | None) -> None:
    said = b""
    while b"BEGIN\r\n" not in said:
        part = connection.recv(1000)
        if not part:
            return
        if b"AUTH" in part:
            connection.sendall(b"OK " + b"0" * 32 + b"\r\n")
        said += part
    parser, serial = Parser(), 0
    parser.add_data(said.partition(b"BEGIN\r\n")[2])
    while True:
        while (message := parser.get_next_message()) is not None:
            serial += 1
            connection.sendall(_answer(message, metered).serialise(serial=serial))
        data = connection.recv(4096)
        if not data:
            return
        parser.add_data(data)


@contextmanager
def fake_bus(path: Path, metered: int | str | None) -> Iterator[None]:
    """A bus that answers whoever asks until the end of the block."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=_serve, args=(listener, metered), daemon=True)
        server.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join(10)
        assert not server.is_alive()


@pytest.mark.parametrize(
    ("answer", "metered"),
    [(0, False), (1, True), (2, False), (3, True), (4, False), (77, False), ("1", False), (None, False)],
)
def test_what_networkmanager_says(
    answer: int | str | None, metered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bus"
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={path}")
    with fake_bus(path, answer):
        assert is_metered() is metered


def test_without_a_bus_nothing_is_metered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'none'}")
    assert is_metered() is False
