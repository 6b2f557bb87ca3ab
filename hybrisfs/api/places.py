"""Places that may become clouds of a volume, or where it may be mounted."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec

from hybrisfs.api.request import Record, Request, Text

__all__ = [
    "PlaceSecretsRequest",
    "PlaceSuggestionsRequest",
    "PlaceTryRequest",
    "Secret",
    "SecretsOfPlace",
    "Suggestions",
    "TriedPlace",
]

_MOST: int = 256
_Given: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=16384, pattern=r"\A[^\0]*\Z")]
Secrets: TypeAlias = Annotated[
    dict[Text, _Given],
    msgspec.Meta(max_length=_MOST, description="texts of 1 to 16384 characters, by name"),
]
"""More than the key file of a service account has."""


class Secret(Record):
    """A secret that a cloud can be given."""

    name: str
    label: str
    """The question to a person."""
    hidden: bool
    """It is not shown while it is typed."""


class SecretsOfPlace(Record):
    """The secrets that a cloud can be given, and whether there are some."""

    cloud: str
    """Its URL, without secrets."""
    secrets: list[Secret]
    known: bool
    """This device has some."""


class TriedPlace(Record):
    """A place that was tried out."""

    cloud: str
    """Its URL, without secrets."""
    seconds: dict[str, float]
    """How long each request took, by its name."""


class Suggestions(Record):
    """Places for a new volume."""

    mountpoint: str
    clouds: list[str]
    """URLs of folders on this disk, to try it with."""


class PlaceSecretsRequest(Request[SecretsOfPlace]):
    """Which secrets a cloud needs."""

    command: ClassVar = "place secrets"

    url: Text


class PlaceTryRequest(Request[TriedPlace]):
    """Try out a place that may become a cloud. Secrets are kept when it answers."""

    command: ClassVar = "place try"

    url: Text
    secrets: Secrets | None = None
    """None: it is asked with those that there are."""


class PlaceSuggestionsRequest(Request[Suggestions]):
    """Where a volume may be mounted, and which folders may play its clouds."""

    command: ClassVar = "place suggestions"

    name: Text
    """Of the volume."""
