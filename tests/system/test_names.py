"""Names, links, attributes and special files."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.system.device import Device
from tests.system.trees import snapshot

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_AT_SYMLINK_FOLLOW = 0x400
_NOREPLACE, _EXCHANGE = 1, 2  # linux/fs.h


def _renameat2(old: Path, new: Path, flags: int) -> None:
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _error_of(action: object, *arguments: object) -> int:
    assert callable(action)
    with pytest.raises(OSError) as caught:
        action(*arguments)
    assert caught.value.errno is not None
    return caught.value.errno


def test_hard_links_are_one_file(shared_device: Device, folder: Path) -> None:
    first, second = folder / "first", folder / "below" / "second"
    second.parent.mkdir()
    first.write_bytes(b"content")
    second.hardlink_to(first)
    for _ in range(2):
        assert first.stat().st_nlink == second.stat().st_nlink == 2
        assert first.stat().st_ino == second.stat().st_ino
        second.write_bytes(first.read_bytes() + b"+")
        assert first.read_bytes() == second.read_bytes()
        shared_device.forget()
    first.unlink()
    assert second.stat().st_nlink == 1
    assert second.read_bytes() == b"content++"
    assert _error_of(os.link, folder / "below", folder / "folder link") == errno.EPERM


def test_symlinks_keep_their_target_whatever_it_is(shared_device: Device, folder: Path) -> None:
    targets = [b"relative/../x", b"/absolute", b"not \xff utf-8", b"t" * 4000]
    for number, target in enumerate(targets):
        os.symlink(target, os.fsencode(folder) + b"/%d" % number)  # noqa: PTH211
    (folder / "real").write_text("seen through the link")
    (folder / "link").symlink_to("real")
    shared_device.remount()
    for number, target in enumerate(targets):
        assert os.readlink(os.fsencode(folder) + b"/%d" % number) == target  # noqa: PTH115
    assert (folder / "link").read_text() == "seen through the link"
    assert (folder / "link").lstat().st_size == len("real")


def test_a_fifo_passes_data_between_processes(folder: Path) -> None:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
    fifo.write_bytes(b"through the pipe" * 10_000)
    assert reader.communicate(timeout=60)[0] == b"through the pipe" * 10_000


def test_a_unix_socket_can_be_bound_in_the_folder(folder: Path) -> None:
    own = os.open(folder, os.O_RDONLY)
    name = f"/proc/self/fd/{own}/socket"  # a short way to a long path
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(name)
        server.listen(1)
        client.connect(name)
    os.close(own)
    assert stat.S_ISSOCK((folder / "socket").stat().st_mode)


def test_extended_attributes(shared_device: Device, folder: Path) -> None:
    path = folder / "file"
    path.touch()
    assert _error_of(os.getxattr, path, "user.none") == errno.ENODATA
    assert _error_of(os.setxattr, path, "user.a", b"1", os.XATTR_REPLACE) == errno.ENODATA
    os.setxattr(path, "user.a", b"1", os.XATTR_CREATE)
    assert _error_of(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE) == errno.EEXIST
    os.setxattr(path, "user.a", b"\x00two\xff", os.XATTR_REPLACE)
    os.setxattr(path, "user.empty", b"")
    os.setxattr(path, "user.long", b"v" * 4000)
    os.setxattr(folder, "user.on a folder", b"yes")
    shared_device.remount()
    assert sorted(os.listxattr(path)) == ["user.a", "user.empty", "user.long"]
    assert os.getxattr(path, "user.a") == b"\x00two\xff"
    assert os.getxattr(path, "user.empty") == b""
    assert os.getxattr(path, "user.long") == b"v" * 4000
    assert os.getxattr(folder, "user.on a folder") == b"yes"
    os.removexattr(path, "user.a")
    assert _error_of(os.removexattr, path, "user.a") == errno.ENODATA
    assert sorted(os.listxattr(path)) == ["user.empty", "user.long"]


def test_modes_owners_and_nanosecond_times_survive(shared_device: Device, folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"x")
    path.chmod(0o4751)
    if os.geteuid() == 0:
        os.chown(path, 1234, 5678)
        path.chmod(0o4751)  # chown clears set-user-id
    os.utime(path, ns=(1_111_111_111_123_456_789, 2_222_222_222_987_654_321))
    os.utime(folder, ns=(5, 1_000_000_007))
    before = path.stat()
    assert before.st_mtime_ns == 2_222_222_222_987_654_321
    assert before.st_atime_ns == 1_111_111_111_123_456_789
    assert stat.S_IMODE(before.st_mode) == 0o4751
    shared_device.forget()
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_mtime_ns == before.st_mtime_ns
    assert folder.stat().st_mtime_ns == 1_000_000_007


def test_writing_moves_mtime_and_creating_moves_the_folders(folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"x")
    for touched in (path, folder):
        os.utime(touched, ns=(1, 1))
    path.write_bytes(b"longer")
    assert path.stat().st_mtime_ns > 10**18
    assert folder.stat().st_mtime_ns == 1
    (folder / "new").touch()
    assert folder.stat().st_mtime_ns > 10**18
    changed = path.stat().st_ctime_ns
    path.chmod(0o600)
    assert path.stat().st_ctime_ns > changed


def test_rename_replaces_files_and_empty_folders_only(shared_device: Device, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    (folder / "b").write_bytes(b"b")
    (folder / "a").rename(folder / "b")
    assert (folder / "b").read_bytes() == b"a"
    assert not (folder / "a").exists()
    (folder / "full").mkdir()
    (folder / "full" / "x").write_bytes(b"x")
    (folder / "empty").mkdir()
    assert _error_of(os.rename, folder / "empty", folder / "full") == errno.ENOTEMPTY
    assert _error_of(os.rename, folder / "full", folder / "full" / "inside") == errno.EINVAL
    assert _error_of(os.rename, folder / "b", folder / "empty") == errno.EISDIR
    assert _error_of(os.rename, folder / "empty", folder / "b") == errno.ENOTDIR
    assert _error_of(os.rename, folder / "none", folder / "b") == errno.ENOENT
    (folder / "full").rename(folder / "empty")
    shared_device.remount()
    assert (folder / "empty" / "x").read_bytes() == b"x"
    assert sorted(path.name for path in folder.iterdir()) == ["b", "empty"]


def test_rename_noreplace_and_exchange(shared_device: Device, folder: Path) -> None:
    a, b, c = folder / "a", folder / "b", folder / "c"
    a.write_bytes(b"a")
    b.mkdir()
    (b / "inner").write_bytes(b"inner")
    assert _error_of(_renameat2, a, b, _NOREPLACE) == errno.EEXIST
    _renameat2(a, c, _NOREPLACE)
    _renameat2(c, b, _EXCHANGE)
    assert _error_of(_renameat2, c, folder / "none", _EXCHANGE) == errno.ENOENT
    shared_device.remount()
    assert b.read_bytes() == b"a"
    assert (c / "inner").read_bytes() == b"inner"


def test_what_is_exchanged_during_a_listing_is_listed_once(folder: Path) -> None:
    for number in range(1000):
        (folder / f"name-{number:04}").touch()
    with os.scandir(folder) as entries:  # the C library reads 32 KiB at a time: not all of it yet
        listed = [next(entries).name]
        in_all = {f"name-{number:04}" for number in range(1000)}
        first = listed[0]
        listed += [next(entries).name for _ in range(9)]
        last = max(in_all - set(listed))
        _renameat2(folder / first, folder / last, _EXCHANGE)
        listed += [entry.name for entry in entries]
    assert sorted(listed) == sorted(in_all)


def test_a_case_only_rename_loses_nothing(shared_device: Device, folder: Path) -> None:
    (folder / "Notes").write_bytes(b"text")
    (folder / "Notes").rename(folder / "notes")
    shared_device.forget()
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert (folder / "notes").read_bytes() == b"text"


def test_names_of_255_bytes_and_of_any_bytes(shared_device: Device, folder: Path) -> None:
    names = [
        b"n" * 255,
        "ü".encode() * 127,
        b"\xff\xfe\x80",
        b"new\nline",
        b"-rf *",
        b" ",
        "\U0001f600".encode(),
    ]
    names += ["\u00e9".encode(), "e\u0301".encode()]  # composed and decomposed are two names
    for name in names:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:
            file.write(name)
    shared_device.forget()
    assert sorted(os.listdir(os.fsencode(folder))) == sorted(names)  # noqa: PTH208
    for name in names:
        with open(os.fsencode(folder) + b"/" + name, "rb") as file:
            assert file.read() == name


def test_a_name_of_256_bytes_is_refused(folder: Path) -> None:
    long, fine = folder / ("n" * 256), folder / "fine"
    fine.touch()
    assert _error_of(long.touch) == errno.ENAMETOOLONG
    assert _error_of(long.mkdir) == errno.ENAMETOOLONG
    assert _error_of(fine.rename, long) == errno.ENAMETOOLONG
    assert _error_of(long.symlink_to, "x") == errno.ENAMETOOLONG
    assert _error_of(long.hardlink_to, fine) == errno.ENAMETOOLONG
    assert _error_of(long.stat) == errno.ENAMETOOLONG
    assert [path.name for path in folder.iterdir()] == ["fine"]


def test_errors_are_those_of_a_disk(folder: Path) -> None:
    (folder / "file").touch()
    (folder / "full").mkdir()
    (folder / "full" / "x").touch()
    assert _error_of((folder / "full").rmdir) == errno.ENOTEMPTY
    assert _error_of((folder / "full").unlink) == errno.EISDIR
    assert _error_of((folder / "file").rmdir) == errno.ENOTDIR
    assert _error_of((folder / "file").mkdir) == errno.EEXIST
    assert _error_of((folder / "file" / "below").touch) == errno.ENOTDIR
    assert _error_of((folder / "none").unlink) == errno.ENOENT
    assert _error_of(os.open, folder / "file", os.O_CREAT | os.O_EXCL) == errno.EEXIST


def test_directory_link_counts(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
    (folder / "file").touch()
    assert folder.stat().st_nlink in (1, 4), "1 says 'unknown'; otherwise '.', the name and two '..'"


def test_statvfs_tells_room_and_name_limit(folder: Path) -> None:
    facts = os.statvfs(folder)
    assert facts.f_namemax == 255
    assert facts.f_bsize > 0
    assert 0 < facts.f_bavail <= facts.f_blocks


def test_permissions_bind_other_users(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    secret = folder / "secret"
    secret.write_text("mine")
    secret.chmod(0o600)
    seen = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", secret],
        capture_output=True,
        text=True,
    )
    assert seen.returncode != 0
    assert "mine" not in seen.stdout


def test_a_moved_folder_keeps_all_below_it(shared_device: Device, folder: Path) -> None:
    deep = folder / "from"
    for number in range(30):
        deep = deep / f"level {number}"
    deep.mkdir(parents=True)
    (deep / "leaf").write_bytes(b"leaf")
    before = snapshot(folder / "from")
    (folder / "to").mkdir()
    (folder / "from").rename(folder / "to" / "moved")
    assert snapshot(folder / "to" / "moved") == before
    shared_device.forget()
    assert snapshot(folder / "to" / "moved") == before


def test_listing_while_others_create_and_delete_is_consistent(folder: Path) -> None:
    """What existed all the time is listed exactly once (POSIX readdir)."""
    stable = {f"stable-{number}" for number in range(300)}
    for name in stable:
        (folder / name).touch()
    done = threading.Event()

    def churn() -> None:
        number = 0
        while not done.is_set():
            path = folder / f"passing-{number % 50}"
            path.touch()
            path.unlink()
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(30):
            listed = [path.name for path in folder.iterdir() if path.name.startswith("stable")]
            assert len(listed) == len(stable)
            assert set(listed) == stable
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("others_read", [1, 500, 2000])
@pytest.mark.parametrize("change", ["create", "delete"])
def test_a_listing_goes_on_when_the_folder_changes_in_between(
    folder: Path, change: str, others_read: int
) -> None:
    """A listing may come in part from what the kernel kept of another's, made before or after the change."""
    stable = {f"{number:04}" + "n" * 200 for number in range(2000)}
    passing = folder / "0000 passing"
    for name in stable:
        (folder / name).touch()
    if change == "delete":
        passing.touch()
    assert stable <= {path.name for path in folder.iterdir()}
    with os.scandir(folder) as listing, os.scandir(folder) as other:
        seen = [next(listing).name for _ in range(300)]
        passing.touch() if change == "create" else passing.unlink()
        for _ in range(others_read):
            next(other)
        seen += [entry.name for entry in listing]
    seen = [name for name in seen if name != passing.name]
    assert len(seen) == len(stable)
    assert set(seen) == stable


