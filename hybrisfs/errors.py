"""The errors that reach a person: what failed, why, and what to do about it.

Exit codes of the command line:

0    done
1    it failed, or a check found a problem
2    the command was used wrongly
3    time ran out before the work was done; it goes on in the background
4    there is no such volume
5    the daemon cannot be reached or started, or speaks another version
6    a condition of a write does not hold (`kv put --if-absent` and the like); nothing was written
70   a bug: something nobody expected, with the details in the log
130  interrupted
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import ClassVar, Final

__all__ = [
    "ConditionError",
    "DaemonError",
    "DamagedError",
    "HybrisError",
    "InternalError",
    "NewerFormatError",
    "UnavailableError",
    "UnknownVolumeError",
    "UsageError",
    "as_sentence",
    "disk_trouble",
    "failure",
    "from_wire",
]

_DISK_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE}
)
_DATABASE_ERRORS: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)


def failure(number: int) -> OSError:
    """The error that a program sees as *number*."""
    return OSError(number, os.strerror(number))


class HybrisError(Exception):
    """`what` failed, `why`, and `advice`, a sentence on what to do; the latter two may be empty."""

    kind: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, why: str = "", advice: str = "") -> None:
        self.what = what
        self.why = why
        self.advice = advice
        self.reported = ""
        """The kind that the daemon gave it, also when no class here is of that kind."""
        super().__init__(what, why, advice)

    def __str__(self) -> str:
        sentence = f"{self.what}: {self.why}" if self.why else self.what
        return f"{sentence}\n{self.advice}" if self.advice else sentence


class UsageError(HybrisError):
    """The request makes no sense as it stands; nothing was changed."""

    kind = "usage"
    exit_code = 2


class UnknownVolumeError(HybrisError):
    """There is no volume of that name."""

    kind = "unknown volume"
    exit_code = 4


class ConditionError(HybrisError):
    """A condition of a write does not hold; nothing was written."""

    kind = "condition"
    exit_code = 6


class DaemonError(HybrisError):
    """The daemon cannot be reached or started, or speaks another version."""

    kind = "daemon"
    exit_code = 5


class UnavailableError(HybrisError):
    """Too few clouds answer now; the same may work later."""

    kind = "unavailable"


class DamagedError(HybrisError):
    """Something stored is not what it should be."""

    kind = "damaged"


class NewerFormatError(HybrisError):
    """Something was written by a later version of this program; it is left alone."""

    kind = "newer format"


class InternalError(HybrisError):
    """A bug. The details are in the daemon's log."""

    kind = "internal"
    exit_code = 70


_KINDS = {
    error.kind: error
    for error in (
        HybrisError,
        UsageError,
        UnknownVolumeError,
        ConditionError,
        DaemonError,
        UnavailableError,
        DamagedError,
        NewerFormatError,
        InternalError,
    )
}


def from_wire(kind: str, message: str) -> HybrisError:
    """The error that the daemon reported as `kind` and `message` (`str` of the original)."""
    sentence, _, advice = message.partition("\n")
    error = _KINDS.get(kind, HybrisError)(sentence, "", advice)
    error.reported = kind
    return error


def as_sentence(advice: str) -> str:
    """Words on what to do, as a sentence. A command stays as it is typed: at the beginning, and at the end
    behind a colon."""
    if not advice:
        return ""
    ended = advice.endswith((".", "?")) or "run: " in advice or ": hybrisfs " in advice
    first = advice[0] if advice.startswith("hybrisfs ") else advice[0].upper()
    return f"{first}{advice[1:]}{'' if ended else '.'}"


def disk_trouble(error: BaseException) -> str | None:
    """What the disk of this machine refuses, in a few words; None when the error has another cause.

    A full or broken disk is not a bug: a background stage logs one line, and tries again.
    """
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return error.strerror or os.strerror(error.errno)
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", None)  # errors that are not SQLite's own have none
    is_closed = isinstance(error, sqlite3.ProgrammingError) and "closed" in str(
        error
    )  # after a failed commit
    is_refused = code is not None and code & 0xFF in _DATABASE_ERRORS
    return f"the database: {error}" if is_closed or is_refused else None
