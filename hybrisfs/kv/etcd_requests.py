"""What is asked of etcd's JSON gateway, and what it answers.

Keys and values are base64, 64-bit numbers are texts; what is zero is left out. Answers are decoded strictly
as far as they are looked at: later versions of etcd may say more.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

__all__ = [
    "Authenticated",
    "Compare",
    "Found",
    "KeptAlive",
    "KeyValue",
    "Lease",
    "Outcome",
    "Put",
    "Range",
    "Ranged",
    "Refusal",
    "Remove",
    "Transacted",
    "WatchLine",
    "after_prefix",
    "as_text",
]


class KeyValue(NamedTuple):
    """A key. `revision` is that of its last change."""

    key: bytes
    value: bytes
    revision: int


class Found(NamedTuple):
    """What a range holds. `revision` is that of the whole store at that moment."""

    keys: Sequence[KeyValue]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class Range:
    """The keys from *first* up to, and without, *end*; None: *first* alone."""

    first: bytes
    end: bytes | None = None
    limit: int = 0
    revision: int = 0
    """As of this revision of the store; 0: now."""
    keys_only: bool = False

    def request(self) -> dict[str, Any]:
        """The JSON object."""
        asked: dict[str, Any] = {"key": as_text(self.first)}
        if self.end is not None:
            asked["range_end"] = as_text(self.end)
        if self.limit:
            asked["limit"] = str(self.limit)
        if self.revision:
            asked["revision"] = str(self.revision)
        if self.keys_only:
            asked["keys_only"] = True
        return asked


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key. With *lease* it vanishes when that ends."""

    key: bytes
    value: bytes
    lease: int = 0

    def request(self) -> dict[str, Any]:
        """The JSON object."""
        asked: dict[str, Any] = {"key": as_text(self.key), "value": as_text(self.value)}
        if self.lease:
            asked["lease"] = str(self.lease)
        return asked


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the keys from *first* up to, and without, *end*; None: *first* alone."""

    first: bytes
    end: bytes | None = None

    def request(self) -> dict[str, Any]:
        """The JSON object."""
        return Range(self.first, self.end).request()


@dataclass(frozen=True, slots=True)
class Compare:
    """That the last change of a key has this revision; 0: there is no such key; None: there is one."""

    key: bytes
    revision: int | None

    def request(self) -> dict[str, Any]:
        """The JSON object."""
        asked: dict[str, Any] = {"key": as_text(self.key), "target": "MOD"}
        if self.revision is None:
            return asked | {"result": "GREATER", "mod_revision": "0"}
        return asked | {"result": "EQUAL", "mod_revision": str(self.revision)}


class Outcome(NamedTuple):
    """What became of a transaction: whether its comparisons held, and what its ranges have found.

    `revision` is that of the whole store after it.
    """

    succeeded: bool
    revision: int
    found: Sequence[Found]


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with *prefix*, which has a byte that is not 0xff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


_Number = Annotated[str, Meta(pattern="^-?[0-9]{1,19}$")]


class _Key(msgspec.Struct, frozen=True):
    key: str
    value: str = ""
    mod_revision: _Number = "0"


class _Header(msgspec.Struct, frozen=True):
    revision: _Number = "0"


class Ranged(msgspec.Struct, frozen=True):
    header: _Header = _Header()
    kvs: list[_Key] = msgspec.field(default_factory=list)
    more: bool = False

    def found(self) -> Found:
        keys = [
            KeyValue(_from_text(one.key), _from_text(one.value), int(one.mod_revision)) for one in self.kvs
        ]
        return Found(keys, int(self.header.revision), self.more)


class _Response(msgspec.Struct, frozen=True):
    response_range: Ranged | None = None


class Transacted(msgspec.Struct, frozen=True):
    header: _Header
    succeeded: bool = False
    responses: list[_Response] = msgspec.field(default_factory=list)

    def found(self) -> list[Found]:
        """What its ranges have found."""
        return [one.response_range.found() for one in self.responses if one.response_range is not None]


class Lease(msgspec.Struct, frozen=True):
    ID: _Number


class _TimeToLive(msgspec.Struct, frozen=True):
    TTL: _Number = "0"


class KeptAlive(msgspec.Struct, frozen=True):
    result: _TimeToLive


class Authenticated(msgspec.Struct, frozen=True):
    token: str


class Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    error: str = ""
    code: int = 0


class _Event(msgspec.Struct, frozen=True):
    kv: _Key


class _Watched(msgspec.Struct, frozen=True):
    events: list[_Event] = msgspec.field(default_factory=list)
    canceled: bool = False


class WatchLine(msgspec.Struct, frozen=True):
    result: _Watched


def as_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise msgspec.ValidationError(f"not base64: {error}") from error
