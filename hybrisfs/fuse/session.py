"""A mount and the loop that serves it."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import c_char_p
from pathlib import Path
from struct import Struct
from typing import Any

import hybrisfs.fuse.mounting as mounting
import hybrisfs.fuse.records as c
from hybrisfs.fuse.callbacks import low_level_ops
from hybrisfs.fuse.callers_cpu import CallersCpu, LinuxScheduler
from hybrisfs.fuse.errors import FuseError
from hybrisfs.fuse.library import Arguments, ConnectionInfo, DataBuffer, Library, libfuse
from hybrisfs.fuse.loop import serve
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.request import Channel

__all__ = ["DEFAULT_CAPABILITIES", "MountedSession"]

DEFAULT_CAPABILITIES = (
    c.FUSE_CAP_ASYNC_READ
    | c.FUSE_CAP_READDIRPLUS
    | c.FUSE_CAP_READDIRPLUS_AUTO
    | c.FUSE_CAP_PARALLEL_DIROPS
    | c.FUSE_CAP_CACHE_SYMLINKS
    | c.FUSE_CAP_EXPLICIT_INVAL_DATA
)
"""What is asked of the kernel unless told otherwise; what it cannot do is left out.

Not FUSE_CAP_ATOMIC_O_TRUNC: with it a file is truncated before the kernel finds that it may not be, because
it is a program that runs (ETXTBSY). Not FUSE_CAP_ASYNC_DIO: with it Linux does not drop the pages that
a program has read while an asynchronous direct write was under way, and goes on showing them.
"""

_NOTHING_TO_DO = frozenset({errno.ENOENT, errno.ENOTDIR})  # the kernel does not know it


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
        asynchronous requests under way. Raises FuseError when libfuse is missing or does not fit.
        """
        self.mountpoint = mountpoint.resolve()  # as the kernel lists it
        self.options = tuple(options)
        self._library = libfuse()
        self._capabilities = capabilities
        self._limits = (max_write, max_readahead, max_background)
        self._channel = Channel(
            self._library, CallersCpu(LinuxScheduler.of_this_process(), time.perf_counter)
        )
        # What C keeps pointers to must live as long as the session.
        self._table = low_level_ops(self._library, operations, self._channel, self._negotiate)
        self._session: int | None = None
        self._device: str | None = None
        self._running = threading.Lock()

    def mount(self) -> None:
        """Mount, and call `Operations.init`. A program that looks into the mount now waits for `run`.

        Raises FuseError, whose message says what to do.
        """
        if self._session is not None:
            raise FuseError(None, f"{self.mountpoint} is mounted by this session already")
        device = mounting.connect(self.mountpoint, self.options)
        try:
            self._device = mounting.mounted_device(self.mountpoint)
            self._start(device)
        except BaseException:
            self._unmount_own(lazy=True)
            raise
        finally:
            os.close(device)

    @property
    def device(self) -> str | None:
        """The number of the mounted filesystem, "major:minor"; None while there is none."""
        return self._device

    def _start(self, device: int) -> None:
        waiting = self._library.waiting
        arguments = Arguments(1, (c_char_p * 1)(b"program"), 0)
        size = self._library.operations_size
        session = waiting.fuse_session_new(arguments, self._table, size, None)
        waiting.fuse_opt_free_args(arguments)
        if not session:
            raise FuseError(errno.EIO, "libfuse cannot start a session; its log says why")
        try:
            shake_hands(self._library, session, device, self._capabilities)
        except BaseException:
            waiting.fuse_session_destroy(session)
            raise
        self._session = session

    def run(self) -> None:
        """Serve until the mount is gone. Raises FuseError when the connection breaks otherwise."""
        session = self._own_session()
        if not self._running.acquire(blocking=False):
            raise FuseError(None, f"{self.mountpoint} is being served already")
        try:
            serve(self._library, session, self._channel, self._limits[0])
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
            self._channel.close()
            session, self._session = self._session, None
            if session is not None:
                self._library.waiting.fuse_session_destroy(session)
        finally:
            self._running.release()

    def notify_inval_inode(self, ino: int, offset: int = 0) -> None:
        """Drop the kernel's cached attributes of an inode, and its data from `offset` on; with a
        negative `offset` the attributes alone.

        This and the other notify_* may wait for a handler to return: call them from any thread, but never
        from a handler nor with a lock that a handler takes. What the kernel does not know needs no notice:
        that is not an error. Raises FuseError when the connection is gone.
        """
        self._notify(self._library.waiting.fuse_lowlevel_notify_inval_inode, ino, offset, 0)

    def notify_inval_entry(self, parent: int, name: bytes) -> None:
        """Drop a cached name, so that the next access looks it up again."""
        self._notify(self._library.waiting.fuse_lowlevel_notify_inval_entry, parent, name, len(name))

    def _own_session(self) -> int:
        if self._session is None:
            raise FuseError(None, f"{self.mountpoint} is not mounted by this session")
        return self._session

    def _notify(self, function: Callable[..., int], *arguments: Any) -> None:
        session = self._own_session()
        if not self._channel.enter():
            raise FuseError(errno.ENOTCONN, f"{self.mountpoint} is closed")
        try:
            result = function(session, *arguments)
        finally:
            self._channel.leave()
        if result < 0 and -result not in _NOTHING_TO_DO:
            raise FuseError(
                -result, f"cannot notify the kernel about {self.mountpoint}: {os.strerror(-result)}"
            )

    def _negotiate(self, connection: ConnectionInfo) -> None:
        connection.want = self._capabilities & connection.capable
        max_write, max_readahead, max_background = self._limits
        connection.max_write = min(connection.max_write, max_write)
        connection.max_readahead = min(connection.max_readahead, max_readahead)
        connection.max_background = max_background

    def _unmount_own(self, *, lazy: bool) -> None:
        device = self._device
        if device is not None and mounting.mounted_device(self.mountpoint) == device:
            mounting.unmount(self.mountpoint, lazy=lazy)
        self._device = None


