"""The operations of a mounted filesystem, as programs see them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from hybrisfs.fuse import records
from tests.fuse.server import Server, names_in

_libc = ctypes.CDLL(None, use_errno=True)


def rename_with(flags: int, source: Path, target: Path) -> None:
    if _libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def test_written_bytes_are_read_back(server: Server) -> None:
    path = server.mountpoint / "file"
    data = os.urandom(3 << 20)
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), 1 << 20):
            assert file.write(data[start : start + (1 << 20)]) == 1 << 20
    os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert path.read_bytes() == data
    assert path.stat().st_size == len(data)


def test_append_overwrite_truncate_and_sparse(server: Server) -> None:
    path = server.mountpoint / "file"
    path.write_bytes(b"0123456789")
    with path.open("ab") as file:
        file.write(b"abc")
    with path.open("r+b") as file:
        file.seek(2)
        file.write(b"--")
    assert path.read_bytes() == b"01--456789abc"
    os.truncate(path, 4)
    os.truncate(path, 6)
    assert path.read_bytes() == b"01--\0\0"
    with path.open("wb") as file:  # O_TRUNC
        file.seek(3 << 30)
        file.write(b"end")
        file.seek(0)
        assert file.fileno() >= 0
        os.ftruncate(file.fileno(), 10)
    assert path.read_bytes() == bytes(10)


def test_attributes_travel_exactly(server: Server) -> None:
    path = server.mountpoint / "file"
    path.touch(mode=0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    os.chown(path, 12345, 54321)
    path.chmod(0o4751)
    os.utime(path, ns=(-1, 1_234_567_890_123_456_789))
    seen = path.stat()
    assert (seen.st_mode, seen.st_uid, seen.st_gid) == (stat.S_IFREG | 0o4751, 12345, 54321)
    assert (seen.st_atime_ns, seen.st_mtime_ns) == (-1, 1_234_567_890_123_456_789)
    os.utime(path)
    assert path.stat().st_mtime_ns > 1_700_000_000_000_000_000


def test_directories_links_and_special_files(server: Server) -> None:
    root = server.mountpoint
    (root / "dir").mkdir(mode=0o750)
    (root / "dir" / "link").symlink_to("../target")
    assert (root / "dir" / "link").readlink() == Path("../target")
    (root / "file").write_bytes(b"x")
    os.link(root / "file", root / "dir" / "hard")
    assert (root / "file").stat().st_nlink == 2
    assert (root / "dir" / "hard").stat().st_ino == (root / "file").stat().st_ino
    os.mkfifo(root / "fifo")
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    kinds = {entry.name: (entry.is_dir(), entry.is_file()) for entry in os.scandir(root)}
    assert kinds == {"dir": (True, False), "file": (False, True), "fifo": (False, False)}
    assert [entry.name for entry in os.scandir(root / "dir") if entry.is_symlink()] == ["link"]
    with pytest.raises(OSError, match="not empty"):
        (root / "dir").rmdir()
    (root / "dir" / "link").unlink()
    (root / "dir" / "hard").unlink()
    (root / "dir").rmdir()
    assert sorted(names_in(root)) == ["fifo", "file"]


def test_names_are_bytes(server: Server) -> None:
    root = os.fsencode(server.mountpoint)
    names = [b"\xff\xfe", b"n" * 255, "größe".encode(), b"a\nb"]
    for name in names:
        os.close(os.open(root + b"/" + name, os.O_CREAT))
    assert sorted(os.fsencode(name) for name in names_in(server.mountpoint)) == sorted(names)


def test_an_unlinked_open_file_lives_until_it_is_closed_and_forgotten(server: Server) -> None:
    path = server.mountpoint / "file"
    with path.open("w+b") as file:
        file.write(b"still here")
        file.flush()
        path.unlink()
        assert server.order("known") == 2
        assert os.pread(file.fileno(), 100, 0) == b"still here"
    assert not path.exists()
    server.wait_until(1, "known")


def test_a_directory_of_5000_names(server: Server) -> None:
    directory = server.mountpoint / "dir"
    directory.mkdir()
    names = {f"name-{number}-{'x' * (number % 40)}" for number in range(5000)}
    for name in names:
        os.close(os.open(directory / name, os.O_CREAT))
    listed = list(os.scandir(directory))
    assert len(listed) == 5000
    assert {entry.name for entry in listed} == names
    assert all(entry.is_file(follow_symlinks=False) for entry in listed)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert len(list(os.scandir(fd))) == 5000
    finally:
        os.close(fd)


def test_listing_with_attributes_counts_lookups(server: Server) -> None:
    path = server.mountpoint / "file"
    path.touch()
    before = server.order("lookups", "file")
    for entry in os.scandir(server.mountpoint):
        entry.stat()
    assert server.order("lookups", "file") > before
    path.unlink()
    server.wait_until(1, "known")  # every lookup was forgotten again, so the inode is gone


def test_extended_attributes(server: Server) -> None:
    path = server.mountpoint / "file"
    path.touch()
    os.setxattr(path, "user.empty", b"")
    os.setxattr(path, "user.binary", b"a\0b" * 1000)
    assert os.getxattr(path, "user.binary") == b"a\0b" * 1000
    assert os.getxattr(path, "user.empty") == b""
    assert sorted(os.listxattr(path)) == ["user.binary", "user.empty"]
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.empty", b"", os.XATTR_CREATE)
    with pytest.raises(OSError) as caught:
        os.setxattr(path, "user.none", b"", os.XATTR_REPLACE)
    assert caught.value.errno == errno.ENODATA
    os.removexattr(path, "user.empty")
    assert os.listxattr(path) == ["user.binary"]


def test_rename_and_its_flags(server: Server) -> None:
    one, two = server.mountpoint / "one", server.mountpoint / "two"
    one.write_text("1")
    two.write_text("2")
    with pytest.raises(FileExistsError):
        rename_with(records.RENAME_NOREPLACE, one, two)
    rename_with(records.RENAME_EXCHANGE, one, two)
    assert (one.read_text(), two.read_text()) == ("2", "1")
    one.rename(two)
    assert two.read_text() == "2"
    assert not one.exists()
    with pytest.raises(OSError) as caught:
        rename_with(records.RENAME_WHITEOUT, two, one)
    assert caught.value.errno == errno.EINVAL


def test_allocate_seek_copy_and_statvfs(server: Server) -> None:
    one, two = server.mountpoint / "one", server.mountpoint / "two"
    one.write_bytes(b"content")
    with one.open("r+b") as source, two.open("w+b") as target:
        os.posix_fallocate(source.fileno(), 0, 100)
        assert os.fstat(source.fileno()).st_size == 100
        assert os.lseek(source.fileno(), 3, os.SEEK_DATA) == 3
        assert os.lseek(source.fileno(), 3, os.SEEK_HOLE) == 100
        with pytest.raises(OSError) as caught:
            os.lseek(source.fileno(), 200, os.SEEK_DATA)
        assert caught.value.errno == errno.ENXIO
        assert os.copy_file_range(source.fileno(), target.fileno(), 5, 2, 1) == 5
    assert two.read_bytes() == b"\0ntent"
    seen = os.statvfs(server.mountpoint)
    assert (seen.f_bsize, seen.f_frsize, seen.f_blocks, seen.f_bfree, seen.f_bavail) == (
        4096,
        4096,
        1 << 20,
        1 << 19,
        1 << 18,
    )
    assert (seen.f_files, seen.f_ffree, seen.f_namemax) == (1 << 16, 1 << 15, 255)


def test_what_is_not_implemented_is_answered_so(server: Server) -> None:
    with (server.mountpoint / "file").open("wb") as file:
        os.fsync(file.fileno())  # Linux takes ENOSYS for success here
    os.close(os.open(server.mountpoint / "file", os.O_RDWR))
    assert os.access(server.mountpoint / "file", os.R_OK)


def test_locks_are_left_to_the_kernel(server: Server) -> None:
    path = server.mountpoint / "file"
    with path.open("wb") as one, path.open("wb") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(one, fcntl.LOCK_EX)
