"""hybrisfs cost, cloud price: what do the clouds charge, and what does the archive save?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from cli.arguments import complete_clouds
from cli.output import about_money, columns, count, describe_archive, json_option, money, show, shown, size
from cli.usage import command, volume_argument, volume_option
from hybrisfs.api.cost import CloudCost, CloudPrice, CloudPriceRequest, Cost, CostRequest, Month
from hybrisfs.client import Client

_Function = TypeVar("_Function", bound=Callable[..., Any])


@command(epilog="\b\nExamples:\n  hybrisfs cost\n  hybrisfs cost photos --json")
@volume_argument(required=False)
@json_option
def cost(name: str | None, as_json: bool) -> None:
    """Show what the clouds of the volume NAME charge in a month, and what the archive saves.

    What is stored now is counted for a whole month; requests and bytes are those of this machine in this
    month so far, and are shown for the month before, too. The prices are list prices of well-known
    providers, or those that you have set with hybrisfs cloud price. No cloud is asked. NAME can be left out
    when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(CostRequest(name))
    show(facts, as_json, describe)


def describe(facts: Cost) -> Iterator[str]:
    """Lines for a terminal."""
    name = click.style(shown(facts.name), bold=True)
    charged = [one for one in facts.clouds if one.bill is not None]
    if charged:
        yield f"{name}  {about_money(facts.total)} a month"
        yield (
            "  What is stored now for a whole month, and what this machine has asked for and fetched in "
            f"{_month(facts.month)}."
        )
    else:
        yield f"{name}  None of its clouds has a known price."
    yield from columns(list(_bills(facts)), indent="    ")
    yield "  Requests and bytes of this machine:"
    yield from columns(list(_uses(facts)), indent="    ")
    if facts.archive is not None:
        yield f"  {describe_archive(facts.archive)}"
    if charged:
        yield (
            "  Left out are free allowances, minimum charges, taxes, and what clouds still keep of what was "
            "deleted;\n  your other machines' requests come on top."
        )
    yield from _prices(facts)


def _month(name: str) -> str:
    return time.strftime("%B %Y", time.strptime(name, "%Y-%m"))


def _bills(facts: Cost) -> Iterator[list[str]]:
    archived = any(one.archived for one in facts.clouds)
    column = ["ARCHIVED"] if archived else []
    yield ["CLOUD", "STORED", *column, "STORAGE", "REQUESTS", "EGRESS", "A MONTH", "PRICES"]
    for one in facts.clouds:
        held = [size(one.stored), *([size(one.archived)] if archived else [])]
        yield [shown(one.name), *held, *_bill(one), _whose(one, facts)]


def _bill(cloud: CloudCost) -> list[str]:
    bill = cloud.bill
    if bill is None:
        return ["-"] * 4
    return [money(one) for one in (bill.storage, bill.put + bill.get, bill.egress, bill.total)]


def _whose(cloud: CloudCost, facts: Cost) -> str:
    if cloud.prices is None:
        return "unknown"
    return "your own" if cloud.prices.source == facts.own_prices else shown(cloud.provider or "")


def _uses(facts: Cost) -> Iterator[list[str]]:
    yield ["CLOUD", "MONTH", "SENT", "FETCHED", "WRITES", "READS", "LISTINGS", "DELETIONS"]
    for one in facts.clouds:
        for month in [Month(facts.month, one.use), *reversed(one.before)]:
            use = month.use
            counts = [f"{number:,}" for number in (use.put, use.get, use.list, use.delete)]
            yield [shown(one.name), month.month, size(use.up), size(use.down), *counts]


def _prices(facts: Cost) -> Iterator[str]:
    """Whose prices these are, and how to change them."""
    unknown = [shown(one.name) for one in facts.clouds if one.prices is None]
    if 0 < len(unknown) < len(facts.clouds):
        yield f"  What is unknown counts as nothing: {', '.join(unknown)}."
    yield (
        f"  List prices are of {facts.looked_up}; hybrisfs cloud price CLOUD --storage 0.02 sets another "
        "one, in USD for a GB and month."
    )
    if facts.problem:
        yield click.style(f"  {shown(facts.problem)}", fg="yellow")


# -- hybrisfs cloud price: it is a command of the group in `cli.cloud` ----------------------------------


def _amount(option: str, what: str) -> Callable[[_Function], _Function]:
    return click.option(option, type=click.FloatRange(min=0), metavar="USD", help=what)


@command(
    "price",
    epilog="""\b
Examples:
  hybrisfs cloud price nas --storage 0.004
  hybrisfs cloud price s3 --storage 0.0125 --egress 0.09
  hybrisfs cloud price s3 --forget""",
)
@click.argument("cloud_name", metavar="CLOUD", shell_complete=complete_clouds)
@_amount("--storage", "For a GB that is stored for a month.")
@_amount("--egress", "For a GB that is fetched.")
@_amount("--put", "For 1,000 requests that write.")
@_amount("--get", "For 1,000 requests that read.")
@_amount("--list", "For 1,000 requests that list.")
@click.option(
    "--minimum-days",
    type=click.IntRange(min=0),
    help="For how many days an object is charged that is deleted sooner.",
)
@click.option("--forget", is_flag=True, help="Let list prices count again.")
@volume_option
@json_option
def price(
    cloud_name: str,
    name: str | None,
    as_json: bool,
    forget: bool,
    minimum_days: int | None,
    **given: float | None,
) -> None:
    """Show or set what CLOUD charges, for hybrisfs cost and for the choice of clouds by the archive.

    Prices are in USD. What is not given stays as it was: at first the list price, or nothing where there is
    none. They count on this machine, and are kept in ~/.config/hybrisfs/prices.json.
    """
    if forget and any(one is not None for one in (minimum_days, *given.values())):
        raise click.UsageError("--forget goes with no price")
    with Client.connect() as client:
        asked = CloudPriceRequest(
            name=name, cloud=cloud_name, forget=forget, minimum_days=minimum_days, **given
        )
        facts = client.call(asked)
    show(facts, as_json, _describe_price)


def _describe_price(facts: CloudPrice) -> Iterator[str]:
    prices = facts.prices
    if prices is None:
        yield f"{shown(facts.cloud)}: its price is unknown, and counts as nothing."
        return
    yield f"{shown(facts.cloud)}, {facts.currency}, from {shown(prices.source)}:"
    yield from columns(
        [
            ["storage", f"{prices.storage:g}", "a GB and month"],
            ["egress", f"{prices.egress:g}", "a GB that is fetched"],
            ["put", f"{prices.put:g}", "1,000 requests that write"],
            ["get", f"{prices.get:g}", "1,000 requests that read"],
            ["list", f"{prices.list:g}", "1,000 requests that list"],
        ]
    )
    if prices.minimum_days:
        yield f"  What is deleted is charged for {count(prices.minimum_days, 'day')} at least."
