"""The clouds: can each be reached with the credentials that are there, and is it the volume's?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from backends.credentials import Credentials
from backends.errors import AuthError, MissingError, MissingRootError, StoreError
from backends.registry import open_heard, open_store
from hybrisfs.dispersal.cloud import when_emptied
from hybrisfs.doctor.clock import clock
from hybrisfs.doctor.finding import Finding, bad, ok, warn
from hybrisfs.doctor.patience import side_by_side
from hybrisfs.settings.config import CloudConfig, VolumeConfig
from hybrisfs.stores.marker import MARKER_NAME, belongs_to_another
from hybrisfs.stores.own_places import ANY_HOME, OwnPlaces

__all__ = ["examine_clouds"]

_PATIENCE: Final = 30.0  # seconds for all clouds together; they are asked side by side
_MARKER_LIMIT: Final = 4096


def examine_clouds(
    volumes: Sequence[VolumeConfig], credentials: Credentials, places: OwnPlaces = ANY_HOME
) -> Iterator[Finding]:
    """One finding on each cloud, and one on the clock for each that tells the time."""
    asked = [(volume, cloud) for volume in volumes for cloud in volume.clouds]
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
    advice = when_emptied(cloud.name)
    return f"{advice[:1].upper()}{advice[1:]}"


def _sentence(error: StoreError) -> str:
    advice = error.advice or "is the network up? Otherwise wait: nothing is lost meanwhile"
    return f"{advice[:1].upper()}{advice[1:]}."
