"""What is billed: the arithmetic of `benchmarks.cost`, and what the counting wrapper counts."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path

import pytest

from backends.errors import MissingError
from backends.file import FileStore
from benchmarks.cost import Prices, bill, load_prices
from benchmarks.counting import CountingStore, Request, Use, used


def test_a_month_by_hand() -> None:
    prices = Prices(storage=0.02, put=0.005, get=0.0004, list=0.005, egress=0.1, source="")
    use = Use(put=1000, get=10_000, list=2000, delete=10**9, up=10**12, down=5 * 10**9)
    assert astuple(bill(use, 50e9, prices)) == pytest.approx((0.015, 0.504, 1.0))


def test_every_price_has_a_source() -> None:
    listed = load_prices()
    assert len(listed) >= 4
    for prices in listed.values():
        assert len(prices.source) > 20
        assert all(getattr(prices, one.name) >= 0 for one in fields(prices) if one.name != "source")
        assert prices.storage > 0


def test_requests_are_counted_as_they_are_billed(tmp_path: Path) -> None:
    requests: list[Request] = []
    store = CountingStore(FileStore(tmp_path.as_uri()), requests.append)
    store.initialise()
    assert requests == []
    store.put("packs/one", b"12345")
    assert store.put_if_absent("packs/one", b"other") is False
    assert store.get("packs/one", limit=10) == b"12345"
    assert store.get_range("packs/one", 1, 3) == b"234"
    tagged = store.get_if_changed("packs/one", None, limit=10)
    assert tagged is not None
    assert store.get_if_changed("packs/one", tagged[1], limit=10) is None
    with pytest.raises(MissingError):
        store.get("packs/two", limit=10)
    store.list("packs/")
    store.delete_many(["packs/one", "packs/two"])
    store.close()
    assert used(requests) == Use(put=2, get=5, list=1, delete=1, up=10, down=13)
