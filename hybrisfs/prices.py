"""What clouds charge: list prices of well-known providers, a person's own prices, and what a month costs at
them.

Beside this module, `prices.json` has for each provider, in USD: `storage` per GB and month, `put`, `get` and
`list` per 1,000 requests, `egress` per GB, `source`, and `minimum_days` where there are any; `looked_up` is
the day on which that was so.

config/prices.json, which `hybrisfs cloud price` writes and a person may edit: {"version": 1, "prices":
{URL OR PROVIDER: {"storage": ..., "put": ..., "get": ..., "list": ..., "egress": ..., "minimum_days": ...}}}.
A URL counts for all folders below it, as in credentials.json, the longest first; a provider, by its name in
the list, for all clouds there. What is left out is as listed, or nothing. The file is read each time. A
damaged one counts for nothing, and `problem` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from backends.credentials import covers
from backends.registry import kind_of, server_of
from hybrisfs.dispersal.counting import Use
from hybrisfs.environment import SYSTEM, replace_file
from hybrisfs.errors import DamagedError, HybrisError

__all__ = ["Bill", "PriceList", "Prices", "bill", "keep_price", "load_prices", "provider_of"]

_FILE: Final = Path(__file__).parent / "prices.json"
_MAX_FILE: Final = 1 << 20  # bytes
_Dollars = Annotated[float, Meta(ge=0, le=1e6)]


class Prices(Struct, frozen=True):
    """Of one provider, in USD: storage and egress per GB, requests per 1,000. What is deleted before
    *minimum_days* have passed is charged for so many."""

    storage: float
    put: float
    get: float
    list: float
    egress: float
    source: str
    minimum_days: int = 0


class Bill(Struct, frozen=True):
    """One month, in USD; *put* is with the lists, which cost as much."""

    put: float
    get: float
    egress: float
    storage: float

    @property
    def total(self) -> float:
        return self.put + self.get + self.egress + self.storage


def bill(use: Use, stored: float, prices: Prices) -> Bill:
    """What a month of that use costs when `stored` bytes lie there for all of it; deletion is free."""
    return Bill(
        put=(use.put * prices.put + use.list * prices.list) / 1000,
        get=use.get * prices.get / 1000,
        egress=use.down / 1e9 * prices.egress,
        storage=stored / 1e9 * prices.storage,
    )


class _Listed(Struct, frozen=True):
    """`prices.json` beside this module."""

    looked_up: str
    providers: dict[str, Prices]


class _OwnPrices(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of a person's own file; None: left out."""

    storage: _Dollars | None = None
    put: _Dollars | None = None
    get: _Dollars | None = None
    list: _Dollars | None = None
    egress: _Dollars | None = None
    minimum_days: Annotated[int, Meta(ge=0, le=3660)] | None = None


class _OwnFile(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    prices: dict[str, _OwnPrices]


@cache
def _listed() -> _Listed:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Listed)


def load_prices() -> dict[str, Prices]:
    """The list prices by provider."""
    return dict(_listed().providers)


def provider_of(url: str) -> str | None:
    """The provider in `prices.json` that a cloud's URL leads to; None for a disk, a server of one's own or
    one that is not in it."""
    kind = kind_of(url)
    try:
        host = urlsplit(server_of(url) or "").hostname or ""
    except ValueError:  # of an endpoint that is no URL: nothing can be stored there
        return None
    providers = {} if kind is None else kind.providers
    return next(
        (name for end, name in providers.items() if host == end or host.endswith(f".{end}")),
        None,
    )


class PriceList(Struct, frozen=True):
    """The list prices, and those of a person's own file, which go before them."""

    looked_up: str
    """The day on which the list prices were looked up, "2026-11-21"."""
    listed: Mapping[str, Prices]
    own: Mapping[str, Prices]
    problem: str = ""
    """Why the own file counts for nothing, or ""."""

    @staticmethod
    def load(file: Path) -> PriceList:
        """With the own prices that are in *file*, if it is there."""
        listed = _listed()
        own: dict[str, Prices] = {}
        problem = ""
        try:
            for name, given in _read(file).items():
                own[name] = _completed(name, given, str(file))
        except HybrisError as error:
            problem = f"The prices in {file} do not count: {error.why}. {error.advice}"
        return PriceList(listed.looked_up, listed.providers, own, problem)

    def of(self, url: str) -> Prices | None:
        """What the cloud at this URL charges; None when that is not known, or nobody is paid."""
        fitting = [one for one in self.own if one not in self.listed and covers(one, url)]
        if fitting:
            return self.own[max(fitting, key=len)]
        provider = provider_of(url)
        return None if provider is None else self.own.get(provider, self.listed[provider])


def keep_price(file: Path, url: str, given: Mapping[str, float] | None) -> None:
    """Write prices of the cloud at this URL into a person's own *file*; None forgets them all. What is not
    given stays as it is. Raises OSError, and HybrisError for a malformed file."""
    prices = _read(file)
    before = prices.pop(url, _OwnPrices())
    if given is not None:
        prices[url] = replace(before, **given)
    replace_file(file, msgspec.json.format(msgspec.json.encode(_OwnFile(1, prices))) + b"\n", SYSTEM)


def _completed(name: str, given: _OwnPrices, source: str) -> Prices:
    """With what was left out as it is listed, or nothing."""
    listed = _listed().providers
    provider = name if name in listed else provider_of(name)
    rest = Prices(0.0, 0.0, 0.0, 0.0, 0.0, "") if provider is None else listed[provider]
    return replace(rest, **msgspec.to_builtins(given), source=source)


def _read(file: Path) -> dict[str, _OwnPrices]:
    """Raises HybrisError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise ValueError("it is too long")
        prices = msgspec.json.decode(data, type=_OwnFile).prices
        for name in prices:
            if name not in _listed().providers and kind_of(name) is None:
                known = ", ".join(sorted(_listed().providers))
                raise ValueError(f"{name[:80]!r} is neither the URL of a cloud nor one of {known}")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DamagedError(
            f"the prices in {file} do not count", why, "Mend the file, or remove it."
        ) from None
    return prices
