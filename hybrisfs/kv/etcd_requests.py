"""What is asked of an etcd, and what it answers: the messages of its gRPC interface.

They are encoded as protobuf (https://protobuf.dev/programming-guides/encoding/): a message is a sequence of
fields, each of them a varint with its number and its kind, then a varint (kind 0) or bytes with their length
(kind 2). What is zero or empty is left out. The numbers of the fields are those of `rpc.proto` and `kv.proto`
in https://github.com/etcd-io/etcd/tree/release-3.6/api. Answers are decoded strictly as far as they are
looked at: later versions of etcd may say more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.kv.service import Compare, KeyValue, Put, Remove
from sync.codec import DecodeError, Reader

__all__ = [
    "AUTHENTICATE",
    "KEEP_ALIVE",
    "LEASE",
    "RANGE",
    "REVOKE",
    "TRANSACTION",
    "WATCH",
    "Found",
    "Range",
    "Transacted",
    "Watched",
    "authentication",
    "change_request",
    "decode_found",
    "decode_lease",
    "decode_token",
    "lease_request",
    "lease_seconds",
    "range_request",
    "transaction",
    "watch_request",
]

RANGE: Final = "/etcdserverpb.KV/Range"
TRANSACTION: Final = "/etcdserverpb.KV/Txn"
WATCH: Final = "/etcdserverpb.Watch/Watch"
LEASE: Final = "/etcdserverpb.Lease/LeaseGrant"
KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"

_MOST_TAG: Final = (1 << 32) - 1
_MOST_NUMBER: Final = (1 << 63) - 1
_MOST_TOKEN: Final = 1 << 16  # bytes
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # kinds of fields


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

    def encode(self, root: bytes) -> bytes:
        """RangeRequest; all keys begin with *root*."""
        asked = _field(1, root + self.first)
        if self.end is not None:
            asked += _field(2, root + self.end)
        return asked + _number(3, self.limit) + _number(4, self.revision) + _number(8, int(self.keys_only))


def range_request(root: bytes, asked: Range) -> bytes:
    """An operation of a transaction: RequestOp."""
    return _field(1, asked.encode(root))


def change_request(root: bytes, change: Put | Remove, lease: int = 0) -> bytes:
    """An operation of a transaction: RequestOp. A key that is put with a *lease* vanishes when that ends."""
    if isinstance(change, Remove):
        end = b"" if change.end is None else _field(2, root + change.end)
        return _field(3, _field(1, root + change.first) + end)
    key, value = root + change.key, change.value
    return _field(2, b"\x0a%b%b\x12%b%b%b" % (_size(key), key, _size(value), value, _number(3, lease)))


def transaction(
    root: bytes, compare: Iterable[Compare], then: Iterable[bytes], otherwise: Iterable[bytes]
) -> bytes:
    """TxnRequest: operations if all comparisons hold, and others if not."""
    parts = [_field(1, _compare(root + one.key, one.revision)) for one in compare]
    parts += [_field(2, one) for one in then]
    parts += [_field(3, one) for one in otherwise]
    return b"".join(parts)


def _compare(key: bytes, revision: int | None) -> bytes:
    """Compare: the revision of the last change (2) is equal to the one given, or greater (1) than 0."""
    if revision is None:
        return b"\x08\x01\x10\x02\x1a%b%b" % (_size(key), key)
    return b"\x10\x02\x1a%b%b%b" % (_size(key), key, _number(6, revision))


def lease_request(number: int) -> bytes:
    """LeaseGrantRequest with its seconds; LeaseKeepAliveRequest and LeaseRevokeRequest with the lease."""
    return _number(1, number)


def watch_request(key: bytes, revision: int) -> bytes:
    """WatchRequest: changes of a key from this revision on, and now and then that there are none."""
    return _field(1, _field(1, key) + _number(3, revision) + _number(4, 1))


def authentication(user: str, password: str) -> bytes:
    """AuthenticateRequest."""
    return _field(1, user.encode()) + _field(2, password.encode())


class Transacted(NamedTuple):
    """The answer to a transaction."""

    succeeded: bool
    revision: int
    """Of the whole store."""
    responses: bytes
    """The rest of the answer, from the first response on. There is one for each key that was put, of no use
    to anybody."""

    @staticmethod
    def decode(answer: bytes) -> Transacted:
        """TxnResponse. Raises DecodeError."""
        message = _Message(answer, until=3)
        return Transacted(bool(message.number(2)), message.revision(), message.rest)

    def found(self, root: bytes) -> list[Found]:
        """What its ranges have found. Raises DecodeError."""
        rest = _Message(self.responses)
        if rest.number(2) or rest.each(1):
            raise DecodeError("responses before what became of the transaction")
        ranges = [one for response in rest.each(3) for one in _Message(response).each(1)]
        return [decode_found(one, root) for one in ranges]


def decode_found(answer: bytes, root: bytes) -> Found:
    """RangeResponse. Raises DecodeError, also when a key does not begin with *root*."""
    message = _Message(answer)
    keys = []
    for one in message.each(2):
        entry = _Message(one)
        key = entry.bytes(1)
        if not key.startswith(root):
            raise DecodeError("a key that nobody has asked for")
        keys.append(KeyValue(key[len(root) :], entry.bytes(5), entry.number(3)))
    return Found(keys, message.revision(), bool(message.number(3)))


def decode_lease(answer: bytes) -> int:
    """LeaseGrantResponse: the number of the lease. Raises DecodeError."""
    return _Message(answer).number(2)


def lease_seconds(answer: bytes) -> int:
    """LeaseKeepAliveResponse: for how long the lease goes on; 0: it has ended. Raises DecodeError."""
    return _Message(answer).number(3)


def decode_token(answer: bytes) -> str:
    """AuthenticateResponse. Raises DecodeError."""
    token = _Message(answer).bytes(2)
    if not token.isascii() or len(token) > _MOST_TOKEN:
        raise DecodeError("not a token")
    return token.decode()


class Watched(NamedTuple):
    """WatchResponse: whether the key has changed, and whether the watch has ended."""

    changed: bool
    canceled: bool

    @staticmethod
    def decode(answer: bytes) -> Watched:
        """Raises DecodeError."""
        message = _Message(answer)
        return Watched(bool(message.each(11)), bool(message.number(4)))


class _Message:
    """The fields of a message by their numbers. Methods raise DecodeError when one is of another kind."""

    __slots__ = ("_numbers", "_parts", "rest")

    def __init__(self, data: bytes, *, until: int | None = None) -> None:
        """*until*: the field with which the `rest` begins, which is not looked at. Raises DecodeError."""
        self._numbers: dict[int, int] = {}
        self._parts: dict[int, list[bytes]] = {}
        self.rest = b""
        reader = Reader(data)
        while reader.remaining:
            position = reader.position
            tag = reader.varint(_MOST_TAG)
            field, kind = tag >> 3, tag & 7
            if field == until:
                self.rest = data[position:]
                return
            if kind == _VARINT:
                self._numbers[field] = reader.varint()
            elif kind == _BYTES:
                self._parts.setdefault(field, []).append(reader.blob(reader.remaining))
            elif kind in (_EIGHT, _FOUR):
                reader.raw(8 if kind == _EIGHT else 4)
            else:
                raise DecodeError(f"a field of kind {kind}")

    def number(self, field: int) -> int:
        """A number that is not negative; 0 when it is not there."""
        number = self._numbers.get(field, 0)
        if number > _MOST_NUMBER or field in self._parts:
            raise DecodeError(f"field {field} is not a number")
        return number

    def each(self, field: int) -> list[bytes]:
        """A field that may be there several times."""
        if field in self._numbers:
            raise DecodeError(f"field {field} is a number")
        return self._parts.get(field, [])

    def bytes(self, field: int) -> bytes:
        """The last one counts, as protobuf has it; empty when it is not there."""
        found = self.each(field)
        return found[-1] if found else b""

    def revision(self) -> int:
        """Of the whole store, as the header of an answer has it."""
        return _Message(self.bytes(1)).number(3)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_MOST_SMALL: Final = 1 << 11
_SMALL: Final = [_varint(number) for number in range(_MOST_SMALL)]


def _size(value: bytes) -> bytes:
    """How many bytes these are."""
    size = len(value)
    return _SMALL[size] if size < _MOST_SMALL else _varint(size)


def _field(field: int, value: bytes) -> bytes:
    """Bytes, or a message."""
    size = len(value)
    return _SMALL[field << 3 | _BYTES] + (_SMALL[size] if size < _MOST_SMALL else _varint(size)) + value


def _number(field: int, value: int) -> bytes:
    return _SMALL[field << 3] + _varint(value) if value else b""