# -- the first exchange of a mount, FUSE_INIT, in which kernel and filesystem agree on capabilities -----
# libfuse answers it, but up to 3.16 it leaves out of its answer two capabilities that matter here, though the
# first of them is on its list. So its answer is caught, completed and sent on.
#
#     request   fuse_in_header (40 bytes): len opcode (u32), unique nodeid (u64), uid gid pid padding (u32)
#               fuse_init_in: major minor max_readahead flags flags2 (u32) ...
#     answer    fuse_out_header (16 bytes): len (u32), error (i32), unique (u64)
#               fuse_init_out: major minor max_readahead flags (u32) ...


_LARGEST_INIT = 1 << 16
_FLAGS = Struct("=I")
_OFFERED_AT = 40 + 12
_ANSWERED_AT = 16 + 12
_ERROR = Struct("=4xi8x")

# Bits of `flags`. HANDLE_KILLPRIV_V2 has another bit there than among libfuse's capabilities.
_OMITTED = {c.FUSE_CAP_PARALLEL_DIROPS: 1 << 18, c.FUSE_CAP_HANDLE_KILLPRIV_V2: 1 << 28}


def shake_hands(library: Library, session: int, device: int, capabilities: int) -> None:
    """Have a new libfuse session answer the FUSE_INIT that waits on `device`, and connect it with that
    device.

    Raises FuseError when they do not agree, or when the mount is gone.
    """
    caught, connection = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if library.waiting.fuse_session_mount(session, b"/dev/fd/%d" % connection):
            os.close(connection)
            raise FuseError(errno.EIO, "libfuse does not take the connection; its log says why")
        offer = os.read(device, _LARGEST_INIT)
        memory = ctypes.create_string_buffer(offer, len(offer))
        buffer = DataBuffer(size=len(offer), mem=ctypes.addressof(memory), fd=-1, mem_size=len(offer))
        library.waiting.fuse_session_process_buf(session, buffer)
        answer = os.read(caught, _LARGEST_INIT)
        os.write(device, _completed(offer, answer, capabilities))
        os.dup2(device, connection, inheritable=False)
    except FuseError:
        raise
    except OSError as error:
        raise FuseError(error.errno, f"the mount broke as it began: {error.strerror}; try again") from error
    finally:
        os.close(caught)


def _completed(offer: bytes, answer: bytes, capabilities: int) -> bytes:
    """libfuse's answer with the capabilities that it omits, as far as they are wanted and offered."""
    (error,) = _ERROR.unpack_from(answer)
    if error:
        raise FuseError(
            -error, f"libfuse refuses the kernel's offer: {os.strerror(-error)}; its log says why"
        )
    (offered,) = _FLAGS.unpack_from(offer, _OFFERED_AT)
    (answered,) = _FLAGS.unpack_from(answer, _ANSWERED_AT)
    for capability, bit in _OMITTED.items():
        if capabilities & capability:
            answered |= bit & offered
    return answer[:_ANSWERED_AT] + _FLAGS.pack(answered) + answer[_ANSWERED_AT + _FLAGS.size :]
