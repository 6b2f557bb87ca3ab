"""Clouds that keep what is deleted: switched on by a command, proven by a try, on a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.credentials import CredentialStore
from backends.s3 import S3Store
from hybrisfs.api.clouds import CloudStatus, Retention
from hybrisfs.api.request import message_of
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.stores.retention import Retentions, try_retention
from hybrisfs.stores.tryout import try_out
from tests.backends import servers
from tests.backends.buckets import DELETES, WRITES, allow, client
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.volume.device import Device


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url()


@pytest.fixture
def admin(server: Server, url: str) -> S3Store:
    store = S3Store(url, FixedCredentials(server.secrets))
    store.initialise()
    return store


@pytest.fixture
def ordinary(url: str) -> S3Store:
    return S3Store(url, FixedCredentials(ORDINARY))


def test_a_bucket_that_keeps_nothing(admin: S3Store) -> None:
    found = try_retention(admin, SYSTEM)
    assert (found.keeps, found.days, found.destructible, found.deletes) == (False, None, None, True)
    assert not admin.list("").entries


def test_an_administrator_could_destroy_what_is_kept(admin: S3Store) -> None:
    admin.versions.keep(30)
    found = try_retention(admin, SYSTEM)
    assert (found.keeps, found.destructible, found.deletes) == (True, True, True)
    assert found.days is None  # this server has no rules that would end it
    assert "no rule ends that" in found.note
    assert not client_versions(admin)


def client_versions(store: S3Store) -> list[str]:
    """All versions that the bucket has, of whatever name."""
    answer = store.versions._client().list_object_versions(Bucket=store._bucket)
    return [one["Key"] for one in answer.get("Versions", ())]


def test_an_ordinary_device_could_not(server: Server, url: str, admin: S3Store, ordinary: S3Store) -> None:
    admin.versions.keep(30)
    allow(server, url, DELETES)
    found = try_retention(ordinary, SYSTEM)
    assert (found.keeps, found.destructible, found.deletes) == (True, False, True)


def test_one_that_may_not_delete_leaves_a_small_object(
    server: Server, url: str, admin: S3Store, ordinary: S3Store
) -> None:
    admin.versions.keep(30)
    allow(server, url, WRITES)
    found = try_retention(ordinary, SYSTEM)
    assert (found.keeps, found.destructible, found.deletes) == (True, False, False)
    assert [one.size < 20 for one in ordinary.list("").entries] == [True]
    assert set(try_out(ordinary, SYSTEM)) == {"put", "get", "get a part of"}
    assert min(one.size for one in ordinary.list("").entries) == 0


def test_one_that_may_not_read_older_versions_does_not_know(
    server: Server, url: str, admin: S3Store, ordinary: S3Store
) -> None:
    admin.versions.keep(30)
    allow(server, url, ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], ["s3:ListBucket"])
    found = try_retention(ordinary, SYSTEM)
    assert found.keeps is None
    assert "may not read older versions" in found.note


def test_a_lock_protects_what_is_young(server: Server, url: str) -> None:
    bucket = url.partition("://")[2].partition("?")[0]
    client(server, url).create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}
    client(server, url).put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    found = try_retention(S3Store(url, FixedCredentials(server.secrets)), SYSTEM)
    assert (found.keeps, found.destructible) == (True, True)
    assert "written in the last 3 days" in found.note
    assert "older than the cloud's lock can be destroyed" in found.note


def test_cloud_add_and_retain(tmp_path: Path, server: Server, url: str, device: Device) -> None:
    CredentialStore(device.home.credentials).add(url, server.secrets)
    clouds = device.volume.clouds
    added = clouds.add(url, "s3", 30)
    assert added.retention and added.retention.keeps
    assert "until somebody deletes it" in str(added.note)
    assert [one.retention for one in clouds.all() if one.name == "s3"] == [added.retention]
    assert [one.retention for one in clouds.all() if one.name != "s3"] == [None] * 3
    device.reopen()
    clouds = device.volume.clouds
    shown = {one.name: one.retention for one in status_clouds(device)}
    assert shown["s3"] == added.retention
    off = clouds.retain("s3", 0).retention
    assert off is not None and off.keeps is False
    tested = clouds.test("s3").retention
    assert tested is not None and replace(tested, tried=0) == replace(off, tried=0)


def status_clouds(device: Device) -> list[CloudStatus]:
    return device.volume.status().clouds


def test_what_cannot_be_kept_is_refused_before_anything_is_changed(
    server: Server, url: str, device: Device, tmp_path: Path
) -> None:
    clouds = device.volume.clouds
    with pytest.raises(UsageError, match="keeps nothing of what is deleted: a folder"):
        clouds.add((tmp_path / "more").as_uri(), "more", 30)
    with pytest.raises(UsageError, match="keeps nothing"):
        clouds.retain("cloud-1", 30)
    CredentialStore(device.home.credentials).add(url, ORDINARY)
    S3Store(url, FixedCredentials(server.secrets)).initialise()
    allow(server, url, DELETES)
    with pytest.raises(HybrisError, match="s3:PutBucketVersioning") as refused:
        clouds.add(url, "s3", 30)
    assert "aws s3api put-bucket-versioning" in refused.value.advice
    with pytest.raises(UsageError, match="1 to 36500 days"):
        clouds.retain("cloud-1", -1)
    assert len(clouds.all()) == 3


def test_the_record_of_what_was_tried(tmp_path: Path) -> None:
    found = Retention(True, 30, False, True, "", 7)
    Retentions(tmp_path, SYSTEM).note("s3://b", found)
    assert Retentions(tmp_path, SYSTEM).get("s3://b") == found
    assert Retentions(tmp_path, SYSTEM).get("s3://c") is None


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"null",
        b'{"version": 2, "clouds": {}}',
        b'{"version": 1, "clouds": []}',
        b'{"version": 1, "clouds": {"s3://b": {"keeps": 1}}}',
        json.dumps(
            {
                "version": 1,
                "clouds": {"s3://b": {**message_of(Retention(True, 30, False, True, "", 7)), "days": "x"}},
            }
        ).encode(),
        json.dumps(
            {
                "version": 1,
                "clouds": {"s3://b": {**message_of(Retention(True, 3, False, True, "", 7)), "keeps": "x"}},
            }
        ).encode(),
    ],
)
def test_a_damaged_record_is_none(tmp_path: Path, document: bytes) -> None:
    (tmp_path / "retention.json").write_bytes(document)
    assert Retentions(tmp_path, SYSTEM).get("s3://b") is None
