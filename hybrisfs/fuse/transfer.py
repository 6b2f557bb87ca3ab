"""Bytes shared with C without copying them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object

from hybrisfs.fuse.records import Buffer

__all__ = ["borrowed_view", "held"]

_PYBUF_SIMPLE = 0
_PYBUF_READ = 0x100


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
