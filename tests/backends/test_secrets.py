"""The table of secrets: what people are asked for is what the drivers take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.credentials import CredentialStore
from backends.errors import AuthError, StoreError
from backends.registry import SCHEMES, kind_of, open_store, secrets_of

URLS = {
    "az": "az://container/folder?account=me&endpoint=http://127.0.0.1:9",
    "gs": "gs://bucket/folder?endpoint=http://127.0.0.1:9",
    "relay": f"relay://127.0.0.1:9/space?pin={64 * '0'}",
    "s3": "s3://bucket/folder?endpoint=http://127.0.0.1:9",
    "sftp": "sftp://me@127.0.0.1:9/folder",
    "webdav": "webdav://127.0.0.1:9/folder",
    "webdavs": "webdavs://127.0.0.1:9/folder",
}


def test_every_kind_of_cloud_is_there() -> None:
    assert URLS.keys() == {*SCHEMES} - {"file", "rclone"}
    assert secrets_of("file:///folder") == ()
    assert secrets_of("rclone:remote:folder") == ()
    assert secrets_of("gopher://host") == ()


@pytest.mark.parametrize("url", URLS.values(), ids=URLS.keys())
def test_a_driver_takes_the_secrets_of_the_table_and_no_others(url: str, tmp_path: Path) -> None:
    def failure(values: dict[str, str]) -> StoreError:
        file = tmp_path / "credentials.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"version": 1, "clouds": {url: values}}))
        store = open_store(url, CredentialStore(file, keyring=False))
        with pytest.raises(StoreError) as caught:
            store.get("object", limit=1)
        store.close()
        return caught.value

    kind = kind_of(url)
    assert kind is not None
    taken = dict.fromkeys([secret.name for secret in kind.secrets], "AAAA")
    assert "unknown entry" not in failure(taken).reason
    refused = failure({**taken, "wish": "AAAA"})
    assert isinstance(refused, AuthError)
    assert "unknown entry 'wish'" in refused.reason


def test_a_user_in_the_url_is_not_asked_for() -> None:
    assert [one.name for one in secrets_of("webdavs://host/x")] == ["user", "password"]
    assert [one.name for one in secrets_of("webdavs://me@host/x")] == ["password"]


def test_what_is_secret_is_hidden() -> None:
    seen = {secret.name for url in URLS.values() for secret in secrets_of(url) if not secret.hidden}
    assert seen == {"user", "access_key_id"}
