"""This machine's clock beside those of the clouds.

A signed request to S3 is refused when they differ by a quarter of an hour; versions and conflict names bear
wrong times before that.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import requests

from backends.registry import server_of
from hybrisfs.doctor.finding import Finding, bad, ok, warn

__all__ = ["clock", "difference", "server_of"]

_PATIENCE: Final = 5.0  # seconds
_NOTABLE: Final = 60.0  # seconds
_HARMFUL: Final = 600.0
_ADVICE: Final = "Set the clock, best for good: timedatectl set-ntp true."


def clock(url: str) -> Finding | None:
    """What the web server behind a cloud says about our clock; None when nobody tells."""
    server = server_of(url)
    if server is None:
        return None
    try:
        # Whatever it answers, a refusal as well, bears a date (RFC 9110, 6.6.1).
        told = requests.head(server, timeout=_PATIENCE, allow_redirects=False).headers.get("Date", "")
        seconds = time.time() - parsedate_to_datetime(told).timestamp()
    except (requests.RequestException, ValueError):
        return None
    return difference(urlsplit(server).hostname or server, seconds)


def difference(server: str, seconds: float) -> Finding:
    """This clock is *seconds* ahead of the server's."""
    what = f"this clock is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} that of {server}"
    if abs(seconds) >= _HARMFUL:
        return bad("clock", what, _ADVICE)
    if abs(seconds) >= _NOTABLE:
        return warn("clock", what, _ADVICE)
    return ok("clock", f"it agrees with that of {server}")
