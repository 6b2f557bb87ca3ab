"""What is asked of etcd's JSON gateway, and what it answers.

Keys and values are base64, 64-bit numbers are texts; what is zero is left out. Answers are decoded strictly
as far as they are looked at: later versions of etcd may say more.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from hybrisfs.kv.service import Compare, KeyValue, Put, Remove

__all__ = [
    "Authenticated",
    "Found",
    "KeptAlive",
    "Lease",
    "Range",
    "Ranged",
    "Refusal",
    "Transacted",
    "WatchLine",
    "as_text",
    "change_request",
    "compare_request",
]


class Found(NamedTuple):
    """What a range holds. `revision` is that of the whole store at that moment."""

    keys: Sequence[KeyValue]
    revision: int
    more: bool


class Range(Struct, frozen=True):
    """The keys from *first* up to, and without, *end*; None: *first* alone."""

    first: bytes
    end: bytes | None = None
    limit: int = 0
    revision: int = 0
    """As of this revision of the store; 0: now."""
    keys_only: bool = False

    def request(self, root: bytes) -> dict[str, Any]:
        """The JSON object; all keys begin with *root*."""
        asked: dict[str, Any] = {"key": as_text(root + self.first)}
        if self.end is not None:
            asked["range_end"] = as_text(root + self.end)
        if self.limit:
            asked["limit"] = str(self.limit)
        if self.revision:
            asked["revision"] = str(self.revision)
        if self.keys_only:
            asked["keys_only"] = True
        return asked


def change_request(root: bytes, change: Put | Remove, lease: int = 0) -> dict[str, Any]:
    """The JSON object of one operation. A key that is put with a *lease* vanishes when that ends."""
    if isinstance(change, Remove):
        return {"request_delete_range": Range(change.first, change.end).request(root)}
    asked: dict[str, Any] = {"key": as_text(root + change.key), "value": as_text(change.value)}
    if lease:
        asked["lease"] = str(lease)
    return {"request_put": asked}


def compare_request(root: bytes, one: Compare) -> dict[str, Any]:
    """The JSON object."""
    asked: dict[str, Any] = {"key": as_text(root + one.key), "target": "MOD"}
    if one.revision is None:
        return asked | {"result": "GREATER", "mod_revision": "0"}
    return asked | {"result": "EQUAL", "mod_revision": str(one.revision)}


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

    def found(self, root: bytes) -> Found:
        """Raises ValidationError, also when a key does not begin with *root*."""
        keys = []
        for one in self.kvs:
            key = _from_text(one.key)
            if not key.startswith(root):
                raise msgspec.ValidationError("a key that nobody has asked for")
            keys.append(KeyValue(key[len(root) :], _from_text(one.value), int(one.mod_revision)))
        return Found(keys, int(self.header.revision), self.more)


class _Response(msgspec.Struct, frozen=True):
    response_range: Ranged | None = None


class Transacted(msgspec.Struct, frozen=True):
    header: _Header
    succeeded: bool = False
    responses: list[_Response] = msgspec.field(default_factory=list)

    def found(self, root: bytes) -> list[Found]:
        """What its ranges have found. Raises ValidationError."""
        ranges = [one.response_range for one in self.responses]
        return [one.found(root) for one in ranges if one is not None]


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
