"""One file on either side of a mirror: reading it, what identifies its bytes, renaming it without a loss."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.errors import failure
from hybrisfs.mirror.engine import LocalOriginal
from hybrisfs.mirror.model import ChangedError, Seen, own_bits
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync.codec import Buffer

__all__ = [
    "DISK",
    "Disk",
    "LocalFile",
    "Reader",
    "VolumeFile",
    "digest_of",
    "is_mirrored",
    "open_below",
    "read_xattrs",
    "write_whole",
    "write_xattrs",
]

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
        _write_out(self.descriptor)
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

    def part(self, offset: int, length: int) -> bytes:
        return read_whole(self.descriptor, length, offset)

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


# -- reading something of the volume, to put it on the other side of a mirror ---------------------------


class Reader(Struct, frozen=True):
    """What reading needs; *fetch* brings chunks, or raises ChunkUnavailable."""

    fs: FileSystem
    fetch: Callable[[list[ChunkRef]], object]

    def bring(self, missing: Missing) -> None:
        """Raises OSError (EAGAIN) when it cannot be had just now."""
        try:
            self.fetch(missing.chunks)
        except ChunkUnavailable as error:
            raise OSError(errno.EAGAIN, f"cannot be had from the clouds just now: {error}") from error

    def list_chunks(self, inode: Inode) -> None:
        """See to it that this device knows the chunks of the file."""
        while True:
            with self.fs.state.transaction() as tx:
                lacking = self.fs.received.lacking(tx, inode)
            if lacking is None:
                return
            self.bring(lacking)


class VolumeFile:
    """Something of the volume that is being read; see `engine.Original`."""

    def __init__(self, reader: Reader, inode: Inode, seen: Seen, xattrs: Mapping[bytes, bytes]) -> None:
        self._reader = reader
        self._inode = inode
        self._version = _version(inode)
        self.seen = seen
        self.xattrs = xattrs
        self.own_bits = own_bits(inode.mode)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        found = ContentHash(self._reader.fs.state.namer)
        for offset in self._windows():
            data = self._data(offset)
            if not is_zero(data):
                found.add(offset, data)
                yield offset, data
        self._finish(found)

    def identified(self, beside: LocalOriginal | None = None) -> Seen:
        """With the identity of the content. Of bytes that are not here, those that *beside* has as well are
        not fetched."""
        found = ContentHash(self._reader.fs.state.namer)
        for offset in self._windows():
            known = self._known(offset)
            if known is not None:
                found.add_known(offset, known)
                continue
            if beside is not None:
                self._borrow(offset, beside)
            data = self._data(offset)
            if not is_zero(data):
                found.add(offset, data)
        self._finish(found)
        return self.seen

    def _finish(self, found: ContentHash) -> None:
        with self._reader.fs.state.transaction():
            if _version(self._inode) != self._version or self._inode.orphan:
                raise ChangedError("a file of the volume has changed while it was read")
        self.seen = self.seen.with_content(found.digest(self.seen.facts.size))

    def _windows(self) -> Iterator[int]:
        """The windows that are no holes."""
        reader, offset = self._reader, 0
        reader.list_chunks(self._inode)
        while True:
            with reader.fs.state.transaction() as tx:
                try:
                    offset = reader.fs.content.seek(tx, self._inode, offset, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
                    return
            offset -= offset % WINDOW
            yield offset
            offset += WINDOW

    def _known(self, offset: int) -> bytes | None:
        """The id of the chunk that is just this window, if one is."""
        fs, inode = self._reader.fs, self._inode
        end = min(offset + WINDOW, inode.size)
        with fs.state.transaction() as tx:
            extents = fs.inodes.extents_of(tx, inode)
            staged = [piece for piece in extents.pieces(offset, end) if piece.segment is not None]
            rows = fs.content.base_rows(tx, inode, offset, end)
        if staged or len(rows) != 1 or (rows[0].offset, rows[0].length) != (offset, end - offset):
            return None
        return rows[0].chunk.id if rows[0].chunk.length == rows[0].length else None

    def _borrow(self, offset: int, beside: LocalOriginal) -> None:
        """Take from the other side the chunks of a window that are not here, as far as it has them."""
        fs, inode = self._reader.fs, self._inode
        with fs.state.transaction() as tx:
            rows = fs.content.base_rows(tx, inode, offset, offset + WINDOW)
        for row in rows:
            if row.chunk.is_here or row.length != row.chunk.length or row.end > self.seen.facts.size:
                continue
            try:
                data = beside.part(row.offset, row.length)
            except ChangedError:
                return
            if fs.state.namer.chunk_id(data) == row.chunk.id:
                with fs.state.transaction() as tx:
                    tx.chunks.remember(row.chunk.number, data)

    def _data(self, offset: int) -> bytes:
        while True:
            with self._reader.fs.state.transaction() as tx:
                data = self._reader.fs.read(tx, self._inode, offset, WINDOW)
            if not isinstance(data, Missing):
                return data
            self._reader.bring(data)


def _version(inode: Inode) -> tuple[int, int, int]:
    """Changes whenever the content does."""
    return inode.size, inode.mtime, inode.truncations


# -- the identity of a file's content -------------------------------------------------------------------
# It is the hash of the number and the chunk id of every window of `WINDOW` bytes that holds something else
# than zeros, and of the size. Chunk ids are keyed, so that the hash reveals nothing.


WINDOW: Final = MAX_CHUNK
_PERSON: Final = b"hybrisfs mirror1"
_ZEROS: Final = bytes(WINDOW)
_WINDOW_NUMBER: Final = struct.Struct(">Q")


class ContentHash:
    """Told of the windows of a file in order, but for those that are zeros throughout."""

    def __init__(self, namer: ChunkNamer) -> None:
        self._namer = namer
        self._hash = hashlib.blake2b(digest_size=32, person=_PERSON)

    def add(self, offset: int, data: Buffer) -> None:
        """The bytes of the window at *offset*, as far as the file goes."""
        self.add_known(offset, self._namer.chunk_id(data))

    def add_known(self, offset: int, identity: bytes) -> None:
        """The chunk id of the window at *offset*."""
        self._hash.update(_WINDOW_NUMBER.pack(offset // WINDOW))
        self._hash.update(identity)

    def digest(self, size: int) -> bytes:
        """The identity; 32 bytes."""
        self._hash.update(_WINDOW_NUMBER.pack(size))
        return self._hash.digest()


def is_zero(data: bytes) -> bool:
    """Whether all bytes, at most a window of them, are zeros."""
    return data == (_ZEROS if len(data) == WINDOW else _ZEROS[: len(data)])


# -- extended attributes that are mirrored --------------------------------------------------------------


_OURS: Final = b"user.hybrisfs."
_LENGTHS: Final = struct.Struct(">II")


def is_mirrored(name: bytes) -> bool:
    """Whether an extended attribute of that name is kept on both sides. What another device signed may have a
    name that no disk takes."""
    return name.startswith(b"user.") and not name.startswith(_OURS) and b"\0" not in name


def digest_of(xattrs: Mapping[bytes, bytes]) -> bytes:
    """Equal for equal attributes; empty when there are none."""
    if not xattrs:
        return b""
    found = hashlib.blake2b(digest_size=16)
    for name, value in sorted(xattrs.items()):
        found.update(_LENGTHS.pack(len(name), len(value)) + name + value)
    return found.digest()


# -- what a mirror asks of the filesystem that its folder is on, beside what all of them do alike -------


_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_WAIT_BEFORE: Final = 1
_WRITE: Final = 2
_STATFS_BYTES: Final = 256
_NETWORKS: Final = (0x6969, 0xFF534D42, 0xFE534D42)  # NFS, CIFS, SMB2, as statfs(2) numbers them
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTTY, errno.EOPNOTSUPP)
_libc = ctypes.CDLL(None, use_errno=True)


def _write_out(descriptor: int) -> None:
    """Send to the disk what programs have written through mappings. Linux dates a page when it becomes dirty,
    and no further byte that is written into it until then. What has no disk does nothing."""
    _libc.sync_file_range(
        descriptor, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_WAIT_BEFORE | _WRITE)
    )


def _renameat2(old_folder: int, old: bytes, new_folder: int, new: bytes, flags: int) -> None:
    if _libc.renameat2(old_folder, old, new_folder, new, ctypes.c_uint(flags)) != 0:
        raise failure(ctypes.get_errno())


def _kind_of_filesystem(descriptor: int) -> int:
    """Its number in statfs(2)."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(descriptor, found) != 0:
        raise failure(ctypes.get_errno())
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF


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

    def is_being_changed(self, descriptor: int) -> bool:
        """Whether a program has the file open for writing, or mapped. False where nobody knows.

        The kernel grants a lease only if there is none. The lease is given back at once: a program that opens
        the file before that waits for it."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # SIGIO would end this process
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:  # where a server grants leases, it may be for any reason that there is none
            return error.errno == errno.EAGAIN and _kind_of_filesystem(descriptor) not in _NETWORKS
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Set the permissions of what is open, as far as they are kept."""
        os.fchmod(descriptor, mode)

    def set_time(self, descriptor: int, mtime: int) -> None:
        """Set the time of the last change of what is open, ns since the epoch, as exactly as it is kept."""
        os.utime(descriptor, ns=(mtime, mtime))


DISK: Final = Disk()