def test_dot_and_dot_dot_are_real(folder: Path) -> None:
    (folder / "sub").mkdir()
    program = "import os, sys; os.chdir(sys.argv[1]); print(os.stat('..').st_ino, os.stat('.').st_ino)"
    seen = subprocess.run(
        [sys.executable, "-c", program, folder / "sub"], capture_output=True, text=True, check=True
    )
    assert seen.stdout.split() == [str(folder.stat().st_ino), str((folder / "sub").stat().st_ino)]


def test_a_file_without_a_name_may_get_one(shared_device: Device, folder: Path) -> None:
    """Where the kernel passes O_TMPFILE on, from Linux 6.1; elsewhere programs do without."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1):
        assert _error_of(os.open, folder, os.O_RDWR | os.O_TMPFILE, 0o600) == errno.EOPNOTSUPP
        return
    descriptor = os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600)
    try:
        os.write(descriptor, b"complete")
        assert os.fstat(descriptor).st_nlink == 0
        assert not list(folder.iterdir())
        assert _name_open_file(descriptor, folder / "named") == 0
        assert os.fstat(descriptor).st_nlink == 1
    finally:
        os.close(descriptor)
    shared_device.forget()
    assert (folder / "named").read_bytes() == b"complete"
    excluded = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_EXCL, 0o600)
    assert _name_open_file(excluded, folder / "never") == errno.ENOENT
    os.close(excluded)


def test_who_renames_what_he_lists_gets_done(folder: Path) -> None:
    """Each new name comes to the end of the directory."""
    for number in range(400):
        (folder / f"{number}").touch()
    seen = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            seen += 1
            assert seen <= 400, "it goes on for ever"
            os.rename(entry.path, f"{folder}/{seen} renamed")  # noqa: PTH104
    assert len(list(folder.iterdir())) == 400


def _name_open_file(descriptor: int, path: Path) -> int:
    """linkat(2) as open(2) shows it for O_TMPFILE; its errno, or 0."""
    old = b"/proc/self/fd/%d" % descriptor
    failed = _LIBC.linkat(_AT_FDCWD, old, _AT_FDCWD, os.fsencode(path), _AT_SYMLINK_FOLLOW)
    return ctypes.get_errno() if failed else 0
