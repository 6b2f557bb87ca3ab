"""Reading what a server sends without believing it: bounded in size and in time, and complete or an error.

All HTTP drivers read through `GuardedBody`, a wrapper of urllib3's response, whichever SDK sits on top.
`receiving` says how many bytes the caller of the SDK is ready to take; it is kept per thread, since an SDK
has no way to hand it down.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from backends import pacing
from backends.errors import CorruptError, OversizeError, StoreError, TransientError

if TYPE_CHECKING:
    import urllib3

__all__ = ["BodyError", "GuardedBody", "Timing", "body_failure", "read_all", "receiving"]

_MAX_ANSWER: Final = 64 << 20  # bytes; listings, the largest answers that nobody has bounded
_MAX_FAILURE: Final = 1 << 20  # bytes of an answer that says why a request failed
_PIECE: Final = 1 << 18  # bytes a single read asks for at most


class Timing(Struct, frozen=True):
    """How patient a driver is. The engine above has finer timers; these only keep threads from hanging."""

    connect: float = 10.0  # seconds to connect, and for the server to take each further block of a request
    stall: float = 30.0  # seconds without a single byte
    slowest: int = 4096  # bytes/s below which a transfer that takes long counts as stalled
    another_writer: float = 10.0  # seconds to wait for one that creates the same object


class BodyError(Exception):
    """The body of an answer is not as it should be. `kind` is "long", "short", "slow" or "garbled"."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


_limit: ContextVar[int] = ContextVar("limit", default=_MAX_ANSWER)


@contextlib.contextmanager
def receiving(limit: int) -> Iterator[None]:
    """Within the block, a successful answer may have at most `limit` bytes."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


def read_all(body: Any) -> bytes:
    """Read the body of an SDK's answer, and close it."""
    parts: list[bytes] = []
    with contextlib.closing(body):
        while part := body.read(1 << 20):
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class GuardedBody:
    """A `urllib3.HTTPResponse` whose body ends in `BodyError` unless it is whole, in time and in bounds."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, timing: Timing, limit: int | None = None) -> None:
        """`limit` is in bytes, by default the one of `receiving`.

        Raises `BodyError` when the announced length is beyond the limit already.
        """
        self._raw: Any = raw
        self._timing = timing
        allowed = _limit.get() if limit is None else limit
        self._limit = allowed if 200 <= raw.status < 300 else _MAX_FAILURE
        self._count = 0
        self._began = time.monotonic()
        if (self._raw.length_remaining or 0) > self._limit:
            self._refuse()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def read(self, amt: int | None = None, decode_content: bool | None = None, **_: object) -> bytes:
        """Return some bytes, `amt` at most, or all with None; b"" at the end. Raises `BodyError`."""
        if amt is None:
            return b"".join(self.stream(decode_content=decode_content))
        return self._piece(min(amt, _PIECE), decode_content)

    def stream(self, amt: int | None = _PIECE, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the body piece by piece. Raises `BodyError`."""
        while piece := self._piece(min(amt or _PIECE, _PIECE), decode_content):
            yield piece

    def _piece(self, amount: int, decode_content: bool | None) -> bytes:
        from urllib3 import exceptions

        amount = pacing.piece(amount)
        try:
            piece: bytes = self._raw.read1(amount, decode_content=decode_content) if amount else b""
        except exceptions.TimeoutError as error:
            raise BodyError("slow", f"nothing more came for {self._timing.stall:g} s") from error
        except exceptions.DecodeError as error:
            raise BodyError("garbled", f"cannot be decoded: {error}") from error
        except (exceptions.HTTPError, OSError) as error:
            reason = f"the connection broke after {self._count} bytes: {error}"
            raise BodyError("short", reason) from error
        if amount and not piece and self._raw.length_remaining:
            raise BodyError("short", f"the connection was closed after {self._count} bytes")
        self._count += len(piece)
        if self._count > self._limit:
            self._refuse()
        self._began += pacing.received(len(piece))  # it is not the server that was slow
        patience = 2 * self._timing.stall + self._count / self._timing.slowest
        if time.monotonic() - self._began > patience:
            self._raw.close()
            raise BodyError("slow", f"only {self._count} bytes came in {patience:.0f} s")
        return piece

    def _refuse(self) -> None:
        # What is left unread makes the connection useless.
        self._raw.close()
        raise BodyError("long", f"larger than the {self._limit} bytes expected")


def body_failure(url: str, operation: str, name: str, error: BodyError) -> StoreError:
    """Return the error that the failure of a body is to the caller of a driver."""
    if error.kind == "long":
        kind = OversizeError if operation in ("get", "get_if_changed") else CorruptError
        return kind(url, operation, name, str(error))
    if error.kind == "garbled":
        return CorruptError(url, operation, name, str(error))
    return TransientError(url, operation, name, str(error))
