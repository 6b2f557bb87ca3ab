"""Older generations of objects in a GCS bucket, before a stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.errors import AuthError, CorruptError, MissingError, OversizeError
from backends.gcs import GcsStore
from backends.versions import MAX_VERSIONS, Policy, versions_of
from hybrisfs.environment import SYSTEM
from hybrisfs.stores.retention import try_retention
from tests.backends.fake_gcs import FakeGcs
from tests.backends.faulty_server import AnsweringServer
from tests.backends.servers import FixedCredentials


@pytest.fixture
def service() -> FakeGcs:
    return FakeGcs()


@pytest.fixture
def store(service: FakeGcs) -> Iterator[GcsStore]:
    with AnsweringServer(service) as server:
        url = f"gs://bucket/f?project=testing&endpoint=http://{server.authority}"
        store = GcsStore(url, FixedCredentials())
        yield store
        store.close()


def test_what_was_overwritten_and_deleted_can_be_read(store: GcsStore) -> None:
    assert versions_of(store) is store.versions
    store.versions.keep(30)
    store.put("a", b"first")
    store.put("a", b"second!")
    store.put("ab", b"another")
    store.delete("a")
    with pytest.raises(MissingError):
        store.get("a", limit=10)
    assert store.versions.names("a") == ("a", "ab")
    second, first = store.versions.of("a")
    assert (second.size, first.size) == (7, 5)
    assert store.versions.get("a", first.id, limit=10) == b"first"
    with pytest.raises(OversizeError):
        store.versions.get("a", second.id, limit=6)
    assert store.versions.get_range("a", first.id, 0, 5) == b"first"
    assert store.versions.get_range("a", first.id, 0, 0) == b""
    with pytest.raises(CorruptError):
        store.versions.get_range("a", first.id, 0, 9)
    with pytest.raises(MissingError):
        store.versions.get("a", "999", limit=10)


def test_of_many_generations_the_newest_and_the_oldest_are_told(store: GcsStore) -> None:
    store.versions.keep(30)
    for number in range(MAX_VERSIONS + 4):
        store.put("a", b"%d" % number)
    listed = [store.versions.get("a", one.id, limit=10) for one in store.versions.of("a")]
    assert (listed[0], listed[-1], len(listed)) == (b"%d" % (MAX_VERSIONS + 3), b"0", MAX_VERSIONS)


def test_a_rule_ends_what_is_kept_and_rules_of_others_stay(service: FakeGcs, store: GcsStore) -> None:
    others = {
        "action": {"type": "Delete"},
        "condition": {"daysSinceNoncurrentTime": 2, "matchesPrefix": ["x/"]},
    }
    service.bucket["lifecycle"] = {"rule": [others]}
    assert store.versions.policy() == Policy(False)
    assert store.versions.may_change() is None
    assert store.versions.keep(30) == ""
    assert store.versions.policy() == Policy(True, 30)
    store.versions.keep(14)
    assert store.versions.policy() == Policy(True, 14)
    rules = service.bucket["lifecycle"]["rule"]
    assert rules[0] == others
    assert rules[1]["condition"] == {"daysSinceNoncurrentTime": 14, "isLive": False, "matchesPrefix": ["f/"]}
    assert len(rules) == 2
    store.versions.stop_keeping()
    assert store.versions.policy() == Policy(False)


def test_rights_that_are_lacking_are_named(service: FakeGcs, store: GcsStore) -> None:
    store.versions.keep(30)
    service.denied = {"storage.buckets.update"}
    assert store.versions.may_change() is False
    with pytest.raises(AuthError) as refused:
        store.versions.keep(30)
    assert "storage.buckets.update" in refused.value.reason
    assert "gcloud storage buckets update gs://bucket --versioning" in refused.value.advice
    service.denied = {"storage.buckets.get"}
    assert store.versions.policy().on is None


def test_it_is_proven_by_a_try(service: FakeGcs, store: GcsStore) -> None:
    found = try_retention(store, SYSTEM)
    assert (found.keeps, found.deletes) == (False, True)
    store.versions.keep(30)
    found = try_retention(store, SYSTEM)
    assert (found.keeps, found.days, found.destructible, found.deletes) == (True, 30, True, True)
    assert not any(service.kept.values())
    service.soft_delete_days = 7
    assert "last 7 days (soft delete)" in try_retention(store, SYSTEM).note
