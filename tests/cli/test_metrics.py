"""`hybrisfs metrics`: printed, and served on this machine."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from cli.metrics import _Handler
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_figures_are_printed(served: Daemon, run: Run) -> None:
    done = run("metrics")
    assert done.exit_code == 0
    assert 'hybrisfs_files{volume="photos"} 12.0' in done.stdout


def test_figures_are_served_to_this_machine_only(served: Daemon, port: int) -> None:
    status, text = ask(port, "/metrics")
    assert (status, 'hybrisfs_files{volume="photos"} 12.0' in text) == (200, True)
    assert ask(port, "/")[0] == 404
    assert ask(port, "/metrics", host="evil.example")[0] == 421


def test_without_a_daemon_none_is_started(home: Home, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = ask(port, "/metrics")
    assert status == 503
    assert "hybrisfs" in text
