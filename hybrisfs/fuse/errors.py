"""What the binding raises."""

from __future__ import annotations

__all__ = ["FuseError"]


class FuseError(OSError):
    """The kernel, /dev/fuse or the mount point refused; the message says what to do. `errno` may be None."""

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""
