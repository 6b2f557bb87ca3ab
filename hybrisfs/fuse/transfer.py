"""Handing bytes to libfuse without copying them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object

from hybrisfs.fuse.library import Library
from hybrisfs.fuse.records import Buffer

__all__ = ["borrowed_view", "buffer_sender", "held"]

_PYBUF_SIMPLE = 0
_PYBUF_READ = 0x100
# Up to this size a reply costs less than giving the interpreter's lock away and getting it back.
_BRIEF = 16 * 1024


class _PyBuffer(Structure):
    """Py_buffer of CPython's stable ABI (3.11)."""

    _fields_ = (
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (py_object, POINTER(_PyBuffer), c_int)
_get_buffer.restype = c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (POINTER(_PyBuffer),)
_release_buffer.restype = None
_view_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_view_memory.argtypes = (c_void_p, c_ssize_t, c_int)
_view_memory.restype = py_object


@contextmanager
def held(data: Buffer) -> Iterator[tuple[int | None, int]]:
    """Address and size of a contiguous buffer, which stays put until the end of the block."""
    record = _PyBuffer()
    _get_buffer(data, record, _PYBUF_SIMPLE)
    try:
        yield record.buf, record.len
    finally:
        _release_buffer(record)


def borrowed_view(address: int, size: int) -> memoryview:
    """A read-only view of foreign memory; its owner must call `release` before that memory goes away."""
    view: memoryview = _view_memory(address, size, _PYBUF_READ)
    return view


def buffer_sender(library: Library) -> Callable[[int, Buffer], None]:
    """The function that answers a request with the bytes of a contiguous buffer, in place."""
    reply_briefly = library.brief.fuse_reply_buf
    reply_waiting = library.waiting.fuse_reply_buf

    def send(handle: int, data: Buffer) -> None:
        if type(data) is bytes:
            size = len(data)
            if size <= _BRIEF:
                reply_briefly(handle, data, size)
            else:
                reply_waiting(handle, data, size)
        else:
            with held(data) as (address, size):
                reply_waiting(handle, address, size)

    return send
