"""A mount and the loop that serves it."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import hybrisfs.fuse.mounting as mounting
import hybrisfs.fuse.records as c
from hybrisfs.fuse.callers_cpu import CallersCpu, LinuxScheduler
from hybrisfs.fuse.errors import FuseError
from hybrisfs.fuse.loop import Handlers, run_guarded, serve
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.request import ANSWER, Channel
from hybrisfs.fuse.requests import HEADER, INIT

__all__ = ["DEFAULT_CAPABILITIES", "MountedSession"]

DEFAULT_CAPABILITIES: Final = (
    c.FUSE_ASYNC_READ
    | c.FUSE_DO_READDIRPLUS
    | c.FUSE_READDIRPLUS_AUTO
    | c.FUSE_PARALLEL_DIROPS
    | c.FUSE_CACHE_SYMLINKS
    | c.FUSE_EXPLICIT_INVAL_DATA
)
"""What is asked of the kernel unless told otherwise; what it cannot do is left out.

Not FUSE_ATOMIC_O_TRUNC: with it a file is truncated before the kernel finds that it may not be, because
it is a program that runs (ETXTBSY). Not FUSE_ASYNC_DIO: with it Linux does not drop the pages that
a program has read while an asynchronous direct write was under way, and goes on showing them.
"""

_NOTHING_TO_DO: Final = frozenset({errno.ENOENT, errno.ENOTDIR})  # the kernel does not know it
_INVAL_INODE: Final = Struct("=Qqq")
"""fuse_notify_inval_inode_out: ino (u64), off len (i64)."""
_INVAL_ENTRY: Final = Struct("=QII")
"""fuse_notify_inval_entry_out: parent (u64), namelen flags (u32); the name and a zero byte follow."""


class MountedSession:
    """One mount: `mount`, then `run` in a thread of its own until it is unmounted, then `close`.

    The process must not touch its own mount in a thread that holds a lock a handler needs. One of these is
    the interpreter's, which is held while a process starts, until that has closed its descriptors. No signal
    handler is installed. The main thread is not a place for `run`: there Ctrl-C would only fail a request.
    """

    def __init__(
        self,
        operations: Operations,
        mountpoint: Path,
        options: Sequence[str] = (),
        *,
        capabilities: int = DEFAULT_CAPABILITIES,
        max_write: int = 1 << 20,
        max_readahead: int = 1 << 20,
        max_background: int = 64,
    ) -> None:
        """Prepare; nothing is mounted yet. `options` as in mount.fuse3(8), sizes in bytes.

        The kernel may lower `max_write` and `max_readahead`; `max_background` limits its read-ahead and
        asynchronous requests under way.
        """
        self.mountpoint = mountpoint.resolve()  # as the kernel lists it
        self.options = tuple(options)
        self._operations = operations
        self._wishes = Wishes(capabilities, max_write, max_readahead, max_background)
        self._channel: Channel | None = None
        self._fd = -1
        self._device: str | None = None
        self._running = threading.Lock()

    def mount(self) -> None:
        """Mount, and call `Operations.init`. A program that looks into the mount now waits for `run`.

        Raises FuseError, whose message says what to do.
        """
        if self._channel is not None:
            raise FuseError(None, f"{self.mountpoint} is mounted by this session already")
        fd = mounting.connect(self.mountpoint, self.options)
        try:
            self._device = mounting.mounted_device(self.mountpoint)
            shake_hands(fd, self._wishes)
        except BaseException:
            self._unmount_own(lazy=True)
            os.close(fd)
            raise
        self._fd = fd
        self._channel = Channel(fd, CallersCpu(LinuxScheduler.of_this_process(), time.perf_counter))
        run_guarded(self._operations.init)

    @property
    def device(self) -> str | None:
        """The number of the mounted filesystem, "major:minor"; None while there is none."""
        return self._device

    def run(self) -> None:
        """Serve until the mount is gone. Raises FuseError when the connection breaks otherwise."""
        channel = self._own_channel()
        if not self._running.acquire(blocking=False):
            raise FuseError(None, f"{self.mountpoint} is being served already")
        try:
            serve(self._fd, Handlers(self._operations, channel), channel, self._wishes.max_write)
        except OSError as error:
            raise FuseError(error.errno, f"serving {self.mountpoint} failed: {error.strerror}") from error
        finally:
            self._running.release()

    def unmount(self, *, lazy: bool = False) -> None:
        """Unmount, which ends `run`. From any thread, but never from a handler.

        Raises FuseError with EBUSY while files are open. With `lazy` the mount disappears at once, and `run`
        ends when the last of them is closed. Nothing happens when it has been unmounted before.
        """
        self._unmount_own(lazy=lazy)

    def close(self) -> None:
        """Unmount if need be and free everything. `run` must have returned. Late answers come to nothing."""
        if not self._running.acquire(blocking=False):
            raise FuseError(None, f"{self.mountpoint} is still being served: unmount it and wait for run")
        try:
            self._unmount_own(lazy=True)
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()
                os.close(self._fd)
                run_guarded(self._operations.destroy)
        finally:
            self._running.release()

    def notify_inval_inode(self, ino: int, offset: int = 0) -> None:
        """Drop the kernel's cached attributes of an inode, and its data from `offset` on; with a
        negative `offset` the attributes alone.

        This and the other notify_* may wait for a handler to return: call them from any thread, but never
        from a handler nor with a lock that a handler takes. What the kernel does not know needs no notice:
        that is not an error. Raises FuseError when the connection is gone.
        """
        self._notify(c.FUSE_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(ino, offset, 0))

    def notify_inval_entry(self, parent: int, name: bytes) -> None:
        """Drop a cached name, so that the next access looks it up again."""
        self._notify(c.FUSE_NOTIFY_INVAL_ENTRY, _INVAL_ENTRY.pack(parent, len(name), 0) + name + b"\0")

    def _own_channel(self) -> Channel:
        if self._channel is None:
            raise FuseError(None, f"{self.mountpoint} is not mounted by this session")
        return self._channel

    def _notify(self, kind: int, notice: bytes) -> None:
        channel = self._own_channel()
        if not channel.enter():
            raise FuseError(errno.ENOTCONN, f"{self.mountpoint} is closed")
        try:
            os.writev(self._fd, (ANSWER.pack(ANSWER.size + len(notice), kind, 0), notice))
        except OSError as error:
            if error.errno not in _NOTHING_TO_DO:
                raise FuseError(
                    error.errno, f"cannot notify the kernel about {self.mountpoint}: {error.strerror}"
                ) from error
        finally:
            channel.leave()

    def _unmount_own(self, *, lazy: bool) -> None:
        device = self._device
        if device is not None and mounting.mounted_device(self.mountpoint) == device:
            mounting.unmount(self.mountpoint, lazy=lazy)
        self._device = None


# -- the first exchange of a mount, FUSE_INIT, in which kernel and filesystem agree on capabilities -----
#
#     request   fuse_in_header (see requests.py)
#               fuse_init_in: major minor max_readahead flags flags2 (u32) ...
#     answer    fuse_out_header (see request.py)
#               fuse_init_out: major minor max_readahead flags (u32), max_background congestion_threshold
#               (u16), max_write time_gran (u32), max_pages map_alignment (u16), unused (32 bytes)  64 bytes


_LARGEST_INIT: Final = 1 << 16
_OFFER: Final = Struct("=IIII")
_AGREED: Final = Struct("=IIIIHHIIHH32x")
_MAJOR: Final = 7
_MINOR: Final = 38  # what this code was written against; the kernel adapts
_OLDEST_MINOR: Final = 23  # Linux 3.15: answers as long as these, and renames with flags
_ALWAYS: Final = c.FUSE_BIG_WRITES | c.FUSE_MAX_PAGES
_NANOSECOND: Final = 1  # the grain of times


class Wishes(NamedTuple):
    """What a session would like: capabilities, sizes in bytes, requests under way."""

    capabilities: int
    max_write: int
    max_readahead: int
    max_background: int


def shake_hands(device: int, wishes: Wishes) -> None:
    """Answer the FUSE_INIT that waits on *device*. Raises FuseError when the kernel is too old, or when the
    mount is gone."""
    try:
        offer = os.read(device, _LARGEST_INIT)
        _, opcode, unique, *_ = HEADER.unpack_from(offer)
        major, minor, max_readahead, flags = _OFFER.unpack_from(offer, HEADER.size)
        if opcode != INIT or major != _MAJOR or minor < _OLDEST_MINOR:
            raise FuseError(
                errno.EPROTONOSUPPORT,
                f"the kernel speaks version {major}.{minor} of FUSE, not {_MAJOR}.{_OLDEST_MINOR} or a later "
                f"{_MAJOR}: Linux 3.15 or later is needed",
            )
        pages = -(-wishes.max_write // os.sysconf("SC_PAGE_SIZE"))
        agreed = _AGREED.pack(
            _MAJOR,
            min(minor, _MINOR),
            min(max_readahead, wishes.max_readahead),
            flags & (wishes.capabilities | _ALWAYS),
            wishes.max_background,
            wishes.max_background * 3 // 4,
            wishes.max_write,
            _NANOSECOND,
            pages,
            0,
        )
        os.write(device, ANSWER.pack(ANSWER.size + len(agreed), 0, unique) + agreed)
    except OSError as error:
        if isinstance(error, FuseError):
            raise
        raise FuseError(error.errno, f"the mount broke as it began: {error.strerror}; try again") from error
