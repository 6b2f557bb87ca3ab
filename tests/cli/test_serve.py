"""hybrisfs serve s3: what it says. What it serves is tested in tests/gateway."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.server import Address, Endpoint, parse_address
from gateway.signature import AccessKey
from hybrisfs.client import UsageError
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import Stored
from tests.kv.rig import Rig

KEY = AccessKey("ID", "SECRET")


@pytest.fixture
def rig(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Rig]:
    served.start()
    with Rig(tmp_path) as rig:
        volumes.opened["photos"].key_values = Stored(rig)
        yield rig


def serving(monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> list[Address]:
    """Have nothing served; returns where it was to be."""
    asked: list[Address] = []

    def serve(_: str, address: Address, show: Callable[[Endpoint], None]) -> None:
        asked.append(address)
        show(endpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.server.serve", serve)
    return asked


def test_it_says_where_it_listens(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serving(monkeypatch, Endpoint("http://127.0.0.1:8014", True, KEY))
    done = run("serve", "s3", "photos")
    assert (done.exit_code, asked) == (0, [Address("127.0.0.1", 8014)])
    first, second = done.stdout.splitlines()
    assert first == "Serving photos as S3 at http://127.0.0.1:8014. Ctrl-C ends it."
    assert "path-style" in second
    assert "SECRET" not in done.output
    assert json.loads(run("serve", "s3", "photos", "--json").stdout) == {"url": "http://127.0.0.1:8014"}


def test_it_warns_when_others_can_connect(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serving(monkeypatch, Endpoint("http://[::]:9000", False, KEY))
    done = run("serve", "s3", "photos", "--listen", "[::]:9000")
    assert asked == [Address("::", 9000)]
    assert "there is no TLS" in done.stderr


def test_the_key_is_made_once(rig: Rig, run: Run, home: Home) -> None:
    first = json.loads(run("serve", "s3", "photos", "--show-keys", "--json").stdout)
    assert json.loads(run("serve", "s3", "photos", "--show-keys", "--json").stdout) == first
    [path] = (home.config / "s3-keys").iterdir()
    path.write_text('{"access_key_id": "short"}')
    damaged = run("serve", "s3", "photos", "--show-keys")
    assert (damaged.exit_code, "is no access key" in damaged.stderr) == (1, True)
    path.unlink()
    assert json.loads(run("serve", "s3", "photos", "--show-keys", "--json").stdout) != first


def test_an_address_that_is_in_use(rig: Rig, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "s3", "photos", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (done.exit_code, "--listen names another address" in done.stderr) == (1, True)


@pytest.mark.parametrize("text", ["", "8014", ":8014", "localhost", "::1:8014", "a:b", "a:70000", "[::1]"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("localhost:0") == Address("localhost", 0)
    assert parse_address("[::1]:8014") == Address("::1", 8014)
