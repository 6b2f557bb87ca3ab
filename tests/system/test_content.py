"""The bytes of a file: every way of writing them, and what is read back."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.device import Device

_PAGE = mmap.PAGESIZE
_MIB = 1 << 20

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # linux/falloc.h
_LIBC = ctypes.CDLL(None, use_errno=True)


def _fallocate(path: Path, mode: int, offset: int, length: int) -> None:
    with path.open("r+b") as file:
        done = _LIBC.fallocate(file.fileno(), mode, ctypes.c_int64(offset), ctypes.c_int64(length))
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def test_what_is_written_through_a_shared_mapping_is_in_the_file(shared_device: Device, folder: Path) -> None:
    path = folder / "mapped"
    expected = bytearray(random.Random(1).randbytes(5 * _PAGE + 100))
    path.write_bytes(expected)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        assert bytes(view) == expected
        for at in (0, _PAGE - 1, 3 * _PAGE + 17, len(expected) - 3):
            view[at : at + 3] = expected[at : at + 3] = b"new"
        view.flush()
        assert path.read_bytes() == expected
    shared_device.remount()
    assert path.read_bytes() == expected
    shared_device.forget()
    with path.open("rb") as again, mmap.mmap(again.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert bytes(view) == expected


def test_two_mappings_of_one_file_share_their_pages(folder: Path) -> None:
    path = folder / "mapped"
    path.write_bytes(bytes(_PAGE))
    with (
        path.open("r+b") as one,
        path.open("r+b") as two,
        mmap.mmap(one.fileno(), 0) as a,
        mmap.mmap(two.fileno(), 0) as b,
    ):
        a[10:15] = b"hello"
        assert b[10:15] == b"hello"


def test_a_sparse_file_costs_no_room_and_reads_as_zeros(shared_device: Device, folder: Path) -> None:
    path = folder / "sparse"
    with path.open("wb") as file:
        file.seek(100 * _MIB)
        file.write(b"end")
    for _ in range(2):
        assert path.stat().st_size == 100 * _MIB + 3
        assert path.stat().st_blocks * 512 < 10 * _MIB
        with path.open("rb") as file:
            assert file.read(_MIB) == bytes(_MIB)
            file.seek(100 * _MIB - 5)
            assert file.read() == bytes(5) + b"end"
        shared_device.forget()


def test_seek_hole_and_data_never_hide_data(folder: Path) -> None:
    """A filesystem may call a hole data, never data a hole."""
    path = folder / "sparse"
    with path.open("wb") as file:
        file.seek(8 * _MIB)
        file.write(b"middle" * 1000)
        file.truncate(16 * _MIB)
        file.flush()
        descriptor = file.fileno()
        data = os.lseek(descriptor, 0, os.SEEK_DATA)
        assert data <= 8 * _MIB
        assert os.lseek(descriptor, 8 * _MIB, os.SEEK_DATA) == 8 * _MIB
        assert os.lseek(descriptor, 8 * _MIB, os.SEEK_HOLE) >= 8 * _MIB + 6000
        with pytest.raises(OSError) as caught:
            os.lseek(descriptor, 16 * _MIB, os.SEEK_DATA)
        assert caught.value.errno == errno.ENXIO


def test_fallocate_grows_keeps_and_punches(shared_device: Device, folder: Path) -> None:
    path = folder / "allocated"
    expected = bytearray(b"\xaa" * 50_000)
    path.write_bytes(expected)
    _fallocate(path, _KEEP_SIZE, 0, 200_000)
    assert path.stat().st_size == 50_000
    _fallocate(path, 0, 40_000, 60_000)
    expected.extend(bytes(50_000))
    assert path.read_bytes() == expected
    _fallocate(path, _PUNCH_HOLE | _KEEP_SIZE, 5_000, 20_000)
    expected[5_000:25_000] = bytes(20_000)
    assert path.read_bytes() == expected
    _fallocate(path, _PUNCH_HOLE | _KEEP_SIZE, 90_000, 50_000)
    assert path.read_bytes() == expected
    shared_device.forget()
    assert path.read_bytes() == expected


def test_truncate_shorter_and_longer_exposes_only_zeros(shared_device: Device, folder: Path) -> None:
    path = folder / "cut"
    path.write_bytes(b"\xbb" * (3 * _MIB + 5))
    os.truncate(path, _MIB + 10)
    os.truncate(path, 2 * _MIB)
    expected = b"\xbb" * (_MIB + 10) + bytes(_MIB - 10)
    assert path.read_bytes() == expected
    shared_device.forget()
    assert path.read_bytes() == expected
    with path.open("r+b") as file:
        file.truncate(0)
        file.seek(5)
        file.write(b"x")
    assert path.read_bytes() == bytes(5) + b"x"
    with path.open("wb"):
        pass
    assert path.read_bytes() == b""


_APPENDER = """
import os, sys
path, name, count = sys.argv[1:]
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(int(count)):
    os.write(fd, f"{name} {number:06} {'.' * 50}\\n".encode())
