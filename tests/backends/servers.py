"""Real object stores on this machine, each started on a free port and stopped again.

packaging/test-servers.sh installs those that are no Python packages. A server is ready when its port answers.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pytest

from backends.credentials import Secrets
from hybrisfs.secret_file import write_secret
from relay.files import certificate

__all__ = [
    "ORDINARY",
    "FixedCredentials",
    "Server",
    "azurite",
    "fake_gcs",
    "missing",
    "program",
    "relay",
    "sshd",
    "versitygw",
    "wsgidav",
]

_PATIENCE: Final = 60.0  # seconds a server may take to start; much is going on on a machine that runs tests
_ATTEMPTS: Final = 3  # a free port may be taken by somebody else before the server has it


@dataclass(frozen=True)
class FixedCredentials:
    """The same secrets for every cloud."""

    values: Mapping[str, str] = field(default_factory=dict)

    def lookup(self, url: str) -> Secrets:
        return Secrets(self.values)


@dataclass(frozen=True)
class Server:
    """A running server. `url` makes the URL of a bucket or folder at a given host and port.

    `secrets` open it, and `wrong` do not. `process` is the server's own, for those who want to stop it.
    """

    port: int
    make_url: Callable[[str, str], str]  # (host:port, name of a bucket or folder)
    secrets: Mapping[str, str]
    wrong: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def url(self, name: str = "", authority: str = "") -> str:
        """The URL of the bucket or folder `name`, by default a new one, by default at the server itself."""
        return self.make_url(authority or f"127.0.0.1:{self.port}", name or f"t{uuid4().hex[:20]}")


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "hybrisfs-test-servers"


def missing(what: str) -> None:
    """Skip; where nothing may be skipped, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not installed: run packaging/test-servers.sh")
    pytest.skip(f"{what} is not installed: run packaging/test-servers.sh")


def program(name: str) -> str:
    """The path of an installed server; the test is skipped when it is missing, where that may be."""
    path = _folder() / "bin" / name
    if not path.exists():
        missing(name)
    return str(path)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    command: Callable[[int], Sequence[str]], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a server on a free port, wait until it answers, and end it afterwards."""
    for _ in range(_ATTEMPTS):
        port = _free_port()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command(port),
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
            )
        if _answers(port, process):
            break
    else:
        pytest.fail(f"{command(0)[0]} does not start:\n{log.read_text(errors='replace')[-2000:]}")
    try:
        yield port, process
    finally:
        process.kill()
        process.wait()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the port takes connections; False when the process ends first."""
    ended = threading.Event()

    def watch() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    waited = 0.0
    while waited < _PATIENCE:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        if ended.wait(0.05):
            return False
        waited += 0.05
    process.kill()
    return False


ORDINARY: Final = {"access_key_id": "ordinary", "secret_access_key": "ordinary-secret"}
"""Of a user that an S3 server knows, and who may what policies of buckets say."""


@contextmanager
def versitygw(root: Path) -> Iterator[Server]:
    """An S3 server that can keep versions, has Object Lock, and knows the user `ORDINARY`."""
    executable = program("versitygw")
    for name in ("s3", "versions", "users"):
        (root / name).mkdir()
    key = {"access_key_id": "testing", "secret_access_key": "testing-secret"}

    def command(port: int) -> list[str]:
        server = [executable, "--keep-alive", "--quiet", "--port", f"127.0.0.1:{port}"]
        return [
            *(*server, "--iam-dir", str(root / "users")),
            *("posix", "--versioning-dir", str(root / "versions"), str(root / "s3")),
        ]

    environment = {"ROOT_ACCESS_KEY": key["access_key_id"], "ROOT_SECRET_KEY": key["secret_access_key"]}
    with _running(command, root / "versitygw.log", environment) as (port, process):
        admin = [executable, "admin", "--endpoint-url", f"http://127.0.0.1:{port}"]
        access = ["--access", key["access_key_id"], "--secret", key["secret_access_key"]]
        user = ["--access", ORDINARY["access_key_id"], "--secret", ORDINARY["secret_access_key"]]
        subprocess.run(
            [*admin, *access, "create-user", *user, "--role", "user"], check=True, timeout=_PATIENCE
        )
        yield Server(
            port,
            lambda authority, name: f"s3://{name}?region=us-east-1&endpoint=http://{authority}",
            key,
            {**key, "secret_access_key": "wrong"},
            process,
        )


