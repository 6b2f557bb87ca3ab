"""A stolen device deletes and overwrites all that its credentials let it, on clouds that keep versions.

The clouds are buckets of a real S3 server. All devices have the credentials of an ordinary device: they may
delete objects, but no versions of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.errors import AuthError
from backends.s3 import S3Store
from backends.versions import MAX_VERSIONS
from hybrisfs.admit.recover import recover_volume
from hybrisfs.api.maintenance import Repair, Scrub
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from hybrisfs.recovery.sealed_key import Cost
from hybrisfs.stores.own_places import MARKER_NAME, marker
from hybrisfs.stores.tryout import mark_place
from sync import head_name
from tests.backends import servers
from tests.backends.buckets import DELETES
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.volume.bucket_device import First, Other, everything, keeping_buckets, log_in, wait_for
from tests.volume.device import Device
from tests.volume.recovery_rig import PASSPHRASE

CODES = [(1, 1, 3), (1, 2, 4)]  # f, k, clouds
SMALL, BIG = os.urandom(3000), os.urandom(3 << 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture(params=CODES, ids=lambda code: f"f{code[0]}k{code[1]}")
def urls(request: pytest.FixtureRequest, server: Server) -> list[str]:
    """Of buckets that keep what is deleted."""
    return keeping_buckets(server, request.param[2], DELETES)


@pytest.fixture
def first(request: pytest.FixtureRequest, tmp_path: Path, urls: list[str]) -> Iterator[First]:
    f, k, _ = request.node.callspec.params["urls"]
    one = First(tmp_path / "first", urls, f, k)
    yield one
    one.close()


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
                for size in range(MAX_VERSIONS):
                    store.put(name, bytes(size))
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


def repair(device: Device) -> Repair:
    return device.volume.maintenance.repair(quiet).facts()


def scrub(device: Device) -> Scrub:
    return device.volume.maintenance.scrub(100.0, quiet).facts()


def drop_cache(device: Device) -> None:
    facts = device.volume.drop_cache()
    assert not facts.kept_bytes


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
    stolen = thief.volume.sharing.device.hex()
    thief.close()
    wait_for(first, "of the thief")
    first.sync()
    drop_cache(first)
    assert ransack(urls) > 10

    first.volume.sharing.membership.remove(stolen)
    first.volume.committer.commit_now()
    assert first.read("small") == SMALL  # before anything is put back
    found = repair(first)
    assert found.failed == 0, found.problems
    assert found.repaired > 10
    assert scrub(first).wrong == 0
    assert repair(first).repaired == 0
    first.sync()
    drop_cache(first)
    assert (first.read("small"), first.read("big")) == (SMALL, BIG)
    assert first.read("of the thief") == SMALL[::-1]

    away.reopen()
    wait_for(away, "of the thief")
    assert (away.read("small"), away.read("big")) == (SMALL, BIG)
    assert away.read("of the thief") == SMALL[::-1]
    away.close()


def test_a_head_that_was_rolled_back_is_not_believed(tmp_path: Path, urls: list[str], first: First) -> None:
    """A thief puts older bytes of another device's head in the place of the present ones."""
    first.write("old", SMALL)
    first.sync()
    other = Other(tmp_path / "other", first)
    wait_for(other, "old")
    stores = [S3Store(url, FixedCredentials(ORDINARY)) for url in urls]
    head = head_name(first.volume.sharing.device)
    before = [store.get(head, limit=1 << 20) for store in stores]
    first.write("new", SMALL)
    first.sync()
    wait_for(other, "new")
    first.close()
    for store, data in zip(stores, before, strict=True):
        store.put(head, data)
    found = repair(other)
    assert found.failed == 0, found.problems
    for store, data in zip(stores, before, strict=True):
        assert store.get(head, limit=1 << 20) != data
        store.close()
    other.close()


def test_a_mark_of_another_volume_is_replaced_when_a_person_says_so(
    urls: list[str], first: First, server: Server
) -> None:
    first.write("small", SMALL)
    first.sync()
    thief = S3Store(urls[0], FixedCredentials(ORDINARY))
    thief.put(MARKER_NAME, marker(bytes(range(16))))
    assert repair(first).failed == 1
    with pytest.raises(UsageError, match="holds another volume"):
        mark_place(thief, first.volume.config.id)
    first.volume.clouds.adopt(first.volume.config.clouds[0].name)
    assert repair(first).failed == 0
    assert scrub(first).wrong == 0
    thief.close()


def test_a_place_that_never_was_ours_is_not_taken(urls: list[str], first: First, server: Server) -> None:
    elsewhere = keeping_buckets(server, 1, DELETES)[0]
    store = S3Store(elsewhere, FixedCredentials(ORDINARY))
    store.put(MARKER_NAME, marker(bytes(range(16))))
    with pytest.raises(UsageError, match="holds another volume"):
        mark_place(store, first.volume.config.id, regain=True)
    store.close()


def test_the_only_device_is_recovered_from_what_clouds_keep(
    tmp_path: Path, urls: list[str], first: First
) -> None:
    first.volume.recovery.cost = Cost(1, 8)
    first.write("small", SMALL)
    first.write("big", BIG)
    first.sync()
    first.volume.recovery.make(PASSPHRASE)
    first.sync()
    first.close()
    ransack(urls)
    home = Home.below(tmp_path / "new" / "home")
    log_in(home, urls)
    recover_volume(home, urls, PASSPHRASE, None, "new")
    new = Device.found(tmp_path / "new" / "home", [])
    try:
        assert repair(new).failed == 0
        new.volume.sharing.look_after()
        wait_for(new, "small", "big")
        assert (new.read("small"), new.read("big")) == (SMALL, BIG)
        assert repair(new).failed == 0
        assert scrub(new).wrong == 0
    finally:
        new.close()
