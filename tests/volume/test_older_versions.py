"""Clouds that keep what is deleted and overwritten: scrub says what they keep, and repair brings it back.

The clouds are buckets of a real S3 server.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.s3 import S3Store
from tests.backends import servers
from tests.backends.buckets import DELETES
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.volume.bucket_device import First, Other, everything, keeping_buckets, wait_for
from tests.volume.test_stolen_device import repair, scrub

LARGE = os.urandom(9 << 17)  # above the threshold of erasure coding


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture
def urls(server: Server) -> list[str]:
    return keeping_buckets(server, 4, DELETES)


@pytest.fixture
def first(tmp_path: Path, urls: list[str]) -> Iterator[First]:
    one = First(tmp_path / "first", urls, 1, 2)
    yield one
    one.close()


def ravage(urls: list[str], *prefixes: str) -> None:
    """Delete every other object whose name begins so, and overwrite the others."""
    for url in urls:
        store = S3Store(url, FixedCredentials(ORDINARY))
        names = [name for prefix in prefixes for name in everything(store, prefix)]
        for number, name in enumerate(names):
            if number % 2:
                store.put(name, b"nonsense")
            else:
                store.delete(name)
        store.close()


def test_scrub_names_what_clouds_keep_and_repair_brings_it_back(
    tmp_path: Path, urls: list[str], first: First
) -> None:
    first.write("file", LARGE)
    values = first.volume.key_values.open()
    values.create_container("box")
    values.put("box", "small", b"small value")
    values.put("box", "large", LARGE)
    first.sync()
    other = Other(tmp_path / "other", first)
    wait_for(other, "file")
    other.write("of the other", LARGE[::-1])
    other.sync()
    author = other.volume.sharing.device.hex()
    other.close()
    wait_for(first, "of the other")
    first.sync()
    assert scrub(first).wrong == 0
    ravage(urls, "packs/", "kv/", "log/", f"heads/{author}")

    found = scrub(first)
    assert found.wrong == found.older == len(found.problems) > 20
    assert all(one.older for one in found.problems)
    kinds = Counter(str(one.what).removeprefix("the value of ").split("/")[0] for one in found.problems)
    assert {"packs", "log", "heads", "box"} <= kinds.keys(), kinds
    assert any(f"log/{author}/" in str(one.what) for one in found.problems)

    done = repair(first)
    assert done.failed == 0, done.problems
    assert scrub(first).wrong == 0
    values._cache._copies.clear()
    assert values.get("box", "small").value == b"small value"
    assert values.get("box", "large").value == LARGE


def test_what_no_cloud_keeps_is_not_promised(server: Server, tmp_path: Path) -> None:
    urls = [server.url() for _ in range(4)]
    plain = First(tmp_path / "plain", urls, 1, 2, server.secrets)
    plain.write("file", LARGE)
    plain.sync()
    for url in urls:
        store = S3Store(url, FixedCredentials(server.secrets))
        for name in everything(store, "packs/")[:1]:
            store.delete(name)
        store.close()
    found = scrub(plain)
    assert (found.wrong > 0, found.older) == (True, 0)
    assert not any(one.older for one in found.problems)
    plain.close()
