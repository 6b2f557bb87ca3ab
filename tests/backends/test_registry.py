"""From URL to driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.credentials import Secrets
from backends.driver import CloudKind
from backends.errors import AuthError, PermanentError
from backends.file import FileStore
from backends.registry import SCHEMES, driver_of, drivers, local_options, open_heard, open_store
from backends.versions import versions_of
from tests.backends.servers import FixedCredentials


def test_a_file_url_opens_the_folder_driver_without_touching_it(tmp_path: Path) -> None:
    store = open_store((tmp_path / "cloud").as_uri())
    assert isinstance(store, FileStore)
    assert list(tmp_path.iterdir()) == []


def test_every_driver_has_tests_of_its_own() -> None:
    for driver in drivers():
        module = driver.__module__.rpartition(".")[2]
        assert Path(__file__).with_name(f"test_{module}.py").exists(), module


@pytest.mark.parametrize("kind", [driver.kind for driver in drivers()], ids=lambda kind: kind.schemes[0])
def test_the_record_of_a_kind_is_true(kind: CloudKind) -> None:
    for scheme in kind.schemes:
        form = kind.form.replace("HASH", 64 * "0")
        url = f"{scheme}{form.removeprefix(kind.schemes[0])}".lower()
        store = open_store(url)
        assert store.url == url
        assert (versions_of(store) is None) == bool(kind.keeps_nothing)
        assert kind.local_options <= kind.options


def test_the_schemes_of_the_registry_are_those_of_the_records() -> None:
    named = {scheme: driver for driver in drivers() for scheme in driver.kind.schemes}
    assert {scheme: driver_of(scheme) for scheme in SCHEMES} == named


@pytest.mark.parametrize("url", ["gopher://host/x", "x", "", "://", "FILE:///a"])
def test_an_unknown_scheme_is_refused_naming_the_known(url: str) -> None:
    with pytest.raises(PermanentError, match=r"supported: .*file://.*rclone:,"):
        open_store(url)


def test_a_plain_path_is_answered_with_its_url() -> None:
    with pytest.raises(PermanentError, match=r"write file:///mnt/disk"):
        open_store("/mnt/disk")


@pytest.mark.parametrize(
    ("url", "options", "without"),
    [
        ("sftp://me@host/a?known_hosts=/k&key=/i", ["known_hosts", "key"], "sftp://me@host/a"),
        ("sftp://me@host/a?known%5Fhosts=/k", ["known_hosts"], "sftp://me@host/a"),
        ("sftp://me@host/a?k\ney=/k", ["key"], "sftp://me@host/a"),
        ("s3://bucket/a?region=x&profile=p&endpoint=y", ["profile"], "s3://bucket/a?region=x&endpoint=y"),
        ("s3://bucket/a?region=x", [], "s3://bucket/a?region=x"),
        ("sftp://me@host/a", [], "sftp://me@host/a"),
        ("az://container?account=key", [], "az://container?account=key"),
        ("rclone:remote:folder?key=/k", [], "rclone:remote:folder?key=/k"),
    ],
)
def test_what_a_url_names_of_this_machine_counts_only_when_it_was_typed_here(
    url: str, options: list[str], without: str
) -> None:
    assert local_options(url) == options
    assert open_store(url).url == url
    assert open_heard(url).url == without


def test_secrets_are_those_of_the_url_that_people_know() -> None:
    asked: list[str] = []

    class Asked(FixedCredentials):
        def lookup(self, url: str) -> Secrets:
            asked.append(url)
            return super().lookup(url)

    url = "sftp://me@127.0.0.1:1/a?known_hosts=/k"
    store = open_heard(url, Asked({"nonsense": "x"}))
    with pytest.raises(AuthError, match="nonsense"):
        store.list("")
    assert asked == [url]


@pytest.mark.parametrize("url", ["http://[::1", "sftp://[::1?key=/k", "gopher://x?key=a"])
def test_what_is_no_url_names_nothing(url: str) -> None:
    with pytest.raises((PermanentError, ValueError)):
        open_heard(url)
