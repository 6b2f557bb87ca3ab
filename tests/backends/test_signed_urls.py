"""URLs by which everybody who has them reads one object for a while."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from backends.azure import AzureStore
from backends.bucket import BucketStore
from backends.errors import AuthError
from backends.file import FileStore
from backends.gcs import GcsStore
from backends.s3 import S3Store
from backends.store import LONGEST_SIGNED, StoreWrapper, can_sign, signed_url
from tests.backends.servers import FixedCredentials, Server

_NAME = "parcels/a/page"
_TYPE = "text/html; charset=utf-8"


@pytest.fixture(params=["s3", "azure", "gcs"])
def store(request: pytest.FixtureRequest) -> Iterator[BucketStore]:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    kinds: dict[str, type[BucketStore]] = {"s3": S3Store, "azure": AzureStore, "gcs": GcsStore}
    secrets = {"service_account": _account()} if request.param == "gcs" else server.secrets
    store = kinds[request.param](server.url(), FixedCredentials(server.secrets))
    store.initialise()
    store.put(_NAME, b"<p>content")
    store.put("parcels/b", b"another")
    if request.param != "gcs":  # the emulator has nobody who gives tokens for a key
        yield store
    else:
        yield GcsStore(store.url, FixedCredentials(secrets))
    store.close()


def _account() -> str:
    """A key of a service account, as Google writes it."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "tests@testing.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "token_uri": "https://oauth2.invalid/token",
    }
    return json.dumps(account)


def test_everybody_can_read_this_object_and_no_other(store: BucketStore) -> None:
    assert can_sign(store)
    url = signed_url(store, _NAME, 60, _TYPE)
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.read() == b"<p>content"
        guarded = not isinstance(store, GcsStore)  # its emulator lets everybody in
        assert answer.headers["content-type"] == _TYPE or not guarded
    if guarded:
        for other in (url.replace(_NAME, "parcels/b"), url.partition("?")[0]):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(other, timeout=30)


def test_it_ends(store: BucketStore) -> None:
    said = parse_qs(urlsplit(signed_url(store, _NAME, 86400, _TYPE)).query)
    if isinstance(store, AzureStore):
        later = parse_qs(urlsplit(signed_url(store, _NAME, 2 * 86400, _TYPE)).query)
        assert said["se"][0] < later["se"][0] and said["sp"] == ["r"] and said["rsct"] == [_TYPE]
    else:
        kind = "X-Amz" if isinstance(store, S3Store) else "X-Goog"
        assert said[f"{kind}-Expires"] == ["86400"] and said["response-content-type"] == [_TYPE]
    for seconds in (0, LONGEST_SIGNED + 1):
        with pytest.raises(ValueError):
            signed_url(store, _NAME, seconds, _TYPE)


def test_stores_around_a_store_pass_it_on(store: BucketStore) -> None:
    around = StoreWrapper(store)
    assert can_sign(around)
    assert (
        signed_url(around, _NAME, 60, _TYPE).partition("?")[0]
        == signed_url(store, _NAME, 60, _TYPE).partition("?")[0]
    )


def test_who_has_no_key_cannot_sign(azure_server: Server, gcs_server: Server) -> None:
    for store in (
        AzureStore(azure_server.url(), FixedCredentials({"sas_token": "sv=1"})),
        GcsStore(gcs_server.url(), FixedCredentials({})),
        GcsStore(gcs_server.url(), FixedCredentials({"token": "t"})),
    ):
        with pytest.raises(AuthError, match="can sign links"):
            signed_url(store, _NAME, 60, _TYPE)


def test_a_folder_cannot(tmp_path: Path) -> None:
    assert not can_sign(FileStore(tmp_path.as_uri()))
