"""What clouds charge: list prices of well-known providers, and what a month of use costs at them.

`prices.json` has for each provider, in USD: `storage` per GB and month, `put`, `get` and `list` per 1,000
requests, `egress` per GB, and `source`; `looked_up` is the day on which that was so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from backends.registry import kind_of, server_of
from hybrisfs.dispersal.counting import Use

__all__ = ["Bill", "Prices", "bill", "load_prices", "looked_up", "provider_of"]

_FILE: Final = Path(__file__).parent / "prices.json"


@dataclass(frozen=True)
class Prices:
    """Of one provider, in USD: storage and egress per GB, requests per 1,000."""

    storage: float
    put: float
    get: float
    list: float
    egress: float
    source: str


@dataclass(frozen=True)
class Bill:
    """One month, in USD, by the columns of Hybris's Table I: reads include the egress they cause."""

    put: float
    get: float
    storage: float

    @property
    def total(self) -> float:
        return self.put + self.get + self.storage


def load_prices() -> dict[str, Prices]:
    """The list prices by provider."""
    facts = json.loads(_FILE.read_text())
    return {name: Prices(**prices) for name, prices in facts["providers"].items()}


def looked_up() -> str:
    """The day on which the list prices were looked up, "2026-11-21"."""
    return str(json.loads(_FILE.read_text())["looked_up"])


def bill(use: Use, stored: float, prices: Prices) -> Bill:
    """What a month of that use costs when `stored` bytes lie there for all of it; deletion is free."""
    put = (use.put * prices.put + use.list * prices.list) / 1000
    get = use.get * prices.get / 1000 + use.down / 1e9 * prices.egress
    return Bill(put, get, stored / 1e9 * prices.storage)


def provider_of(url: str) -> str | None:
    """The provider in `prices.json` that a cloud's URL leads to; None for a disk, a server of one's own or
    one that is not in it."""
    kind, host = kind_of(url), urlsplit(server_of(url) or "").hostname or ""
    providers = {} if kind is None else kind.providers
    return next(
        (name for end, name in providers.items() if host == end or host.endswith(f".{end}")),
        None,
    )
