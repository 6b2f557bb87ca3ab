"""One request of the kernel, and its one answer."""

from __future__ import annotations

import enum
import errno
import logging
import re
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from hybrisfs.fuse.callers_cpu import CallersCpu
from hybrisfs.fuse.library import InterruptFunction, Library
from hybrisfs.fuse.records import Buffer, held

__all__ = ["LATER", "Channel", "Encoder", "Later", "Request"]

_log = logging.getLogger(__name__)

# Up to this size a reply costs less than giving the interpreter's lock away and getting it back.
_BRIEF = 16 * 1024

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

    libfuse frees its requests with the session, so an answer that comes after the session has gone must not
    reach it: `enter` refuses those, and `close` waits for the ones on their way.
    """

    __slots__ = (
        "_answering",
        "_asked_in_a_row",
        "_asking",
        "_caller",
        "_changed",
        "_open",
        "answers_later",
        "callers_cpu",
        "context",
        "fail",
        "interrupts",
        "send",
        "send_briefly",
    )

    def __init__(self, library: Library, callers_cpu: CallersCpu) -> None:
        self.callers_cpu = callers_cpu
        self.send_briefly: Callable[[int, bytes, int], int] = library.brief.fuse_reply_buf
        self.send: Callable[[int, bytes | int | None, int], int] = library.waiting.fuse_reply_buf
        self.fail: Callable[[int, int], int] = library.brief.fuse_reply_err
        self.context = library.brief.fuse_req_ctx
        self.interrupts = Interrupts(library)
        # Reentrant, for an abandoned request may be collected anywhere, which answers it.
        self._changed = Condition()
        self._open = True
        self._answering = 0
        self.answers_later = False
        """Whether the loop has left the answer to the last request to another thread."""
        self._asking, self._caller = 0, -1
        self._asked_in_a_row = 0

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

    __slots__ = ("__weakref__", "_abandoned", "_channel", "_encode", "_handle", "_unanswered")

    def __init__(self, channel: Channel, handle: int, encode: Encoder) -> None:
        self._channel = channel
        self._handle = handle
        self._encode = encode
        self._unanswered = True
        self._abandoned = False

    @property
    def uid(self) -> int:
        """Effective user of the calling process. Like `gid`, `pid` and `maker` only known until the
        answer.
        """
        return int(self._context().uid)

    @property
    def gid(self) -> int:
        """Effective group of the calling process."""
        return int(self._context().gid)

    @property
    def pid(self) -> int:
        """The calling thread; 0 when it is in a namespace that we do not see."""
        return int(self._context().pid)

    @property
    def is_from_the_only_one(self) -> bool:
        """Whether no other thread has made a request lately, so that a handler that waits holds up nobody.
        Only for the handler."""
        return self._channel.is_for_one

    @property
    def maker(self) -> tuple[int, int, int]:
        """Effective user, group and file mode creation mask of the caller, in requests that create
        something: each of them alone would take as long."""
        context = self._context()
        return context.uid, context.gid, context.umask

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
        self._channel.interrupts.watch(self._handle, self)

    @property
    def abandoned(self) -> bool:
        """Whether no caller waits for the answer any more."""
        return self._abandoned

    def answer_in_loop(self, answer: Any) -> None:
        """`reply`, from the loop's own thread, during which the session cannot end."""
        channel, encode = self._channel, self._encode
        if encode is None:
            channel.fail(self._take(), 0)
            return
        data = encode(answer)
        if type(data) is not bytes:
            with held(data) as (address, size):
                channel.send(self._take(), address, size)
        elif len(data) <= _BRIEF:
            channel.send_briefly(self._take(), data, len(data))
        else:
            channel.send(self._take(), data, len(data))

    def refuse_in_loop(self, error: int) -> None:
        """`fail`, likewise."""
        self._channel.fail(self._take(), error or errno.EIO)

    def abandon_in_loop(self) -> None:
        """Answer EINTR, likewise; what `reply` and `fail` say later comes to nothing."""
        self._abandoned = True
        self.refuse_in_loop(errno.EINTR)

    def _late(self, answer: Callable[[Any], None], value: Any) -> None:
        if not self._channel.enter():
            self._abandoned = True
            self._handle = 0
            return
        try:
            answer(value)
        except RuntimeError:
            if not self._abandoned:
                raise
        finally:
            self._channel.leave()

    def _take(self) -> int:
        """The handle, for the one thread that may answer."""
        try:
            # Deleting an attribute is atomic: of several threads one succeeds.
            del self._unanswered
        except AttributeError:
            raise RuntimeError("this request has been answered before") from None
        handle = self._handle
        self._handle = 0
        return handle

    def _context(self) -> Any:
        if not self._handle:
            raise RuntimeError("who made this request is not known any more: it has been answered")
        return self._channel.context(self._handle).contents

    def await_answer(self) -> None:
        """The handler has returned LATER: from now on it is noticed when the request is dropped."""
        self.__class__ = _Awaited


class _Awaited(Request):
    """A request that is answered later, perhaps. All others do without a finalizer, which takes time."""

    __slots__ = ()

    def __del__(self) -> None:
        if self._handle:
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
    def pid(self) -> int: ...

    def abandon_in_loop(self) -> None: ...


class Interrupts:
    """The requests of a session whose callers are let go when they are killed."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._requests: WeakValueDictionary[int, Abandonable] = WeakValueDictionary()
        self._function = InterruptFunction(self._interrupted)

    def watch(self, handle: int, request: Abandonable) -> None:
        """Abandon an unanswered request as soon as its caller is killed."""
        # libfuse may call the function at once, but does not survive an answer from within that call: so the
        # request is made known afterwards, and then checked for an interrupt that came before.
        self._library.brief.fuse_req_interrupt_func(handle, self._function, None)
        self._requests[handle] = request
        if self._library.brief.fuse_req_interrupted(handle):
            self._interrupted(handle, None)

    def _interrupted(self, handle: int, _data: int | None) -> None:
        try:
            request = self._requests.get(handle)
            if request is not None and _is_dying(request.pid):
                request.abandon_in_loop()
        except RuntimeError:
            return  # it was answered in this moment
        except BaseException:  # noqa: BLE001 - libfuse cannot take an exception
            _log.exception("an interrupted request could not be abandoned")


def _is_dying(thread: int) -> bool:
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return False
    pending = _PENDING.search(status)
    return pending is not None and bool(int(pending[1], 16) & _SIGKILL)
