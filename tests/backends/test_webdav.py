"""The WebDAV driver: the contract, and what is particular to WebDAV."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path

import pytest

from backends.body import Timing
from backends.errors import CorruptError, MissingRootError, TransientError
from backends.store import Store
from backends.webdav import WebDavStore
from tests.backends.conformance import Conformance
from tests.backends.faulty_server import Answer, AnsweringServer
from tests.backends.network_conformance import HttpConformance
from tests.backends.servers import FixedCredentials, Server


class TestWebDavStore(HttpConformance, Conformance):
    """The contract holds."""

    many_keys = 1005  # more than a page; this server is slow
    clock_skew = Answer(401, {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"})

    @pytest.fixture
    def server(self, webdav_server: Server) -> Server:
        return webdav_server

    def open(self, url: str, secrets: Mapping[str, str], timing: Timing | None = None) -> Store:
        return WebDavStore(url, FixedCredentials(secrets), timing)


@pytest.fixture
def url(webdav_server: Server) -> str:
    url = webdav_server.url()
    WebDavStore(url, FixedCredentials(webdav_server.secrets)).initialise()
    return url


def folder_of(server: Server, url: str) -> Path:
    """The folder on the server's disk."""
    arguments = server.process.args
    assert isinstance(arguments, list)
    return Path(arguments[-2]) / url.rpartition("/")[2]


def test_an_empty_mount_point_is_not_taken_for_the_cloud(webdav_server: Server, url: str) -> None:
    store = WebDavStore(url, FixedCredentials(webdav_server.secrets))
    store.put("dir/object", b"data")
    (folder_of(webdav_server, url) / ".hybrisfs").rmdir()
    operations: list[Callable[[], object]] = [
        lambda: store.put("dir/object", b"data"),
        lambda: store.put_if_absent("new", b"data"),
        lambda: store.get("missing", limit=1),
        lambda: store.list(""),
    ]
    for operation in operations:
        with pytest.raises(MissingRootError, match="mounted"):
            operation()


def test_a_claim_of_a_dead_writer_expires(webdav_server: Server, url: str) -> None:
    store = WebDavStore(url, FixedCredentials(webdav_server.secrets))
    spool = folder_of(webdav_server, url) / ".hybrisfs"
    claim = spool / f"claim-{blake2b(b'object', digest_size=16).hexdigest()}"
    claim.mkdir()
    then = claim.stat().st_mtime - 120
    os.utime(claim, (then, then))
    assert store.put_if_absent("object", b"data") is True
    assert store.put_if_absent("object", b"more") is False
    assert list(spool.iterdir()) == []


def test_a_claim_of_a_living_writer_is_respected(webdav_server: Server, url: str) -> None:
    store = WebDavStore(url, FixedCredentials(webdav_server.secrets), Timing(another_writer=0.2))
    spool = folder_of(webdav_server, url) / ".hybrisfs"
    claim = spool / f"claim-{blake2b(b'object', digest_size=16).hexdigest()}"
    claim.mkdir()
    with pytest.raises(TransientError, match="another writer"):
        store.put_if_absent("object", b"data")
    assert list(spool.iterdir()) == [claim]


def test_dead_writers_are_swept(webdav_server: Server, url: str) -> None:
    spool = folder_of(webdav_server, url) / ".hybrisfs"
    for name, age in (("old", 25 * 3600), ("young", 23 * 3600)):
        (spool / name).write_bytes(b"half")
        then = (spool / name).stat().st_mtime - age
        os.utime(spool / name, (then, then))
    WebDavStore(url, FixedCredentials(webdav_server.secrets)).put("object", b"")
    assert [path.name for path in spool.iterdir()] == ["young"]


def test_folders_above_are_made(webdav_server: Server) -> None:
    store = WebDavStore(webdav_server.url() + "/a/b/c", FixedCredentials(webdav_server.secrets))
    store.initialise()
    store.put("object", b"data")
    assert store.get("object", limit=4) == b"data"


def test_a_server_that_ignores_ranges(webdav_server: Server) -> None:
    with AnsweringServer(Answer(200, body=b"abcdef")) as server:
        url = webdav_server.url(authority=server.authority)
        store = WebDavStore(url, FixedCredentials(webdav_server.secrets))
        assert store.get_range("object", 0, 6) == b"abcdef"
        for offset in (0, 2):
            with pytest.raises(CorruptError):
                store.get_range("object", offset, 3)
