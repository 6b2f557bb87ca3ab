"""Older versions of blobs: before a stand-in for the service, and an emulator that keeps none."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from backends.azure import AzureStore
from backends.errors import AuthError, CorruptError, MissingError, OversizeError, PermanentError
from backends.versions import MAX_VERSIONS, versions_of
from hybrisfs.environment import SYSTEM
from hybrisfs.stores.retention import try_retention
from tests.backends.fake_azure import FakeAzure
from tests.backends.faulty_server import AnsweringServer
from tests.backends.servers import FixedCredentials, Server

KEY = {"account_key": base64.b64encode(b"0123456789abcdef").decode()}


@pytest.fixture
def service() -> FakeAzure:
    return FakeAzure()


@pytest.fixture
def store(service: FakeAzure) -> Iterator[AzureStore]:
    with AnsweringServer(service) as server:
        url = f"az://box/f?account=testing&endpoint=http://{server.authority}/testing"
        store = AzureStore(url, FixedCredentials(KEY))
        yield store
        store.close()


def test_what_was_overwritten_and_deleted_can_be_read(store: AzureStore) -> None:
    assert versions_of(store) is store.versions
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
    assert store.versions.get_range("a", first.id, 1, 3) == b"irs"
    assert store.versions.get_range("a", first.id, 1, 0) == b""
    with pytest.raises(CorruptError):
        store.versions.get_range("a", first.id, 1, 9)
    with pytest.raises(MissingError):
        store.versions.get("a", "v99999", limit=10)


def test_of_many_versions_the_newest_and_the_oldest_are_told(store: AzureStore) -> None:
    for number in range(MAX_VERSIONS + 4):
        store.put("a", b"%d" % number)
    listed = [store.versions.get("a", one.id, limit=10) for one in store.versions.of("a")]
    assert (listed[0], listed[-1], len(listed)) == (b"%d" % (MAX_VERSIONS + 3), b"0", MAX_VERSIONS)


def test_only_who_may_destroys_versions(service: FakeAzure, store: AzureStore) -> None:
    found = try_retention(store, SYSTEM)
    assert (found.keeps, found.days, found.destructible, found.deletes) == (True, None, True, True)
    assert "tells administrators only" in found.note
    assert not any(service.kept.values())
    service.lasting = True
    found = try_retention(store, SYSTEM)
    assert (found.keeps, found.destructible) == (True, False)
    with pytest.raises(AuthError):
        store.versions.destroy(list(service.kept)[-1].removeprefix("f/"))


def test_the_command_for_an_administrator_is_told(store: AzureStore) -> None:
    with pytest.raises(PermanentError) as refused:
        store.versions.keep(30)
    assert "--account-name testing --enable-versioning true" in refused.value.advice
    assert "30 days" in refused.value.advice
    with pytest.raises(PermanentError, match="--enable-versioning false"):
        store.versions.stop_keeping()


def test_an_account_that_keeps_nothing(azure_server: Server) -> None:
    store = AzureStore(azure_server.url(), FixedCredentials(azure_server.secrets))
    store.initialise()
    found = try_retention(store, SYSTEM)
    assert (found.keeps, found.deletes) == (False, True)
    store.close()
