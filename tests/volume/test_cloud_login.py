"""Trying out what may become a cloud: secrets are kept only when it accepts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.credentials import CredentialStore
from backends.errors import AuthError
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.stores.own_places import ANY_HOME
from hybrisfs.stores.tryout import describe_secrets, log_in, try_place, unusable
from tests.backends.conftest import webdav_server
from tests.backends.servers import Server

__all__ = ["webdav_server"]


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    return CredentialStore(tmp_path / "credentials.json", keyring=False)


def test_a_place_is_made_tried_and_left_empty(store: CredentialStore, tmp_path: Path) -> None:
    facts = try_place((tmp_path / "new").as_uri(), store, ANY_HOME, SYSTEM)
    assert facts.cloud == (tmp_path / "new").as_uri() and facts.seconds
    assert [each for each in (tmp_path / "new").rglob("*") if each.is_file() and "probe" in str(each)] == []


def test_a_command_in_an_advice_can_be_copied() -> None:
    command = "aws s3api put-bucket-versioning --endpoint-url http://host:1"
    error = AuthError("s3://bucket", "keep", "", "a right is lacking", f"have somebody run: {command}")
    assert str(unusable(error)).endswith(f"\nHave somebody run: {command}")


def test_advice_ends_like_a_sentence(store: CredentialStore) -> None:
    with pytest.raises(HybrisError) as caught:
        try_place("file:///proc/nothing/here", store, ANY_HOME, SYSTEM)
    assert "?." not in str(caught.value)
    with pytest.raises(UsageError, match="not a URL"):
        describe_secrets("/folder", store)


def test_of_a_remote_it_is_said_who_keeps_the_login(store: CredentialStore) -> None:
    place = describe_secrets("rclone:drive:folder", store)
    assert (place.secrets, "rclone config" in place.logins) == ([], True)
    assert describe_secrets("file:///folder", store).logins == ""


def test_secrets_are_kept_when_the_cloud_accepts_them(
    store: CredentialStore, tmp_path: Path, webdav_server: Server
) -> None:
    url, right = webdav_server.url(), webdav_server.secrets
    assert describe_secrets(url, store).known is False
    with pytest.raises(HybrisError) as caught:
        log_in(url, {"password": "mistyped"}, store)
    assert "mistyped" not in str(caught.value)
    assert describe_secrets(url, store).known is False
    log_in(url, right, store)
    assert describe_secrets(url, store).known is True
    assert (tmp_path / "credentials.json").stat().st_mode & 0o777 == 0o600
    try_place(url, store, ANY_HOME, SYSTEM)
