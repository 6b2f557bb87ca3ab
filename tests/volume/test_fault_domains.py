"""Which clouds may be lost together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from backends.credentials import NO_CREDENTIALS, Secrets
from backends.errors import AuthError
from hybrisfs.clouds.control import lost_together


class Known:
    """Secrets by the URLs for which they are."""

    def __init__(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self._secrets = secrets

    def lookup(self, url: str) -> Secrets:
        return Secrets(self._secrets.get(url, {}))


class Damaged:
    def lookup(self, url: str) -> Secrets:
        raise AuthError(url, "open", "", "damaged")


def groups(*urls: str, secrets: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
    """The beginnings of the sentences, with clouds called a, b, c ..."""
    named = [("abcdef"[number], url) for number, url in enumerate(urls)]
    return [one.partition(",")[0] for one in lost_together(named, Known(secrets or {}))]


def test_folders_on_one_disk(tmp_path: Path) -> None:
    urls = [(tmp_path / name / "deep").as_uri() for name in ("x", "y", "z z")]
    [warning] = lost_together(list(zip("abc", urls, strict=True)), NO_CREDENTIALS)
    assert warning.startswith("a, b and c are on one disk, so they may be lost together")


def test_folders_on_different_disks() -> None:
    assert groups("file:///proc/x", "file:///dev/shm/x") == []


def test_one_host() -> None:
    assert groups("sftp://me@nas/a", "sftp://you@nas:2222/b", "sftp://me@other/a") == [
        "a and b are at one host"
    ]
    assert groups("webdavs://me@cloud.example/a", "webdav://cloud.example:8080/b") == [
        "a and b are at one host"
    ]
    relay = f"relay://nas:8017/home?pin={64 * '0'}"
    assert groups(relay, "sftp://me@nas/a", "sftp://me@other/a") == ["a and b are at one host"]


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("s3://x/a", "s3://x/b", True),
        ("s3://x/a", "s3://y/a", True),
        ("s3://x/a?profile=me", "s3://y/a?profile=you", False),
        ("s3://x/a?endpoint=https://s3.one.example", "s3://x/a?endpoint=https://s3.two.example", False),
        ("gs://x/a", "gs://y/b", True),
        ("gs://x/a", "s3://x/a", False),
        ("az://x/a?account=me", "az://y/a?account=me", True),
        ("az://x/a?account=me", "az://x/a?account=you", False),
        ("rclone:gdrive:a", "rclone:gdrive:b", True),
        ("rclone:gdrive:a", "rclone:onedrive:a", False),
    ],
)
def test_one_account(first: str, second: str, one: bool) -> None:
    assert bool(groups(first, second)) == one


def test_accounts_are_told_apart_by_their_keys() -> None:
    urls = ["s3://x/a", "s3://y/a", "s3://z/a"]
    keys = [{"access_key_id": name, "secret_access_key": "s3cret"} for name in ("me", "you", "me")]
    assert groups(*urls, secrets=dict(zip(urls, keys, strict=True))) == [
        "a and c are in one account at s3.amazonaws.com"
    ]
    sentences = lost_together(list(zip("abc", urls, strict=True)), Known(dict(zip(urls, keys, strict=True))))
    assert "s3cret" not in str(sentences)


def test_who_cannot_be_looked_at_is_left_out(tmp_path: Path) -> None:
    assert groups("s3://[", "s3://[", tmp_path.as_uri()) == []
    assert lost_together([("a", "s3://x/a"), ("b", "s3://y/a")], Damaged()) == []
