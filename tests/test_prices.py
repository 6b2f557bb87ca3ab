"""The arithmetic of prices, and whose prices a cloud has."""

from __future__ import annotations

import pytest
from msgspec.structs import astuple

from backends.registry import drivers
from hybrisfs.dispersal.counting import Use
from hybrisfs.history import Prices, bill, load_prices, looked_up, provider_of


def test_a_month_by_hand() -> None:
    prices = Prices(storage=0.02, put=0.005, get=0.0004, list=0.005, egress=0.1, source="")
    use = Use(put=1000, get=10_000, list=2000, delete=10**9, up=10**12, down=5 * 10**9)
    assert astuple(bill(use, 50e9, prices)) == pytest.approx((0.015, 0.504, 1.0))


def test_every_price_has_a_source() -> None:
    listed = load_prices()
    assert len(listed) >= 4
    for prices in listed.values():
        assert len(prices.source) > 20
        assert all(getattr(prices, name) >= 0 for name in prices.__struct_fields__ if name != "source")
        assert prices.storage > 0
    assert len(looked_up()) == len("2026-11-21")


def test_every_provider_that_a_cloud_may_have_is_listed() -> None:
    assert {name for driver in drivers() for name in driver.kind.providers.values()} <= load_prices().keys()


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("s3://bucket/folder?region=eu-west-1", "Amazon S3"),
        ("s3://bucket?endpoint=https://s3.eu-central-003.backblazeb2.com", "Backblaze B2"),
        ("s3://bucket?endpoint=https://abc.r2.cloudflarestorage.com", "Cloudflare R2"),
        ("s3://bucket?endpoint=https://s3.wasabisys.com", "Wasabi"),
        ("s3://bucket?endpoint=https://s3.eu-west-1.amazonaws.com:443", "Amazon S3"),
        ("s3://bucket?endpoint=http://127.0.0.1:9000", None),
        ("s3://bucket?endpoint=https://notamazonaws.com", None),
        ("gs://bucket/folder", "Google Cloud Storage"),
        ("gs://bucket?endpoint=http://127.0.0.1:4443", None),
        ("az://container/folder?account=me", None),
        ("file:///mnt/disk", None),
        ("sftp://me@host/folder", None),
        ("rclone:remote:folder", None),
        (f"relay://nas.example/home?pin={64 * '0'}", None),
    ],
)
def test_a_url_tells_whose_prices_hold(url: str, provider: str | None) -> None:
    assert provider_of(url) == provider
    assert provider is None or provider in load_prices()
