"""Reading something of the folder on the disk, and its extended attributes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from typing import Final

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.mirror.attributes import is_mirrored
from hybrisfs.mirror.content import WINDOW, ContentHash, is_zero
from hybrisfs.mirror.model import ChangedError, Seen, own_bits

__all__ = ["LocalFile", "open_below", "read_xattrs", "write_whole", "write_xattrs"]

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_XATTRS: Final = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES)


def open_below(root: int, path: bytes, flags: int) -> int:
    """Open what is at *path* below an open directory; b"" is that itself. Follows no symbolic link, on no
    part of the way if *flags* hold O_NOFOLLOW. Raises OSError."""
    names = path.split(b"/") if path else [b"."]
    folder, opened = root, -1
    try:
        for name in names[:-1]:
            step = os.open(name, _STEP, dir_fd=folder)
            if opened >= 0:
                os.close(opened)
            folder = opened = step
        return os.open(names[-1], flags, dir_fd=folder)
    finally:
        if opened >= 0:
            os.close(opened)


def read_xattrs(descriptor: int) -> dict[bytes, bytes]:
    """The extended attributes that are mirrored, of what is open; none where there are none."""
    try:
        names = [os.fsencode(name) for name in os.listxattr(descriptor)]
        return {name: os.getxattr(descriptor, name) for name in names if is_mirrored(name)}
    except OSError as error:
        if error.errno in (*_NO_XATTRS, errno.ENODATA):
            return {}
        raise


def write_xattrs(descriptor: int, wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Let what is open have these extended attributes, as far as its filesystem keeps any; those that it has
    by that."""
    present = read_xattrs(descriptor)
    try:
        for name in present.keys() - wanted.keys():
            os.removexattr(descriptor, name)
            del present[name]
        for name, value in wanted.items():
            if present.get(name) != value:
                os.setxattr(descriptor, name, value)
                present[name] = value
    except OSError as error:
        if error.errno not in _NO_XATTRS:
            raise
    return present


class LocalFile:
    """Something of the folder that is being read; see `engine.Original`."""

    def __init__(
        self,
        descriptor: int,
        seen: Seen,
        xattrs: Mapping[bytes, bytes],
        namer: ChunkNamer,
    ) -> None:
        self.descriptor = descriptor
        self.seen = seen
        self.xattrs = xattrs
        self._namer = namer
        self._before = os.fstat(descriptor)
        self.own_bits = own_bits(self._before.st_mode)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Bytes that a program appends during the read are left for the next time."""
        found, size = ContentHash(self._namer), self._before.st_size
        for offset in self._windows(size):
            data = read_whole(self.descriptor, min(WINDOW, size - offset), offset)
            if not is_zero(data):
                found.add(offset, data)
                yield offset, data
        after = os.fstat(self.descriptor)
        same = (after.st_size, after.st_mtime_ns) == (size, self._before.st_mtime_ns)
        if not same and after.st_size <= size:
            raise ChangedError("a file changed while it was read")
        self.seen = self.seen.with_content(found.digest(size))

    def _windows(self, size: int) -> Iterator[int]:
        """The windows that are no holes."""
        offset = 0
        while offset < size:
            try:
                offset = os.lseek(self.descriptor, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                if error.errno != errno.EINVAL:
                    raise
            offset -= offset % WINDOW
            if offset < size:
                yield offset
            offset += WINDOW


def read_whole(descriptor: int, size: int, offset: int) -> bytes:
    """So many bytes from *offset* on. Raises ChangedError when the file is shorter."""
    parts: list[bytes] = []
    while size:
        part = os.pread(descriptor, size, offset)
        if not part:
            raise ChangedError("a file became shorter while it was read")
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_whole(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of it at *offset*."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
