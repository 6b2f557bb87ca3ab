"""A stolen device deletes and overwrites all that its credentials let it, on clouds that keep versions.

The clouds are buckets of a real S3 server. All devices have the credentials of an ordinary device: they may
delete objects, but no versions of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.credentials import CredentialStore
from backends.errors import AuthError
from backends.s3 import S3Store
from hybrisfs.home import Home
from hybrisfs.store.schema import ROOT_INO
from hybrisfs.volume.create import create_volume
from hybrisfs.volume.volume import Volume
from tests.backends import servers
from tests.backends.buckets import DELETES, allow
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.volume.device import NAME, PATIENCE, Device, Second

CODES = [(1, 1, 3), (1, 2, 4)]  # f, k, clouds
SMALL, BIG = os.urandom(3000), os.urandom(3 << 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


class First(Device):
    """The device that made the volume, on buckets."""

    def __init__(self, root: Path, urls: list[str], f: int, k: int) -> None:
        self.home = Home.below(root / "home")
        self.clouds = []
        log_in(self.home, urls)
        create_volume(self.home, NAME, urls, f, k)
        self.volume = Volume.open(self.home, NAME)
        self._open = True


class Other(Second):
    """Another device, with the same credentials as the first."""

    def __init__(self, root: Path, first: Device) -> None:
        log_in(Home.below(root / "home"), [cloud.url for cloud in first.volume.config.clouds])
        super().__init__(root, first)


def log_in(home: Home, urls: list[str]) -> None:
    home.prepare()
    for url in urls:
        CredentialStore(home.credentials).add(url, ORDINARY)


@pytest.fixture(params=CODES, ids=lambda code: f"f{code[0]}k{code[1]}")
def urls(request: pytest.FixtureRequest, server: Server) -> list[str]:
    """Of buckets that keep what is deleted."""
    urls = [server.url() for _ in range(request.param[2])]
    for url in urls:
        store = S3Store(url, FixedCredentials(server.secrets))
        store.initialise()
        store.versions.keep(30)
        allow(server, url, DELETES)
    return urls


@pytest.fixture
def first(request: pytest.FixtureRequest, tmp_path: Path, urls: list[str]) -> Iterator[First]:
    f, k, _ = request.node.callspec.params["urls"]
    one = First(tmp_path / "first", urls, f, k)
    yield one
    one.close()


def wait_for(device: Device, *names: str) -> None:
    """Wait until a device has heard of files."""
    fs = device.volume.fs

    def heard() -> bool:
        with fs.lock:
            return all(fs.lookup(ROOT_INO, name.encode()) is not None for name in names)

    assert device.volume.signals.wait_until(heard, time.monotonic() + PATIENCE)


def everything(store: S3Store) -> list[str]:
    names: list[str] = []
    while (page := store.list("", after=names[-1] if names else "")).entries:
        names += page.names
    return names


def ransack(urls: list[str], *, sparing: str = "") -> int:
    """Delete every other object of all clouds and overwrite the others, again and again; how many.

    Tries to destroy what clouds keep of them, which they refuse.
    """
    count = 0
    for url in urls:
        store = S3Store(url, FixedCredentials(ORDINARY))
        for number, name in enumerate(everything(store)):
            if sparing and name.startswith(sparing):
                continue
            count += 1
            if number % 2:
                store.put(name, b"nothing")
                store.put(name, os.urandom(100))
            else:
                store.delete(name)
            with pytest.raises(AuthError):
                store.versions.destroy(name)
        with pytest.raises(AuthError):
            store.versions.stop_keeping()
        store.close()
    return count


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def repair(device: Device) -> dict[str, Any]:
    return device.volume.maintenance.repair(quiet).as_dict()


def scrub(device: Device) -> dict[str, Any]:
    return device.volume.maintenance.scrub(100.0, quiet).as_dict()


def drop_cache(device: Device) -> None:
    facts = device.volume.drop_cache()
    assert not facts["kept_bytes"]


def test_all_that_a_thief_deletes_and_overwrites_comes_back(
    tmp_path: Path, urls: list[str], first: First
) -> None:
    first.write("small", SMALL)
    first.write("big", BIG)
    first.sync()
    thief, away = Other(tmp_path / "thief", first), Other(tmp_path / "away", first)
    wait_for(away, "small", "big")
    away.sync()
    away.close()
    thief.write("of the thief", SMALL[::-1])
    thief.sync()
    stolen = thief.volume.updates.device.hex()
    thief.close()
    wait_for(first, "of the thief")
    first.sync()
    drop_cache(first)
    assert ransack(urls) > 10

    first.volume.sharing.membership.remove(stolen)
    first.volume.committer.commit_now()
    assert first.read("small") == SMALL  # before anything is put back
    found = repair(first)
    assert found["failed"] == 0, found["problems"]
    assert found["repaired"] > 10
    assert scrub(first)["wrong"] == 0
    assert repair(first)["repaired"] == 0
    first.sync()
    drop_cache(first)
    assert (first.read("small"), first.read("big")) == (SMALL, BIG)
    assert first.read("of the thief") == SMALL[::-1]

    away.reopen()
    wait_for(away, "of the thief")
    assert (away.read("small"), away.read("big")) == (SMALL, BIG)
    assert away.read("of the thief") == SMALL[::-1]
    away.close()
