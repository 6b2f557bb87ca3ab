"""The first exchange of a mount, FUSE_INIT, in which kernel and filesystem agree on capabilities.

libfuse answers it, but up to 3.16 it leaves out of its answer two capabilities that matter here, though the
first of them is on its list. So its answer is caught, completed and sent on.

    request   fuse_in_header (40 bytes): len opcode (u32), unique nodeid (u64), uid gid pid padding (u32)
              fuse_init_in: major minor max_readahead flags flags2 (u32) ...
    answer    fuse_out_header (16 bytes): len (u32), error (i32), unique (u64)
              fuse_init_out: major minor max_readahead flags (u32) ...
"""

from __future__ import annotations

import ctypes
import errno
import os
from struct import Struct

import hybrisfs.fuse.constants as c
from hybrisfs.fuse.errors import FuseError
from hybrisfs.fuse.library import DataBuffer, Library

__all__ = ["shake_hands"]

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
