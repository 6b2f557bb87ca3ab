"""Checking updates before the volume's lock is taken: are they well formed, and signed by the members that
they name?

When there are many, a process of its own does it, beside the one that takes updates in: it takes about as
long as all else that is done about an update. Threads of this process would have to ask for Python's lock
before and after each signature, and lose on that what they gain; the process needs it not at all. It is
started when there is much to check, and ends when there has been nothing for a while.

Requests and answers on its standard input and output, with big-endian numbers:

    ready      an answer of no bytes, before the first request: the process has started
    request    size u32 of all that follows; members u16, how many, and for each: device id (16), public key
               (32); then for each update: size u32, its bytes
    answer     size u32 of what follows: a list in Python's marshal format, version 2, with for each update
               None when it is malformed, else a tuple: whether its member signed it; size of header and
               signature; the fields of `sync.SignedHeader` from `hash` on; the writes; which do not count

It takes as long to start as to check thousands of updates: until it is ready, its parent does the work.
Answers come in the order of the requests. The process reads requests and writes answers while it checks, so
that neither side waits for the other as long as there is something to do.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import IO, Any, Final, TypeAlias

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.merge.authority import void
from hybrisfs.polling import readable
from hybrisfs.process import without_collections
from sync import DecodeError, SignedUpdate, UpdateStamp, decode_signed
from sync.identity import DEVICE_ID_SIZE, PUBLIC_KEY_SIZE
from sync.update import SignedHeader

__all__ = ["UpdateCheck", "CheckLimits", "CheckedUpdate", "UpdateChecker"]

log = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_MEMBER: Final = struct.Struct(f"{DEVICE_ID_SIZE}s{PUBLIC_KEY_SIZE}s")
_MARSHAL: Final = 2  # later versions look for what is in there twice, which takes longer than it saves
_DEPS: Final = SignedHeader._fields.index("deps") - 1  # where they are among the fields of an answer


class CheckLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    worth_it: int = 96 << 10
    """In bytes of updates. It takes longer to hand fewer over than to check them."""
    idle_seconds: float = 10.0
    """After which the process ends when it has nothing to do."""


@dataclass(frozen=True, slots=True)
class CheckedUpdate:
    """An update that is well formed. *signed*: its signature by the member that it names is verified."""

    update: SignedUpdate
    signed: bool
    void: tuple[int, ...] = field(default=(), compare=False)
    """Which of its writes do not count (`hybrisfs.merge.authority`)."""


Keys: TypeAlias = Mapping[bytes, bytes]
"""The public keys of members by their device ids."""

WhichAreHere: TypeAlias = Callable[[Iterable[bytes]], Container[bytes]]
"""Says which of the updates with these hashes are here already: their signatures need not be checked."""


class UpdateCheck:
    """Updates under check. The caller of `result` checks those that the process has not checked."""

    def __init__(
        self, updates: Sequence[bytes], keys: Keys, which: WhichAreHere, asked: _Asked | None
    ) -> None:
        self._updates = updates
        self._keys = keys
        self._which = which
        self._asked = asked

    def result(self) -> Sequence[CheckedUpdate | None]:
        """The checked updates, in order; None for a malformed one."""
        found = self._asked.answer() if self._asked is not None else None
        return self._check() if found is None else found

    def _check(self) -> list[CheckedUpdate | None]:
        decoded = [_decoded(data) for data in self._updates]
        here = self._which(one.hash for one in decoded if one is not None)
        signed = [one is not None and one.hash not in here and _is_signed(one, self._keys) for one in decoded]
        return [
            None if one is None else CheckedUpdate(one, is_signed, void(one))
            for one, is_signed in zip(decoded, signed, strict=True)
        ]


class UpdateChecker:
    """Checks updates. May be called from several threads."""

    def __init__(self, environment: Environment) -> None:
        self._lock = threading.Lock()
        self._environment = environment
        self._limits = environment.limits.of(CheckLimits)
        self._process: _Process | None = None
        self._beside = (environment.processors() or 1) > 1

    def check(self, updates: Sequence[bytes], keys: Keys, which: WhichAreHere) -> UpdateCheck:
        """Begin to check *updates*. The caller of `result` calls *which* about them."""
        asked = None
        if self._beside and sum(map(len, updates)) >= self._limits.worth_it:
            with self._lock:
                asked = self._ask(updates, keys) if self._beside else None
        return UpdateCheck(updates, keys, which, asked)

    def _ask(self, updates: Sequence[bytes], keys: Keys) -> _Asked | None:
        """Hand them over; None when the process is not ready yet, or cannot start."""
        try:
            if self._process is None or not self._process.runs():
                self._end()
                self._process = _Process(self._environment.start, self._limits.idle_seconds)
            elif self._process.is_ready():
                return self._process.ask(updates, keys)
        except OSError as error:
            _warn(error)
        return None

    def close(self) -> None:
        """End the process; the answers to earlier requests can still be had."""
        self._beside = False
        if (process := self._process) is not None:
            process.stop()  # so that no holder of the lock waits for it any more
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


class _Process:
    """The process as the daemon sees it; it has nothing that could be lost."""

    def __init__(self, start: Callable[..., subprocess.Popen[bytes]], idle_seconds: float) -> None:
        """Raises OSError."""
        self._process = start(
            [sys.executable, "-m", __name__, str(idle_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._ready = False
        self._unanswered: deque[_Asked] = deque()
        self._reading = threading.Lock()
        self._reaper = threading.Thread(target=self._process.wait, name="check", daemon=True)
        self._reaper.start()

    def runs(self) -> bool:
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it has started. One caller at a time. Raises OSError."""
        if not self._ready and readable([self._answers], 0):
            if _read(self._answers) != b"":
                self.stop()
                raise BrokenPipeError("the process did not start as it should")
            self._ready = True
        return self._ready

    def ask(self, updates: Sequence[bytes], keys: Keys) -> _Asked:
        """One caller at a time, when it is ready. Raises OSError."""
        parts = [_COUNT.pack(len(keys)), *(_MEMBER.pack(*member) for member in keys.items())]
        parts += [part for data in updates for part in (_SIZE.pack(len(data)), data)]
        asked = _Asked(self, updates)
        self._unanswered.append(asked)
        try:
            _write(self._requests, b"".join(parts))
        except OSError:
            self.stop()
            raise
        return asked

    def read_until(self, asked: _Asked) -> None:
        """Read answers up to this one, if it comes. Raises OSError."""
        with self._reading:
            while asked.message is None:
                message = _read(self._answers)
                if message is None:
                    raise BrokenPipeError("the process has ended")
                self._unanswered.popleft().message = message

    def stop(self) -> None:
        """Nothing more is answered."""
        self._process.kill()

    def end(self) -> None:
        """No request may follow once it has stopped."""
        self.stop()
        self._reaper.join()
        with self._reading:
            self._requests.close()
            self._answers.close()


