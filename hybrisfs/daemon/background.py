"""Leaving the terminal: the process that was started ends when its child, the daemon, is ready."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["READY", "Readiness", "detach", "word_to"]

READY: Final = b"ready"

Readiness = Callable[[str], None]
"""Called with "" when the daemon is ready, with the reason when it cannot start. Later calls do nothing."""


def detach(log: Path) -> Readiness:
    """Fork. Return in the child only, in a session of its own, its output going to `log`.

    The parent waits for the child's word: exit status 0 when it is ready; otherwise 1, with the child's
    reason, if it gave one, on standard error. Must be called before any thread is started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ours, childs = os.pipe()
    if os.fork():
        os.close(childs)
        os._exit(_await_word(ours))
    os.close(ours)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)

    return word_to(childs)


def word_to(pipe: int) -> Readiness:
    """Tell who reads from *pipe*, once: `READY`, or the reason."""
    waiting = [pipe]

    def tell(reason: str) -> None:
        while waiting:
            parent = waiting.pop()
            with contextlib.suppress(BrokenPipeError):  # it has lost patience
                os.write(parent, reason.encode(errors="replace") or READY)
            os.close(parent)

    return tell


def _await_word(pipe: int) -> int:
    word = b""
    while part := os.read(pipe, 4096):
        word += part
    if word == READY:
        return 0
    os.write(2, word)
    return 1
