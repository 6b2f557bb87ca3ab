"""hybrisfs serve: what it says. What it serves is tested in tests/gateway and tests/serving."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.server import Endpoint
from gateway.signature import AccessKey
from hybrisfs.client import UsageError
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from hybrisfs.listening import Address, parse_address
from serving.certificate import Certificate
from serving.server import Endpoint as Served
from serving.server import Wanted
from serving.sftp_server import SftpEndpoint, SftpWanted
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
    assert (damaged.exit_code, "is not an access key" in damaged.stderr) == (1, True)
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


# -- webdav ---------------------------------------------------------------------------------------------


def serving_webdav(monkeypatch: pytest.MonkeyPatch, endpoint: Served) -> list[Wanted]:
    """Have nothing served; returns what was to be."""
    asked: list[Wanted] = []

    def serve(wanted: Wanted, show: Callable[[Served], None]) -> None:
        asked.append(wanted)
        show(endpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr("serving.server.serve", serve)
    return asked


MADE = Certificate(Path("/config/tls-certificate.pem"), Path("/config/tls-key.pem"), "AB:CD", True)


def test_webdav_says_where_it_listens(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Served(["https://127.0.0.1:8015"], True, MADE)
    asked = serving_webdav(monkeypatch, endpoint)
    done = run("serve", "webdav", "photos", "--folder", "Films", "--read-only")
    assert asked == [Wanted("photos", "Films", Address("127.0.0.1", 8015), True, False)]
    assert done.stdout.startswith(
        "Serving photos/Films by WebDAV at https://127.0.0.1:8015. Ctrl-C ends it.\n"
    )
    assert "\n".join(endpoint.code()) in done.stdout
    assert done.stdout.endswith("fingerprint, also in the code:\n  AB:CD\n")
    assert (done.exit_code, done.stderr.strip()) == (0, "")
    assert json.loads(run("serve", "webdav", "photos", "--json").stdout) == {
        "urls": ["https://127.0.0.1:8015"],
        "fingerprint": "AB:CD",
        "certificate": "/config/tls-certificate.pem",
    }


def test_webdav_warns_when_others_can_connect(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    serving_webdav(monkeypatch, Served(["https://192.0.2.7:1", "https://box.local:1"], False, MADE))
    done = run("serve", "webdav", "photos", "--listen", "0.0.0.0:1")
    assert "others on the network can connect" in done.stderr
    assert "Also at https://box.local:1." in done.stdout


def test_webdav_serves_mounted_volumes_only(rig: Rig, run: Run) -> None:
    done = run("serve", "webdav", "photos", "--listen", "127.0.0.1:0")
    assert (done.exit_code, "hybrisfs mount photos DIR" in done.stderr) == (1, True)
    assert run("serve", "webdav", "unknown").exit_code == 4
    assert run("serve", "webdav", "photos", "--folder", "../x").exit_code == 2
    assert run("serve", "webdav", "photos", "--listen", "8015").exit_code == 2


def test_sftp_says_where_it_listens(rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SftpWanted] = []
    endpoint = SftpEndpoint(["sftp://192.0.2.7:1", "sftp://box.local:1"], False, "SHA256:AbCd", True)

    def serve(wanted: SftpWanted, show: Callable[[SftpEndpoint], None]) -> None:
        asked.append(wanted)
        show(endpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr("serving.sftp_server.serve_sftp", serve)
    done = run("serve", "sftp", "photos", "--folder", "Films", "--read-only", "--listen", "0.0.0.0:1")
    assert asked == [SftpWanted("photos", "Films", Address("0.0.0.0", 1), True)]
    assert done.stdout.startswith("Serving photos/Films by SFTP at sftp://192.0.2.7:1. Ctrl-C ends it.\n")
    assert "Also at sftp://box.local:1." in done.stdout
    assert "\n".join(endpoint.code()) in done.stdout
    assert done.stdout.endswith("also in the code:\n  SHA256:AbCd\n")
    assert (done.exit_code, "others on the network can connect" in done.stderr) == (0, True)
    assert json.loads(run("serve", "sftp", "photos", "--json").stdout) == {
        "urls": ["sftp://192.0.2.7:1", "sftp://box.local:1"],
        "fingerprint": "SHA256:AbCd",
    }
    assert asked[-1].address == Address("127.0.0.1", 8016)


def test_sftp_serves_mounted_volumes_only(rig: Rig, run: Run) -> None:
    done = run("serve", "sftp", "photos", "--listen", "127.0.0.1:0")
    assert (done.exit_code, "hybrisfs mount photos DIR" in done.stderr) == (1, True)
    assert run("serve", "sftp", "unknown").exit_code == 4
    assert run("serve", "sftp", "photos", "--folder", "../x").exit_code == 2
    assert run("serve", "sftp", "photos", "--listen", "8016").exit_code == 2


def test_users(rig: Rig, run: Run, home: Home) -> None:
    assert "hybrisfs serve user add photos USER" in run("serve", "user", "list", "photos").stdout
    added = json.loads(run("serve", "user", "add", "photos", "phone", "--json").stdout)
    shown = run("serve", "user", "add", "photos", "tv").stdout
    assert "Password: " in shown
    assert "shown this once" in shown
    [file] = (home.config / "serve").glob("*.json")
    assert added["password"] not in file.read_text()
    listed = json.loads(run("serve", "user", "list", "photos", "--json").stdout)["users"]
    assert [one["user"] for one in listed] == ["phone", "tv"]
    assert run("serve", "user", "add", "photos", "phone").exit_code == 2
    assert run("serve", "user", "add", "unknown", "phone").exit_code == 4
    assert run("serve", "user", "remove", "photos", "phone").exit_code == 0
    assert run("serve", "user", "remove", "photos", "phone").exit_code == 2
    assert "phone" not in run("serve", "user", "list", "photos").stdout
