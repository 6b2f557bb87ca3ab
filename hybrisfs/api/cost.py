"""What the clouds of a volume charge, as the control socket says it."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from hybrisfs.api.request import Record, Request, Text
from hybrisfs.api.status import Archive

__all__ = [
    "Bill",
    "CloudCost",
    "CloudPrice",
    "CloudPriceRequest",
    "Cost",
    "CostRequest",
    "Month",
    "Prices",
    "Use",
]


class Use(Record):
    """The use of a cloud: requests as they are billed, and bytes."""

    put: int
    get: int
    list: int
    delete: int
    up: int
    """Bytes sent."""
    down: int
    """Bytes received."""


class Prices(Record):
    """The prices of a cloud, in the currency of the answer: storage per GB and month, egress per GB, requests
    per 1,000."""

    storage: float
    put: float
    get: float
    list: float
    egress: float
    minimum_days: int
    """For how many days at least an object is charged."""
    source: str
    """Where the prices are from."""


class Bill(Record):
    """The cost of a month, in the currency of the answer."""

    put: float
    """With the requests that list."""
    get: float
    egress: float
    """For the bytes that leave the cloud."""
    storage: float
    total: float


class Month(Record):
    """The use of a cloud in a month."""

    month: str
    """2026-11"""
    use: Use


class CloudCost(Record):
    """The cost of a cloud: storage is that of the whole volume for a whole month, as it is now; requests and
    bytes are those of this device so far."""

    name: str
    provider: str | None
    """None when it is not in the price list, or nobody is paid."""
    prices: Prices | None
    """None when they are unknown."""
    stored: int
    """Bytes."""
    archived: int
    """Of these bytes, the ones that belong to the archive."""
    use: Use
    bill: Bill | None
    """None when the prices are unknown."""
    before: list[Month]


class Cost(Record):
    """The cost of all clouds of a volume."""

    name: str
    """Of the volume."""
    month: str
    """2026-11"""
    currency: str
    looked_up: str
    """When the list prices were looked up."""
    own_prices: str
    """The file for prices of one's own, which go before the list prices."""
    problem: str
    """Why that file counts for nothing, or ""."""
    clouds: list[CloudCost]
    total: float
    archive: Archive | None
    """None when nothing was ever archived."""


class CostRequest(Request[Cost]):
    """Tell the costs of this month."""

    command: ClassVar = "cost"

    name: Text | None = None


Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e6, description="an amount in USD")]
Days: TypeAlias = Annotated[int, Meta(ge=0, le=3660, description="a number of days")]


class CloudPrice(Record):
    """The prices of a cloud that count now."""

    name: str
    """Of the volume."""
    cloud: str
    currency: str
    prices: Prices | None
    """None when they are unknown."""


class CloudPriceRequest(Request[CloudPrice], kw_only=True):
    """Let a cloud cost what is given, see `Prices`, and what is not given stay as it is; tell all."""

    command: ClassVar = "cloud price"

    name: Text | None = None
    cloud: Text
    storage: Amount | None = None
    put: Amount | None = None
    get: Amount | None = None
    list: Amount | None = None
    egress: Amount | None = None
    minimum_days: Days | None = None
    forget: bool = False
    """Let the list prices count again."""
