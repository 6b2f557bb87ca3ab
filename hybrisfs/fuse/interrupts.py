"""Callers that are killed while they wait for a late answer.

Linux does not let go of a process that waits for an answer of FUSE, not even with SIGKILL; the filesystem is
only told, by FUSE_INTERRUPT, of the first signal that comes. Answering EINTR to any signal would break
programs that do not expect that of a file (Go's runtime signals itself all the time), so only the dying are
let go: a fatal signal leaves SIGKILL pending in every thread of the process. One that survives its first
signal is not let go later.
"""

from __future__ import annotations

import logging
import re
import signal
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from hybrisfs.fuse.library import InterruptFunction, Library

__all__ = ["Interrupts"]

_log = logging.getLogger(__name__)

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
