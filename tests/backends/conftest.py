"""One server of each kind for all tests of the session that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends import servers
from tests.backends.rclone_remotes import Remotes, needs_rclone
from tests.backends.servers import Server

_REMOTES: list[Remotes] = []


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.fake_gcs(tmp_path_factory.mktemp("gcs-server")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.azurite(tmp_path_factory.mktemp("azure-server")) as server:
        yield server


@pytest.fixture(scope="session")
def webdav_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.wsgidav(tmp_path_factory.mktemp("webdav-server")) as server:
        yield server


@pytest.fixture(scope="session")
def relay_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.relay(tmp_path_factory.mktemp("relay-server")) as server:
        yield server


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.sshd(tmp_path_factory.mktemp("sftp-server")) as server:
        yield server


@pytest.fixture(scope="session")
def remotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remotes]:
    """The remotes of the rclone of this process: the same also for modules that import this fixture."""
    needs_rclone()
    if _REMOTES:
        yield _REMOTES[0]
        return
    remotes = Remotes(tmp_path_factory.mktemp("rclone") / "rclone.conf")
    remotes.add("disk", type="local")
    remotes.add("memory", type="memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RCLONE_CONFIG", str(remotes.file))
        _REMOTES.append(remotes)
        yield remotes
