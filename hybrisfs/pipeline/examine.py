"""Examining updates before the volume's lock is taken: are they well formed, and signed by whom they name?

When there are many, a process of its own does it, beside the one that takes updates in: it takes about as
long as all else that is done about an update. Threads of this process would have to ask for Python's lock
before and after each signature, and lose on that what they gain; the process needs it not at all. It is
started when there is much to examine, and ends when there has been nothing for a while.

Requests and answers on its standard input and output, with big-endian numbers:

    request    size u32 of all that follows; members u16, how many, and for each: device id (16), public key
               (32); then for each update: size u32, its bytes
    answer     size u32 of what follows: a list in Python's marshal format, version 2, with for each update
               None when it is malformed, else a tuple: whether its member signed it; size of header and
               signature; the fields of `sync.SignedHeader` from `hash` on; the writes
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any, Final, NamedTuple, TypeAlias

from sync import DecodeError, SignedUpdate, Stamp, decode_signed
from sync.identity import DEVICE_ID_SIZE, PUBLIC_KEY_SIZE
from sync.update import SignedHeader

__all__ = ["Examined", "Examiner"]

log = logging.getLogger(__name__)

_WORTH_IT: Final = 96 << 10  # bytes of updates; fewer are examined sooner than handed over
_IDLE_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 5.0
_SIZE: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_MEMBER: Final = struct.Struct(f"{DEVICE_ID_SIZE}s{PUBLIC_KEY_SIZE}s")
_MARSHAL: Final = 2  # later versions look for what is in there twice, which takes longer than it saves
_DEPS: Final = SignedHeader._fields.index("deps") - 1  # where they are among the fields that are told

_GARBLED: Final = (EOFError, ValueError, TypeError)  # what `marshal` raises when the process went mad


class Examined(NamedTuple):
    """An update that is well formed; *signed*: it is certain that the member whom it names signed it."""

    update: SignedUpdate
    signed: bool


Keys: TypeAlias = Mapping[bytes, bytes]
"""The public keys of members by their device ids."""

WhichAreHere: TypeAlias = Callable[[Iterable[bytes]], Container[bytes]]
"""Tells which of the updates with these hashes are here already: their signatures need not be checked."""


class _Work(NamedTuple):
    updates: Sequence[bytes]
    keys: Keys
    which: WhichAreHere
    found: Future[Sequence[Examined | None]]


class Examiner:
    """Examines updates. May be called from several threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._work: deque[_Work] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._beside = (os.cpu_count() or 1) > 1

    def examine(
        self, updates: Sequence[bytes], keys: Keys, which: WhichAreHere
    ) -> Future[Sequence[Examined | None]]:
        """What becomes of each update; None: it is malformed. *which* may be asked by another thread."""
        work = _Work(updates, keys, which, Future())
        with self._condition:
            if self._beside and not self._closed and sum(map(len, updates)) >= _WORTH_IT:
                self._work.append(work)
                self._condition.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="examine", daemon=True)
                    self._thread.start()
                return work.found
        _examine_here(work)
        return work.found

    def close(self) -> None:
        """End thread and process; what has been asked for is answered before."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        """The thread's body: hands requests to the process, one at a time."""
        process: _Process | None = None
        try:
            while (work := self._next()) is not None:
                try:
                    if process is None:
                        process = _Process()
                        _examine_here(work)  # meanwhile it starts
                    else:
                        work.found.set_result(process.examine(work.updates, work.keys))
                except (OSError, *_GARBLED) as error:
                    log.warning("updates are not examined in a process of their own: %s", error)
                    if process is not None:
                        process.end()
                    process = None
                    _examine_here(work)
        finally:
            if process is not None:
                process.end()

    def _next(self) -> _Work | None:
        """What is to be done; None when the thread is to end."""
        with self._condition:
            self._condition.wait_for(lambda: self._work or self._closed, _IDLE_SECONDS)
            if self._work:
                return self._work.popleft()
            self._thread = None
            return None


class _Process:
    """The process as the daemon sees it. Methods but for `end` raise OSError, or one of `_GARBLED`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def examine(self, updates: Sequence[bytes], keys: Keys) -> list[Examined | None]:
        assert self._process.stdin is not None and self._process.stdout is not None
        parts = [_COUNT.pack(len(keys)), *(_MEMBER.pack(*member) for member in keys.items())]
        parts += [part for data in updates for part in (_SIZE.pack(len(data)), data)]
        _write(self._process.stdin, b"".join(parts))
        answer = _read(self._process.stdout)
        if answer is None:
            raise BrokenPipeError("the process has ended")
        return list(map(_unpacked, updates, marshal.loads(answer)))

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _examine_here(work: _Work) -> None:
    decoded = [_decoded(data) for data in work.updates]
    try:
        here = work.which(one.hash for one in decoded if one is not None)
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        work.found.set_exception(error)
        return
    work.found.set_result(
        [
            None if one is None else Examined(one, one.hash not in here and _is_signed(one, work.keys))
            for one in decoded
        ]
    )


def _decoded(data: bytes) -> SignedUpdate | None:
    try:
        return decode_signed(data)
    except DecodeError:
        return None


def _is_signed(update: SignedUpdate, keys: Keys) -> bool:
    public = keys.get(update.header.writer)
    return public is not None and update.header.verify(public)


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_SIZE.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """The next message; None when whoever writes them has ended."""
    size = pipe.read(_SIZE.size)
    if len(size) < _SIZE.size:
        return None
    (length,) = _SIZE.unpack(size)
    message = pipe.read(length)
    return message if len(message) == length else None


def _packed(update: SignedUpdate, signed: bool) -> tuple[Any, ...]:
    """The update as `marshal` can tell of it, which knows no classes."""
    data, *fields = update.header
    fields[_DEPS] = tuple(map(tuple, update.header.deps))
    return signed, len(data), fields, update.writes


def _unpacked(data: bytes, packed: tuple[Any, ...] | None) -> Examined | None:
    if packed is None:
        return None
    signed, size, fields, writes = packed
    if fields[_DEPS]:
        fields[_DEPS] = tuple([Stamp(*one) for one in fields[_DEPS]])
    return Examined(SignedUpdate(data, SignedHeader(data[:size], *fields), writes), signed)


# -- what runs in the process ------------------------------------------------------------------------


def _parse(request: bytes) -> tuple[dict[bytes, bytes], Iterator[bytes]]:
    (members,) = _COUNT.unpack_from(request)
    end = _COUNT.size + members * _MEMBER.size
    return dict(_MEMBER.iter_unpack(request[_COUNT.size : end])), _parse_updates(request, end)


def _parse_updates(request: bytes, at: int) -> Iterator[bytes]:
    while at < len(request):
        start = at + _SIZE.size
        (size,) = _SIZE.unpack_from(request, at)
        at = start + size
        yield request[start:at]


def _serve() -> None:
    while (request := _read(sys.stdin.buffer)) is not None:
        keys, updates = _parse(request)
        decoded = map(_decoded, updates)
        found = [None if one is None else _packed(one, _is_signed(one, keys)) for one in decoded]
        _write(sys.stdout.buffer, marshal.dumps(found, _MARSHAL))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # the daemon has ended
        _serve()
