"""Moving a file to a name that must be free, as one atomic step."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

__all__ = ["rename_if_absent"]

_RENAME_NOREPLACE: Final = 1  # linux/fs.h
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def rename_if_absent(source: str, target: str, source_folder: int, target_folder: int) -> bool:
    """Move `source` to `target` (names in two open folders) unless `target` exists; say whether it moved.

    A hard link does it nearly everywhere, network mounts included; FAT and exFAT have none, but know
    renameat2(2) with RENAME_NOREPLACE. Raises `OSError` when neither works.
    """
    try:
        os.link(source, target, src_dir_fd=source_folder, dst_dir_fd=target_folder)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_noreplace(source, target, source_folder, target_folder)
    os.unlink(source, dir_fd=source_folder)
    return True


def _rename_noreplace(source: str, target: str, source_folder: int, target_folder: int) -> bool:
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    failed = renameat2(
        source_folder, os.fsencode(source), target_folder, os.fsencode(target), _RENAME_NOREPLACE
    )
    if not failed:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    raise OSError(code, os.strerror(code), target)
