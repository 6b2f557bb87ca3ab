"""What the daemon tells programs of values, beside the values: attributes, and when they were written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.api.key_value import (
    FoundKey,
    KvAppendRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvPageRequest,
    KvPutRequest,
    KvReplaceRequest,
    KvStatRequest,
    KvTputRequest,
    Write,
)
from hybrisfs.api.objects import ObjectAttributes, encode
from hybrisfs.client import Client
from hybrisfs.daemon.service import Daemon
from hybrisfs.errors import HybrisError, UnavailableError, UsageError
from hybrisfs.home import Home
from tests.cli.conftest import served, volumes
from tests.daemon.conftest import home
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import rig_of
from tests.kv.rig import CONTAINER, Rig

__all__ = ["home", "served", "volumes"]

PHOTOS = "photos"


@pytest.fixture
def rig(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Rig]:
    with rig_of(PHOTOS, served, volumes, tmp_path) as rig:
        yield rig


@pytest.fixture
def client(rig: Rig, home: Home) -> Iterator[Client]:
    with Client.connect(home, start=False) as client:
        yield client


def page(client: Client, **named: Any) -> tuple[list[FoundKey], bool]:
    found = client.call(KvPageRequest(PHOTOS, CONTAINER, **named))
    return found.keys, found.more


def test_attributes_come_back_with_the_value(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"value")
    client.call(KvPutRequest(PHOTOS, CONTAINER, "one", str(file), attributes=b"\x00\xff"))
    writes = [Write(CONTAINER, "two", str(file), b"2"), Write(CONTAINER, "three", str(file))]
    client.call(KvTputRequest(PHOTOS, writes))
    stat = client.call(KvStatRequest(PHOTOS, CONTAINER, "one"))
    assert (stat.size, stat.attributes) == (5, b"\x00\xff")
    assert client.call(KvGetRequest(PHOTOS, CONTAINER, "one", str(file))) == stat
    keys, more = page(client)
    assert [(one.key, one.attributes) for one in keys] == [
        ("one", b"\x00\xff"),
        ("three", b""),
        ("two", b"2"),
    ]
    assert not more
    assert stat.written == keys[0].written is not None


def test_keys_come_in_pages(client: Client, rig: Rig) -> None:
    for key in ("a", "b1", "b2", "b3", "c"):
        rig.put(key, b"x")
    keys, more = page(client, prefix="b", limit=2)
    assert ([one.key for one in keys], more) == (["b1", "b2"], True)
    keys, more = page(client, prefix="b", after="b2", limit=2)
    assert ([one.key for one in keys], more) == (["b3"], False)


def test_what_is_too_long_is_refused(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.touch()
    with pytest.raises(UsageError):
        client.call(KvPutRequest(PHOTOS, CONTAINER, "one", str(file), attributes=bytes(4097)))
    with pytest.raises(UsageError):
        page(client, limit=201)


def test_a_list_of_parts_is_not_taken_for_the_object(client: Client, rig: Rig, tmp_path: Path) -> None:
    """Nobody has written these bytes."""
    file = tmp_path / "value"
    file.write_bytes(b"list")
    attributes = encode(ObjectAttributes("0" * 32 + "-2", {}, {}, "1" * 32, 10))
    client.call(KvPutRequest(PHOTOS, CONTAINER, "one", str(file), attributes=attributes))
    file.write_bytes(b"before")
    for request in (
        KvGetRequest(PHOTOS, CONTAINER, "one", str(file)),
        KvAppendRequest(PHOTOS, CONTAINER, "one", str(file)),
        KvReplaceRequest(PHOTOS, CONTAINER, "one", 0, str(file)),
    ):
        with pytest.raises(UsageError, match="box/one is an object in parts"):
            client.call(request)
    assert file.read_bytes() == b"before"
    client.call(KvGetRequest(PHOTOS, CONTAINER, "one", str(file), list_of_parts=True))
    assert file.read_bytes()[:4] == b"list"
    assert client.call(KvDeleteRequest(PHOTOS, CONTAINER, "one")).existed


def test_the_reason_of_a_failure_is_told(client: Client, rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(HybrisError) as missing:
        client.call(KvStatRequest(PHOTOS, CONTAINER, "none"))
    assert missing.value.reported == "no such key"
    file = tmp_path / "value"
    file.touch()
    rig.cluster.behave("down")
    with pytest.raises(UnavailableError):
        client.call(KvPutRequest(PHOTOS, CONTAINER, "one", str(file)))