"""


def test_four_appending_processes_overwrite_nothing(folder: Path) -> None:
    path, count = folder / "log", 500
    writers = [subprocess.Popen([sys.executable, "-c", _APPENDER, path, name, str(count)]) for name in "abcd"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == [f"{name} {number:06} {'.' * 50}" for name in "abcd" for number in range(count)]


def test_random_writes_and_truncates_match_a_model(shared_device: Device, folder: Path, seed: int) -> None:
    """What an fsx run checks: any mix of writes, cuts, holes and reads at any offset."""
    choose = random.Random(seed)
    path, model, most = folder / "any", bytearray(), 3 * _MIB
    path.touch()
    for step in range(400):
        at, length = choose.randrange(most), min(int(choose.expovariate(1 / 30_000)) + 1, most)
        match choose.choice(["write", "write", "write", "read", "truncate", "punch", "remount"]):
            case "write":
                data = choose.randbytes(length)
                model.extend(bytes(max(0, at + length - len(model))))
                model[at : at + length] = data
                with path.open("r+b") as file:
                    os.pwrite(file.fileno(), data, at)
            case "read":
                with path.open("rb") as file:
                    assert os.pread(file.fileno(), length, at) == model[at : at + length], f"step {step}"
            case "truncate":
                os.truncate(path, at)
                model = model[:at] + bytes(max(0, at - len(model)))
            case "punch":
                _fallocate(path, _PUNCH_HOLE | _KEEP_SIZE, at, length)
                end = min(at + length, len(model))
                model[at:end] = bytes(max(0, end - at))
            case "remount" if step % 20 == 0:
                shared_device.forget()
    assert path.read_bytes() == model
    shared_device.forget()
    assert path.read_bytes() == model


def test_a_file_of_more_than_4_gib(shared_device: Device, folder: Path) -> None:
    path, size = folder / "huge", (4 << 30) + 12_345
    with path.open("wb") as file:
        file.write(b"first")
        for at in ((2 << 30) - 2, (4 << 30) - 2, size - 4):
            file.seek(at)
            file.write(b"edge")
    for _ in range(2):
        assert path.stat().st_size == size
        with path.open("rb") as file:
            assert file.read(6) == b"first\0"
            for at in ((2 << 30) - 2, (4 << 30) - 2, size - 4):
                file.seek(at - 3)
                assert file.read(8) == b"\0\0\0edge\0"[: size - at + 3]
        shared_device.forget()


def test_a_large_file_comes_back_from_the_clouds(shared_device: Device, folder: Path) -> None:
    path, digest = folder / "large", hashlib.blake2b()
    with path.open("wb") as file:
        for number in range(40):
            block = random.Random(number).randbytes(_MIB + 77)
            digest.update(block)
            file.write(block)
    shared_device.forget()
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "blake2b").digest() == digest.digest()


def test_an_unlinked_file_lives_while_it_is_open(folder: Path) -> None:
    path = folder / "doomed"
    with path.open("w+b") as file:
        file.write(b"before")
        file.flush()
        path.unlink()
        assert not path.exists()
        file.write(b" after")
        file.seek(0)
        assert file.read() == b"before after"
        assert os.fstat(file.fileno()).st_nlink == 0
        path.write_bytes(b"another")
        file.seek(0)
        assert file.read() == b"before after"
    assert path.read_bytes() == b"another"


def test_a_replaced_file_lives_while_it_is_open(folder: Path) -> None:
    path, other = folder / "name", folder / "other"
    path.write_bytes(b"old")
    other.write_bytes(b"new content")
    with path.open("rb") as file:
        other.replace(path)
        assert file.read() == b"old"
    assert path.read_bytes() == b"new content"


def test_locks_exclude_other_processes(folder: Path) -> None:
    path = folder / "lock"
    path.touch()
    attempt = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(3)\n"
    )

    def other(kind: str) -> int:
        return subprocess.run([sys.executable, "-c", attempt, path, kind], timeout=60).returncode

    for kind in ("flock", "lockf"):
        with path.open("r+") as file:
            getattr(fcntl, kind)(file, fcntl.LOCK_EX)
            assert other(kind) == 3
            getattr(fcntl, kind)(file, fcntl.LOCK_UN)
            assert other(kind) == 0


def test_a_program_that_runs_is_not_truncated(folder: Path) -> None:
    program = folder / "sleep"
    shutil.copy("/bin/sleep", program)
    size = program.stat().st_size
    process = subprocess.Popen([program, "300"])
    try:
        for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC):
            with pytest.raises(OSError) as caught:
                os.open(program, flags)
            assert caught.value.errno == errno.ETXTBSY
            assert program.stat().st_size == size
    finally:
        process.kill()
        process.wait()
