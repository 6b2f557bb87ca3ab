"""URLs of clouds: taken apart, and refused with advice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.address import parse_address, scheme_of, short_name, without_secrets
from backends.errors import PermanentError
from backends.registry import SCHEMES, open_store

OPTIONS = frozenset({"endpoint", "region"})


def test_all_parts() -> None:
    url = "s3://me%40home@host:99/a%20b/c/?region=x&endpoint=http%3A%2F%2Fh%3A1"
    address = parse_address(url, options=OPTIONS, form="")
    assert (address.user, address.host, address.port, address.path) == ("me@home", "host", 99, "a b/c")
    assert address.option("region") == "x"
    assert address.option("endpoint") == "http://h:1"
    assert (address.prefix, address.quoted_path, address.authority) == ("a b/c/", "a%20b/c", "host:99")
    assert parse_address("s3://b", options=OPTIONS, form="").prefix == ""
    assert parse_address("s3://[::1]:2/x", options=OPTIONS, form="").authority == "[::1]:2"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "names no host"),
        ("s3:///path", "names no host"),
        ("s3://b/a#b", "%23"),
        ("s3://b/a/../b", "folder"),
        ("s3://b/a//b", "folder"),
        ("s3://b/a%0Ab", "control"),
        ("s3://b/a?nonsense=1", "unknown option 'nonsense'"),
        ("s3://b/a?region=1&region=2", "twice"),
        ("s3://b/a?region", "malformed"),
        ("s3://b:x/a", "malformed"),
        ("s3://b/" + "a" * 3000, "longer"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        parse_address(url, options=OPTIONS, form="s3://bucket")


@pytest.mark.parametrize(
    ("url", "remote", "path"),
    [
        ("rclone:drive:a b/100%", "drive", "a b/100%"),
        ("rclone:nas:/srv/x/", "nas", "srv/x"),
        ("rclone:my remote:a:b?c#d", "my remote", "a:b?c#d"),
    ],
)
def test_a_remote_is_written_as_rclone_writes_it(url: str, remote: str, path: str) -> None:
    address = parse_address(url, options=frozenset(), form="")
    assert (address.scheme, address.host, address.path) == ("rclone", remote, path)
    assert open_store(url).url == url
    assert (scheme_of(url), short_name(url)) == ("rclone", remote)


@pytest.mark.parametrize(
    "url",
    [
        *("rclone:", "rclone:drive", "rclone:drive:", "rclone:drive:/", "rclone::folder", "rclone: drive:a"),
        *("rclone:drive:a/../b", "rclone:drive:a//b", "rclone:drive://a", "rclone:drive:a\nb", "rclone:-x:a"),
        *("rclone::local:/etc", "rclone:drive,pacer=1:a", "rclone:[x]:a", "rclone:a/b:c", "rclone://drive/a"),
        *("rclone:drive :a", "rclone:" + "r" * 129 + ":a", "rclone:drive:" + "a" * 3000),
    ],
)
def test_what_names_no_folder_at_a_remote_is_refused(url: str) -> None:
    """Above all what rclone takes for more than a name: settings of its own, and places without a remote."""
    with pytest.raises(PermanentError):
        open_store(url)


@pytest.mark.parametrize(
    ("text", "scheme", "name"),
    [
        ("s3://bucket/a/b", "s3", "b"),
        ("s3://bucket", "s3", "bucket"),
        ("file:///mnt/a%20b", "file", "a b"),
        ("nas", "", "nas"),
        ("/mnt/disk", "", "disk"),
        ("C:/x", "", "x"),
    ],
)
def test_scheme_and_short_name_of_any_text(text: str, scheme: str, name: str) -> None:
    assert (scheme_of(text), short_name(text)) == (scheme, name)


@pytest.mark.parametrize("scheme", [*SCHEMES, "ftp", "S3"])
def test_a_password_in_a_url_is_refused_and_not_repeated(scheme: str) -> None:
    for url in (f"{scheme}://me:hunter2@host/folder", f"{scheme}://me:hunter2@host/folder?password=hunter2"):
        with pytest.raises(PermanentError) as caught:
            open_store(url)
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in caught.value.url


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for scheme in SCHEMES:
        try:
            store = open_store(f"{scheme}://{text}")
        except PermanentError:
            continue
        assert store.url == f"{scheme}://{text}"


@given(st.text(alphabet="ab/:@?=.", max_size=30))
def test_what_is_shown_has_no_password(rest: str) -> None:
    shown = without_secrets(f"x://u:hunter2@{rest}")
    assert "hunter2" not in shown
