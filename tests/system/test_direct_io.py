"""Asynchronous direct writes (O_DIRECT, io_submit(2)) beside ordinary reads: what virtual machines do."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_NUMBERS: Final = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_PWRITE: Final = 1
_SIZE: Final = 640 << 10
_ROUNDS: Final = 150

pytestmark = pytest.mark.skipif(
    platform.machine() not in _NUMBERS, reason="numbers of system calls not known"
)


def _call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *arguments)]
    result = int(_LIBC.syscall(*words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class _Queue:
    """A context of asynchronous operations (io_setup(2)), for one write at a time."""

    def __init__(self) -> None:
        self._setup, self._destroy, self._submit, self._events = _NUMBERS[platform.machine()]
        self._context = ctypes.c_ulong(0)
        _call(self._setup, 1, ctypes.byref(self._context))

    def write(self, descriptor: int, memory: mmap.mmap) -> int:
        """Submit a write of all of *memory* at 0; how many bytes it wrote in the end."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        fields = (1, 0, 0, _PWRITE, 0, descriptor, address, len(memory), 0, 0, 0, 0)
        operation = ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", *fields))
        pointer = ctypes.c_void_p(ctypes.addressof(operation))
        assert _call(self._submit, self._context, 1, ctypes.byref(pointer)) == 1
        event = ctypes.create_string_buffer(32)
        assert _call(self._events, self._context, 1, 1, event, None) == 1
        result: int = struct.unpack("<QQqq", event.raw)[2]
        return result

    def close(self) -> None:
        _call(self._destroy, self._context)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Somebody reads the file all the time."""
    enough = threading.Event()

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while not enough.is_set():
                os.pread(file.fileno(), _SIZE, 0)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        enough.set()
        for reader in readers:
            reader.join()


def test_what_was_written_directly_is_read_at_once(folder: Path) -> None:
    path, queue = folder / "image", _Queue()
    path.write_bytes(bytes(_SIZE))
    descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _SIZE) as memory, _reading(path):
            for number in range(_ROUNDS):
                memory[:] = bytes([1 + number % 250]) * _SIZE
                assert queue.write(descriptor, memory) == _SIZE
                assert path.read_bytes() == memory[:], f"round {number}"
    finally:
        os.close(descriptor)
        queue.close()
