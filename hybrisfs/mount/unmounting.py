"""Unmounting what may be in use: waits for who only passes by, names who stays."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hybrisfs.errors import HybrisError
from hybrisfs.fuse import FuseError
from hybrisfs.mount.holders import Holder, describe_holders, find_holders

__all__ = ["unmount"]

_PASSES_WITHIN: Final = 2.0  # seconds; somebody looks at a name, or has just closed a file
_AGAIN_AFTER: Final = 0.05  # seconds


def unmount(
    directory: Path,
    attempt: Callable[[], None],
    *,
    find: Callable[[Path], Sequence[Holder]] = find_holders,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Call *attempt*, which unmounts *directory*, again while it is busy although nobody can be found.

    Raises HybrisError, which names who uses it.
    """
    for _ in range(round(_PASSES_WITHIN / _AGAIN_AFTER)):
        try:
            return attempt()
        except FuseError as error:
            if error.errno != errno.EBUSY:
                raise HybrisError(str(error)) from error
        holders = find(directory)
        if holders:
            raise _busy(directory, describe_holders(holders))
        sleep(_AGAIN_AFTER)
    raise _busy(directory, "by nobody that can be seen" + ("" if os.geteuid() == 0 else ": by another user"))


def _busy(directory: Path, users: str) -> HybrisError:
    return HybrisError(
        f"cannot unmount {directory}, it is in use",
        users,
        "End that first, or unmount lazily (hybrisfs umount --lazy): then programs keep what they have open.",
    )
