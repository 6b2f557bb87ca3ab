"""One request of the kernel, and its one answer."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from threading import Condition
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from hybrisfs.fuse.callers_cpu import CallersCpu
from hybrisfs.fuse.records import Buffer

__all__ = ["ANSWER", "LATER", "Channel", "Encoder", "Interrupts", "Later", "Request"]

_log = logging.getLogger(__name__)

ANSWER: Final = Struct("=IiQ")
"""The header of what goes to the kernel, see `Channel`."""

# Up to this size an answer costs less than giving the interpreter's lock away and getting it back.
_BRIEF = 16 * 1024
_write_briefly = ctypes.PyDLL(None).write
_write_briefly.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_write_briefly.restype = ctypes.c_ssize_t

_NOBODY_WAITS: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ECONNABORTED})
"""The caller was let go, or the mount is gone."""

_FEW = 8
"""Requests. Of two programs that work at the same time, both are among the last ones."""

Encoder = Callable[[Any], Buffer] | None
"""Packs the answer of one kind of request; None: success is all there is to tell."""


class Later(enum.Enum):
    """The type of LATER."""

    LATER = "later"


LATER: Final = Later.LATER
"""What a handler returns when the answer will come through `Request.reply` or `Request.fail`."""


class Channel:
    """The way back to the kernel, shared by all requests of a session.

    An answer that comes after the session has gone must not reach the descriptor, which may be another file's
    by then: `enter` refuses those, and `close` waits for the ones on their way.

        fuse_out_header   len (u32), error (i32: 0, or the negative errno), unique (u64)         16 bytes
    """

    __slots__ = (
        "_answering",
        "_asked_in_a_row",
        "_asking",
        "_caller",
        "_changed",
        "_device",
        "_open",
        "answers_later",
        "callers_cpu",
        "interrupts",
    )

    def __init__(self, device: int, callers_cpu: CallersCpu) -> None:
        """*device*: the descriptor of /dev/fuse."""
        self._device = device
        self.callers_cpu = callers_cpu
        self.interrupts = Interrupts()
        # Reentrant, for an abandoned request may be collected anywhere, which answers it.
        self._changed = Condition()
        self._open = True
        self._answering = 0
        self.answers_later = False
        """Whether the loop has left the answer to the last request to another thread."""
        self._asking, self._caller = 0, -1
        self._asked_in_a_row = 0

    def send(self, unique: int, data: Buffer = b"") -> None:
        """Answer the request *unique* with what follows the header: contiguous bytes."""
        size = len(data)
        header = ANSWER.pack(ANSWER.size + size, 0, unique)
        if size > _BRIEF or type(data) is not bytes:
            self._write(unique, header, data)
            return
        answer = header + data
        if _write_briefly(self._device, answer, len(answer)) < 0:
            self._write(unique, answer)  # which says why

    def fail(self, unique: int, error: int) -> None:
        """Answer the request *unique* with an errno."""
        self._write(unique, ANSWER.pack(ANSWER.size, -error, unique))

    def _write(self, unique: int, *parts: Buffer) -> None:
        try:
            os.writev(self._device, parts)
        except OSError as error:
            if error.errno in _NOBODY_WAITS:
                return
            _log.error("the kernel does not take an answer: %s", error.strerror)
            with contextlib.suppress(OSError):  # logged
                os.write(self._device, ANSWER.pack(ANSWER.size, -errno.EIO, unique))

    def asked(self, thread: int) -> None:
        """A thread has made the request that is handled next; 0: nobody in particular, or one that is not
        visible here."""
        self.callers_cpu.asked(thread)
        self._asking = thread
        if thread == self._caller:
            self._asked_in_a_row += 1
        elif thread:
            self._caller, self._asked_in_a_row = thread, 1

    @property
    def is_for_one(self) -> bool:
        """Whether all of the last requests came from the thread that made this one."""
        return self._asking == self._caller and self._asked_in_a_row >= _FEW

    def enter(self) -> bool:
        """Announce an answer from outside the loop; False: the session has gone."""
        with self._changed:
            self._answering += self._open
            return self._open

    def leave(self) -> None:
        """End what a successful `enter` began."""
        with self._changed:
            self._answering -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let no further answer in, and wait for those on their way."""
        with self._changed:
            self._open = False
            self._changed.wait_for(lambda: not self._answering)


