"""The arithmetic of prices, and whose prices a cloud has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import astuple

from backends.registry import drivers
from hybrisfs.dispersal.counting import Use
from hybrisfs.errors import DamagedError
from hybrisfs.prices import Bill, PriceList, Prices, bill, keep_price, load_prices, provider_of

NOWHERE: Final = Path("/nonexistent/prices.json")
NAS: Final = "sftp://me@nas.example/backup"


def test_a_month_by_hand() -> None:
    prices = Prices(storage=0.02, put=0.005, get=0.0004, list=0.005, egress=0.1, source="")
    use = Use(put=1000, get=10_000, list=2000, delete=10**9, up=10**12, down=5 * 10**9)
    found = bill(use, 50e9, prices)
    assert astuple(found) == pytest.approx(astuple(Bill(put=0.015, get=0.004, egress=0.5, storage=1.0)))
    assert found.total == pytest.approx(1.519)


def test_every_price_has_a_source() -> None:
    listed = load_prices()
    assert len(listed) >= 4
    for prices in listed.values():
        assert len(prices.source) > 20
        assert all(getattr(prices, name) >= 0 for name in prices.__struct_fields__ if name != "source")
        assert prices.storage > 0
    assert len(PriceList.load(NOWHERE).looked_up) == len("2026-11-21")


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
        ("s3://bucket?endpoint=http://[::1", None),
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


def test_prices_of_ones_own_go_before_the_list(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    keep_price(file, NAS, {"storage": 0.004})
    keep_price(file, NAS, {"egress": 0.01, "minimum_days": 30})
    prices = PriceList.load(file)
    assert prices.of(f"{NAS}/photos") == Prices(0.004, 0.0, 0.0, 0.0, 0.01, str(file), 30)
    assert prices.of("sftp://me@nas.example/other") is None
    assert prices.of("gs://bucket") == load_prices()["Google Cloud Storage"]
    keep_price(file, NAS, None)
    assert PriceList.load(file).of(NAS) is None


@pytest.mark.parametrize(
    "url", ["s3://[::1/x", "s3://b?endpoint=http://[::1", "sftp://h:99999999/x", "az://"]
)
def test_a_malformed_url_among_the_prices_harms_no_other(tmp_path: Path, url: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"version": 1, "prices": {url: {"storage": 1}, NAS: {"storage": 2}}}))
    prices = PriceList.load(file)
    assert getattr(prices.of(NAS), "storage", None) == 2 and not prices.problem
    prices.of(url)


def test_what_is_left_out_is_as_listed(tmp_path: Path) -> None:
    listed, file = load_prices()["Amazon S3"], tmp_path / "prices.json"
    keep_price(file, "s3://cold", {"storage": 0.0125})
    found = PriceList.load(file).of("s3://cold/photos")
    assert found is not None and (found.storage, found.egress) == (0.0125, listed.egress)
    assert PriceList.load(file).of("s3://warm") == listed
    file.write_text('{"version": 1, "prices": {"Amazon S3": {"egress": 0.05}}}')
    found = PriceList.load(file).of("s3://warm")
    assert found is not None and (found.storage, found.egress) == (listed.storage, 0.05)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "{}",
        "[" * 100_000,
        '{"version": 2, "prices": {}}',
        '{"version": 1, "prices": {"s3://a": {"storage": -1}}}',
        '{"version": 1, "prices": {"s3://a": {"storage": "1"}}}',
        '{"version": 1, "prices": {"s3://a": {"storing": 1}}}',
        '{"version": 1, "prices": {"Amazon": {"storage": 1}}}',
        json.dumps({"version": 1, "prices": {}, "padding": "x" * (1 << 20)}),
    ],
)
def test_a_damaged_file_of_prices_counts_for_nothing_and_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)
    prices = PriceList.load(file)
    assert str(file) in prices.problem and prices.of("s3://a") == load_prices()["Amazon S3"]
    with pytest.raises(DamagedError, match="do not count"):
        keep_price(file, NAS, {"storage": 1.0})
    assert file.read_text() == text
