"""Which files are at rest: not being written just now, so that no half of them is taken.

Sans-IO: told of what was seen and what the time is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["QUIET", "Rest"]

QUIET: Final = 1.0  # seconds without a change after which a file counts as finished
_LONG_AGO: Final = 5.0  # seconds; what changed before that need not be watched for QUIET first
_OVERDUE: Final = 30.0  # seconds after which a file that never rests is taken as it is


@dataclass(slots=True)
class _Restless:
    first: float
    since: float
    stamp: bytes


class Rest:
    """What has been seen of files that changed a moment ago."""

    def __init__(self) -> None:
        self._restless: dict[bytes, _Restless] = {}

    def is_at_rest(self, path: bytes, stamp: bytes, age: float, *, writing: bool, now: float) -> bool:
        """Whether the file may be taken. *age*: seconds since its last change by the system's clock, which
        may be wrong; *writing*: a program is known to have it open for writing; *now*: seconds, monotonic."""
        one = self._restless.get(path)
        if one is None:
            if age >= _LONG_AGO and not writing:
                return True
            self._restless[path] = _Restless(now, now, stamp)
            return False
        if stamp != one.stamp:
            one.stamp, one.since = stamp, now
        quiet = now - one.since >= QUIET and not writing
        if quiet or now - one.first >= _OVERDUE:
            del self._restless[path]
            return True
        return False

    def forget(self) -> None:
        """Nothing is known any more: the folder was away."""
        self._restless.clear()