@contextmanager
def fake_gcs(root: Path) -> Iterator[Server]:
    """A GCS server. It lets everybody in."""
    executable = program("fake-gcs-server")
    (root / "gcs").mkdir()

    def command(port: int) -> list[str]:
        here = f"127.0.0.1:{port}"
        words = f"-scheme http -host 127.0.0.1 -port {port} -public-host {here} -external-url http://{here}"
        return [executable, *words.split(), "-backend", "filesystem", "-filesystem-root", str(root / "gcs")]

    with _running(command, root / "fake-gcs-server.log") as (port, process):
        yield Server(
            port,
            lambda authority, name: f"gs://{name}?project=testing&endpoint=http://{authority}",
            {},
            {},
            process,
        )


@contextmanager
def azurite(root: Path) -> Iterator[Server]:
    """An Azure Blob server."""
    main = _folder() / "node_modules/azurite/dist/src/blob/main.js"
    node = shutil.which("node")
    if node is None or not main.exists():
        missing("azurite")
    (root / "azure").mkdir()
    key = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()

    def command(port: int) -> list[str]:
        return [
            str(node),
            str(main),
            *("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(root / "azure")),
            *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        ]

    with _running(command, root / "azurite.log", {"AZURITE_ACCOUNTS": f"testing:{key}"}) as (port, process):
        yield Server(
            port,
            lambda authority, name: f"az://{name}?account=testing&endpoint=http://{authority}/testing",
            {"account_key": key},
            {"account_key": base64.b64encode(b"f" * 32).decode()},
            process,
        )


@contextmanager
def wsgidav(root: Path) -> Iterator[Server]:
    """A WebDAV server."""
    (root / "dav").mkdir()

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "tests.backends.webdav_server", str(root / "dav"), str(port)]

    repository = str(Path(__file__).resolve().parents[2])
    with _running(command, root / "wsgidav.log", {"PYTHONPATH": repository}) as (port, process):
        yield Server(
            port,
            lambda authority, name: f"webdav://testing@{authority}/{name}",
            {"password": "correct horse"},
            {"password": "wrong"},
            process,
        )


@contextmanager
def relay(root: Path) -> Iterator[Server]:
    """A relay. It makes a space for each name, all with the same token."""
    folder = root / "relay"
    pin = certificate(folder).pin.hex()
    token = "a" * 32

    def make_url(authority: str, name: str) -> str:
        path = folder / "spaces.json"
        known = msgspec.json.decode(path.read_bytes())["spaces"] if path.exists() else []
        if name not in [one["name"] for one in known]:
            entry = {"name": name, "token": token, "host": "127.0.0.1", "port": 1, "added": 0}
            write_secret(path, msgspec.json.encode({"version": 1, "spaces": [*known, entry]}))
        return f"relay://{authority}/{name}?pin={pin}"

    def command(port: int) -> list[str]:
        here = ["--folder", str(folder), "serve", "--listen", f"127.0.0.1:{port}"]
        return [sys.executable, "-m", "cli.main", "relay", *here]

    repository = str(Path(__file__).resolve().parents[2])
    with _running(command, root / "relay.log", {"PYTHONPATH": repository}) as (port, process):
        yield Server(port, make_url, {"token": token}, {"token": "b" * 32}, process)


@contextmanager
def sshd(root: Path) -> Iterator[Server]:
    """An SFTP server for the user that runs the tests, with a key of its own."""
    program = "/usr/sbin/sshd"
    if not Path(program).exists():
        missing("openssh-server")
    own = root / "sftp"
    own.mkdir(mode=0o700)
    for key in ("host_key", "user_key", "wrong_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own / key)], check=True)
    shutil.copy(own / "user_key.pub", own / "authorized_keys")
    settings = {
        "ListenAddress": "127.0.0.1",
        "HostKey": own / "host_key",
        "AuthorizedKeysFile": own / "authorized_keys",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",  # the folder for temporary files may be open to others
        "PasswordAuthentication": "no",
        "MaxStartups": "100",
        "Subsystem": "sftp internal-sftp",
    }
    config = own / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def command(port: int) -> list[str]:
        return [program, "-D", "-e", "-f", str(config), "-p", str(port)]

    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    with _running(command, root / "sshd.log") as (port, process):
        host_key = " ".join((own / "host_key.pub").read_text().split()[:2])

        def make_url(authority: str, name: str) -> str:
            known = own / f"known_hosts-{authority.replace(':', '-')}"
            host, _, number = authority.partition(":")
            known.write_text(f"[{host}]:{number} {host_key}\n")
            return f"sftp://{user}@{authority}{own}/{name}?known_hosts={known}"

        keys = {name: {"private_key": (own / name).read_text()} for name in ("user_key", "wrong_key")}
        yield Server(port, make_url, keys["user_key"], keys["wrong_key"], process)
