"""The service manager hears that the service works only while it does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybrisfs.daemon.control import ControlLimits, ControlServer
from hybrisfs.daemon.main import Watchdog
from hybrisfs.wire import ChannelError, bind_socket


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Path]:
    """A control socket that greets."""
    server = ControlServer(tmp_path / "control", lambda *_: {})
    server.start()
    yield tmp_path / "control"
    server.stop()


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bytes]]:
    """What the service manager hears next."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield lambda: manager.recv(100)


def test_it_says_so_again_and_again(control: Path, heard: Callable[[], bytes], tmp_path: Path) -> None:
    watchdog = Watchdog(control, lambda: [tmp_path], 0.03)
    watchdog.start()
    assert [heard() for _ in range(3)] == [b"WATCHDOG=1"] * 3
    watchdog.stop()


def test_a_daemon_with_too_many_clients_works(heard: Callable[[], bytes], tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "control", lambda *_: {}, limits=ControlLimits(clients=0))
    server.start()
    watchdog = Watchdog(tmp_path / "control", lambda: [tmp_path], 0.03)
    watchdog.start()
    assert [heard() for _ in range(3)] == [b"WATCHDOG=1"] * 3
    watchdog.stop()
    server.stop()


def test_it_is_silent_while_something_is_wrong_and_goes_on_afterwards(
    control: Path, heard: Callable[[], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([[tmp_path / "gone"], [tmp_path / "gone"], *[[tmp_path]] * 100_000])
    watchdog = Watchdog(control, lambda: next(looks), 0.03)
    watchdog.start()
    assert heard() == b"WATCHDOG=1"
    watchdog.stop()
    # On a busy machine the daemon itself may answer too late, too.
    assert caplog.text.count("FileNotFoundError") == 2


def test_a_mount_that_does_not_answer_is_found(control: Path, tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="No such file"):
        Watchdog(control, lambda: [tmp_path, tmp_path / "gone"], 60.0).look()
    Watchdog(control, lambda: [tmp_path], 60.0).look()


def test_a_control_socket_that_does_not_greet_is_found(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path / "control", list, 60.0)
    with pytest.raises(FileNotFoundError):
        watchdog.look()
    with bind_socket(tmp_path / "control") as listener:
        hanging_up = threading.Thread(target=lambda: listener.accept()[0].close())
        hanging_up.start()
        with pytest.raises(ChannelError):
            watchdog.look()
        hanging_up.join()
        with pytest.raises(ChannelError, match="timed out"):
            Watchdog(tmp_path / "control", list, 0.05).look()
