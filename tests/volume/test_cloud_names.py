"""What clouds are called."""

from __future__ import annotations

import pytest

from hybrisfs.api.clouds import named_url
from hybrisfs.errors import UsageError
from hybrisfs.stores.cloud_names import name_clouds


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (["s3://b/hy", "sftp://me@nas/disk", "file:///srv/x%20y"], ["hy", "disk", "x y"]),
        (["s3://one/hy", "s3://two/hy"], ["one", "two"]),
        (
            ["s3://b/hy?endpoint=https://s3.one.example", "s3://b/hy?endpoint=https://s3.two.example:9000"],
            ["s3.one.example", "s3.two.example"],
        ),
        (["s3://b/x/hy", "s3://b/y/hy", "s3://b/z/hy"], ["hy", "hy-2", "hy-3"]),
        (["file:///mnt/usb/photos", "file:///mnt/nas/photos"], ["usb", "nas"]),
        (["s3://bucket", "s3://other"], ["bucket", "other"]),
        (["s3://one/hy", "s3://two/hy", "file:///mnt/one"], ["one", "two", "one-2"]),
        ([f"s3://b/{'x' * 300}"], ["x" * 60]),
        (
            ["rclone:gdrive:hy", "rclone:onedrive:hy", "rclone:gdrive:other"],
            ["gdrive", "onedrive", "gdrive-2"],
        ),
    ],
)
def test_after_their_urls(urls: list[str], names: list[str]) -> None:
    assert name_clouds([(None, url) for url in urls]) == names


def test_as_a_person_says() -> None:
    assert name_clouds([("mine", "s3://b/hy"), (None, "s3://c/mine")], ["c"]) == ["mine", "mine-2"]
    for names in (["one", "one"], ["taken"], [""], ["a\n"], ["a" * 256]):
        with pytest.raises(UsageError):
            name_clouds([(name, f"s3://b/{number}") for number, name in enumerate(names)], ["taken"])


def test_a_name_stands_before_the_url() -> None:
    assert named_url("nas=sftp://me@nas/x") == ("nas", "sftp://me@nas/x")
    assert named_url("s3://b/x?region=eu") == (None, "s3://b/x?region=eu")
    assert named_url("=s3://b/x") == ("", "s3://b/x")
    assert named_url("file:///a=b") == (None, "file:///a=b")
