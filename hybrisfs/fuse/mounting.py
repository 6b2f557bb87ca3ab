"""Mounting and unmounting: mount(2) for root, fusermount3 for everybody else.

For root this needs no program, and for others the error is known by what fusermount3 prints.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hybrisfs.fuse.errors import FuseError

__all__ = ["abort", "clear_stale", "connect", "is_stale", "mounted_device", "mounts_of", "unmount"]

_DEVICE = "/dev/fuse"
_FUSERMOUNT = "fusermount3"
_CONNECTIONS = Path("/sys/fs/fuse/connections")
_TABLE = Path("/proc/self/mountinfo")

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOATIME = 1, 2, 4, 8, 1024
_FLAGS = {"ro": _MS_RDONLY, "rw": 0, "nosuid": 0, "nodev": 0, "noexec": _MS_NOEXEC, "noatime": _MS_NOATIME}
_AGAIN = "again"
# fusermount3 wants to be let into the directory; opened any sooner, programs would find it open, too.
_OPENED = ("/bin/sh", "-c", 'chmod u+rwx "$0" && exec "$@"')
_MNT_FORCE, _MNT_DETACH = 1, 2
_UMOUNT_NOFOLLOW = 8

_libc = ctypes.CDLL(None, use_errno=True)


class _Mount(NamedTuple):
    path: bytes
    device: str
    kind: str
    source: bytes


def _mounts(table: Path = _TABLE) -> Iterator[_Mount]:
    """All mounts, those on top last (see proc_pid_mountinfo(5))."""
    with open(table, "rb") as lines:
        for line in lines:
            fields, _, rest = line.partition(b" - ")
            words, (kind, source, *_) = fields.split(), rest.split(b" ")
            yield _Mount(_unescaped(words[4]), words[2].decode(), kind.decode(), _unescaped(source))


def _unescaped(word: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), word)


def _mount_at(mountpoint: Path) -> _Mount | None:
    """The topmost mount at a resolved path."""
    wanted = os.fsencode(mountpoint)
    return next((one for one in reversed(list(_mounts())) if one.path == wanted), None)


def mounts_of(subtype: str, table: Path = _TABLE) -> Iterator[tuple[Path, str]]:
    """Where filesystems of this subtype are mounted, by any user, and the name of the source of each."""
    kind = f"fuse.{subtype}"
    for one in _mounts(table):
        if one.kind == kind:
            yield Path(os.fsdecode(one.path)), os.fsdecode(one.source)


def mounted_device(mountpoint: Path) -> str | None:
    """The device number, as "major:minor", of what is mounted at a resolved path."""
    mount = _mount_at(mountpoint)
    return mount.device if mount else None


def connect(mountpoint: Path, options: Sequence[str]) -> int:
    """Mount an empty directory, and return the descriptor of /dev/fuse through which it is served.

    `options` are those of mount.fuse3(8): `fsname=`, `subtype=`, `ro`, `noexec`, `noatime`, what the
    kernel takes, such as `default_permissions` and `allow_other`, and `again`, by which the directory may
    hold something, and be closed to its owner, which finds it open afterwards. Raises FuseError.
    """
    again = _AGAIN in options
    _check(mountpoint, again=again)
    options = [option for option in options if option != _AGAIN]
    if os.geteuid() == 0:
        return _mount_directly(mountpoint, options)
    return _ask_fusermount(mountpoint, options, opened=again)


def clear_stale(mountpoint: Path) -> bool:
    """Unmount the mount that a dead server has left behind; False when there is nothing of that kind.

    Raises FuseError when it is there and cannot be removed.
    """
    mountpoint = mountpoint.resolve()
    if not is_stale(mountpoint):
        return False
    unmount(mountpoint, lazy=True)
    return True


def unmount(mountpoint: Path, *, lazy: bool) -> None:
    """Take the mount away, or, when `lazy`, out of sight until no program uses it any more. Raises
    FuseError."""
    if os.geteuid() == 0:
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
        if _libc.umount2(os.fsencode(mountpoint), flags):
            number = ctypes.get_errno()
            raise _unmount_error(mountpoint, number, os.strerror(number))
        return
    command = [_fusermount(), "-u", *(["-z"] if lazy else []), "--", os.fspath(mountpoint)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        message = done.stderr.strip()
        raise _unmount_error(mountpoint, errno.EBUSY if "busy" in message else errno.EPERM, message)


def abort(mountpoint: Path) -> bool:
    """Fail every request that waits for the server of this mount; False when nothing is mounted there.

    The kernel does so by itself when the server has ended. But a server that is killed while one of its
    threads has the kernel drop a page that a program is reading does not end: the page is locked until the
    read is answered. Raises FuseError.
    """
    mountpoint = mountpoint.parent.resolve() / mountpoint.name  # to look at the mount itself would hang
    mount = _mount_at(mountpoint)
    if mount is None or not mount.kind.startswith("fuse"):
        return False
    try:
        # Belongs to the user who mounted; not there where fusectl is not mounted, as in many containers.
        (_CONNECTIONS / mount.device.partition(":")[2] / "abort").write_bytes(b"1")
    except OSError as error:
        if os.geteuid() != 0:
            raise FuseError(
                error.errno, f"cannot end what waits for {mountpoint}: {error.strerror}"
            ) from error
        if _libc.umount2(os.fsencode(mountpoint), _UMOUNT_NOFOLLOW | _MNT_FORCE | _MNT_DETACH):
            number = ctypes.get_errno()
            raise _unmount_error(mountpoint, number, os.strerror(number)) from None
    return True


def _unmount_error(mountpoint: Path, number: int, message: str) -> FuseError:
    text = f"cannot unmount {mountpoint}: {message}"
    if number == errno.EBUSY:
        text += f"; close what uses it (fuser -vm {mountpoint} tells) or unmount lazily"
    return FuseError(number, text)


def is_stale(mountpoint: Path) -> bool:
    """Whether a server that died has left its mount at a resolved path."""
    mount = _mount_at(mountpoint)
    if mount is None or not mount.kind.startswith("fuse"):
        return False
    try:
        # Not stat: the kernel may still remember the attributes of the root.
        os.statvfs(mountpoint)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def _check(mountpoint: Path, *, again: bool) -> None:
    if is_stale(mountpoint):
        raise FuseError(
            errno.ENOTCONN,
            f"{mountpoint} is still mounted by a server that has died (Transport endpoint is not connected): "
            f"run {_FUSERMOUNT} -u -z {mountpoint}",
        )
    mount = _mount_at(mountpoint)
    if mount:
        raise FuseError(errno.EBUSY, f"{mountpoint} is mounted already ({mount.kind}): unmount it first")
    try:
        empty = _is_directory(mountpoint) if again else _is_empty(mountpoint)
    except FileNotFoundError:
        raise FuseError(errno.ENOENT, f"{mountpoint} does not exist: create the directory first") from None
    except NotADirectoryError:
        raise FuseError(
            errno.ENOTDIR, f"{mountpoint} is not a directory: choose an empty directory"
        ) from None
    except OSError as error:
        raise FuseError(error.errno, f"cannot look into {mountpoint}: {error.strerror}") from error
    if not empty:
        raise FuseError(
            errno.ENOTEMPTY,
            f"{mountpoint} is not empty: the mount would hide what is there; choose an empty directory",
        )


def _is_empty(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _is_directory(path: Path) -> bool:
    """True; raises `OSError` when it is none."""
    os.close(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    return True


def _open_device() -> int:
    try:
        return os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _device_error(error) from error


def _device_error(error: OSError) -> FuseError:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        advice = "load the kernel module (modprobe fuse); a container needs --device /dev/fuse"
    else:
        advice = "it should be readable and writable for everybody (mode 666)"
    return FuseError(error.errno, f"cannot open {_DEVICE}: {error.strerror}; {advice}")


def _mount_directly(mountpoint: Path, options: Sequence[str]) -> int:
    flags = _MS_NOSUID | _MS_NODEV
    source, kind = "", "fuse"
    mode = mountpoint.stat().st_mode
    device = _open_device()
    data = [f"fd={device},rootmode={stat.S_IFMT(mode):o},user_id={os.getuid()},group_id={os.getgid()}"]
    for option in options:
        key, _, value = option.partition("=")
        if key == "fsname":
            source = value
        elif key == "subtype":
            kind = f"fuse.{value}"
        elif option in _FLAGS:
            flags |= _FLAGS[option]
        else:
            data.append(option)
    failed = _libc.mount(
        os.fsencode(source or kind),
        os.fsencode(mountpoint),
        kind.encode(),
        ctypes.c_ulong(flags),
        ",".join(data).encode(),
    )
    if failed:
        number = ctypes.get_errno()
        os.close(device)
        advice = {
            errno.EPERM: "; it needs CAP_SYS_ADMIN (containers: --cap-add SYS_ADMIN --device /dev/fuse)",
            errno.EINVAL: f"; is one of these options wrong? {','.join(options)}",
            errno.ENODEV: "; load the kernel module (modprobe fuse)",
        }.get(number, "")
        raise FuseError(number, f"cannot mount {mountpoint}: {os.strerror(number)}{advice}")
    return device


def _fusermount() -> str:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/bin:/usr/bin:/bin"
    found = shutil.which(_FUSERMOUNT, path=path)
    if found is None:
        raise FuseError(errno.ENOENT, f"{_FUSERMOUNT} is not installed: install the package fuse3")
    return found


def _ask_fusermount(mountpoint: Path, options: Sequence[str], *, opened: bool) -> int:
    """fusermount3 mounts, and sends the descriptor through the socket that _FUSE_COMMFD names."""
    program = _fusermount()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        escaped = [option.replace("\\", "\\\\").replace(",", "\\,") for option in options]
        command = [program, "-o", ",".join(escaped) or "rw", "--", os.fspath(mountpoint)]
        if opened:
            command = [*_OPENED, os.fspath(mountpoint), *command]
        done = subprocess.run(
            command,
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _fusermount_error(mountpoint, done.stderr.strip())
        theirs.close()
        descriptors = socket.recv_fds(ours, 1, 1)[1]
    if not descriptors:
        raise FuseError(
            errno.EIO, f"cannot mount {mountpoint}: {program} sent no descriptor; {done.stderr.strip()}"
        )
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _fusermount_error(mountpoint: Path, message: str) -> FuseError:
    if _DEVICE in message:
        try:
            os.close(_open_device())
        except FuseError as error:
            return error
    if "allow_other" in message:
        advice = "put user_allow_other into /etc/fuse.conf, or do without allow_other"
    elif "no write access" in message or "not owned" in message or "bad mount point" in message:
        advice = "choose a directory of your own"
    elif "too many" in message:
        advice = "raise mount_max in /etc/fuse.conf or unmount others"
    elif "ermission denied" in message or "peration not permitted" in message:
        advice = (
            f"AppArmor may confine {_FUSERMOUNT} to the home directory, /mnt, /media and /tmp:"
            " mount below one of them, or see the kernel log (journalctl -k -g apparmor)"
        )
    else:
        advice = ""
    return FuseError(errno.EPERM, f"cannot mount {mountpoint}: {message}" + (f"; {advice}" if advice else ""))
