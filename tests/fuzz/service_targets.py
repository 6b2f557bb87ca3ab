"""Targets of services for metadata: what an etcd answers, and how it arrives."""

from __future__ import annotations

from typing import Final

from hybrisfs.kv.etcd_requests import (
    Transacted,
    Watched,
    decode_found,
    decode_lease,
    decode_token,
    lease_seconds,
)
from hybrisfs.kv.grpc_calls import BrokenCallError, Calls, RefusedCallError
from tests.fuzz.target import Target, decoder
from tests.kv.grpc_server import ServerEnd

__all__ = ["TARGETS"]

_ROOT: Final = b"root/"
_HEADER: Final = b"\x0a\x06\x08\x01\x10\x02\x18\x07"
_FOUND: Final = (
    _HEADER + b"\x12\x16\x0a\x06root/a\x10\x01\x18\x05\x20\x01\x2a\x03abc\x32\x01x\x18\x01\x20\x09"
)
_LOOKED: Final = b"\x1a" + bytes([len(_FOUND) + 2]) + b"\x0a" + bytes([len(_FOUND)]) + _FOUND
_NONSENSE: Final = (b"\x0a\xff\xff\xff\xff\x0f", b"\x18" + b"\xff" * 9 + b"\x01", b"\x13\x14", b"\x00")


def _transacted(data: bytes) -> object:
    answer = Transacted.decode(data)
    assert answer.revision >= 0
    return answer.found(_ROOT)


def _found(data: bytes) -> object:
    found = decode_found(data, _ROOT)
    assert all(one.revision >= 0 for one in found.keys)
    return found


def _called() -> tuple[Calls, ServerEnd]:
    calls, server = Calls("db:2379", is_secure=False), ServerEnd()
    calls.begin("/service/method", b"asked")
    server.receive(calls.to_send())
    return calls, server


def _answer() -> bytes:
    _, server = _called()
    server.answer(1, b"one", b"two", trailers=[("grpc-status", "0")])
    return server.http.data_to_send()


def _receive(data: bytes) -> object:
    """What comes on a connection."""
    calls, _ = _called()
    calls.receive(data)
    found = calls.messages()
    calls.to_send()
    if not calls.is_over:
        assert not calls.is_usable
        calls.receive(b"")
    calls.check()
    return found


TARGETS: Final[dict[str, Target]] = {
    "answer to a transaction": decoder(
        _transacted, [_HEADER + b"\x10\x01\x1a\x02\x12\x00", _HEADER + _LOOKED + _LOOKED], nonsense=_NONSENSE
    ),
    "range of an etcd": decoder(_found, [_FOUND, _HEADER], nonsense=_NONSENSE),
    "event of an etcd": decoder(
        Watched.decode, [_HEADER + b"\x18\x01", _HEADER + b"\x5a\x02\x08\x00", _HEADER + b"\x20\x01"]
    ),
    "lease of an etcd": decoder(decode_lease, [_HEADER + b"\x10\x07\x18\x3c"]),
    "time of a lease": decoder(lease_seconds, [_HEADER + b"\x10\x07\x18\x3c"]),
    "token of an etcd": decoder(decode_token, [_HEADER + b"\x12\x03t.1"]),
    "answer to a call": Target(
        _receive, [_answer()], (BrokenCallError, RefusedCallError), (b"HTTP/1.1 400 Bad Request\r\n\r\n",)
    ),
}
