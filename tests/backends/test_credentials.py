"""Secrets come from a private file or the keyring, and turn up nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import keyring.backends.fail
import pytest

from backends.credentials import NO_CREDENTIALS, CredentialStore, Secrets
from backends.errors import AuthError
from tests.keyrings import MemoryKeyring, in_use

URL = "s3://bucket/one?region=x"
SECRET = "correct horse battery"


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    ring = MemoryKeyring()
    with in_use(ring):
        yield ring


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "credentials.json"


def write(file: Path, clouds: object, version: object = 1) -> None:
    file.write_text(json.dumps({"version": version, "clouds": clouds}))
    file.chmod(0o600)


def lookup(file: Path, url: str) -> str | None:
    return CredentialStore(file, keyring=False).lookup(url).get("password")


def test_nothing_is_found_where_nothing_is(file: Path) -> None:
    assert not CredentialStore(file, keyring=False).lookup(URL)
    assert not NO_CREDENTIALS.lookup(URL)


def test_the_nearest_folder_above_counts(file: Path) -> None:
    write(
        file,
        {
            "s3://bucket?region=x": {"password": "bucket"},
            "s3://bucket/one?region=x": {"password": "one"},
            "s3://bucket/one/two/?region=x": {"password": "two"},
        },
    )
    assert lookup(file, "s3://bucket?region=x") == "bucket"
    assert lookup(file, "s3://bucket/other?region=x") == "bucket"
    assert lookup(file, "s3://bucket/one-more?region=x") == "bucket"
    assert lookup(file, "s3://bucket/one?region=x") == "one"
    assert lookup(file, "s3://bucket/one/three?region=x") == "one"
    assert lookup(file, "s3://bucket/one/two/three?region=x") == "two"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/one",
        "s3://bucket/one?region=x&endpoint=https://evil.example",
        "s3://other/one?region=x",
        "gs://bucket/one?region=x",
        "s3://me@bucket/one?region=x",
    ],
)
def test_secrets_are_for_one_service_only(file: Path, url: str) -> None:
    write(file, {"s3://bucket?region=x": {"password": SECRET}})
    assert lookup(file, url) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused(file: Path, mode: int) -> None:
    write(file, {})
    file.chmod(mode)
    with pytest.raises(AuthError, match="chmod 600"):
        lookup(file, URL)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"version": 2, "clouds": {}}',
        '{"version": 1}',
        '{"version": 1, "clouds": []}',
        f'{{"version": 1, "clouds": {{"s3://b": "{SECRET}"}}}}',
        f'{{"version": 1, "clouds": {{"s3://b": {{"password": ["{SECRET}"]}}}}}}',
        f'{{"version": 1, "clouds": {{"s3://b": {{"password": "{SECRET}',
        " " * (1 << 20) + "{}",
    ],
)
def test_a_damaged_file_is_refused_without_quoting_it(file: Path, content: str) -> None:
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(AuthError, match=r"credentials\.json") as caught:
        lookup(file, URL)
    assert SECRET not in str(caught.value)


def test_a_folder_in_its_place_is_refused(file: Path) -> None:
    file.mkdir(mode=0o700)
    with pytest.raises(AuthError):
        lookup(file, URL)


def test_the_keyring_is_asked_when_the_file_has_nothing(file: Path, ring: MemoryKeyring) -> None:
    ring.set_password("hybrisfs", URL, json.dumps({"access_key_id": "a", "secret_access_key": "b"}))
    ring.set_password("hybrisfs", "sftp://me@host/folder", SECRET)
    store = CredentialStore(file)
    assert store.lookup(URL).get("secret_access_key") == "b"
    assert store.lookup("sftp://me@host/folder").get("password") == SECRET
    assert not store.lookup("s3://unknown")
    write(file, {URL: {"access_key_id": "from the file"}})
    assert store.lookup(URL).get("access_key_id") == "from the file"
    assert store.lookup(URL).get("secret_access_key") is None


def test_a_locked_keyring_is_told(file: Path, ring: MemoryKeyring) -> None:
    ring.locked = True
    with pytest.raises(AuthError, match="unlock"):
        CredentialStore(file).lookup(URL)


def test_a_machine_without_keyring_has_no_secrets(file: Path) -> None:
    with in_use(keyring.backends.fail.Keyring()):  # type: ignore[no-untyped-call]
        assert not CredentialStore(file).lookup(URL)


def test_secrets_do_not_show() -> None:
    secrets = Secrets({"password": SECRET})
    assert SECRET not in f"{secrets!r} {secrets}"
    with pytest.raises(AuthError, match="pasword") as caught:
        Secrets({"pasword": SECRET}).require_known("s3://b", frozenset({"password"}))
    assert SECRET not in str(caught.value)


def test_what_another_cloud_uses_is_not_removed(file: Path) -> None:
    below = "s3://bucket/one/more?region=x"
    write(file, {URL: {"password": SECRET}, below: {"password": SECRET}, "s3://other": {"password": SECRET}})
    store = CredentialStore(file, keyring=False)
    store.remove([below], [URL])
    assert json.loads(file.read_text())["clouds"].keys() == {URL, "s3://other"}
    store.remove([below, "s3://none"], [])
    assert json.loads(file.read_text())["clouds"].keys() == {"s3://other"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_nothing_is_removed_where_nothing_is(file: Path) -> None:
    CredentialStore(file, keyring=False).remove([URL], [])
    assert not file.exists()