class Request:
    """A request to a handler. It is answered once: by what the handler returns or raises, or through `reply`
    or `fail` when the handler returned LATER.

    A request that is dropped unanswered is logged and answered EIO.
    """

    __slots__ = (
        "__weakref__",
        "_abandoned",
        "_channel",
        "_encode",
        "_unanswered",
        "gid",
        "pid",
        "uid",
        "umask",
        "unique",
    )

    uid: int
    """Effective user of the calling process."""
    gid: int
    """Effective group of the calling process."""
    pid: int
    """The calling thread; 0 when it is in a namespace that we do not see."""
    umask: int
    """File mode creation mask of the caller, in requests that create something."""

    def __init__(self, channel: Channel, unique: int, uid: int, gid: int, pid: int, encode: Encoder) -> None:
        """*unique*: the kernel's number of it."""
        self._channel = channel
        self.unique = unique
        self.uid = uid
        self.gid = gid
        self.pid = pid
        self._encode = encode
        self._unanswered = True
        self._abandoned = False

    @property
    def is_from_the_only_one(self) -> bool:
        """Whether no other thread has made a request lately, so that a handler that waits holds up nobody.
        Only for the handler."""
        return self._channel.is_for_one

    def reply(self, answer: Any = None) -> None:
        """Answer with what the handler would have returned. From any thread.

        When the session has gone, or the request was abandoned, nothing happens. Raises RuntimeError when the
        request was answered before, and TypeError, ValueError, BufferError or struct.error when the answer is
        not of the right kind: then it is still to be answered.
        """
        self._late(self.answer_in_loop, answer)

    def fail(self, error: int) -> None:
        """Answer with an errno. From any thread; otherwise like `reply`."""
        self._late(self.refuse_in_loop, error)

    def abandon_when_killed(self) -> None:
        """Answer EINTR as soon as the caller is killed, which otherwise has to wait for the answer.

        Only for a handler that is about to return LATER, before it passes the request on.
        """
        self._channel.interrupts.watch(self)

    @property
    def abandoned(self) -> bool:
        """Whether no caller waits for the answer any more."""
        return self._abandoned

    def answer_in_loop(self, answer: Any) -> None:
        """`reply`, from the loop's own thread, during which the session cannot end."""
        encode = self._encode
        data = b"" if encode is None else encode(answer)
        if type(data) is not bytes:
            data = memoryview(data).cast("B")
        self._take()
        self._channel.send(self.unique, data)

    def refuse_in_loop(self, error: int) -> None:
        """`fail`, likewise."""
        self._take()
        self._channel.fail(self.unique, error or errno.EIO)

    def abandon_in_loop(self) -> None:
        """Answer EINTR, likewise; what `reply` and `fail` say later comes to nothing."""
        self._abandoned = True
        self.refuse_in_loop(errno.EINTR)

    def _late(self, answer: Callable[[Any], None], value: Any) -> None:
        if not self._channel.enter():
            self._abandoned = True
            with contextlib.suppress(RuntimeError):
                self._take()
            return
        try:
            answer(value)
        except RuntimeError:
            if not self._abandoned:
                raise
        finally:
            self._channel.leave()

    def _take(self) -> None:
        """Let the one thread go on that may answer. Raises RuntimeError in others."""
        try:
            # Deleting an attribute is atomic: of several threads one succeeds.
            del self._unanswered
        except AttributeError:
            raise RuntimeError("this request has been answered before") from None

    def await_answer(self) -> None:
        """The handler has returned LATER: from now on it is noticed when the request is dropped."""
        self.__class__ = _Awaited


class _Awaited(Request):
    """A request that is answered later, perhaps. All others do without a finalizer, which takes time."""

    __slots__ = ()

    def __del__(self) -> None:
        if hasattr(self, "_unanswered"):
            _log.error("a request was dropped without an answer; it is answered EIO")
            self.fail(errno.EIO)


# -- callers that are killed while they wait for a late answer ------------------------------------------
# Linux does not let go of a process that waits for an answer of FUSE, not even with SIGKILL; the filesystem
# is only told, by FUSE_INTERRUPT, of the first signal that comes. Answering EINTR to any signal would break
# programs that do not expect that of a file (Go's runtime signals itself all the time), so only the dying are
# let go: a fatal signal leaves SIGKILL pending in every thread of the process. One that survives its first
# signal is not let go later.


_PENDING = re.compile(r"^SigPnd:\s*([0-9a-f]+)$", re.MULTILINE)
_SIGKILL = 1 << (signal.SIGKILL - 1)


class Abandonable(Protocol):
    """What is used of `Request`."""

    @property
    def unique(self) -> int: ...

    @property
    def pid(self) -> int: ...

    def abandon_in_loop(self) -> None: ...


class Interrupts:
    """The requests of a session whose callers are let go when they are killed. For the loop's thread."""

    def __init__(self) -> None:
        self._requests: WeakValueDictionary[int, Abandonable] = WeakValueDictionary()

    def watch(self, request: Abandonable) -> None:
        """Abandon an unanswered request as soon as its caller is killed. The kernel says so after it has sent
        the request: then the loop reads that."""
        self._requests[request.unique] = request

    def came(self, unique: int) -> None:
        """The caller of this request has got a signal."""
        request = self._requests.get(unique)
        if request is not None and _is_dying(request.pid):
            with contextlib.suppress(RuntimeError):  # it was answered in this moment
                request.abandon_in_loop()


def _is_dying(thread: int) -> bool:
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return False
    pending = _PENDING.search(status)
    return pending is not None and bool(int(pending[1], 16) & _SIGKILL)
