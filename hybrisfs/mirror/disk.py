"""What a mirror asks of the filesystem that its folder is on, beside what all of them do alike: renaming that
never replaces anything and exchanging (renameat2(2), which Python does not offer), permissions and times.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from hybrisfs.errors import failure

__all__ = ["DISK", "Disk"]

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTTY, errno.EOPNOTSUPP)
_libc = ctypes.CDLL(None, use_errno=True)


def _renameat2(old_folder: int, old: bytes, new_folder: int, new: bytes, flags: int) -> None:
    if _libc.renameat2(old_folder, old, new_folder, new, ctypes.c_uint(flags)) != 0:
        raise failure(ctypes.get_errno())


class Disk:
    """A filesystem of the system. Methods raise OSError."""

    def rename_to_free_name(self, old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
        """Rename; raises FileExistsError when the new name is taken. Where the filesystem cannot promise
        that, the name is looked for first."""
        try:
            _renameat2(old_folder, old, new_folder, new, _NOREPLACE)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            try:
                os.lstat(new, dir_fd=new_folder)
            except FileNotFoundError:
                os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            else:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error

    def exchange(self, folder: int, one: bytes, other: bytes) -> bool:
        """Let two names change places in one step; False when the filesystem cannot."""
        try:
            _renameat2(folder, one, folder, other, _EXCHANGE)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Set the permissions of what is open, as far as they are kept."""
        os.fchmod(descriptor, mode)

    def set_time(self, descriptor: int, mtime: int) -> None:
        """Set the time of the last change of what is open, ns since the epoch, as exactly as it is kept."""
        os.utime(descriptor, ns=(mtime, mtime))


DISK: Final = Disk()
