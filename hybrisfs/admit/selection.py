"""Which of the copies of a kit to believe.

Every copy that opens was made by a device that belonged to the volume at some time, and an old one is good
enough (see `hybrisfs.recovery`). What remains is a device that was removed and a cloud that help each other:
they can make a copy that looks newest, and that names clouds of their own. So what most clouds return alike
is taken, where those that the person named count before those that a copy names, and only then the newest.
What f+1 clouds return alike, one of them is right about.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hybrisfs.admit.kit import KitCopy
from hybrisfs.pairing.messages import Grant
from hybrisfs.recovery.sealed_key import KitSecret
from sync import DecodeError

__all__ = ["Chosen", "choose_copy"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The contents that are believed; *agreed* when f+1 of their clouds return them alike."""

    grant: Grant
    agreed: bool


def choose_copy(copies: Mapping[str, KitCopy], secret: KitSecret, named: Collection[str]) -> Chosen | None:
    """The contents to believe of what clouds, by their URLs, returned; None when no copy opens. The person
    *named* these URLs."""
    clouds: dict[bytes, set[str]] = {}
    for url, copy in copies.items():
        clouds.setdefault(copy.data, set()).add(url)
    found: list[tuple[tuple[int, int, tuple[int, bytes]], Chosen]] = []
    for urls in clouds.values():
        copy = copies[min(urls)]
        try:
            grant = copy.open(secret)
        except DecodeError as error:
            log.warning("%s: the recovery kit is wrong: %s", ", ".join(sorted(urls)), error)
            continue
        own = urls.intersection(one.url for one in grant.clouds)
        votes = len(urls.intersection(named)), len(own), copy.rank
        found.append((votes, Chosen(grant, len(own) > grant.f)))
    return max(found, key=lambda one: one[0], default=(None, None))[1]
