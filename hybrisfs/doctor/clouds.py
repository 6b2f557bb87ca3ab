"""The clouds: can each be reached with the credentials that are there, and is it the volume's?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import requests

from backends.address import scheme_of
from backends.credentials import Credentials
from backends.errors import AuthError, MissingError, MissingRootError, StoreError
from backends.rclone_process import NoRcloneError, version
from backends.registry import open_heard, open_store, server_of
from hybrisfs.dispersal.cloud import when_emptied
from hybrisfs.doctor.check import Finding, bad, ok, side_by_side, warn
from hybrisfs.errors import as_sentence
from hybrisfs.settings.config import CloudConfig, VolumeConfig
from hybrisfs.stores.own_places import ANY_HOME, MARKER_NAME, OwnPlaces, belongs_to_another

__all__ = ["difference", "examine_clouds", "server_of"]

_PATIENCE: Final = 30.0  # seconds for all clouds together; they are asked side by side
_MARKER_LIMIT: Final = 4096


def examine_clouds(
    volumes: Sequence[VolumeConfig], credentials: Credentials, places: OwnPlaces = ANY_HOME
) -> Iterator[Finding]:
    """One finding on each cloud, one on the clock for each that tells the time, and one on rclone if it is
    needed."""
    asked = [(volume, cloud) for volume in volumes for cloud in volume.clouds]
    if any(scheme_of(cloud.url) == "rclone" for _, cloud in asked):
        yield rclone()
    answers = side_by_side([partial(_examine, *one, credentials, places) for one in asked], _PATIENCE)
    for (volume, cloud), findings in zip(asked, answers, strict=True):
        if findings is None:
            yield warn(
                _check(volume, cloud),
                f"{cloud.url} did not answer within {_PATIENCE:.0f} seconds",
                "Is the network up, and the address right?",
            )
        else:
            yield from findings


def rclone() -> Finding:
    """Which rclone serves the clouds at its remotes."""
    try:
        return ok("rclone", version())
    except NoRcloneError as error:
        return bad("rclone", str(error), "Install it with: apt install rclone.")


def reachable(
    volume: VolumeConfig, cloud: CloudConfig, credentials: Credentials, places: OwnPlaces = ANY_HOME
) -> Finding:
    """Read the marker that says whose place it is."""
    check = _check(volume, cloud)
    try:
        store = places.guarded((open_heard if cloud.heard else open_store)(cloud.url, credentials))
        try:
            marker = store.get(MARKER_NAME, limit=_MARKER_LIMIT)
        finally:
            store.close()
    except MissingError:
        return bad(
            check,
            f"{cloud.url} does not hold this volume: its marker is gone",
            f"Is a disk not mounted? {_adopt(cloud)}",
        )
    except MissingRootError as error:
        advice = f"{_sentence(error)[:-1]}{'' if error.advice.endswith('?') else '.'} {_adopt(cloud)}"
        return bad(check, f"{error.url} cannot be used: {error.reason}", advice)
    except AuthError as error:
        return bad(check, f"{error.url} refuses us: {error.reason}", _sentence(error))
    except StoreError as error:
        return bad(check, f"{error.url} cannot be used: {error.reason}", _sentence(error))
    except ValueError as error:
        return bad(check, f"{cloud.url} cannot be used: {error}", "Correct its URL in volume.json.")
    if belongs_to_another(marker, volume.id):
        return bad(check, f"{cloud.url} holds another volume", "Correct its URL in volume.json.")
    return ok(check, f"{cloud.url} answers")


def _examine(
    volume: VolumeConfig, cloud: CloudConfig, credentials: Credentials, places: OwnPlaces
) -> list[Finding]:
    findings = [reachable(volume, cloud, credentials, places)]
    told = clock(cloud.url)
    return [*findings, told] if told is not None else findings


def _check(volume: VolumeConfig, cloud: CloudConfig) -> str:
    return f"cloud {volume.name}/{cloud.name}"


def _adopt(cloud: CloudConfig) -> str:
    return as_sentence(when_emptied(cloud.name))


def _sentence(error: StoreError) -> str:
    return as_sentence(error.advice or "is the network up? Otherwise wait: nothing is lost")


# -- this machine's clock beside those of the clouds ----------------------------------------------------
# A signed request to S3 is refused when they differ by a quarter of an hour; versions and conflict names bear
# wrong times before that.


_CLOCK_PATIENCE: Final = 5.0  # seconds
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
        told = requests.head(server, timeout=_CLOCK_PATIENCE, allow_redirects=False).headers.get("Date", "")
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