class _Asked:
    """What the process is to check, and its answer when it has been read."""

    def __init__(self, process: _Process, updates: Sequence[bytes]) -> None:
        self._process = process
        self._updates = updates
        self.message: bytes | None = None

    def answer(self) -> list[CheckedUpdate | None] | None:
        """Its answer; None when it fails to give one."""
        try:
            self._process.read_until(self)
            assert self.message is not None
            answers = marshal.loads(self.message)
            return [_unpacked(*pair) for pair in zip(self._updates, answers, strict=True)]
        except (OSError, EOFError, ValueError, TypeError) as error:  # the last three: it went mad
            self._process.stop()
            _warn(error)
            return None


def _warn(error: Exception) -> None:
    log.warning("updates are not checked in a process of their own: %s", error)


def _decoded(data: bytes) -> SignedUpdate | None:
    try:
        return decode_signed(data)
    except DecodeError:
        return None


def _is_signed(update: SignedUpdate, keys: Keys) -> bool:
    public = keys.get(update.header.writer)
    return public is not None and update.header.verify(public)


def _write(pipe: IO[bytes], message: bytes) -> None:
    rest = memoryview(_SIZE.pack(len(message)) + message)
    while rest:
        rest = rest[pipe.write(rest) :]  # less than all when a signal comes


def _read(pipe: IO[bytes]) -> bytes | None:
    """The next message; None when the writer of messages has ended."""
    size = _read_exactly(pipe, _SIZE.size)
    return size and _read_exactly(pipe, *_SIZE.unpack(size))


def _read_exactly(pipe: IO[bytes], count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = pipe.read(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _packed(update: SignedUpdate, signed: bool) -> tuple[Any, ...]:
    """The update as `marshal` can write it, which knows no classes."""
    data, *fields = update.header
    fields[_DEPS] = tuple(map(tuple, update.header.deps))
    return signed, len(data), fields, update.writes, void(update)


def _unpacked(data: bytes, packed: tuple[Any, ...] | None) -> CheckedUpdate | None:
    if packed is None:
        return None
    signed, size, fields, writes, broken = packed
    if fields[_DEPS]:
        fields[_DEPS] = tuple([UpdateStamp(*one) for one in fields[_DEPS]])
    return CheckedUpdate(SignedUpdate(data, SignedHeader(data[:size], *fields), writes), signed, broken)


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


def _check_all(requests: SimpleQueue[bytes | None], answers: SimpleQueue[bytes | None]) -> None:
    try:
        while (request := requests.get()) is not None:
            with without_collections():
                answers.put(marshal.dumps(_found(*_parse(request)), _MARSHAL))
    finally:
        answers.put(None)


def _found(keys: Keys, updates: Iterable[bytes]) -> list[tuple[Any, ...] | None]:
    """The outcome for each update. Each step is done for all updates before the next step, so that its data
    stay in the processor's caches: signature checks fill them."""
    decoded = [_decoded(data) for data in updates]
    signed = [one is not None and _is_signed(one, keys) for one in decoded]
    return [
        None if one is None else _packed(one, is_signed)
        for one, is_signed in zip(decoded, signed, strict=True)
    ]


def _write_all(answers: SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(BrokenPipeError), open(1, "wb", 0) as pipe:  # the daemon has ended
        while (answer := answers.get()) is not None:
            _write(pipe, answer)


def _read_all(requests: SimpleQueue[bytes | None], idle_seconds: float) -> None:
    try:
        with open(0, "rb", 0) as pipe:
            while readable([pipe], idle_seconds):
                request = _read(pipe)
                if request is None:
                    return
                requests.put(request)
    finally:
        requests.put(None)


def _serve(idle_seconds: float) -> None:
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    answers: SimpleQueue[bytes | None] = SimpleQueue()
    answers.put(b"")  # ready
    threading.Thread(target=_check_all, args=(requests, answers)).start()
    threading.Thread(target=_write_all, args=(answers,)).start()
    _read_all(requests, idle_seconds)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # the daemon ends, too
        _serve(float(sys.argv[1]))
